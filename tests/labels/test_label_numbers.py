"""Test the numerics of labels by hand: naive forms, worked values, properties."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from pro_lib import metrics
from pro_lib.labels import answers, drawing, inference, label_model
from pro_lib.labels.inference import Ranking, Sample, areas, label_weights


def naive_auroc(scores, codes, labels):
    """AUROC over all pairs of answers of different units, (M,)."""
    right = np.asarray(labels)[codes]
    result = []
    for column in np.asarray(scores).T:
        won = total = 0.0
        for i, j in itertools.permutations(range(len(column)), 2):
            if codes[i] != codes[j]:
                weight = (1 - right[i]) * right[j]
                won += weight * ((column[i] > column[j]) + 0.5 * (column[i] == column[j]))
                total += weight
        result.append(won / total)
    return np.array(result)


@st.composite
def labelled_scores(draw):
    """Draw scores with ties, units, and pseudo-labels, some of them outside [0, 1]."""
    n_units = draw(st.integers(3, 8))
    extra = draw(st.lists(st.integers(0, n_units - 1), max_size=4))
    codes = np.array([*range(n_units), *extra])
    levels = st.lists(st.integers(0, 4), min_size=len(codes), max_size=len(codes))
    scores = np.column_stack([draw(levels), draw(levels)]).astype(float)
    labels = np.array(draw(st.lists(st.floats(-0.3, 1.3), min_size=n_units, max_size=n_units)))
    labels[:2] = 0.9, 0.1
    return scores, codes, labels


@given(labelled_scores())
def test_the_auroc_of_pseudo_labels_is_that_over_all_pairs(drawn):
    scores, codes, labels = drawn
    result = areas(Ranking.from_scores(scores, codes), labels).auroc
    right = labels[codes]
    n_pairs = (1 - right).sum() * right.sum() - (
        np.bincount(codes) ** 2 * labels * (1 - labels)
    ).sum()
    if min(right.sum(), (1 - right).sum(), n_pairs) < 0.05:
        return
    np.testing.assert_allclose(result, naive_auroc(scores, codes, labels), rtol=1e-9, atol=1e-9)


@given(labelled_scores())
def test_the_influence_is_the_derivative_by_each_label(drawn):
    scores, codes, labels = drawn
    labels = np.clip(labels, 0.05, 0.95)
    ranking = Ranking.from_scores(scores, codes)
    found = areas(ranking, labels).influence
    for unit in range(len(labels)):
        up, down = labels.copy(), labels.copy()
        up[unit] += 1e-6
        down[unit] -= 1e-6
        slope = (areas(ranking, up).auroc - areas(ranking, down).auroc) / 2e-6
        np.testing.assert_allclose(found[:, unit], slope, atol=1e-6)


def test_the_auroc_of_three_answers_by_hand():
    # Wrong 0.3 is above right 0.1 and tied with right 0.3: (1 + 1/2) / 2.
    result = areas(Ranking.from_scores([[0.1], [0.3], [0.3]]), [1, 1, 0])
    assert result.auroc.tolist() == [0.75]
    # Placements: wrong 3/4; right 1 and 1/2. Deviations over the class sizes: 0, 1/8 and -1/8.
    np.testing.assert_allclose(result.population, [[0.125, -0.125, 0.0]])


def test_labels_of_one_class_have_no_auroc():
    assert np.isnan(areas(Ranking.from_scores([[0.1], [0.2]]), [1, 1]).auroc).all()


def test_weights_have_the_expectation_one_for_every_answer():
    # One of four answers in the first phase, then one of the others with unequal probabilities.
    probabilities = {
        0: [0, 0.2, 0.3, 0.5],
        1: [0.6, 0, 0.3, 0.1],
        2: [0.25, 0.25, 0, 0.5],
        3: [0.1, 0.1, 0.8, 0],
    }
    expected = np.zeros(4)
    for first, second_probabilities in probabilities.items():
        for second, probability in enumerate(second_probabilities):
            if probability:
                labels = np.where(np.isin(range(4), [first, second]), 1.0, np.nan)
                is_first = np.arange(4) == first
                weights = label_weights(
                    labels, is_first, np.array(second_probabilities), n_first=1, n_second=1
                )
                expected += probability / 4 * weights
    np.testing.assert_allclose(expected, 1)


def test_labels_given_before_an_early_stop_stand_for_the_others():
    labels = np.array([1, 0, 1, np.nan, np.nan, np.nan])
    is_first = np.array([True, True, False, False, False, False])
    probabilities = np.array([0, 0, 0.4, 0.4, 0.6, 0.6])
    weights = label_weights(labels, is_first, probabilities, n_first=2, n_second=2)
    # Three labels: 6 / 3 in the first phase, 2 / (3 · (1 - 2/6) · 0.4) in the second.
    np.testing.assert_allclose(weights, [2, 2, 2.5, 0, 0, 0])


def test_with_all_labels_the_estimate_is_the_auroc_and_has_no_error_at_hand():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 2))
    correct = (rng.random(40) < 0.5).astype(float)
    is_first = np.arange(40) < 15
    features = rng.normal(size=(40, 1))
    weights = label_weights(correct, is_first, np.ones(40), n_first=15, n_second=25)
    np.testing.assert_allclose(weights, 1)
    model = label_model.cross_fitted(features, correct)
    sample = Sample(correct, weights, model, "questions")
    auroc = sample.aurocs(Ranking.from_scores(scores)).auroc()
    expected = metrics.auroc_intervals(scores, correct)[0]
    np.testing.assert_allclose(auroc.value, expected, rtol=1e-12)
    np.testing.assert_allclose([auroc.low, auroc.high], [expected, expected], rtol=1e-9)


def test_the_variance_for_the_population_is_that_of_placements():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(30, 1))
    correct = rng.random(30) < 0.4
    wrong, right = scores[~correct, 0], scores[correct, 0]
    of_wrong = [(wrong_score > right).mean() for wrong_score in wrong]
    of_right = [(right_score < wrong).mean() for right_score in right]
    expected = np.var(of_wrong) / len(wrong) + np.var(of_right) / len(right)
    variance, _ = inference.population_variance(
        areas(Ranking.from_scores(scores), correct.astype(float)).population
    )
    np.testing.assert_allclose(variance, expected, rtol=1e-9)


def test_residuals_of_zero_do_not_make_the_variance_zero():
    model = np.array([0.98, 0.02, 0.5, 0.5])
    labels = np.array([0.98, 0.02, np.nan, np.nan])
    variance, _ = inference.label_variance(np.ones((1, 4)), np.array([2, 2, 0, 0]), model, labels)
    # No residual says anything, so the prediction counts alone.
    # It is the mean of 2 · (2 - 1) · 2 · 0.0196 of the
    # labels and (4/2 - 1) (2 · 0.0196 + 2 · 0.25) of all answers.
    np.testing.assert_allclose(variance, [(0.0784 + 0.5392) / 2])


def test_the_variance_of_labels_by_hand():
    # Residuals 0.5 and -0.5 with weights 2 and 3: terms 2 · 0.25 and 6 · 0.25;
    # effective number 2² / (0.5² + 1.5²).
    labels = np.array([1, 0, np.nan, np.nan, np.nan])
    variance, freedom = inference.label_variance(
        np.ones((1, 5)), np.array([2, 3, 0, 0, 0]), np.full(5, 0.5), labels
    )
    predicted = ((2 + 6) * 0.25 + (5 / 2 - 1) * 5 * 0.25) / 2
    np.testing.assert_allclose(variance, [(1.6 * 2 + 2 * predicted) / 3.6])
    np.testing.assert_allclose(freedom, [4.8])


def test_a_difference_that_no_label_can_change_has_no_variance():
    labels = np.array([1, 0, 0, 1, 1, 0, np.nan, np.nan])
    features = np.zeros((8, 1))
    weights = label_weights(labels, ~np.isnan(labels), np.ones(8), n_first=6, n_second=0)
    scores = np.repeat(np.arange(8.0)[:, None], 2, axis=1)
    sample = Sample(labels, weights, label_model.cross_fitted(features, labels))
    estimates = sample.aurocs(Ranking.from_scores(scores))
    assert (estimates.auroc().high > estimates.auroc().low).all()
    difference, p_values = estimates.difference(0)
    for values in (difference.value, difference.low, difference.high):
        np.testing.assert_array_equal(values, np.zeros(2))
    np.testing.assert_array_equal(p_values, np.ones(2))


def test_clusters_that_are_alike_widen_the_interval():
    influence = np.repeat(np.random.default_rng(2).normal(size=8), 5)[None]
    clusters = np.repeat(np.arange(8), 5)
    by_cluster, freedom = inference.population_variance(influence, clusters=clusters)
    by_answer, _ = inference.population_variance(influence)
    np.testing.assert_allclose(by_cluster, by_answer * 5 * 8 / 7)
    assert freedom[0] <= 7
    assert np.isnan(inference.population_variance(influence, clusters=clusters % 4)[0]).all()


def test_pseudo_labels_by_hand():
    sample = Sample(np.array([1, 0, np.nan]), np.array([3, 1, 0]), np.array([0.5, 0.2, 0.9]))
    np.testing.assert_allclose(sample.pseudo, [2.0, 0.0, 0.9])


def test_the_first_phase_is_proportional_and_fills_every_bin():
    strata = np.repeat([0, 1, 2], [60, 30, 10])
    rng = np.random.default_rng(3)
    for _ in range(20):
        chosen = drawing.first_phase(strata, 10, rng)
        assert np.bincount(strata[chosen]).tolist() == [6, 3, 1]
        assert len(np.unique(chosen)) == 10
    assert sorted(drawing.first_phase(strata, 200, rng)) == list(range(100))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 30), st.floats(0.05, 1))
def test_inclusion_probabilities_sum_to_the_number_and_keep_the_order(scores, n_second, uniform):
    probabilities = drawing.inclusion_probabilities(scores, n_second, uniform=uniform)
    assert probabilities.min() > 0
    assert probabilities.max() <= 1
    assert probabilities.sum() == pytest.approx(min(n_second, len(scores)))
    ordered = probabilities[np.argsort(scores, kind="stable")]
    assert (np.diff(ordered) >= -1e-12).all()


def test_the_second_phase_has_the_size_and_the_probabilities_that_were_asked_for():
    probabilities = np.array([1.0, 0.7, 0.7, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(4)
    counts = np.zeros(6)
    for _ in range(4000):
        chosen = drawing.second_phase(probabilities, rng)
        assert len(chosen) == 3
        counts[chosen] += 1
    # Four standard errors.
    assert (
        np.abs(counts / 4000 - probabilities)
        <= 4 * np.sqrt(probabilities * (1 - probabilities) / 4000)
    ).all()


def test_the_logistic_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(5)
    features = rng.normal(size=(40, 3))
    labels = (rng.random(40) < 1 / (1 + np.exp(-features[:, 0]))).astype(float)
    # The prior of the intercept is half an answer right and half an answer wrong, without features.
    columns = np.vstack([features, np.zeros((2, 3))])
    model = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000)
    model.fit(columns, [*labels, 0, 1], sample_weight=[*np.ones(40), 0.5, 0.5])
    expected = [model.intercept_[0], *model.coef_[0]]
    np.testing.assert_allclose(
        label_model.fit_logistic(features, labels, penalty=2.0), expected, atol=1e-5
    )


def test_labels_that_features_separate_give_finite_probabilities():
    features = np.repeat([[-1.0], [1.0]], 20, axis=0)
    coefficients = label_model.fit_logistic(features * 100, features[:, 0] > 0)
    probabilities = label_model.predict_logistic(features * 100, coefficients)
    np.testing.assert_allclose(probabilities[[0, -1]], [0.02, 0.98])


def test_a_prediction_does_not_depend_on_the_own_label():
    rng = np.random.default_rng(6)
    features = rng.normal(size=(30, 2))
    labels = np.where(np.arange(30) < 20, (rng.random(30) < 0.5).astype(float), np.nan)
    predicted = label_model.cross_fitted(features, labels)
    for answer in range(20):
        flipped = labels.copy()
        flipped[answer] = 1 - labels[answer]
        again = label_model.cross_fitted(features, flipped)
        assert again[answer] == predicted[answer]
        assert (again != predicted).any()


def test_answers_that_matter_for_a_difference_are_chosen_more_often():
    # Both AUROCs depend on the first two answers alike;
    # only the third and the fourth change the difference.
    influence = np.array([[0.1, -0.1, 0.0, 0.0], [0.1, -0.1, 0.2, -0.2]])
    scores = drawing.sampling_scores(influence, np.full(4, 0.5))
    np.testing.assert_allclose(scores, np.sqrt(0.5))


def test_the_second_phase_knows_the_labels_of_the_first():
    rng = np.random.default_rng(7)
    ranking = Ranking.from_scores(rng.normal(size=(30, 2)))
    features = rng.normal(size=(30, 1))
    is_first = np.arange(30) < 10
    labels = np.where(is_first, (rng.random(30) < 0.5).astype(float), np.nan)
    probabilities = drawing.second_probabilities(ranking, features, labels, is_first, n_second=6)
    model = label_model.predict_logistic(
        features, label_model.fit_logistic(features[:10], labels[:10])
    )
    influence = areas(ranking, np.where(is_first, labels, model)).influence[:, 10:]
    scores = drawing.sampling_scores(influence, model[10:])
    np.testing.assert_array_equal(probabilities[:10], 0)
    np.testing.assert_allclose(probabilities[10:], 6 * (0.7 * scores / scores.sum() + 0.3 / 20))


def test_rouge_bins_have_the_edges_0_and_03_and_06_and_1():
    values = [0, 1e-9, 0.3, 0.31, 0.6, 0.61, 0.999, 1.0]
    assert answers.rouge_bin(values).tolist() == [0, 1, 1, 2, 2, 3, 3, 4]


def test_an_influence_that_the_labels_hide_by_chance_still_widens_the_interval():
    # The scores exchange two right answers, which both lie below the only wrong one. AUROC is the
    # same, whatever is drawn of these four answers, but one of the two could have been wrong.
    ranking = Ranking.from_scores([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0], [4.0, 4.0]])
    labels = np.array([1.0, 1.0, 1.0, 0.0])
    sample = Sample(labels, np.ones(4), np.full(4, 0.5))
    difference, _ = sample.aurocs(ranking).difference(0)
    assert difference.value[1] == 0
    assert difference.low[1] < 0 < difference.high[1]
    at_hand, _ = replace(sample, scope="questions").aurocs(ranking).difference(0)
    assert (at_hand.low[1], at_hand.high[1]) == (0, 0)


def test_the_predicted_variance_by_hand():
    found = areas(Ranking.from_scores([[1.0], [2.0]]), [1, 0])
    # The only pair is won, so a right answer below and a wrong answer above have no influence.
    # The other labels would have lost half a pair, of which ties count half.
    assert found.if_right.tolist() == [[0.0, -0.5]]
    assert found.if_wrong.tolist() == [[-0.5, 0.0]]
    sample = Sample(np.array([1.0, 0.0]), np.ones(2), np.array([0.8, 0.4]))
    variance, _ = inference.AurocEstimates(sample, found)._variance(found)
    assert variance == pytest.approx([0.4 * 0.25 + 0.2 * 0.25])


NAN = np.nan


@pytest.mark.parametrize(
    ("share", "variance", "freedom", "low", "high"),
    [
        # The variance of 25 answers: on the logit scale the interval would be 0.1 to 1.
        (0.999, 0.999 * 0.001 / 25, 30.0, 0.86, 1.0),
        # Without variance, a share is its own interval.
        (0.0, 0.0, 3.0, 0.0, 0.0),
        (1.0, 0.0, 3.0, 1.0, 1.0),
        (0.4, 0.0, 3.0, 0.4, 0.4),
        # A share that is not between 0 and 1 has none.
        (1.0, 0.01, 3.0, NAN, NAN),
        (1.1, 0.01, 3.0, NAN, NAN),
        (-0.1, 0.0, 3.0, NAN, NAN),
    ],
)
def test_the_interval_of_a_share_stays_between_0_and_1(share, variance, freedom, low, high):
    ends = inference.share_interval(np.array([share]), np.array([variance]), freedom)
    np.testing.assert_array_equal(np.round(ends, 2), [[low], [high]])
