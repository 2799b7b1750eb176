"""The notebooks as jobs: which there are, where their copies go, and what several of them read; knows no kernel."""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pro_lib import bundled
from pro_lib.checks import extra
from pro_lib.command import jobs
from pro_lib.command.jobs import Job

NOTEBOOKS = bundled.ROOT / "notebooks"
DATASETS = ["world-facts", "world-facts-reworded"]
# Runs that several notebooks read, with their seconds on two cores, a thread each, as those of the notebooks below; the
# longest are begun first. A notebook that is not named is short.
RUNS = {
    ("facts-2m", "diverse_beam", "greedy"): 155,
    ("facts-2m", "multinomial"): 118,
    ("facts-1m", "diverse_beam", "greedy", "multinomial"): 177,
    ("facts-2m", "threshold"): 60,
}
SECONDS = {"07": 60, "09": 45, "06": 55, "08": 40, "05": 31, "04": 15, "03": 14, "02": 18, "01": 15, "00": 15}
# These read some of the runs alone, by their places.
READ = {"00": (0,), "01": (0,), "07": (0, 1, 3)}


def found(name: str) -> Path:
    """A notebook by path, or of ours by number or how its name begins. ValueError, naming all, unless it is one."""
    if name.endswith(".ipynb") and os.path.isfile(name):
        return Path(name)
    names = [path.stem for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]
    chosen = [each for each in names if each.startswith((name, f"0{name}"))] if name else []
    if len(chosen) != 1:
        raise ValueError(f"{name!r} fits {len(chosen)} notebooks, not one; choose from {', '.join(names)}")
    return NOTEBOOKS / f"{chosen[0]}.ipynb"


def run(name: str, parameters: Mapping[str, object], executed: Path | None = None) -> str:
    """Run one notebook; where its figures are, if apart, and the path of its executed copy, on lines of their own."""
    path = found(name)
    output = _folder(executed) / path.name
    jobs.run([Job(path.stem, partial(jobs.notebook, path, output, parameters))])
    said = re.findall(r'Figures go to [^"\\]+', output.read_text(encoding="utf-8"))
    return "\n".join([*said[:1], str(output)])


def run_all(executed: Path | None = None) -> None:
    """Run every notebook, three at a time, after the runs that several read."""
    with extra("notebooks", "running notebooks"):
        import papermill  # noqa: F401 (once for all)

    # The bundled models are too small to gain from a second thread, and one thread gives the same bytes everywhere.
    os.environ["OMP_NUM_THREADS"] = "1"
    runs = [Job(" ".join(what), partial(_generate, *what), seconds) for what, seconds in RUNS.items()]
    drawn = []
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        after = [runs[place] for place in READ.get(path.name[:2], range(len(runs)))]
        work = partial(jobs.notebook, path, _folder(executed) / path.name, {})
        drawn.append(Job(path.stem, work, SECONDS.get(path.name[:2], 45), after))
    # One more than two cores: a notebook waits for its kernel now and then.
    jobs.run([*runs, *sorted(drawn, key=lambda job: -job.seconds)], at_once=3)


def _generate(model: str, *strategies: str) -> None:
    from pro_lib.settings import Settings

    settings = Settings(model=model, dataset=DATASETS, search_alpha=0.005)
    for strategy in strategies:
        for pair in settings.pairs()[: 1 if strategy == "threshold" else None]:  # 07 and 09 search the first set alone
            if strategy == "diverse_beam":  # 00 and 01 ask for the test questions alone, and packs keep their order
                settings.run(*pair, strategy=strategy)
            settings.run(*pair, "validation", settings.split, strategy=strategy)
            if strategy == "threshold":
                settings.remainders(*pair)


def _folder(executed: Path | None) -> Path:
    return executed or (bundled.CHECKOUT / "build" / "notebooks" if bundled.CHECKOUT else Path("executed"))
