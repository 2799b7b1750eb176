import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from pro_lib import metrics, selective

# Few distinct values, so that ties within and between the classes are common.
QUESTIONS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def some_questions(n=60, n_methods=3, seed=0):
    rng = np.random.default_rng(seed)
    correct = rng.random(n) < 0.4
    values = np.round(rng.normal(size=(n, n_methods)) - 0.7 * correct[:, None], 1)  # rounded: ties
    return pd.DataFrame(values, columns=["PRO", "NLL", "SE"][:n_methods]), correct


def test_auroc_by_hand():
    # wrong 3, 2; right 1, 2. Pairs (wrong, right): 3>1, 3>2, 2>1 count 1 each, 2=2 counts half: 3.5 / 4.
    assert metrics.auroc([3.0, 1.0, 2.0, 2.0], [False, True, True, False]) == 0.875


def test_auroc_of_a_perfect_score_a_constant_and_a_reversed_one():
    correct = np.array([True, True, False])
    assert metrics.auroc([0.0, 1.0, 2.0], correct) == 1.0
    assert metrics.auroc([5.0, 5.0, 5.0], correct) == 0.5
    assert metrics.auroc([0.0, -1.0, -2.0], correct) == 0.0


@given(QUESTIONS)
def test_auroc_agrees_with_sklearn(rows):
    uncertainty, correct = np.array([u for u, _ in rows], dtype=float), np.array([c for _, c in rows])
    assert metrics.auroc(uncertainty, correct) == pytest.approx(roc_auc_score(~correct, uncertainty), abs=1e-12)


def test_auroc_of_columns_is_that_of_each_column():
    uncertainties, correct = some_questions()
    expected = [roc_auc_score(~correct, uncertainties[name]) for name in uncertainties]
    np.testing.assert_allclose(metrics.auroc_columns(uncertainties, correct), expected, rtol=0, atol=1e-12)


def test_infinite_uncertainty_is_ranked_last():
    assert metrics.auroc([np.inf, 1.0, -np.inf], [False, True, True]) == 1.0


def test_input_is_left_as_it_was():
    uncertainty, correct = np.array([[3.0], [1.0], [2.0]]), np.array([False, True, False])
    metrics.auroc_columns(uncertainty, correct)
    assert uncertainty.tolist() == [[3.0], [1.0], [2.0]]


def test_one_class_is_an_error_that_names_it():
    with pytest.raises(metrics.OneClassError, match="all 3 are right"):
        metrics.auroc([1.0, 2.0, 3.0], [True] * 3)
    with pytest.raises(metrics.OneClassError, match="all 2 are wrong"):
        metrics.bootstrap_auroc(pd.DataFrame({"PRO": [1.0, 2.0]}), [False] * 2)
    with pytest.raises(metrics.OneClassError, match="none are given"):
        metrics.auroc([], np.array([], dtype=bool))


def test_bad_input_is_said_in_one_sentence():
    with pytest.raises(ValueError, match="NaN in 2 of 4 rows, first in row 1"):
        metrics.auroc([1.0, np.nan, 2.0, np.nan], [True, False, True, False])
    with pytest.raises(ValueError, match="uncertainty has 2 rows, but correct 3"):
        metrics.auroc([1.0, 2.0], [True, False, True])
    with pytest.raises(ValueError, match=r"correct must be \(n,\) booleans, such as .*, not float64"):
        metrics.auroc([1.0, 2.0], [0.9, 0.1])
    with pytest.raises(ValueError, match=r"uncertainty must have the shape \(n,\)"):
        metrics.auroc([[1.0], [2.0]], [True, False])
    with pytest.raises(ValueError, match=r"uncertainty must have the shape \(n, A\)"):
        metrics.auroc_columns([1.0, 2.0], [True, False])


def test_resampled_aurocs_are_those_of_the_questions_drawn():
    uncertainties, correct = some_questions()
    resampled = metrics.resampled_aurocs(uncertainties, correct, n_resamples=50, seed=7)
    right, wrong = np.flatnonzero(correct), np.flatnonzero(~correct)
    draw_right, draw_wrong = np.random.default_rng(7).spawn(2)
    from_right = right[draw_right.integers(len(right), size=(50, len(right)))]
    from_wrong = wrong[draw_wrong.integers(len(wrong), size=(50, len(wrong)))]
    drawn = np.concatenate([from_right, from_wrong], axis=1)
    expected = [
        [roc_auc_score(~correct[rows], uncertainties[m].to_numpy()[rows]) for m in uncertainties] for rows in drawn
    ]
    np.testing.assert_allclose(resampled, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_at_once", [1, 7])
def test_the_size_of_the_chunks_changes_nothing(monkeypatch, n_at_once):
    uncertainties, correct = some_questions()
    whole = metrics.resampled_aurocs(uncertainties, correct, n_resamples=30)
    monkeypatch.setattr(metrics, "_CHUNK_CELLS", n_at_once * len(correct))
    np.testing.assert_array_equal(metrics.resampled_aurocs(uncertainties, correct, n_resamples=30), whole)


def test_bootstrap_table_holds_intervals_and_quantiles_of_the_paired_resamples():
    uncertainties, correct = some_questions()
    table = metrics.bootstrap_auroc(uncertainties, correct, n_resamples=200, seed=3, reference="NLL")
    resampled = metrics.resampled_aurocs(uncertainties, correct, n_resamples=200, seed=3)
    assert table["method"].tolist() == ["PRO", "NLL", "SE"]
    np.testing.assert_array_equal(table["auroc"], metrics.auroc_columns(uncertainties, correct))
    np.testing.assert_array_equal(table[["low", "high"]].T, metrics.auroc_intervals(uncertainties, correct)[1:])
    np.testing.assert_array_equal(table["difference"], table["auroc"] - table["auroc"][1])
    differences = np.quantile(resampled - resampled[:, 1:2], [0.025, 0.975], axis=0)
    np.testing.assert_allclose(table[["difference_low", "difference_high"]].T, differences)
    assert table.loc[1, ["difference", "difference_low", "difference_high"]].tolist() == [0.0, 0.0, 0.0]


def test_bootstrap_is_repeatable_and_follows_the_seed():
    uncertainties, correct = some_questions()
    first, again, other = (metrics.bootstrap_auroc(uncertainties, correct, seed=s) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    changed = (first != other).any()
    assert changed.index[changed].tolist() == ["difference_low", "difference_high"]


def test_bootstrap_without_a_reference_has_no_differences():
    uncertainties, correct = some_questions(n_methods=2)
    table = metrics.bootstrap_auroc(uncertainties, correct, n_resamples=10, reference=None)
    assert list(table.columns) == ["method", "auroc", "low", "high"]


def test_bootstrap_options_are_checked():
    uncertainties, correct = some_questions()
    with pytest.raises(ValueError, match=r"reference='Deg' is none of the methods \['PRO', 'NLL', 'SE'\]"):
        metrics.bootstrap_auroc(uncertainties, correct, reference="Deg")
    with pytest.raises(ValueError, match="n_resamples must be at least 1, not 0"):
        metrics.bootstrap_auroc(uncertainties, correct, n_resamples=0)


def test_bootstrap_is_fast_enough_for_a_large_set():
    uncertainties, correct = some_questions(n=10_000)
    start = time.process_time()
    metrics.bootstrap_auroc(uncertainties, correct, n_resamples=500)
    assert time.process_time() - start < 10  # well under 1 s on one free core


def test_usable_keeps_the_questions_every_method_has_and_names_the_losses():
    uncertainties = pd.DataFrame(
        {"PRO": [1.0, np.nan, 2.0, 3.0, 4.0], "SE": [1.0, np.nan, np.nan, 3.0, 4.0]}, index=list("abcde")
    )
    found = metrics.usable(uncertainties, np.array([True, False, True, None, False], dtype=object))
    assert found.mask.tolist() == [True, False, False, False, True]
    assert found.n_missing.to_dict() == {"PRO": 1, "SE": 2, "correct": 1}
    assert found.sentence() == (
        "3 of 5 questions are left out (b, c, d): PRO is missing for 1, SE is missing for 2, correct is missing for 1."
    )


def test_usable_says_when_nothing_is_lost():
    uncertainties, correct = some_questions()
    found = metrics.usable(uncertainties, correct)
    assert found.mask.all()
    assert found.sentence() == "All 60 questions are used."


def test_a_long_list_of_losses_is_cut_but_still_counted():
    found = metrics.usable(pd.DataFrame({"PRO": [np.nan] * 7 + [1.0]}), [True] * 8)
    assert found.sentence() == "7 of 8 questions are left out (0, 1, 2, 3, 4, …): PRO is missing for 7."


def test_usable_wants_equal_lengths():
    with pytest.raises(ValueError, match=r"Length of values \(1\) does not match length of index \(2\)"):
        metrics.usable(pd.DataFrame({"PRO": [1.0, 2.0]}), [True])


def naive_delong(uncertainties, correct):
    """AUROCs and their covariance by comparing every wrong answer with every right one, as the paper writes it."""
    wrong, right = uncertainties[~correct].T, uncertainties[correct].T
    kernel = (wrong[:, :, None] > right[:, None]) + 0.5 * (wrong[:, :, None] == right[:, None])  # (A, wrong, right)
    aurocs = kernel.mean(axis=(1, 2))
    covariance = np.zeros((len(wrong), len(wrong)))
    for values in (kernel.mean(axis=2), kernel.mean(axis=1)):
        n = values.shape[1]
        for a in range(len(wrong)):
            for b in range(len(wrong)):
                products = [(values[a, i] - aurocs[a]) * (values[b, i] - aurocs[b]) for i in range(n)]
                covariance[a, b] += sum(products) / (n - 1) / n
    return aurocs, covariance


def test_delong_by_hand():
    # First column: wrong 3, 2 lie above shares 1 and 3/4 of the right answers 1, 2; 1 lies below all wrong ones, 2
    # below 3/4. Variance of (1, 3/4) is 1/32, over two answers 1/64, the same for the right: 1/32 in all.
    # Second column: wrong 1, 4 have 0 and 1, variance 1/2, over two 1/4; right 2, 3 have 1/2 both: 1/4 in all.
    # Together: (1/8)(-1/2) + (-1/8)(1/2) = -1/8 for the wrong, over two -1/16; 0 for the right.
    rows = np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 3.0], [2.0, 4.0]]), np.array([False, True, True, False])
    found = metrics.delong(*rows)
    assert naive_delong(*rows)[1].tolist() == [[1 / 32, -1 / 16], [-1 / 16, 1 / 4]]
    assert found.difference.tolist() == [0, -0.375]
    assert found.standard_error**2 == pytest.approx([0, 1 / 32 + 1 / 4 + 2 / 16], abs=1e-15)
    assert found.p_value[1] == pytest.approx(2 * norm.cdf(-0.375 / np.sqrt(13 / 32)), abs=1e-12)
    assert np.isnan(found.p_value[0])


@given(st.lists(st.tuples(*[st.integers(-2, 2)] * 3, st.booleans()), min_size=4, max_size=25), st.integers(0, 2))
def test_delong_is_that_of_all_pairs(rows, reference):
    correct = np.array([label for *_, label in rows])
    correct[:4] = [True, True, False, False]
    uncertainties = np.array([values for *values, _ in rows], dtype=float)
    found = metrics.delong(uncertainties, correct, reference=reference)
    aurocs, covariance = naive_delong(uncertainties, correct)
    spread = covariance.diagonal() + covariance[reference, reference] - 2 * covariance[reference]
    np.testing.assert_allclose(found.standard_error**2, spread, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.difference, aurocs - aurocs[reference], rtol=0, atol=1e-12)


def test_delong_on_a_larger_set_and_its_p_values():
    uncertainties, correct = some_questions(n=400)
    found = metrics.delong(uncertainties, correct)
    aurocs, covariance = naive_delong(uncertainties.to_numpy(), correct)
    contrast = np.array([[-1, 1, 0], [-1, 0, 1]])
    spread = np.diag(contrast @ covariance @ contrast.T)
    np.testing.assert_allclose(found.standard_error[1:] ** 2, spread, rtol=0, atol=1e-15)
    z = contrast @ aurocs / np.sqrt(spread)
    np.testing.assert_allclose(found.p_value[1:], 2 * norm.sf(np.abs(z)), rtol=0, atol=1e-9)
    # The bootstrap estimates the same spread by other means.
    resampled = metrics.resampled_aurocs(uncertainties, correct, n_resamples=2000)
    differences = resampled[:, 1:] - resampled[:, :1]
    np.testing.assert_allclose(differences.std(axis=0), found.standard_error[1:], rtol=0.06)


def test_delong_rejects_a_true_hypothesis_about_as_often_as_it_should():
    rng = np.random.default_rng(5)
    correct = np.arange(120) < 60
    p_values = [metrics.delong(rng.normal(size=(120, 2)) + ~correct[:, None], correct).p_value[1] for _ in range(600)]
    assert 0.03 <= np.mean(np.array(p_values) <= 0.05) <= 0.07  # 0.05, give or take 2.2 standard errors (0.009)


def test_delong_of_columns_that_rank_alike_or_separate_perfectly():
    uncertainty, correct = np.array([0.3, 0.1, 0.7, 0.2, 0.9]), np.array([True, True, False, False, False])
    found = metrics.delong(np.column_stack([uncertainty, np.exp(uncertainty)]), correct)
    assert (found.difference[1], found.standard_error[1], found.p_value[1]) == (0, 0, 1)
    perfect = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = metrics.delong(np.column_stack([perfect, -perfect]), correct)
    assert (found.difference[1], found.standard_error[1], found.p_value[1]) == (-1, 0, 0)


def test_delong_says_what_it_lacks():
    with pytest.raises(ValueError, match="two right and two wrong answers, but 1 and 2 are given"):
        metrics.delong([[1.0], [2.0], [3.0]], [True, False, False])
    with pytest.raises(metrics.OneClassError, match="all 2 are right"):
        metrics.delong([[1.0], [2.0]], [True, True])
    with pytest.raises(ValueError, match="NaN in 1 of 2 rows, first in row 1"):
        metrics.delong([[1.0], [np.nan]], [True, False])


def test_holm_by_hand():
    # Sorted 0.01, 0.03, 0.04: times 3, 2, 1 is 0.03, 0.06, 0.04, and 0.04 may not fall below 0.06.
    np.testing.assert_allclose(metrics.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06], rtol=1e-15)
    np.testing.assert_allclose(metrics.holm([0.5, np.nan, 0.75]), [1.0, np.nan, 1.0])
    assert metrics.holm([]).shape == (0,)


# Multiples of 1/64, so that every product and comparison is exact; at level 1 the cut of corrected values would show.
@given(st.lists(st.integers(0, 64), min_size=1, max_size=8), st.integers(1, 63))
def test_holm_rejects_what_its_procedure_rejects(numerators, numerator):
    p_values, level = [n / 64 for n in numerators], numerator / 64
    rejected = set()
    for rank, row in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[row] * (len(p_values) - rank) > level:
            break
        rejected.add(row)
    corrected = metrics.holm(p_values)
    assert {row for row, p in enumerate(corrected) if p <= level} == rejected


def test_holm_wants_probabilities():
    for bad in ([0.5, 1.5], [-0.1], [[0.5]]):
        with pytest.raises(ValueError, match=r"p_values must be \(A,\) numbers from 0 to 1"):
            metrics.holm(bad)


def test_compared_adds_tests_to_the_bootstrap_table():
    uncertainties, correct = some_questions(n=300)
    uncertainties["noise"] = np.random.default_rng(1).normal(size=300)
    table = metrics.compared(uncertainties, correct, reference="NLL", n_resamples=50, seed=2)
    plain = metrics.bootstrap_auroc(uncertainties, correct, reference="NLL", n_resamples=50, seed=2)
    pd.testing.assert_frame_equal(table[plain.columns], plain)
    added = ["p_value", "p_holm", "significant", "reading", "n_to_decide"]
    assert list(table.columns[len(plain.columns) :]) == added
    np.testing.assert_array_equal(table["p_value"], metrics.delong(uncertainties, correct, reference=1).p_value)
    np.testing.assert_array_equal(table["p_holm"], metrics.holm(table["p_value"]))
    assert table["p_value"].isna().tolist() == [False, True, False, False]
    assert table["significant"].tolist() == [False, False, False, True]
    assert table["significant"].dtype == bool


def test_significance_is_that_of_the_corrected_p_value():
    correct = np.arange(60) < 30
    rng = np.random.default_rng(7)
    better = rng.normal(size=60) + ~correct
    columns = {"PRO": better, "worse": better + rng.normal(size=60), **{f"m{i}": better for i in range(9)}}
    row = metrics.compared(pd.DataFrame(columns), correct, n_resamples=10).iloc[1]
    assert row["p_value"] < 0.05 < row["p_holm"] == pytest.approx(10 * row["p_value"])
    assert not row["significant"]


def test_two_thousand_resamples_of_twenty_methods_take_seconds():
    rng = np.random.default_rng(0)
    correct = rng.random(3408) < 0.5
    methods = ["PRO", *map(str, range(19))]
    uncertainties = pd.DataFrame(rng.normal(size=(3408, 20)) - correct[:, None], columns=methods)
    start = time.perf_counter()
    metrics.compared(uncertainties, correct, n_resamples=2000)
    selective.rejection(uncertainties, correct)
    assert time.perf_counter() - start < 10  # 0.8 s on one free core


def test_methods_apart_are_tested_and_not_counted():
    uncertainties, correct = some_questions()
    table = metrics.compared(uncertainties, correct, apart=["SE"], n_resamples=50).set_index("method")
    assert table.loc["SE", "p_value"] <= 0.05
    assert np.isnan(table.loc["SE", "p_holm"])
    assert not table.loc["SE", "significant"]
    assert table.loc["NLL", "p_holm"] == table.loc["NLL", "p_value"]
    both = metrics.compared(uncertainties, correct, n_resamples=50).set_index("method")
    assert both.loc[["NLL", "SE"], "p_holm"].min() == pytest.approx(min(2 * both["p_value"].min(), 1))


def test_one_wrong_answer_gives_intervals_and_no_test():
    uncertainties, correct = some_questions(20)
    correct[:], correct[4] = True, False
    table = metrics.compared(uncertainties, correct, n_resamples=20)
    assert table["auroc"].notna().all()
    assert table["p_holm"].isna().all()
    assert not table["significant"].any()
