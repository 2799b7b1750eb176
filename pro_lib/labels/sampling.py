"""Which answers to label, in two phases: pure functions of arrays, in float64."""

import numpy as np
from numpy.typing import ArrayLike

from pro_lib.labels.inference import Ranking, areas
from pro_lib.labels.label_model import fit_logistic, predict_logistic
from pro_lib.metrics.roc import BoolArray, FloatArray, IntArray

_UNIFORM_SHARE = 0.3  # share of the second phase that is drawn without regard to the influence
FEWEST_FIRST = 20


def first_size(n_labels: int, n_answers: int) -> int:
    """Return how many labels belong to the first phase: a third, at least 20, at most all.

    Example:
        >>> first_size(100, 1000), first_size(30, 1000), first_size(10, 1000)
        (33, 20, 10)
    """
    return min(max(FEWEST_FIRST, round(n_labels / 3)), n_labels, n_answers)


def first_phase(strata: ArrayLike, n_first: int, rng: np.random.Generator) -> IntArray:
    """Choose answers systematically and proportionally over strata.

    The answers are put in random order within each stratum, the strata one after the other, and
    every answer after n / n_first others is taken, from a random start. Each answer has the same
    probability.

    Args:
        strata: (n,) number of the stratum of each answer.
        n_first: how many to choose; all if there are fewer answers.
        rng: the source of randomness.

    Returns:
        (n_first,) positions in random order.
    """
    strata = np.asarray(strata)
    n = len(strata)
    shuffled = rng.permutation(n)
    if n_first >= n:
        return shuffled
    ordered = shuffled[np.argsort(strata[shuffled], kind="stable")]
    chosen = ((rng.random() + np.arange(n_first)) * n / n_first).astype(np.intp)
    return rng.permutation(ordered[chosen])


def sampling_scores(influence: FloatArray, model: FloatArray) -> FloatArray:
    """Return how much the label of each answer matters, (n,).

    Two terms are added. One is the share of the answer in Σ h² r̂ (1 - r̂) for the AUROC of the
    reference. The other is its mean share for the differences of the other AUROCs to it. The score
    is the square root of the sum. It is the best inclusion probability up to a factor.

    Args:
        influence: (M, n) of the labels on M AUROCs, the reference first.
        model: (n,) predicted probabilities that the answers are right.

    Returns:
        (n,) scores that are not negative; 0 if no AUROC exists.

    Example:
        >>> sampling_scores(np.array([[0.3, -0.4, 0.0]]), np.full(3, 0.5))
        array([0.6, 0.8, 0. ])
    """
    if np.isnan(influence).any():
        return np.zeros(len(model))
    parts = np.vstack([influence[:1], influence[1:] - influence[0]])
    squares = parts**2 * (model * (1 - model))
    totals = squares.sum(axis=1, keepdims=True)
    has_influence = totals > 1e-20
    shares = squares / np.where(has_influence, totals, np.inf)
    differing = shares[1:][has_influence[1:, 0]]
    mean = differing.mean(axis=0) if len(differing) else 0.0
    scores: FloatArray = np.sqrt(shares[0] + mean)
    return scores


def second_probabilities(
    ranking: Ranking,
    features: FloatArray,
    labels: FloatArray,
    is_first: BoolArray,
    *,
    n_second: int,
) -> FloatArray:
    """Return the inclusion probabilities (G,) of the second phase, given the first labels.

    Args:
        ranking: the scores, the reference first.
        features: (G, F) of all answers.
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        is_first: (G,) whether the answer was chosen in the first phase; its probability is 0.
        n_second: how many answers to choose.

    Returns:
        (G,) probabilities; their sum is `n_second`, or the number of answers that are left.
    """
    has_label = is_first & ~np.isnan(labels)
    model = predict_logistic(features, fit_logistic(features[has_label], labels[has_label]))
    influence = areas(ranking, np.where(has_label, labels, model)).influence
    scores = sampling_scores(influence[:, ~is_first], model[~is_first])
    probabilities = np.zeros(len(labels))
    probabilities[~is_first] = inclusion_probabilities(scores, n_second)
    return probabilities


def inclusion_probabilities(scores: ArrayLike, n_second: int) -> FloatArray:
    """Return probabilities (n,) with the sum `n_second`, proportional to scores plus a constant.

    Args:
        scores: (n,) not negative; if all are 0, the probabilities are equal.
        n_second: expected number of answers; n or more gives 1 everywhere.

    Example:
        >>> inclusion_probabilities([1.0, 1.0, 8.0], 2)
        array([0.5, 0.5, 1. ])
    """
    scores = np.asarray(scores, dtype=np.float64)
    n = len(scores)
    if n_second >= n:
        return np.ones(n)
    total = scores.sum()
    mixture = np.full(n, 1 / n)
    if total > 0:
        mixture = (1 - _UNIFORM_SHARE) * scores / total + _UNIFORM_SHARE / n
    probabilities = np.zeros(n)
    is_sure = np.zeros(n, dtype=bool)
    # Each round fixes the answers that reach 1, and shares the rest among the others.
    for _ in range(n):
        left = n_second - np.count_nonzero(is_sure)
        rest = mixture[~is_sure].sum()
        probabilities = np.where(is_sure, 1.0, mixture * left / rest)
        exceeds = (probabilities > 1) & ~is_sure
        if not exceeds.any():
            break
        is_sure |= exceeds
    return probabilities


def second_phase(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Choose answers with given probabilities: systematic sampling (Hartley and Rao 1962).

    The number chosen is the sum of the probabilities, rounded up or down if that is not an integer.

    Args:
        probabilities: (n,) between 0 and 1.
        rng: the source of randomness.

    Returns:
        Positions in random order.
    """
    order = rng.permutation(len(probabilities))
    # Rounding first keeps a sum such as 66.9999999 from losing an answer.
    cumulated = np.round(np.cumsum(probabilities[order]), 9)
    steps = np.floor(np.append(0.0, cumulated) + rng.random())
    return rng.permutation(order[np.diff(steps) > 0])
