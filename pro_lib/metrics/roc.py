"""AUROC of a score with its interval, by question or by cluster. `differences` compares scores.

Everywhere, `uncertainty` is `(n,)`, or `(n, A)` for A scores, higher = more uncertain, and
`correct` is `(n,)`, True for a right answer. AUROC is the probability that a wrong answer has a
higher uncertainty than a right one; a tie counts half. Values of one score that differ by less
than rounding are ties (`tie_numbers`). The functions raise `OneClassError` unless
right and wrong answers both occur, and `ValueError` for NaN (see `usable`).
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtrit

from pro_lib.common.reasons import NO_REFERENCE, count_reasons, reasons_in_words

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]
_Z = float(ndtri(0.975))
# At this value of (n - 1) a (1 - a), the variance of a class and its maximum have equal weights.
_SCARCE = 0.7
ROUNDING = 1e-5  # of scores from models in single precision, absolute and relative
_HUGE = 1e300  # stands for infinity where values are subtracted
FEWEST_CLUSTERS = 5  # fewer clusters say too little about how much clusters differ
_MOST_NAMES = 5  # questions that a message names


class OneClassError(ValueError):
    """All answers are right, all are wrong, or there are none, so that the value is undefined."""


def usable(
    uncertainties: pd.DataFrame, correct: ArrayLike, *, reasons: ArrayLike = ""
) -> tuple[BoolArray, str]:
    """Find the questions for which all methods have a value and correctness is known.

    Args:
        uncertainties: a row per question and a column per method; its index names the questions.
        correct: whether the answers are right (n,), None or NaN where this is unknown.
        reasons: why a question has no usable answer (n,), "" if it has one (`Run.reasons`).

    Returns:
        Which questions are usable (n,), and a sentence that says why others are left out.

    Example:
        >>> usable(pd.DataFrame({"NLL": [0.5, 1.0]}), [True, False])[1]
        'All 2 questions are used.'
    """
    labels: NDArray[np.object_] = np.ma.asarray(correct, dtype=object).filled(np.nan)
    missing = uncertainties.isna().assign(correct=pd.isna(labels))
    mask = ~missing.any(axis=1).to_numpy()
    if mask.all():
        return mask, f"All {len(mask)} questions are used."
    excluded = missing[~mask]
    names = ", ".join(map(str, excluded.index[:_MOST_NAMES]))
    if len(excluded) > _MOST_NAMES:
        names += ", …"
    why = _missing_in_words(excluded, np.broadcast_to(reasons, len(mask))[~mask])
    counts = f"{len(excluded)} of {len(mask)} questions are left out"
    return mask, f"{counts} ({names}): {why}."


def _missing_in_words(missing: pd.DataFrame, reasons: NDArray[Any]) -> str:
    """Return why questions are left out.

    Args:
        missing: which values are missing, a row per question that is left out.
        reasons: why it has no usable answer, "" if it has one.
    """
    has_answer = reasons == ""
    is_unjudged = has_answer & missing["correct"].to_numpy()
    counts = count_reasons(np.where(is_unjudged, NO_REFERENCE, reasons))
    parts = [reasons_in_words(counts)] if counts else []
    n_missing = missing[has_answer].drop(columns="correct").sum()
    parts += [f"{method} is missing for {count}" for method, count in n_missing.items() if count]
    return ", ".join(parts)


def auroc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Return AUROC of one score.

    Args:
        uncertainty: the scores (n,), higher = more uncertain.
        correct: (n,); True for a right answer.

    Returns:
        The probability that a wrong answer has a higher score than a right one.

    Raises:
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> auroc([0.1, 0.5, 0.3], [True, False, False])
        1.0
    """
    return float(auroc_intervals(as_floats(uncertainty)[:, None], correct)[0][0])


def auroc_intervals(
    uncertainty: ArrayLike, correct: ArrayLike, *, clusters: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the AUROC of each column of `uncertainty` (n, A) and the ends of its 95 % interval.

    The interval is Wilson's for the AUROC a as a share of 1/v answers, where v a (1 - a) is
    DeLong's variance. The variance of the placements of a class is at most a (1 - a). It cannot be
    estimated well from few answers, so the estimate is shrunk towards this maximum. The weight of
    the maximum is 1 / (1 + (s / 0.7)³) with s = (n - 1) a (1 - a) for n answers in the class. One
    answer in a class is enough.

    Questions in one cluster may be right or wrong together. With `clusters`, v is at least the
    jackknife variance over clusters, the variance of Obuchowski (1997) with whole clusters left
    out. The maximum then counts a cluster as one answer. Student's quantile for the effective
    number of clusters replaces the normal one. docs/explanation/intervals.md has the coverage.

    Args:
        uncertainty: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.
        clusters: (n,) names of the clusters; None for independent questions. With fewer than
            `FEWEST_CLUSTERS` clusters the ends are NaN.

    Returns:
        AUROC, low, high: (A,) each.

    Raises:
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> area, low, high = auroc_intervals([[0.1], [0.5], [0.3]], [True, False, False])
        >>> area.tolist(), low.round(2).tolist(), high.round(2).tolist()
        ([1.0], [0.15], [1.0])
    """
    won_by_wrong, won_by_right = pairs_won(uncertainty, correct)
    n_wrong = won_by_wrong.shape[1]
    n_right = won_by_right.shape[1]
    # The placement of an answer is the share of the pairs it takes part in that a wrong one wins.
    wrong_placements = won_by_wrong / n_right
    right_placements = won_by_right / n_wrong
    area = wrong_placements.mean(axis=1)
    labels = np.asarray(correct).astype(bool)
    codes = None if clusters is None else cluster_codes(clusters, len(labels))
    inverse_n = np.zeros(len(area))
    for placements, members in ((wrong_placements, ~labels), (right_placements, labels)):
        class_codes = None if codes is None else codes[members]
        inverse_n += _class_inverse_n(placements, area, class_codes)
    if codes is not None:
        inverse_n = _clustered(inverse_n, area, jackknifed_aurocs(uncertainty, labels, codes))
    low, high = wilson(area, 1 / inverse_n)
    # Whole and half pairs are added up, so that equal AUROCs are exactly equal.
    exact_area = won_by_wrong.sum(axis=1) / (n_right * n_wrong)
    return exact_area, low, high


def _class_inverse_n(
    placements: FloatArray, area: FloatArray, codes: NDArray[np.intp] | None
) -> FloatArray:
    """Return the part of v = 1/n of the AUROCs that is due to one class, (A,).

    Args:
        placements: the placements of the answers of the class, (A, n).
        area: the AUROCs, (A,).
        codes: the clusters of these answers, (n,); None for independent questions.
    """
    n = placements.shape[1]
    scarcity = (n - 1) * area * (1 - area)
    squares = n * placements.var(axis=1)
    cluster_sizes = np.ones(n) if codes is None else np.bincount(codes)
    # By how much clusters raise the variance if all answers of a cluster are alike.
    design_effect = (cluster_sizes**2).sum() / n
    estimate = scarcity**2 * squares
    maximum = _SCARCE**3 * design_effect
    return np.asarray((estimate + maximum) / (scarcity**3 + _SCARCE**3) / n)


def auroc_in_words(auroc: float, low: float, high: float) -> str:
    """Return an AUROC with its interval as text, and say if the whole interval is below 0.5.

    Example:
        >>> auroc_in_words(0.3, 0.2, 0.4)
        '0.300 (0.200 to 0.400, worse than chance)'
    """
    verdict = ", worse than chance" if high < 0.5 else ""
    return f"{auroc:.3f} ({low:.3f} to {high:.3f}{verdict})"


def _clustered(inverse_n: FloatArray, area: FloatArray, jackknifed: FloatArray) -> FloatArray:
    """Raise v = 1/n of AUROCs (A,) to their jackknife variance (A, I) where that is larger."""
    n_clusters = jackknifed.shape[1]
    if n_clusters < FEWEST_CLUSTERS:
        return np.full(len(area), np.nan)
    largest_variance = area * (1 - area)
    variance = jackknife_variance(jackknifed, area)
    shares = np.divide(
        variance, largest_variance, out=np.zeros(len(area)), where=largest_variance > 0
    )
    # The fewer clusters dominate the variance, the less is known about it. The degrees of freedom
    # are therefore at most 1.5 times the effective number of clusters.
    squares = (jackknifed - area[:, None]) ** 2
    total = squares.sum(axis=1) ** 2
    fourth = (squares**2).sum(axis=1)
    effective = np.divide(total, fourth, out=np.full(len(area), np.inf), where=fourth != 0)
    freedom = np.minimum(n_clusters - 1, 1.5 * effective)
    student_quantile = -stdtrit(freedom, 0.025)
    return np.asarray(np.maximum(inverse_n, shares) * (student_quantile / _Z) ** 2)


def cluster_codes(clusters: ArrayLike, n_questions: int) -> NDArray[np.intp]:
    """Return the number of each question's cluster (n,), counted from 0."""
    names = np.asarray(clusters)
    if names.shape != (n_questions,):
        raise ValueError(
            f"clusters must have one name per question; got {names.shape}, "
            f"expected ({n_questions},)"
        )
    return np.unique(names, return_inverse=True)[1]


def jackknifed_aurocs(
    uncertainty: ArrayLike, correct: ArrayLike, codes: NDArray[np.intp]
) -> FloatArray:
    """Return the AUROCs without the questions of each cluster, in O(n log n).

    Args:
        uncertainty: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.
        codes: the cluster of each question (n,), from `cluster_codes`.

    Returns:
        The AUROCs (A, I) for I clusters, NaN where only one class is left.
    """
    values, labels = aligned(uncertainty, correct, columns=True)
    need_both(labels, "AUROC")
    numbers = tie_numbers(values)
    won_by_wrong, won_by_right = _count_pairs(numbers, labels)
    n_wrong = won_by_wrong.shape[1]
    n_right = won_by_right.shape[1]
    wrong_codes = codes[~labels]
    right_codes = codes[labels]
    n_clusters = int(codes.max()) + 1
    wrong_sizes = np.bincount(wrong_codes, minlength=n_clusters)
    right_sizes = np.bincount(right_codes, minlength=n_clusters)
    # Numbers are below n, so that the clusters do not overlap after this shift: a question wins
    # no pair against a later cluster, and all pairs against an earlier one.
    shifted = numbers + len(labels) * codes[:, None]
    dense = [np.unique(column, return_inverse=True)[1] for column in shifted.T]
    won_shifted, _ = _count_pairs(np.column_stack(dense), labels)
    n_right_earlier = np.cumsum(right_sizes) - right_sizes
    within = sum_by_group(won_shifted - n_right_earlier[wrong_codes], wrong_codes, n_clusters)
    with_wrong = sum_by_group(won_by_wrong, wrong_codes, n_clusters)
    with_right = sum_by_group(n_wrong - won_by_right, right_codes, n_clusters)
    # A pair within a cluster is in both counts of the pairs that are left out, so it is added once.
    left_out = with_wrong + with_right - within
    n_pairs = (n_wrong - wrong_sizes) * (n_right - right_sizes)
    pairs_left = won_by_wrong.sum(axis=1)[:, None] - left_out
    undefined = np.full(pairs_left.shape, np.nan)
    return np.asarray(np.divide(pairs_left, n_pairs, out=undefined, where=n_pairs > 0))


def sum_by_group(values: FloatArray, codes: IntArray, n_groups: int) -> FloatArray:
    """Sum values (A, n) over groups, (A, G).

    Args:
        values: (A, n).
        codes: (n,) number of the group of each column.
        n_groups: the number of groups, G.

    Example:
        >>> sum_by_group(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 1]), 3)
        array([[1., 6., 0.]])
    """
    sums = [np.bincount(codes, weights=row, minlength=n_groups) for row in values]
    return np.array(sums, dtype=np.float64).reshape(len(values), n_groups)


def jackknife_variance(jackknifed: FloatArray, estimate: FloatArray) -> FloatArray:
    """Return the variance (A,) of estimates (A,) from those without each of I clusters (A, I)."""
    n_clusters = jackknifed.shape[1]
    squares = ((jackknifed - estimate[:, None]) ** 2).sum(axis=1)
    return np.asarray((n_clusters - 1) / n_clusters * squares)


def wilson(share: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the 95 % score intervals of shares (Wilson 1927).

    Args:
        share: the observed shares, of any shape.
        n: the number of observations behind each share; it need not be whole.

    Returns:
        low, high: of the shape of `share`, NaN where n is 0.

    Example:
        >>> [float(end.round(3)) for end in wilson(0.5, 10)]
        [0.237, 0.763]
    """
    shares = as_floats(share)
    counts = as_floats(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 + _Z**2 / counts
        middle = (shares + _Z**2 / (2 * counts)) / scale
        spread = np.sqrt(shares * (1 - shares) / counts + _Z**2 / (4 * counts**2))
        half = _Z / scale * spread
    # An end that is exactly 0 or 1 must not be moved by rounding.
    low = np.where((shares == 0) & (counts > 0), 0.0, middle - half)
    high = np.where((shares == 1) & (counts > 0), 1.0, middle + half)
    return low, high


def normal(mean: ArrayLike, standard_error: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the ends of 95 % normal intervals.

    Args:
        mean: the estimates, of any shape.
        standard_error: their standard errors, of the same shape.

    Returns:
        low, high: of that shape.

    Example:
        >>> [float(end.round(2)) for end in normal(0.5, 0.1)]
        [0.3, 0.7]
    """
    means = as_floats(mean)
    half = _Z * as_floats(standard_error)
    return means - half, means + half


def as_floats(values: ArrayLike) -> FloatArray:
    """Return numbers as a float64 array, with NaN for the values that a masked array hides.

    Args:
        values: numbers of any shape.

    Example:
        >>> as_floats(np.ma.masked_greater([1, 2], 1)).tolist()
        [1.0, nan]
    """
    return np.asarray(np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan))


def aligned(
    uncertainty: ArrayLike, correct: ArrayLike, *, columns: bool = False
) -> tuple[FloatArray, BoolArray]:
    """Check scores and labels, and return them as arrays.

    Args:
        uncertainty: the scores (n,), or (n, A) with `columns`, without NaN.
        correct: (n,) booleans, or 0 and 1 as in scikit-learn.
        columns: whether `uncertainty` has a column per score.

    Returns:
        The scores in float64, and the labels as booleans.

    Raises:
        ValueError: a shape or a type is another, or a score is NaN.

    Example:
        >>> values, labels = aligned([0.5, 1], [1, 0])
        >>> labels.tolist()
        [True, False]
    """
    values = as_floats(uncertainty)
    labels = _as_booleans(np.ma.asarray(correct))
    if values.ndim != 1 + columns or len(values) != len(labels):
        shape = f"({len(labels)}, A)" if columns else f"({len(labels)},)"
        raise ValueError(
            f"uncertainty must have the shape {shape}, a row per label in correct, "
            f"not {values.shape}"
        )
    is_missing = np.isnan(values if columns else values[:, None]).any(axis=1)
    if is_missing.any():
        first = f"first in row {is_missing.argmax()}"
        raise ValueError(f"uncertainty is NaN in {is_missing.sum()} of {len(values)} rows, {first}")
    return values, labels


def _as_booleans(labels: np.ma.MaskedArray) -> BoolArray:
    """Return labels (n,) as booleans, or raise `ValueError` if one is not True, False, 0 or 1."""
    # A column of booleans that may have missing values has the type object.
    is_boolean = labels.dtype == bool and not np.ma.is_masked(labels)
    values = labels.ravel().tolist()  # None for a label that the mask hides
    if labels.ndim != 1 or not (is_boolean or all(value in (0, 1) for value in values)):
        raise ValueError(
            "correct must be (n,) booleans, such as rouge_l > 0.3, or 0 and 1, "
            f"not {labels.dtype} {labels.shape}"
        )
    return np.asarray(labels, dtype=bool)


def need_both(correct: BoolArray, what: str) -> None:
    """Raise `OneClassError` unless right and wrong answers both occur.

    Args:
        correct: (n,); True for a right answer.
        what: the value or method that needs both, for the message.

    Raises:
        OneClassError: all answers are right, all are wrong, or there are none.

    Example:
        >>> need_both(np.array([True, True]), "PRR")
        Traceback (most recent call last):
            ...
        pro_lib.metrics.roc.OneClassError: PRR needs right and wrong answers, but all 2 are right
    """
    if not correct.size:
        raise OneClassError(f"{what} needs right and wrong answers, but none are given")
    if correct.all() or not correct.any():
        kind = "right" if correct[0] else "wrong"
        raise OneClassError(
            f"{what} needs right and wrong answers, but all {len(correct)} are {kind}"
        )


def pairs_won(uncertainty: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Count how many answers of the other class have a lower score than each answer.

    The counts are exact; a tie counts half.

    Args:
        uncertainty: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.

    Returns:
        The number of right answers below each wrong one, (A, n_wrong), and the number of wrong
        answers below each right one, (A, n_right).

    Raises:
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> won_by_wrong, won_by_right = pairs_won([[0.1], [0.5], [0.5]], [True, False, True])
        >>> won_by_wrong.tolist(), won_by_right.tolist()
        ([[1.5]], [[0.0, 0.5]])
    """
    values, labels = aligned(uncertainty, correct, columns=True)
    need_both(labels, "AUROC")
    return _count_pairs(tie_numbers(values), labels)


def _count_pairs(numbers: IntArray, labels: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Count the pairs of `pairs_won` for numbers from 0 on (n, A), of which equal ones are ties."""
    won_by_wrong = weight_below(numbers.T, labels)[:, ~labels]
    won_by_right = weight_below(numbers.T, ~labels)[:, labels]
    return won_by_wrong, won_by_right


def weight_below(numbers: IntArray, weights: ArrayLike) -> FloatArray:
    """Return the total weight (A, n) of the answers below each; ties count half.

    Args:
        numbers: (A, n) from 0 on, in the order of the scores; equal ones are ties.
        weights: (n,) of the answers.

    Example:
        >>> weight_below(np.array([[0, 1, 1]]), np.array([1.0, 2.0, 4.0]))
        array([[0.5, 4. , 4. ]])
    """
    rows = []
    for row in numbers:
        sums = np.bincount(row, weights=weights)
        rows.append((np.cumsum(sums) - sums / 2)[row])
    return np.array(rows).reshape(numbers.shape)


def tie_numbers(values: ArrayLike) -> IntArray:
    """Number the values of each column in their order; values that differ by rounding share one.

    A model in single precision gives one answer slightly different log-probabilities in different
    batches. From the lowest value on, all values that are larger by at most 1e-5, absolute or
    relative, are one tie.

    Args:
        values: (n, A) without NaN.

    Returns:
        The numbers (n, A), from 0.

    Example:
        >>> tie_numbers([[0.5], [0.1], [0.5 + 1e-9]]).tolist()
        [[1], [0], [1]]
    """
    finite = np.clip(as_floats(values), -_HUGE, _HUGE)
    order = np.argsort(finite, axis=0, kind="stable")
    ordered = np.take_along_axis(finite, order, axis=0)
    is_first = np.diff(ordered, axis=0, prepend=-np.inf) > _tolerance(ordered)
    for column in range(ordered.shape[1]):
        _cut_chains(ordered[:, column], is_first[:, column])
    numbers = np.empty_like(order)
    np.put_along_axis(numbers, order, is_first.cumsum(axis=0) - 1, axis=0)
    return numbers


def _tolerance(values: FloatArray) -> FloatArray:
    return np.asarray(ROUNDING * (1 + np.abs(values)))


def _cut_chains(ordered: FloatArray, is_first: BoolArray) -> None:
    """Mark further first values of ties (n,) where neighbours alone would join distant values."""
    firsts = np.flatnonzero(is_first)
    ends = np.append(firsts[1:], len(ordered))
    is_long = ordered[ends - 1] - ordered[firsts] > _tolerance(ordered[firsts])
    if not is_long.any():
        return
    nexts = np.searchsorted(ordered, ordered + _tolerance(ordered), side="right").tolist()
    further: list[int] = []
    for place, end in zip(firsts[is_long].tolist(), ends[is_long].tolist(), strict=True):
        while place < end:
            further.append(place)
            place = nexts[place]
    is_first[further] = True
