"""How well an uncertainty tells wrong answers from right ones, with intervals; knows no score by its formula.

Everywhere `uncertainty` is `(n,)`, higher = more uncertain, `correct` is `(n,)`, True for a right answer, and
AUROC is the probability that a wrong answer has the higher uncertainty of the two, ties counting half.
Rejection metrics let a model keep silent, the most uncertain questions first; questions that tie stand in no
order, so each counts with the mean accuracy of its tie.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc, ndtri

_CHUNK_CELLS = 1_000_000  # resamples x questions held at once; a few arrays of 8 MB each


class OneClassError(ValueError):
    """What was asked is not defined: all answers are right, all are wrong, or there are none."""


@dataclass(frozen=True)
class Exclusions:
    """Which questions every method can be judged on, and what the others lack."""

    mask: NDArray[np.bool_]
    """Shape (n,): True where no method is NaN and correctness is known."""
    n_missing: pd.Series
    """Questions without a value, by method; `correct` has an entry of its own."""
    excluded: pd.Index
    """Index labels (of the uncertainties) of the questions left out."""

    def sentence(self) -> str:
        """Say in one sentence how many questions are used and why the others are not."""
        if self.mask.all():
            return f"All {len(self.mask)} questions are used."
        lacking = self.n_missing[self.n_missing > 0]
        reasons = ", ".join(f"{method} is missing for {count}" for method, count in lacking.items())
        labels = ", ".join(map(str, self.excluded[:5])) + (", …" if len(self.excluded) > 5 else "")
        return f"{len(self.excluded)} of {len(self.mask)} questions are left out ({labels}): {reasons}."


@dataclass(frozen=True)
class DeLong:
    """AUROCs of A uncertainties on the same n questions, their covariance, and tests against one of them."""

    auroc: NDArray[np.float64]
    """Shape (A,)."""
    covariance: NDArray[np.float64]
    """Shape (A, A): how the AUROCs would vary and move together over new questions."""
    difference: NDArray[np.float64]
    """Shape (A,): AUROC minus the reference's; 0 for the reference itself."""
    standard_error: NDArray[np.float64]
    """Shape (A,), of the difference."""
    p_value: NDArray[np.float64]
    """Shape (A,), two-sided, of the hypothesis of equal AUROCs; NaN for the reference itself."""


@dataclass(frozen=True)
class Calibration:
    """How well the probabilities of being right, fitted on other questions, agree with the labels."""

    probability: NDArray[np.float64]
    """Shape (n,): the fitted probability that the answer is right."""
    ece: float
    """Expected calibration error: mean distance of confidence and accuracy over the bins, weighted by `n`."""
    brier: float
    """Mean squared distance of probability and correctness; lower is better."""
    table: pd.DataFrame
    """One row per bin: `n, low, high` (range of the probabilities), `confidence` (their mean), `accuracy`, and its
    95 % Wilson interval, `accuracy_low, accuracy_high`."""


def usable(uncertainties: pd.DataFrame, correct: ArrayLike) -> Exclusions:
    """Find the questions on which every method has a value, so that the same ones serve all methods.

    `uncertainties` has a row per question and a column per method; `correct` (n,) may hold missing values.
    """
    missing = uncertainties.isna()
    missing_correct = pd.isna(np.asarray(correct))
    _check_lengths(missing, missing_correct)
    mask = ~(missing.to_numpy().any(axis=1) | missing_correct)
    n_missing = pd.concat([missing.sum(), pd.Series({"correct": missing_correct.sum()})])
    return Exclusions(mask=mask, n_missing=n_missing, excluded=uncertainties.index[~mask])


def auroc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """AUROC of one uncertainty (n,) against `correct` (n,), boolean.

    Raises `OneClassError` unless right and wrong answers both occur, `ValueError` for NaN (see `usable`).
    """
    return float(auroc_columns(_column(uncertainty), correct)[0])


def auroc_columns(uncertainty: ArrayLike, correct: ArrayLike) -> NDArray[np.float64]:
    """AUROC of each column of `uncertainty` (n, A) against `correct` (n,): shape (A,). Raises as `auroc`."""
    right, wrong = _split(uncertainty, correct)
    aurocs = np.empty(len(right))
    for column, (of_right, of_wrong) in enumerate(zip(right, wrong, strict=True)):
        of_right.sort()
        of_wrong.sort()  # only for speed: searchsorted runs through sorted needles several times faster
        below, up_to = _right_below(of_right, of_wrong)
        aurocs[column] = (below.sum() + up_to.sum()) / (2 * of_right.size * of_wrong.size)
    return aurocs


def bootstrap_auroc(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    reference: str | None = "PRO",
) -> pd.DataFrame:
    """AUROC of several methods with percentile-bootstrap intervals, paired across the methods.

    `uncertainties` has a row per question and a column per method. Right and wrong answers are resampled
    separately, so every resample has both, and each resample serves every method. Columns: `method, auroc,
    low, high`; and unless `reference` is None `difference, difference_low, difference_high`: the method's
    AUROC minus the reference's, negative where the reference is better. Raises as `auroc` does.
    """
    if reference is not None and reference not in uncertainties.columns:
        raise ValueError(
            f"reference {reference!r} is none of the methods {list(uncertainties.columns)}; "
            f"pass reference=None for no differences"
        )
    aurocs = auroc_columns(uncertainties, correct)
    resampled = resampled_aurocs(uncertainties, correct, n_resamples=n_resamples, seed=seed)
    low, high = interval(resampled, level)
    table = pd.DataFrame({"method": uncertainties.columns, "auroc": aurocs, "low": low, "high": high})
    if reference is None:
        return table
    at = uncertainties.columns.get_loc(reference)
    low, high = interval(resampled - resampled[:, [at]], level)
    return table.assign(difference=aurocs - aurocs[at], difference_low=low, difference_high=high)


def compared(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    reference: str = "PRO",
    apart: Collection[str] = (),
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    significance: float = 0.05,
) -> pd.DataFrame:
    """The table of `bootstrap_auroc`, row by row, with a test of each method's difference to the reference.

    Adds `p_value` (`delong`, two-sided), `p_holm` (corrected for the number of other methods in the table, those
    named in `apart` not counted; theirs is `p_value`) and `significant` (`p_holm` at most `significance`); the
    reference has NaN, NaN and False, and so has every method where fewer than two answers are right or wrong. Raises
    as `bootstrap_auroc` does.
    """
    table = bootstrap_auroc(
        uncertainties, correct, n_resamples=n_resamples, level=level, seed=seed, reference=reference
    )
    n_right, at = np.count_nonzero(correct), uncertainties.columns.get_loc(reference)
    testable = 2 <= n_right <= len(uncertainties) - 2
    p_value = delong(uncertainties, correct, reference=at).p_value if testable else np.full(len(table), np.nan)
    family = ~uncertainties.columns.isin(list(apart))
    p_holm = p_value.copy()
    p_holm[family] = holm(p_value[family])
    return table.assign(p_value=p_value, p_holm=p_holm, significant=p_holm <= significance)


def delong(uncertainties: ArrayLike, correct: ArrayLike, *, reference: int = 0) -> DeLong:
    """Covariance of the AUROCs of the columns of `uncertainties` (n, A), and tests against column `reference`.

    DeLong, DeLong & Clarke-Pearson (1988): the AUROC is the mean *placement* of the wrong answers among the right
    ones, and of the right among the wrong; the covariances of the two, each over its number, add up. Placements
    are found by sorting, in O(n log n) (Sun & Xu 2014). Columns that rank alike have p = 1; where both AUROCs have
    no variance (both separate perfectly, one of them reversed) p = 0. Raises as `auroc` does, and `ValueError`
    unless two answers at least are right and two are wrong.
    """
    right, wrong = _split(uncertainties, correct)
    n_right, n_wrong = right.shape[1], wrong.shape[1]
    if min(n_right, n_wrong) < 2:
        raise ValueError(f"DeLong's test needs two right and two wrong answers, but {n_right} and {n_wrong} are given")
    if not 0 <= reference < len(right):
        raise ValueError(f"reference must be a column, 0 to {len(right) - 1}, not {reference}")
    of_wrong = np.array([_placements(among, each) for among, each in zip(right, wrong, strict=True)])
    of_right = np.array([_placements(among, each) for among, each in zip(wrong, right, strict=True)])
    # The right answers' placements are one minus those of the paper, which changes no covariance.
    covariance = np.atleast_2d(np.cov(of_wrong) / n_wrong + np.cov(of_right) / n_right)
    # Differences are taken before the variance: columns that rank alike then differ by exactly 0.
    by_wrong, by_right = of_wrong - of_wrong[reference], of_right - of_right[reference]
    difference = by_wrong.mean(axis=1)
    standard_error = np.sqrt(by_wrong.var(axis=1, ddof=1) / n_wrong + by_right.var(axis=1, ddof=1) / n_right)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value = np.where(difference == 0, 1.0, erfc(np.abs(difference) / standard_error / np.sqrt(2)))
    p_value[reference] = np.nan
    return DeLong(of_wrong.mean(axis=1), covariance, difference, standard_error, p_value)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down correction (1979) of p-values (A,): shape (A,); NaN stays NaN and counts for nothing.

    The i-th smallest of m is multiplied by m - i + 1; none falls below a smaller one's, none exceeds 1.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    if p_values.ndim != 1 or (p_values < 0).any() or (p_values > 1).any():
        raise ValueError(f"p_values must be (A,) numbers from 0 to 1, not {p_values}")
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN sorts last
    corrected = np.full(p_values.shape, np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def resampled_aurocs(
    uncertainty: ArrayLike, correct: ArrayLike, *, n_resamples: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """AUROC of each column of `uncertainty` (n, A) on stratified bootstrap resamples: (n_resamples, A).

    A resample is a weight per question, how often it was drawn; scores are sorted once, not per resample.
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, not {n_resamples}")
    right, wrong = _split(uncertainty, correct)
    orders = np.argsort(right, axis=1)
    bounds = [
        _right_below(of_right[order], of_wrong) for of_right, of_wrong, order in zip(right, wrong, orders, strict=True)
    ]
    n_right, n_wrong = right.shape[1], wrong.shape[1]
    # A stream for each class makes the result independent of the size of the chunks.
    draw_right, draw_wrong = np.random.default_rng(seed).spawn(2)
    aurocs = np.empty((n_resamples, len(right)))
    chunk = max(1, _CHUNK_CELLS // (n_right + n_wrong))
    for start in range(0, n_resamples, chunk):
        rows = slice(start, min(start + chunk, n_resamples))
        right_weights = _draw_weights(draw_right, rows.stop - start, n_right)
        wrong_weights = _draw_weights(draw_wrong, rows.stop - start, n_wrong)
        cumulative = np.zeros((len(right_weights), n_right + 1))
        for column, (below, up_to) in enumerate(bounds):
            np.cumsum(right_weights.take(orders[column], axis=1), axis=1, out=cumulative[:, 1:])
            pairs = cumulative.take(below, axis=1) + cumulative.take(up_to, axis=1)
            aurocs[rows, column] = np.einsum("bi,bi->b", wrong_weights, pairs) / (2 * n_right * n_wrong)
    return aurocs


def paired_difference(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    other_uncertainty: ArrayLike,
    other_correct: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """AUROC of one uncertainty minus another's on the same n questions, each with labels of its own, and its interval.

    For comparisons that `bootstrap_auroc` cannot make, since what counts as right differs too; all arguments are
    `(n,)`. Questions are resampled, with both their uncertainties and both their labels; a resample in which either
    side has one class only is left out (NaN if none is left). Returns difference, low, high. Raises as `auroc` does.
    """
    values = (_column(uncertainty), _column(other_uncertainty, of="other_"))
    sides = [_checked(values[0], correct), _checked(values[1], other_correct, of="other_")]
    _check_lengths(values[0], sides[1][1])
    weights = _draw_weights(np.random.default_rng(seed), n_resamples, len(sides[0][1]))
    weights = np.vstack([np.ones(weights.shape[1]), weights])
    first, second = (_weighted_auroc(column[:, 0], labels, weights) for column, labels in sides)
    difference = first - second
    if np.isnan(difference[0]):
        raise OneClassError("a difference of AUROCs needs right and wrong answers on both sides")
    defined = difference[1:][~np.isnan(difference[1:])]
    low, high = interval(defined[:, None], level) if defined.size else (np.array([np.nan]), np.array([np.nan]))
    return float(difference[0]), float(low[0]), float(high[0])


def interval(resampled: NDArray[np.float64], level: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile interval over the resamples, (n_resamples, A) -> low (A,), high (A,); `level` as in 0.95."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def accuracy_coverage(uncertainty: ArrayLike, correct: ArrayLike) -> pd.DataFrame:
    """Accuracy among the k least uncertain of n questions, for every k from 1 to n.

    `uncertainty` and `correct` are (n,). Columns: `n_answered` (k), `coverage` (k / n), `threshold` (the
    uncertainty of the k-th), `accuracy`. Within a tie, the accuracy is the mean over the orders the tie could stand
    in. Defined where all answers are right, or all wrong. Raises `ValueError` for NaN or no questions.
    """
    values, labels = _checked(_column(uncertainty), correct)
    if not labels.size:
        raise ValueError("uncertainty and correct are empty: accuracy needs at least one question")
    threshold, accuracy = _accuracy_curve(values[:, 0], labels)
    n_answered = np.arange(1, labels.size + 1)
    return pd.DataFrame(
        {
            "n_answered": n_answered,
            "coverage": n_answered / labels.size,
            "threshold": threshold,
            "accuracy": accuracy,
        }
    )


def auarc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Area under the accuracy-coverage curve, the same as under accuracy-rejection: mean accuracy over all k.

    Between 0 and 1, higher = better; an uninformative uncertainty has about the accuracy itself. `prr` is the same
    area on a scale of its own. Raises as `accuracy_coverage` does.
    """
    return float(accuracy_coverage(uncertainty, correct)["accuracy"].mean())


def prr(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    max_rejection: float = 1.0,
    n_random: int | None = 1000,
    seed: int = 42,
) -> float:
    """Prediction-rejection ratio: (area - random) / (oracle - random); 1 is perfect, 0 is random, and it may be lower.

    As LM-Polygraph 0.7 has it (`prr_normalized`): the area is the mean accuracy of what is kept when 0, 1, 2, …
    questions are rejected, fewer than `int(max_rejection * n)`; the oracle rejects wrong answers first; random is
    the mean area of `n_random` shuffles, the same shuffles as theirs at the same `seed`. `n_random=None` takes the
    limit of endless shuffles, the accuracy. Where uncertainties tie, theirs follows the order in which sorting
    happens to leave the rows; here the mean over the tie counts. Raises as `auroc` does, and `ValueError` unless
    `max_rejection` is at most 1 and reaches two questions.
    """
    of_one = pd.DataFrame(_column(uncertainty))
    table = rejection(of_one, correct, max_rejection=max_rejection, n_random=n_random, seed=seed)
    return float(table["prr"].iloc[0])


def rejection(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    max_rejection: float = 1.0,
    n_random: int | None = 1000,
    seed: int = 42,
) -> pd.DataFrame:
    """`prr` and `auarc` of several methods; the random baseline is drawn once. Columns: `method, prr, auarc`.

    `uncertainties` has a row per question and a column per method. `max_rejection` concerns `prr` only. Raises as
    `prr` does.
    """
    values, labels = _checked(uncertainties, correct)
    random, oracle, n_rejected = _rejection_scale(labels, max_rejection, n_random, seed)
    curves = [_accuracy_curve(column, labels)[1] for column in values.T]
    return pd.DataFrame(
        {
            "method": uncertainties.columns,
            "prr": [(_area(curve, n_rejected) - random) / (oracle - random) for curve in curves],
            "auarc": [_area(curve, labels.size) for curve in curves],
        }
    )


def calibration(
    validation_uncertainty: ArrayLike,
    validation_correct: ArrayLike,
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    n_bins: int = 10,
) -> Calibration:
    """Turn an uncertainty into a probability of being right on validation questions, and check it on others.

    The fit is isotonic regression of `validation_correct` (m,) on minus `validation_uncertainty` (m,): any scale
    will do, and between and beyond the values fitted on it interpolates and stays level. `uncertainty` (n,) and
    `correct` (n,) are of *other* questions; they enter no fit. The bins hold equal numbers of questions, ordered
    by probability; equal probabilities share a bin, so that bins may differ in size, and empty ones are left out.
    Infinite uncertainties count as the largest (smallest) finite one of validation. Raises `OneClassError` for one
    class on validation, `ValueError` for NaN, no questions, or fewer than one bin.
    """
    from sklearn.isotonic import IsotonicRegression  # slow to import, and needed here only

    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}")
    of = "validation_"
    fitted_on, fitted_labels = _checked(_column(validation_uncertainty, of=of), validation_correct, of=of)
    values, labels = _checked(_column(uncertainty), correct)
    _need_both(fitted_labels, "isotonic regression on validation")
    finite = fitted_on[np.isfinite(fitted_on)]
    if not (finite.size and labels.size):
        raise ValueError("calibration needs a finite validation_uncertainty and at least one question to report on")
    fit = IsotonicRegression(out_of_bounds="clip").fit(
        -np.clip(fitted_on[:, 0], finite.min(), finite.max()), fitted_labels.astype(np.float64)
    )
    probability = fit.predict(-np.clip(values[:, 0], finite.min(), finite.max()))
    table = _reliability(probability, labels, n_bins)
    ece = np.average((table["confidence"] - table["accuracy"]).abs(), weights=table["n"])
    return Calibration(probability, float(ece), float(np.mean((probability - labels) ** 2)), table)


def wilson_interval(share: ArrayLike, n: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper ends of 95 % score intervals of shares of `n` (Wilson 1927), element by element; NaN for n = 0.

    In closed form, since within a tie n times an accuracy may be no whole number.
    """
    share, n = np.asarray(share, float), np.asarray(n, float)
    z = ndtri(0.975)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    # Rounding must not leave a little beside what is exact.
    low = np.where((share == 0) & (n > 0), 0.0, middle - half)
    return low, np.where((share == 1) & (n > 0), 1.0, middle + half)


def _split(uncertainty: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check both; the uncertainties of the right answers (A, n_right) and wrong ones (A, n_wrong), copied."""
    values, labels = _checked(uncertainty, correct)
    _need_both(labels, "AUROC")
    by_column = np.ascontiguousarray(values.T)
    return by_column[:, labels], by_column[:, ~labels]


def _checked(
    uncertainty: ArrayLike, correct: ArrayLike, *, of: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Uncertainties (n, A) without NaN and labels (n,), both as arrays; `of` begins their names in what is raised."""
    values, labels = np.asarray(uncertainty, dtype=np.float64), np.asarray(correct)
    if values.ndim != 2:
        raise ValueError(f"{of}uncertainty must have the shape (n, A), not {values.shape}")
    if labels.dtype != bool or labels.ndim != 1:
        raise ValueError(f"{of}correct must be (n,) booleans, such as rouge_l > 0.3, not {labels.dtype} {labels.shape}")
    _check_lengths(values, labels, of=of)
    missing = np.isnan(values).any(axis=1)
    if missing.any():
        raise ValueError(
            f"{of}uncertainty is NaN in {missing.sum()} of {len(values)} rows, first in row {missing.argmax()}"
        )
    return values, labels


def _column(uncertainty: ArrayLike, *, of: str = "") -> NDArray[np.float64]:
    values = np.asarray(uncertainty, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"{of}uncertainty must have the shape (n,), not {values.shape}")
    return values[:, None]


def _need_both(labels: NDArray[np.bool_], what: str) -> None:
    if labels.all() or not labels.any():
        which = "none are given" if not labels.size else f"all {len(labels)} are {'right' if labels[0] else 'wrong'}"
        raise OneClassError(f"{what} needs right and wrong answers, but {which}")


def _check_lengths(uncertainty: pd.DataFrame | NDArray, correct: NDArray, *, of: str = "") -> None:
    if len(uncertainty) != len(correct):
        raise ValueError(f"{of}uncertainty has {len(uncertainty)} rows, but {of}correct {len(correct)}")


def _right_below(sorted_right: NDArray[np.float64], wrong: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """For each wrong answer, how many right ones have a lower value, and how many a lower or equal one."""
    return np.searchsorted(sorted_right, wrong, "left"), np.searchsorted(sorted_right, wrong, "right")


def _draw_weights(rng: np.random.Generator, n_resamples: int, n: int) -> NDArray[np.float64]:
    """How often each of n questions is drawn, n draws with replacement a resample: (n_resamples, n)."""
    drawn = rng.integers(n, size=(n_resamples, n))
    drawn += n * np.arange(n_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n)
    return counts.reshape(n_resamples, n).astype(np.float64)


def _weighted_auroc(
    uncertainty: NDArray[np.float64], correct: NDArray[np.bool_], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AUROC of an uncertainty (n,) once for each row of weights (B, n): (B,); NaN where a class has no weight."""
    order = np.argsort(uncertainty[correct])
    below, up_to = _right_below(uncertainty[correct][order], uncertainty[~correct])
    cumulative = np.zeros((len(weights), len(order) + 1))
    np.cumsum(weights[:, correct][:, order], axis=1, out=cumulative[:, 1:])
    of_wrong = weights[:, ~correct]
    pairs = np.einsum("bi,bi->b", of_wrong, cumulative.take(below, axis=1) + cumulative.take(up_to, axis=1))
    total = 2 * cumulative[:, -1] * of_wrong.sum(axis=1)
    return np.divide(pairs, total, out=np.full(len(weights), np.nan), where=total > 0)


def _placements(among: NDArray[np.float64], each: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each value, the share of `among` that lies below it, ties counting half."""
    below, up_to = _right_below(np.sort(among), each)
    return (below + up_to) / (2 * among.size)


def _accuracy_curve(
    uncertainty: NDArray[np.float64], correct: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Uncertainty of the k-th least uncertain of n, and the accuracy of the first k: (n,) and (n,)."""
    values, tie, sizes = np.unique(uncertainty, return_inverse=True, return_counts=True)
    accuracy_of_tie = np.bincount(tie, weights=correct) / sizes
    return np.repeat(values, sizes), _running_mean(np.repeat(accuracy_of_tie, sizes))


def _running_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def _area(accuracies: NDArray[np.float64], n_rejected: int) -> float:
    """Mean accuracy when 0, 1, …, n_rejected - 1 questions are rejected."""
    return float(accuracies[-n_rejected:].mean())


def _rejection_scale(
    correct: NDArray[np.bool_], max_rejection: float, n_random: int | None, seed: int
) -> tuple[float, float, int]:
    """The areas of random and of perfect rejection, and how many numbers of rejected questions count."""
    _need_both(correct, "PRR")
    n_rejected = int(max_rejection * len(correct))
    if not (max_rejection <= 1 and n_rejected >= 2):
        raise ValueError(
            f"max_rejection must be at most 1 and reach 2 of the {len(correct)} questions, not {max_rejection}: "
            f"rejecting none leaves nothing to compare"
        )
    oracle = _area(_running_mean(np.sort(correct)[::-1]), n_rejected)
    if n_random is None:
        return float(correct.mean()), oracle, n_rejected
    if n_random < 1:
        raise ValueError(f"n_random must be at least 1 or None, not {n_random}")
    # The generator and the shuffles of shuffles are LM-Polygraph's, so that both have the same random baseline.
    generator, places, shuffled = np.random.RandomState(seed), np.arange(len(correct)), np.empty(len(correct))
    areas = np.empty(n_random)
    for trial in range(n_random):
        generator.shuffle(places)
        shuffled[places] = correct
        areas[trial] = _area(_running_mean(shuffled), n_rejected)
    if areas.mean() == oracle:
        raise ValueError(f"n_random={n_random} shuffles were all perfect by chance: PRR needs more of them")
    return float(areas.mean()), oracle, n_rejected


def _reliability(probability: NDArray[np.float64], correct: NDArray[np.bool_], n_bins: int) -> pd.DataFrame:
    """Bins of equal numbers of questions by probability, with the confidence and the accuracy of each."""
    _, tie, sizes = np.unique(probability, return_inverse=True, return_counts=True)
    twice_middle = 2 * np.cumsum(sizes) - sizes  # a tie's middle on the scale from 0 to n; doubled, it is whole
    bins = (twice_middle * n_bins // (2 * len(probability)))[tie]
    by_bin = pd.DataFrame({"probability": probability, "correct": correct}).groupby(bins)
    table = by_bin.agg(
        n=("correct", "size"),
        low=("probability", "min"),
        high=("probability", "max"),
        confidence=("probability", "mean"),
        accuracy=("correct", "mean"),
    ).reset_index(drop=True)
    low, high = wilson_interval(table["accuracy"], table["n"])
    return table.assign(accuracy_low=low, accuracy_high=high)
