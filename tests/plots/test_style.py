"""Test the style that figures share."""

import pytest
from figure_checks import grid

from pro_lib.plots.figure import labelled_figure
from pro_lib.plots.style import method_styles


@pytest.mark.parametrize("name", ["paper-questions", "workbench-2", "paper", "workbench, new"])
def test_a_dataset_or_a_model_keeps_its_name_in_the_title_whatever_it_begins_with(name):
    table = grid(
        dataset=(name, "other"), model=(f"{name}-model",), protocol=("paper", "workbench, repeats")
    )
    with labelled_figure(table, "dataset", "protocol", title="") as (figure, drawn):
        pass
    titles = [ax.get_title().replace("\n", " ") for ax, *_ in drawn]
    assert titles[0].startswith(f"repeats counted, {name}, n")
    assert titles[1].startswith(f"each answer once, repeats, {name}, n")
    assert figure.get_supxlabel() == f"{name}-model"


def test_a_method_has_the_same_style_whatever_other_methods_are_drawn():
    few = dict(zip(["PRO", "Deg"], method_styles(["PRO", "Deg"]), strict=True))
    labels = ["PRO", "NLL", "S-PRO", "SE (lexical)", "Deg"]
    many = dict(zip(labels, method_styles(labels), strict=True))
    assert few == {"PRO": 0, "Deg": 7}
    assert many == {"PRO": 0, "NLL": 6, "S-PRO": 1, "SE (lexical)": 4, "Deg": 7}


def test_two_comparisons_of_meanings_have_different_styles():
    assert method_styles(["PRO", "SE (lexical)", "SE (alias)"]) == [0, 1, 2]
