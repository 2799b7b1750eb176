"""The figures of the benchmark: readable, and true to their tables."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import legend, unreadable
from matplotlib.colors import to_rgba

from pro_lib import plots
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation import tables
from pro_lib.plots.style import label_words

SETTINGS = pd.DataFrame({"dataset": ["world-facts", "mine"], "model": "facts-2m"})


def method_table():
    """Methods with and without a similarity in two settings, and PRO with three choices of α."""
    rows = [
        ("PRO", None, "validation", 0.0),
        ("PRO", None, "default", 0.3),
        ("PRO", None, "oracle", 0.01),
        ("NLL", None, None, -0.02),
        ("SE", "lexical", None, 0.03),
        ("SE", "alias", None, -0.04),
    ]
    scores = pd.DataFrame(rows, columns=["method", "similarity", "alpha_choice", "auroc_minus_pro"])
    scores["auroc"] = 0.8 + scores["auroc_minus_pro"]
    for name in ("auroc", "auroc_minus_pro"):
        scores[f"{name}_low"] = scores[name] - 0.01
        scores[f"{name}_high"] = scores[name] + 0.01
    scores["significant"] = scores["method"] == "SE"
    return SETTINGS.merge(scores, how="cross").assign(n_questions=1234)


TABLE = method_table()
PRINTED = tables.printed_benchmark()


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_differences_beside_the_paper_can_be_read(figure_columns):
    figure = plots.beside_paper(
        TABLE, PRINTED, figure_columns=figure_columns, title="A title of mine"
    )
    assert unreadable(figure, 7) == []
    assert figure.legends[0].get_title().get_text() == "A title of mine"
    assert (figure.get_supxlabel()[:10], figure.get_supylabel()) == ("AUROC minu", "method")


def drawn_points(figure, color):
    """The differences of all points of one colour."""
    [ax] = figure.axes
    lines = [
        line
        for line in ax.lines
        if to_rgba(line.get_color()) == to_rgba(color) and line.get_marker() != "None"
    ]
    return sorted(np.concatenate([line.get_xdata() for line in lines]).round(3).tolist())


def test_every_source_has_its_points_and_pro_has_none():
    figure = plots.beside_paper(TABLE, PRINTED)
    assert legend(figure) == [
        "the paper (15 settings)",
        "this project (2 settings)",
        "this project, lexical (2 settings)",
        "this project, alias (2 settings)",
    ]
    others = PRINTED[PRINTED["method"] != "PRO"]
    assert drawn_points(figure, plots.COLORS[7]) == sorted(
        others["auroc_minus_pro"].round(3).tolist()
    )
    assert drawn_points(figure, plots.COLORS[0]) == [-0.02, -0.02]
    assert drawn_points(figure, plots.COLORS[1]) == [0.03, 0.03]
    assert drawn_points(figure, plots.COLORS[2]) == [-0.04, -0.04]


def test_a_table_without_intervals_and_similarities_is_drawn_beside_the_paper():
    figure = plots.beside_paper(TABLE[["method", "auroc_minus_pro"]].iloc[3:4], PRINTED)
    assert legend(figure) == ["the paper (15 settings)", "this project (1 setting)"]
    with pytest.raises(
        SentenceError, match=r"^The table has no column 'auroc_minus_pro'; plots.beside_paper needs"
    ):
        plots.beside_paper(TABLE.drop(columns="auroc_minus_pro"), PRINTED)


def test_rows_of_pro_are_named_by_their_alpha_and_coloured():
    figure = plots.benchmark(TABLE)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [
        "PRO (default α)",
        "SE (lexical)",
        "PRO (oracle α)",
        "PRO",
        "NLL",
        "SE (alias)",
    ]
    colors = {
        line.get_ydata()[0]: line.get_color()
        for line in figure.axes[0].lines
        if len(line.get_ydata()) == 1
    }
    assert [colors[names.index(name)] for name in ("PRO (oracle α)", "PRO", "NLL")] == [
        plots.COLORS[7],
        plots.COLORS[0],
        plots.COLORS[6],
    ]


def test_a_point_is_the_accuracy_minus_that_of_nll_at_the_same_coverage():
    rows = {"method": ["NLL", "NLL", "PRO", "PRO", "oracle"], "coverage": [0.5, 1.0, 0.5, 1.0, 1.0]}
    table = pd.DataFrame(rows | {"accuracy": [0.8, 0.6, 0.85, 0.6, 0.6]})
    figure = plots.accuracy_by_coverage(table)
    assert legend(figure) == ["PRO"]
    ax = figure.axes[0]
    # 0.5 is nearest to three of the shares that are drawn, and to 0.75 as near as 1
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 0.05]], atol=1e-12)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["50%\n(0.80)"]
    with pytest.raises(
        SentenceError, match="no rows of the method 'NLL', whose accuracy is the reference"
    ):
        plots.accuracy_by_coverage(table[table["method"] != "NLL"])


def test_points_of_calibration_are_the_bins_and_their_areas_the_questions():
    rows = {
        "method": "PRO",
        "confidence": [0.2, 0.7],
        "accuracy": [0.1, 0.8],
        "n_in_bin": [30, 10],
        "ece": 0.1,
    }
    figure = plots.reliability(pd.DataFrame(rows))
    [points] = figure.axes[0].collections
    np.testing.assert_array_equal(points.get_offsets(), [[0.2, 0.1], [0.7, 0.8]])
    np.testing.assert_allclose(points.get_sizes(), [4 + 97.5, 4 + 32.5])
    assert figure.axes[0].texts[0].get_text() == "ECE\nPRO 0.100"


LABELS = {"judge": "labels", "dataset": "mine", "model": "facts-2m"}


def words_below(figure):
    return figure.get_supxlabel()


def test_a_figure_says_that_labels_estimate_which_answers_are_correct():
    table = TABLE[TABLE["dataset"] == "mine"].assign(judge="labels", n_labels=199)
    expected = (
        "correct answers are estimated from labels of 199 answers; ROUGE-L judges the validation "
        "questions"
    )
    text = words_below(plots.benchmark(table)).replace("\n", " ")
    assert expected in text
    assert "Student's test of estimates" in text
    assert "labels" not in words_below(plots.benchmark(TABLE))
    text = words_below(plots.beside_paper(table, PRINTED)).replace("\n", " ")
    assert f"In this project, {expected}." in text


def test_labels_are_counted_if_the_table_knows_them():
    table = pd.DataFrame({"judge": "labels", "n_labels": [90, 1200]})
    assert "labels of 90 to 1,200 answers;" in label_words(table)
    assert "labels of a sample;" in label_words(table[["judge"]])
    assert label_words(pd.DataFrame({"judge": ["labels", None]})) == ""
    assert label_words(pd.DataFrame({"method": ["PRO"]})) == ""


def test_the_note_of_guarantees_says_whose_verdicts_they_are_about():
    rows = {"method": "PRO", "target": 0.7, "coverage": [0.5], "accuracy": [0.8]}
    text = words_below(plots.guarantees(pd.DataFrame({**rows, **LABELS}))).replace("\n", " ")
    assert "The guarantee is about answers that ROUGE-L calls correct" in text
    assert "ROUGE-L" not in words_below(plots.guarantees(pd.DataFrame(rows)))


def test_a_method_without_an_auroc_has_a_row_without_a_value():
    table = TABLE[TABLE["dataset"] == "mine"].assign(judge="labels", significant=False)
    table.loc[:, table.columns.str.startswith("auroc")] = np.nan
    [ax] = plots.benchmark(table).axes
    assert {text.get_text().strip() for text in ax.texts} == {"–"}
    assert ax.get_xlim()[0] == 0.5


def test_shares_without_an_accuracy_have_no_point_and_the_note_says_why():
    rows = {"method": ["NLL", "NLL", "PRO", "PRO"], "coverage": [0.1, 1.0, 0.1, 1.0]}
    table = pd.DataFrame(rows | {"accuracy": [np.nan, 0.6, np.nan, 0.65], **LABELS})
    figure = plots.accuracy_by_coverage(table)
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["10%\n(–)", "100%\n(0.60)"]
    assert "the labels do not suffice" in words_below(figure).replace("\n", " ")


def test_reliability_without_a_calibration_error_does_not_mention_it():
    rows = {"method": "PRO", "confidence": [0.2, 0.7], "accuracy": [0.1, np.nan], "ece": np.nan}
    figure = plots.reliability(pd.DataFrame({**rows, "n_in_bin": [30, 10], **LABELS}))
    assert len(figure.axes[0].texts) == 0
    text = words_below(figure).replace("\n", " ")
    assert "ECE" not in text
    assert "the labels do not suffice" in text
