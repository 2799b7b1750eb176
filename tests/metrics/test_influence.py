import numpy as np
import pytest
from hypothesis import given
from test_auroc import QUESTIONS

from pro_lib import metrics

# Wrong answers have the scores 3 and 1, right ones 2, 0 and 0: the wrong one wins 3 and 2 of 3
# pairs. The right ones lose 1, 2 and 2 of 2 pairs.
SCORES = [3.0, 1.0, 2.0, 0.0, 0.0]
CORRECT = np.array([False, False, True, True, True])


def test_the_placement_of_a_question_is_the_share_of_its_pairs_that_the_wrong_answer_wins():
    shares = metrics.placements(SCORES, CORRECT)
    np.testing.assert_allclose(shares, [1, 2 / 3, 1 / 2, 1, 1], rtol=1e-12)
    assert metrics.auroc(SCORES, CORRECT) == pytest.approx(5 / 6)


@given(QUESTIONS)
def test_the_mean_placement_of_each_class_is_the_auroc(questions):
    scores, correct = zip(*questions, strict=True)
    shares = metrics.placements(scores, correct)
    labels = np.asarray(correct).astype(bool)
    area = metrics.auroc(scores, correct)
    np.testing.assert_allclose([shares[labels].mean(), shares[~labels].mean()], area, atol=1e-12)


def test_the_squares_of_influences_sum_to_delongs_variance():
    shares = metrics.placements(SCORES, CORRECT)
    variance = np.var([1, 2 / 3], ddof=1) / 2 + np.var([1 / 2, 1, 1], ddof=1) / 3
    moves = metrics.influence(shares, CORRECT)
    assert metrics.influence_error(moves) ** 2 == pytest.approx(variance)


def test_the_influences_of_a_cluster_are_added_before_they_are_squared():
    # The sums of the clusters are 3 and -3: variance 2 / 1 * (9 + 9).
    moves = np.array([1.0, 2.0, -3.0])
    assert metrics.influence_error(moves, ["a", "a", "b"]) == pytest.approx(6.0)
    assert metrics.influence_error(moves) == pytest.approx(np.sqrt(14))
