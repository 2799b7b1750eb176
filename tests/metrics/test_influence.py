import numpy as np
import pytest
from hypothesis import given
from test_auroc import QUESTIONS

from pro_lib import metrics


@given(QUESTIONS)
def test_the_mean_placement_of_each_class_is_the_auroc(questions):
    scores, correct = zip(*questions, strict=True)
    shares = metrics.placements(scores, correct)
    labels = np.array(correct)
    area = metrics.auroc(scores, correct)
    np.testing.assert_allclose([shares[labels].mean(), shares[~labels].mean()], area, atol=1e-12)


def test_the_squares_of_influences_sum_to_delongs_variance():
    # Wrong answers have the scores 3 and 1, right ones 2, 0 and 0: the wrong ones win 3 and 2 of 3
    # pairs, and the right ones lose 1, 2 and 2 of 2 pairs.
    correct = np.array([False, False, True, True, True])
    shares = metrics.placements([3.0, 1.0, 2.0, 0.0, 0.0], correct)
    variance = np.var([1, 2 / 3], ddof=1) / 2 + np.var([1 / 2, 1, 1], ddof=1) / 3
    error = metrics.influence_error(metrics.influence(shares, correct))
    assert error**2 == pytest.approx(variance)
