"""Test the figure of accuracy if only the least uncertain questions are answered."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid, legend
from invented_settings import evaluation_of, some_questions, splits_of

from pro_lib import metrics
from pro_lib.plots import answered
from pro_lib.plots.settings import SETTING_COLUMNS


def test_accuracy_by_coverage_has_wilsons_interval_and_an_oracle_without_one():
    correct = [True, False] * 10
    setting = evaluation_of(some_questions(20)[0], correct, NLL=np.arange(20.0))
    table = answered.table([splits_of(setting)], n_points=20)
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert table["method"].unique().tolist() == ["NLL", "PRO", "oracle"]
    assert table["n_questions"].unique().tolist() == [20]
    nll = table[table["method"] == "NLL"].set_index("n_answered")
    assert nll.index.tolist() == list(range(1, 21))
    # NLL is sure of the correct answers 0, 2, … and the wrong ones 1, 3, … in turn.
    assert nll["accuracy"].tolist()[:4] == pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])
    ends = metrics.wilson(nll["accuracy"], nll.index)
    np.testing.assert_array_equal(nll[["accuracy_low", "accuracy_high"]].T, ends)
    oracle = table[table["method"] == "oracle"].set_index("n_answered")
    assert oracle["accuracy"][[1, 10, 20]].tolist() == [1.0, 1.0, 0.5]
    assert oracle[["accuracy_low", "accuracy_high"]].isna().all(axis=None)


def test_accuracy_by_coverage_has_the_first_three_methods_that_compare_meanings():
    scores = ("NLL", "SE, a", "SD, a", "S-NLL, a", "Deg, a", "SE, b")
    log_probs, correct = some_questions(40)
    setting = evaluation_of(log_probs, correct, **dict.fromkeys(scores, np.arange(40.0)))
    table = answered.table([splits_of(setting)], n_points=3)
    found = table.drop_duplicates(["method", "similarity"])[["method", "similarity"]]
    expected = [
        ("NLL", None),
        ("PRO", None),
        ("SE", "a"),
        ("SD", "a"),
        ("Deg", "a"),
        ("oracle", None),
    ]
    assert list(found.itertuples(index=False, name=None)) == expected
    is_pro = table["method"] == "PRO"
    assert set(table.loc[is_pro, "alpha_choice"]) == {"validation"}
    assert table.loc[~is_pro, ["alpha", "alpha_choice"]].isna().all(axis=None)


def test_the_difference_to_nll_is_about_the_questions_that_one_of_both_chooses():
    # Of five questions each, NLL chooses 0 to 4 and the other score 3 to 7; 3 and 4 cancel.
    correct = np.array([True, True, False, True, True, True, True, True, False, False])
    scores = np.arange(10.0)
    other = np.array([9.0, 8, 7, 0, 1, 2, 3, 4, 5, 6])
    setting = evaluation_of(np.full((10, 1), -0.1), correct, NLL=scores, PE=other)
    table = answered.table([splits_of(setting)], methods=["NLL", "PE"], n_points=100)
    five = table[table["n_answered"] == 5].set_index("method")
    assert five.loc["NLL", "accuracy_minus_nll"] == 0
    assert five.loc["NLL", ["accuracy_minus_nll_low", "accuracy_minus_nll_high"]].tolist() == [0, 0]
    row = five.loc["PE"]
    assert row["accuracy_minus_nll"] == pytest.approx(row["accuracy"] - five.loc["NLL", "accuracy"])
    # Newcombe's interval of 3 of 3 minus 2 of 3, times 3 of 5.
    (low, high), (ours_low, _) = metrics.wilson(2 / 3, 3), metrics.wilson(1.0, 3)
    lower = 1 / 3 - np.hypot(1 - ours_low, high - 2 / 3)
    assert row["accuracy_minus_nll_low"] == pytest.approx(0.6 * lower)
    assert row["accuracy_minus_nll_high"] == pytest.approx(0.6 * (1 / 3 + 2 / 3 - low))
    assert five.loc["oracle", "accuracy_minus_nll_low":].isna().all()


def test_the_interval_covers_the_difference_of_two_noisy_scores():
    rng = np.random.default_rng(0)
    n_covered = 0
    for _ in range(200):
        truth = rng.uniform(0.3, 0.9, 120)
        noise = rng.normal(0, 0.2, (2, 120))
        correct = rng.random(120) < truth
        pair = {"NLL": -truth + noise[0], "PE": -truth + noise[1]}
        setting = evaluation_of(np.full((120, 1), -0.1), correct, **pair)
        table = answered.table([splits_of(setting)], methods=["NLL", "PE"], n_points=3)
        row = table[table["method"] == "PE"].iloc[1]
        k = row["n_answered"]
        chosen = [np.argsort(score)[:k] for score in pair.values()]
        expected = truth[chosen[1]].mean() - truth[chosen[0]].mean()
        n_covered += row["accuracy_minus_nll_low"] <= expected <= row["accuracy_minus_nll_high"]
    assert n_covered >= 184  # 95 % of 200, minus two standard errors


METHODS = ["PRO", "NLL", "ALL", "PE", "SE", "SD", "Deg"]


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["facts-2m", "facts-1m"]}
    table = grid(**setting, method=METHODS, coverage=[0.02, 0.3, 0.6, 1.0])
    table = table.assign(accuracy=table["auroc"], accuracy_minus_nll=table["auroc_minus_nll"])
    check_figure(answered.draw, table, n_panels=4)


def test_a_point_is_the_accuracy_minus_that_of_nll_at_the_same_coverage():
    rows = {"method": ["NLL", "NLL", "PRO", "PRO", "oracle"], "coverage": [0.5, 1.0, 0.5, 1.0, 1.0]}
    rows |= {"accuracy": [0.8, 0.6, 0.85, 0.6, 0.6], "accuracy_minus_nll": [0, 0, 0.05, 0, np.nan]}
    table = pd.DataFrame(rows).assign(n_questions=100, dataset="d", model="m")
    ends = {f"accuracy_minus_nll_{end}": table["accuracy_minus_nll"] for end in ("low", "high")}
    table = table.assign(**ends)
    figure = answered.draw(table)
    shares = [f"{share}\xa0% answered" for share in (25, 50, 75)]
    assert legend(figure) == shares
    ax = figure.axes[0]
    # 0.5 is nearest to all shares that are drawn, and to 0.75 as near as 1
    assert [line.get_xdata().tolist() for line in ax.lines if line.get_label() in shares] == [
        [0.05]
    ] * 3
    assert [label.get_text() for label in ax.get_yticklabels()] == ["PRO"]
    caption = finding(answered.caption(table))
    assert "PRO minus NLL is +0.050 at these shares" in caption
    assert caption.endswith("The interval (with the number of points) is above 0 for PRO (3).")
    assert "below 0" not in caption


def test_accuracy_is_drawn_at_three_shares_below_each_other():
    shares = np.arange(1, 51) / 50
    columns = {"coverage": shares, "accuracy": 0.5, "accuracy_minus_nll": shares}
    parts = [pd.DataFrame({"method": name, **columns}) for name in ("PRO", "ALL", "NLL")]
    [ax] = answered.draw(pd.concat(parts)).axes
    points = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_marker() != ""]
    drawn = [
        line.get_xydata().round(2).tolist() for line in points if "answered" in line.get_label()
    ]
    assert drawn == [
        [[0.24, -0.23], [0.24, 0.77]],
        [[0.5, 0.0], [0.5, 1.0]],
        [[0.74, 0.23], [0.74, 1.23]],
    ]


def test_shares_without_an_accuracy_have_no_point():
    rows = {"method": ["NLL", "NLL", "PRO", "PRO"], "coverage": [0.1, 1.0, 0.1, 1.0]}
    table = pd.DataFrame(rows | {"accuracy": [np.nan, 0.6, np.nan, 0.65]})
    table["accuracy_minus_nll"] = table["accuracy"] - 0.6
    [ax] = answered.draw(table).axes
    assert [text.get_text() for text in ax.texts] == ["n/a", "n/a"]
