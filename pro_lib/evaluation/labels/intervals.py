"""Intervals of estimates from labels: pure functions of arrays, in float64.

The constants were chosen by simulation; docs/results/experiment_log.md has what was tried.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, stdtr, stdtrit

FloatArray = NDArray[np.float64]
FEWEST_OF_A_CLASS = 10  # with fewer labels right, or wrong, no AUROC is shown
FEWEST_LABELS = 20  # with fewer labels no accuracy and no agreement is shown
FEWEST_CLUSTERS = 5
_PRIOR_TERMS = 2.0  # residuals that the label model adds to those seen
_FREEDOM = 3.0  # degrees of freedom for each effective term of a variance
_CLUSTER_FREEDOM = 1.5  # the same for clusters, whose sums vary more
_LEAST_FREEDOM = 1.5


def label_variance(
    influence: ArrayLike, weights: ArrayLike, model: ArrayLike, labels: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Estimate the variance (A,) due to answers without a label, and its degrees of freedom.

    It is the variance of Σ h w (r - r̂), and combines two values. The first is the observed sum
    V = Σ w (w - 1) (r - r̂)² h² over the labels. The weight w has the expectation 1, so w² - w has
    the variance of w as its expectation. The second is a prediction from the label model. It
    protects against labels whose residuals are small by chance. With m effective terms in V, the
    result is (m V + 2 prediction) / (m + 2).

    The prediction is the mean of two values. One is Σ w (w - 1) r̂ (1 - r̂) h² over the labels. The
    other is (G / k - 1) Σ r̂ (1 - r̂) h² over all answers, with k labels: the variance with as many
    random labels. It is too large, but includes answers that matter and have no label.

    Args:
        influence: (A, G) derivative h of each estimate with respect to each label.
        weights: (G,) from `label_weights`, 0 without a label.
        model: (G,) predicted probabilities r̂.
        labels: (G,) 1, 0, or NaN without a label.

    Returns:
        Variance and degrees of freedom, (A,) each. The variance is 0 only if all answers have
        labels, or if no label can change the estimate.

    Example:
        >>> label_variance([[0.5, 0.5]], [2, 0], [0.5, 0.5], [1, np.nan])
        (array([0.125]), array([3.]))
    """
    influence = np.asarray(influence, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    model = np.asarray(model, dtype=np.float64)
    labels = np.asarray(labels, dtype=np.float64)
    has_label = ~np.isnan(labels)
    residuals = np.where(has_label, labels - model, 0.0)
    squares = influence**2
    # Answers that the second phase takes for sure may have weights below 1. They add nothing.
    spread = np.maximum(weights * (weights - 1), 0)
    terms = squares * (spread * residuals**2)
    variance = terms.sum(axis=1)
    n_terms = effective_number(terms)
    n_labels = max(int(has_label.sum()), 1)
    excess = len(labels) / n_labels - 1
    uncertain = model * (1 - model)
    predicted = (squares @ (spread * uncertain) + excess * (squares @ uncertain)) / 2
    blended = (n_terms * variance + _PRIOR_TERMS * predicted) / (n_terms + _PRIOR_TERMS)
    return blended, np.maximum(_FREEDOM * n_terms, _LEAST_FREEDOM)


def effective_number(terms: FloatArray) -> FloatArray:
    """Return the effective number (A,) of non-negative terms (A, G): (Σ t)² / Σ t², or 0.

    Example:
        >>> effective_number(np.array([[1.0, 1.0, 0.0], [4.0, 0.0, 0.0]]))
        array([2., 1.])
    """
    largest = terms.max(axis=1, keepdims=True)
    scaled = np.divide(terms, largest, out=np.zeros_like(terms), where=largest > 0)
    total = scaled.sum(axis=1)
    squares = (scaled**2).sum(axis=1)
    number: FloatArray = np.zeros_like(total)
    np.divide(total**2, squares, out=number, where=squares > 0)
    return number


def population_variance(
    influence: ArrayLike, *, clusters: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the variance (A,) for the population, and its degrees of freedom.

    Args:
        influence: (A, G) influence of each unit as a draw, such as `Areas.population`.
        clusters: (G,) numbers of the clusters of units that are drawn together; None for
            independent units.

    Returns:
        Variance and degrees of freedom, (A,) each; NaN with fewer than five clusters.

    Example:
        >>> population_variance([[0.5, -0.5]])
        (array([0.5]), array([6.]))
    """
    values = np.asarray(influence, dtype=np.float64)
    values = values - values.mean(axis=1, keepdims=True)
    if clusters is None:
        terms = values**2
        return terms.sum(axis=1), np.maximum(_FREEDOM * effective_number(terms), _LEAST_FREEDOM)
    codes = np.asarray(clusters, dtype=np.intp)
    n_clusters = codes.max() + 1
    if n_clusters < FEWEST_CLUSTERS:
        unknown = np.full(len(values), np.nan)
        return unknown, unknown
    sums = np.stack([np.bincount(codes, weights=row, minlength=n_clusters) for row in values])
    terms = sums**2 * n_clusters / (n_clusters - 1)
    n_terms = effective_number(terms)
    freedom = np.minimum(n_clusters - 1, np.maximum(_CLUSTER_FREEDOM * n_terms, _LEAST_FREEDOM))
    return terms.sum(axis=1), freedom


def predicted_variance(if_right: ArrayLike, if_wrong: ArrayLike, model: ArrayLike) -> FloatArray:
    """Return the variance (A,) for the population that the label model predicts.

    If two scores differ on few questions, the labels of these few may have little influence by
    chance. The prediction knows what the other label would do.

    Args:
        if_right: (A, G) influence of each unit as a draw if it is right, such as `Areas.if_right`.
        if_wrong: (A, G) influence of each unit if it is wrong.
        model: (G,) predicted probabilities that the units are right.

    Returns:
        (A,) variances.

    Example:
        >>> predicted_variance([[0.2, 0.0]], [[0.4, 0.2]], [0.5, 0.5])
        array([0.12])
    """
    model = np.asarray(model, dtype=np.float64)
    squares_if_right = np.asarray(if_right, dtype=np.float64) ** 2
    squares_if_wrong = np.asarray(if_wrong, dtype=np.float64) ** 2
    variance: FloatArray = squares_if_right @ model + squares_if_wrong @ (1 - model)
    return variance


def auroc_interval(
    auroc: ArrayLike, variance: ArrayLike, freedom: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (A,) of 95 % intervals: Student's interval on the logit scale.

    NaN where the estimate is not between 0 and 1. A variance of 0 gives the estimate itself.
    """
    auroc = np.asarray(auroc, dtype=np.float64)
    is_inside = (auroc > 0) & (auroc < 1)
    middle = np.where(is_inside, auroc, 0.5)
    slope = middle * (1 - middle)
    half = stdtrit(freedom, 0.975) * np.sqrt(variance) / slope
    low = np.where(is_inside, expit(logit(middle) - half), np.nan)
    high = np.where(is_inside, expit(logit(middle) + half), np.nan)
    return low, high


def share_interval(
    share: ArrayLike, variance: ArrayLike, freedom: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (A,) of 95 % intervals of shares of answers.

    Wilson's interval with Student's quantile t, for the number of independent answers whose share
    has this variance, n = p (1 - p) / variance. A variance of 0 gives the estimate itself. NaN
    where the estimate is not between 0 and 1, or is 0 or 1 with a variance above 0.

    Example:
        >>> low, high = share_interval([0.5], [0.0025], [1e9])  # as of 100 answers
        >>> low.round(3), high.round(3)
        (array([0.404]), array([0.596]))
    """
    share = np.asarray(share, dtype=np.float64)
    variance = np.asarray(variance, dtype=np.float64)
    is_inside = (share > 0) & (share < 1)
    middle = np.where(is_inside, share, 0.5)
    spread = middle * (1 - middle)
    per_answer = stdtrit(freedom, 0.975) ** 2 * variance / spread  # t² / n
    center = (middle + per_answer / 2) / (1 + per_answer)
    half = np.sqrt(per_answer * (spread + per_answer / 4)) / (1 + per_answer)
    is_known = (variance == 0) & (share >= 0) & (share <= 1)
    low = np.where(is_known, share, np.where(is_inside, center - half, np.nan))
    high = np.where(is_known, share, np.where(is_inside, center + half, np.nan))
    return low, high


def difference_interval(
    difference: ArrayLike, variance: ArrayLike, freedom: ArrayLike, *, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (A,) of Student's intervals of differences, between -1 and 1."""
    difference = np.asarray(difference, dtype=np.float64)
    half = stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance)
    return np.clip(difference - half, -1, 1), np.clip(difference + half, -1, 1)


def difference_p_value(
    difference: ArrayLike, variance: ArrayLike, freedom: ArrayLike
) -> FloatArray:
    """Return two-sided p-values (A,) of differences by Student's test; 1 for 0 with variance 0.

    Example:
        >>> difference_p_value([0.0, 0.2], [0.0, 0.01], [3.0, 30.0]).round(3)
        array([1.   , 0.055])
    """
    difference = np.abs(np.asarray(difference, dtype=np.float64))
    error = np.sqrt(np.asarray(variance, dtype=np.float64))
    ratio = np.zeros_like(difference)
    np.divide(difference, error, out=ratio, where=error > 0)
    ratio = np.where((error == 0) & (difference > 0), np.inf, ratio)
    ratio = np.where(np.isnan(error) | np.isnan(difference), np.nan, ratio)
    p_value: FloatArray = 2 * stdtr(freedom, -ratio)
    return p_value
