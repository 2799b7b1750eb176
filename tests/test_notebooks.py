"""Every notebook runs headless, has the shape the design asks for, and stops early on a wrong parameter."""

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import nbformat
import papermill
import pytest
from IPython.core.interactiveshell import InteractiveShell
from pandas.testing import assert_frame_equal
from papermill.translators import PythonTranslator
from traitlets.config import Config

from pro_lib import notebook
from pro_lib.imports import published
from pro_lib.parameters import Parameters
from pro_lib.questions import load
from pro_lib.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
DESIGN = [
    "00_explore_examples",
    "01_generate",
    "02_alpha_sweep",
    "03_k_vs_alpha",
    "04_fixed_k",
    "05_rouge_threshold",
    "06_benchmark",
    "07_exact_search",
    "08_when_does_pro_help",
    "09_guarantees",
]
SHARED = {"dataset", "split", "alpha", "n_answers", "limit", "seed", "batch_size", "device", "dtype", "records"}
SHARED |= {"model", "generations_dir", "figures_dir", "columns"}
SHARED |= {"diversity_penalty", "max_new_tokens", "stop", "fraction", "n_shots", "chat"}
DRAWN = {"temperature", "top_p"}  # of samples; 07's are the model's own, whose entropy they estimate
DEEPER = {"07_exact_search": 0.005, "09_guarantees": 0.005}  # how far down they search
TYPES = {"str", "int", "float", "bool", "list[str]", "list[float]"}
COUNTING = ["02_alpha_sweep", "03_k_vs_alpha", "04_fixed_k", "05_rouge_threshold", "06_benchmark"]
COUNTING += ["08_when_does_pro_help"]
SEARCHING = ["00_explore_examples", "01_generate", "02_alpha_sweep", "03_k_vs_alpha", "04_fixed_k", *DEEPER]
# Kernels are processes of their own: they must neither look for a network nor fight over two cores.
KERNEL = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
BAD = [
    ("split", "tset", "split='tset' is unknown; choose train_shots, validation, test"),
    ("alpha", 1.5, "alpha=1.5 must lie in [0, 1]"),
    ("n_answers", 0, "n_answers=0 must be a positive whole number"),
    ("model", "no-such-model", "model='no-such-model' is neither bundled (facts-1m, facts-2m, facts-long)"),
    (
        "dataset",
        "world-fact",
        "dataset='world-fact' is neither world-facts, world-facts-reworded, world-facts-long, ",
    ),
    ("limit", 0, "limit=0 must be a positive whole number or None"),
    ("seed", -1, "seed=-1 must be a whole number of at least 0"),
    ("records", "nowhere.jsonl", "records='nowhere.jsonl' is not a file"),
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One place for runs, so that a notebook finds what another has generated."""
    root = tmp_path_factory.mktemp("notebooks")
    return root / "generations", root / "figures"


def run(path, output, monkeypatch, **parameters):
    for name, value in KERNEL.items():
        monkeypatch.setenv(name, value)
    return papermill.execute_notebook(path, output, parameters=parameters, cwd=ROOT, progress_bar=False)


def test_the_notebooks_are_those_of_the_design():
    assert NAMES == DESIGN


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_its_shape(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    assert notebook.cells[0].cell_type == "markdown"
    for line in tagged[0].source.splitlines():
        declaration, _, comment = line.partition("#")
        assert ": " in declaration.partition("=")[0], line
        assert comment.strip(), line
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert not any("def " in cell.source or "class " in cell.source for cell in code)


def test_a_parameter_is_the_same_line_in_every_notebook_and_as_it_is_declared():
    """Its comment is that of `parameters.py`; only what a notebook is about has another default there."""
    declared = {field.name: field.default for field in fields(Parameters)}
    said = dict(re.findall(r"^    (\w+): .*?  # (.*)$", (ROOT / "pro_lib" / "parameters.py").read_text(), re.MULTILINE))
    assert said.keys() == declared.keys()
    own = {"model", "dataset", "similarity"}
    for path in NOTEBOOKS:
        for name, described in papermill.inspect_notebook(path).items():
            one = path.stem == "00_explore_examples" and name in ("model", "dataset")
            assert described["help"] == (said[name].replace("one or several: ", "") if one else said[name]), name
            default = ast.literal_eval(described["default"])
            default = tuple(default) if name in ("stop", "protocol", "target") else default
            usual = DEEPER.get(path.stem) if name == "search_alpha" else None
            assert default in (declared[name], usual) or name in own, (path.stem, name)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_papermill_describes_every_parameter(path):
    described = papermill.inspect_notebook(path)
    assert set(described) >= SHARED | ({"search_alpha"} if path.stem in SEARCHING else set())
    counting = {"protocol", "distinct", "convention"} if path.stem in COUNTING else set()
    assert counting == described.keys() & {"protocol", "distinct", "convention"}
    assert ("alphas" in described) == ("n_validation" in described and path.stem in COUNTING)
    assert set(described) >= DRAWN or (path.stem == "07_exact_search" and DRAWN.isdisjoint(described))
    for name, parameter in described.items():
        assert parameter["inferred_type_name"] in TYPES, name
        assert parameter["help"], name
        value = ast.literal_eval(parameter["default"])
        if value is None:
            assert "None" in parameter["help"], name
        else:
            typed = type(value).__name__ if not isinstance(value, list) else f"list[{type([*value, ''][0]).__name__}]"
            assert parameter["inferred_type_name"] == typed, name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_its_first_cell_says_what_it_is_in_the_paper(path):
    first = nbformat.read(path, as_version=4).cells[0].source
    _, said, about = first.partition("**In the paper:** ")
    assert said
    assert about.startswith("nothing corresponds") or 0 < about.find("*Same:*") < about.find("*Different:*")
    assert len(about.splitlines()) <= 6


# Whole in `make test`; the others are of their kind.
WHOLE = ("00_explore_examples", "02_alpha_sweep", "06_benchmark")
# What so few questions are warned of; in a kernel it is shown.
AS_WARNED = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore:.* cannot be redrawn", "ignore:.* probabilities sum to more than 1 "
)


def of_embedded(path, folders):
    """Parameters for a few questions of the embedded default."""
    several = "model: list" in path.read_text()
    model, dataset = (["facts-1m"], ["world-facts"]) if several else ("facts-1m", "world-facts")
    given = {"model": model, "dataset": dataset, "limit": 60, "n_answers": 4}
    return given | dict(zip(("generations_dir", "figures_dir"), map(str, folders), strict=True))


def drawn(folder, path):
    return all((folder / f"{path.stem}.{suffix}").stat().st_size > 100 for suffix in ("png", "svg", "csv"))


@AS_WARNED
@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=() if p.stem in WHOLE else pytest.mark.slow) for p in NOTEBOOKS], ids=NAMES
)
def test_it_runs_on_the_embedded_default(path, folders, shell):
    assert ran_whole(shell, path, **of_embedded(path, folders)) == []
    assert drawn(folders[1], path)


@pytest.mark.slow
def test_run_twice_it_reuses_what_it_generated(folders, tmp_path, monkeypatch):
    """By papermill, in two kernels."""
    path = ROOT / "notebooks" / "03_k_vs_alpha.ipynb"
    run(path, tmp_path / "first.ipynb", monkeypatch, **of_embedded(path, folders))
    assert drawn(folders[1], path)
    before = {file: file.stat().st_mtime_ns for file in folders[0].rglob("*") if file.is_file()}
    figure = (folders[1] / "03_k_vs_alpha.svg").read_bytes()
    run(path, tmp_path / "second.ipynb", monkeypatch, **of_embedded(path, folders))
    assert {file: file.stat().st_mtime_ns for file in folders[0].rglob("*") if file.is_file()} == before
    assert (folders[1] / "03_k_vs_alpha.svg").read_bytes() == figure


ON_RECORDS = [path for path in NOTEBOOKS if path.stem in COUNTING]


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    """Log-probabilities made elsewhere: 300 questions, three answers each, right or wrong from outside."""
    path = tmp_path_factory.mktemp("records") / "answers.jsonl"
    with open(path, "w") as file:
        for i in range(300):
            first, p = bool(i % 3), 0.9 if i % 3 and i % 7 else 0.3
            answers = [
                {"log_prob": round(-0.1 * (i % 5) - 2 * (1 - p), 4), "mean_log_prob": -0.2, "rouge_l": float(first)},
                {"log_prob": -3.0, "mean_log_prob": -0.5, "rouge_l": 0.0},
                {"log_prob": -3.0, "mean_log_prob": -0.5, "rouge_l": 0.0},
            ]
            file.write(json.dumps({"question_id": i, "answers": answers}) + "\n")
    return path


@AS_WARNED
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=getattr(pytest.mark, "slow" if p.stem in WHOLE else "trial"))
        for p in ON_RECORDS
    ],
)
def test_it_runs_on_records(path, records, tmp_path, shell):
    assert ran_whole(shell, path, records=str(records), figures_dir=str(tmp_path), n_answers=3) == []
    assert (tmp_path / f"{path.stem}.csv").stat().st_size > 100


@AS_WARNED
@pytest.mark.slow
@pytest.mark.parametrize("name", ["02_alpha_sweep", "03_k_vs_alpha"])
def test_a_sweep_over_exact_answers_goes_as_far_down_as_the_search(name, folders, tmp_path, shell):
    import pandas as pd

    path = ROOT / "notebooks" / f"{name}.ipynb"
    parameters = {"model": ["facts-1m"], "dataset": ["world-facts"], "limit": 60, "strategy": "threshold"}
    folder = {"generations_dir": str(folders[0] / "exact"), "figures_dir": str(tmp_path)}
    assert ran_whole(shell, path, search_alpha=0.03, **parameters, **folder) == []
    assert pd.read_csv(tmp_path / f"{name}.csv")["alpha"].min() == 0.03


@pytest.fixture
def shell():
    """What runs the cells of a kernel, in this process: a kernel for each trial would take minutes."""
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    yield shell
    InteractiveShell.clear_instance()


def code(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def injected(**parameters):
    return PythonTranslator.codify(parameters)


def ran(shell, *cells):
    """Run cells as a kernel does; the sentence of the error in the last one, or what it left as `settings`."""
    *_, last = [shell.run_cell(cell, store_history=True) for cell in cells]
    return str(last.error_in_exec) if last.error_in_exec else shell.user_ns["settings"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_its_settings_are_one_line_that_sees_every_parameter(path, shell):
    imports, parameters, line, *_ = code(path)
    assert re.fullmatch(r"settings = Settings.from_notebook\(.*\)", line)
    settings = ran(shell, imports, parameters, injected(n_answers=7, figures_dir="/tmp", stop=["."]), line)
    assert (settings.n_answers, settings.figures_dir, settings.stop) == (7, Path("/tmp"), (".",))
    described = papermill.inspect_notebook(path)
    for name in described.keys() - {"n_answers", "figures_dir", "generations_dir", "stop"}:
        assert getattr(settings, name) == ast.literal_eval(described[name]["default"]), name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
@pytest.mark.parametrize(("name", "value", "sentence"), BAD)
def test_a_wrong_parameter_stops_it_in_the_cell_after_the_parameters(path, name, value, sentence, tmp_path, shell):
    imports, parameters, line, *_ = code(path)
    given = injected(**{"generations_dir": str(tmp_path / "generations"), name: value})
    assert ran(shell, imports, parameters, given, line).startswith(sentence)
    assert not (tmp_path / "generations").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_name_that_is_no_parameter_of_it_is_refused_with_the_nearest_one(path, shell):
    imports, parameters, line, *_ = code(path)
    said = "alhpa is no parameter of this notebook; the nearest is alpha"
    assert ran(shell, imports, parameters, injected(alhpa=0.3), line) == said
    assert ran(shell, imports, parameters.replace("alpha: ", "alhpa: ", 1), line) == said.replace(
        " of this notebook", ""
    )


def test_a_parameter_that_another_notebook_has_is_refused(shell):
    imports, parameters, line, *_ = code(NOTEBOOKS[3])
    said = ran(shell, imports, parameters, injected(n_validation=20), line)
    assert said == "n_validation is no parameter of this notebook; the nearest is convention"


def test_what_other_cells_left_in_the_kernel_is_no_parameter(shell):
    """A notebook that was run before, a cell that took a parameter's name, and a name of the settings."""
    imports, parameters, line, *_ = code(NOTEBOOKS[2])
    before = ran(shell, imports, parameters, injected(n_validation=7, limit=5), line)
    assert (before.n_validation, before.limit) == (7, 5)
    imports, parameters, line, *_ = code(NOTEBOOKS[3])
    left = "fig = settings\nn_shots = 3\nfor model in ['facts-1m']:\n    alpha = 0.9"
    settings = ran(shell, imports, parameters, left, line)
    assert (settings.n_validation, settings.limit, settings.n_shots) == (100, None, None)
    assert (settings.model, settings.alpha) == (["facts-2m", "facts-1m"], 0.4)


def test_the_latest_parameters_cell_counts_and_what_was_injected_after_it(shell):
    imports, parameters, line, *_ = code(NOTEBOOKS[3])
    given = injected(alpha=0.3)
    assert ran(shell, imports, parameters, given, line).alpha == 0.3
    assert ran(shell, parameters.replace("alpha: float = 0.4", "alpha: float = 1 / 5"), line).alpha == 0.2
    assert "alhpa" in ran(shell, given.replace("alpha", "alhpa"), line)
    assert ran(shell, given.replace("0.3", "0.1"), line).alpha == 0.1
    assert ran(shell, "broken =", "%who_ls", line).alpha == 0.1
    assert ran(shell, parameters, line).alpha == 0.4


def test_half_a_parameters_cell_is_not_taken_for_one(shell):
    imports, parameters, line, *_ = code(NOTEBOOKS[3])
    said = "no parameters cell has been run: one cell that declares model and the others by type"
    assert ran(shell, imports, line) == said
    half = "\n".join(parameters.splitlines()[5:])
    assert ran(shell, parameters, half, line) == said


def test_outside_of_notebooks_the_cells_are_given():
    given = ["model: str = 'facts-1m'\nlimit: int = None", injected(limit=3)]
    settings = Settings.from_notebook(given, reported=True)
    assert (settings.model, settings.limit, settings.reported) == ("facts-1m", 3, True)
    with pytest.raises(ValueError, match="no parameters cell has been run: one cell that declares model"):
        Settings.from_notebook()


def test_an_error_of_ours_is_one_sentence_and_any_other_keeps_its_traceback(shell, capsys):
    imports, parameters, line, *_ = code(NOTEBOOKS[3])
    assert "is unknown; choose" in ran(shell, imports, parameters, injected(split="tset"), line)
    assert capsys.readouterr().out == "SentenceError: split='tset' is unknown; choose train_shots, validation, test\n"
    ran(shell, "from pro_lib import scores; scores.pro([[0.5]], alpha=0.4)")
    assert capsys.readouterr().out.count("\n") == 1
    for others in ("int('x')", "import numpy; numpy.zeros(3).reshape(2)", "1 / 0"):
        ran(shell, others)
        assert "Traceback" in capsys.readouterr().out


def ran_whole(shell, path, **parameters):
    """Every cell of a notebook; the errors that there were."""
    imports, declared, *others = code(path)
    results = [
        shell.run_cell(cell, store_history=True) for cell in (imports, declared, injected(**parameters), *others)
    ]
    return [result.error_in_exec for result in results if result.error_in_exec]


@pytest.fixture(scope="session")
def own_questions(tmp_path_factory):
    """A file of one's own: 60 questions that the model half knows, without a split."""
    table = load("world-facts", split="test", limit=60).table[["question_id", "question", "references"]]
    path = tmp_path_factory.mktemp("own") / "mine.jsonl"
    table.to_json(path, orient="records", lines=True)
    return path


QUICK = "04_fixed_k"


@AS_WARNED
@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=() if p.stem == QUICK else pytest.mark.slow) for p in NOTEBOOKS[2:7]], ids=NAMES[2:7]
)
def test_a_file_of_few_questions_lends_half_of_them_and_the_notebook_says_so(
    path, own_questions, folders, tmp_path, shell
):
    given = {"model": "facts-1m", "dataset": str(own_questions), "n_answers": 3, "device": "cpu"}
    with pytest.warns(
        UserWarning, match="'mine' has no validation split: 30 of its 60 questions are taken for one, not"
    ):
        errors = ran_whole(shell, path, **given, generations_dir=str(folders[0]), figures_dir=str(tmp_path))
    assert errors == []
    assert (tmp_path / f"{path.stem}.csv").stat().st_size > 100


@AS_WARNED
def test_responses_and_the_questions_they_answer_go_through_the_benchmark(own_questions, tmp_path, shell):
    """As docs/own_data.md has it, where the file of questions says no split."""
    lines = [json.loads(line) for line in own_questions.read_text().splitlines()]
    path = tmp_path / "responses.jsonl"
    with open(path, "w") as file:
        for n, line in enumerate(lines):
            texts = [line["references"][0], "somebody"] if n % 3 else ["nobody", line["references"][0]]
            choices = [
                {
                    "message": {"content": text},
                    "finish_reason": "stop",
                    "logprobs": {"content": [{"token": text, "logprob": p}]},
                }
                for text, p in zip(texts, (-0.1 - 0.01 * n, -3.0), strict=True)
            ]
            file.write(json.dumps({"choices": choices}) + "\n")
    given = {"records": str(path), "dataset": str(own_questions), "figures_dir": str(tmp_path)}
    with pytest.warns(UserWarning, match="has no validation split: 30 of its 60 questions are taken for one, not"):
        errors = ran_whole(shell, NOTEBOOKS[6], **given)
    assert errors == []
    assert (tmp_path / "06_benchmark.csv").stat().st_size > 100


def test_help_is_printed_with_types_and_defaults(forks):
    done = forks.run(["-m", "papermill", "--help-notebook", "notebooks/06_benchmark.ipynb"], cwd=ROOT)
    said = " ".join(done.stdout.split())
    for line in (
        'model: list[str] (default ["facts-2m", "facts-1m"]) one or several: bundled',
        "alpha: float (default 0.4) the default α",
        "limit: int (default None) at most this many questions of each split; None for all",
        "chat: bool (default False) put prompts",
    ):
        assert line in said


def words_of(*arguments, folders, figures_dir):
    """Notebook 03 as typed at a prompt, after `python`."""
    command = ["-m", "papermill", "--no-progress-bar", str(ROOT / "notebooks" / "03_k_vs_alpha.ipynb")]
    given = {"model": "facts-1m", "dataset": "world-facts", "limit": 60, "n_answers": 4}
    given |= {"generations_dir": folders[0], "figures_dir": figures_dir}
    return [*command, *arguments, *(str(text) for pair in given.items() for text in ("-p", *pair))]


def papermilled(*arguments, cwd, stdout, **where):
    """Papermill's exit status, and what it said."""
    options = {"cwd": cwd, "env": os.environ | KERNEL, "stdout": stdout, "text": True, "check": False}
    return subprocess.run([sys.executable, *words_of(*arguments, **where)], stderr=subprocess.PIPE, **options)


N_QUESTIONS, PER_PART = 600, 256
GREEDY = {"model": "facts-1m", "dataset": "world-facts", "strategy": "greedy", "limit": N_QUESTIONS}
PATIENCE = 300.0  # seconds, after which a process counts as hung


def killed(folder, n_parts):
    """Notebook 01 by papermill, whose kernel is killed while it makes the part after so many; the parts it leaves."""
    given = GREEDY | {"generations_dir": folder, "figures_dir": folder / "figures"}
    given = [str(text) for pair in given.items() for text in ("-p", *pair)]
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(NOTEBOOKS[1]), str(folder / "out.ipynb")]
    folder.mkdir(exist_ok=True)
    with open(folder / "said", "w") as said:
        process = subprocess.Popen([*command, *given], env=os.environ | KERNEL, stdout=said, stderr=said)
    run, until = folder / "world-facts" / "facts-1m" / "greedy", time.monotonic() + PATIENCE
    held = (run / ".holder").read_text() if (run / ".holder").exists() else ""
    while process.poll() is None and time.monotonic() < until:
        holder = (run / ".holder").read_text() if (run / ".holder").exists() else ""
        writes = re.match(r"process (\d+) on", holder) if holder != held else None
        if writes and (run / "plan-000.parquet").exists() and len(list(run.glob("part-*.parquet"))) >= n_parts:
            os.kill(int(writes[1]), signal.SIGKILL)
            break
        time.sleep(0.002)
    assert process.wait(PATIENCE) != 0, (folder / "said").read_text()
    return len(list(run.glob("part-*.parquet")))


def as_unbroken(folder, unbroken):
    """The run that was killed goes on to the tables of one that was not, to the bit."""
    settings = Settings(**GREEDY, generations_dir=folder, figures_dir=folder, device="cpu")
    run, whole = settings.run("facts-1m", "world-facts"), unbroken
    assert len(run.questions) == N_QUESTIONS
    assert_frame_equal(run.answers, whole.answers, check_exact=True)
    assert_frame_equal(run.questions, whole.questions, check_exact=True)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    settings = Settings(**GREEDY, generations_dir=folder, figures_dir=folder, device="cpu")
    return settings.run("facts-1m", "world-facts")


@pytest.mark.slow
def test_a_notebook_killed_in_the_first_part_of_its_run_goes_on(unbroken, tmp_path):
    # A busy machine may kill it too late.
    runs = next(folder for folder in map(tmp_path.joinpath, "abcde") if killed(folder, 0) == 0)
    as_unbroken(runs, unbroken)


@pytest.mark.trial
@pytest.mark.filterwarnings("ignore:.* of the 600 questions planned")
@pytest.mark.parametrize("kills", [(0, 0, 1, 2), (1, 1), (2,)])
def test_a_notebook_killed_in_any_part_and_again_when_it_goes_on_loses_nothing(kills, unbroken, tmp_path):
    left = [killed(tmp_path / "runs", n_parts) for n_parts in kills]
    assert left == list(kills)
    as_unbroken(tmp_path / "runs", unbroken)


@pytest.mark.trial
def test_results_are_stored_whatever_becomes_of_the_output(folders, tmp_path):
    """From a folder that is not the repository: to a file, to nowhere, to a pipe, and to a full disk."""
    here = tmp_path / "here"
    here.mkdir()
    common = {"cwd": here, "folders": folders}
    for arguments in (["out.ipynb"], ["/dev/null"]):
        figures_dir = tmp_path / arguments[0].strip("/")
        done = papermilled(*arguments, stdout=subprocess.DEVNULL, figures_dir=figures_dir, **common)
        assert done.returncode == 0, done.stderr
        assert drawn(figures_dir, NOTEBOOKS[3])
    assert [path.name for path in here.iterdir()] == ["out.ipynb"]

    # Without an output path papermill prints the notebook, and nothing else, where that is no terminal.
    done = papermilled(stdout=subprocess.PIPE, figures_dir=tmp_path / "pipe", **common)
    assert done.returncode == 0, done.stderr
    printed = nbformat.reads(done.stdout, as_version=4)
    assert any(cell.get("outputs") for cell in printed.cells)
    assert drawn(tmp_path / "pipe", NOTEBOOKS[3])

    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = papermilled(stdout=full, figures_dir=tmp_path / "full", **common)
        assert done.returncode != 0
        assert "No space left on device" in done.stderr
        assert drawn(tmp_path / "full", NOTEBOOKS[3])


def test_papermill_runs_nothing_when_its_output_has_no_folder(folders, forks, tmp_path):
    words = words_of("nowhere/out.ipynb", folders=folders, figures_dir=tmp_path / "figures")
    done = forks.run(words, cwd=tmp_path, env=os.environ | KERNEL)
    assert done.returncode != 0
    assert "output folder nowhere doesn't exist" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_every_table_and_figure_goes_where_the_parameters_say(path):
    """None is written beside the notebook: the folder is always that of the settings."""
    code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    written = "\n".join(code)
    assert "save(" not in written
    assert written.count("settings.store(") >= 1
    assert not any(word in written for word in ("to_csv", "to_parquet", "savefig", "open("))


@AS_WARNED
def test_a_notebook_can_show_records_that_nobody_judged(tmp_path, shell):
    path, lines = tmp_path / "mine.jsonl", [{"question_id": 0, "answers": [{"log_prob": -0.4}, {"log_prob": -2.0}]}]
    path.write_text("\n".join(map(json.dumps, lines)))
    folder = {"generations_dir": str(tmp_path), "figures_dir": str(tmp_path / "figures")}
    notebook = ROOT / "notebooks" / "00_explore_examples.ipynb"
    assert ran_whole(shell, notebook, records=str(path), **folder) == []
    assert (tmp_path / "figures" / "00_explore_examples.png").is_file()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_calls_the_command():
    """What `make` would do; nothing is installed or run."""
    for words, asked in (
        (["notebook", "N=2", "ARGS=-p alpha 0.3 -p records 'my file.jsonl'"], ["2", "-p", "alpha", "0.3"]),
        (["notebook"], [""]),
        (["figures"], []),
    ):
        line = ["make", "--dry-run", "-o", ".venv/.installed", *words]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
        program, *said = shlex.split(done.stdout.strip().splitlines()[-1])
        command = "figures" if words == ["figures"] else "run"
        assert program.endswith("python")
        assert said[:5] == ["-m", "pro_lib", command, "--executed", "build/notebooks"]
        assert said[5:][: len(asked)] == asked


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_draws_published_outputs_once_they_are_there():
    line = ["make", "--dry-run", "-o", ".venv/.installed", "figures-real"]
    said = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    first, rest = said.split("\n", 1)
    assert first.endswith("python -m pro_lib download rank-calibration")
    (numbers,) = re.findall(r"for n in ([\d ]+);", rest)
    assert all((ROOT / "figures" / "real_models").glob(f"{number}_*.png") for number in numbers.split())
    (records,) = re.findall(r"-p records '(.*?)'", rest)
    known = {row.split(",")[1] for row in (ROOT / "data" / "published.csv").read_text().splitlines()}
    for name in ast.literal_eval(records):
        assert {path.name for path in list(published.Name.of(name).files().values())[:2]} <= known


TRIALS = [
    ({"alpha": 0.3, "limit": 200}, "alpha=0.3,limit=200"),
    ({"model": ["facts-1m"], "stop": ["."]}, "model=facts-1m,stop=."),
    ({"dtype": "bfloat16"}, "dtype=bfloat16"),
    ({"device": "cpu"}, "device=cpu"),
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_figures_of_other_parameters_go_to_a_folder_of_their_own(path, shell, tmp_path, capsys):
    imports, parameters, line, *_ = code(path)
    figures = ROOT / "figures"
    assert ran(shell, imports, parameters, line).figures_dir == figures
    as_it_is = injected(alpha=0.4, generations_dir=str(tmp_path))
    assert ran(shell, parameters, as_it_is, line).figures_dir == figures
    assert capsys.readouterr().out == ""
    for given, name in TRIALS:
        if path.stem != "00_explore_examples" or "model" not in given:
            assert ran(shell, parameters, injected(**given), line).figures_dir == figures / "other" / name
            assert capsys.readouterr().out == f"Figures go to {figures}/other/{name}\n"
    edited = parameters.replace("alpha: float = 0.4", "alpha: float = 0.3")
    assert ran(shell, edited, line).figures_dir == figures / "other" / "alpha=0.3"
    assert ran(shell, edited, injected(figures_dir=str(tmp_path)), line).figures_dir == tmp_path


def test_git_ignores_what_is_not_the_notebooks_own():
    line = ["git", "check-ignore", "--quiet", "figures/other/alpha=0.3/02_alpha_sweep.png"]
    assert subprocess.run(line, cwd=ROOT, check=False).returncode == 0
    assert subprocess.run([*line[:-1], "figures/02_alpha_sweep.png"], cwd=ROOT, check=False).returncode == 1


def test_no_two_trials_have_one_folder_and_each_name_does_for_one():
    long, several = "x" * 100, ["a/b", "a_b", "a+b", ["a", "b"], "ä", "ö", "a,alpha=0.3", {"b": 1}, {"b": 2}, None]
    trials = [{"model": value} for value in several] + [{"model": "a", "alpha": 0.3}]
    trials += [{"records": f"{long}1"}, {"records": f"{long}2"}]
    names = [notebook.trial(changed) for changed in trials]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.,=+-]{1,67}", name) for name in names)


def test_under_papermill_a_wrong_parameter_is_the_last_thing_said(forks, tmp_path):
    words = ["-m", "papermill", "notebooks/02_alpha_sweep.ipynb", tmp_path / "out.ipynb", "-p", "split", "tset"]
    done = forks.run(words, cwd=ROOT, env=os.environ | KERNEL)
    assert done.returncode != 0
    assert (
        "SentenceError: split='tset' is unknown; choose train_shots, validation, test"
        in done.stderr.strip().splitlines()[-1]
    )
