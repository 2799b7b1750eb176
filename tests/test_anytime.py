"""Limits that hold at every number of draws: against the definition, one bet after another, and by repetition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pro_lib.guarantees import anytime


def refused(shares, mean, *, confidence=0.95):
    """By the definition: whether bets on draws above the mean, or below it, ever won 2 / (1 - confidence)."""
    above = below = 1.0
    seen, squares, variance = [], 0.0, anytime._VARIANCE
    needed = 2 / (1 - confidence)
    for t, share in enumerate(shares, start=1):
        bet = math.sqrt(2 * math.log(needed) / (variance * t * math.log(t + 1)))
        above *= 1 + min(bet, anytime._RISK / mean) * (share - mean)
        below *= 1 - min(bet, anytime._RISK / (1 - mean)) * (share - mean)
        if max(above, below) >= needed:
            return True
        seen.append(share)
        squares += (share - (anytime._MEAN + sum(seen)) / (t + 1)) ** 2
        variance = (anytime._VARIANCE + squares) / (t + 1)
    return False


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    st.sampled_from([1.0, 7.5, 248.0]),
)
def test_limits_are_those_of_the_definition(shares, confidence, most):
    [low], [high] = anytime.limits(most * np.array([shares]), [most], confidence=confidence)
    for mean in np.linspace(0.005, 0.995, 60):
        if min(abs(mean - low / most), abs(mean - high / most)) > 1e-6:
            assert refused(shares, mean, confidence=confidence) == (not low < mean * most < high)


def test_more_draws_never_widen_and_rows_do_not_touch_each_other():
    draws = np.random.default_rng(0).beta(0.5, 8, size=(3, 60)) * 10
    lows, highs = zip(*(anytime.limits(draws[:, :n], [10, 20, 30]) for n in (0, 1, 7, 30, 60)), strict=True)
    assert (lows[0].tolist(), highs[0].tolist()) == ([0, 0, 0], [10, 20, 30])
    assert (np.diff(lows, axis=0) >= 0).all()
    assert (np.diff(highs, axis=0) <= 0).all()
    padded = np.where(np.arange(60) < 30, draws, np.nan)
    np.testing.assert_array_equal(anytime.limits(padded, [10, 20, 30]), [lows[3], highs[3]])
    np.testing.assert_array_equal(anytime.limits(draws[1:2], [20]), [lows[4][1:2], highs[4][1:2]])


def test_draws_that_can_be_nothing_are_nothing_and_others_out_of_range_are_refused():
    assert [each.tolist() for each in anytime.limits([[0.0, 0.0]], [0.0])] == [[0.0], [0.0]]
    with pytest.raises(ValueError, match=r"draws must lie between 0 and the most they can be, not at 0\.5 above"):
        anytime.limits([[1.0, 2.5]], [2.0])
    with pytest.raises(ValueError, match="draws must lie between 0"):
        anytime.limits([[-1.0, 1.0]], [2.0])


def worst_moment(draws, mean):
    """Share of the rows whose limits, or whose Student's interval, are without the mean at any number of draws."""
    low, high = anytime.limits(draws, np.ones(len(draws)))
    n = np.arange(2, draws.shape[1] + 1)
    means = draws.cumsum(axis=1)[:, 1:] / n
    squares = (draws**2).cumsum(axis=1)[:, 1:] / n - means**2
    half = stats.t.ppf(0.975, n - 1) * np.sqrt(np.maximum(squares, 0) / (n - 1))
    return ((mean < low) | (mean > high)).mean(), (np.abs(means - mean) > half + 1e-12).any(axis=1).mean()


@pytest.mark.parametrize(("a", "b"), [(0.6, 20.0), (2.0, 2.0), (8.0, 0.5), (0.05, 2.0)])
def test_stopped_at_the_worst_moment_the_mean_is_inside(a, b, size):
    """1,000 seeds; more than 7.1 % (5 % and three binomial standard errors) would refuse the promise."""
    n = {"quick": 150, "all": 500, "trials": 2000}[size]
    draws = np.stack([np.random.default_rng([seed, 3]).beta(a, b, size=n) for seed in range(1000)])
    missed, by_student = worst_moment(draws, a / (a + b))
    assert missed <= 0.071
    assert by_student > 0.2
