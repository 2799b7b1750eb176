"""Which answers to label, in two phases: pure functions of arrays, in float64."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from pro_lib.evaluation.labels.estimator import Ranking, areas

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
ROUGE_BINS = 5
UNIFORM_SHARE = 0.3  # share of the second phase that is drawn without regard to the influence
FEWEST_FIRST = 20
N_FOLDS = 5
_CLIP = 0.02
_MOST_STEPS = 30


def rouge_bin(rouge: ArrayLike) -> IntArray:
    """Return the bin (n,) of ROUGE-L values: 0 for 0, 1 to 0.3, 2 to 0.6, 3 below 1, 4 for 1.

    Example:
        >>> rouge_bin([0.0, 0.3, 0.4, 0.9, 1.0])
        array([0, 1, 2, 3, 4])
    """
    values = np.asarray(rouge, dtype=np.float64)
    return np.searchsorted([0.0, 0.3, 0.6, 1.0], values, side="left") + (values >= 1)


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
    if n_first >= n:
        return rng.permutation(n)
    shuffled = rng.permutation(n)
    ordered = shuffled[np.argsort(strata[shuffled], kind="stable")]
    places = ((rng.random() + np.arange(n_first)) * n / n_first).astype(np.intp)
    return rng.permutation(ordered[places])


def ranks(values: ArrayLike) -> FloatArray:
    """Return ranks (n,) between -1 and 1; ties share a rank, missing values have 0."""
    values = np.asarray(values, dtype=np.float64)
    result = np.zeros(len(values))
    known = ~np.isnan(values)
    n = np.count_nonzero(known)
    if n:
        _, codes, counts = np.unique(values[known], return_inverse=True, return_counts=True)
        mean_ranks = np.cumsum(counts) - (counts - 1) / 2
        result[known] = (2 * mean_ranks[codes] - n - 1) / n
    return result


def fit_logistic(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    penalty: float = 1.0,
    weights: ArrayLike | None = None,
) -> FloatArray:
    """Fit a logistic regression with a ridge penalty and a weak prior on the intercept.

    Minimizes the weighted negative log-likelihood + penalty / 2 Σ b² + that of half an answer right
    and half an answer wrong for the intercept alone, by Newton's method with halved steps.

    Args:
        features: (n, F), each of them of the order of 1.
        labels: (n,) 1 for right, 0 for wrong.
        penalty: the weight of the squared coefficients. The intercept has no penalty.
        weights: (n,); 1 each if None.

    Returns:
        (F + 1,) coefficients, the intercept first.
    """
    features = np.asarray(features, dtype=np.float64)
    columns = np.column_stack([np.ones(len(features)), features])
    labels = np.asarray(labels, dtype=np.float64)
    weights = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    columns = np.vstack([columns, np.eye(1, columns.shape[1])])
    labels = np.append(labels, 0.5)
    weights = np.append(weights, 1.0)
    ridge = np.full(columns.shape[1], penalty)
    ridge[0] = 0.0
    coefficients = np.zeros(columns.shape[1])

    def loss(values: FloatArray) -> float:
        logits = columns @ values
        return float(weights @ (np.logaddexp(0, logits) - labels * logits) + ridge @ values**2 / 2)

    current = loss(coefficients)
    for _ in range(_MOST_STEPS):
        predicted = expit(columns @ coefficients)
        gradient = columns.T @ (weights * (predicted - labels)) + ridge * coefficients
        curvature = (columns.T * (weights * predicted * (1 - predicted))) @ columns + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        while loss(coefficients - step) > current + 1e-12 and np.abs(step).max() > 1e-10:
            step = step / 2
        coefficients = coefficients - step
        current = loss(coefficients)
        if np.abs(step).max() < 1e-8:
            break
    return coefficients


def predict_logistic(features: ArrayLike, coefficients: FloatArray) -> FloatArray:
    """Return the probabilities (n,) of a fitted logistic regression, clipped to [0.02, 0.98]."""
    logits = coefficients[0] + np.asarray(features, dtype=np.float64) @ coefficients[1:]
    probabilities: FloatArray = np.clip(expit(logits), _CLIP, 1 - _CLIP)
    return probabilities


def cross_fitted(
    features: ArrayLike, labels: ArrayLike, *, seed: int = 0, n_folds: int = N_FOLDS
) -> FloatArray:
    """Return predicted probabilities (n,) that do not depend on an answer's own label.

    The answers are divided into folds, those with labels evenly. The predictions for a fold come
    from a logistic regression on the labels of the others.

    Args:
        features: (n, F) of all answers.
        labels: (n,) 1 for right, 0 for wrong, NaN without a label.
        seed: of the division into folds.
        n_folds: number of folds; fewer if there are fewer labels.

    Returns:
        (n,) probabilities in [0.02, 0.98].
    """
    features = np.asarray(features, dtype=np.float64)
    labels = np.asarray(labels, dtype=np.float64)
    rng = np.random.default_rng(seed)
    has_label = ~np.isnan(labels)
    n_labels = int(has_label.sum())
    n_folds = max(2, min(n_folds, n_labels))
    folds = np.empty(len(labels), dtype=np.intp)
    for members in (np.flatnonzero(has_label), np.flatnonzero(~has_label)):
        folds[rng.permutation(members)] = np.arange(len(members)) % n_folds
    result = np.empty(len(labels))
    for fold in range(n_folds):
        is_fitted = has_label & (folds != fold)
        coefficients = fit_logistic(features[is_fitted], labels[is_fitted])
        result[folds == fold] = predict_logistic(features[folds == fold], coefficients)
    return result


def sampling_scores(influences: Sequence[ArrayLike], model: ArrayLike) -> FloatArray:
    """Return how much the label of each answer matters, (n,).

    Two terms are added for each setting. One is the share of the answer in Σ h² r̂ (1 - r̂) for the
    AUROC of the reference. The other is its mean share for the differences of the other AUROCs to
    it. The score is the square root of the mean over the settings. It is the best inclusion
    probability up to a factor.

    Args:
        influences: (M, n) for each setting: of the labels on M AUROCs, the reference first.
        model: (n,) predicted probabilities that the answers are right.

    Returns:
        (n,) scores that are not negative.

    Example:
        >>> sampling_scores([[[0.3, -0.4, 0.0]]], [0.5, 0.5, 0.5])
        array([0.6, 0.8, 0. ])
    """
    model = np.asarray(model, dtype=np.float64)
    variance = model * (1 - model)
    result = np.zeros(len(model))
    for influence in influences:
        values = np.asarray(influence, dtype=np.float64)
        if np.isnan(values).any():
            continue
        parts = np.vstack([values[:1], values[1:] - values[0]])
        squares = parts**2 * variance
        totals = squares.sum(axis=1, keepdims=True)
        has_influence = totals[:, 0] > 1e-20
        shares = np.divide(
            squares, totals, out=np.zeros_like(squares), where=has_influence[:, None]
        )
        result += shares[0]
        if has_influence[1:].any():
            result += shares[1:][has_influence[1:]].mean(axis=0)
    return np.sqrt(result / max(len(influences), 1))


def second_probabilities(
    rankings: Sequence[Ranking],
    features: ArrayLike,
    labels: ArrayLike,
    is_first: ArrayLike,
    *,
    n_second: int,
    uniform: float = UNIFORM_SHARE,
) -> FloatArray:
    """Return the inclusion probabilities (G,) of the second phase, given the first labels.

    Args:
        rankings: the scores of each setting, the reference first.
        features: (G, F) of all answers.
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        is_first: (G,) whether the answer was chosen in the first phase; its probability is 0.
        n_second: how many answers to choose.
        uniform: share of the second phase that is drawn without regard to the influence.

    Returns:
        (G,) probabilities; their sum is `n_second`, or the number of answers that are left.
    """
    features = np.asarray(features, dtype=np.float64)
    labels = np.asarray(labels, dtype=np.float64)
    is_first = np.asarray(is_first, dtype=bool)
    has_label = is_first & ~np.isnan(labels)
    model = predict_logistic(features, fit_logistic(features[has_label], labels[has_label]))
    expected = np.where(has_label, labels, model)
    rest = np.flatnonzero(~is_first)
    influences = [areas(ranking, expected).influence[:, rest] for ranking in rankings]
    scores = sampling_scores(influences, model[rest])
    probabilities = np.zeros(len(labels))
    probabilities[rest] = inclusion_probabilities(scores, n_second, uniform=uniform)
    return probabilities


def inclusion_probabilities(
    scores: ArrayLike, n_second: int, *, uniform: float = UNIFORM_SHARE
) -> FloatArray:
    """Return probabilities (n,) with the sum `n_second`, proportional to scores plus a constant.

    Args:
        scores: (n,) not negative; if all are 0, the probabilities are equal.
        n_second: expected number of answers; n or more gives 1 everywhere.
        uniform: share of the constant.

    Example:
        >>> inclusion_probabilities([1.0, 1.0, 8.0], 2, uniform=0.0)
        array([0.5, 0.5, 1. ])
    """
    scores = np.asarray(scores, dtype=np.float64)
    n = len(scores)
    if n_second >= n:
        return np.ones(n)
    total = scores.sum()
    mixture = np.full(n, 1 / n)
    if total > 0:
        mixture = (1 - uniform) * scores / total + uniform / n
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


def second_phase(probabilities: ArrayLike, rng: np.random.Generator) -> IntArray:
    """Choose answers with given probabilities: systematic sampling (Hartley and Rao 1962).

    The number chosen is the sum of the probabilities, rounded up or down if that is not an integer.

    Args:
        probabilities: (n,) between 0 and 1.
        rng: the source of randomness.

    Returns:
        Positions in random order.
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    order = rng.permutation(len(probabilities))
    # Rounding first keeps a sum such as 66.9999999 from losing an answer.
    cumulated = np.round(np.cumsum(probabilities[order]), 9)
    steps = np.floor(np.append(0.0, cumulated) + rng.random())
    return rng.permutation(order[np.diff(steps) > 0])
