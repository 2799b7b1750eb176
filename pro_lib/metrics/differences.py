"""Differences of AUROCs on the same questions: intervals, tests, readings. `auroc` has single ones.

The method and the simulation it was judged by are in docs/intervals.md.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from pro_lib.metrics.auroc import (
    FEWEST_CLUSTERS,
    FloatArray,
    Labels,
    aligned,
    auroc_intervals,
    cluster_codes,
    jackknife_variance,
    jackknifed_aurocs,
    pairs_won,
)

MARGIN = 0.01  # AUROCs that differ by less are equal for all that this project reports
ROUNDING = 1e-5  # of scores from models in single precision, absolutely and relatively
FEWEST_OF_A_CLASS = 5  # with fewer right, or wrong, answers a difference has no interval
_FEW_MOVED = 5.0  # a class in which fewer answers moved gets pseudo-moves
_UNSEEN_SQUARE = 2.0  # an unseen move counts as one all the way up and one all the way down
_SKEWNESS = 4.0  # chosen by simulation, since a small sample shows too little of the skewness
_MOST_PAIRS = 300_000  # with more pairs DeLong's variance has a negligible bias
_FARTHEST = 1e9  # questions, as a multiple of those at hand, up to which `n_to_decide` looks


@dataclass(frozen=True)
class Moves:
    """How far A scores move the placements of the answers, compared with the reference score.

    The move of a wrong answer is the change of the share of right answers below it; the move of a
    right answer the change of the share of wrong answers above it. A better score has positive
    moves. The mean of either class is the difference of the AUROCs.
    """

    difference: FloatArray  # (A,)
    sizes: tuple[int, int]  # of wrong and right answers
    variances: FloatArray  # (2, A): of the mean move of each class
    variance: FloatArray  # (A,): unbiased, of the difference; by cluster where it is larger
    third_moment: FloatArray  # (A,), of the difference
    n_moved: FloatArray  # (2, A): answers of each class that moved
    share_up: FloatArray  # (A,): of the answers that moved, those that moved upwards
    squares: FloatArray  # (A,): sum of the squared deviations of the answers that moved
    n_clusters: int | None = None

    def half_width(self, end: int, level: float, scale: ArrayLike = 1.0) -> FloatArray:
        """Return the distance (A,) from the difference to one end of its interval.

        Args:
            end: 1 for the upper end, -1 for the lower end.
            level: probability of the interval, such as 0.95.
            scale: predict the distance for so many times as many questions, (A,) or a number.
        """
        variance, freedom = self._spread(end, scale)
        quantile = -stdtrit(freedom, (1 - level) / 2)
        shift = quantile**2 * self._skewness(end, scale) / 2
        return shift + np.sqrt(quantile**2 * variance + shift**2)

    def p_value(self) -> FloatArray:
        """Return 1 minus the level (A,) of the interval that ends at 0; 1 if nothing differs."""
        upper = self.difference < 0  # whether 0 lies towards the upper end
        variance_up, freedom_up = self._spread(1, 1.0)
        variance_down, freedom_down = self._spread(-1, 1.0)
        standard_error = np.sqrt(np.where(upper, variance_up, variance_down))
        size = np.abs(self.difference)
        quantile = np.divide(size, standard_error, out=np.zeros_like(size), where=size > 0)
        return 2 * stdtr(np.where(upper, freedom_up, freedom_down), -quantile)

    def _spread(self, end: int, scale: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the variance (A,) that one end uses, and its degrees of freedom."""
        scale = np.asarray(scale, dtype=np.float64)
        sizes = np.array(self.sizes, dtype=np.float64)[:, None] * scale
        n_moved = self.n_moved * scale
        square = (self.squares * scale + _UNSEEN_SQUARE) / (n_moved.sum(axis=0) + 1)
        weight = 1 - np.minimum(n_moved / np.minimum(_FEW_MOVED, sizes / 2), 1)
        share = self.share_up if end > 0 else 1 - self.share_up
        pseudo = weight * square * 2 * share / (sizes * (sizes - 1))
        variances = self.variances / scale + pseudo
        total = variances.sum(axis=0)
        parts = (variances**2 / (sizes - 1)).sum(axis=0)
        freedom = np.divide(total**2, parts, out=np.ones_like(total), where=parts > 0)
        if self.n_clusters is not None:
            freedom = np.minimum(freedom, self.n_clusters * scale - 1)
        return self.variance / scale + pseudo.sum(axis=0), freedom

    def _skewness(self, end: int, scale: ArrayLike) -> FloatArray:
        """Return the third moment over the variance (A,) if it points outward at this end.

        An end moves outward only if it is farther from 0 than the difference.
        """
        variance = self.variances.sum(axis=0)
        outward = (np.sign(self.difference) == end) & (end * self.third_moment > 0)
        ratio = np.divide(
            end * self.third_moment, variance, out=np.zeros_like(variance), where=variance > 0
        )
        return np.where(outward, _SKEWNESS * ratio / scale, 0.0)


def measure_moves(
    placements: tuple[FloatArray, FloatArray],
    changed: tuple[Labels, Labels],
    pair_squares: FloatArray,
) -> Moves:
    """Summarize the moves of wrong answers (A, n_wrong) and right answers (A, n_right).

    Args:
        placements: the moves of the wrong and of the right answers.
        changed: of the same shapes; whether the answer's own score differs from the reference's.
        pair_squares: (A,) mean over all pairs of the squared change of who wins; NaN if unknown.
    """
    n_wrong, n_right = sizes = placements[0].shape[1], placements[1].shape[1]
    difference = placements[0].mean(axis=1)
    deviations = [moves - difference[:, None] for moves in placements]
    sums = [(each**2).sum(axis=1) for each in deviations]
    variances = np.stack([s / (n * (n - 1)) for s, n in zip(sums, sizes, strict=True)])
    # DeLong's variance counts the variance of a single pair twice; its residual is taken off once.
    residuals = n_wrong * n_right * (pair_squares - difference**2)
    residuals -= n_right * sums[0] + n_wrong * sums[1]
    excess = np.maximum(residuals, 0) / ((n_wrong - 1) * (n_right - 1) * n_wrong * n_right)
    excess = np.nan_to_num(excess)
    cubes = [(each**3).sum(axis=1) for each in deviations]
    moved = [
        own & (np.abs(moves) > 1e-12) & (np.abs(deviation) > 1e-12)
        for own, moves, deviation in zip(changed, placements, deviations, strict=True)
    ]
    n_moved = np.stack([each.sum(axis=1) for each in moved]).astype(np.float64)
    total_moved = n_moved.sum(axis=0)
    pairs = list(zip(moved, deviations, placements, strict=True))
    squares = sum((deviation**2 * each).sum(axis=1) for each, deviation, _ in pairs)
    n_up = sum((each & (moves > 0)).sum(axis=1) for each, _, moves in pairs)
    return Moves(
        difference=difference,
        sizes=sizes,
        variances=variances,
        variance=np.maximum(variances.sum(axis=0) - excess, excess),
        third_moment=cubes[0] / n_wrong**3 + cubes[1] / n_right**3,
        n_moved=n_moved,
        share_up=(n_up + 0.5) / (total_moved + 1),
        squares=squares,
    )


@dataclass(frozen=True)
class DeLong:
    """Tests of the AUROCs of A uncertainties on the same questions against that of one of them."""

    difference: FloatArray  # (A,): AUROC minus the reference's; 0 for the reference itself
    standard_error: FloatArray  # (A,), of the difference
    p_value: FloatArray  # (A,), two-sided, of equal AUROCs; NaN for the reference itself
    reference: int
    n_questions: int
    moves: Moves | None  # None where no interval is shown
    method: str  # "by question", "by cluster", or why there is no interval

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of each difference, (A,). NaN where none is shown."""
        if self.moves is None:
            return np.full_like(self.difference, np.nan), np.full_like(self.difference, np.nan)
        # AUROCs differ by at most 1.
        low = np.maximum(self.difference - self.moves.half_width(-1, level), -1.0)
        high = np.minimum(self.difference + self.moves.half_width(1, level), 1.0)
        low[self.reference] = 0.0
        high[self.reference] = 0.0
        return low, high


def delong(
    uncertainties: ArrayLike,
    correct: ArrayLike,
    *,
    reference: int | str = 0,
    clusters: ArrayLike | None = None,
) -> DeLong:
    """Test the AUROC of each column of `uncertainties` (n, A) against the AUROC of one column.

    The variance is that of DeLong, DeLong & Clarke-Pearson (1988) without its bias. Four additions
    make the interval cover in small samples: Student's quantile with Satterthwaite's degrees of
    freedom, an end away from 0 that moves outward with the skewness, pseudo-moves in a class in which fewer
    than five answers moved, and, with `clusters`, the jackknife over clusters wherever its variance
    is larger. docs/intervals.md has the formulas and the coverage. Placements are found by sorting
    (Sun & Xu 2014); the bias is only computed for up to 300,000 pairs.

    Args:
        uncertainties: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.
        reference: index or name of the column to compare with.
        clusters: (n,) names of the clusters of questions that may be right together.

    Returns:
        The tests. Standard errors and p-values are NaN with fewer than five right or wrong
        answers or, with `clusters`, fewer than five clusters; `DeLong.method` then says why. The
        differences are NaN only if all answers are right, or all are wrong.
    """
    columns = pd.DataFrame(uncertainties).columns
    column = reference if isinstance(reference, int) else columns.get_indexer_for([reference])[0]
    if column < 0:
        raise KeyError(
            f"reference {reference!r} is not among the columns {', '.join(map(str, columns))}"
        )
    values, labels = aligned(uncertainties, correct, columns=True)
    codes = None if clusters is None else cluster_codes(clusters, len(labels))
    reason = _too_few(labels, codes)
    if reason:
        nothing = np.full(values.shape[1], np.nan)
        has_both = 0 < np.count_nonzero(labels) < len(labels)
        areas = auroc_intervals(values, labels)[0] if has_both else nothing
        return DeLong(areas - areas[column], nothing, nothing, column, len(labels), None, reason)
    moves = _moves(values, labels, column)
    method = "by question"
    if codes is not None:
        moves = _by_cluster(moves, jackknifed_aurocs(values, labels, codes), column)
        method = "by cluster"
    p_value = moves.p_value()
    p_value[column] = np.nan
    standard_error = np.sqrt(moves.variance)
    standard_error[column] = 0.0
    return DeLong(moves.difference, standard_error, p_value, column, len(labels), moves, method)


def _too_few(labels: Labels, codes: np.ndarray | None) -> str:
    """Say why no difference can have an interval; empty if it can."""
    for name, n in (("right", np.count_nonzero(labels)), ("wrong", np.count_nonzero(~labels))):
        if n < FEWEST_OF_A_CLASS:
            return f"fewer than {FEWEST_OF_A_CLASS} {name} answers"
    if codes is not None and codes.max() + 1 < FEWEST_CLUSTERS:
        return f"fewer than {FEWEST_CLUSTERS} clusters"
    return ""


def _moves(values: FloatArray, labels: Labels, column: int) -> Moves:
    """Measure how far each column (n, A) moves the placements, compared with one column."""
    n_right = np.count_nonzero(labels)
    n_wrong = len(labels) - n_right
    won_by_wrong, won_by_right = pairs_won(values, labels)
    # Differences are taken before the variance: columns that rank alike differ by exactly 0.
    of_wrong = (won_by_wrong - won_by_wrong[column]) / n_right
    of_right = (won_by_right[column] - won_by_right) / n_wrong
    changed = np.not_equal(values.T, values.T[column])
    pair_squares = np.full(len(of_wrong), np.nan)
    if n_right * n_wrong <= _MOST_PAIRS:
        first = _signs(values[:, column], labels)
        pair_squares = np.array(
            [np.mean((_signs(score, labels) - first) ** 2) / 4 for score in values.T]
        )
    return measure_moves(
        (of_wrong, of_right), (changed[:, ~labels], changed[:, labels]), pair_squares
    )


def _signs(score: FloatArray, labels: Labels) -> np.ndarray:
    """Return which pairs (n_wrong, n_right) a score (n,) wins: 1, 0 for a tie, -1."""
    wrong = score[~labels][:, None]
    right = score[labels]
    return (wrong > right).astype(np.int8) - (wrong < right)


def _by_cluster(moves: Moves, jackknifed: FloatArray, column: int) -> Moves:
    """Use the jackknife over clusters (A, I) where its variance is larger."""
    jackknifed = jackknifed - jackknifed[column]
    variance = jackknife_variance(jackknifed, moves.difference)
    influence = moves.difference[:, None] - jackknifed
    squares = (influence**2).sum(axis=1)
    # `Moves` divides the third moment by the variance by question.
    ratio = np.divide(
        moves.variances.sum(axis=0), squares, out=np.zeros(len(squares)), where=squares > 0
    )
    third_moment = (influence**3).sum(axis=1) * ratio
    larger = ~(variance <= moves.variance)  # a NaN, of a class in one cluster, stays
    return replace(
        moves,
        variance=np.where(larger, variance, moves.variance),
        third_moment=np.where(larger, third_moment, moves.third_moment),
        n_clusters=jackknifed.shape[1],
    )


def compare_aurocs(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    reference: str = "PRO",
    uncorrected: Collection[str] = (),
    clusters: ArrayLike | None = None,
) -> pd.DataFrame:
    """Tabulate the AUROC of several methods, and test their differences to one of them.

    Args:
        uncertainties: a row per question and a column per method.
        correct: (n,); True for a right answer.
        reference: the method that the others are compared with.
        uncorrected: methods that Holm's correction does not count; they have no `p_holm`.
        clusters: (n,) names of the clusters of questions that may be right together. Both the
            intervals of the AUROCs and those of the differences use them.

    Returns:
        A row per method. `auroc, low, high` are from `auroc_intervals`. `n_differ` is from
        `count_differing`. `difference` is the AUROC minus
        the reference's, with `difference_low, difference_high` and `p_value` from `delong`.
        `p_holm` is corrected for the number of other methods, and `significant` if it is at most
        0.05. `reading` and `n_to_decide` are from `readings` and not corrected; a score that is
        the same as the reference's on every question reads `identical` and has no `n_to_decide`. `interval` says
        whether the intervals are by question or by cluster. Where `delong` shows no interval, its
        columns are NaN and the reading says why. The reference has no test and no reading.
    """
    aurocs, low, high = auroc_intervals(uncertainties, correct, clusters=clusters)
    tests = delong(uncertainties, correct, reference=reference, clusters=clusters)
    difference_low, difference_high = tests.interval()
    is_uncorrected = uncertainties.columns.isin(list(uncorrected))
    p_holm = holm(np.where(is_uncorrected, np.nan, tests.p_value))
    reading, n_to_decide = readings(tests)
    n_differ = count_differing(uncertainties, uncertainties[reference])
    is_identical = (n_differ == 0) & (uncertainties.columns != reference)
    columns = {"method": uncertainties.columns, "auroc": aurocs, "low": low, "high": high}
    columns["interval"] = "by question" if clusters is None else "by cluster"
    columns["n_differ"] = n_differ
    columns["difference"] = aurocs - aurocs[tests.reference]
    columns |= {"difference_low": difference_low, "difference_high": difference_high}
    columns |= {"p_value": tests.p_value, "p_holm": p_holm, "significant": p_holm <= 0.05}
    columns["reading"] = np.where(is_identical, "identical", reading)
    columns["n_to_decide"] = np.where(is_identical, np.nan, n_to_decide)
    return pd.DataFrame(columns)


def count_differing(scores: ArrayLike, reference: ArrayLike) -> np.ndarray:
    """Count the questions on which scores differ from a reference by more than rounding.

    A model in single precision gives one answer slightly different log-probabilities in different
    batches, so values that agree within `ROUNDING`, absolutely or relatively, count as the same.

    Args:
        scores: (n, A).
        reference: (n,).

    Returns:
        The counts, (A,).

    Example:
        >>> count_differing([[1.0, 2.0], [0.5, 0.5]], [1.0, 0.5])
        array([0, 1])
    """
    column = np.asarray(reference)[:, None]
    return (~np.isclose(np.asarray(scores), column, rtol=ROUNDING, atol=ROUNDING)).sum(axis=0)


def differences_in_words(comparison: pd.DataFrame, reference: str) -> list[str]:
    """Say how each method's AUROC differs from that of the reference.

    Args:
        comparison: the table of `compare_aurocs`.
        reference: the method that the others were compared with.

    Returns:
        A text per other method, such as "PRO minus NLL +0.012 [−0.003, +0.027]". If the table has no
        interval the text says why, and if the two scores are equal on every question it says
        "identical".
    """
    texts = []
    for row in comparison[comparison["method"] != reference].to_dict("records"):
        name = f"{row['method']} minus {reference}"
        size = _signed(row["difference"])
        ends = [row["difference_low"], row["difference_high"]]
        if row["reading"] == "identical":
            texts.append(f"{name} {size}, identical on every question")
        elif np.isnan(ends).any():
            texts.append(f"{name} {size}, without an interval: {row['reading']}")
        else:
            low, high = map(_signed, ends)
            texts.append(f"{name} {size} [{low}, {high}]")
    return texts


def _signed(value: float) -> str:
    """Return a difference with its sign, or 0.000 without one."""
    text = f"{value:+z.3f}"
    return text.lstrip("+") if float(text) == 0 else text.replace("-", "−")


def readings(tests: DeLong) -> tuple[list[str], FloatArray]:
    """Read each difference as `different`, `equivalent`, both or `undecided`.

    A difference is *different* if its 95 % interval does not contain 0, which is the case if its
    p-value is below 0.05. It is *equivalent* if its 90 % interval lies within ± `MARGIN`: these are
    two one-sided tests at 5 % (Schuirmann 1987). Nothing is corrected for the number of
    differences. Where no interval is shown the reading says why; the reference's is empty.

    The second result (A,) is how many questions it takes to decide, if the difference, and how
    answers move, stay as they are. Because the next sample varies, about half of the samples of
    this size are decided.
    """
    n_methods = len(tests.difference)
    if tests.moves is None:
        words = [tests.method] * n_methods
        words[tests.reference] = ""
        return words, np.full(n_methods, np.nan)
    different = _is_different(tests.moves, 1.0)
    equivalent = _is_equivalent(tests.moves, 1.0)
    names = {
        (False, False): "undecided",
        (True, False): "different",
        (False, True): "equivalent",
        (True, True): "different and equivalent",
    }
    words = [names[pair] for pair in zip(different.tolist(), equivalent.tolist(), strict=True)]
    unknown = np.isnan(tests.moves.variance)
    words = np.where(unknown, "all answers of one class are in one cluster", words).tolist()
    words[tests.reference] = ""
    needed = np.ceil(tests.n_questions * _scale_to_decide(tests.moves))
    needed[tests.reference] = np.nan
    return words, needed


def _is_different(moves: Moves, scale: ArrayLike) -> Labels:
    """Return whether the 95 % interval of so many times as many questions is without 0."""
    lower = moves.difference > moves.half_width(-1, 0.95, scale)
    upper = -moves.difference > moves.half_width(1, 0.95, scale)
    return lower | upper


def _is_equivalent(moves: Moves, scale: ArrayLike) -> Labels:
    """Return whether the 90 % interval of so many times as many questions is within the margin."""
    low = moves.difference - moves.half_width(-1, 0.9, scale)
    high = moves.difference + moves.half_width(1, 0.9, scale)
    return (low > -MARGIN) & (high < MARGIN)


def _scale_to_decide(moves: Moves) -> FloatArray:
    """Return the multiple (A,) of the questions from which on a reading is decided; inf for never.

    Below four answers of a class or two clusters the prediction is not defined, so the search
    starts there.
    """
    fewest = 2 / min(moves.sizes)
    if moves.n_clusters is not None:
        fewest = max(fewest, 2 / moves.n_clusters)
    low = np.full(len(moves.difference), np.log(min(fewest, 1.0)))
    high = np.full(len(moves.difference), np.log(_FARTHEST))

    def decided(log_scale: FloatArray) -> Labels:
        scale = np.exp(log_scale)
        return _is_different(moves, scale) | _is_equivalent(moves, scale)

    never = ~decided(high)
    for _ in range(40):
        middle = (low + high) / 2
        done = decided(middle)
        high = np.where(done, middle, high)
        low = np.where(done, low, middle)
    unknown = np.isnan(moves.variance)
    return np.where(unknown, np.nan, np.where(never, np.inf, np.exp(high)))


def holm(p_values: ArrayLike) -> FloatArray:
    """Correct p-values (A,) by Holm's step-down procedure (1979); NaN stays NaN and counts for nothing.

    The i-th smallest of m is multiplied by m - i + 1; none falls below a smaller one's, none exceeds 1.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN sorts last
    corrected = np.full(p_values.shape, np.nan)
    corrected[order] = np.minimum(
        np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)), 1
    )
    return corrected
