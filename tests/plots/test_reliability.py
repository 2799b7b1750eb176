"""Test the figure of accuracy against the confidence that is fitted to a score."""

import numpy as np
import pandas as pd
from figure_checks import check_figure, finding, grid, legend
from test_benchmark import REPORTED, SPLITS, VALIDATION

from pro_lib import metrics
from pro_lib.plots import reliability
from pro_lib.plots.settings import SETTING_COLUMNS


def test_reliability_has_the_bins_of_the_calibration():
    table = reliability.table([SPLITS], methods=["PRO", "SE, lexical"])
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert (table.groupby("method")["n_in_bin"].sum() == 120).all()
    rows = table[table["method"] == "SE"]
    assert set(rows["similarity"]) == {"lexical"}
    scores = [part.baselines["SE, lexical"] for part in (VALIDATION, REPORTED)]
    fit = metrics.calibration(scores[0], VALIDATION.correct, scores[1], REPORTED.correct)
    assert set(rows["ece"]) == {fit.ece}
    assert set(rows["brier"]) == {fit.brier}
    for column, original in {
        "n_in_bin": "n",
        "confidence_min": "low",
        "confidence_max": "high",
    }.items():
        assert rows[column].tolist() == fit.table[original].tolist()
    kept = ["confidence", "accuracy", "accuracy_low", "accuracy_high"]
    assert rows[kept].to_dict("list") == fit.table[kept].to_dict("list")


def invented(**others):
    table = grid(**others, method=["PRO", "NLL", "PE"], confidence=[0.1, 0.5, 0.9])
    table = table.assign(accuracy=table["auroc"], ece=0.05, n_in_bin=20)
    return table.assign(accuracy_low=table["accuracy"] - 0.1, accuracy_high=0.95)


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["facts-2m", "facts-1m"]}
    check_figure(reliability.draw, invented(**setting), n_panels=4)


def test_points_are_the_bins_with_enough_questions_of_each_method():
    rows = {"confidence": [0.2, 0.7, 0.9], "accuracy": [0.1, 0.8, 0.9], "n_in_bin": [30, 20, 19]}
    table = pd.DataFrame(rows).assign(method="PRO", accuracy_low=0, accuracy_high=1, dataset="d")
    figure = reliability.draw(pd.concat([table, table.assign(method="NLL", accuracy=0.5)]))
    [ax] = figure.axes
    assert legend(figure) == ["PRO", "NLL"]
    _, first, second = ax.lines  # after the diagonal
    assert first.get_xydata().tolist() == [[0.2, 0.1], [0.7, 0.8]]
    assert second.get_xydata().tolist() == [[0.2, 0.5], [0.7, 0.5]]


def test_the_caption_has_the_calibration_errors_if_they_are_known():
    table = invented(dataset=["d"], model=["m"])
    assert (
        "(expected calibration error) is PRO 0.050, NLL 0.050 and PE 0.050."
        in reliability.caption(table)
    )
    assert "calibration error" not in reliability.caption(table.assign(ece=np.nan))


def test_the_caption_counts_the_points_that_pro_shares_with_nll():
    table = invented(dataset=["d"], model=["m"])
    table["accuracy"] = table["confidence"].where(table["method"] != "PE", 0)
    assert finding(reliability.caption(table)).endswith(
        "3 of the 3 points of PRO are also points of NLL."
    )
    apart = table.assign(accuracy=table["accuracy"].mask(table["method"] == "NLL", 0))
    assert "are also points" not in reliability.caption(apart)
