"""Parameters of shipped notebooks: passed by name, or injected by papermill."""

from types import SimpleNamespace

import IPython
import pytest
from click.testing import CliRunner
from conftest import ROOT

from pro_lib.app import notebook_execution
from pro_lib.app.cli import pro
from pro_lib.app.experiment import Experiment
from pro_lib.app.notebook_parameters import cell_values, injected_values
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

NAME = "02_alpha_sweep"
SHIPPED = cell_values(catalog.notebook("02"))
FIGURES = ROOT / "figures"


def made(**changed):
    """The experiment of notebook 02 with these changes to what it ships with."""
    return Experiment(notebook=NAME, **SHIPPED | changed)


@pytest.fixture
def inject(monkeypatch):
    """Let the running notebook have these cells, and run them."""

    def cells(*texts):
        namespace = {"In": ["", *texts]}
        for text in texts:
            exec(text, namespace)
        monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns=namespace))

    return cells


# --- Folders of figures ---


def test_figures_of_shipped_values_go_to_the_committed_folder(capsys):
    assert made().figures_dir == FIGURES
    assert made(model=list(SHIPPED["model"])).figures_dir == FIGURES
    assert capsys.readouterr().out == ""


OTHERS = [
    ({"alpha": 0.3}, "alpha=0.3"),
    ({"model": ["facts-2m"], "limit": 200}, "model=facts-2m,limit=200"),
]


@pytest.mark.parametrize(("changed", "folder"), OTHERS)
def test_figures_of_other_values_go_to_a_folder_that_names_them(changed, folder, capsys):
    place = made(**changed).figures_dir
    assert place == FIGURES / "custom" / folder
    assert f"Figures go to {place}\n" in capsys.readouterr().out


# --- Parameters that papermill injects ---


def test_injected_values_are_those_of_the_latest_injected_cell(inject):
    assert injected_values() == {}
    inject("# Parameters\nalpha = 0.3\n", "x = 1", "# Parameters\nlimit = 3\nseed = 1\n", "y = 2")
    assert injected_values() == {"limit": 3, "seed": 1}


def test_a_parameter_that_the_notebook_does_not_declare_is_taken_from_the_injected_cell(
    inject, tmp_path, capsys
):
    inject("# Parameters\nn_shots = 3\n")
    assert made().n_shots == 3
    assert made().figures_dir == FIGURES / "custom" / "n_shots=3"
    inject(f"# Parameters\nalpha = 0.3\nfigures_dir = {str(tmp_path)!r}\n")
    capsys.readouterr()
    assert made(alpha=0.3).figures_dir == tmp_path
    assert capsys.readouterr().out == ""


def test_an_injected_parameter_with_its_default_value_changes_nothing(inject):
    inject("# Parameters\nn_shots = None\ncorrectness = 'rouge_l'\n")
    assert made().figures_dir == FIGURES


WRONG = [
    ("n_shotz = 3", r"^n_shotz is not a parameter; the nearest is n_shots$"),
    ("loaded_models = 3", r"^loaded_models is not a parameter"),
    ("n_shots = 'x'", r"^n_shots='x' "),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_an_injected_parameter_that_is_wrong_is_an_error_that_names_it(line, message, inject):
    inject(f"# Parameters\n{line}\n")
    with pytest.raises(SentenceError, match=message):
        made()


def test_what_a_notebook_fixes_is_not_injected(inject):
    inject("# Parameters\nstrategy = 'greedy'\n")
    values = {name: value for name, value in SHIPPED.items() if name != "strategy"}
    assert Experiment(notebook=NAME, **values, strategy="greedy").strategy == "greedy"
    inject("# Parameters\nconvention = 'answer_tokens'\n")
    with pytest.raises(SentenceError, match=r"^convention is fixed by notebook 02_alpha_sweep$"):
        made(convention="complete")


def test_a_notebook_that_the_package_does_not_have():
    with pytest.raises(
        SentenceError,
        match=r"^notebook='mine' is not a notebook of the package; in your own notebook, remove",
    ):
        Experiment(notebook="mine")


# --- `pro run` ---


def test_pro_run_names_a_misspelt_parameter_before_it_starts_a_kernel(monkeypatch):
    monkeypatch.setattr(notebook_execution, "execute_notebook", None)
    result = CliRunner().invoke(pro, ["run", "02", "-p", "alhpa", "0.3"])
    assert result.exit_code == 1
    assert "alhpa is not a parameter; the nearest is alpha" in result.output


def test_a_notebook_without_a_parameters_cell_has_no_values(tmp_path):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text('{"cells": [{"metadata": {}, "source": ["x: int = 1"]}]}')
    assert cell_values(notebook) == {}
