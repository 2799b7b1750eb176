"""AUROC and its interval: by hand, and against sklearn and scipy."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from scipy.stats import t as student

from pro_lib import metrics
from pro_lib.metrics.roc import jackknifed_aurocs

# Few distinct values, so that ties within and between the classes are common.
QUESTIONS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40)
QUESTIONS = QUESTIONS.filter(lambda rows: len({label for _, label in rows}) == 2)
NAN = np.nan


@given(QUESTIONS)
def test_auroc_agrees_with_sklearn(rows):
    from sklearn.metrics import roc_auc_score  # takes a second

    values, correct = map(np.array, zip(*rows, strict=True))
    columns = np.column_stack([values, -values, np.zeros(len(rows)), np.arange(len(rows))])
    expected = [roc_auc_score(~correct, column) for column in columns.T]
    aurocs = metrics.auroc_intervals(columns, correct)[0]
    np.testing.assert_allclose(aurocs, expected, rtol=0, atol=1e-12)
    assert metrics.auroc(values, correct) == aurocs[0]


@pytest.mark.parametrize(
    "correct",
    [
        [False, True, True],
        [0, 1, 1],
        [0.0, 1.0, 1.0],
        pd.Series([False, True, True], dtype=object),
        pd.array([False, True, True], dtype="boolean"),
    ],
)
def test_labels_may_be_booleans_or_numbers_and_scores_infinite(correct):
    assert metrics.auroc([np.inf, 1.0, -np.inf], correct) == 1


BOTH = [True, False]


@pytest.mark.parametrize(
    ("values", "correct", "words"),
    [
        ([1.0, 2.0], [0, 2], "correct must be"),
        ([1.0, 2.0], [True, None], "correct must be"),
        ([1.0, 2.0], ["a", "b"], "correct must be"),
        ([1.0, 2.0], [[0], [1]], "correct must be"),
        ([1.0, 2.0], pd.array([True, None], "boolean"), "correct must be"),
        ([1.0, 2.0], np.ma.array(BOTH, mask=[0, 1]), "correct must be"),
        ([1.0, 2.0], [True, True], "all 2 are right"),
        ([1.0, 2.0], [False, False], "all 2 are wrong"),
        ([], np.array([], bool), "none are given"),
        ([1.0, NAN, NAN], [True, False, True], "2 of 3 rows, first in row 1"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), BOTH, "1 of 2 rows, first in row 1"),
        ([1.0, 2.0], [True] * 3, "uncertainty must have the shape"),
        ([[1.0], [2.0]], BOTH, "uncertainty must have the shape"),
    ],
)
def test_other_labels_and_scores_are_refused(values, correct, words):
    with pytest.raises(ValueError, match=words):
        metrics.auroc(values, correct)


# By case: the scores, whether answers are right, the reasons of questions, and the sentence.
LEFT_OUT = {
    "scores and a reference": (
        {"PRO": [1.0, NAN, 2.0, 3.0, 4.0], "SE": [1.0, NAN, NAN, 3.0, 4.0]},
        [True, False, True, None, False],
        "",
        "3 of 5 questions are left out (1, 2, 3): no reference (1), PRO is missing for 1, SE is "
        "missing for 2.",
    ),
    "a reason and a score": (
        {"NLL": [NAN, 1.0, 2.0], "X": [1.0, NAN, 2.0]},
        [True] * 3,
        ["cut", "", ""],
        "2 of 3 questions are left out (0, 1): cut (1), X is missing for 1.",
    ),
    "five": (
        {"NLL": [NAN] * 5 + [1.0]},
        [True] * 6,
        "",
        "5 of 6 questions are left out (0, 1, 2, 3, 4): NLL is missing for 5.",
    ),
    "six": (
        {"NLL": [NAN] * 6 + [1.0]},
        [True] * 7,
        "",
        "6 of 7 questions are left out (0, 1, 2, 3, 4, …): NLL is missing for 6.",
    ),
    "no answer and no reference": (
        {"NLL": [NAN, NAN, 1.0]},
        [None, None, True],
        ["failed", "no answer", ""],
        "2 of 3 questions are left out (0, 1): failed (1), no answer (1).",
    ),
}


@pytest.mark.parametrize(("scores", "correct", "reasons", "sentence"), LEFT_OUT.values())
def test_usable_says_why_questions_are_left_out(scores, correct, reasons, sentence):
    mask, words = metrics.usable(pd.DataFrame(scores), correct, reasons=reasons)
    assert words == sentence
    left_out = np.flatnonzero(~mask)[:5]
    assert ", ".join(map(str, left_out)) in sentence


@given(st.integers(1, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_scipys(counted):
    k, n = counted
    expected = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(metrics.wilson(k / n, n), expected, rtol=0, atol=1e-14)


def test_a_wilson_interval_is_exact_at_its_ends_and_missing_without_observations():
    low, high = metrics.wilson([0, 1, 0, 1, NAN], [7, 7, 0, 0, 0])
    assert (low[0], high[1]) == (0, 1)
    assert np.isnan([*low[2:], *high[2:]]).all()


def test_the_interval_of_an_auroc_by_hand():
    # Wrong 3, 2 lie above shares 1 and 3/4 of right 1, 2: a = 7/8, a (1 - a) = 7/64, s = 7/64 for
    # both classes. Squares about 7/8 are 2/64 = 1/32. Each class has the part (s² / 32 + 0.343) /
    # (s³ + 0.343) = 0.343374 / 0.344308 = 0.997286 of the most, so that 1/n = 0.997286 / 2 +
    # 0.997286 / 2, and Wilson's interval of 7/8 in 1.002721 is (0.875 + 1.915528 ± 1.959964
    # √(0.109375 / 1.002721 + 3.841459 / (4 · 1.005450))) / (1 + 3.831034).
    aurocs, low, high = metrics.auroc_intervals(
        [[3.0], [1.0], [2.0], [2.0]], [False, True, True, False]
    )
    assert aurocs.tolist() == [0.875]
    middle, half = (0.875 + 1.915528) / 4.831034, 1.959964 / 4.831034 * np.sqrt(0.109078 + 0.955159)
    np.testing.assert_allclose([low[0], high[0]], [middle - half, middle + half], rtol=0, atol=2e-5)
    # One wrong answer above nine right ones: 1/n = 1/9 + 1/1. Wilson's lower end of 1 in 0.9 is 0.9
    # / (0.9 + 3.8415).
    _, low, high = metrics.auroc_intervals(
        np.column_stack([np.arange(10), np.zeros(10)]), np.arange(10) < 9
    )
    assert (low[0], high[0]) == (pytest.approx(0.9 / (0.9 + 3.841459), abs=1e-6), 1)
    assert low[1] < 0.2  # a constant has an interval too


@given(QUESTIONS)
def test_the_interval_holds_the_auroc_and_turns_with_the_score(rows):
    values = np.array([[value, -value] for value, _ in rows], dtype=float)
    aurocs, low, high = metrics.auroc_intervals(values, np.array([label for _, label in rows]))
    assert (np.diff([[0, 0], low, aurocs, high, [1, 1]], axis=0) >= -1e-12).all()
    np.testing.assert_allclose([low[1], high[1]], [1 - high[0], 1 - low[0]], rtol=0, atol=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.booleans(), st.integers(0, 3)), min_size=8, max_size=30
    )
)
def test_the_jackknife_is_the_auroc_without_each_cluster(rows):
    values, correct, codes = map(np.array, zip(*rows, strict=True))
    correct[:2] = [True, False]
    codes[:4] = range(4)
    columns = np.column_stack([values, -values]).astype(float)
    jackknifed = jackknifed_aurocs(columns, correct, codes)
    for cluster in range(4):
        left = codes != cluster
        if correct[left].all() or not correct[left].any():
            assert np.isnan(jackknifed[:, cluster]).all()
        else:
            expected = metrics.auroc_intervals(columns[left], correct[left])[0]
            np.testing.assert_allclose(jackknifed[:, cluster], expected, rtol=0, atol=1e-12)


def n_of(low, high, area):
    """Return the n of a Wilson interval from its ends: its middle is (a n + z²/2) / (n + z²)."""
    square = norm.isf(0.025) ** 2
    middle = (low + high) / 2
    return square * (middle - 0.5) / (area - middle)


# Six clusters of a right and a wrong answer. The wrong answer wins in all clusters but some.
# One lost: a = (5/6)² + 2 (5/6) (1/6) / 2 = 5/6. Without this cluster it is 1, without one of the
# others 4/5. V = 5/6 ((1/6)² + 5 (1/30)²) = 1/36. The effective number of clusters is
# (1/30)² / ((1/6)⁴ + 5 (1/30)⁴) = 10/7, so that Student's t has 15/7 degrees of freedom.
# Two lost: a = 2/3, V = 5/6 (4 (1/15)² + 2 (2/15)²) = 2/45. The effective number of clusters is
# 12² / (4 + 2 · 4²) = 4, and 5 is less than 1.5 · 4.
# In both, 1/n = V / (a (1 - a)) = 1/5, larger than the one of questions in the first case.
@pytest.mark.parametrize(("n_lost", "area", "freedom"), [(1, 5 / 6, 15 / 7), (2, 2 / 3, 5)])
def test_an_interval_by_cluster_by_hand(n_lost, area, freedom):
    values = np.array([1.0, 0.0] * n_lost + [0.0, 1.0] * (6 - n_lost))[:, None]
    correct = np.array([True, False] * 6)
    clusters = np.repeat(list("abcdef"), 2)
    by_question, by_cluster = (
        metrics.auroc_intervals(values, correct, clusters=names) for names in (None, clusters)
    )
    inverse_n = max(1 / n_of(*np.ravel(by_question[1:]), area), 0.2)
    inflation = (student.isf(0.025, freedom) / norm.isf(0.025)) ** 2
    assert 1 / n_of(*np.ravel(by_cluster[1:]), area) == pytest.approx(inverse_n * inflation)


def test_answers_of_one_cluster_count_as_one_answer_by_hand():
    # A constant score: placements have no variance, and no cluster changes the AUROC of 1/2. Each
    # class has ten answers, so that (n - 1) a (1 - a) = 9/4, in five clusters of two answers, so
    # that the maximum counts 5 · 2² / 10 = 2 times.
    correct = np.tile([True, False], 10)
    clusters = np.repeat(range(5), 4)
    _, low, high = metrics.auroc_intervals(np.zeros((20, 1)), correct, clusters=clusters)
    inverse_n = 2 * (2 * 0.343) / ((9 / 4) ** 3 + 0.343) / 10
    inflation = (student.isf(0.025, 4) / norm.isf(0.025)) ** 2
    expected = metrics.wilson([0.5], 1 / (inverse_n * inflation))
    np.testing.assert_allclose([low, high], expected, rtol=1e-9)


def test_fewer_than_five_clusters_have_no_interval():
    """The AUROC is one with and without each cluster: the jackknife has no variance."""
    values, correct = np.arange(20.0)[:, None], np.arange(20) < 10
    for n_clusters, is_shown in ((4, False), (5, True)):
        clusters = np.arange(20) % n_clusters
        area, low, high = metrics.auroc_intervals(values, correct, clusters=clusters)
        assert area[0] == 1
        assert (0 < low[0] < high[0] == 1) == is_shown


@given(QUESTIONS)
def test_the_mean_placement_of_each_class_is_the_auroc(questions):
    scores, correct = zip(*questions, strict=True)
    shares = metrics.placements(scores, correct)
    labels = np.array(correct)
    area = metrics.auroc(scores, correct)
    np.testing.assert_allclose([shares[labels].mean(), shares[~labels].mean()], area, atol=1e-12)


def test_the_squares_of_influences_sum_to_delongs_variance():
    # Wrong answers have the scores 3 and 1, right ones 2, 0 and 0: the wrong ones win 3 and 2 of 3
    # pairs, and the right ones lose 1, 2 and 2 of 2 pairs.
    correct = np.array([False, False, True, True, True])
    shares = metrics.placements([3.0, 1.0, 2.0, 0.0, 0.0], correct)
    variance = np.var([1, 2 / 3], ddof=1) / 2 + np.var([1 / 2, 1, 1], ddof=1) / 3
    error = metrics.influence_error(metrics.influence(shares, correct))
    assert error**2 == pytest.approx(variance)
