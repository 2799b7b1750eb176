"""The share of each question in an AUROC, from which variances of paired differences follow."""

import numpy as np
from numpy.typing import ArrayLike

from pro_lib.metrics.roc import BoolArray, FloatArray, aligned, cluster_codes, pairs_won


def placements(uncertainty: ArrayLike, correct: ArrayLike) -> FloatArray:
    """Return the placement of each question: the share of its pairs that the wrong answer wins.

    The mean over the wrong answers, and the mean over the right answers, is the AUROC.

    Args:
        uncertainty: the scores (n,), higher = more uncertain.
        correct: (n,); True for a right answer.

    Returns:
        The placements (n,).

    Raises:
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> placements([0.1, 0.5, 0.3], [True, False, True]).tolist()
        [1.0, 1.0, 1.0]
    """
    values, labels = aligned(uncertainty, correct)
    won_by_wrong, won_by_right = pairs_won(values[:, None], labels)
    shares = np.empty(len(labels))
    shares[~labels] = won_by_wrong[0] / labels.sum()
    shares[labels] = 1 - won_by_right[0] / (~labels).sum()
    return shares


def influence(values: FloatArray, correct: BoolArray) -> FloatArray:
    """Return how much each question moves an AUROC away from its mean.

    The sum of the squares is DeLong's variance of the AUROC. Influences of two AUROCs may be
    subtracted, even if the AUROCs have different labels, because they belong to the same questions.

    Args:
        values: placements (n,), or their mean over several AUROCs.
        correct: (n,); True for a right answer.

    Example:
        >>> correct = np.array([True, False, True, False])
        >>> moves = influence(placements([0.1, 0.9, 0.6, 0.5], correct), correct)
        >>> moves.round(3).tolist()
        [0.177, 0.177, -0.177, -0.177]
    """
    result = np.zeros(len(values))
    for members in (correct, ~correct):
        n = members.sum()
        # A class of one answer says nothing about its variance.
        scale = np.sqrt(n / (n - 1)) if n > 1 else 1.0
        result[members] = scale * (values[members] - values[members].mean()) / n
    return result


def influence_error(values: FloatArray, clusters: ArrayLike | None = None) -> float:
    """Return the standard error of a quantity from the influences of the questions (n,).

    Args:
        values: the influences.
        clusters: (n,) names of clusters of questions that depend on each other; None for
            independent questions.

    Example:
        >>> influence_error(np.array([0.1, 0.1, -0.1, -0.1]))
        0.2
        >>> influence_error(np.array([0.1, 0.1, -0.1, -0.1]), clusters=["a", "a", "b", "b"])
        0.4
    """
    if clusters is None:
        return float(np.sqrt((values**2).sum()))
    sums = np.bincount(cluster_codes(clusters, len(values)), weights=values)
    n_clusters = len(sums)
    scale = n_clusters / (n_clusters - 1) if n_clusters > 1 else np.nan
    return float(np.sqrt(scale * (sums**2).sum()))
