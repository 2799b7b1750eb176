"""Every notebook runs headless, has the shape the design asks for, and stops early on a wrong parameter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

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
]
SHARED = {"dataset", "split", "alpha", "n_answers", "limit", "seed", "batch_size", "device", "dtype", "records"}
SHARED |= {"model", "generations_dir", "figures_dir"}
SEARCHING = ["00_explore_examples", "01_generate", "02_alpha_sweep", "03_k_vs_alpha", "04_fixed_k", "07_exact_search"]
# Kernels are processes of their own: they must neither look for a network nor fight over two cores.
KERNEL = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
BAD = [
    ("split", "tset", "split='tset' is unknown; choose train_shots, validation, test"),
    ("alpha", 1.5, "alpha=1.5 must lie in [0, 1]"),
    ("n_answers", 0, "n_answers=0 must be a positive whole number"),
    ("model", "no-such-model", "model='no-such-model' is neither bundled (facts-1m, facts-2m)"),
    ("dataset", "world-fact", "dataset='world-fact' is neither world-facts nor world-facts-reworded nor a file"),
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_papermill_describes_every_parameter(path):
    described = papermill.inspect_notebook(path)
    assert set(described) >= SHARED | ({"search_alpha"} if path.stem in SEARCHING else set())
    for name, parameter in described.items():
        assert parameter["inferred_type_name"] != "None", name
        assert parameter["help"], name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_it_runs_on_the_embedded_default(path, folders, tmp_path, monkeypatch):
    generations_dir, figures_dir = map(str, folders)
    several = "model: list" in path.read_text()
    model, dataset = (["facts-1m"], ["world-facts"]) if several else ("facts-1m", "world-facts")
    run(
        path, tmp_path / "out.ipynb", monkeypatch, model=model, dataset=dataset, limit=60, n_answers=4,
        generations_dir=generations_dir, figures_dir=figures_dir,
    )  # fmt: skip
    for suffix in (".png", ".svg", ".csv"):
        assert (folders[1] / f"{path.stem}{suffix}").stat().st_size > 100


def test_run_twice_it_reuses_what_it_generated(folders, tmp_path, monkeypatch):
    generations_dir, figures_dir = map(str, folders)
    parameters = {"model": "facts-1m", "dataset": "world-facts", "limit": 60, "n_answers": 4}
    parameters |= {"generations_dir": generations_dir, "figures_dir": figures_dir}
    path = ROOT / "notebooks" / "03_k_vs_alpha.ipynb"
    run(path, tmp_path / "first.ipynb", monkeypatch, **parameters)
    before = {file: file.stat().st_mtime_ns for file in folders[0].rglob("*") if file.is_file()}
    figure = (folders[1] / "03_k_vs_alpha.svg").read_bytes()
    run(path, tmp_path / "second.ipynb", monkeypatch, **parameters)
    assert {file: file.stat().st_mtime_ns for file in folders[0].rglob("*") if file.is_file()} == before
    assert (folders[1] / "03_k_vs_alpha.svg").read_bytes() == figure


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


@pytest.mark.parametrize("path", NOTEBOOKS[2:-1], ids=NAMES[2:-1])
def test_it_runs_on_records(path, records, tmp_path, monkeypatch):
    run(path, tmp_path / "out.ipynb", monkeypatch, records=str(records), figures_dir=str(tmp_path), n_answers=3)
    assert (tmp_path / f"{path.stem}.csv").stat().st_size > 100


def test_a_search_cannot_be_had_from_records(records, tmp_path, monkeypatch):
    path = ROOT / "notebooks" / "07_exact_search.ipynb"
    with pytest.raises(papermill.PapermillExecutionError, match="hold no search: exact search needs a model"):
        run(path, tmp_path / "out.ipynb", monkeypatch, records=str(records), figures_dir=str(tmp_path))


@pytest.mark.parametrize("name", ["02_alpha_sweep", "03_k_vs_alpha"])
def test_a_sweep_over_exact_answers_goes_as_far_down_as_the_search(name, folders, tmp_path, monkeypatch):
    import pandas as pd

    path = ROOT / "notebooks" / f"{name}.ipynb"
    parameters = {"model": ["facts-1m"], "dataset": ["world-facts"], "limit": 60, "strategy": "threshold"}
    folder = {"generations_dir": str(folders[0] / "exact"), "figures_dir": str(tmp_path)}
    run(path, tmp_path / "out.ipynb", monkeypatch, search_alpha=0.03, **parameters, **folder)
    assert pd.read_csv(tmp_path / f"{name}.csv")["alpha"].min() == 0.03


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
@pytest.mark.parametrize(("name", "value", "sentence"), BAD)
def test_a_wrong_parameter_stops_it_in_the_cell_after_the_parameters(path, name, value, sentence, tmp_path):
    """The cells up to there, run in one process: a kernel for each would take minutes."""
    namespace = {}
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    exec(cells[0].source, namespace)
    exec(cells[1].source, namespace)
    namespace |= {name: value, "generations_dir": str(tmp_path / "generations")}
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the sentence is asserted below)
        exec(cells[2].source, namespace)
    assert str(raised.value).startswith(sentence)
    assert not (tmp_path / "generations").exists()


def test_under_papermill_a_wrong_parameter_is_the_last_thing_said(tmp_path):
    command = [sys.executable, "-m", "papermill", "notebooks/02_alpha_sweep.ipynb", str(tmp_path / "out.ipynb")]
    done = subprocess.run(
        [*command, "-p", "split", "tset"],
        cwd=ROOT,
        env=os.environ | KERNEL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert (
        "ValueError: split='tset' is unknown; choose train_shots, validation, test"
        in done.stderr.strip().splitlines()[-1]
    )
