"""The tables behind the figures of a report."""

import numpy as np
import pytest
from test_scored_answers import many, run_of

from pro_lib import evaluation, metrics, plots

SCORED = many(80, 3)


def test_the_risk_is_the_share_of_wrong_answers_among_the_most_certain():
    scored = evaluation.score_answers(run_of(*((0.9 - n / 10, n not in (1, 3)) for n in range(8))))
    table = evaluation.risk_coverage(scored, ["NLL", "unknown"])
    assert list(table["method"].unique()) == ["NLL", "oracle"]
    # Five answers at least: two of five, six, seven and eight are wrong.
    rows = table[table["method"] == "NLL"]
    np.testing.assert_allclose(rows["coverage"], [5 / 8, 6 / 8, 7 / 8, 1])
    np.testing.assert_allclose(rows["risk"], [2 / 5, 2 / 6, 2 / 7, 2 / 8])
    low, high = metrics.wilson(1 - rows["risk"], [5, 6, 7, 8])
    np.testing.assert_allclose(
        rows[["risk_low", "risk_high"]], np.column_stack([1 - high, 1 - low])
    )
    best = table[table["method"] == "oracle"]
    np.testing.assert_allclose(best["risk"], [0, 0, 1 / 7, 2 / 8])


def test_confidence_is_fitted_on_one_half_and_tested_on_the_other():
    table = evaluation.calibration_table(SCORED, ["NLL"])
    assert table["n_in_bin"].sum() == 40
    assert set(table["method"]) == {"NLL"}
    assert table["confidence"].is_monotonic_increasing
    assert evaluation.calibration_table(many(39, 3), ["NLL"]).empty


def test_the_table_of_aurocs_is_the_comparison():
    table = evaluation.auroc_table(SCORED)
    assert table.to_numpy()[:, 1:].tolist() == (
        SCORED.comparison[["auroc", "low", "high"]].to_numpy().tolist()
    )


def test_the_figure_has_a_curve_per_method_and_the_best_possible_order():
    table = evaluation.risk_coverage(SCORED, ["PRO", "NLL"])
    figure = plots.risk_coverage(table)
    [ax] = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in ax.lines}
    for name in ("PRO", "NLL"):
        np.testing.assert_allclose(lines[name], table.loc[table["method"] == name, "risk"])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["PRO", "NLL", "95 % interval of PRO", "best possible order"]
    plots.style.plt.close(figure)
    with pytest.raises(ValueError, match="needs the columns method, coverage, risk"):
        plots.risk_coverage(table.drop(columns="risk"))
