import pandas as pd
import pytest

from pro_lib import plots
from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.methods import METHODS
from pro_lib.plots.method_notes import method_note

PAPER_METHODS = ("NLL", "ALL", "PE", "NE", "SE", "SD", "Deg")


def test_a_note_explains_the_methods_and_similarities_of_a_table():
    table = pd.DataFrame({"method": ["PRO", "SE", "ALL"], "similarity": [None, "alias", None]})
    expected = (
        "ALL: NLL per token. SE: semantic entropy, the entropy over meanings. "
        "alias: two answers that match the same reference have the same meaning."
    )
    assert method_note(table) == expected


def test_pro_alone_needs_no_note():
    assert method_note(pd.DataFrame({"method": ["PRO"]})) == ""


def test_a_figure_explains_every_method_that_it_names():
    methods = [name for name in METHODS if name != "PRO"]
    table = pd.DataFrame({"method": ["PRO", *methods], "auroc": 0.8})
    note = " ".join(plots.benchmark(table).get_supxlabel().split())
    assert all(f"{name}: " in note for name in method_labels(table) if name != "PRO")


def test_accuracy_is_drawn_at_four_shares_side_by_side():
    coverages = [n / 50 for n in range(1, 51)]
    parts = [
        pd.DataFrame({"method": name, "coverage": coverages, "accuracy": 0.5})
        for name in ("PRO", "ALL", "NLL")
    ]
    [ax] = plots.accuracy_by_coverage(pd.concat(parts)).axes
    assert ax.lines[0].get_xdata().tolist() == pytest.approx([-0.2, 0.8, 1.8, 2.8])
    assert ax.lines[1].get_xdata().tolist() == pytest.approx([0.2, 1.2, 2.2, 3.2])
    shares = [label.get_text().split("\n")[0] for label in ax.get_xticklabels()]
    assert shares == ["10%", "24%", "50%", "74%"]


def test_a_line_of_a_note_does_not_break_a_short_sentence():
    table = pd.DataFrame({"method": ["PRO", *PAPER_METHODS], "auroc": 0.8})
    lines = plots.benchmark(table).get_supxlabel().splitlines()
    assert lines[-1].startswith("SE: ") or lines[-1].startswith("Deg: ")
    assert all(line.endswith(".") for line in lines[lines.index("") + 1 :])


def test_a_panel_above_an_empty_place_has_tick_labels():
    table = pd.DataFrame({"dataset": ["a", "b", "c"], "value": 0})
    with plots.panels(table, "dataset", per_line=2, sharex=True) as (_, drawn):
        pass
    has_labels = [ax.xaxis.get_tick_params()["labelbottom"] for ax, _, _ in drawn]
    assert has_labels == [False, True, True]


def test_the_note_says_which_alpha_pro_has():
    table = pd.DataFrame({"method": ["PRO", "PRO", "PE"], "alpha": [0.05, 0.4, None]})
    chosen = table.assign(alpha_choice=["validation", "validation", None])
    words = "PRO: with the α that is best on validation questions, 0.05 to 0.4."
    assert method_note(chosen).startswith(words)
    both = table.assign(alpha_choice=["validation", "default", None])
    assert "PRO:" not in method_note(both)
