"""Test the figure of AUROC by labels and by ROUGE-L."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import legend, unreadable

from pro_lib import plots
from pro_lib.common.validation import SentenceError


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


def words(ax):
    return [text.get_text().strip() for text in ax.texts]


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_differences_to_nll_come_first_and_both_judges_have_a_row(figure_columns):
    figure = plots.label_estimates(estimates(), figure_columns=figure_columns)
    assert unreadable(figure, 7) == []
    differences, aurocs = figure.axes
    assert words(differences) == ["reference"]
    assert legend(figure) == [
        "by labels of a sample, with predictions for the others",
        "by ROUGE-L of all answers",
    ]
    # NLL is the reference, so the left panel has two points for each judge.
    assert [len(line.get_xdata()) for line in differences.lines[:2]] == [2, 2]
    assert [len(line.get_xdata()) for line in aurocs.lines] == [3, 3]


def test_a_value_without_enough_labels_is_not_shown():
    table = estimates()
    values = [name for name in table if name.startswith("auroc")]
    table.loc[table["judge"] == "labels", values] = np.nan
    differences, aurocs = plots.label_estimates(table).axes
    assert words(aurocs) == ["not shown"] * 3
    assert words(differences) == [*["not shown"] * 2, "reference"]


def test_a_missing_column_is_named():
    expected = "^The table has no column 'judge'; plots.label_estimates needs"
    with pytest.raises(SentenceError, match=expected):
        plots.label_estimates(estimates().drop(columns="judge"))


def test_the_note_names_the_labellers():
    table = estimates().assign(n_labels=60)
    assert "60 of them have a label." in plots.label_estimates(table).get_supxlabel()
    named = plots.label_estimates(table, labellers=pd.Series(["ada", "ben"]).unique())
    assert "a label, given by ada and ben." in " ".join(named.get_supxlabel().split())
