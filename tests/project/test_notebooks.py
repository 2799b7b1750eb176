"""Test that every notebook runs headless and takes its parameters."""

import contextlib
import json
import re
import subprocess
import warnings
from functools import partial
from types import SimpleNamespace
from unittest import mock

import IPython
import pandas as pd
import pytest
from conftest import ROOT
from parameter_values import OTHER, write_records

from pro_lib.app.experiment import Experiment
from pro_lib.app.notebook_parameters import cell_values
from pro_lib.common.validation import SentenceError
from pro_lib.plots import worlds

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
EXPLORER = ROOT / "notebooks" / "00_explore_examples.ipynb"
QUICK = ROOT / "notebooks" / "02_alpha_sweep.ipynb"


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def experiment_of(path, **injected):
    """Return the experiment that a notebook's third cell creates with injected parameters."""
    _, parameters, third = code_cells(path)[:3]
    values = "# Parameters\n" + "".join(f"{name} = {value!r}\n" for name, value in injected.items())
    names = {"In": ["", parameters, values], "Experiment": Experiment}
    with mock.patch.object(IPython, "get_ipython", return_value=SimpleNamespace(user_ns=names)):
        for cell in (parameters, values, third):
            exec(cell, names)
    return names["experiment"]


@EACH
def test_every_parameter_is_accepted_whether_the_notebook_declares_it_or_fixes_it(path):
    third = code_cells(path)[2]
    declared = cell_values(path)
    for name in OTHER.keys() - {"split", "n_workers"}:
        if f"{name}=" in third and name not in declared:
            with pytest.raises(SentenceError, match=f"^{name} is fixed by notebook {path.stem}$"):
                experiment_of(path, **{name: OTHER[name]})
            continue
        value = getattr(experiment_of(path, figures_dir="x", **{name: OTHER[name]}), name)
        assert value == (tuple(OTHER[name]) if isinstance(value, tuple) else OTHER[name]), name
    for name in ("loaded_models", "generations_dir", "figures_dir"):
        with pytest.raises(SentenceError, match=f"^{name}(=| is not a parameter)"):
            experiment_of(path, **{name: ""})


@EACH
def test_what_it_comes_with_is_accepted_with_and_without_records(path, tmp_path, capsys):
    experiment = experiment_of(path)
    assert experiment.figures_dir == ROOT / "figures"
    assert capsys.readouterr().out == ""
    if "records" in cell_values(path):
        records = write_records(tmp_path / "r.jsonl")
        assert experiment_of(path, records=records, figures_dir="x").pairs() == [("records", "r")]
        for name, value in (("temperature", 0.7), ("dataset", "typo.csv")):
            with pytest.raises(SentenceError, match=rf"^{name}={value!r} contradicts records"):
                experiment_of(path, records=records, figures_dir="x", **{name: value})


def first_figure(path):
    """Return the name of the first figure of a notebook, which is mostly that of the notebook."""
    return {"11_selective": "11_answered"}.get(path.stem, path.stem)


def execute(path, folder, **parameters):
    """Run a notebook by papermill in a kernel, its figures going to the folder."""
    import papermill

    given = parameters | {"figures_dir": str(folder)}
    papermill.execute_notebook(path, folder / "out.ipynb", given, cwd=folder, progress_bar=False)


def run_cells(path, folder, **parameters):
    """Run the cells of a notebook in this process, with its figures in the folder."""
    given = parameters | {"figures_dir": str(folder)}
    namespace = {"display": print, "In": ["# Parameters\n" + "\n".join(f"{n} = 0" for n in given)]}
    shell = mock.Mock(user_ns=namespace)
    running = mock.patch.object(IPython, "get_ipython", return_value=shell)
    # 20,000 questions of each simulated world take seconds.
    small_worlds = mock.patch.object(worlds, "table", partial(worlds.table, n_questions=200))
    quiet = warnings.catch_warnings(action="ignore")
    with running, small_worlds, contextlib.chdir(folder), quiet:
        for number, cell in enumerate(code_cells(path)):
            exec(compile(cell, f"{path.name}, code cell {number}", "exec"), namespace)
            if number == 1:  # the parameters cell
                namespace |= given


@pytest.fixture(scope="module")
def generations(tmp_path_factory):
    """One folder for the runs of all notebooks."""
    return tmp_path_factory.mktemp("generations")


# The explorer needs a kernel. The tutorials run others in one.
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path == QUICK else pytest.mark.slow, id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_it_runs_with_parameters_that_its_cell_does_not_declare(path, generations, tmp_path):
    declared = cell_values(path)
    named = {"model": "facts-1m", "dataset": "world-facts"}
    for name, value in named.items():
        if isinstance(declared[name], list):
            named[name] = [value]
    undeclared = {"batch_size": 8, "device": "cpu"}
    assert not undeclared.keys() & declared.keys()
    small = {"limit": 40, "n_answers": 4, "generations_dir": str(generations)}
    run_notebook = execute if path == EXPLORER else run_cells
    run_notebook(path, tmp_path, **named, **undeclared, **small)
    name = first_figure(path)
    _, drawn, table = made = [tmp_path / f"{name}.{kind}" for kind in ("png", "svg", "csv")]
    assert all(file.stat().st_size > 100 for file in made)
    if path.stem[:2] in ("02", "03", "04", "05"):
        assert set(pd.read_csv(table)["protocol"].str.split(", ").str[0]) == {"paper"}
        # One panel, of the protocol and split reported alone.
        assert len(set(re.findall(r'id="(axes_\d+)"', drawn.read_text()))) == 1


ON_RECORDS = [path for path in NOTEBOOKS if "records" in cell_values(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", ON_RECORDS, ids=lambda path: path.stem)
def test_it_runs_on_records(path, tmp_path):
    records = write_records(tmp_path / "r.jsonl", 300)
    run_cells(path, tmp_path, records=records, n_answers=3)
    assert (tmp_path / f"{first_figure(path)}.csv").stat().st_size > 100


def test_make_figures_runs_all_notebooks():
    line = ["make", "--dry-run", "-o", ".venv/.installed", "figures"]
    words = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (
        sorted(re.findall(r"run --executed build/notebooks (\w+)$", words, re.MULTILINE)) == NAMES
    )
