"""AUROC, its interval and DeLong's test: by hand, against all pairs, sklearn and scipy, and how often they cover."""

import runpy

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from scipy.stats import t as student
from sklearn.metrics import roc_auc_score

from pro_lib import metrics

# Few distinct values, so that ties within and between the classes are common.
QUESTIONS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40)
QUESTIONS = QUESTIONS.filter(lambda rows: len({label for _, label in rows}) == 2)
NO_LABELS = ([0, 2], [0.9, 0.1], [0, np.nan], [True, None], ["a", "b"], [[0], [1]], pd.array([True, None], "boolean"))


@given(QUESTIONS)
def test_auroc_agrees_with_sklearn(rows):
    uncertainty, correct = np.array([u for u, _ in rows], dtype=float), np.array([c for _, c in rows])
    columns = np.column_stack([uncertainty, -uncertainty, np.zeros(len(rows)), np.arange(len(rows))])
    expected, aurocs = [roc_auc_score(~correct, of) for of in columns.T], metrics.auroc_intervals(columns, correct)[0]
    np.testing.assert_allclose(aurocs, expected, rtol=0, atol=1e-12)
    assert metrics.auroc(uncertainty, correct) == aurocs[0]
    of_tables = pd.Series([False, True, True], dtype=object), pd.array([False, True, True], dtype="boolean")
    for labels in ([False, True, True], [0, 1, 1], [0.0, 1.0, 1.0], *of_tables):
        assert metrics.auroc([np.inf, 1.0, -np.inf], labels) == 1.0


@pytest.mark.parametrize(
    ("call", "kind", "named"),
    [
        (lambda: metrics.auroc([1.0, 2.0], [True] * 2), metrics.OneClassError, "all 2 are right"),
        (lambda: metrics.auroc([1.0, 2.0], [False] * 2), metrics.OneClassError, "all 2 are wrong"),
        (lambda: metrics.auroc([], np.array([], dtype=bool)), metrics.OneClassError, "none are given"),
        (lambda: metrics.auroc([1.0, np.nan, np.nan], [True, False, True]), ValueError, "2 of 3 rows, first in row 1"),
        (lambda: metrics.delong([[1.0], [np.nan]], [True, False]), ValueError, "1 of 2 rows, first in row 1"),
        (lambda: metrics.auroc([1.0, 2.0], [True] * 3), ValueError, r"uncertainty must have the shape \(3, A\)"),
        *((lambda no=no: metrics.auroc([1.0, 2.0], no), ValueError, "correct") for no in NO_LABELS),
        (lambda: metrics.auroc([[1.0], [2.0]], [True, False]), ValueError, "uncertainty"),
        (lambda: metrics.auroc_intervals([1.0, 2.0], [True, False]), ValueError, "uncertainty"),
        (lambda: metrics.usable(pd.DataFrame({"PRO": [1.0, 2.0]}), [True]), ValueError, "Length of values"),
        (lambda: metrics.compare_aurocs(pd.DataFrame({"NLL": [1.0, 2.0]}), [True, False]), KeyError, "PRO"),
    ],
)
def test_what_is_not_defined_is_an_error_that_names_it(call, kind, named):
    with pytest.raises(kind, match=named):
        call()


def test_usable_keeps_the_questions_every_method_has_and_names_the_losses():
    nan = np.nan
    table = pd.DataFrame({"PRO": [1.0, nan, 2.0, 3.0, 4.0], "SE": [1.0, nan, nan, 3.0, 4.0]}, index=list("abcde"))
    mask, sentence = metrics.usable(table, np.array([True, False, True, None, False], dtype=object))
    assert mask.tolist() == [True, False, False, False, True]
    reasons = "PRO is missing for 1, SE is missing for 2, correct is missing for 1"
    assert sentence == f"3 of 5 questions are left out (b, c, d): {reasons}."
    assert metrics.usable(table[["PRO"]].dropna(), [True] * 4)[1] == "All 4 questions are used."
    _, sentence = metrics.usable(pd.DataFrame({"NLL": [nan, 1.0, 2.0], "X": [1.0, nan, 2.0]}), [True] * 3)
    assert sentence == "2 of 3 questions are left out (0, 1): 1 are cut (no answer ended), X is missing for 1."
    _, sentence = metrics.usable(pd.DataFrame({"NLL": [nan] * 7 + [1.0], "PRO": [nan] * 7 + [1.0]}), [True] * 8)
    assert sentence == "7 of 8 questions are left out (0, 1, 2, 3, 4, …): 7 are cut (no answer ended)."


def naive_placements(uncertainties, correct):
    """Compare every wrong answer with every right one: the share of the other class that each lies above, or below."""
    wrong, right = uncertainties[~correct].T, uncertainties[correct].T
    kernel = (wrong[:, :, None] > right[:, None]) + 0.5 * (wrong[:, :, None] == right[:, None])  # (A, wrong, right)
    return kernel.mean(axis=2), kernel.mean(axis=1)


@given(
    st.lists(st.tuples(*[st.integers(-2, 2)] * 3, st.booleans(), st.integers(0, 3)), min_size=6, max_size=25),
    st.integers(0, 2),
    st.booleans(),
)
def test_delong_is_that_of_all_pairs_and_clusters_are_what_is_independent(rows, reference, clustered):
    *columns, correct, clusters = map(np.array, zip(*rows, strict=True))
    uncertainties = np.column_stack(columns).astype(float)
    correct[:4], clusters[:2] = [True, True, False, False], [0, 1]
    result = metrics.delong(uncertainties, correct, reference=reference, clusters=clusters if clustered else None)
    assert np.isnan(result.p_value).tolist() == [column == reference for column in range(3)]
    of_wrong, of_right = naive_placements(uncertainties, correct)
    aurocs, names = of_wrong.mean(axis=1), set(clusters.tolist())
    np.testing.assert_allclose(result.difference, aurocs - aurocs[reference], rtol=0, atol=1e-12)
    for column in {0, 1, 2} - {reference}:
        variance, of_cluster = 0.0, dict.fromkeys(names, 0.0)
        for values, which in ((of_wrong, ~correct), (of_right, correct)):
            change = values[column] - values[reference]
            # In each class half a question that a score wins of the reference's everywhere, and half that it loses.
            n, mean = len(change) + 1, change.sum() / (len(change) + 1)
            halves = ((1 - mean) ** 2 + (-1 - mean) ** 2) / 2
            variance += (halves + (0 if clustered else ((change - mean) ** 2).sum())) / n / (n - 1)
            for name in names:
                of_cluster[name] += (change[clusters[which] == name] - result.difference[column]).sum() / len(change)
        if clustered:
            wider = student.ppf(0.975, len(names) - 1) / norm.ppf(0.975)
            variance += sum(total**2 for total in of_cluster.values()) * len(names) / (len(names) - 1) * wider**2
        assert result.standard_error[column] == pytest.approx(np.sqrt(variance), abs=1e-12)
        p_value = 2 * norm.sf(abs(result.difference[column]) / np.sqrt(variance))
        assert result.p_value[column] == pytest.approx(p_value, abs=1e-9)
    assert result.standard_error[reference] == 0
    assert np.isnan(metrics.delong(uncertainties, correct, clusters=np.zeros(len(correct))).p_value).all()
    alike = metrics.delong(np.exp(uncertainties[:, [0, 0]] * [1, 2]), correct)
    assert (alike.difference[1], alike.p_value[1]) == (0, 1)  # columns that rank alike are not certain of it


def test_scores_that_differ_on_few_questions_are_not_called_equivalent_by_a_small_sample():
    """1.2 % of the wrong answers lie at the top by one score and at the bottom by the other: a difference of 0.012."""
    equivalent, covered, rng = [], [], np.random.default_rng(11)
    for n_wrong, n_right in ((30, 270), (100, 400), (150, 150)):
        correct = np.arange(n_wrong + n_right) >= n_wrong
        for _ in range(100):
            moved, score = (rng.random(len(correct)) < 0.012) & ~correct, rng.exponential(1 + 2.0 * ~correct)
            table = pd.DataFrame({"PRO": np.where(moved, -1.0, score), "NLL": np.where(moved, 99.0, score)})
            row = metrics.compare_aurocs(table, correct).iloc[1]
            assert row["n_differ"] == moved.sum()
            equivalent.append("equivalent" in row["reading"])
            covered.append(row["difference_low"] <= 0.012 <= row["difference_high"])
    assert np.mean(equivalent) <= 0.05
    assert np.mean(covered) >= 0.93


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
    np.testing.assert_array_equal(corrected, [np.nan, *expected])  # what is missing counts for nothing


def test_a_comparison_holds_intervals_tests_and_readings():
    rng = np.random.default_rng(1)
    correct = rng.random(800) < 0.5
    pro = rng.normal(size=800) - correct
    others = {"same": np.exp(pro), "noise": rng.normal(size=800), "near": pro + rng.normal(size=800) / 3}
    frame = pd.DataFrame({**others, "PRO": pro})
    table, test = metrics.compare_aurocs(frame, correct), metrics.delong(frame, correct, reference=3)
    assert table["method"].tolist() == list(frame)
    np.testing.assert_array_equal(table[["auroc", "low", "high"]].T, metrics.auroc_intervals(frame, correct))
    np.testing.assert_array_equal(table["difference"], table["auroc"] - table["auroc"][3])
    ends = table["difference"].to_numpy() + norm.ppf([[0.025], [0.975]]) * test.standard_error
    np.testing.assert_allclose(table[["difference_low", "difference_high"]].T, ends, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(table[["p_value", "p_holm"]].T, [test.p_value, metrics.holm(test.p_value)])
    assert table["significant"].tolist() == [False, True, False, False]
    assert table["reading"].tolist() == ["equivalent", "different", "undecided", ""]
    _, needed = metrics.readings(test.difference, test.standard_error, 800)
    np.testing.assert_array_equal(table["n_to_decide"], [*needed[:3], np.nan])
    # What stands apart is tested, and neither counted nor corrected.
    apart = metrics.compare_aurocs(frame, correct, uncorrected=["noise"])
    np.testing.assert_array_equal(apart["p_value"], table["p_value"])
    assert (np.isnan(apart["p_holm"][1]), apart["significant"][1]) == (True, False)
    assert apart["p_holm"][2] == min(2 * apart["p_value"][2], 1)


@given(QUESTIONS)
def test_an_interval_without_zero_and_the_reading_never_contradict(rows):
    correct = np.array([label for _, label in rows])
    columns = {"PRO": [float(value) for value, _ in rows], "NLL": [float(value % 3) for value, _ in rows]}
    row = metrics.compare_aurocs(pd.DataFrame(columns), correct).iloc[1]
    if min(correct.sum(), (~correct).sum()) < 2:
        assert row[["difference_low", "p_holm", "n_to_decide"]].isna().all()
        assert (row["reading"], row["significant"], np.isnan(row["low"])) == ("", False, False)
    else:
        away = row["difference_low"] > 0 or row["difference_high"] < 0
        assert away == ("different" in row["reading"])


@given(st.integers(1, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_scipys_and_exact_at_its_ends(counted):
    k, n = counted
    expected = binomtest(k, n).proportion_ci(method="wilson")
    low, high = metrics.wilson([k / n, 0, 1, 0, np.nan], [n, n, n, 0, 0])
    np.testing.assert_allclose([low[0], high[0]], [expected.low, expected.high], rtol=0, atol=1e-14)
    assert (low[1], high[2]) == (0, 1)
    assert np.isnan([*low[3:], *high[3:]]).all()


def test_the_interval_of_an_auroc_by_hand():
    # Wrong 3, 2 lie above shares 1 and 3/4 of right 1, 2: a = 7/8, a (1 - a) = 7/64, s = 7/64 for both classes.
    # Squares about 7/8 are 2/64 = 1/32. Each class has the part (s² / 32 + 0.343) / (s³ + 0.343) = 0.343374 / 0.344308
    # = 0.997286 of the most, so that 1/n = 0.997286 / 2 + 0.997286 / 2, and Wilson's interval of 7/8 in 1.002721 is
    # (0.875 + 1.915528 ± 1.959964 √(0.109375 / 1.002721 + 3.841459 / (4 · 1.005450))) / (1 + 3.831034).
    aurocs, low, high = metrics.auroc_intervals([[3.0], [1.0], [2.0], [2.0]], [False, True, True, False])
    assert aurocs.tolist() == [0.875]
    middle, half = (0.875 + 1.915528) / 4.831034, 1.959964 / 4.831034 * np.sqrt(0.109078 + 0.955159)
    np.testing.assert_allclose([low[0], high[0]], [middle - half, middle + half], rtol=0, atol=2e-5)
    # One wrong answer above nine right ones: 1/n = 1/9 + 1/1. Wilson's lower end of 1 in 0.9 is 0.9 / (0.9 + 3.8415).
    _, low, high = metrics.auroc_intervals(np.column_stack([np.arange(10), np.zeros(10)]), np.arange(10) < 9)
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


@given(st.floats(-0.05, 0.05), st.floats(1e-4, 0.05), st.integers(10, 10_000))
def test_a_difference_is_decided_when_it_has_the_questions_it_needs(difference, error, n):
    [word], needed = metrics.readings(np.array([difference]), np.array([error]), n)
    different = abs(difference) > 1.959963984540054 * error
    equivalent = abs(difference) + 1.6448536269514722 * error < 0.01
    assert word.split(" and ") == (["different"] * different + ["equivalent"] * equivalent or ["undecided"])
    assert (word == "undecided") == (needed[0] > n) or needed[0] == pytest.approx(n, abs=1)


def test_the_page_holds_the_numbers_of_its_files():
    page = (ROOT / "docs" / "intervals.md").read_text()
    script = runpy.run_path(str(ROOT / "benchmarks" / "coverage.py"))
    assert script["summary"](pd.read_csv(ROOT / "docs" / "coverage.csv")) in page
    near, pairs = (pd.read_csv(ROOT / "docs" / f"coverage_of_{name}.csv") for name in ("near_scores", "differences"))
    covered = [f"{near[name].min():.3f}" for name in ("covered", "delong_covered")]
    false = [f"{near[name].max():.3f} at most" for name in ("equivalent", "delong_equivalent")]
    assert f"| {len(near)} cells, lowest | | {' | '.join([*covered, *false])} | | |" in page
    for row in near[near["n_wrong"].notna() & (near["difference"] == 0.012)].itertuples():
        numbers = [row.covered, row.delong_covered, row.equivalent, row.delong_equivalent]
        line = f"| {row.n_wrong:,.0f}, {row.n_right:,.0f} | {' | '.join(f'{number:.3f}' for number in numbers)} |"
        assert line in page or row.n_wrong in (300, 500) or "0.5" in row.scores
    few = pairs[pairs["n_questions"] * np.minimum(pairs["share_right"], 1 - pairs["share_right"]) < 10.5]
    assert f"covered in {pairs['covered'].min():.2f} to {pairs['covered'].max():.2f} of the samples" in page
    ours, delong = (f"{few[name].min():.2f} to {few[name].max():.2f}" for name in ("covered", "delong_covered"))
    assert f"{ours} (DeLong {delong})" in page


def test_readings_by_hand():
    # 1000 (1.644854 · 0.002 / 0.009)² = 133.6; the second: 1000 (1.959964 · 0.01 / 0.008)² = 6002.3.
    words, needed = metrics.readings(np.array([0.001, 0.008, 0, np.nan]), np.array([0.002, 0.01, 0, np.nan]), 1000)
    assert words == ["equivalent", "undecided", "equivalent", "undecided"]
    np.testing.assert_array_equal(needed, [134, 6003, 0, np.nan])


def test_intervals_of_clustered_questions_cover():
    """36 clusters of 20, with means of their own in one score and in the share right; the truth is a large draw's."""
    rng, covered = np.random.default_rng(12), []

    def draw(n_clusters, size):
        clusters = np.repeat(np.arange(n_clusters), size)
        correct = rng.random(len(clusters)) < 1 / (1 + np.exp(rng.normal(size=n_clusters)[clusters]))
        own = 0.7 * rng.normal(size=n_clusters)[clusters]
        noise = rng.normal(size=(2, len(own)))
        return np.column_stack([noise[0] - correct + own, noise[1] - correct]), correct

    truth = metrics.delong(*draw(20_000, 10)).difference[1]
    for _ in range(100):
        test = metrics.delong(*draw(36, 20), clusters=np.repeat(np.arange(36), 20))
        low, high = metrics.normal(test.difference, test.standard_error)
        covered.append(low[1] <= truth <= high[1])
    assert np.mean(covered) >= 0.9  # 0.95 within three standard errors of 100 draws


def test_a_score_that_is_the_same_on_every_question_reads_identical():
    pro = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    scores = pd.DataFrame({"PRO": pro, "PRO, oracle": pro, "NLL": [1.0, 3.0, 2.0, 4.0, 5.0, 6.0]})
    table = metrics.compare_aurocs(scores, [True, True, False, True, False, False])
    assert table["reading"].tolist() == ["", "identical", "undecided"]


@pytest.mark.parametrize(("high", "verdict"), [(0.499, ", worse than chance"), (0.5, ""), (0.7, "")])
def test_an_auroc_whose_interval_lies_below_a_half_is_worse_than_chance(high, verdict):
    assert metrics.auroc_in_words(0.25, 0.125, high) == f"0.250 (0.125 to {high:.3f}{verdict})"


def test_questions_with_texts_alone_are_not_called_cut():
    scores = pd.DataFrame({"NLL": [np.nan, np.nan, 1.0]})
    _, sentence = metrics.usable(scores, [True] * 3, has_only_texts=[True, False, False])
    reasons = "1 are cut (no answer ended), 1 have no log-probabilities"
    assert sentence == f"2 of 3 questions are left out (0, 1): {reasons}."
