"""The model that predicts the labels of answers: a logistic regression with a ridge penalty."""

import numpy as np
from scipy.optimize import root
from scipy.special import expit

from pro_lib.metrics.roc import FloatArray

_N_FOLDS = 5
_CLIP = 0.02
_TOLERANCE = 1e-12  # of the coefficients, relative


def fit_logistic(features: FloatArray, labels: FloatArray) -> FloatArray:
    """Fit a logistic regression with a ridge penalty and a weak prior on the intercept.

    Minimizes the negative log-likelihood + ½ Σ b² of the coefficients of the features + that of
    half an answer right and half an answer wrong for the intercept alone. The minimum is where the
    gradient is zero.

    Args:
        features: (n, F), each of them of the order of 1.
        labels: (n,) 1 for right, 0 for wrong.

    Returns:
        (F + 1,) coefficients, the intercept first.
    """
    columns = np.column_stack([np.ones(len(features)), features])
    columns = np.vstack([columns, np.eye(1, columns.shape[1])])
    labels = np.append(labels, 0.5)
    ridge = np.ones(columns.shape[1])
    ridge[0] = 0.0  # the intercept has no penalty

    def gradient(coefficients: FloatArray) -> FloatArray:
        errors = expit(columns @ coefficients) - labels
        return np.asarray(columns.T @ errors + ridge * coefficients)

    def hessian(coefficients: FloatArray) -> FloatArray:
        predicted = expit(columns @ coefficients)
        return np.asarray((columns.T * (predicted * (1 - predicted))) @ columns + np.diag(ridge))

    return np.asarray(root(gradient, np.zeros(len(ridge)), jac=hessian, tol=_TOLERANCE).x)


def predict_logistic(features: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Return the probabilities (n,) of a fitted logistic regression, clipped to [0.02, 0.98]."""
    logits = coefficients[0] + features @ coefficients[1:]
    probabilities: FloatArray = np.clip(expit(logits), _CLIP, 1 - _CLIP)
    return probabilities


def cross_fitted(features: FloatArray, labels: FloatArray, *, seed: int = 0) -> FloatArray:
    """Return predicted probabilities (n,) that do not depend on an answer's own label.

    The answers are divided into folds, those with labels evenly. The predictions for a fold come
    from a logistic regression on the labels of the others.

    Args:
        features: (n, F) of all answers.
        labels: (n,) 1 for right, 0 for wrong, NaN without a label.
        seed: of the division into folds.

    Returns:
        (n,) probabilities in [0.02, 0.98].
    """
    rng = np.random.default_rng(seed)
    has_label = ~np.isnan(labels)
    n_folds = max(2, min(_N_FOLDS, int(has_label.sum())))
    folds = np.empty(len(labels), dtype=np.intp)
    for members in (np.flatnonzero(has_label), np.flatnonzero(~has_label)):
        folds[rng.permutation(members)] = np.arange(len(members)) % n_folds
    result = np.empty(len(labels))
    for fold in range(n_folds):
        is_fitted = has_label & (folds != fold)
        coefficients = fit_logistic(features[is_fitted], labels[is_fitted])
        result[folds == fold] = predict_logistic(features[folds == fold], coefficients)
    return result
