"""Accuracy against coverage, rejection of uncertain answers, and calibration.

`uncertainty` and `correct` are (n,) as in `metrics.auroc`, and the functions raise the same errors.
The most uncertain questions are rejected first. Within a tie, each question counts with the mean
accuracy of the tie.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib.metrics.roc import BoolArray, FloatArray, aligned, as_floats, need_both, wilson

_N_BINS = 10


def accuracy_coverage(uncertainty: ArrayLike, correct: ArrayLike) -> pd.DataFrame:
    """Return the accuracy among the k least uncertain of n questions, for every k from 1 to n.

    Args:
        uncertainty: the scores (n,), higher = more uncertain.
        correct: (n,); True for a right answer. They may all be right, or all wrong.

    Returns:
        A row per k with the columns n_answered (k), coverage (k / n), threshold (the uncertainty of
        the k-th question) and accuracy. Within a tie, the accuracy is the mean over its orders.

    Raises:
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> accuracy_coverage([0.2, 0.9], [True, False])["accuracy"].tolist()
        [1.0, 0.5]
    """
    values, labels = aligned(uncertainty, correct)
    n_answered = np.arange(1, labels.size + 1)
    columns = {
        "n_answered": n_answered,
        "coverage": n_answered / labels.size,
        "threshold": np.sort(values),
        "accuracy": accuracy_curve(values, labels),
    }
    return pd.DataFrame(columns)


def accuracy_curve(uncertainty: FloatArray, correct: FloatArray | BoolArray) -> FloatArray:
    """Return the accuracy among the k least uncertain of n questions, for every k, (n,).

    Args:
        uncertainty: the scores (n,), higher = more uncertain.
        correct: (n,); whether each answer is right, or an estimate of it.

    Example:
        >>> accuracy_curve(np.array([0.9, 0.2, 0.9]), np.array([0.0, 0.8, 1.0])).round(2).tolist()
        [0.8, 0.65, 0.6]
    """
    _, tie_numbers, tie_sizes = np.unique(uncertainty, return_inverse=True, return_counts=True)
    tie_accuracies = np.bincount(tie_numbers, weights=correct) / tie_sizes
    in_order = np.repeat(tie_accuracies, tie_sizes)
    return np.asarray(np.cumsum(in_order) / np.arange(1, len(in_order) + 1))


def answered_weights(uncertainty: ArrayLike, n_answered: ArrayLike) -> FloatArray:
    """Return how much each question counts among the k least uncertain of n questions.

    Questions before a tie count 1. The questions of a tie at the k-th place share the rest of k.

    Args:
        uncertainty: the scores (n,), higher = more uncertain.
        n_answered: numbers of questions k, (A,).

    Returns:
        The weights (A, n), which sum to k.

    Example:
        >>> answered_weights([0.9, 0.2, 0.9], [1, 2]).tolist()
        [[0.0, 1.0, 0.0], [0.5, 1.0, 0.5]]
    """
    values = as_floats(uncertainty)
    counts = as_floats(n_answered)[:, None]
    _, tie_numbers, tie_sizes = np.unique(values, return_inverse=True, return_counts=True)
    n_before = np.cumsum(tie_sizes) - tie_sizes
    shares = np.clip((counts - n_before) / tie_sizes, 0, 1)
    weights: FloatArray = shares[:, tie_numbers]
    return weights


def rejection(uncertainties: pd.DataFrame, correct: ArrayLike) -> pd.DataFrame:
    """Return how well several methods tell which questions to reject.

    AUARC is the area under the accuracy-coverage curve: the mean accuracy over all k. The
    prediction-rejection ratio, PRR, is (AUARC - random) / (oracle - random) as in LM-Polygraph 0.7
    (`prr_normalized`); 1 is perfect and 0 is as good as chance. The oracle rejects all wrong
    answers first. The random baseline is the expected area of a random order, which is the share of
    right answers: in a random order, the expected accuracy among the first k is that share for
    every k. LM-Polygraph estimates it as the mean area of 1,000 shuffles, so its values differ by
    the Monte Carlo error.

    Args:
        uncertainties: a row per question and a column per method, higher = more uncertain.
        correct: (n,); True for a right answer.

    Returns:
        A row per method with the columns method, prr and auarc; higher = better.

    Raises:
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> scores = pd.DataFrame({"NLL": [0.2, 0.9], "constant": [0.0, 0.0]})
        >>> rejection(scores, [True, False])["prr"].tolist()
        [1.0, 0.0]
    """
    _, labels = aligned(uncertainties, correct, columns=True)
    need_both(labels, "PRR")
    return rejection_table(uncertainties, labels)


def rejection_table(uncertainties: pd.DataFrame, correct: FloatArray | BoolArray) -> pd.DataFrame:
    """Return the table of `rejection`, also for estimates of whether answers are right.

    Args:
        uncertainties: a row per question and a column per method, higher = more uncertain.
        correct: (n,); whether each answer is right, or an estimate of it. Its mean is between 0
            and 1.

    Example:
        >>> scores = pd.DataFrame({"NLL": [0.2, 0.9, 0.5]})
        >>> rejection_table(scores, np.array([1.2, 0.1, 0.2])).round(3).values.tolist()
        [['NLL', 1.2, 0.8]]
    """
    oracle_area = oracle_accuracy(correct).mean()
    random_area = np.mean(correct)
    areas = []
    for _, scores in uncertainties.items():
        areas.append(accuracy_curve(scores.to_numpy(), correct).mean())
    auarc = np.array(areas)
    columns = {
        "method": uncertainties.columns,
        "prr": (auarc - random_area) / (oracle_area - random_area),
        "auarc": auarc,
    }
    return pd.DataFrame(columns)


def oracle_accuracy(correct: FloatArray | BoolArray) -> FloatArray:
    """Return the accuracy among the first k answers if all right ones come first, for every k.

    Args:
        correct: (n,); whether each answer is right, or estimates whose sum is the number of right
            answers.

    Example:
        >>> oracle_accuracy(np.array([True, False, True])).round(2).tolist()
        [1.0, 1.0, 0.67]
    """
    n_answered = np.arange(1, len(correct) + 1)
    accuracies: FloatArray = np.minimum(np.sum(correct), n_answered) / n_answered
    return accuracies


@dataclass(frozen=True)
class Calibration:
    """The agreement of fitted probabilities of a right answer with the labels of other questions.

    Attributes:
        probability: the fitted probability that each answer is right, (n,).
        ece: expected calibration error, the mean distance between confidence and accuracy over the
            bins, weighted by the number of questions; lower is better.
        brier: mean squared distance between probability and correctness; lower is better.
        table: a row per bin with the columns n, low and high (the range of its probabilities),
            confidence (their mean), accuracy, and its 95 % Wilson interval, accuracy_low and
            accuracy_high.
        fit: the fitted function from uncertainties (n,) to probabilities (n,).
    """

    probability: FloatArray
    ece: float
    brier: float
    table: pd.DataFrame
    fit: Callable[[ArrayLike], FloatArray]


def calibration(
    validation_uncertainty: ArrayLike,
    validation_correct: ArrayLike,
    uncertainty: ArrayLike,
    correct: ArrayLike,
) -> Calibration:
    """Fit the probability of a right answer on validation questions, and check it on others.

    The fit is isotonic regression of correctness on minus the uncertainty, so the scale of the
    scores does not matter. Ten bins have equal numbers of questions, in the order of their
    probabilities; equal probabilities share a bin, and empty bins are left out.

    Args:
        validation_uncertainty: scores (m,) of the validation questions, higher = more uncertain.
            An infinite score counts as the largest (smallest) finite one.
        validation_correct: (m,); True for a right answer.
        uncertainty: scores (n,) of *other* questions, which do not enter the fit.
        correct: (n,); their labels.

    Returns:
        The probabilities of the other questions and their errors.

    Raises:
        OneClassError: all validation answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> result = calibration([1.0, 2.0], [True, False], [1.5, 2.5], [True, False])
        >>> result.probability.tolist(), result.brier
        ([0.5, 0.0], 0.125)
    """
    from sklearn.isotonic import IsotonicRegression  # slow to import, and needed here only

    fit_values, fit_labels = aligned(validation_uncertainty, validation_correct)
    values, labels = aligned(uncertainty, correct)
    need_both(fit_labels, "isotonic regression on validation")
    finite = fit_values[np.isfinite(fit_values)]
    smallest = finite.min()
    largest = finite.max()
    isotonic = IsotonicRegression(out_of_bounds="clip")
    isotonic.fit(-np.clip(fit_values, smallest, largest), fit_labels.astype(np.float64))

    def fit(scores: ArrayLike) -> FloatArray:
        return np.asarray(isotonic.predict(-np.clip(as_floats(scores), smallest, largest)))

    probability = fit(values)
    table = _reliability(probability, labels)
    distances = (table["confidence"] - table["accuracy"]).abs()
    ece = float(np.average(distances, weights=table["n"]))
    brier = float(np.mean((probability - labels) ** 2))
    return Calibration(probability, ece, brier, table, fit)


def bin_numbers(probability: FloatArray, n_bins: int = _N_BINS) -> NDArray[np.int64]:
    """Return the bin of each question (n,), such that bins have equal numbers of questions.

    Questions of one probability go into the bin in which the middle of their ranks lies.

    Args:
        probability: (n,) of a right answer.
        n_bins: the number of bins.

    Example:
        >>> bin_numbers(np.array([0.1, 0.9, 0.4, 0.9]), 2)
        array([0, 1, 0, 1])
    """
    _, tie_numbers, tie_sizes = np.unique(probability, return_inverse=True, return_counts=True)
    # Twice the middle of a tie on the scale from 0 to n is a whole number.
    doubled_middles = 2 * np.cumsum(tie_sizes) - tie_sizes
    tie_bins: NDArray[np.int64] = doubled_middles * n_bins // (2 * len(probability))
    return tie_bins[tie_numbers]


def confidence_bins(probability: FloatArray, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Return the size of each bin, and its smallest, largest and mean probability.

    Args:
        probability: (n,) of a right answer.
        numbers: (n,) the bin of each question, from `bin_numbers`.

    Returns:
        A row per bin that has questions, by its number, with the columns n, low, high and
        confidence.

    Example:
        >>> confidence_bins(np.array([0.25, 0.75, 0.5]), np.array([0, 1, 0])).values.tolist()
        [[2.0, 0.25, 0.5, 0.375], [1.0, 0.75, 0.75, 0.75]]
    """
    groups = pd.Series(probability).groupby(numbers)
    return groups.agg(n="size", low="min", high="max", confidence="mean")


def _reliability(probability: FloatArray, correct: BoolArray) -> pd.DataFrame:
    """Return the confidence and accuracy of bins with equal numbers of questions."""
    numbers = bin_numbers(probability)
    accuracy = pd.Series(correct).groupby(numbers).mean()
    table = confidence_bins(probability, numbers).assign(accuracy=accuracy).reset_index(drop=True)
    low, high = wilson(table["accuracy"], table["n"])
    return table.assign(accuracy_low=low, accuracy_high=high)
