import itertools
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score

from pro_lib import metrics

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


def test_bootstrap_table_holds_quantiles_of_the_paired_resamples():
    uncertainties, correct = some_questions()
    table = metrics.bootstrap_auroc(uncertainties, correct, n_resamples=200, level=0.9, seed=3, reference="NLL")
    resampled = metrics.resampled_aurocs(uncertainties, correct, n_resamples=200, seed=3)
    assert table["method"].tolist() == ["PRO", "NLL", "SE"]
    np.testing.assert_array_equal(table["auroc"], metrics.auroc_columns(uncertainties, correct))
    np.testing.assert_allclose(table[["low", "high"]].T, np.quantile(resampled, [0.05, 0.95], axis=0))
    np.testing.assert_array_equal(table["difference"], table["auroc"] - table["auroc"][1])
    differences = np.quantile(resampled - resampled[:, 1:2], [0.05, 0.95], axis=0)
    np.testing.assert_allclose(table[["difference_low", "difference_high"]].T, differences)
    assert table.loc[1, ["difference", "difference_low", "difference_high"]].tolist() == [0.0, 0.0, 0.0]


def test_bootstrap_covers_the_population_about_as_often_as_it_says():
    # Wrong answers score N(1, 1), right ones N(0, 1): AUROC = Φ(1/√2) = 0.760.
    rng = np.random.default_rng(0)
    correct = np.arange(200) < 100
    covered = 0
    for trial in range(200):
        uncertainty = pd.DataFrame({"PRO": rng.normal(size=200) + ~correct})
        row = metrics.bootstrap_auroc(uncertainty, correct, n_resamples=200, level=0.9, seed=trial).iloc[0]
        covered += row["low"] <= 0.7602 <= row["high"]
    assert 0.84 <= covered / 200 <= 0.95  # 0.9, give or take 2.6 standard errors (0.021)


def test_bootstrap_is_repeatable_and_follows_the_seed():
    uncertainties, correct = some_questions()
    first, again, other = (metrics.bootstrap_auroc(uncertainties, correct, seed=s) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert (first[["low", "high"]] != other[["low", "high"]]).any(axis=None)


def test_bootstrap_without_a_reference_has_no_differences():
    uncertainties, correct = some_questions(n_methods=2)
    table = metrics.bootstrap_auroc(uncertainties, correct, n_resamples=10, reference=None)
    assert list(table.columns) == ["method", "auroc", "low", "high"]


def test_bootstrap_options_are_checked():
    uncertainties, correct = some_questions()
    with pytest.raises(ValueError, match=r"reference 'Deg' is none of the methods \['PRO', 'NLL', 'SE'\]"):
        metrics.bootstrap_auroc(uncertainties, correct, reference="Deg")
    with pytest.raises(ValueError, match="n_resamples must be at least 1, not 0"):
        metrics.bootstrap_auroc(uncertainties, correct, n_resamples=0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1, not 95"):
        metrics.bootstrap_auroc(uncertainties, correct, level=95)


def test_bootstrap_is_fast_enough_for_a_large_set():
    uncertainties, correct = some_questions(n=10_000)
    start = time.perf_counter()
    metrics.bootstrap_auroc(uncertainties, correct, n_resamples=500)
    assert time.perf_counter() - start < 10  # well under 1 s on one free core


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
    with pytest.raises(ValueError, match="uncertainty has 2 rows, but correct 1"):
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
    found = metrics.delong([[3.0, 1.0], [1.0, 2.0], [2.0, 3.0], [2.0, 4.0]], [False, True, True, False])
    assert found.auroc.tolist() == [0.875, 0.5]
    assert found.covariance.tolist() == [[1 / 32, -1 / 16], [-1 / 16, 1 / 4]]
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
    np.testing.assert_allclose(found.auroc, aurocs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-12)
    spread = covariance.diagonal() + covariance[reference, reference] - 2 * covariance[reference]
    np.testing.assert_allclose(found.standard_error**2, spread, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.difference, aurocs - aurocs[reference], rtol=0, atol=1e-12)


def test_delong_on_a_larger_set_and_its_p_values():
    uncertainties, correct = some_questions(n=400)
    found = metrics.delong(uncertainties, correct)
    aurocs, covariance = naive_delong(uncertainties.to_numpy(), correct)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-15)
    contrast = np.array([[-1, 1, 0], [-1, 0, 1]])
    z = contrast @ aurocs / np.sqrt(np.diag(contrast @ covariance @ contrast.T))
    np.testing.assert_allclose(found.p_value[1:], 2 * norm.sf(np.abs(z)), rtol=0, atol=1e-9)
    # The bootstrap estimates the same spread by other means.
    resampled = metrics.resampled_aurocs(uncertainties, correct, n_resamples=2000)
    np.testing.assert_allclose(resampled.std(axis=0), np.sqrt(covariance.diagonal()), rtol=0.06)


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


def test_delong_of_one_method_is_its_variance():
    uncertainties, correct = some_questions(n_methods=1)
    found = metrics.delong(uncertainties, correct)
    assert found.covariance.shape == (1, 1)
    np.testing.assert_allclose(found.covariance, naive_delong(uncertainties.to_numpy(), correct)[1], atol=1e-12)


def test_delong_says_what_it_lacks():
    with pytest.raises(ValueError, match="two right and two wrong answers, but 1 and 2 are given"):
        metrics.delong([[1.0], [2.0], [3.0]], [True, False, False])
    with pytest.raises(ValueError, match="reference must be a column, 0 to 1, not 2"):
        metrics.delong(np.zeros((4, 2)), [True, True, False, False], reference=2)
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
    table = metrics.compared(uncertainties, correct, reference="NLL", n_resamples=50, level=0.9, seed=2)
    plain = metrics.bootstrap_auroc(uncertainties, correct, reference="NLL", n_resamples=50, level=0.9, seed=2)
    pd.testing.assert_frame_equal(table[plain.columns], plain)
    assert list(table.columns[len(plain.columns) :]) == ["p_value", "p_holm", "significant"]
    np.testing.assert_array_equal(table["p_value"], metrics.delong(uncertainties, correct, reference=1).p_value)
    np.testing.assert_array_equal(table["p_holm"], metrics.holm(table["p_value"]))
    assert table["p_value"].isna().tolist() == [False, True, False, False]
    assert table["significant"].tolist() == [False, False, False, True]
    assert table["significant"].dtype == bool
    assert metrics.compared(uncertainties, correct, significance=1.0)["significant"].tolist() == [False, *[True] * 3]


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
    metrics.rejection(uncertainties, correct)
    assert time.perf_counter() - start < 10  # 0.8 s on one free core


def naive_rejection_area(order, correct, n_rejected):
    """Mean accuracy of those kept, the last of `order` rejected first."""
    kept = [[correct[row] for row in order[: len(order) - rejected]] for rejected in range(n_rejected)]
    return np.mean([np.mean(labels) for labels in kept])


def naive_prr(uncertainty, correct, max_rejection):
    n_rejected = int(max_rejection * len(correct))
    generator, ranks, areas = np.random.RandomState(42), np.arange(len(correct)), []
    for _ in range(1000):
        generator.shuffle(ranks)
        areas.append(naive_rejection_area(np.argsort(ranks), correct, n_rejected))
    oracle = naive_rejection_area(np.argsort(~correct, kind="stable"), correct, n_rejected)
    found = naive_rejection_area(np.argsort(uncertainty), correct, n_rejected)
    return (found - np.mean(areas)) / (oracle - np.mean(areas))


def test_prr_by_hand():
    # Right, wrong, right, wrong: accuracies of the first 1 to 4 are 1, 1/2, 2/3, 1/2, mean 2/3. The oracle has
    # right, right, wrong, wrong: 1, 1, 2/3, 1/2, mean 19/24. Random is 1/2. (2/3 - 1/2) / (19/24 - 1/2) = 4/7.
    rows = [1.0, 2.0, 3.0, 4.0], [True, False, True, False]
    assert metrics.prr(*rows, n_random=None) == pytest.approx(4 / 7, abs=1e-15)
    # Rejecting 0 and 1 only: 1/2 and 2/3, as the oracle.
    assert metrics.prr(*rows, n_random=None, max_rejection=0.5) == 1.0


@pytest.mark.parametrize(("n", "max_rejection"), [(9, 1.0), (40, 0.5), (33, 0.3)])
def test_prr_is_that_of_rejecting_one_by_one(n, max_rejection):
    rng = np.random.default_rng(n)
    uncertainty, correct = rng.normal(size=n), rng.random(n) < 0.6
    expected = naive_prr(uncertainty, correct, max_rejection)
    assert metrics.prr(uncertainty, correct, max_rejection=max_rejection) == pytest.approx(expected, abs=1e-12)


def test_prr_of_the_best_and_of_no_information():
    correct = np.arange(50) % 3 == 0
    assert metrics.prr(~correct, correct) == 1.0
    assert metrics.prr(np.zeros(50), correct, n_random=None) == pytest.approx(0, abs=1e-14)
    assert metrics.prr(correct, correct) < -0.5
    # The shuffles estimate the accuracy, and leave the global generator alone.
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert metrics.prr(np.zeros(50), correct) == pytest.approx(0, abs=0.02)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_ties_count_with_the_mean_over_their_orders():
    uncertainty, correct = np.array([1.0, 2.0, 2.0, 2.0, 3.0]), np.array([True, True, False, False, True])
    orders = [[0, *tie, 4] for tie in itertools.permutations([1, 2, 3])]
    expected = np.mean([naive_rejection_area(order, correct, 5) for order in orders])
    assert metrics.auarc(uncertainty, correct) == pytest.approx(expected, abs=1e-15)
    shuffled = [3, 1, 4, 2, 0]
    assert metrics.auarc(uncertainty[shuffled], correct[shuffled]) == pytest.approx(expected, abs=1e-15)


def test_accuracy_coverage_by_hand():
    table = metrics.accuracy_coverage([3.0, 1.0, np.inf, 1.0], [True, True, False, False])
    expected = pd.DataFrame(
        {
            "n_answered": [1, 2, 3, 4],
            "coverage": [0.25, 0.5, 0.75, 1.0],
            "threshold": [1.0, 1.0, 3.0, np.inf],
            "accuracy": [0.5, 0.5, 2 / 3, 0.5],  # one of the two that tie is right
        }
    )
    pd.testing.assert_frame_equal(table, expected)


@given(QUESTIONS)
def test_accuracy_coverage_ends_at_the_accuracy_and_auarc_is_its_mean(rows):
    uncertainty, correct = [float(u) for u, _ in rows], [c for _, c in rows]
    table = metrics.accuracy_coverage(uncertainty, correct)
    assert table["accuracy"].iloc[-1] == pytest.approx(np.mean(correct), abs=1e-12)
    assert metrics.auarc(uncertainty, correct) == pytest.approx(table["accuracy"].mean(), abs=1e-12)


def test_accuracy_is_defined_for_one_class_and_the_ratio_is_not():
    assert metrics.auarc([1.0, 2.0], [True, True]) == 1.0
    assert metrics.accuracy_coverage([1.0, 2.0], [False, False])["accuracy"].tolist() == [0.0, 0.0]
    with pytest.raises(metrics.OneClassError, match="PRR needs right and wrong answers, but all 2 are right"):
        metrics.prr([1.0, 2.0], [True, True])


def test_rejection_holds_prr_and_auarc_of_each_method():
    uncertainties, correct = some_questions()
    table = metrics.rejection(uncertainties, correct, max_rejection=0.5)
    assert table["method"].tolist() == ["PRO", "NLL", "SE"]
    assert table["prr"].tolist() == [metrics.prr(uncertainties[m], correct, max_rejection=0.5) for m in uncertainties]
    assert table["auarc"].tolist() == [metrics.auarc(uncertainties[m], correct) for m in uncertainties]


def test_rejection_options_are_checked():
    rows = [1.0, 2.0, 3.0], [True, False, True]
    for bad in (0.0, 0.5, 1.5, -1.0):
        with pytest.raises(ValueError, match="max_rejection must be at most 1 and reach 2 of the 3 questions, not"):
            metrics.prr(*rows, max_rejection=bad)
    with pytest.raises(ValueError, match="n_random must be at least 1 or None, not 0"):
        metrics.prr(*rows, n_random=0)
    with pytest.raises(ValueError, match="n_random=1 shuffles were all perfect"):
        metrics.prr([1.0, 2.0], [True, False], n_random=1, seed=1)
    with pytest.raises(ValueError, match="NaN in 1 of 3 rows, first in row 2"):
        metrics.prr([1.0, 2.0, np.nan], rows[1])
    with pytest.raises(ValueError, match="accuracy needs at least one question"):
        metrics.auarc([], np.array([], dtype=bool))
    with pytest.raises(ValueError, match=r"uncertainty must have the shape \(n,\), not \(1, 2\)"):
        metrics.accuracy_coverage([[1.0, 2.0]], [True, False])


def test_calibration_by_hand():
    # Right, wrong, right, wrong as uncertainty grows: the middle two pool to 1/2, so 1 -> 1, 2 to 3 -> 1/2, 4 -> 0.
    # On the others 1, 2.5, 4 and 5 (beyond: as 4) have 1, 1/2, 0, 0. Brier: (0 + 1/4 + 0 + 1) / 4.
    # Lower bin: confidence 0, accuracy 1/2; upper: 3/4 and 1. ECE: (1/2 + 1/4) / 2.
    found = metrics.calibration(
        [1.0, 2.0, 3.0, 4.0], [True, False, True, False], [1.0, 2.5, 4.0, 5.0], [True, True, False, True], n_bins=2
    )
    assert found.probability.tolist() == [1, 0.5, 0, 0]
    assert found.brier == 0.3125
    assert found.ece == 0.375
    expected = {"n": [2, 2], "low": [0, 0.5], "high": [0, 1], "confidence": [0, 0.75], "accuracy": [0.5, 1]}
    # Wilson with z = 1.96 and n = 2, z^2 = 3.8415: centre (k + z^2/2) / (n + z^2) = 1/2 for one right of two, half
    # width z sqrt(1/2 + z^2/4) / (n + z^2) = 0.4055; for two right of two from n / (n + z^2) = 0.3424 to 1.
    expected |= {"accuracy_low": [0.0945, 0.3424], "accuracy_high": [0.9055, 1.0]}
    table = pd.DataFrame(expected).astype(dict.fromkeys([*expected][1:], float))
    pd.testing.assert_frame_equal(found.table, table, rtol=0, atol=1e-4)


def naive_isotonic(uncertainty, correct):
    """The max-min formula of isotonic regression on distinct values of minus the uncertainty, ascending."""
    values = np.unique(-uncertainty)
    pools = [[correct[-uncertainty == v] for v in values[a:]] for a in range(len(values))]
    return {
        values[i]: max(
            min(np.concatenate(pools[a][: b - a + 1]).mean() for b in range(i, len(values))) for a in range(i + 1)
        )
        for i in range(len(values))
    }


@given(QUESTIONS)
def test_calibration_fits_isotonic_regression(rows):
    uncertainty, correct = np.array([u for u, _ in rows], dtype=float), np.array([c for _, c in rows])
    expected = naive_isotonic(uncertainty, correct)
    found = metrics.calibration(uncertainty, correct, uncertainty, correct)
    np.testing.assert_allclose(found.probability, [expected[-u] for u in uncertainty], rtol=0, atol=1e-12)
    assert found.ece == pytest.approx(0, abs=1e-12)  # each level of the fit is the accuracy of its pool


def test_bins_hold_equal_numbers_and_ties_are_not_split():
    rng = np.random.default_rng(0)
    probability, correct = rng.random(53), rng.random(53) < 0.5
    table = metrics._reliability(probability, correct, 5)
    assert sorted(table["n"]) == [10, 10, 11, 11, 11]
    parts = np.split(np.argsort(probability), np.cumsum(table["n"])[:-1])
    np.testing.assert_allclose(table["accuracy"], [correct[part].mean() for part in parts])
    np.testing.assert_allclose(table["confidence"], [probability[part].mean() for part in parts])
    halves = metrics._reliability(np.array([0.1] * 6 + [0.2, 0.3, 0.4, 0.5]), np.arange(10) % 2 == 0, 2)
    assert halves["n"].tolist() == [6, 4]  # the middle of the six lies in the lower half
    tied = metrics._reliability(np.array([0.2] * 7 + [0.9] * 3), np.arange(10) % 2 == 0, 10)
    assert tied["n"].tolist() == [7, 3]
    assert tied["low"].tolist() == tied["high"].tolist() == [0.2, 0.9]


def test_calibration_helps_where_it_is_fitted_and_shows_where_it_does_not_carry_over():
    rng = np.random.default_rng(0)
    uncertainty = rng.exponential(size=4000)
    correct = rng.random(4000) < np.exp(-uncertainty)  # NLL of a calibrated model
    half = slice(None, 2000), slice(2000, None)
    found = metrics.calibration(uncertainty[half[0]], correct[half[0]], uncertainty[half[1]], correct[half[1]])
    assert found.ece < 0.05
    assert found.brier < correct[half[1]].var()  # better than giving every answer the accuracy
    harder = metrics.calibration(uncertainty, correct, uncertainty, correct & (np.arange(4000) % 2 == 0))
    assert harder.ece > 0.2


def test_a_bin_weighs_what_it_holds():
    # The fit is 1 below and 0 above; three questions have 1 and all are wrong, one has 0 and is wrong: (3 + 0) / 4.
    found = metrics.calibration([1.0, 2.0], [True, False], [1.0, 1.0, 1.0, 2.0], [False] * 4)
    assert found.table["n"].tolist() == [1, 3]
    assert found.ece == 0.75


def test_infinite_uncertainty_is_calibrated_as_the_largest():
    found = metrics.calibration(
        [1.0, 2.0, np.inf, 3.0], [True, True, False, False], [np.inf, -np.inf, 3.0], [False, True, False]
    )
    assert found.probability.tolist() == [0, 1, 0]


def test_calibration_says_what_is_wrong():
    good = [1.0, 2.0], [True, False]
    with pytest.raises(metrics.OneClassError, match=r"regression on validation needs .* but all 2 are wrong"):
        metrics.calibration([1.0, 2.0], [False, False], *good)
    with pytest.raises(ValueError, match="validation_uncertainty is NaN in 1 of 2 rows"):
        metrics.calibration([1.0, np.nan], good[1], *good)
    with pytest.raises(ValueError, match=r"^uncertainty is NaN in 1 of 2 rows"):
        metrics.calibration(*good, [np.nan, 1.0], good[1])
    with pytest.raises(ValueError, match="validation_uncertainty has 2 rows, but validation_correct 1"):
        metrics.calibration(good[0], [True], *good)
    with pytest.raises(ValueError, match="finite validation_uncertainty and at least one question"):
        metrics.calibration([np.inf, -np.inf], good[1], *good)
    with pytest.raises(ValueError, match="finite validation_uncertainty and at least one question"):
        metrics.calibration(*good, [], np.array([], dtype=bool))
    with pytest.raises(ValueError, match="n_bins must be at least 1, not 0"):
        metrics.calibration(*good, *good, n_bins=0)
    assert metrics.calibration(*good, [1.0], [True]).brier == 0  # one class to report on is no obstacle


def test_the_paired_difference_of_one_labelling_by_hand():
    # Wrong, right, wrong, right: the first ranks all pairs rightly, the second none.
    correct = np.array([False, True, False, True])
    difference, low, high = metrics.paired_difference([4.0, 1, 3, 2], correct, [1.0, 4, 2, 3], correct)
    assert difference == 1.0
    assert low <= 1.0 == high


@given(QUESTIONS, QUESTIONS)
def test_the_paired_difference_is_that_of_the_two_aurocs(rows, others):
    n = min(len(rows), len(others))
    first, second = ([*zip(*r[:n], strict=True)] for r in (rows, others))
    if min(len(set(first[1])), len(set(second[1]))) < 2:
        with pytest.raises(metrics.OneClassError, match="needs right and wrong answers on both sides"):
            metrics.paired_difference(*first, *second, n_resamples=3)
        return
    sides = [(np.array(u, dtype=float), np.array(c)) for u, c in (first, second)]
    difference, low, high = metrics.paired_difference(*sides[0], *sides[1], n_resamples=5)
    expected = [roc_auc_score(~c, u) for u, c in sides]
    assert difference == pytest.approx(expected[0] - expected[1], abs=1e-12)
    assert low <= high or (np.isnan(low) and np.isnan(high))


def test_the_paired_interval_is_that_of_resampled_questions():
    uncertainties, correct = some_questions()
    other = ~correct[::-1]
    difference, low, high = metrics.paired_difference(
        uncertainties["PRO"], correct, uncertainties["NLL"], other, n_resamples=50, seed=3
    )
    drawn = np.random.default_rng(3).integers(len(correct), size=(50, len(correct)))
    naive = [
        roc_auc_score(~correct[rows], uncertainties["PRO"].iloc[rows])
        - roc_auc_score(~other[rows], uncertainties["NLL"].iloc[rows])
        for rows in drawn
    ]
    assert (low, high) == pytest.approx(tuple(np.quantile(naive, [0.025, 0.975])), abs=1e-12)
    assert low < difference < high


def test_methods_apart_are_tested_and_not_counted():
    uncertainties, correct = some_questions()
    table = metrics.compared(uncertainties, correct, apart=["SE"], n_resamples=50).set_index("method")
    assert table.loc["SE", "p_holm"] == table.loc["SE", "p_value"]
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


@given(st.integers(1, 4000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_wilson_interval_is_scipys(counted):
    k, n = counted
    expected = binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(metrics.wilson_interval(k / n, n), [expected.low, expected.high], rtol=0, atol=1e-14)


def test_a_wilson_interval_is_exact_at_its_ends_and_missing_where_nothing_was_counted():
    low, high = metrics.wilson_interval([0, 1, 0, np.nan], [7, 7, 0, 0])
    assert (low[0], high[1]) == (0, 1)
    assert np.isnan([*low[2:], *high[2:]]).all()
