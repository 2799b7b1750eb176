"""Parameters of shipped notebooks: passed by name, in `options`, or injected by papermill."""

from types import SimpleNamespace

import IPython
import pytest
from conftest import ROOT

from pro_lib.app.experiment import Experiment
from pro_lib.app.notebook_execution import declared_parameters
from pro_lib.app.notebook_parameters import injected_names, read_shipped
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

NAME = "02_alpha_sweep"
SHIPPED = read_shipped(NAME).parameters
FIGURES = ROOT / "figures"


def made(options=None, **changed):
    """The experiment of notebook 02 with these changes to what it ships with."""
    return Experiment(notebook=NAME, **SHIPPED | changed, options=options)


@pytest.fixture
def inject(monkeypatch):
    """Let the running notebook have these cells."""

    def cells(*texts):
        shell = SimpleNamespace(user_ns={"In": ["", *texts]})
        monkeypatch.setattr(IPython, "get_ipython", lambda: shell)

    return cells


# --- Folders of figures ---


def test_figures_of_shipped_values_go_to_the_committed_folder(capsys):
    assert made().figures_dir == FIGURES
    assert made(model=list(SHIPPED["model"]), options={}).figures_dir == FIGURES
    assert capsys.readouterr().out == ""


OTHERS = [
    ({"alpha": 0.3}, None, "alpha=0.3"),
    ({"model": ["facts-2m"], "limit": 200}, None, "limit=200,model=facts-2m"),
    ({}, {"n_shots": 3}, "n_shots=3"),
]


@pytest.mark.parametrize(("changed", "options", "folder"), OTHERS)
def test_figures_of_other_values_go_to_a_folder_that_names_them(changed, options, folder, capsys):
    place = made(options, **changed).figures_dir
    assert place == FIGURES / "custom" / folder
    assert f"Figures go to {place}\n" in capsys.readouterr().out


def test_a_figures_dir_that_is_given_is_taken(tmp_path, capsys):
    assert made({"figures_dir": str(tmp_path)}, alpha=0.3).figures_dir == tmp_path
    assert capsys.readouterr().out == ""


def test_an_option_with_its_default_value_changes_nothing():
    assert made({"n_shots": None, "correctness": "rouge_l"}).figures_dir == FIGURES


# --- Options ---


def test_options_hold_parameters_that_the_notebook_does_not_declare():
    assert made({"n_shots": 3}).n_shots == 3


WRONG = [
    ({"n_shotz": 3}, r"^n_shotz is not a parameter; the nearest is n_shots$"),
    ({"alpha": 0.3}, r"^options has 'alpha', but the parameters cell has it; set alpha itself"),
    ({"reported": False}, r"^reported is not a parameter"),
    ({"n_shots": "x"}, r"^n_shots='x' "),
    ({"target": [0.9]}, r"^target=\(0.9,\) is not used by this notebook"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_an_option_that_is_wrong_is_an_error_that_names_it(options, message):
    with pytest.raises(SentenceError, match=message):
        made(options)


def test_options_without_a_notebook_are_parameters():
    assert Experiment(options={"alpha": 0.3}).alpha == 0.3


def test_a_notebook_that_the_package_does_not_have():
    with pytest.raises(
        SentenceError,
        match=r"^notebook='mine' is not a notebook of the package; in your own notebook, remove",
    ):
        Experiment(notebook="mine")


# --- Parameters that papermill injects ---


def test_injected_names_are_those_of_the_latest_injected_cell(inject):
    assert injected_names() == []
    inject("# Parameters\nalpha = 0.3\n", "x = 1", "# Parameters\nlimit = 3\nseed = 1\n", "y = 2")
    assert injected_names() == ["limit", "seed"]


def test_an_injected_parameter_that_is_passed_on_is_accepted(inject):
    inject("# Parameters\nalpha = 0.3\noptions = {'n_shots': 3}\n")
    assert made({"n_shots": 3}, alpha=0.3).n_shots == 3


def test_an_injected_parameter_that_is_not_declared_is_an_error(inject):
    inject("# Parameters\nn_shots = 3\n")
    with pytest.raises(
        SentenceError, match=r"^n_shots is not declared in the parameters cell; pass it in options"
    ):
        made()
    inject("# Parameters\nalhpa = 0.3\n")
    with pytest.raises(SentenceError, match=r"^alhpa is not a parameter; the nearest is alpha$"):
        made()


def test_an_experiment_outside_a_shipped_notebook_does_not_look_at_cells(inject):
    inject("# Parameters\nalhpa = 0.3\n")
    assert Experiment().alpha == 0.4


def test_values_come_from_the_call_alone(inject):
    inject("alpha: float = 0.1", "# Parameters\nalpha = 0.2\n")
    assert made(alpha=0.3).alpha == 0.3


# --- `pro run` ---


def test_pro_run_passes_undeclared_parameters_through_options():
    path = catalog.notebook("02")
    given = {"alpha": 0.3, "n_shots": 3, "options": {"header": "x"}}
    expected = {"alpha": 0.3, "options": {"header": "x", "n_shots": 3}}
    assert declared_parameters(path, given) == expected
    assert declared_parameters(path, {"alpha": 0.3}) == {"alpha": 0.3}
    with pytest.raises(SentenceError, match=r"^options='x' must be a dict of parameters by name$"):
        declared_parameters(path, {"options": "x", "n_shots": 3})


def test_pro_run_passes_all_parameters_to_a_notebook_without_options(tmp_path):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text(
        '{"cells": [{"metadata": {"tags": ["parameters"]}, "source": ["x: int = 1"]}]}'
    )
    assert declared_parameters(notebook, {"x": 2, "y": 3}) == {"x": 2, "y": 3}
    notebook.write_text("[]")
    assert declared_parameters(notebook, {"x": 2}) == {"x": 2}
