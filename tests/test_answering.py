"""Promises on accuracy: worked by hand, against a naive procedure, and how often they are false."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest

from pro_lib.promises import STARTS, Promise, promise

TARGETS = st.sampled_from([0.3, 0.5, 0.7, 0.8, 0.9])


def questions(seed, n, levels, ends=0.05):
    """Scores with ties and some infinite, and labels that follow them."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, n) / levels
    correct = rng.random(n) < np.clip(1.2 - scores, 0, 1)
    scores[rng.random(n) < ends] = rng.choice([np.inf, -np.inf])
    return scores, correct


JUDGED = st.builds(questions, st.integers(0, 9999), st.integers(1, 250), st.sampled_from([1, 3, 10, 1000]))


def steps_of(uncertainty, correct, others, *, target):
    """Each threshold in its place: how many lie below it, and the test of "its accuracy falls below the target"."""
    n, ordered = len(others), [*sorted(others), np.inf]
    for t in sorted({ordered[percent * n // 100] for percent in range(1, 101)}):
        below = [right for value, right in zip(uncertainty, correct, strict=True) if value < t]
        p_value = binomtest(sum(below), len(below), target, "greater").pvalue if below else 1.0
        yield t, sum(other < t for other in others), p_value


def naive(uncertainty, correct, others, *, target, delta, fallback):
    """The largest threshold rejected: by walks from each start on their own, or each with what the others hand on."""
    steps, rejected = list(steps_of(uncertainty, correct, others, target=target)), []
    starts = [
        next((place for place, (_, below, _) in enumerate(steps) if below >= c * len(others) // 100), len(steps) - 1)
        for c in STARTS
    ]
    if not fallback:
        for start in starts:
            for t, _, p_value in steps[start:]:
                if p_value > delta / len(STARTS):
                    break
                rejected.append(t)
        return max(rejected, default=None)
    level = 0.0
    for place, (t, _, p_value) in enumerate(steps):
        level += delta / len(STARTS) * starts.count(place)
        if level > 0 and p_value <= level:
            rejected.append(t)
        else:
            level = 0.0
    return max(rejected, default=None)


def test_a_promise_by_hand():
    # 100 questions, 1 to 100; those up to 60 are right, and none above. Half of them are to be right. Of the first 30
    # all are: 2 ** -30. The walk goes on to where no part of 0.05 is enough: below 89 are 60 of 88 right,
    # P(Bin(88, 1/2) >= 60) = 0.0004; below 100, 60 of 99: 0.022 <= 0.05; and of all, 60 of 100: 0.0284 <= 0.05.
    uncertainty = np.arange(1.0, 101)
    made = promise(uncertainty, uncertainty <= 60, target=0.5)
    assert made == Promise(0.5, 0.95, np.inf, 60 + 40, 60, 100)
    assert made.sentence().startswith("Answer every question: at least 50 % right with 95 % confidence")
    # At 0.6: below 83 are 60 of 82 right, 0.0089, and below 87, 60 of 86: 0.039; below 88, 60 of 87: 0.053.
    made = promise(uncertainty, uncertainty <= 60, target=0.6)
    assert (made.threshold, made.n_answered, made.n_right) == (87, 86, 60)
    assert binomtest(60, 86, 0.6, "greater").pvalue <= 0.05 < binomtest(60, 87, 0.6, "greater").pvalue
    assert made.sentence().startswith("Answer when the score is below 87: at least 60 % right")


def test_what_no_sample_of_that_size_can_show_is_not_promised():
    # All are right, so each step is: of n, 0.9 ** n. 70 % of 62 are 43, with 0.0108 not below 0.01; then 0.05 / 5 + …
    # The start at 70 % of 63, 44 of 44, has 0.0097.
    for n, expected in ((62, None), (63, np.inf)):
        made = promise(np.arange(float(n)), np.full(n, True), target=0.9)
        assert made.threshold == expected
    assert made.n_answered == 63
    nothing = promise(np.arange(62.0), np.full(62, True), target=0.9)
    assert nothing.sentence().startswith("Nothing can be promised: 62 validation questions")
    assert not nothing.answers([-np.inf, 0.0, np.nan]).any()


@given(JUDGED, TARGETS, st.sampled_from([0.5, 0.8, 0.95]))
def test_a_promise_is_that_of_the_naive_procedure(given_, target, confidence):
    uncertainty, correct = given_
    delta = 1 - confidence
    made = promise(uncertainty, correct, target=target, confidence=confidence)
    # At a p-value that equals its level the order of sums decides; none is that near.
    of_steps = [p for _, _, p in steps_of(uncertainty, correct, uncertainty, target=target)]
    assume(min(abs(p - delta * share / 5) for p in of_steps for share in range(1, 6)) > 1e-9)
    assert made.threshold == naive(uncertainty, correct, uncertainty, target=target, delta=delta, fallback=True)
    answered = made.answers(uncertainty)
    assert (made.n_answered, made.n_right) == (answered.sum(), correct[answered].sum())
    assert answered.tolist() == [made.threshold is not None and value < made.threshold for value in uncertainty]
    walks = naive(uncertainty, correct, uncertainty, target=target, delta=delta, fallback=False)
    assert walks is None or walks <= made.threshold


@given(JUDGED, JUDGED, TARGETS)
def test_with_unlabelled_scores_thresholds_are_theirs(given_, unlabelled, target):
    (uncertainty, correct), (others, _) = given_, unlabelled
    made = promise(uncertainty, correct, target=target, unlabelled=others)
    assert made.threshold == naive(uncertainty, correct, others, target=target, delta=0.05, fallback=True)
    assert made.threshold in (None, np.inf, *others)


# Accuracies up to 0.1, 0.2, 0.4 and 1, and from where to where 0.7 of what lies below a threshold are right.
RISES_AND_FALLS, JUST_TOO_LOW = ((0.5, 1.0, 0.75, 0.35), (0.1 / 0.6, 0.16 / 0.35)), ((0.69,) * 4, (np.inf, -np.inf))


@pytest.mark.parametrize("unlabelled", [False, True], ids=["own percentiles", "unlabelled"])
@pytest.mark.parametrize("world", [RISES_AND_FALLS, JUST_TOO_LOW], ids=["rises and falls", "just too low"])
def test_a_promise_is_seldom_false(world, unlabelled):
    (accuracies, (low, high)), generator = world, np.random.default_rng(1)
    made = []
    for _ in range(1500):
        u = generator.random(200)
        correct = generator.random(200) < np.select([u < 0.1, u < 0.2, u < 0.4], accuracies[:3], accuracies[3])
        others = generator.random(300) if unlabelled else None
        made.append(promise(u, correct, target=0.7, unlabelled=others).threshold)
    given_out = [min(t, 1) for t in made if t is not None]
    assert len(given_out) > 15
    false = sum(not low <= t <= high for t in given_out)
    assert false <= 1500 * 0.05 + 2 * np.sqrt(1500 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        *(({"target": target}, f"target={target}") for target in (1.0, np.nan)),
        ({"confidence": 0}, "confidence=0"),
        ({"uncertainty": [0, np.nan, 1]}, "uncertainty is NaN in 1 of 3 rows, first in row 1"),
        ({"correct": [1, 0, 1]}, "correct"),
        ({"unlabelled": [np.nan]}, "unlabelled"),
    ],
)
def test_what_is_refused_is_named(bad, named):
    with pytest.raises(ValueError, match=named):
        promise(**{"uncertainty": np.arange(3.0), "correct": np.full(3, True), "target": 0.8} | bad)
    assert promise(np.zeros(0), np.zeros(0, bool), target=0.5).threshold is None
    assert promise([0.0], [True], target=0.5, unlabelled=[]).threshold is None
