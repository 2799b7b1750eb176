"""Sets that contain a right answer: worked by hand, against counting, and how often they miss."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pro_lib.promises import AnswerSets, answer_sets, miss_rate

KNOWN = st.one_of(st.just(0.0), st.sampled_from([0.05, 0.3, 0.3, 0.9]), st.floats(0, 1))
RIGHT = st.lists(KNOWN, min_size=1, max_size=60)
PERCENT = st.integers(1, 99)


def test_answer_sets_by_hand():
    # Nine questions, so 10 δ: at δ = 0.3 the third smallest, at 0.2 the second, which is censored.
    right = [0.9, 0.8, 0.004, 0.7, 0.6, 0.0, 0.5, 0.4, 0.1]
    third = answer_sets(right, delta=0.3, search_alpha=0.05)
    assert third == AnswerSets(0.3, 0.1, 9, 2)
    assert third.sentence().startswith("Take every answer with p ≥ 0.1: the set is without a right one")
    log_probs = np.log([[0.6, 0.1, 0.09], [0.01, np.nan, np.nan]])
    assert third.holds(log_probs).tolist() == [[True, True, False], [False] * 3]
    second = answer_sets(right, delta=0.2, search_alpha=0.05)
    assert second.tau is None
    assert not second.holds(np.log([[0.99]])).any()
    assert second.sentence().startswith("No set can be issued for δ = 0.2 (the search found no right answer to 2 of 9")
    assert answer_sets([0.9] * 9, delta=0.09, search_alpha=0.05).tau is None  # the 0th smallest
    assert answer_sets([0.9] * 9, delta=0.1, search_alpha=0.05).tau == 0.9
    # 0.29 of 100 are 29, though the product of the two is a little less.
    assert answer_sets(np.arange(1, 100) / 100, delta=0.29, search_alpha=0.05).tau == 0.29
    assert answer_sets([], delta=0.5, search_alpha=0.05).tau is None


@given(PERCENT, RIGHT)
def test_tau_is_the_value_in_its_place(percent, right):
    found = answer_sets(right, delta=percent / 100, search_alpha=0.05)
    place = int(Fraction(percent, 100) * (len(right) + 1))
    ordered = sorted(p if p >= 0.05 else 0.0 for p in right)
    expected = ordered[place - 1] if place else 0.0
    assert found.tau == (expected or None)
    assert found.n_censored == sum(not p >= 0.05 for p in right)


@given(PERCENT, RIGHT)
def test_one_of_the_questions_misses_as_often_as_is_promised_at_most(percent, values):
    # Each question in turn is asked, and the others are validation: all orders of exchangeable questions, counted.
    missed = 0
    for number, asked in enumerate(values):
        sets = answer_sets(values[:number] + values[number + 1 :], delta=percent / 100, search_alpha=0.05)
        missed += sets.tau is not None and not asked >= sets.tau
    assert Fraction(missed, len(values)) <= Fraction(percent, 100)


def test_an_answer_at_tau_itself_is_in_the_set():
    log_probs = np.log(np.random.default_rng(0).random((500, 1)))
    probabilities = np.exp(log_probs[:, 0])
    for tau in probabilities:
        sets = AnswerSets(0.1, float(tau), 1, 0)
        assert (sets.holds(log_probs)[:, 0] == (probabilities >= tau)).all()


@given(RIGHT, st.sampled_from([0.05, 0.3, 0.5, 1.0]), st.sampled_from([0.9, 0.95]))
def test_the_limit_of_the_miss_rate_is_clopper_and_pearsons(right, alpha, confidence):
    share, limit = miss_rate(right, alpha=alpha, search_alpha=0.05, confidence=confidence)
    missed = sum(not p >= alpha for p in right)
    test = binomtest(missed, len(right), alternative="less")
    assert share == missed / len(right)
    assert limit == pytest.approx(test.proportion_ci(confidence, "exact").high, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "bad", "named"),
    [
        *((answer_sets, {"delta": delta}, "delta=") for delta in (0, 1.0, np.nan)),
        *((answer_sets, {"right": right}, "right") for right in ([[0.5]], [-0.7], [1.1], [np.inf], [np.nan])),
        *((miss_rate, bad, "must be at least search_alpha") for bad in ({"alpha": 0.01}, {"right": []})),
    ],
)
def test_what_is_refused_is_named(call, bad, named):
    good = {"right": [0.5], "search_alpha": 0.1} | ({"delta": 0.1} if call is answer_sets else {"alpha": 0.3})
    with pytest.raises(ValueError, match=named):
        call(**good | bad)
