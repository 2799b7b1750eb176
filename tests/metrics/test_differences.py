"""Differences of AUROCs: intervals and tests by hand, ties by rounding, and readings."""

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
    n_moved = metrics.count_moved(uncertainties, uncertainties[:, reference])
    for column in {0, 1, 2} - {reference}:
        change = kernels[column] - kernels[reference]
        difference = change.mean()
        moves = [change.mean(axis=1), change.mean(axis=0)]
        sizes = np.array([len(move) for move in moves])
        square = (sum((move**2).sum() for move in moves) + 1) / (n_moved[column] + 1)
        deviations = np.array([((move - difference) ** 2).sum() for move in moves])
        parts = (deviations + square) / (sizes - 1) / sizes
        freedom = parts.sum() ** 2 / (parts**2 / (sizes - 1)).sum()
        error = np.sqrt(parts.sum())
        half = student.isf(0.025, freedom) * error
        expected = [difference, error, max(difference - half, -1), min(difference + half, 1)]
        found = [result.difference, result.standard_error, result.low, result.high]
        assert np.array(found)[:, column] == pytest.approx(expected, abs=1e-9)
        p_value = 2 * student.sf(abs(difference) / error, freedom)
        assert result.p_value[column] == pytest.approx(p_value, abs=1e-9)
    assert result.standard_error[reference] == 0
    assert np.isnan(result.p_value[reference])


@given(ROWS)
def test_with_clusters_the_variance_is_at_least_that_of_the_jackknife(rows):
    uncertainties, correct, clusters = with_five_of_each(rows)
    found = metrics.delong(uncertainties, correct, clusters=clusters).standard_error[1] ** 2
    by_question = metrics.delong(uncertainties, correct).standard_error[1] ** 2
    differences = []
    for left_out in range(7):
        kept = clusters != left_out
        if len(set(correct[kept])) == 1:  # then there is no interval
            assert np.isnan(found)
            return
        kernels = naive_kernels(uncertainties[kept], correct[kept]).mean(axis=(1, 2))
        differences.append(kernels[1] - kernels[0])
    change = np.diff(naive_kernels(uncertainties, correct)[:2], axis=0)[0]
    squares = (change.mean(axis=0) ** 2).sum() + (change.mean(axis=1) ** 2).sum()
    [n_moved] = metrics.count_moved(uncertainties[:, [1]], uncertainties[:, 0])
    pseudo = (squares + 1) / (n_moved + 1) * sum(1 / (n - 1) / n for n in change.shape)
    jackknife = 6 / 7 * ((np.array(differences) - change.mean()) ** 2).sum()
    assert found == pytest.approx(max(by_question, jackknife + pseudo), abs=1e-9)


@pytest.mark.parametrize("noise", [1e-14, 1e-9, 1e-7])
def test_noise_in_ties_moves_nothing(noise):
    rng = np.random.default_rng(3)
    correct = rng.random(300) < 0.4
    first = np.round(rng.normal(size=300) + ~correct)
    second = np.where(rng.random(300) < 0.05, -first, first)
    noisy = second + noise * rng.normal(size=300)
    plain, shaken = (
        metrics.delong(np.column_stack([first, other]), correct) for other in (second, noisy)
    )
    for name in ("difference", "low", "high", "n_differ"):
        assert getattr(shaken, name) == pytest.approx(getattr(plain, name), abs=1e-12)


def test_a_chain_of_near_values_is_cut_where_its_ends_are_apart():
    # 0, 6e-6 and 12e-6: the last one is farther than 1e-5 from the first.
    numbers = metrics.tie_numbers(np.array([[0.0], [12e-6], [6e-6], [np.inf], [-np.inf]]))
    assert numbers[:, 0].tolist() == [1, 2, 1, 3, 0]


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


def test_a_difference_is_read_by_its_interval():
    ends = [(0.001, 0.03), (-0.009, 0.004), (0.001, 0.009), (-0.02, 0.03)]
    readings = [metrics.read_difference(*pair, n_differ=3) for pair in ends]
    assert readings == ["different", "equivalent", "different and equivalent", "undecided"]


def test_a_comparison_holds_intervals_tests_and_readings():
    rng = np.random.default_rng(1)
    correct = rng.random(800) < 0.5
    pro = rng.normal(size=800) - correct
    frame = pd.DataFrame({"same": pro, "noise": rng.normal(size=800)})
    frame["near"] = pro + rng.normal(size=800) / 3
    frame["PRO"] = pro
    table = metrics.compare_aurocs(frame, correct)
    test = metrics.delong(frame, correct, reference="PRO")
    aurocs, low, high = metrics.auroc_intervals(frame, correct)
    expected = {"method": list(frame), "auroc": aurocs, "low": low, "high": high}
    expected |= {"difference": aurocs - aurocs[3], "difference_low": test.low}
    expected |= {"difference_high": test.high, "p_value": test.p_value}
    expected |= {"p_holm": metrics.holm(test.p_value), "significant": [False, True, False, False]}
    expected |= {"reading": ["identical", "different", "undecided", ""]}
    for name, values in expected.items():
        np.testing.assert_array_equal(table[name], values, err_msg=name)


def test_methods_that_stand_apart_are_tested_and_neither_counted_nor_corrected():
    rng = np.random.default_rng(1)
    correct = rng.random(80) < 0.5
    frame = pd.DataFrame(rng.normal(size=(80, 3)), columns=["PRO", "NLL", "oracle"])
    frame["oracle"] -= 3 * correct
    apart = metrics.compare_aurocs(frame, correct, uncorrected=["oracle"])
    assert apart["p_value"][2] < 1e-6
    assert np.isnan(apart["p_holm"][2])
    assert not apart["significant"][2]
    assert apart["p_holm"][1] == apart["p_value"][1]


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
