"""Differences of AUROCs: intervals and tests by hand, coverage, power, and the page about them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from pro_lib import metrics
from pro_lib.metrics.differences import Moves

ROWS = st.lists(
    st.tuples(*[st.integers(-2, 2)] * 3, st.booleans(), st.integers(0, 6)), min_size=16, max_size=30
)
# 10 wrong and 20 right answers, all of which moved.
MOVES = Moves(
    difference=np.array([0.1]),
    sizes=(10, 20),
    variances=np.array([[0.0004], [0.0001]]),
    variance=np.array([0.00045]),
    third_moment=np.zeros(1),
    n_moved=np.array([[10.0], [20.0]]),
    share_up=np.array([0.5]),
    squares=np.array([0.3]),
)


def with_five_of_each(rows):
    *columns, correct, clusters = map(np.array, zip(*rows, strict=True))
    correct[:10] = [True, False] * 5
    clusters[:7] = range(7)
    return np.column_stack(columns).astype(float), correct, clusters


def naive_kernels(uncertainties, correct):
    """Compare every wrong answer with every right one: (A, n_wrong, n_right)."""
    wrong, right = uncertainties[~correct].T, uncertainties[correct].T
    return (wrong[:, :, None] > right[:, None]) + 0.5 * (wrong[:, :, None] == right[:, None])


@given(ROWS, st.integers(0, 2))
def test_the_variance_is_the_unbiased_one_of_all_pairs(rows, reference):
    uncertainties, correct, _ = with_five_of_each(rows)
    result = metrics.delong(uncertainties, correct, reference=reference)
    kernels = naive_kernels(uncertainties, correct)
    for column in {0, 1, 2} - {reference}:
        change = kernels[column] - kernels[reference]
        n_wrong, n_right = change.shape
        assert result.difference[column] == pytest.approx(change.mean(), abs=1e-12)
        of_wrong, of_right = change.mean(axis=1), change.mean(axis=0)
        plain = of_wrong.var(ddof=1) / n_wrong + of_right.var(ddof=1) / n_right
        residual = change - of_wrong[:, None] - of_right + change.mean()
        pair = (residual**2).sum() / (n_wrong - 1) / (n_right - 1) / change.size
        expected = np.sqrt(max(plain - pair, pair))
        assert result.standard_error[column] == pytest.approx(expected, abs=1e-9)
    assert result.standard_error[reference] == 0
    assert np.isnan(result.p_value).tolist() == [column == reference for column in range(3)]


def test_the_standard_error_is_that_of_many_samples():
    """Of 30 questions, where DeLong's is a tenth too large."""
    rng = np.random.default_rng(4)
    correct = np.arange(30) < 15
    tests = [
        metrics.delong(rng.normal(size=(30, 2)) - 0.3 * correct[:, None], correct)
        for _ in range(1500)
    ]
    variance = np.mean([test.standard_error[1] ** 2 for test in tests])
    assert variance == pytest.approx(np.var([test.difference[1] for test in tests]), rel=0.08)


def test_an_interval_by_hand():
    # 0.0005² / (0.0004² / 9 + 0.0001² / 19) = 13.658 degrees of freedom, and t = 2.1498 of them.
    half = student.isf(0.025, 13.6584) * np.sqrt(0.00045)
    assert half == pytest.approx(2.1498 * 0.021213, abs=2e-5)
    ends = [MOVES.half_width(end, 0.95)[0] for end in (-1, 1)]
    assert ends == [pytest.approx(half, abs=1e-6)] * 2
    p_value = 2 * student.sf(0.1 / np.sqrt(0.00045), 13.6584)
    assert MOVES.p_value()[0] == pytest.approx(p_value, rel=1e-4)


def test_a_skewed_end_moves_away_from_zero_only():
    # The shift is t² · 4 · (3e-6 / 0.0005) / 2 = 4.6218 · 0.012 = 0.055461.
    skewed = replace(MOVES, third_moment=np.array([3e-6]))
    half = MOVES.half_width(1, 0.95)[0]
    assert skewed.half_width(1, 0.95)[0] == pytest.approx(
        0.055461 + np.hypot(half, 0.055461), abs=5e-6
    )
    assert skewed.half_width(-1, 0.95)[0] == half
    towards_zero = replace(MOVES, third_moment=np.array([-3e-6]))
    assert [towards_zero.half_width(end, 0.95)[0] for end in (-1, 1)] == [half, half]


def test_a_class_in_which_few_answers_moved_gets_pseudo_moves():
    # 2 of 10 wrong answers moved, of at least 5: weight 3/5. With 3 that moved in all and squares
    # of 0.3, a pseudo-move has the square (0.3 + 2) / 4. 1 of 20 right ones moved: weight 4/5.
    # A share of 3/4 moved upwards, and so do the pseudo-moves.
    few = replace(MOVES, n_moved=np.array([[2.0], [1.0]]), share_up=np.array([0.75]))
    for end, share in ((1, 0.75), (-1, 0.25)):
        wrong = 0.6 * 0.575 * 2 * share / (10 * 9)
        right = 0.8 * 0.575 * 2 * share / (20 * 19)
        parts = (0.0004 + wrong) ** 2 / 9 + (0.0001 + right) ** 2 / 19
        freedom = (0.0005 + wrong + right) ** 2 / parts
        expected = student.isf(0.025, freedom) * np.sqrt(0.00045 + wrong + right)
        assert few.half_width(end, 0.95)[0] == pytest.approx(expected, rel=1e-12)


def test_a_score_that_ranks_alike_has_an_interval():
    """Where nothing moved, 2 / 2 stands for the square of a pseudo-move in each class."""
    score = np.arange(20.0)
    correct = np.arange(20) % 2 == 0
    tests = metrics.delong(np.column_stack([score, np.exp(score)]), correct)
    assert (tests.difference[1], tests.p_value[1]) == (0, 1)
    expected = student.isf(0.025, 18) * np.sqrt(2 * 2 / (10 * 9))
    assert tests.interval()[1][1] == pytest.approx(expected)


@pytest.mark.parametrize(("n", "n_right", "gain"), [(60, 12, 0.1), (200, 20, 0.06), (60, 30, 0.1)])
def test_a_difference_that_delong_sees_in_a_small_sample_is_seen(n, n_right, gain):
    """AUROC 0.75 and more, correlation 0.98; half questions of ±1 saw it in 2 to 33 %."""
    rng = np.random.default_rng(7)
    correct = np.arange(n) < n_right
    seen = []
    for _ in range(60):
        noise = rng.normal(size=(2, n))
        noise[1] = 0.98 * noise[0] + np.sqrt(1 - 0.98**2) * noise[1]
        shift = norm.ppf([[0.75], [0.75 + gain]]) * np.sqrt(2) * ~correct
        seen.append(metrics.delong((noise + shift).T, correct).p_value[1] < 0.05)
    assert np.mean(seen) >= 0.7


def test_scores_that_differ_on_few_questions_are_not_called_equivalent_by_a_small_sample():
    """Return two scores whose AUROCs differ by 0.012.

    1.2 % of the wrong answers are at the top by one score and at the bottom by the other.
    """
    equivalent, covered, rng = [], [], np.random.default_rng(11)
    for n_wrong, n_right in ((30, 270), (100, 400), (150, 150)):
        correct = np.arange(n_wrong + n_right) >= n_wrong
        for _ in range(100):
            moved, score = (
                (rng.random(len(correct)) < 0.012) & ~correct,
                rng.exponential(1 + 2.0 * ~correct),
            )
            table = pd.DataFrame(
                {"PRO": np.where(moved, -1.0, score), "NLL": np.where(moved, 99.0, score)}
            )
            row = metrics.compare_aurocs(table, correct).iloc[1]
            assert row["n_differ"] == moved.sum()
            equivalent.append("equivalent" in row["reading"])
            covered.append(row["difference_low"] <= 0.012 <= row["difference_high"])
    assert np.mean(equivalent) <= 0.05
    assert np.mean(covered) >= 0.93


@given(ROWS, st.booleans())
def test_interval_p_value_reading_and_needed_questions_agree(rows, clustered):
    uncertainties, correct, clusters = with_five_of_each(rows)
    frame = pd.DataFrame(uncertainties, columns=["PRO", "NLL", "SE"])
    table = metrics.compare_aurocs(frame, correct, clusters=clusters if clustered else None)
    for row in table.iloc[1:].itertuples():
        if np.isnan(row.difference_low):  # all answers of a class are in one cluster
            assert np.isnan(row.p_value)
            assert row.reading == "all answers of one class are in one cluster"
            continue
        different = row.difference_low > 0 or row.difference_high < 0
        assert different == (row.p_value < 0.05) == ("different" in row.reading)
        assert row.difference_low <= row.difference <= row.difference_high
        if row.reading == "identical":
            assert row.n_differ == 0
        else:
            assert (row.reading == "undecided") == (row.n_to_decide > len(correct))
    assert set(table["interval"]) == {"by cluster" if clustered else "by question"}


def test_the_sign_of_both_scores_turns_the_interval():
    rng = np.random.default_rng(2)
    correct = rng.random(40) < 0.5
    values = np.round(rng.normal(size=(40, 2)) - correct[:, None])
    low, high = metrics.delong(values, correct).interval()
    turned = metrics.delong(-values, correct).interval()
    np.testing.assert_allclose([-turned[1], -turned[0]], [low, high], rtol=0, atol=1e-12)


def test_so_many_questions_as_needed_would_decide():
    # The end is at t √(0.00045 / s) for s times the questions; 0.1 is decided from 0.266 · 30 on.
    tests = metrics.DeLong(*[np.array([0.0])] * 3, 1, 30, MOVES, "by question")
    tests = replace(tests, reference=0, moves=pairs(MOVES, MOVES))
    [_, word], [_, needed] = metrics.readings(tests)
    assert word == "different"
    scale = needed / 30
    assert (
        MOVES.half_width(-1, 0.95, scale)[0] < 0.1 < MOVES.half_width(-1, 0.95, scale - 1 / 30)[0]
    )
    # A difference of 0.004 is equivalent once the 90 % interval ends within 0.006.
    small = replace(MOVES, difference=np.array([0.004]))
    [_, word], [_, needed] = metrics.readings(replace(tests, moves=pairs(MOVES, small)))
    assert word == "undecided"
    ends = [small.half_width(1, 0.9, (needed - step) / 30)[0] for step in (0, 1)]
    assert ends[0] < 0.006 < ends[1]


def pairs(first, second):
    """Return the moves of two scores."""
    names = ("difference", "variance", "third_moment", "share_up", "squares")
    joined = {name: np.append(getattr(first, name), getattr(second, name)) for name in names}
    for name in ("variances", "n_moved"):
        joined[name] = np.hstack([getattr(first, name), getattr(second, name)])
    return replace(first, **joined)


@pytest.mark.parametrize(("n_right", "n_wrong", "few"), [(4, 30, "right"), (30, 4, "wrong")])
def test_four_answers_of_a_class_have_no_interval_and_the_reading_says_so(n_right, n_wrong, few):
    correct = np.arange(n_right + n_wrong) < n_right
    frame = pd.DataFrame({"PRO": np.arange(34.0), "NLL": np.arange(34.0) % 7})
    row = metrics.compare_aurocs(frame, correct).iloc[1]
    assert row["reading"] == f"fewer than 5 {few} answers"
    missing = ["difference_low", "difference_high", "p_value", "p_holm", "n_to_decide"]
    assert row[missing].isna().all()
    assert np.isfinite(row[["auroc", "low", "high", "difference"]].astype(float)).all()
    assert not row["significant"]


def test_four_clusters_have_no_interval_and_the_reading_says_so():
    correct = np.arange(40) % 2 == 0
    frame = pd.DataFrame({"PRO": np.arange(40.0), "NLL": np.arange(40.0) % 7})
    row = metrics.compare_aurocs(frame, correct, clusters=np.arange(40) % 4).iloc[1]
    assert row["reading"] == "fewer than 5 clusters"
    assert np.isnan(row["difference_low"])


@given(ROWS)
def test_an_interval_by_cluster_is_never_narrower_for_its_variance(rows):
    uncertainties, correct, clusters = with_five_of_each(rows)
    by_cluster = metrics.delong(uncertainties, correct, clusters=clusters).standard_error
    by_question = metrics.delong(uncertainties, correct).standard_error
    assert ((by_cluster >= by_question - 1e-15) | np.isnan(by_cluster)).all()


def test_a_comparison_holds_intervals_tests_and_readings():
    rng = np.random.default_rng(1)
    correct = rng.random(800) < 0.5
    pro = rng.normal(size=800) - correct
    others = {
        "same": np.exp(pro),
        "noise": rng.normal(size=800),
        "near": pro + rng.normal(size=800) / 3,
    }
    frame = pd.DataFrame({**others, "PRO": pro})
    table = metrics.compare_aurocs(frame, correct)
    test = metrics.delong(frame, correct, reference=3)
    assert table["method"].tolist() == list(frame)
    np.testing.assert_array_equal(
        table[["auroc", "low", "high"]].T, metrics.auroc_intervals(frame, correct)
    )
    np.testing.assert_array_equal(table["difference"], table["auroc"] - table["auroc"][3])
    np.testing.assert_array_equal(table[["difference_low", "difference_high"]].T, test.interval())
    np.testing.assert_array_equal(
        table[["p_value", "p_holm"]].T, [test.p_value, metrics.holm(test.p_value)]
    )
    assert table["significant"].tolist() == [False, True, False, False]
    assert table["reading"].tolist()[1:] == ["different", "undecided", ""]
    # Methods that stand apart are tested, and neither counted nor corrected.
    apart = metrics.compare_aurocs(frame, correct, uncorrected=["noise"])
    np.testing.assert_array_equal(apart["p_value"], table["p_value"])
    assert (np.isnan(apart["p_holm"][1]), apart["significant"][1]) == (True, False)
    assert apart["p_holm"][2] == min(2 * apart["p_value"][2], 1)
    with pytest.raises(KeyError, match="PRO"):
        metrics.compare_aurocs(frame[["noise"]], correct)


# Multiples of 1/64, so that every product and comparison is exact.
@given(st.lists(st.integers(0, 64), max_size=8))
def test_a_corrected_value_is_the_level_from_which_holms_procedure_rejects(numerators):
    expected = [1.0] * len(numerators)
    for level in reversed(range(65)):
        for rank, row in enumerate(sorted(range(len(numerators)), key=numerators.__getitem__)):
            if numerators[row] * (len(numerators) - rank) > level:
                break
            expected[row] = level / 64
    corrected = metrics.holm([np.nan, *(number / 64 for number in numerators)])
    # Missing values do not count
    np.testing.assert_array_equal(corrected, [np.nan, *expected])


def test_intervals_of_clustered_questions_cover():
    """36 clusters of 20, with means of their own in one score and in the share right."""
    rng = np.random.default_rng(12)
    covered = []

    def draw(n_clusters, size):
        clusters = np.repeat(np.arange(n_clusters), size)
        correct = rng.random(len(clusters)) < 1 / (
            1 + np.exp(rng.normal(size=n_clusters)[clusters])
        )
        effect = 0.7 * rng.normal(size=n_clusters)[clusters]
        noise = rng.normal(size=(2, len(effect)))
        return np.column_stack([noise[0] - correct + effect, noise[1] - correct]), correct

    truth = metrics.delong(*draw(20_000, 10)).difference[1]
    for _ in range(100):
        low, high = metrics.delong(*draw(36, 20), clusters=np.repeat(np.arange(36), 20)).interval()
        covered.append(low[1] <= truth <= high[1])
    assert np.mean(covered) >= 0.9  # 0.95 within three standard errors of 100 draws


def test_a_score_that_is_the_same_on_every_question_reads_identical():
    pro = np.arange(12.0)
    swapped = pro.copy()
    swapped[[5, 6]] = [6, 5]
    scores = pd.DataFrame({"PRO": pro, "PRO, oracle": pro, "NLL": swapped})
    table = metrics.compare_aurocs(scores, [True, True, False, True, True, True, *[False] * 6])
    assert table["reading"].tolist() == ["", "identical", "undecided"]


def test_scores_that_differ_by_rounding_are_the_same():
    # 2e-5 counts beside 0.5, but not beside 100.
    reference = np.array([0.5, 100.0, 0.5])
    scores = reference[:, None] + [[0.0, 9e-6], [2e-5, 2e-5], [2e-5, 0.1]]
    assert metrics.count_differing(scores, reference).tolist() == [1, 1]
