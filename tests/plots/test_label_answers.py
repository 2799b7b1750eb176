"""Test the figure of AUROC by labels and by ROUGE-L."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import finding, legend, unreadable

from pro_lib.common.validation import SentenceError
from pro_lib.plots import label_answers


def estimates(**changes):
    """Return a table of three methods by labels and by ROUGE-L."""
    rows = []
    for judge in ("labels", "rouge_l"):
        for number, method in enumerate(("NLL", "PRO", "SE")):
            row = {"dataset": "world-facts", "model": "facts-2m", "protocol": "paper"}
            row |= {"n_questions": 100, "judge": judge, "method": method, "similarity": None}
            row |= {"auroc": 0.8, "auroc_low": 0.7, "auroc_high": 0.9}
            difference = number / 100
            row |= {"auroc_minus_nll": difference, "auroc_minus_nll_low": difference - 0.02}
            rows.append(row | {"auroc_minus_nll_high": difference + 0.02})
    return pd.DataFrame(rows).assign(**changes)


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_differences_to_nll_come_first_and_both_judges_have_their_points(figure_columns):
    figure = label_answers.draw(estimates(), figure_columns=figure_columns)
    assert unreadable(figure, 7) == []
    differences, aurocs = figure.axes
    judges = ["by labels of a sample", "by ROUGE-L of all answers"]
    assert legend(figure) == judges
    assert [ax.get_xlabel() for ax in figure.axes] == ["AUROC minus that of NLL", "AUROC"]
    for ax, values in ((differences, [0.0, 0.01, 0.02]), (aurocs, [0.8] * 3)):
        points = [list(line.get_xdata()) for line in ax.lines if line.get_label() in judges]
        assert points == [values, values]


def test_a_value_without_enough_labels_is_not_shown():
    table = estimates()
    values = [name for name in table if name.startswith("auroc")]
    table.loc[table["judge"] == "labels", values] = np.nan
    for ax in label_answers.draw(table).axes:
        assert [text.get_text() for text in ax.texts] == ["not shown"] * 3


def test_a_missing_column_is_named():
    expected = "^The table has no column 'judge'; plots.label_answers needs"
    with pytest.raises(SentenceError, match=expected):
        label_answers.draw(estimates().drop(columns="judge"))


def judged(**changes):
    """Return the invented estimates with what the caption needs."""
    table = estimates().assign(
        n_labels=60.0, n_correct=50, shown="yes", p_value=[np.nan, 0.001, 0.4] * 2
    )
    return table.assign(**changes)


def test_the_caption_names_the_labellers_and_compares_pro_with_nll():
    caption = label_answers.caption(judged(), ["ada", "ben"])
    assert "by labels of 60 answers (given by ada and ben), drawn at random" in caption
    assert finding(caption) == (
        "By the labels, PRO is significantly better than NLL (+0.010, 95 % interval −0.010 to "
        "+0.030); AUROC of NLL is 0.800 by the labels and 0.800 by ROUGE-L, and 50.0 % and 50.0 % "
        "of the answers are correct; few labels suffice if both nearly agree."
    )


def test_the_caption_says_why_labels_estimate_nothing():
    caption = label_answers.caption(judged(p_value=np.nan, auroc=np.nan, shown="9 labels are few"))
    assert finding(caption).endswith("No difference to NLL is estimated (9 labels are few).")
