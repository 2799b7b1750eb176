"""Intervals of shares and AUROCs, and what differences say: by hand, at the edges, and how often they cover."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from pro_lib import intervals, metrics

ROOT = Path(__file__).resolve().parents[1]


@given(st.integers(1, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_scipys(counted):
    k, n = counted
    expected = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(intervals.wilson(k / n, n), [expected.low, expected.high], rtol=0, atol=1e-14)


def test_a_wilson_interval_is_exact_at_its_ends_and_missing_where_nothing_was_counted():
    low, high = intervals.wilson([0, 1, 0, np.nan], [7, 7, 0, 0])
    assert (low[0], high[1]) == (0, 1)
    assert np.isnan([*low[2:], *high[2:]]).all()


def test_the_interval_of_an_auroc_by_hand():
    # Wrong 3, 2 lie above shares 1 and 3/4 of right 1, 2: a = 7/8, a (1 - a) = 7/64, s = 7/64 for both classes.
    # Squares about 7/8 are 2/64 = 1/32. Each class has the part (s² / 32 + 0.343) / (s³ + 0.343) = 0.343374 / 0.344308
    # = 0.997286 of the most, so that 1/n = 0.997286 / 2 + 0.997286 / 2, and Wilson's interval of 7/8 in 1.002721 is
    # (0.875 + 1.915528 ± 1.959964 √(0.109375 / 1.002721 + 3.841459 / (4 · 1.005450))) / (1 + 3.831034).
    aurocs, low, high = metrics.auroc_intervals([[3.0], [1.0], [2.0], [2.0]], [False, True, True, False])
    assert aurocs.tolist() == [0.875]
    middle, half = (0.875 + 1.915528) / 4.831034, 1.959964 / 4.831034 * np.sqrt(0.109078 + 0.955159)
    np.testing.assert_allclose([low[0], high[0]], [middle - half, middle + half], rtol=0, atol=2e-5)


def test_one_wrong_answer_perfect_separation_and_a_constant_have_intervals():
    correct = np.array([True] * 9 + [False])
    _, low, high = metrics.auroc_intervals(np.column_stack([np.arange(10), -np.arange(10), np.zeros(10)]), correct)
    # 1/n = 1/9 + 1/1: Wilson's lower end of 1 in 0.9 is 0.9 / (0.9 + 3.8415).
    assert low[0] == pytest.approx(0.9 / (0.9 + 3.841459), abs=1e-6)
    assert (high[0], low[1], high[1]) == (1, 0, pytest.approx(1 - low[0]))
    assert low[2] + high[2] == pytest.approx(1)
    assert low[2] < 0.2


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_the_interval_holds_the_auroc_and_turns_with_the_score(rows):
    correct = np.array([label for _, label in rows])
    correct[:2] = True, False
    values = np.array([[value, -value] for value, _ in rows], dtype=float)
    aurocs, low, high = metrics.auroc_intervals(values, correct)
    np.testing.assert_array_equal(aurocs, metrics.auroc_columns(values, correct))
    assert (low <= aurocs + 1e-12).all()
    assert (aurocs <= high + 1e-12).all()
    assert (low >= -1e-12).all()
    assert (high <= 1 + 1e-12).all()
    np.testing.assert_allclose([low[1], high[1]], [1 - high[0], 1 - low[0]], rtol=0, atol=1e-9)


def test_in_a_large_set_it_is_delongs_interval():
    rng = np.random.default_rng(3)
    correct = rng.random(200_000) < 0.4
    values = np.column_stack([rng.normal(size=200_000) - correct, np.zeros(200_000)])
    found = metrics.delong(values, correct, reference=1)
    aurocs, low, high = metrics.auroc_intervals(values, correct)
    expected = aurocs[0] + norm.ppf([0.025, 0.975]) * found.standard_error[0]
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("share", "auroc"), [(0.05, 0.6), (0.9, 0.8), (0.95, 0.97)])
def test_it_covers_where_few_answers_are_right_or_wrong(share, auroc):
    # 2,000 repetitions: 0.95 give or take 0.005. Percentile intervals cover 0.83 to 0.90 here.
    rng, correct = np.random.default_rng(8), np.arange(100) < 100 * share
    values = rng.normal(size=(100, 2000)) + norm.ppf(auroc) * np.sqrt(2) * ~correct[:, None]
    _, low, high = metrics.auroc_intervals(values, correct)
    assert ((low <= auroc) & (auroc <= high)).mean() >= 0.93


def test_the_page_holds_the_numbers_of_its_files():
    page = (ROOT / "docs" / "intervals.md").read_text()
    script = runpy.run_path(str(ROOT / "benchmarks" / "coverage.py"))
    assert script["summary"](pd.read_csv(ROOT / "docs" / "coverage.csv")) in page
    assert script["summary_of_differences"](pd.read_csv(ROOT / "docs" / "coverage_of_differences.csv")) in page


def test_readings_by_hand():
    # 1.960 · 0.002 = 0.0039 and 1.645 · 0.002 = 0.0033: 0.001 is within 0.01 and not away from 0; 0.005 is both; 0.008
    # is away from 0, and 0.0113 is not within; with 0.01, 0.008 is neither.
    words, needed = intervals.readings(
        np.array([0.001, -0.005, 0.008, 0.008, 0.0, np.nan]), np.array([0.002] * 3 + [0.01, 0.0, np.nan]), 1000
    )
    assert words == ["equivalent", "different and equivalent", "different", "undecided", "equivalent", "undecided"]
    # 1000 (1.644854 · 0.002 / 0.009)² = 133.6; the fourth: 1000 (1.959964 · 0.01 / 0.008)² = 6002.3.
    assert needed[[0, 3, 4]].tolist() == [134, 6003, 0]
    assert np.isnan(needed[5])


@given(st.floats(-0.05, 0.05), st.floats(1e-4, 0.05), st.integers(10, 10_000))
def test_a_difference_is_decided_when_it_has_the_questions_it_needs(difference, error, n):
    [word], needed = intervals.readings(np.array([difference]), np.array([error]), n)
    different = abs(difference) > 1.959963984540054 * error
    inside = difference - 1.6448536269514722 * error > -0.01 and difference + 1.6448536269514722 * error < 0.01
    assert (
        word
        == {
            (True, True): "different and equivalent",
            (True, False): "different",
            (False, True): "equivalent",
            (False, False): "undecided",
        }[different, inside]
    )
    assert (word == "undecided") == (needed[0] > n) or needed[0] == pytest.approx(n, abs=1)


def test_compared_reads_differences_by_delongs_error():
    rng = np.random.default_rng(1)
    correct = rng.random(400) < 0.5
    pro = rng.normal(size=400) - correct
    others = {"same": np.exp(pro), "noise": rng.normal(size=400), "near": pro + rng.normal(size=400) / 3}
    frame = pd.DataFrame({"PRO": pro, **others})
    table = metrics.compared(frame, correct, n_resamples=10)
    assert table["reading"].tolist() == ["", "equivalent", "different", "undecided"]
    found = metrics.delong(frame, correct)
    _, needed = intervals.readings(found.difference, found.standard_error, 400)
    np.testing.assert_array_equal(table["n_to_decide"], [np.nan, *needed[1:]])
    assert table["n_to_decide"][1] == 0
    assert table["n_to_decide"][2] < 400 < table["n_to_decide"][3]
