"""Test the figure of AUROC of an exact search, of beams, and of the search's own scores."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, legend, significance_marks
from invented_settings import setting_row
from test_exact_search_figure import judged_runs

from pro_lib import metrics, scoring
from pro_lib.common.validation import SentenceError
from pro_lib.plots import exact_search_auroc


def test_auroc_has_a_row_for_each_score_and_says_which_answers_it_uses():
    table = exact_search_auroc.table([judged_runs()], n_validation=None)
    names = table[["method", "strategy", "alpha_choice"]].fillna("")
    assert list(names.itertuples(index=False, name=None)) == [
        ("PRO", "threshold", "validation"),
        ("PRO", "diverse_beam", "validation"),
        ("α-floor", "threshold", "validation"),
        ("tree bound", "threshold", "validation"),
        ("probability not found", "threshold", "validation"),
        ("NLL", "threshold", ""),
        ("ALL", "threshold", ""),
        ("PRO", "diverse_beam", "exact search"),
    ]
    assert table["n_questions"].tolist() == [12] * 8
    assert table["n_correct"].tolist() == [6] * 8
    assert table["alpha"].iloc[7] == table["alpha"].iloc[0]
    assert table["alpha"].isna().tolist() == [False] * 5 + [True, True, False]


def test_differences_are_paired_and_to_pro_of_the_exact_search():
    table = exact_search_auroc.table([judged_runs()], n_validation=None)
    correct = np.array([number % 4 < 2 for number in range(12, 24)])
    of_search = np.log([[0.5, 0.3], [0.35, 0.25]] * 6)
    of_beams = np.log([[0.5, np.nan], [0.35, 0.25]] * 6)
    alpha = table["alpha"].iloc[0]
    exact = scoring.pro(of_search, alpha=alpha, search_alpha=0.2)
    same = scoring.pro(of_beams, alpha=alpha)
    assert table["auroc"].iloc[0] == metrics.auroc(exact, correct)
    assert table["auroc"].iloc[7] == metrics.auroc(same, correct)
    tests = metrics.delong(np.column_stack([exact, same]), correct)
    low, high = tests.low, tests.high
    columns = ["auroc_minus_pro", "auroc_minus_pro_low", "auroc_minus_pro_high", "p_value"]
    expected = [tests.difference[1], low[1], high[1], tests.p_value[1]]
    assert table.loc[7, columns].tolist() == expected
    assert table["n_differ"].iloc[0] == 0
    assert table["n_differ"].iloc[7] == tests.n_differ[1]


def invented(**others):
    """Return four scores of a setting, with intervals."""
    rows = [
        ("PRO", "threshold", "validation", 0.0),
        ("PRO", "diverse_beam", "validation", -0.01),
        ("probability not found", "threshold", "validation", -0.05),
        ("PRO", "diverse_beam", "exact search", 0.002),
    ]
    columns = ["method", "strategy", "alpha_choice", "auroc_minus_pro"]
    table = pd.DataFrame(rows, columns=columns)
    setting = setting_row(0.0, dataset="world-facts", model="facts-2m", alpha=0.1, **others)
    table = table.assign(**setting)
    table["auroc"] = 0.8 + table["auroc_minus_pro"]
    for name in ("auroc", "auroc_minus_pro"):
        table[f"{name}_low"] = table[name] - 0.01
        table[f"{name}_high"] = table[name] + 0.01
    return table


def test_it_can_be_read_at_both_widths():
    check_figure(exact_search_auroc.draw, invented(), n_panels=1)
    both = pd.concat([invented(), invented().assign(dataset="mine")])
    check_figure(exact_search_auroc.draw, both, n_panels=2)


def test_scores_are_named_by_their_answers_and_drawn_beside_their_difference():
    table = invented()
    [ax] = exact_search_auroc.draw(table).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [
        "PRO, exact search",
        "PRO, beams",
        "probability not found",
    ]
    points, reference = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(points.get_xydata(), [[-0.01, 1], [-0.05, 2]], atol=1e-12)
    np.testing.assert_allclose(reference.get_xydata(), [[0, 0]], atol=1e-12)
    assert reference.get_mfc() == "white"
    assert ax.texts[0].get_text() == " 0.790 (0.1)"
    significant = pd.concat([invented(p_value=1e-9), invented(p_value=1e-9, n_correct=1)])
    figure = exact_search_auroc.draw(significant.assign(dataset=["a"] * 4 + ["b"] * 4))
    assert legend(figure) == ["significantly worse than PRO, exact search"]
    # Only one of the settings has enough answers.
    assert [significance_marks(ax) for ax in figure.axes] == [{1: "x", 2: "x"}, {}]
    with pytest.raises(SentenceError, match=r"^The table has no column 'auroc_minus_pro'"):
        exact_search_auroc.draw(table.drop(columns="auroc_minus_pro"))


@pytest.mark.parametrize(("p_value", "words"), [(1e-9, "significantly worse"), (0.5, "not signif")])
def test_the_caption_compares_beams_with_the_search(p_value, words):
    table = invented(p_value=p_value)
    nll = table.tail(1).assign(method="NLL", strategy="threshold", alpha_choice=None, p_value=0.9)
    caption = exact_search_auroc.caption(pd.concat([table, nll], ignore_index=True))
    assert f"PRO with beams is {words}" in caption
    assert "(−0.010, 95 % interval −0.020 to 0.000)" in caption
    assert "NLL is not significantly different from PRO with the search (+0.002, 95" in caption
    others = "+0.012); significantly worse: probability not found (world-facts)."
    assert (others in caption) == (p_value < 0.05)
