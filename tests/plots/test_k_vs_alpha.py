"""Test the figure of the number of answers that PRO keeps, against α."""

import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid

from pro_lib.common.validation import SentenceError
from pro_lib.plots import k_vs_alpha

ALPHAS = [0.0, 0.001, 0.05, 0.4, 1.0]


def invented(**columns):
    """Return a table of two datasets and two models."""
    setting = {"dataset": ["d", "e"], "model": ["a", "b"]} | columns
    table = grid(**setting, alpha=ALPHAS)
    return table.assign(mean_k=9 * table["auroc"], protocol="paper")


def test_it_can_be_read_at_both_widths():
    check_figure(k_vs_alpha.draw, invented(), n_panels=2)


@pytest.mark.parametrize(("scale", "place"), [("log", "symlog"), ("linear", "linear")])
def test_lines_go_through_the_numbers_on_both_scales(scale, place):
    table = invented()
    ax = k_vs_alpha.draw(table, alpha_scale=scale).axes[0]
    assert ax.get_xscale() == place
    for model, line in zip(("a", "b"), ax.lines, strict=True):
        rows = table[(table["dataset"] == "d") & (table["model"] == model)]
        assert line.get_xydata().tolist() == rows[["alpha", "mean_k"]].to_numpy().tolist()


def test_two_splits_are_not_joined_into_one_line():
    table = invented(split=["validation", "test"])
    with pytest.raises(SentenceError, match="rows of the splits validation and test; draw one"):
        k_vs_alpha.draw(table)
    assert len(k_vs_alpha.draw(table[table["split"] == "test"]).axes) == 2


def test_a_missing_column_and_an_empty_table_are_named():
    with pytest.raises(SentenceError, match=r"no column 'mean_k'; plots\.k_vs_alpha needs"):
        k_vs_alpha.draw(invented().drop(columns="mean_k"))
    with pytest.raises(SentenceError, match="The table has no rows"):
        k_vs_alpha.draw(invented().head(0))
    assert len(k_vs_alpha.draw(pd.DataFrame({"alpha": ALPHAS, "mean_k": 2.0})).axes) == 1


def test_the_caption_says_the_mean_k_at_the_default_and_the_smallest_alpha():
    rows = {"protocol": "paper", "alpha": [0.0, 0.4, 0.0, 0.4], "mean_k": [9.0, 1.0, 10.0, 2.0]}
    table = pd.DataFrame(rows).assign(correctness="ROUGE-L > 0.3", n_questions=300)
    table = table.assign(mean_k_high=table["mean_k"] + 0.25)
    assert "reach at most 0.25 from it" in k_vs_alpha.caption(table)
    assert finding(k_vs_alpha.caption(table, alpha=0.39)) == (
        "PRO uses 1.00 to 2.00 answers to a question on average at α = 0.4, and 9.00 to 10.00 at "
        "α = 0. Answers that beam search repeats count, so that K can exceed 1/α."
    )
