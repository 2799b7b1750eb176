"""Guarantees on accuracy, and answer sets: worked values, naive counting and failure rates."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pro_lib.evaluation.guarantees import STARTS, Guarantee, guarantee, miss_rate, set_threshold

TARGETS = st.sampled_from([0.3, 0.5, 0.7, 0.8, 0.9])


def questions(seed, n, levels, ends=0.05):
    """Scores with ties and some infinite, and labels that follow them."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, n) / levels
    correct = rng.random(n) < np.clip(1.2 - scores, 0, 1)
    scores[rng.random(n) < ends] = rng.choice([np.inf, -np.inf])
    return scores, correct


JUDGED = st.builds(
    questions, st.integers(0, 9999), st.integers(1, 250), st.sampled_from([1, 3, 10, 1000])
)


def steps_of(uncertainty, correct, others, *, target):
    """Return, for each threshold, the number of scores below it and the p-value of its test."""
    n, ordered = len(others), [*sorted(others), np.inf]
    for t in sorted({ordered[percent * n // 100] for percent in range(1, 101)}):
        below = [right for value, right in zip(uncertainty, correct, strict=True) if value < t]
        p_value = binomtest(sum(below), len(below), target, "greater").pvalue if below else 1.0
        yield t, sum(other < t for other in others), p_value


def naive(uncertainty, correct, others, *, target, delta):
    """The largest threshold rejected, each with what the ones before it hand on."""
    steps, largest = list(steps_of(uncertainty, correct, others, target=target)), None
    starts = []
    for percent in STARTS:
        enough = [below >= percent * len(others) // 100 for _, below, _ in steps]
        starts.append(enough.index(True) if True in enough else len(steps) - 1)
    level = 0.0
    for place, (t, _, p_value) in enumerate(steps):
        level += delta / len(STARTS) * starts.count(place)
        if level > 0 and p_value <= level:
            largest = t
        else:
            level = 0.0
    return largest


def test_a_guarantee_by_hand():
    # 100 questions, 1 to 100; those up to 60 are right, and none above. Half of them are to be
    # right: of the first 30 all are, 2 ** -30, and of all, 60 of 100: P(Bin(100, 1/2) >= 60) =
    # 0.0284 <= 0.05.
    uncertainty = np.arange(1.0, 101)
    every = guarantee(uncertainty, uncertainty <= 60, target=0.5)
    assert every == Guarantee(0.5, 0.95, np.inf, 60 + 40, 60, 100)
    assert every.sentence().startswith("Answer every question: at least 50 % right")
    # At 0.6: below 83 are 60 of 82 right, 0.0089, and below 87, 60 of 86: 0.039; below 88, 60 of
    # 87: 0.053.
    some = guarantee(uncertainty, uncertainty <= 60, target=0.6)
    assert (some.threshold, some.n_answered, some.n_right) == (87, 86, 60)
    assert some.sentence().startswith("Answer when the score is below 87: at least 60 % right")


def test_what_no_sample_of_that_size_can_show_is_not_guaranteed():
    # All are right, so each step is: of n, 0.9 ** n. 70 % of 62 are 43, with 0.0108 not below 0.01;
    # then 0.05 / 5 + … The start at 70 % of 63, 44 of 44, has 0.0097.
    nothing, all_ = (guarantee(np.arange(float(n)), np.full(n, True), target=0.9) for n in (62, 63))
    assert (nothing.threshold, all_.threshold, all_.n_answered) == (None, np.inf, 63)
    assert not nothing.answers([-np.inf, 0.0, np.nan]).any()
    assert guarantee([], np.array([], bool), target=0.5).threshold is None
    assert guarantee([0.0], [True], target=0.5, unlabelled=[]).threshold is None


@given(JUDGED, st.none() | JUDGED, TARGETS, st.sampled_from([0.5, 0.8, 0.95]))
def test_a_guarantee_is_that_of_the_naive_procedure(given_, unlabelled, target, confidence):
    (uncertainty, correct), delta = given_, 1 - confidence
    others = unlabelled and unlabelled[0]
    result = guarantee(
        uncertainty, correct, target=target, confidence=confidence, unlabelled=others
    )
    others = uncertainty if others is None else others
    # At a p-value that equals its level the order of sums decides; none is that near.
    of_steps = [p for _, _, p in steps_of(uncertainty, correct, others, target=target)]
    assume(min(abs(p - delta * share / 5) for p in of_steps for share in range(1, 6)) > 1e-9)
    assert result.threshold == naive(uncertainty, correct, others, target=target, delta=delta)
    answered = result.answers(uncertainty)
    assert (result.n_answered, result.n_right) == (answered.sum(), correct[answered].sum())
    assert answered.tolist() == [
        result.threshold is not None and value < result.threshold for value in uncertainty
    ]


KNOWN = st.one_of(st.just(0.0), st.sampled_from([0.05, 0.3, 0.3, 0.9]), st.floats(0, 1))
RIGHT = st.lists(KNOWN, min_size=1, max_size=60)
PERCENT = st.integers(1, 99)


@given(PERCENT, RIGHT)
@example(29, [number / 100 for number in range(1, 100)])  # 0.29 times 100 is a little less than 29
@example(50, [])
def test_tau_is_the_value_in_its_place(percent, right):
    tau = set_threshold(right, delta=percent / 100, search_alpha=0.05)
    place = int(Fraction(percent, 100) * (len(right) + 1))
    ordered = sorted(p if p >= 0.05 else 0.0 for p in right)
    expected = ordered[place - 1] if place else 0.0
    assert tau == (expected or None)


@given(PERCENT, RIGHT)
def test_one_of_the_questions_misses_as_often_as_is_guaranteed_at_most(percent, values):
    # Each question in turn is asked, and the others are validation: all orders of exchangeable
    # questions, counted.
    misses = 0
    for number, question in enumerate(values):
        tau = set_threshold(
            values[:number] + values[number + 1 :], delta=percent / 100, search_alpha=0.05
        )
        misses += tau is not None and not question >= tau
    assert Fraction(misses, len(values)) <= Fraction(percent, 100)


@given(RIGHT, st.sampled_from([0.05, 0.3, 0.5, 1.0]), st.sampled_from([0.9, 0.95]))
def test_the_limit_of_the_miss_rate_is_clopper_and_pearsons(right, alpha, confidence):
    share, limit = miss_rate(right, alpha=alpha, search_alpha=0.05, confidence=confidence)
    misses = sum(not p >= alpha for p in right)
    test = binomtest(misses, len(right), alternative="less")
    assert share == misses / len(right)
    assert limit == pytest.approx(test.proportion_ci(confidence, "exact").high, abs=1e-12)


GOOD = {
    guarantee: {"uncertainty": np.arange(3.0), "correct": np.full(3, True), "target": 0.8},
    set_threshold: {"right": [0.5], "search_alpha": 0.1, "delta": 0.1},
    miss_rate: {"right": [0.5], "search_alpha": 0.1, "alpha": 0.3},
}


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        (guarantee, "target", 0.0),
        (guarantee, "confidence", 1.0),
        (set_threshold, "delta", 1.5),
        (miss_rate, "confidence", np.nan),
        (guarantee, "uncertainty", [0, np.nan, 1]),
        (guarantee, "correct", [1, 0, 2]),
        (guarantee, "unlabelled", [np.nan]),
        (set_threshold, "right", [[0.5]]),
        (set_threshold, "right", [-0.7]),
        (set_threshold, "right", [1.1]),
        (miss_rate, "alpha", 0.01),  # below search_alpha
        (miss_rate, "right", []),
    ],
)
def test_what_is_refused_is_named(call, name, value):
    with pytest.raises(ValueError, match=f"^{name}"):
        call(**GOOD[call] | {name: value})
