"""The command `pro`: what is typed becomes calls of the package, what is wrong becomes one line; computes nothing.

A command imports what it needs when it is called, so that `pro --help` is there at once.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pro_lib
from pro_lib import bundled
from pro_lib.checks import extra, one_line

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.asking import Answer
    from pro_lib.evaluation import Choices
    from pro_lib.runs import Run

# What an exact search is sure of, by its status.
SURE = {
    "certified": "All answers with p ≥ {:g} were found; whether they are right, the model does not know.",
    "fallback": "No answer has p ≥ {:g}; PRO is the NLL of the greedy answer.",
    "undecided": "Answers with p ≥ {:g} may be missing: the search stopped at its length or budget.",
}
ROWS = 20
FILE, WRITTEN = click.Path(exists=True, dir_okay=False), click.Path(dir_okay=False, path_type=Path)
ALPHA = click.option("--alpha", type=float, default=0.4, show_default=True, help="PRO keeps answers with p ≥ α.")
EXECUTED = click.option("--executed", type=click.Path(file_okay=False, path_type=Path), help="Folder of the copies.")


class _OneLine(click.Group):
    """Commands whose errors are one line and exit status 1."""

    def invoke(self, context: click.Context) -> Any:
        warnings.formatwarning = lambda message, *_, **__: f"{one_line(message)}\n"
        try:
            return super().invoke(context)
        except BrokenPipeError:  # who read it has read enough; click ends without a word
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(one_line(error)) from error


@click.group(cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Uncertainty of language-model answers from the probabilities of the likely ones."""


@pro.command()
@click.argument("question")
@click.option("--model", default="facts-2m", show_default=True, help="A bundled or paper's name, hub id or folder.")
@ALPHA
@click.option("--search-alpha", type=float, default=0.02, show_default=True, help="Find every answer with p ≥ this.")
@click.option("--calibration", type=click.Path(exists=True), help="A run with known answers, of the same model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(question: str, model: str, alpha: float, search_alpha: float, calibration: str | None, as_json: bool) -> None:
    """Ask a model one question: its answer, and how uncertain it is."""
    from pro_lib import asking

    answer = asking.ask(model, question, alpha=alpha, search_alpha=search_alpha, calibration=calibration)
    text = _answer_lines(answer, alpha=alpha, search_alpha=search_alpha)
    click.echo(json.dumps(asdict(answer), ensure_ascii=False) if as_json else text)


@pro.command()
@click.argument("responses", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@ALPHA
@click.option("--questions", type=FILE, help="Questions with references, where RESPONSES has none.")
@click.option("--labels", type=FILE, help="Which answers are right: question_id, text, correct.")
@click.option("--output", type=WRITTEN, help="Write the table: .csv, .parquet or .jsonl.")
def score(responses: str, alpha: float, questions: str | None, labels: str | None, output: Path | None) -> None:
    """Score answers made elsewhere: a table with PRO, NLL, K and mass.

    RESPONSES holds our records, OpenAI's responses or vLLM's outputs, one JSON object a line; - is standard input.
    Where right answers are known, accuracy and AUROC stand below the table.
    """
    from pro_lib.settings import Settings

    read = ["/dev/stdin" if path == "-" else path for path in (responses, questions, labels) if path]
    if output and output.exists() and any(output.samefile(path) for path in read):
        raise ValueError(f"--output {output} would overwrite what is read")
    with tempfile.TemporaryDirectory() as folder:
        if responses == "-":
            responses = f"{folder}/stdin.jsonl"
            Path(responses).write_bytes(sys.stdin.buffer.read())
        given = {"dataset": questions, "correctness": labels}
        settings = Settings(records=responses, alpha=alpha, **{name: path for name, path in given.items() if path})
        run = settings.run(*settings.pairs()[0])
    table = run.scores(alpha=alpha)
    if output:
        _write(table, output)
    written = f"{output}: {len(table):,} questions"
    click.echo(written if output else _table_lines(table, whole=not sys.stdout.isatty()))
    click.echo(_quality(run, settings.choices, alpha=alpha, needed=bool(questions or labels)))


@pro.command()
@click.argument("notebook")
@click.option("-p", "typed", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter, as in -p alpha 0.3.")
@EXECUTED
def run(notebook: str, typed: Sequence[tuple[str, str]], executed: Path | None) -> None:
    """Run a notebook, by number, name or path. A VALUE is a Python literal (0.3, None, '["facts-2m"]'), else text.

    With parameters other than it comes with, its figures go to a folder of their own, which is said at the end.
    """
    parameters: dict[str, object] = dict(typed)
    for name, text in typed:
        with suppress(ValueError, SyntaxError):
            parameters[name] = ast.literal_eval(text)
    path = _notebook(notebook)
    folder = executed or (bundled.CHECKOUT / "build" / "notebooks" if bundled.CHECKOUT else Path("executed"))
    _execute(path, folder / path.name, parameters)
    figures = re.findall(r'Figures go to [^"\\]+', (folder / path.name).read_text(encoding="utf-8"))
    click.echo("\n".join([*figures[:1], str(folder / path.name)]))


@pro.command()
@click.argument("model")
@click.argument("strategies", nargs=-1, required=True)
@click.option("--dataset", multiple=True, default=["world-facts", "world-facts-reworded"], help="One or several.")
@click.option("--search-alpha", type=float, default=0.02, show_default=True, help="Of strategy threshold.")
def generate(model: str, strategies: Sequence[str], dataset: Sequence[str], search_alpha: float) -> None:
    """Generate the answers of MODEL that notebooks read, by each of the STRATEGIES: validation and test questions."""
    from pro_lib.settings import Settings

    settings = Settings(model=model, dataset=list(dataset), search_alpha=search_alpha)
    for strategy in strategies:
        for pair in settings.pairs():
            if strategy == "diverse_beam":  # 00 and 01 ask for the test questions alone, and packs keep their order
                settings.run(*pair, strategy=strategy)
            click.echo(settings.both_splits(*pair, strategy))


@pro.command()
@click.argument("run", required=False, type=click.Path(exists=True))
@click.option("--html", type=WRITTEN, help="Write the explorer of RUN as one page.")
@ALPHA
def explore(run: str | None, html: Path | None, alpha: float) -> None:
    """Open the explorer in JupyterLab, or write that of RUN, a run folder or a file of responses, as one page."""
    if (run is None) != (html is None):
        raise click.UsageError("RUN and --html go together, as in: pro explore RUN --html run.html")
    if html:
        from pro_lib import explorer, imports, runs

        read = runs.read if os.path.isdir(run) else imports.from_file
        click.echo(explorer.to_html(read(run), html, alpha=alpha))
        return
    with extra("notebooks", "opening a notebook"):
        import jupyterlab  # noqa: F401
    path = _notebook("00")
    if not bundled.CHECKOUT:  # JupyterLab saves what it opens
        path = path.name if os.path.exists(path.name) else shutil.copy(path, path.name)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(path)])


def _notebook(name: str) -> Path:
    """Return a notebook by path, or of ours by number or how its name begins; ValueError unless it is one."""
    if name.endswith(".ipynb") and os.path.isfile(name):
        return Path(name)
    names = [path.stem for path in sorted((bundled.ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    chosen = [stem for stem in names if stem.startswith((name, f"0{name}"))] if name else []
    if len(chosen) != 1:
        raise ValueError(f"{name!r} fits {len(chosen)} notebooks, not one; choose from {', '.join(names)}")
    return bundled.ROOT / "notebooks" / f"{chosen[0]}.ipynb"


def _execute(path: Path, output: Path, parameters: Mapping[str, object]) -> None:
    """Execute a notebook; the copy is whole or absent. Raises ValueError with the sentence that it ended in."""
    with extra("notebooks", "running a notebook"):
        import papermill

    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{os.getpid()}.{output.name}")
    try:
        papermill.execute_notebook(path, temporary, parameters)
        os.replace(temporary, output)
    except papermill.PapermillExecutionError as error:
        os.replace(temporary, output)
        kind = f"{error.ename}: " if len(error.traceback) > 1 else ""  # of an error of ours the sentence stands alone
        raise ValueError(f"{kind}{error.evalue} ({output})") from None
    finally:
        temporary.unlink(missing_ok=True)


def _answer_lines(answer: Answer, *, alpha: float, search_alpha: float) -> str:
    """Return an answer on a few lines: its text, PRO, the answers kept, what the search is sure of."""
    kept = [f"  {p:.4f}  {text}" for text, p in answer.answers[: answer.kept]]
    score = f"PRO {answer.uncertainty:.3f} nats, from the answers kept at α = {alpha:g} ({answer.kept}):"
    others = [f"  and {len(answer.answers) - answer.kept} with less"] if len(answer.answers) > answer.kept else []
    sure = SURE[answer.status].format(search_alpha)
    right = ["", answer.sentence()] if answer.probability_right is not None else []
    return "\n".join([answer.text, "", score, *kept, *others, sure, *right])


def _table_lines(scored: pd.DataFrame, *, whole: bool) -> str:
    """Return a table of `Run.scores` as text, or its first rows and how to get all."""
    shown = (scored if whole else scored.head(ROWS)).dropna(axis="columns", how="all")
    text = shown.to_string(index=False, max_colwidth=None if whole else 40, float_format="%.4f", na_rep="")
    left = len(scored) - len(shown)
    return text + (f"\n… and {left:,} more; all with --output scores.csv" if left else "")


def _write(scored: pd.DataFrame, path: Path) -> None:
    """Write the table as the file's name ends, whole or not at all. Raises ValueError for another ending."""
    from pro_lib.files import write_whole

    writers = {
        ".csv": lambda: scored.to_csv(index=False).encode(),
        ".jsonl": lambda: scored.to_json(orient="records", lines=True, force_ascii=False, double_precision=15).encode(),
        ".parquet": lambda: scored.to_parquet(index=False),
    }
    if path.suffix not in writers:
        raise ValueError(f"--output {path} ends neither in .csv, nor .jsonl, nor .parquet")
    write_whole(writers[path.suffix](), path)


def _quality(run: Run, choices: Choices, *, alpha: float, needed: bool) -> str:
    """Return accuracy and AUROC of PRO and NLL with 95 % intervals; or why not, an error where they are `needed`."""
    from pro_lib import metrics
    from pro_lib.evaluation import evaluate
    from pro_lib.files import RunError

    try:
        judged = evaluate(run, choices=choices)
        methods = judged.with_pro({"PRO": alpha})[["PRO", "NLL"]]
        aurocs = zip(methods, *metrics.auroc_intervals(methods, judged.correct), strict=True)
    except metrics.OneClassError:
        return f"No AUROC: {judged.one_class()}."
    except RunError as error:
        if needed:
            raise
        return f"No accuracy: {error}."
    lines = [f"AUROC {method}: {auroc:.3f} ({low:.3f} to {high:.3f})" for method, auroc, low, high in aurocs]
    return "\n".join([f"Accuracy: {judged.correct.mean():.3f}. {judged.exclusions.sentence()}", *lines])
