"""Differences of AUROCs on the same questions: intervals, tests and readings.

The method, and the simulation by which it was chosen, are in docs/explanation/intervals.md.
"""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from pro_lib.metrics.roc import (
    FEWEST_CLUSTERS,
    BoolArray,
    FloatArray,
    IntArray,
    aligned,
    as_floats,
    auroc_intervals,
    cluster_codes,
    jackknife_variance,
    jackknifed_aurocs,
    pairs_won,
    tie_numbers,
)

MARGIN = 0.01  # AUROCs that differ by less count as equivalent
SIGNIFICANT = 0.05  # p-values up to this one, after Holm's correction, are significant
FEWEST_FOR_INTERVAL = 5  # with fewer right, or wrong, answers a difference has no interval
_UNSEEN_SQUARE = 1.0  # the square of an unseen move from one end of the ranking to the other
IDENTICAL = "identical"


@dataclass(frozen=True)
class DeLong:
    """Tests of the AUROCs of A scores on the same questions against the AUROC of one of them.

    Attributes:
        difference: AUROC minus the reference's (A,); 0 for the reference itself.
        low: lower end of the 95 % interval (A,); NaN if there is none, 0 for the reference.
        high: upper end of the 95 % interval, (A,).
        standard_error: of the difference, (A,).
        p_value: two-sided, of equal AUROCs (A,); NaN for the reference itself.
        n_differ: the fewest questions that must move so that a score orders all questions as the
            reference does, (A,).
        reference: the column of the reference.
        problem: why there is no interval; empty if there is one.
    """

    difference: FloatArray
    low: FloatArray
    high: FloatArray
    standard_error: FloatArray
    p_value: FloatArray
    n_differ: NDArray[np.int64]
    reference: int
    problem: str = ""

    def readings(self) -> list[str]:
        """Return the reading of each difference (`read_difference`); "" for the reference."""
        values = zip(self.low, self.high, self.n_differ, strict=True)
        readings = [read_difference(*value, problem=self.problem) for value in values]
        readings[self.reference] = ""
        return readings


def delong(
    uncertainties: ArrayLike,
    correct: ArrayLike,
    *,
    reference: int | str = 0,
    clusters: ArrayLike | None = None,
) -> DeLong:
    """Test the AUROC of each column of `uncertainties` (n, A) against the AUROC of one column.

    The move of a wrong answer is the change of the share of right answers below it. The move of a
    right answer is the change of the share of wrong answers above it. The mean move of either class
    is the difference d of the AUROCs, and DeLong, DeLong & Clarke-Pearson (1988) estimate its
    variance from the moves m of both classes. Here a class of n answers has one pseudo-move
    besides, so that its variance is (Σ (m - d)² + s²) / ((n - 1) n). The square of the pseudo-move
    is s² = (Σ m² + 1) / (k + 1), with the moves of both classes and k from `count_moved`. The
    interval is Student's, with Satterthwaite's degrees of freedom. With `clusters`, the jackknife
    over clusters replaces the variance of the moves if it is larger. docs/explanation/intervals.md
    has the coverage.

    Args:
        uncertainties: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.
        reference: index or name of the column to compare with.
        clusters: (n,) names of the clusters of questions that may be right together.

    Returns:
        The tests. Intervals, standard errors and p-values are NaN with fewer than five right or
        wrong answers or, with `clusters`, fewer than five clusters; `DeLong.problem` then says why.
        The differences are NaN only if all answers are right, or all are wrong.

    Raises:
        KeyError: there is no column `reference`.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = rng.normal(size=(100, 2))
        >>> tests = delong(scores, scores[:, 1] + rng.normal(size=100) < 0)
        >>> tests.difference.round(2).tolist()
        [0.0, 0.39]
    """
    values, labels = aligned(uncertainties, correct, columns=True)
    if isinstance(reference, str):
        columns = pd.DataFrame(uncertainties).columns
        if reference not in columns:
            raise KeyError(
                f"reference {reference!r} is not among the columns {', '.join(map(str, columns))}"
            )
        reference = int(columns.get_loc(reference))
    codes = None if clusters is None else cluster_codes(clusters, len(labels))
    n_differ = count_moved(values, values[:, reference])
    problem = _too_few(labels, codes)
    if problem:
        difference = np.full(values.shape[1], np.nan)
        if 0 < np.count_nonzero(labels) < len(labels):
            areas = auroc_intervals(values, labels)[0]
            difference = areas - areas[reference]
        nan = np.full_like(difference, np.nan)
        return DeLong(difference, nan, nan, nan, nan, n_differ, reference, problem)
    difference, variance, freedom = _moments(values, labels, reference, n_differ, codes)
    standard_error = np.sqrt(variance)
    half_width = -stdtrit(freedom, 0.025) * standard_error
    p_value = 2 * stdtr(freedom, -np.abs(difference) / standard_error)
    half_width[reference] = 0.0
    standard_error[reference] = 0.0
    p_value[reference] = np.nan
    return DeLong(
        difference=difference,
        low=np.maximum(difference - half_width, -1.0),  # AUROCs differ by at most 1
        high=np.minimum(difference + half_width, 1.0),
        standard_error=standard_error,
        p_value=p_value,
        n_differ=n_differ,
        reference=reference,
    )


def _moments(
    values: FloatArray,
    labels: BoolArray,
    column: int,
    n_differ: NDArray[np.int64],
    codes: NDArray[np.intp] | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the differences, their variances and the degrees of freedom, (A,) each."""
    won_by_wrong, won_by_right = pairs_won(values, labels)
    sizes = np.array([[won_by_wrong.shape[1]], [won_by_right.shape[1]]])
    # Differences are taken before the means: columns that rank alike differ by exactly 0.
    wrong_moves = (won_by_wrong - won_by_wrong[column]) / sizes[1]
    right_moves = (won_by_right[column] - won_by_right) / sizes[0]
    difference = wrong_moves.mean(axis=1)
    moves = (wrong_moves, right_moves)
    squares = sum((move**2).sum(axis=1) for move in moves)
    pseudo_square = (squares + _UNSEEN_SQUARE) / (n_differ + 1)
    deviations = [((move - difference[:, None]) ** 2).sum(axis=1) for move in moves]
    class_variances = (np.stack(deviations) + pseudo_square) / ((sizes - 1) * sizes)
    variance = class_variances.sum(axis=0)
    freedom = variance**2 / (class_variances**2 / (sizes - 1)).sum(axis=0)
    if codes is None:
        return difference, variance, freedom
    jackknifed = jackknifed_aurocs(values, labels, codes)
    by_cluster = jackknife_variance(jackknifed - jackknifed[column], difference)
    pseudo_variance = (pseudo_square / ((sizes - 1) * sizes)).sum(axis=0)
    # It is NaN if a class is in one cluster, and so is the interval then.
    variance = np.maximum(variance, by_cluster + pseudo_variance)
    return difference, variance, np.minimum(freedom, jackknifed.shape[1] - 1)


def _too_few(labels: BoolArray, codes: np.ndarray | None) -> str:
    """Say why no difference can have an interval, or nothing if it can."""
    for name, n in (("right", np.count_nonzero(labels)), ("wrong", np.count_nonzero(~labels))):
        if n < FEWEST_FOR_INTERVAL:
            return f"fewer than {FEWEST_FOR_INTERVAL} {name} answers"
    if codes is not None and codes.max() + 1 < FEWEST_CLUSTERS:
        return f"fewer than {FEWEST_CLUSTERS} clusters"
    return ""


def count_moved(scores: ArrayLike, reference: ArrayLike) -> NDArray[np.int64]:
    """Count the fewest questions that must move so that scores have the order of a reference.

    Two orders differ if a pair of questions is turned around, or is a tie in one of them only. The
    count is the larger one of two: n minus the length of the longest sequence of questions on which
    neither score falls, and the questions that must leave a tie. It depends on ranks only, and
    values that differ by rounding are ties.

    Args:
        scores: (n, A).
        reference: (n,).

    Returns:
        The counts (A,), 0 if both have one order.

    Example:
        >>> count_moved([[1.0, 9.0, 0.5], [2.0, 3.0, 0.5], [3.0, 4.0, 0.5]], [0.1, 0.2, 0.3])
        array([0, 1, 2])
    """
    first = tie_numbers(as_floats(reference)[:, None])[:, 0]
    counts = []
    for second in tie_numbers(scores).T:
        ends: list[int] = []  # the lowest last value of a sequence of each length
        for value in second[np.lexsort((second, first))].tolist():
            place = bisect_right(ends, value)
            if place == len(ends):
                ends.append(value)
            else:
                ends[place] = value
        n_turned = len(first) - len(ends)
        counts.append(max(n_turned, _n_leaving_ties(first, second)))
    return np.array(counts, dtype=np.int64)


def _n_leaving_ties(first: IntArray, second: IntArray) -> int:
    """Return how many questions must leave the ties of one score (n,) because of the other's."""
    n_numbers = second.max() + 1
    cells, sizes = np.unique(first * n_numbers + second, return_counts=True)
    kept = []
    for numbers in np.divmod(cells, n_numbers):
        largest = np.zeros(numbers.max() + 1, dtype=np.int64)
        np.maximum.at(largest, numbers, sizes)
        kept.append(largest.sum())
    return len(first) - int(min(kept))


def read_difference(low: float, high: float, n_differ: int, *, problem: str = "") -> str:
    """Return the reading of a difference between two AUROCs.

    Two scores are *identical* if they order the questions alike. A difference is *different* if its
    95 % interval does not contain 0, *equivalent* if the interval lies within ± `MARGIN`, and
    otherwise *undecided*. Nothing is corrected for the number of differences.

    Args:
        low: lower end of the 95 % interval, NaN if there is none.
        high: upper end of the interval.
        n_differ: the questions that must move, from `count_moved`.
        problem: why there is no interval.

    Example:
        >>> read_difference(-0.003, 0.007, n_differ=12)
        'equivalent'
    """
    if n_differ == 0:
        return IDENTICAL
    if np.isnan(low):
        return problem or "all answers of one class are in one cluster"
    is_different = low > 0 or high < 0
    is_equivalent = low > -MARGIN and high < MARGIN
    if is_different and is_equivalent:
        return "different and equivalent"
    if is_different:
        return "different"
    return "equivalent" if is_equivalent else "undecided"


def compare_aurocs(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    reference: str = "PRO",
    uncorrected: Collection[str] = (),
    clusters: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return the AUROC of several methods, and test their differences to one of them.

    Args:
        uncertainties: a row per question and a column per method.
        correct: (n,); True for a right answer.
        reference: the method that the others are compared with.
        uncorrected: methods that Holm's correction does not count; they have no `p_holm`.
        clusters: (n,) names of the clusters of questions that may be right together. Both the
            intervals of the AUROCs and those of the differences use them.

    Returns:
        A row per method with the columns

        - method, and auroc, low and high from `auroc_intervals`.
        - interval: whether the intervals are "by question" or "by cluster".
        - n_differ, difference, difference_low, difference_high and p_value from `delong`.
        - p_holm: the p-value, corrected for the number of other methods.
        - significant: whether p_holm is at most 0.05.
        - reading, from `read_difference`.

        If `delong` has no interval, its columns are NaN and the reading says why. The reference has
        no test and no reading.

    Raises:
        KeyError: there is no column `reference`.
        OneClassError: all answers are right, or all are wrong.
        ValueError: a score is NaN, or the shapes differ.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = pd.DataFrame(rng.normal(size=(100, 2)), columns=["PRO", "NLL"])
        >>> correct = scores["NLL"] + rng.normal(size=100) < 0
        >>> compare_aurocs(scores, correct)["reading"].tolist()
        ['', 'different']
    """
    aurocs, low, high = auroc_intervals(uncertainties, correct, clusters=clusters)
    tests = delong(uncertainties, correct, reference=reference, clusters=clusters)
    is_uncorrected = uncertainties.columns.isin(list(uncorrected))
    columns = {
        "method": uncertainties.columns,
        "auroc": aurocs,
        "low": low,
        "high": high,
        "interval": "by question" if clusters is None else "by cluster",
        **difference_columns(tests, is_uncorrected),
        "difference": aurocs - aurocs[tests.reference],
    }
    return pd.DataFrame(columns)


def difference_columns(tests: DeLong, is_uncorrected: NDArray[np.bool_]) -> dict[str, ArrayLike]:
    """Return the columns of `compare_aurocs` about differences.

    Args:
        tests: the differences of A methods to one of them.
        is_uncorrected: (A,), whether Holm's correction does not count a method.
    """
    p_holm = holm(np.where(is_uncorrected, np.nan, tests.p_value))
    return {
        "n_differ": tests.n_differ,
        "difference": tests.difference,
        "difference_low": tests.low,
        "difference_high": tests.high,
        "p_value": tests.p_value,
        "p_holm": p_holm,
        "significant": p_holm <= SIGNIFICANT,
        "reading": tests.readings(),
    }


def differences_in_words(comparison: pd.DataFrame, reference: str) -> list[str]:
    """Say how each method's AUROC differs from that of the reference.

    Args:
        comparison: the table of `compare_aurocs`.
        reference: the method that the others were compared with.

    Returns:
        A text per other method, such as "PRO minus NLL +0.012 [−0.003, +0.027]". If the table has
        no interval the text says why. If both scores order the questions alike it says so.

    Example:
        >>> scores = pd.DataFrame({"NLL": [0.1, 0.9, 0.6, 0.5], "PE": [0.2, 0.4, 0.3, 0.6]})
        >>> comparison = compare_aurocs(scores, [True, False, True, False], reference="NLL")
        >>> differences_in_words(comparison, "NLL")
        ['PE minus NLL +0.250, without an interval: fewer than 5 right answers']
    """
    texts = []
    for row in comparison[comparison["method"] != reference].to_dict("records"):
        name = f"{row['method']} minus {reference}"
        size = signed(row["difference"])
        ends = [row["difference_low"], row["difference_high"]]
        if row["reading"] == IDENTICAL:
            texts.append(f"{name} {size}, the same order of all questions")
        elif np.isnan(ends).any():
            texts.append(f"{name} {size}, without an interval: {row['reading']}")
        else:
            low, high = map(signed, ends)
            texts.append(f"{name} {size} [{low}, {high}]")
    return texts


def signed(value: float, digits: int = 3) -> str:
    """Return a difference with its sign, and zero without one.

    Example:
        >>> signed(-0.0123), signed(0.0)
        ('−0.012', '0.000')
    """
    text = f"{value:+z.{digits}f}"
    return text.lstrip("+") if float(text) == 0 else text.replace("-", "−")


def holm(p_values: ArrayLike) -> FloatArray:
    """Correct p-values by Holm's step-down procedure (1979).

    The i-th smallest of m p-values is multiplied by m - i + 1. None becomes smaller than the
    corrected value of a smaller one, and none exceeds 1.

    Args:
        p_values: (A,); NaN is not a test and does not count.

    Returns:
        The corrected p-values (A,), NaN where they were NaN.

    Example:
        >>> holm([0.01, 0.04, np.nan]).tolist()
        [0.02, 0.04, nan]
    """
    values = as_floats(p_values)
    n_tests = np.count_nonzero(~np.isnan(values))
    order = np.argsort(values)[:n_tests]  # NaN is last
    factors = np.arange(n_tests, 0, -1)
    corrected = np.full(values.shape, np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return corrected
