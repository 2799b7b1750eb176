"""Parameters of shipped notebooks: passed by name, or injected by papermill."""

from types import SimpleNamespace

import IPython
import pytest
from commands import refused
from conftest import ROOT

from pro_lib.app import notebook_execution
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
        exec("\n".join(texts), namespace)
        monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns=namespace))

    return cells


# --- Folders of figures ---


def test_figures_of_other_values_go_to_a_folder_that_names_them(capsys):
    assert made(model=list(SHIPPED["model"])).figures_dir == FIGURES
    place = made(model=["facts-2m"], limit=200).figures_dir
    assert place == FIGURES / "custom" / "model=facts-2m,limit=200"
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
    inject("# Parameters\nn_shots = None\ncorrectness = 'rouge_l'\n")  # the defaults
    assert made().figures_dir == FIGURES


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("n_shotz = 3", "n_shotz is not a parameter; the nearest is n_shots$"),
        ("n_shots = 'x'", "n_shots='x' "),
    ],
)
def test_an_injected_parameter_that_is_wrong_is_an_error_that_names_it(line, message, inject):
    inject(f"# Parameters\n{line}\n")
    with pytest.raises(SentenceError, match=f"^{message}"):
        made()


def test_a_notebook_that_the_package_does_not_have():
    words = "notebook='mine' is not a notebook of the package; in your own notebook, remove"
    with pytest.raises(SentenceError, match=words):
        Experiment(notebook="mine")


# --- `pro run` ---


def test_pro_run_names_a_misspelt_parameter_before_it_starts_a_kernel(monkeypatch):
    monkeypatch.setattr(notebook_execution, "execute_notebook", None)
    message = refused("run", "02", "-p", "alhpa", "0.3")
    assert "alhpa is not a parameter; the nearest is alpha" in message


def test_a_notebook_without_a_parameters_cell_has_no_values(tmp_path):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text('{"cells": [{"metadata": {}, "source": ["x: int = 1"]}]}')
    assert cell_values(notebook) == {}
