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


def test_prr_and_auarc_equal_those_of_rejecting_one_answer_after_the_other():
    n = 40
    rng = np.random.default_rng(n)
    uncertainty = rng.normal(size=n)
    correct = rng.random(n) < 0.6
    oracle = naive_area(np.argsort(~correct, kind="stable"), correct)
    random = correct.mean()
    expected = np.array([naive_area(np.argsort(uncertainty), correct), oracle, random])
    prr, auarc = rejection(uncertainty, ~correct, np.zeros(n), correct=correct)
    assert auarc == pytest.approx(expected, abs=1e-12)
    assert prr == pytest.approx((expected - random) / (oracle - random), abs=1e-12)


def test_the_random_baseline_of_prr_is_the_mean_over_all_orders():
    correct = np.array([True, False, True, True, False])
    orders = itertools.permutations(range(5))
    random = np.mean([naive_area(order, correct) for order in orders])
    uncertainty = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    oracle = naive_area([0, 2, 3, 1, 4], correct)
    expected = (naive_area(range(5), correct) - random) / (oracle - random)
    assert rejection(uncertainty, correct=correct)[0] == pytest.approx([expected], abs=1e-12)


def test_ties_count_with_the_mean_over_their_orders():
    uncertainty = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    correct = np.array([True, True, False, False, True])
    expected = np.mean(
        [naive_area([0, *tie, 4], correct) for tie in itertools.permutations([1, 2, 3])]
    )
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 2, 0]):
        assert rejection(uncertainty[order], correct=correct[order])[1] == pytest.approx(
            expected, abs=1e-15
        )


def test_accuracy_coverage_by_hand():
    table = metrics.accuracy_coverage([3.0, 1.0, np.inf, 1.0], [True, True, False, False])
    expected = {
        "n_answered": [1, 2, 3, 4],
        "coverage": [0.25, 0.5, 0.75, 1.0],
        "threshold": [1.0, 1.0, 3.0, np.inf],
    }
    expected["accuracy"] = [0.5, 0.5, 2 / 3, 0.5]  # one of the two that tie is right
    pd.testing.assert_frame_equal(table, pd.DataFrame(expected))
    # One class
    assert metrics.accuracy_coverage([1.0, 2.0], [False, False])["accuracy"].tolist() == [
        0.0,
        0.0,
    ]


def test_calibration_by_hand():
    # Right, wrong, right, wrong as uncertainty grows: the middle two pool to 1/2, so the fit is 1
    # at 1, 1/2 from 2 to 3, and 0 at 4. On the others, 1, 2.5, 4 and 5 (beyond the largest) have
    # 1, 1/2, 0 and 0. The Brier score is the mean of 0, 1/4, 0 and 1. The two that tie share a
    # bin: the distances are 1/2 (twice), 1/2 and 0, and their mean 3/8 is the ECE.
    labels = [True, False, True, False], [True, True, False, True]
    result = metrics.calibration([1.0, 2.0, 3.0, 4.0], labels[0], [1.0, 2.5, 4.0, 5.0], labels[1])
    assert result.probability.tolist() == [1, 0.5, 0, 0]
    assert (result.brier, result.ece) == (0.3125, 0.375)
    ends = [0, 0.5, 1]
    expected = {
        "n": [2, 1, 1],
        "low": ends,
        "high": ends,
        "confidence": ends,
        "accuracy": [0.5, 1, 1],
    }
    expected["accuracy_low"], expected["accuracy_high"] = wilson(
        expected["accuracy"], expected["n"]
    )
    pd.testing.assert_frame_equal(result.table, pd.DataFrame(expected), check_dtype=False)
    assert result.fit([2.0, 9.0]).tolist() == [0.5, 0]


def test_a_bin_weighs_what_it_holds_and_infinity_is_the_largest_of_validation():
    # The fit is 1 below and 0 above. Three questions have 1 and all are wrong, one has 0 and is
    # wrong, so the ECE is 3/4.
    result = metrics.calibration(*VALIDATION, [1.0, 1.0, -np.inf, np.inf], [False] * 4)
    # Ties are not split
    assert result.table[["n", "low", "high"]].to_numpy().tolist() == [
        [1, 0, 0],
        [3, 1, 1],
    ]
    assert result.ece == 0.75
    result = metrics.calibration(
        [1.0, np.inf, 3.0], [True, False, False], [np.inf, -np.inf, 3.0], [True] * 3
    )
    assert result.probability.tolist() == [0, 1, 0]


def naive_isotonic(uncertainty, correct):
    """Return isotonic regression on minus the uncertainty by the max-min formula."""
    pools = [correct[-uncertainty == value] for value in np.unique(-uncertainty)]
    n = range(len(pools))
    means = [[np.concatenate(pools[a : b + 1]).mean() if a <= b else np.inf for b in n] for a in n]
    return {
        value: max(min(means[a][i:]) for a in range(i + 1))
        for i, value in enumerate(np.unique(-uncertainty))
    }


@given(QUESTIONS)
def test_calibration_fits_isotonic_regression(rows):
    uncertainty, correct = map(np.array, zip(*rows, strict=True))
    expected = naive_isotonic(uncertainty, correct)
    result = metrics.calibration(uncertainty, correct, uncertainty, correct)
    np.testing.assert_allclose(
        result.probability, [expected[-u] for u in uncertainty], rtol=0, atol=1e-12
    )
    # Each level of the fit is the accuracy of its pool
    assert result.ece == pytest.approx(0, abs=1e-12)


def test_bins_hold_equal_numbers():
    # The fit is a line from 1 at an uncertainty of 1 to 0 at 2.
    uncertainty, correct = 1 + np.random.default_rng(0).random(53), np.arange(53) % 3 == 0
    result = metrics.calibration(*VALIDATION, uncertainty, correct)
    assert result.probability == pytest.approx(2 - uncertainty)
    assert sorted(result.table["n"]) == [5] * 7 + [6] * 3
    parts = np.split(np.argsort(result.probability), np.cumsum(result.table["n"])[:-1])
    for name, values in (("accuracy", correct), ("confidence", result.probability)):
        np.testing.assert_allclose(result.table[name], [values[part].mean() for part in parts])


REFUSED = [
    (([1.0, 2.0], [False] * 2, [1.0], [True]), OneClassError, "all 2 are wrong"),
    (([1.0, np.nan], [True, False], [1.0], [True]), ValueError, "uncertainty is NaN"),
    ((*VALIDATION, [np.nan], [True]), ValueError, "uncertainty is NaN in 1 of 1 rows"),
    ((*VALIDATION, [1.0], [True] * 2), ValueError, "uncertainty must have the shape"),
]


def test_what_is_refused_is_named():
    for given_, kind, named in REFUSED:
        with pytest.raises(kind, match=named):
            metrics.calibration(*given_)
    with pytest.raises(OneClassError, match="all 2 are right"):
        rejection([1.0, 2.0], correct=[True, True])
    # The reported questions may have one class
    assert metrics.calibration(*VALIDATION, [1.0], [True]).brier == 0


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
