"""Differences of AUROCs: intervals and tests by hand, ties by rounding, coverage, and readings."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from pro_lib import metrics

ROWS = st.lists(
    st.tuples(*[st.integers(-2, 2)] * 3, st.booleans(), st.integers(0, 6)), min_size=16, max_size=30
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


def fewest_moves(scores, reference, *, ties):
    """Try all subsets: the fewest questions to remove so that both order the others alike."""
    pairs = list(combinations(range(len(scores)), 2))
    steps = [np.sign([scores[i] - scores[j], reference[i] - reference[j]]) for i, j in pairs]
    against = [
        pair
        for pair, (one, other) in zip(pairs, steps, strict=True)
        if one * other < 0 or (ties and one != other)
    ]
    for size in range(len(scores)):
        for removed in combinations(range(len(scores)), size):
            if all(i in removed or j in removed for i, j in against):
                return size
    return None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=7))
def test_the_fewest_moved_questions_lie_between_those_of_all_subsets(rows):
    """Without ties they are found exactly; with ties the count is 0 only for one order."""
    scores, reference = np.transpose(rows)
    [count] = metrics.count_moved(scores[:, None], reference)
    least, most = (
        fewest_moves(scores.tolist(), reference.tolist(), ties=ties) for ties in (False, True)
    )
    assert least <= count <= most
    assert (count == 0) == (most == 0)


@given(ROWS, st.integers(0, 2))
def test_the_variance_is_delongs_with_one_pseudo_move_of_each_class(rows, reference):
    uncertainties, correct, _ = with_five_of_each(rows)
    result = metrics.delong(uncertainties, correct, reference=reference)
    kernels = naive_kernels(uncertainties, correct)
    for column in {0, 1, 2} - {reference}:
        change = kernels[column] - kernels[reference]
        moves = [change.mean(axis=1), change.mean(axis=0)]
        difference = change.mean()
        n_moved = metrics.count_moved(uncertainties[:, [column]], uncertainties[:, reference])[0]
        square = (sum((move**2).sum() for move in moves) + 1) / (n_moved + 1)
        parts = [
            (((move - difference) ** 2).sum() + square) / (len(move) - 1) / len(move)
            for move in moves
        ]
        freedom = sum(parts) ** 2 / sum(
            part**2 / (len(move) - 1) for part, move in zip(parts, moves, strict=True)
        )
        half = student.isf(0.025, freedom) * np.sqrt(sum(parts))
        assert result.difference[column] == pytest.approx(difference, abs=1e-12)
        assert result.standard_error[column] == pytest.approx(np.sqrt(sum(parts)), abs=1e-9)
        ends = [max(difference - half, -1), min(difference + half, 1)]
        assert [result.low[column], result.high[column]] == pytest.approx(ends, abs=1e-9)
    assert result.standard_error[reference] == 0
    assert np.isnan(result.p_value).tolist() == [column == reference for column in range(3)]


def test_an_interval_by_hand():
    # The second score moves the lowest wrong answer above five right ones: one move of 1 among five
    # wrong answers, and moves of 0.2 of all five right ones, so d = 0.2 and k = 1. The pseudo-move
    # has the square (1 + 5 * 0.04 + 1) / 2 = 1.1. The variance of the wrong answers is
    # (0.8² + 4 * 0.2² + 1.1) / 20 = 0.095, and that of the right ones is 1.1 / 20 = 0.055.
    right = np.arange(5.0) + 1
    wrong = np.array([0.0, 11, 12, 13, 14])
    first = np.concatenate([right, wrong])
    second = np.concatenate([right, [10.0], wrong[1:]])
    tests = metrics.delong(np.column_stack([first, second]), np.arange(10) < 5)
    assert (tests.difference[1], tests.n_differ[1]) == (pytest.approx(0.2), 1)
    assert tests.standard_error[1] == pytest.approx(np.sqrt(0.15))
    # 0.15² / ((0.095² + 0.055²) / 4) = 7.4689 degrees of freedom
    half = student.isf(0.025, 7.46888) * np.sqrt(0.15)
    assert tests.high[1] == pytest.approx(min(1, 0.2 + half), abs=1e-5)
    assert tests.p_value[1] == pytest.approx(2 * student.sf(0.2 / np.sqrt(0.15), 7.46888), rel=1e-4)


def test_noise_in_ties_moves_no_end():
    rng = np.random.default_rng(3)
    correct = rng.random(300) < 0.4
    first = np.round(rng.normal(size=300) + 1.0 * ~correct)
    second = np.where(rng.random(300) < 0.05, -first, first)
    noisy = second + 1e-7 * rng.normal(size=300)
    plain = metrics.delong(np.column_stack([first, second]), correct)
    shaken = metrics.delong(np.column_stack([first, noisy]), correct)
    for name in ("difference", "low", "high", "n_differ"):
        assert getattr(shaken, name) == pytest.approx(getattr(plain, name), abs=1e-12)


@given(ROWS)
def test_only_the_order_of_a_score_counts(rows):
    uncertainties, correct, _ = with_five_of_each(rows)
    other_scale = uncertainties.copy()
    other_scale[:, 1] = np.exp(other_scale[:, 1])
    before = metrics.delong(uncertainties, correct)
    after = metrics.delong(other_scale, correct)
    np.testing.assert_array_equal([before.low, before.high], [after.low, after.high])


def test_a_chain_of_near_values_is_cut_where_its_ends_are_apart():
    # 0, 6e-6 and 12e-6: the last one is farther than 1e-5 from the first.
    numbers = metrics.tie_numbers(np.array([[0.0], [12e-6], [6e-6], [np.inf], [-np.inf]]))
    assert numbers[:, 0].tolist() == [1, 2, 1, 3, 0]


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
            assert row["n_differ"] <= moved.sum()
            equivalent.append("equivalent" in row["reading"])
            covered.append(row["difference_low"] <= 0.012 <= row["difference_high"])
    assert np.mean(equivalent) <= 0.05
    assert np.mean(covered) >= 0.93


@given(ROWS, st.booleans())
def test_interval_p_value_and_reading_agree(rows, clustered):
    uncertainties, correct, clusters = with_five_of_each(rows)
    frame = pd.DataFrame(uncertainties, columns=["PRO", "NLL", "SE"])
    table = metrics.compare_aurocs(frame, correct, clusters=clusters if clustered else None)
    for row in table.iloc[1:].itertuples():
        if row.reading == "identical":
            assert (row.n_differ, row.difference) == (0, 0)
            continue
        if np.isnan(row.difference_low):  # all answers of a class are in one cluster
            assert np.isnan(row.p_value)
            assert row.reading == "all answers of one class are in one cluster"
            continue
        different = row.difference_low > 0 or row.difference_high < 0
        assert different == (row.p_value < 0.05) == ("different" in row.reading)
        assert row.difference_low <= row.difference <= row.difference_high
    assert set(table["interval"]) == {"by cluster" if clustered else "by question"}


@pytest.mark.parametrize(
    ("ends", "reading"),
    [
        ((0.001, 0.03), "different"),
        ((-0.009, 0.004), "equivalent"),
        ((0.001, 0.009), "different and equivalent"),
        ((-0.02, 0.03), "undecided"),
    ],
)
def test_a_difference_is_read_by_its_interval(ends, reading):
    assert metrics.read_difference(*ends, n_differ=3) == reading


def test_the_sign_of_both_scores_turns_the_interval():
    rng = np.random.default_rng(2)
    correct = rng.random(40) < 0.5
    values = np.round(rng.normal(size=(40, 2)) - correct[:, None])
    tests = metrics.delong(values, correct)
    turned = metrics.delong(-values, correct)
    ends = [tests.low, tests.high]
    np.testing.assert_allclose([-turned.high, -turned.low], ends, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n_right", "n_wrong", "few"), [(4, 30, "right"), (30, 4, "wrong")])
def test_four_answers_of_a_class_have_no_interval_and_the_reading_says_so(n_right, n_wrong, few):
    correct = np.arange(n_right + n_wrong) < n_right
    frame = pd.DataFrame({"PRO": np.arange(34.0), "NLL": np.arange(34.0) % 7})
    row = metrics.compare_aurocs(frame, correct).iloc[1]
    assert row["reading"] == f"fewer than 5 {few} answers"
    missing = ["difference_low", "difference_high", "p_value", "p_holm"]
    assert row[missing].isna().all()
    assert np.isfinite(row[["auroc", "low", "high", "difference"]].astype(float)).all()
    assert not row["significant"]


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
    columns = {
        "method": list(frame),
        **dict(zip(["auroc", "low", "high"], metrics.auroc_intervals(frame, correct), strict=True)),
        "difference": table["auroc"] - table["auroc"][3],
        "difference_low": test.low,
        "difference_high": test.high,
        "p_value": test.p_value,
        "p_holm": metrics.holm(test.p_value),
    }
    pd.testing.assert_frame_equal(table[list(columns)], pd.DataFrame(columns), check_exact=True)
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
        tests = metrics.delong(*draw(36, 20), clusters=np.repeat(np.arange(36), 20))
        covered.append(tests.low[1] <= truth <= tests.high[1])
    assert np.mean(covered) >= 0.9  # 0.95 within three standard errors of 100 draws


def test_a_score_that_is_the_same_on_every_question_reads_identical():
    pro = np.arange(12.0)
    swapped = pro.copy()
    swapped[[5, 6]] = [6, 5]
    scores = pd.DataFrame({"PRO": pro, "PRO, oracle": pro, "NLL": swapped})
    table = metrics.compare_aurocs(scores, [True, True, False, True, True, True, *[False] * 6])
    assert table["reading"].tolist() == ["", "identical", "undecided"]
