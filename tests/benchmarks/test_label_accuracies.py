"""The simulation of accuracies of groups: its sums, and estimates with labels of all answers."""

import label_accuracies as simulation
import numpy as np
import pandas as pd
import pytest
from test_labels import evaluation

from pro_lib import metrics


def some_setting(n=120):
    """Return a setting with two scores whose confidence other answers fit."""
    judged, truth = evaluation(n)
    validation, _ = evaluation(100, seed=1)
    correct = np.array(list(truth.values()))
    scores = simulation.compute_scores(judged)
    fitted = simulation.compute_scores(validation)
    fits = {
        name: metrics.calibration(fitted[name], validation.correct, scores[name], correct)
        for name in scores
    }
    return simulation.Setting(judged, correct, scores, fits)


def test_with_all_labels_every_estimate_is_the_true_value():
    setting = some_setting()
    sampled = simulation.label_correctly(setting, 120, seed=0)
    rows = pd.DataFrame(simulation.estimate_quantities(setting, sampled))
    shown = rows.dropna(subset=["estimate"])
    assert {"brier", "auarc", "prr", "accuracy of a bin"} <= set(shown["quantity"])
    np.testing.assert_allclose(shown["estimate"], shown["true"])


def test_the_summary_counts_intervals_that_contain_the_true_value():
    place = {"dataset": "d", "model": "m", "n_labels": 100, "method": "NLL", "quantity": "q"}
    values = {
        "true": [0.5, 0.5, 0.5, 0.5],
        "estimate": [0.5, 0.7, 0.45, np.nan],
        "low": [0.4, 0.6, 0.4, np.nan],
        "high": [0.6, 0.8, 0.5, np.nan],
    }
    [row] = simulation.summarize(pd.DataFrame({**place, **values})).to_dict("records")
    assert row["coverage"] == pytest.approx(2 / 3)
    assert row["n_intervals"] == 3
    assert row["bias"] == pytest.approx(0.05)
    assert row["shown"] == 0.75
