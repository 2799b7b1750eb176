"""AUROC and its interval: by hand, against sklearn and scipy, and how often it covers."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from pro_lib import metrics
from pro_lib.metrics.roc import jackknifed_aurocs

# Few distinct values, so that ties within and between the classes are common.
QUESTIONS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40)
QUESTIONS = QUESTIONS.filter(lambda rows: len({label for _, label in rows}) == 2)
NO_LABELS = (
    [0, 2],
    [0.9, 0.1],
    [0, np.nan],
    [True, None],
    ["a", "b"],
    [[0], [1]],
    pd.array([True, None], "boolean"),
    np.ma.array([True, False], mask=[0, 1]),
)


@given(QUESTIONS)
def test_auroc_agrees_with_sklearn(rows):
    uncertainty, correct = map(np.array, zip(*rows, strict=True))
    columns = np.column_stack(
        [uncertainty, -uncertainty, np.zeros(len(rows)), np.arange(len(rows))]
    )
    expected = [roc_auc_score(~correct, column) for column in columns.T]
    aurocs = metrics.auroc_intervals(columns, correct)[0]
    np.testing.assert_allclose(aurocs, expected, rtol=0, atol=1e-12)
    assert metrics.auroc(uncertainty, correct) == aurocs[0]


LABELS = ([False, True, True], [0, 1, 1], [0.0, 1.0, 1.0])
TABLE_LABELS = (pd.Series(LABELS[0], dtype=object), pd.array(LABELS[0], dtype="boolean"))


@pytest.mark.parametrize("labels", [*LABELS, *TABLE_LABELS])
def test_labels_may_have_any_type_of_true_and_false(labels):
    assert metrics.auroc([np.inf, 1.0, -np.inf], labels) == 1.0


TWO = [1.0, 2.0]
BOTH = [True, False]
of_cluster = partial(metrics.auroc_intervals, clusters=["a"])
REFUSED = [
    (metrics.auroc, [1.0, np.nan, np.nan], [True, False, True], "2 of 3 rows, first in row 1"),
    (metrics.auroc, np.ma.array(TWO, mask=[0, 1]), BOTH, "1 of 2 rows, first in row 1"),
    (metrics.auroc_intervals, [[1.0], [np.nan]], BOTH, "1 of 2 rows, first in row 1"),
    (metrics.auroc, TWO, [True] * 3, r"uncertainty must have the shape \(3, A\)"),
    *((metrics.auroc, TWO, labels, "correct must be") for labels in NO_LABELS),
    (metrics.auroc, [[1.0], [2.0]], BOTH, "uncertainty must have"),
    (metrics.auroc_intervals, TWO, BOTH, "uncertainty must have"),
    (metrics.usable, pd.DataFrame({"PRO": TWO}), [True], "Length of values"),
    (of_cluster, [[1.0], [2.0]], BOTH, r"clusters must .*; got \(1,\), expected \(2,\)"),
]


def test_what_is_not_defined_is_an_error_that_names_it():
    for call, scores, labels, words in REFUSED:
        with pytest.raises(ValueError, match=words):
            call(scores, labels)
    one_class = {"all 2 are right": [True] * 2, "all 2 are wrong": [False] * 2}
    for words, labels in (one_class | {"none are given": np.array([], dtype=bool)}).items():
        with pytest.raises(metrics.OneClassError, match=words):
            metrics.auroc(TWO[: len(labels)], labels)


NAN = np.nan
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
    "many without a reason": (
        {"NLL": [NAN] * 7 + [1.0]},
        [True] * 8,
        "",
        "7 of 8 questions are left out (0, 1, 2, 3, 4, …): NLL is missing for 7.",
    ),
    "five": (
        {"NLL": [NAN] * 5 + [1.0]},
        [True] * 6,
        "",
        "5 of 6 questions are left out (0, 1, 2, 3, 4): NLL is missing for 5.",
    ),
    "no answer and no reference": (
        {"NLL": [NAN, NAN, 1.0]},
        [None, None, True],
        ["failed", "no answer", ""],
        "2 of 3 questions are left out (0, 1): failed (1), no answer (1).",
    ),
}


def test_usable_says_why_questions_are_left_out():
    for name, (scores, correct, reasons, sentence) in LEFT_OUT.items():
        table = pd.DataFrame(scores)
        mask, words = metrics.usable(table, np.array(correct, dtype=object), reasons=reasons)
        assert words == sentence, name
        assert mask.tolist() == (table.notna().all(axis=1) & pd.notna(correct)).tolist(), name


def test_usable_takes_a_hidden_verdict_as_missing():
    hidden = np.ma.array([True] * 4, mask=[0, 1, 0, 0])
    scores = pd.DataFrame({"PRO": [1.0, 2.0, 3.0, 4.0]})
    assert metrics.usable(scores, hidden)[0].tolist() == [True, False, True, True]


@given(st.integers(1, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_scipys_and_exact_at_its_ends(counted):
    k, n = counted
    expected = binomtest(k, n).proportion_ci(method="wilson")
    low, high = metrics.wilson([k / n, 0, 1, 0, np.nan], [n, n, n, 0, 0])
    np.testing.assert_allclose([low[0], high[0]], [expected.low, expected.high], rtol=0, atol=1e-14)
    assert (low[1], high[2]) == (0, 1)
    assert np.isnan([*low[3:], *high[3:]]).all()


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


def test_in_a_large_set_it_is_delongs_interval():
    rng = np.random.default_rng(3)
    correct = rng.random(200_000) < 0.4
    values = np.column_stack([rng.normal(size=200_000) - correct, np.zeros(200_000)])
    result = metrics.delong(values, correct, reference=1)
    aurocs, low, high = metrics.auroc_intervals(values, correct)
    expected = aurocs[0] + norm.ppf([0.025, 0.975]) * result.standard_error[0]
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("share", "auroc"), [(0.05, 0.6), (0.9, 0.8), (0.95, 0.97)])
def test_it_covers_where_few_answers_are_right_or_wrong(share, auroc):
    # 2,000 repetitions: 0.95 give or take 0.005. Percentile intervals cover 0.83 to 0.90 here.
    rng, correct = np.random.default_rng(8), np.arange(100) < 100 * share
    values = rng.normal(size=(100, 2000)) + norm.ppf(auroc) * np.sqrt(2) * ~correct[:, None]
    _, low, high = metrics.auroc_intervals(values, correct)
    assert ((low <= auroc) & (auroc <= high)).mean() >= 0.93


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


# If the wrong answer wins in five of six clusters, a = (5/6)² + 2 (5/6) (1/6) / 2 = 5/6. Without
# the odd cluster it is 1, without one of the others (4/5)² + (4/5) (1/5) = 4/5. V = 5/6 ((1/6)² +
# 5 (1/30)²) = 1/36. The effective number of clusters is (1/30)² / ((1/6)⁴ + 5 (1/30)⁴) = 10/7, and
# 1.5 times that are 15/7 degrees of freedom. If it wins in four, a = 2/3, V = 5/6 (4 (1/15)² +
# 2 (2/15)²) = 2/45 and the effective number is 12² / (4 + 2 · 4²) = 4; six clusters have at most 5
# degrees of freedom. In both cases, 1/n = V / (a (1 - a)) = 1/5.
@pytest.mark.parametrize(("n_won", "freedom", "left"), [(5, 15 / 7, [0.8, 1]), (4, 5, [0.6, 0.8])])
def test_an_interval_by_cluster_by_hand(n_won, freedom, left):
    """Six clusters of a right and a wrong answer, which wins in some of them."""
    values = np.array([0.0, 1.0] * n_won + [1.0, 0.0] * (6 - n_won))[:, None]
    correct = np.array([True, False] * 6)
    codes = np.repeat(range(6), 2)
    expected = np.repeat(left, [n_won, 6 - n_won])
    np.testing.assert_allclose(jackknifed_aurocs(values, correct, codes)[0], expected)
    inverse_n = []
    for clusters in (None, codes):
        _, [low], [high] = metrics.auroc_intervals(values, correct, clusters=clusters)
        inverse_n.append(1 / n_of(low, high, n_won / 6))
    by_question, by_cluster = inverse_n
    quantile = student.isf(0.025, freedom) / norm.isf(0.025)
    assert by_cluster == pytest.approx(max(by_question, 0.2) * quantile**2)


def test_an_auroc_of_one_has_an_interval_by_cluster_that_ends_at_one():
    """Without a cluster, the AUROC is one too, so that the jackknife has no variance."""
    values = np.tile([[0.25], [0.75]], (6, 1))
    clusters = np.repeat(list("abcdef"), 2)
    area, low, high = metrics.auroc_intervals(values, [True, False] * 6, clusters=clusters)
    assert (area, high) == (1.0, 1.0)
    assert 0 < low < 1


def test_fewer_than_five_clusters_have_no_interval():
    values, correct = np.arange(20.0)[:, None], np.arange(20) % 3 == 0
    for n_clusters, shown in ((4, False), (5, True)):
        _, low, _ = metrics.auroc_intervals(values, correct, clusters=np.arange(20) % n_clusters)
        assert np.isfinite(low[0]) == shown


def test_an_interval_by_cluster_covers_where_clusters_differ():
    """12 clusters of 20 questions, with means of their own in the score and in the share right."""
    rng = np.random.default_rng(12)

    def draw(n_clusters):
        clusters = np.repeat(np.arange(n_clusters), 20)
        effects = 1.5 * rng.normal(size=(2, n_clusters))[:, clusters]
        correct = rng.random(len(clusters)) < 1 / (1 + np.exp(effects[0]))
        return (rng.normal(size=len(correct)) - correct + effects[1])[:, None], correct, clusters

    truth = metrics.auroc_intervals(*draw(10_000)[:2])[0][0]
    covered = []
    for _ in range(200):
        values, correct, clusters = draw(12)
        ends = [
            metrics.auroc_intervals(values, correct, clusters=of)[1:] for of in (clusters, None)
        ]
        covered.append([low[0] <= truth <= high[0] for low, high in ends])
    by_cluster, by_question = np.mean(covered, axis=0)
    assert by_cluster >= 0.91  # 0.95 within three standard errors of 200 draws
    assert by_question < 0.8


@pytest.mark.parametrize(
    ("high", "verdict"), [(0.499, ", worse than chance"), (0.5, ""), (0.7, "")]
)
def test_an_auroc_whose_interval_lies_below_a_half_is_worse_than_chance(high, verdict):
    assert metrics.auroc_in_words(0.25, 0.125, high) == f"0.250 (0.125 to {high:.3f}{verdict})"
