"""Test the figure of differences to PRO in the paper and in this project."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, legend
from matplotlib.colors import to_rgba

from pro_lib.common.validation import SentenceError
from pro_lib.plots import beside_paper
from pro_lib.plots.style import COLORS

PRINTED = beside_paper.table()


def invented():
    """Return methods with and without a similarity in two settings, and PRO with two α."""
    rows = [
        ("PRO", None, "validation", 0.0),
        ("PRO", None, "oracle", 0.01),
        ("NLL", None, None, -0.02),
        ("SE", "lexical", None, 0.03),
        ("SE", "alias", None, -0.04),
    ]
    scores = pd.DataFrame(rows, columns=["method", "similarity", "alpha_choice", "auroc_minus_pro"])
    scores["auroc"] = 0.8 + scores["auroc_minus_pro"]
    scores["auroc_minus_pro_low"] = scores["auroc_minus_pro"] - 0.01
    scores["auroc_minus_pro_high"] = scores["auroc_minus_pro"] + 0.01
    settings = pd.DataFrame({"dataset": ["world-facts", "mine"], "model": "facts-2m"})
    return settings.merge(scores, how="cross").assign(n_questions=1234, protocol="paper")


TABLE = invented()


def test_printed_differences_are_to_the_papers_own_pro():
    assert (PRINTED.loc[PRINTED["method"] == "PRO", "auroc_minus_pro"] == 0).all()
    rows = PRINTED[(PRINTED["dataset"] == "TriviaQA") & (PRINTED["model"] == "Gemma-2B")].set_index(
        "method"
    )
    assert rows.loc["SD", "auroc"] == 0.799
    assert rows.loc["SD", "auroc_minus_pro"] == pytest.approx(0.799 - 0.819)


def test_the_table_has_every_value_that_is_drawn():
    table = beside_paper.table(TABLE)
    assert list(table) == list(PRINTED)
    drawn = table[len(PRINTED) :]
    # PRO with α chosen on validation alone
    assert drawn["method"].tolist() == 2 * ["PRO", "NLL", "SE", "SE"]
    assert drawn["auroc_minus_pro"].tolist() == 2 * [0.0, -0.02, 0.03, -0.04]


def test_only_settings_of_the_paper_stand_beside_it():
    assert beside_paper.same_settings(TABLE).empty
    named = TABLE.head(5).assign(dataset="mandarjoshi/trivia_qa", model="google/gemma-2b")
    rows = beside_paper.same_settings(named)
    # PRO with α chosen on validation alone
    assert rows["method"].tolist() == ["PRO", "NLL", "SE", "SE"]
    assert rows["similarity"].tolist()[2:] == ["lexical", "alias"]
    assert rows["auroc"].iloc[0] == TABLE["auroc"].iloc[0]
    assert rows["printed_auroc"].tolist()[0] == 0.819


def test_it_can_be_read_at_both_widths():
    check_figure(beside_paper.draw, TABLE, n_panels=1)


def test_the_title_says_how_repeats_are_counted_here():
    for table, words in ((TABLE, " (here: repeats counted)"), (TABLE.drop(columns="protocol"), "")):
        title = beside_paper.draw(table).legends[0].get_title().get_text()
        assert title == f"AUROC of each method minus that of PRO{words}"


def drawn_points(figure, color):
    """Return the differences of all points of one colour, without the means."""
    found = []
    for line in figure.axes[0].lines:
        if to_rgba(line.get_color()) == to_rgba(color) and line.get_marker() not in ("|", "None"):
            found += line.get_xdata().tolist()
    return sorted(np.round(found, 3))


def test_every_source_has_its_points_and_pro_has_none():
    figure = beside_paper.draw(TABLE)
    assert legend(figure) == ["paper", "here", "mean"]
    others = PRINTED[PRINTED["method"] != "PRO"]
    expected = sorted(others["auroc_minus_pro"].round(3))
    assert drawn_points(figure, COLORS[7]) == expected
    assert drawn_points(figure, COLORS[0]) == [-0.04, -0.04, -0.02, -0.02, 0.03, 0.03]


def test_one_setting_is_drawn_beside_the_paper_and_a_missing_column_is_named():
    figure = beside_paper.draw(TABLE.iloc[2:3])
    assert legend(figure) == ["paper", "here", "mean"]
    with pytest.raises(SentenceError, match=r"^The table has no column 'auroc_minus_pro'; plots"):
        beside_paper.draw(TABLE.drop(columns="auroc_minus_pro"))


def test_the_caption_has_the_mean_of_nll_in_the_paper_and_here():
    caption = beside_paper.caption(TABLE)
    assert finding(caption) == (
        "NLL minus PRO is −0.024 in the paper (15 settings) and −0.020 here (2 settings) on "
        "average. The sign of the mean is the same in both for NLL and SE."
    )
    better = beside_paper.caption(TABLE.assign(auroc_minus_pro=0.1))
    assert finding(better).endswith("average. The sign of the mean differs for NLL and SE.")
    assert "and" not in beside_paper.caption(TABLE.head(1)).rpartition("NLL minus PRO")[2]
