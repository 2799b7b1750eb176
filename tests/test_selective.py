import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib import selective
from pro_lib.metrics import OneClassError

# Few distinct values, so that ties within and between the classes are common.
QUESTIONS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def naive_rejection_area(order, correct, n_rejected):
    """Mean accuracy of those kept, the last of `order` rejected first."""
    kept = [[correct[row] for row in order[: len(order) - rejected]] for rejected in range(n_rejected)]
    return np.mean([np.mean(labels) for labels in kept])


def naive_random_area(correct, n_rejected):
    generator, ranks, areas = np.random.RandomState(42), np.arange(len(correct)), []
    for _ in range(1000):
        generator.shuffle(ranks)
        areas.append(naive_rejection_area(np.argsort(ranks), correct, n_rejected))
    return np.mean(areas)


def naive_prr(uncertainty, correct, max_rejection):
    n_rejected = int(max_rejection * len(correct))
    random = naive_random_area(correct, n_rejected)
    oracle = naive_rejection_area(np.argsort(~correct, kind="stable"), correct, n_rejected)
    found = naive_rejection_area(np.argsort(uncertainty), correct, n_rejected)
    return (found - random) / (oracle - random)


def test_prr_by_hand():
    # Right, wrong, right, wrong: accuracies of the first 1 to 4 are 1, 1/2, 2/3, 1/2, mean 2/3. The oracle has
    # right, right, wrong, wrong: 1, 1, 2/3, 1/2, mean 19/24. Random is about 1/2.
    rows = [1.0, 2.0, 3.0, 4.0], [True, False, True, False]
    random = naive_random_area(rows[1], 4)
    assert random == pytest.approx(1 / 2, abs=0.01)
    assert selective.prr(*rows) == pytest.approx((2 / 3 - random) / (19 / 24 - random), abs=1e-14)
    # Rejecting 0 and 1 only: 1/2 and 2/3, as the oracle.
    assert selective.prr(*rows, max_rejection=0.5) == 1.0


@pytest.mark.parametrize(("n", "max_rejection"), [(9, 1.0), (40, 0.5), (33, 0.3)])
def test_prr_is_that_of_rejecting_one_by_one(n, max_rejection):
    rng = np.random.default_rng(n)
    uncertainty, correct = rng.normal(size=n), rng.random(n) < 0.6
    expected = naive_prr(uncertainty, correct, max_rejection)
    assert selective.prr(uncertainty, correct, max_rejection=max_rejection) == pytest.approx(expected, abs=1e-12)


def test_prr_of_the_best_and_of_no_information():
    correct = np.arange(50) % 3 == 0
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert selective.prr(~correct, correct) == 1.0
    assert selective.prr(np.zeros(50), correct) == pytest.approx(0, abs=0.02)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_ties_count_with_the_mean_over_their_orders():
    uncertainty, correct = np.array([1.0, 2.0, 2.0, 2.0, 3.0]), np.array([True, True, False, False, True])
    orders = [[0, *tie, 4] for tie in itertools.permutations([1, 2, 3])]
    expected = np.mean([naive_rejection_area(order, correct, 5) for order in orders])
    assert selective.auarc(uncertainty, correct) == pytest.approx(expected, abs=1e-15)
    shuffled = [3, 1, 4, 2, 0]
    assert selective.auarc(uncertainty[shuffled], correct[shuffled]) == pytest.approx(expected, abs=1e-15)


def test_accuracy_coverage_by_hand():
    table = selective.accuracy_coverage([3.0, 1.0, np.inf, 1.0], [True, True, False, False])
    expected = pd.DataFrame(
        {
            "n_answered": [1, 2, 3, 4],
            "coverage": [0.25, 0.5, 0.75, 1.0],
            "threshold": [1.0, 1.0, 3.0, np.inf],
            "accuracy": [0.5, 0.5, 2 / 3, 0.5],  # one of the two that tie is right
        }
    )
    pd.testing.assert_frame_equal(table, expected)
    assert selective.accuracy_coverage([1.0, 2.0], [False, False])["accuracy"].tolist() == [0.0, 0.0]  # one class


def test_rejection_holds_prr_and_auarc_of_each_method():
    rng = np.random.default_rng(0)
    correct = rng.random(60) < 0.4
    uncertainties = pd.DataFrame(rng.normal(size=(60, 3)).round(1), columns=["PRO", "NLL", "SE"])  # rounded: ties
    table = selective.rejection(uncertainties, correct, max_rejection=0.5)
    assert table["method"].tolist() == ["PRO", "NLL", "SE"]
    assert table["prr"].tolist() == [selective.prr(uncertainties[m], correct, max_rejection=0.5) for m in uncertainties]
    assert table["auarc"].tolist() == [selective.auarc(uncertainties[m], correct) for m in uncertainties]


def test_calibration_by_hand():
    # Right, wrong, right, wrong as uncertainty grows: the middle two pool to 1/2, so 1 -> 1, 2 to 3 -> 1/2, 4 -> 0.
    # On the others 1, 2.5, 4 and 5 (beyond: as 4) have 1, 1/2, 0, 0. Brier: (0 + 1/4 + 0 + 1) / 4.
    # Lower bin: confidence 0, accuracy 1/2; upper: 3/4 and 1. ECE: (1/2 + 1/4) / 2.
    found = selective.calibration(
        [1.0, 2.0, 3.0, 4.0], [True, False, True, False], [1.0, 2.5, 4.0, 5.0], [True, True, False, True], n_bins=2
    )
    assert found.probability.tolist() == [1, 0.5, 0, 0]
    assert found.brier == 0.3125
    assert found.ece == 0.375
    expected = {"n": [2, 2], "low": [0, 0.5], "high": [0, 1], "confidence": [0, 0.75], "accuracy": [0.5, 1]}
    # Wilson with z = 1.96 and n = 2, z^2 = 3.8415: centre (k + z^2/2) / (n + z^2) = 1/2 for one right of two, half
    # width z sqrt(1/2 + z^2/4) / (n + z^2) = 0.4055; for two right of two from n / (n + z^2) = 0.3424 to 1.
    expected |= {"accuracy_low": [0.0945, 0.3424], "accuracy_high": [0.9055, 1.0]}
    table = pd.DataFrame(expected).astype(dict.fromkeys([*expected][1:], float))
    pd.testing.assert_frame_equal(found.table, table, rtol=0, atol=1e-4)


def test_a_bin_weighs_what_it_holds_and_infinity_is_the_largest_of_validation():
    # The fit is 1 below and 0 above; three questions have 1 and all are wrong, one has 0 and is wrong: (3 + 0) / 4.
    found = selective.calibration([1.0, 2.0], [True, False], [1.0, 1.0, -np.inf, np.inf], [False] * 4)
    assert found.table["n"].tolist() == [1, 3]
    assert found.ece == 0.75
    found = selective.calibration([1.0, np.inf, 3.0], [True, False, False], [np.inf, -np.inf, 3.0], [True] * 3)
    assert found.probability.tolist() == [0, 1, 0]


def naive_isotonic(uncertainty, correct):
    """The max-min formula of isotonic regression on distinct values of minus the uncertainty, ascending."""
    values = np.unique(-uncertainty)
    pools = [[correct[-uncertainty == v] for v in values[a:]] for a in range(len(values))]
    return {
        values[i]: max(
            min(np.concatenate(pools[a][: b - a + 1]).mean() for b in range(i, len(values))) for a in range(i + 1)
        )
        for i in range(len(values))
    }


@given(QUESTIONS)
def test_calibration_fits_isotonic_regression(rows):
    uncertainty, correct = np.array([u for u, _ in rows], dtype=float), np.array([c for _, c in rows])
    expected = naive_isotonic(uncertainty, correct)
    found = selective.calibration(uncertainty, correct, uncertainty, correct)
    np.testing.assert_allclose(found.probability, [expected[-u] for u in uncertainty], rtol=0, atol=1e-12)
    assert found.ece == pytest.approx(0, abs=1e-12)  # each level of the fit is the accuracy of its pool


def test_bins_hold_equal_numbers_and_ties_are_not_split():
    rng = np.random.default_rng(0)
    probability, correct = rng.random(53), rng.random(53) < 0.5
    table = selective._reliability(probability, correct, 5)
    assert sorted(table["n"]) == [10, 10, 11, 11, 11]
    parts = np.split(np.argsort(probability), np.cumsum(table["n"])[:-1])
    np.testing.assert_allclose(table["accuracy"], [correct[part].mean() for part in parts])
    np.testing.assert_allclose(table["confidence"], [probability[part].mean() for part in parts])
    halves = selective._reliability(np.array([0.1] * 6 + [0.2, 0.3, 0.4, 0.5]), np.arange(10) % 2 == 0, 2)
    assert halves["n"].tolist() == [6, 4]  # the middle of the six lies in the lower half
    tied = selective._reliability(np.array([0.2] * 7 + [0.9] * 3), np.arange(10) % 2 == 0, 10)
    assert tied["n"].tolist() == [7, 3]
    assert tied["low"].tolist() == tied["high"].tolist() == [0.2, 0.9]


GOOD = {"validation_uncertainty": [1.0, 2.0], "validation_correct": [True, False]}
GOOD |= {"uncertainty": [1.0], "correct": [True]}  # one class to report on is no obstacle


@pytest.mark.parametrize(
    ("call", "kind", "named"),
    [
        ({"validation_correct": [False, False]}, OneClassError, "all 2 are wrong"),
        ({"validation_uncertainty": [1.0, np.nan]}, ValueError, "validation_uncertainty is NaN in 1 of 2 rows"),
        ({"uncertainty": [np.nan]}, ValueError, "^uncertainty is NaN in 1 of 1 rows"),
        ({"validation_correct": [True]}, ValueError, "validation_uncertainty has 2 rows, but validation_correct 1"),
        ({"validation_uncertainty": [np.inf, -np.inf]}, ValueError, "finite validation_uncertainty"),
        ({"uncertainty": [], "correct": np.array([], dtype=bool)}, ValueError, "at least one question"),
        ({"n_bins": 0}, ValueError, "n_bins"),
        (lambda: selective.prr([1.0, 2.0], [True, True]), OneClassError, "all 2 are right"),
        (lambda: selective.auarc([], np.array([], dtype=bool)), ValueError, "at least one question"),
        *(
            (lambda m=m: selective.prr([1.0, 2.0, 3.0], [True, False, True], max_rejection=m), ValueError, "max_reject")
            for m in (0.0, 0.5, 1.5, -1.0)
        ),
    ],
)
def test_what_is_refused_is_named(call, kind, named):
    with pytest.raises(kind, match=named):
        call() if callable(call) else selective.calibration(**GOOD | call)
    assert selective.calibration(**GOOD).brier == 0
