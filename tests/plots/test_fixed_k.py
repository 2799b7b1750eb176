"""Test the figure of PRO with the same K for every question, beside adaptive K."""

import pandas as pd
import pytest
from figure_checks import check_figure, grid, legend
from invented_settings import SPLITS, setting_row

from pro_lib import metrics
from pro_lib.plots import fixed_k
from pro_lib.plots.style import PRINTED


def invented(**columns):
    """Return a table of two datasets and two models."""
    setting = {"dataset": ["d", "e"], "model": ["a", "b"]} | columns
    table = grid(**setting, k=[*range(1, 11), None]).astype({"k": "Int64"})
    return table.assign(k_choice=table["k"].isna().map({True: "adaptive", False: "fixed"}))


def test_the_table_has_a_row_for_each_k_and_one_for_adaptive_k():
    table = fixed_k.table(SPLITS[:1], max_k=3)
    assert table["k_choice"].tolist() == ["fixed"] * 3 + ["adaptive"]
    assert table["k"].tolist()[:3] == [1, 2, 3]
    assert table["k"].isna().tolist() == [False] * 3 + [True]
    assert table["alpha_choice"].fillna("").tolist() == [""] * 3 + ["validation"]
    reported = SPLITS[0].reported
    expected = [metrics.auroc(reported.pro(k=k), reported.correct) for k in (1, 2, 3)]
    assert table["auroc"].tolist()[:3] == expected
    assert table["auroc_minus_nll"].iloc[0] == 0


def test_it_can_be_read_at_both_widths():
    check_figure(fixed_k.draw, invented(), n_panels=2)


def test_printed_values_stand_in_grey_where_the_paper_has_them():
    paper = {"dataset": ["trivia_qa"], "model": ["google/gemma-2b"]}
    figure = fixed_k.draw(invented(**paper))
    adaptive, fixed = (
        line for line in figure.axes[0].lines if line.get_color() == PRINTED["color"]
    )
    assert fixed.get_ydata()[0] == 0.806
    assert adaptive.get_ydata() == [0.819]
    assert legend(figure)[-1] == "printed in the paper"
    assert "printed in the paper" not in legend(fixed_k.draw(invented()))


def adaptive_and_fixed(last, adaptive, **others):
    """Return the rows of one setting: K = 1, K = 2 and adaptive K."""
    rows = [
        setting_row(0.0, k_choice="fixed", k=1, p_value=1.0),
        setting_row(last, k_choice="fixed", k=2, p_value=0.001, **others),
        setting_row(adaptive, k_choice="adaptive", k=None, alpha=0.2, p_value=0.5, **others),
    ]
    return pd.DataFrame(rows).astype({"k": "Int64"})


@pytest.mark.parametrize(("last", "verb"), [(-0.05, "worse"), (0.05, "better")])
def test_the_caption_compares_the_largest_k_and_adaptive_k_with_nll(last, verb):
    caption = fixed_k.caption(adaptive_and_fixed(last, 0.001))
    assert f"K = 2 is significantly {verb} than NLL ({'+' if last > 0 else '−'}0.050" in caption
    assert (
        "chosen on validation questions, is not significantly different from NLL (+0.001" in caption
    )


def test_with_one_answer_the_caption_compares_adaptive_k_only():
    table = adaptive_and_fixed(0.05, 0.001)
    caption = fixed_k.caption(table[table["k"].fillna(1) == 1])
    assert "K = 1 is significantly" not in caption
    assert "Adaptive K, with α = 0.2, chosen on validation questions, is not" in caption
