"""Differences between two runs that answer the same questions, with 95 % intervals.

The runs have different answers, so a question may be right in one and wrong in the other.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, ndtri, stdtrit

from pro_lib.metrics.differences import FEWEST_FOR_INTERVAL
from pro_lib.metrics.influences import influence, influence_error, placements
from pro_lib.metrics.roc import BoolArray, cluster_codes


def mcnemar(first: BoolArray, second: BoolArray) -> float:
    """Return the p-value of equal accuracies by McNemar's exact test.

    Args:
        first: whether each question (n,) is right in the first run.
        second: whether it is right in the second run.

    Example:
        >>> mcnemar(np.array([True, True, True]), np.array([False, False, True]))
        0.5
    """
    only_first = int((first & ~second).sum())
    only_second = int((second & ~first).sum())
    # Twice the binomial tail of the rarer kind, as both kinds are equally probable.
    tail = float(bdtr(min(only_first, only_second), only_first + only_second, 0.5))
    return min(1.0, 2 * tail)


def accuracy_difference(
    first: BoolArray, second: BoolArray, *, clusters: ArrayLike | None = None
) -> tuple[float, float, float]:
    """Return the accuracy of the second run minus that of the first, and the ends of its interval.

    The interval is that of Bonett and Price (2012). With clusters, it is Student's with the
    variance between clusters.

    Args:
        first: whether each question (n,) is right in the first run.
        second: whether it is right in the second run.
        clusters: (n,) names of clusters of questions; None for independent questions.
    """
    differences = second.astype(float) - first
    n = len(differences)
    mean = float(differences.mean())
    if clusters is not None:
        error = influence_error((differences - mean) / n, clusters)
        half_width = _student(_n_clusters(clusters, n)) * error
        return mean, mean - half_width, mean + half_width
    gained = ((differences > 0).sum() + 1) / (n + 2)
    lost = ((differences < 0).sum() + 1) / (n + 2)
    middle = float(gained - lost)
    half_width = float(ndtri(0.975) * np.sqrt((gained + lost - middle**2) / (n + 2)))
    return mean, middle - half_width, middle + half_width


def auroc_difference(
    scores: Sequence[ArrayLike], correct: Sequence[BoolArray], *, clusters: ArrayLike | None = None
) -> tuple[float, float, float, float, float]:
    """Return the AUROC of both runs, their difference (second minus first), and its interval.

    The variance of the difference is the sum over the questions of the squared difference of their
    influences on the two AUROCs. This is DeLong's variance, with a cluster for each question as in
    Obuchowski (1997). The ends of the interval are NaN if a run has fewer than five right or five
    wrong answers.

    Args:
        scores: the scores (n,) of each run.
        correct: whether each question (n,) is right in each run.
        clusters: (n,) names of clusters of questions; None for independent questions.

    Raises:
        OneClassError: all answers of a run are right, or all are wrong.
    """
    aurocs = []
    moves = []
    for run_scores, labels in zip(scores, correct, strict=True):
        shares = placements(run_scores, labels)
        aurocs.append(float(shares[labels].mean()))
        moves.append(influence(shares, labels))
    first, second = aurocs
    difference = second - first
    n_rarer = min(min(labels.sum(), (~labels).sum()) for labels in correct)
    half_width = np.nan
    if n_rarer >= FEWEST_FOR_INTERVAL:
        n_independent = min(n_rarer, _n_clusters(clusters, len(moves[0])))
        half_width = _student(n_independent) * influence_error(moves[1] - moves[0], clusters)
    return first, second, difference, difference - half_width, difference + half_width


def _n_clusters(clusters: ArrayLike | None, n: int) -> int:
    return n if clusters is None else len(np.unique(cluster_codes(clusters, n)))


def _student(n: int) -> float:
    """Return the 97.5 % quantile of Student's distribution for n independent values."""
    return float(-stdtrit(max(n - 1, 1), 0.025))
