"""Test the numerics of labels by hand: naive forms, worked values, properties."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pro_lib import metrics
from pro_lib.labels import inference, label_model, sampling
from pro_lib.labels.inference import Ranking, WeightedLabels, areas, label_weights


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
def test_the_auroc_of_pseudo_labels_is_that_over_all_pairs_of_different_units(drawn):
    scores, codes, labels = drawn
    right = labels[codes]
    first, second = np.nonzero(codes[:, None] != codes)
    weights = (1 - right[first]) * right[second]
    assume(min(right.sum(), (1 - right).sum(), weights.sum()) > 0.05)
    won = (scores[first] > scores[second]) + (scores[first] == scores[second]) / 2
    ranking = Ranking.from_scores(scores, codes)
    found = areas(ranking, labels).auroc
    np.testing.assert_allclose(found, weights @ won / weights.sum(), rtol=1e-9, atol=1e-9)
    assert np.isnan(areas(ranking, np.ones(len(labels))).auroc).all()


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


def test_weights_have_the_expectation_one_for_every_answer():
    # One of three answers in the first phase, then one of the others with unequal probabilities.
    draws = [(0, 1, 0.2), (0, 2, 0.8), (1, 0, 0.6), (1, 2, 0.4), (2, 0, 0.1), (2, 1, 0.9)]
    expected = np.zeros(3)
    for first, second, probability in draws:
        labels = np.ones(3)
        labels[3 - first - second] = np.nan
        is_first = np.arange(3) == first
        probabilities = np.full(3, probability)
        weights = label_weights(labels, is_first, probabilities, n_first=1, n_second=1)
        expected += probability / 3 * weights
    np.testing.assert_allclose(expected, 1)


def test_labels_given_before_an_early_stop_stand_for_the_others():
    labels = np.array([1, 0, 1, np.nan, np.nan, np.nan])
    is_first = np.array([True, True, False, False, False, False])
    probabilities = np.array([0, 0, 0.4, 0.4, 0.6, 0.6])
    weights = label_weights(labels, is_first, probabilities, n_first=2, n_second=2)
    # Three labels: 6 / 3 in the first phase, 2 / (3 · (1 - 2/6) · 0.4) in the second.
    np.testing.assert_allclose(weights, [2, 2, 2.5, 0, 0, 0])


def test_the_variance_for_the_population_is_that_of_placements():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(30, 1))
    correct = rng.random(30) < 0.4
    placements = metrics.placements(scores[:, 0], correct)
    expected = sum(np.var(placements[members]) / members.sum() for members in (correct, ~correct))
    found = areas(Ranking.from_scores(scores), correct)
    variance, _ = inference.population_variance(found.population)
    np.testing.assert_allclose(variance, expected, rtol=1e-9)


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


def test_clusters_that_are_alike_widen_the_interval():
    influence = np.repeat(np.random.default_rng(2).normal(size=8), 5)[None]
    clusters = np.repeat(np.arange(8), 5)
    by_cluster, freedom = inference.population_variance(influence, clusters=clusters)
    by_answer, _ = inference.population_variance(influence)
    np.testing.assert_allclose(by_cluster, by_answer * 5 * 8 / 7)
    assert freedom[0] <= 7
    assert np.isnan(inference.population_variance(influence, clusters=clusters % 4)[0]).all()


def test_the_first_phase_is_proportional_and_fills_every_bin():
    strata = np.repeat([0, 1, 2], [60, 30, 10])
    rng = np.random.default_rng(3)
    for _ in range(20):
        chosen = sampling.first_phase(strata, 10, rng)
        assert np.bincount(strata[chosen]).tolist() == [6, 3, 1]
        assert len(np.unique(chosen)) == 10
    assert sorted(sampling.first_phase(strata, 200, rng)) == list(range(100))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 30))
def test_inclusion_probabilities_sum_to_the_number_and_keep_the_order(scores, n_second):
    probabilities = sampling.inclusion_probabilities(scores, n_second)
    assert probabilities.min() > 0
    assert probabilities.max() <= 1
    assert probabilities.sum() == pytest.approx(min(n_second, len(scores)))
    ordered = probabilities[np.argsort(scores, kind="stable")]
    assert (np.diff(ordered) >= -1e-12).all()


def test_the_second_phase_has_the_size_and_the_probabilities_that_were_asked_for():
    probabilities = np.array([1.0, 0.7, 0.7, 0.3, 0.2, 0.1])
    rng = np.random.default_rng(4)
    draws = np.array([sampling.second_phase(probabilities, rng) for _ in range(2000)])
    assert draws.shape == (2000, 3)
    error = np.sqrt(probabilities * (1 - probabilities) / 2000)
    assert (np.abs(np.bincount(draws.ravel()) / 2000 - probabilities) <= 4 * error).all()


def test_the_logistic_regression_is_that_of_scikit_learn():
    rng = np.random.default_rng(5)
    features = rng.normal(size=(40, 2))
    labels = rng.random(40) < 0.5
    # The prior of the intercept is half an answer right and half an answer wrong, without features.
    columns = np.vstack([features, np.zeros((2, 2))])
    from sklearn.linear_model import LogisticRegression  # takes a second

    model = LogisticRegression(C=1.0, tol=1e-10)
    model.fit(columns, [*labels, False, True], sample_weight=[*np.ones(40), 0.5, 0.5])
    found = label_model.fit_logistic(features, labels)
    np.testing.assert_allclose(found, [*model.intercept_, *model.coef_[0]], atol=1e-5)


def test_labels_that_features_separate_give_finite_probabilities():
    features = np.repeat([[-1.0], [1.0]], 20, axis=0)
    coefficients = label_model.fit_logistic(features * 100, features[:, 0] > 0)
    probabilities = label_model.predict_logistic(features * 100, coefficients)
    np.testing.assert_allclose(probabilities[[0, -1]], [0.02, 0.98])


def test_a_prediction_does_not_depend_on_the_own_label():
    rng = np.random.default_rng(6)
    features = rng.normal(size=(30, 2))
    labels = (rng.random(30) < 0.5).astype(float)
    labels[20:] = np.nan
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
    scores = sampling.sampling_scores(influence, np.full(4, 0.5))
    np.testing.assert_allclose(scores, np.sqrt(0.5))


def test_the_second_phase_takes_the_answers_that_can_move_the_auroc():
    # The wrong answer 0 of the first phase lies in the middle. The label of an answer moves the
    # AUROC the more, the farther its score is from 0.
    ranking = Ranking.from_scores(np.array([[0.0, 0.5, -4, -3, -2, -1, 1, 2, 3, 4]]).T)
    labels = np.array([0.0, 1.0, *[np.nan] * 8])
    is_first = np.arange(10) < 2
    features = np.zeros((10, 1))
    probabilities = sampling.second_probabilities(ranking, features, labels, is_first, n_second=3)
    assert probabilities[:2].tolist() == [0, 0]
    assert probabilities.sum() == pytest.approx(3)
    assert (np.diff(probabilities[2:6]) < 0).all()
    assert (np.diff(probabilities[6:]) > 0).all()


def estimated_difference(score, labels, scope="population"):
    """Return the difference of the AUROCs of a score and of 1, 2, ..., and its p-value."""
    scores = np.column_stack([np.arange(1.0, len(score) + 1), score])
    model = np.full(len(score), 0.5)
    weighted = WeightedLabels(np.array(labels), np.ones(len(score)), model, scope)
    difference, p_values = weighted.difference(Ranking.from_scores(scores), 0)
    return difference.value[1], difference.low[1], difference.high[1], p_values[1]


def test_an_influence_that_the_labels_hide_by_chance_still_widens_the_interval():
    # The scores exchange two right answers, which both lie below the only wrong one. AUROC is the
    # same, whatever is drawn of these four answers, but one of the two could have been wrong.
    value, low, high, _ = estimated_difference([2.0, 1.0, 3.0, 4.0], [1.0, 1.0, 1.0, 0.0])
    assert value == 0
    assert low < 0 < high


def test_a_difference_that_no_label_can_change_has_no_variance():
    same = [1.0, 2.0, 3.0, 4.0]
    labels = [1.0, 1.0, 0.0, 0.0]
    assert estimated_difference(same, labels) == (0, 0, 0, 1)
    exchanged = [2.0, 1.0, 3.0, 4.0]
    assert estimated_difference(exchanged, labels, "questions") == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("share", "variance", "low", "high"),
    [
        # The variance of 25 answers: on the logit scale the interval would be 0.1 to 1.
        (0.999, 0.999 * 0.001 / 25, 0.86, 1.0),
        # Without variance, a share is its own interval.
        (1.0, 0.0, 1.0, 1.0),
        (0.4, 0.0, 0.4, 0.4),
        # A share that is not between 0 and 1 has none.
        (1.0, 0.01, np.nan, np.nan),
        (-0.1, 0.0, np.nan, np.nan),
    ],
)
def test_the_interval_of_a_share_stays_between_0_and_1(share, variance, low, high):
    ends = inference.share_interval(np.array([share]), np.array([variance]), 30)
    np.testing.assert_array_equal(np.round(ends, 2), [[low], [high]])
