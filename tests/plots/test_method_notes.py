import pandas as pd

from pro_lib import plots
from pro_lib.plots.method_notes import method_note


def test_a_note_explains_the_methods_and_similarities_of_a_table():
    table = pd.DataFrame({"method": ["PRO", "SE", "ALL"], "similarity": [None, "alias", None]})
    expected = (
        "ALL: NLL per token. SE: semantic entropy, the entropy over meanings. "
        "alias: two answers that match the same reference have the same meaning."
    )
    assert method_note(table) == expected


def test_pro_alone_needs_no_note():
    assert method_note(pd.DataFrame({"method": ["PRO"]})) == ""


def test_the_line_below_a_figure_names_dataset_model_and_how_answers_are_counted():
    table = pd.DataFrame({"alpha": [0.1, 0.4], "auroc": 0.8, "dataset": "quiz", "model": "m"})
    figure = plots.alpha_sweep(table.assign(protocol="workbench"))
    expected = "dataset quiz, model m, an answer that is found several times counts once"
    assert figure.get_supxlabel().splitlines()[-1] == expected
    by_rule = plots.alpha_sweep(table.assign(correctness="verdicts.csv"))
    assert by_rule.get_supxlabel().endswith("an answer is correct by verdicts.csv")


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
