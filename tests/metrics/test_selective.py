import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from test_auroc import QUESTIONS

from pro_lib import metrics
from pro_lib.metrics.roc import OneClassError, wilson
from pro_lib.metrics.selective import answered_weights

VALIDATION = [1.0, 2.0], [True, False]


def naive_area(order, correct):
    """Mean accuracy of those kept, the last of `order` rejected first."""
    return np.mean([np.mean([correct[row] for row in order[:n]]) for n in range(1, len(order) + 1)])


def rejection(*uncertainties, correct):
    """PRR and AUARC, an array each, of these uncertainties."""
    table = metrics.rejection(pd.DataFrame(dict(enumerate(uncertainties))), np.array(correct))
    assert table["method"].tolist() == list(range(len(uncertainties)))
    return table["prr"].to_numpy(), table["auarc"].to_numpy()


@pytest.mark.parametrize("n", [9, 40])
def test_prr_and_auarc_equal_those_of_rejecting_one_answer_after_the_other(n):
    rng = np.random.default_rng(n)
    uncertainty = rng.normal(size=n)
    correct = rng.random(n) < 0.6
    oracle = naive_area(np.argsort(~correct, kind="stable"), correct)
    random = correct.mean()
    expected = np.array([naive_area(np.argsort(uncertainty), correct), oracle, random])
    prr, auarc = rejection(uncertainty, ~correct, np.zeros(n), correct=correct)
    assert auarc == pytest.approx(expected, abs=1e-12)
    assert prr == pytest.approx((expected - random) / (oracle - random), abs=1e-12)


def test_ties_count_with_the_mean_over_their_orders():
    uncertainty = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    correct = np.array([True, True, False, False, True])
    ties = itertools.permutations([1, 2, 3])
    expected = np.mean([naive_area([0, *tie, 4], correct) for tie in ties])
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 2, 0]):
        [auarc] = rejection(uncertainty[order], correct=correct[order])[1]
        assert auarc == pytest.approx(expected, abs=1e-15)


def test_accuracy_coverage_by_hand():
    table = metrics.accuracy_coverage([3.0, 1.0, np.inf, 1.0], [True, True, False, False])
    assert table["n_answered"].tolist() == [1, 2, 3, 4]
    assert table["coverage"].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert table["threshold"].tolist() == [1.0, 1.0, 3.0, np.inf]
    assert table["accuracy"].tolist() == [0.5, 0.5, 2 / 3, 0.5]  # one of the two that tie is right
    one_class = metrics.accuracy_coverage([1.0, 2.0], [False, False])
    assert one_class["accuracy"].tolist() == [0.0, 0.0]


def test_calibration_by_hand():
    # Right, wrong, right, wrong as uncertainty grows: the middle two pool to 1/2, so the fit is 1
    # at 1, 1/2 from 2 to 3, and 0 at 4. On the others, 1, 2.5, 4 and 5 (beyond the largest) have
    # 1, 1/2, 0 and 0. The Brier score is the mean of 0, 1/4, 0 and 1. The two that tie share a
    # bin: the distances are 1/2 (twice), 1/2 and 0, and their mean 3/8 is the ECE.
    labels = [True, False, True, False], [True, True, False, True]
    result = metrics.calibration([1.0, 2.0, 3.0, 4.0], labels[0], [1.0, 2.5, 4.0, 5.0], labels[1])
    assert result.probability.tolist() == [1, 0.5, 0, 0]
    assert (result.brier, result.ece) == (0.3125, 0.375)
    low, high = wilson([0.5, 1, 1], [2, 1, 1])
    expected = {"n": [2, 1, 1], "low": [0, 0.5, 1], "high": [0, 0.5, 1]}
    expected |= {"confidence": [0, 0.5, 1], "accuracy": [0.5, 1, 1]}
    expected |= {"accuracy_low": low, "accuracy_high": high}
    pd.testing.assert_frame_equal(result.table, pd.DataFrame(expected), check_dtype=False)
    assert result.fit([2.0, 9.0]).tolist() == [0.5, 0]


def test_infinity_is_the_largest_of_validation():
    fitted = [1.0, np.inf, 3.0], [True, False, False]
    result = metrics.calibration(*fitted, [np.inf, -np.inf, 3.0], [True] * 3)
    assert result.probability.tolist() == [0, 1, 0]


def test_bins_hold_equal_numbers():
    # The fit is a line from 1 at an uncertainty of 1 to 0 at 2.
    uncertainty = 1 + np.random.default_rng(0).random(53)
    correct = np.arange(53) % 3 == 0
    result = metrics.calibration(*VALIDATION, uncertainty, correct)
    assert result.probability == pytest.approx(2 - uncertainty)
    assert sorted(result.table["n"]) == [5] * 7 + [6] * 3
    parts = np.split(np.argsort(result.probability), np.cumsum(result.table["n"])[:-1])
    accuracies = [correct[part].mean() for part in parts]
    np.testing.assert_allclose(result.table["accuracy"], accuracies)


REFUSED = [
    (([1.0, 2.0], [False] * 2, [1.0], [True]), OneClassError, "all 2 are wrong"),
    (([1.0, np.nan], [True, False], [1.0], [True]), ValueError, "uncertainty is NaN"),
    ((*VALIDATION, [np.nan], [True]), ValueError, "uncertainty is NaN in 1 of 1 rows"),
    ((*VALIDATION, [1.0], [True] * 2), ValueError, "uncertainty must have the shape"),
]


@pytest.mark.parametrize(("arguments", "kind", "words"), REFUSED)
def test_a_calibration_without_two_classes_or_with_bad_scores_is_refused(arguments, kind, words):
    with pytest.raises(kind, match=words):
        metrics.calibration(*arguments)
    with pytest.raises(OneClassError, match="all 2 are right"):
        rejection([1.0, 2.0], correct=[True, True])


@given(QUESTIONS)
def test_weights_of_the_answered_questions_give_the_accuracy_of_the_curve(rows):
    scores, correct = map(np.array, zip(*rows, strict=True))
    n = len(scores)
    weights = answered_weights(scores, np.arange(1, n + 1))
    assert weights.shape == (n, n)
    np.testing.assert_allclose(weights.sum(axis=1), np.arange(1, n + 1))
    accuracies = weights @ correct / np.arange(1, n + 1)
    curve = metrics.accuracy_coverage(scores, correct.astype(bool))["accuracy"]
    np.testing.assert_allclose(accuracies, curve)
