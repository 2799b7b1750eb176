"""Acting on an uncertainty: answering only when sure, and saying how sure; knows no score by its formula.

`uncertainty` and `correct` are (n,) as in `metrics`, and raise as they do there. A model keeps silent on its most
uncertain questions first. Of questions that tie, each counts with the mean accuracy of its tie.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib.metrics.auroc import FloatArray, Labels, aligned, need_both, wilson


def accuracy_coverage(uncertainty: ArrayLike, correct: ArrayLike) -> pd.DataFrame:
    """Return the accuracy among the k least uncertain of n questions, for every k from 1 to n.

    Columns: `n_answered` (k), `coverage` (k / n), `threshold` (the uncertainty of the k-th), `accuracy`. Within a tie,
    the accuracy is the mean over its orders. Defined where all answers are right, or all wrong.
    """
    values, labels = aligned(uncertainty, correct)
    distinct, tie, sizes = np.unique(values, return_inverse=True, return_counts=True)
    accuracy = _running_mean(np.repeat(np.bincount(tie, weights=labels) / sizes, sizes))
    table = pd.DataFrame({"n_answered": np.arange(1, labels.size + 1)})
    coverage = table["n_answered"] / labels.size
    return table.assign(coverage=coverage, threshold=np.repeat(distinct, sizes), accuracy=accuracy)


def rejection(uncertainties: pd.DataFrame, correct: ArrayLike) -> pd.DataFrame:
    """Tabulate how well several methods (a column each) say which questions to reject: method, prr, auarc.

    AUARC is the area under the accuracy-coverage curve, the mean accuracy over all k. The prediction-rejection ratio is
    (AUARC - random) / (oracle - random), as in LM-Polygraph 0.7 (`prr_normalized`): 1 is perfect. The oracle rejects
    wrong answers first; random is the mean area of 1,000 shuffles, the same as theirs. One class: `OneClassError`.
    """
    _, labels = aligned(uncertainties, correct, columns=True)
    need_both(labels, "PRR")
    oracle = _running_mean(np.sort(labels)[::-1]).mean()
    # LM-Polygraph's seed and number, so that both have the same random baseline; each a shuffle of the one before.
    generator, of_random = np.random.RandomState(42), []
    places, shuffled = np.arange(len(labels)), np.empty_like(labels)
    for _ in range(1000):
        generator.shuffle(places)
        shuffled[places] = labels
        of_random.append(_running_mean(shuffled).mean())
    random = np.mean(of_random)
    curves = [accuracy_coverage(column, labels)["accuracy"] for _, column in uncertainties.items()]
    areas = np.array([curve.to_numpy().mean() for curve in curves])
    return pd.DataFrame(
        {
            "method": uncertainties.columns,
            "prr": (areas - random) / (oracle - random),
            "auarc": areas,
        }
    )


@dataclass(frozen=True)
class Calibration:
    """How well the probabilities of being right, fitted on other questions, agree with the labels."""

    probability: FloatArray  # (n,): the fitted probability that the answer is right
    ece: float  # expected calibration error: mean distance of confidence and accuracy over the bins, weighted by `n`
    brier: float  # mean squared distance of probability and correctness; lower is better
    # One row per bin: `n, low, high` (range of the probabilities), `confidence` (their mean), `accuracy`, and its 95 %
    # Wilson interval, `accuracy_low, accuracy_high`.
    table: pd.DataFrame
    # What turns uncertainties (n,) of further questions into probabilities
    fit: Callable[[ArrayLike], FloatArray]


def calibration(
    validation_uncertainty: ArrayLike,
    validation_correct: ArrayLike,
    uncertainty: ArrayLike,
    correct: ArrayLike,
) -> Calibration:
    """Turn an uncertainty into a probability of being right on validation questions, and check it on others.

    The fit is isotonic regression of `validation_correct` (m,) on minus `validation_uncertainty` (m,): any scale
    will do. `uncertainty` (n,) and `correct` (n,) are of *other* questions; they enter no fit. Ten bins hold equal
    numbers of questions, ordered by probability; equal probabilities share a bin, and empty ones are left out.
    Infinite uncertainties count as the largest (smallest) finite one of validation. Raises `OneClassError` for one
    class on validation, and `ValueError` for NaN.
    """
    from sklearn.isotonic import IsotonicRegression  # slow to import, and needed here only

    fitted_on, fitted_labels = aligned(validation_uncertainty, validation_correct)
    values, labels = aligned(uncertainty, correct)
    need_both(fitted_labels, "isotonic regression on validation")
    finite, isotonic = fitted_on[np.isfinite(fitted_on)], IsotonicRegression(out_of_bounds="clip")
    isotonic.fit(-np.clip(fitted_on, finite.min(), finite.max()), fitted_labels.astype(np.float64))

    def fit(values: ArrayLike) -> FloatArray:
        return isotonic.predict(-np.clip(values, finite.min(), finite.max()))

    probability = fit(values)
    table = _reliability(probability, labels)
    ece = np.average((table["confidence"] - table["accuracy"]).abs(), weights=table["n"])
    return Calibration(
        probability, float(ece), float(np.mean((probability - labels) ** 2)), table, fit
    )


def _running_mean(values: FloatArray | Labels) -> FloatArray:
    return np.cumsum(values, dtype=np.float64) / np.arange(1, len(values) + 1)


def _reliability(probability: FloatArray, correct: Labels) -> pd.DataFrame:
    """Tabulate ten bins of equal numbers of questions by probability, with the confidence and accuracy of each."""
    _, tie, sizes = np.unique(probability, return_inverse=True, return_counts=True)
    # A tie's middle on the scale from 0 to n; doubled, it is whole
    twice_middle = 2 * np.cumsum(sizes) - sizes
    bins = (twice_middle * 10 // (2 * len(probability)))[tie]
    by_bin = pd.DataFrame({"probability": probability, "correct": correct}).groupby(bins)
    columns = {
        "n": ("correct", "size"),
        "low": ("probability", "min"),
        "high": ("probability", "max"),
    }
    columns |= {"confidence": ("probability", "mean"), "accuracy": ("correct", "mean")}
    table = by_bin.agg(**columns).reset_index(drop=True)
    low, high = wilson(table["accuracy"], table["n"])
    return table.assign(accuracy_low=low, accuracy_high=high)
