"""Differences of AUROCs on the same questions: intervals, tests and readings.

The method, and the simulation by which it was chosen, are in docs/explanation/intervals.md.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from pro_lib.metrics.auroc import (
    FEWEST_CLUSTERS,
    FloatArray,
    Labels,
    aligned,
    as_floats,
    auroc_intervals,
    cluster_codes,
    jackknife_variance,
    jackknifed_aurocs,
    pairs_won,
)

MARGIN = 0.01  # AUROCs that differ by less count as equivalent
SIGNIFICANT = 0.05  # p-values up to this one, after Holm's correction, are significant
ROUNDING = 1e-5  # of scores from models in single precision, absolute and relative
FEWEST_OF_A_CLASS = 5  # with fewer right, or wrong, answers a difference has no interval
_FEW_MOVED = 5.0  # a class in which fewer answers moved gets pseudo-moves
_UNSEEN_SQUARE = 2.0  # an unseen move counts as one all the way up and one all the way down
_SKEWNESS = 4.0  # chosen by simulation, since a small sample shows too little of the skewness
_MOST_PAIRS = 300_000  # with more pairs DeLong's variance has a negligible bias
_FARTHEST = 1e9  # the largest multiple of the number of questions that `n_to_decide` considers
_LEAST_MOVE = 1e-12  # smaller moves are rounding errors


@dataclass(frozen=True)
class Moves:
    """How far A scores move the placements of the answers, compared with the reference score.

    The move of a wrong answer is the change of the share of right answers below it. The move of a
    right answer is the change of the share of wrong answers above it. A better score has positive
    moves. The mean move of either class is the difference of the AUROCs.

    Attributes:
        difference: the differences of the AUROCs, (A,).
        sizes: the numbers of wrong and right answers.
        variances: the variance of the mean move of each class, (2, A).
        variance: the unbiased variance of the difference (A,), or that by cluster if it is larger.
        third_moment: the third moment of the difference, (A,).
        n_moved: the number of answers of each class that moved, (2, A).
        share_up: the share of the moved answers that moved upwards, (A,).
        squares: the sum of the squared deviations of the moved answers, (A,).
        n_clusters: the number of clusters; None for independent questions.
    """

    difference: FloatArray
    sizes: tuple[int, int]
    variances: FloatArray
    variance: FloatArray
    third_moment: FloatArray
    n_moved: FloatArray
    share_up: FloatArray
    squares: FloatArray
    n_clusters: int | None = None

    def half_width(self, end: int, level: float, scale: ArrayLike = 1.0) -> FloatArray:
        """Return the distance (A,) from the difference to one end of its interval.

        Args:
            end: 1 for the upper end, -1 for the lower end.
            level: probability of the interval, such as 0.95.
            scale: a number or (A,). With 2, the distance is predicted for twice as many questions.
        """
        variance, freedom = self._spread(end, scale)
        quantile = -stdtrit(freedom, (1 - level) / 2)
        shift = quantile**2 * self._skewness(end, scale) / 2
        return np.asarray(shift + np.sqrt(quantile**2 * variance + shift**2))

    def p_value(self) -> FloatArray:
        """Return 1 minus the level (A,) of the interval that ends at 0, or 1 if nothing differs.

        The end near 0 does not move with the skewness, so only its variance counts.
        """
        is_upper_end = self.difference < 0
        variance_up, freedom_up = self._spread(1, 1.0)
        variance_down, freedom_down = self._spread(-1, 1.0)
        standard_error = np.sqrt(np.where(is_upper_end, variance_up, variance_down))
        size = np.abs(self.difference)
        quantile = np.divide(size, standard_error, out=np.zeros_like(size), where=size > 0)
        freedom = np.where(is_upper_end, freedom_up, freedom_down)
        return np.asarray(2 * stdtr(freedom, -quantile))

    def _spread(self, end: int, scale: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the variance (A,) that one end uses, and its degrees of freedom (Satterthwaite).

        Both include the variance of the pseudo-moves.
        """
        scales = np.asarray(scale, dtype=np.float64)
        pseudo_variances = self._pseudo_variances(end, scales)
        class_variances = self.variances / scales + pseudo_variances
        total = class_variances.sum(axis=0)
        class_freedom = self._scaled_sizes(scales) - 1
        parts = (class_variances**2 / class_freedom).sum(axis=0)
        freedom = np.divide(total**2, parts, out=np.ones_like(total), where=parts > 0)
        if self.n_clusters is not None:
            freedom = np.minimum(freedom, self.n_clusters * scales - 1)
        return self.variance / scales + pseudo_variances.sum(axis=0), freedom

    def _pseudo_variances(self, end: int, scales: FloatArray) -> FloatArray:
        """Return the variance that pseudo-moves add to each class, (2, A).

        If few answers of a class moved, the sample says little about the variance of its moves. A
        pseudo-move has the mean square of all moves of both classes, and the share of the moves
        that go towards the end. Its weight is 1 if no answer of the class moved, and falls to 0 at
        `_FEW_MOVED` moved answers, or half of a small class.
        """
        sizes = self._scaled_sizes(scales)
        n_moved = self.n_moved * scales
        mean_square = (self.squares * scales + _UNSEEN_SQUARE) / (n_moved.sum(axis=0) + 1)
        enough = np.minimum(_FEW_MOVED, sizes / 2)
        weight = 1 - np.minimum(n_moved / enough, 1)
        share = self.share_up if end > 0 else 1 - self.share_up
        return np.asarray(weight * mean_square * 2 * share / (sizes * (sizes - 1)))

    def _scaled_sizes(self, scales: FloatArray) -> FloatArray:
        """Return the numbers of wrong and right answers, (2, A) or (2, 1), times the scale."""
        sizes = np.array(self.sizes, dtype=np.float64)[:, None]
        return np.asarray(sizes * scales)

    def _skewness(self, end: int, scale: ArrayLike) -> FloatArray:
        """Return the third moment over the variance (A,) if it points outward at this end.

        An end moves outward only if it is farther from 0 than the difference.
        """
        variance = self.variances.sum(axis=0)
        is_far_end = np.sign(self.difference) == end
        points_outward = is_far_end & (end * self.third_moment > 0)
        ratio = np.divide(
            end * self.third_moment, variance, out=np.zeros_like(variance), where=variance > 0
        )
        return np.where(points_outward, _SKEWNESS * ratio / scale, 0.0)


def measure_moves(
    moves: tuple[FloatArray, FloatArray],
    changed: tuple[Labels, Labels],
    pair_squares: FloatArray,
) -> Moves:
    """Summarize the moves of the wrong answers and of the right answers.

    Args:
        moves: the moves of the wrong answers (A, n_wrong) and of the right answers (A, n_right).
        changed: of the same shapes; whether the answer's own score differs from the reference's.
        pair_squares: (A,) mean over all pairs of the squared change of who wins; NaN if unknown.
    """
    n_wrong = moves[0].shape[1]
    n_right = moves[1].shape[1]
    difference = moves[0].mean(axis=1)
    wrong = _ClassMoves.measure(moves[0], changed[0], difference)
    right = _ClassMoves.measure(moves[1], changed[1], difference)
    variances = np.stack([wrong.variance, right.variance])
    # DeLong's variance counts the variance of a single pair twice; its residual is taken off once.
    residuals = n_wrong * n_right * (pair_squares - difference**2)
    residuals -= n_right * wrong.square_sum + n_wrong * right.square_sum
    excess = np.maximum(residuals, 0) / ((n_wrong - 1) * (n_right - 1) * n_wrong * n_right)
    excess = np.nan_to_num(excess)
    n_moved = np.stack([wrong.n_moved, right.n_moved])
    return Moves(
        difference=difference,
        sizes=(n_wrong, n_right),
        variances=variances,
        variance=np.maximum(variances.sum(axis=0) - excess, excess),
        third_moment=wrong.cube_sum / n_wrong**3 + right.cube_sum / n_right**3,
        n_moved=n_moved,
        share_up=(wrong.n_up + right.n_up + 0.5) / (n_moved.sum(axis=0) + 1),
        squares=wrong.moved_square_sum + right.moved_square_sum,
    )


@dataclass(frozen=True)
class _ClassMoves:
    """Sums over the answers of one class, (A,) each.

    Attributes:
        square_sum: sum of the squared deviations of the moves from the difference of the AUROCs.
        cube_sum: sum of the cubes of these deviations.
        variance: variance of the mean move.
        n_moved: number of answers that moved.
        n_up: number of answers that moved upwards.
        moved_square_sum: sum of the squared deviations of the answers that moved.
    """

    square_sum: FloatArray
    cube_sum: FloatArray
    variance: FloatArray
    n_moved: FloatArray
    n_up: FloatArray
    moved_square_sum: FloatArray

    @classmethod
    def measure(cls, moves: FloatArray, changed: Labels, difference: FloatArray) -> "_ClassMoves":
        """Add up the moves (A, n) of a class.

        `changed` has the shape (A, n), `difference` (A,).
        """
        n = moves.shape[1]
        deviations = moves - difference[:, None]
        square_sum = (deviations**2).sum(axis=1)
        has_moved = changed & (np.abs(moves) > _LEAST_MOVE) & (np.abs(deviations) > _LEAST_MOVE)
        return cls(
            square_sum=square_sum,
            cube_sum=(deviations**3).sum(axis=1),
            variance=square_sum / (n * (n - 1)),
            n_moved=has_moved.sum(axis=1).astype(np.float64),
            n_up=(has_moved & (moves > 0)).sum(axis=1).astype(np.float64),
            moved_square_sum=(deviations**2 * has_moved).sum(axis=1),
        )


@dataclass(frozen=True)
class DeLong:
    """Tests of the AUROCs of A scores on the same questions against the AUROC of one of them.

    Attributes:
        difference: AUROC minus the reference's (A,); 0 for the reference itself.
        standard_error: of the difference, (A,).
        p_value: two-sided, of equal AUROCs (A,); NaN for the reference itself.
        reference: the column of the reference.
        n_questions: the number of questions.
        moves: the moves of the answers; None if there are too few answers for an interval.
        method: "by question", "by cluster", or why there is no interval.
    """

    difference: FloatArray
    standard_error: FloatArray
    p_value: FloatArray
    reference: int
    n_questions: int
    moves: Moves | None
    method: str

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the interval of each difference.

        Args:
            level: probability of the interval.

        Returns:
            low, high: (A,) each; NaN if there is no interval, and 0 for the reference.
        """
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
    make the interval cover in small samples:

    - Student's quantile with Satterthwaite's degrees of freedom is used.
    - The end away from 0 moves outward with the skewness.
    - A class in which fewer than five answers moved gets pseudo-moves.
    - With `clusters`, the jackknife over clusters is used if its variance is larger.

    docs/explanation/intervals.md has the formulas and the coverage. Placements are found by sorting
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
    column = _reference_column(uncertainties, reference)
    values, labels = aligned(uncertainties, correct, columns=True)
    codes = None if clusters is None else cluster_codes(clusters, len(labels))
    reason = _too_few(labels, codes)
    if reason:
        return _without_tests(values, labels, column, reason)
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


def _reference_column(uncertainties: ArrayLike, reference: int | str) -> int:
    """Return the position of the reference among the columns, or raise `KeyError`."""
    if isinstance(reference, int):
        return reference
    names = pd.DataFrame(uncertainties).columns
    column = int(names.get_indexer_for([reference])[0])
    if column < 0:
        raise KeyError(
            f"reference {reference!r} is not among the columns {', '.join(map(str, names))}"
        )
    return column


def _without_tests(values: FloatArray, labels: Labels, column: int, reason: str) -> DeLong:
    """Return the differences without intervals, or NaN if all answers are right, or all wrong."""
    unknown = np.full(values.shape[1], np.nan)
    has_both = 0 < np.count_nonzero(labels) < len(labels)
    areas = auroc_intervals(values, labels)[0] if has_both else unknown
    return DeLong(areas - areas[column], unknown, unknown, column, len(labels), None, reason)


def _too_few(labels: Labels, codes: np.ndarray | None) -> str:
    """Say why no difference can have an interval, or nothing if it can."""
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
    wrong_moves = (won_by_wrong - won_by_wrong[column]) / n_right
    right_moves = (won_by_right[column] - won_by_right) / n_wrong
    changed = np.not_equal(values.T, values.T[column])
    pair_squares = np.full(len(wrong_moves), np.nan)
    if n_right * n_wrong <= _MOST_PAIRS:
        pair_squares = _pair_squares(values, labels, column)
    return measure_moves(
        (wrong_moves, right_moves), (changed[:, ~labels], changed[:, labels]), pair_squares
    )


def _pair_squares(values: FloatArray, labels: Labels, column: int) -> FloatArray:
    """Return the mean over all pairs of the squared change of who wins, for each column (A,)."""
    reference_signs = _signs(values[:, column], labels)
    means = []
    for score in values.T:
        change = _signs(score, labels) - reference_signs
        means.append(np.mean(change**2) / 4)
    return np.array(means)


def _signs(score: FloatArray, labels: Labels) -> np.ndarray:
    """Return which pairs (n_wrong, n_right) a score (n,) wins: 1, 0 for a tie, -1."""
    wrong = score[~labels][:, None]
    right = score[labels]
    return (wrong > right).astype(np.int8) - (wrong < right)


def _by_cluster(moves: Moves, jackknifed: FloatArray, column: int) -> Moves:
    """Use the jackknifed AUROCs (A, I) for the columns whose variance by cluster is larger."""
    differences = jackknifed - jackknifed[column]
    variance = jackknife_variance(differences, moves.difference)
    influence = moves.difference[:, None] - differences
    squares = (influence**2).sum(axis=1)
    # `Moves` divides the third moment by the variance by question.
    ratio = np.divide(
        moves.variances.sum(axis=0), squares, out=np.zeros(len(squares)), where=squares > 0
    )
    third_moment = (influence**3).sum(axis=1) * ratio
    # The variance by cluster is NaN if a class is in one cluster, and then it is used as well.
    is_by_cluster = ~(variance <= moves.variance)
    return replace(
        moves,
        variance=np.where(is_by_cluster, variance, moves.variance),
        third_moment=np.where(is_by_cluster, third_moment, moves.third_moment),
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
        - n_differ, from `count_differing`.
        - difference: AUROC minus that of the reference, with difference_low, difference_high and
          p_value from `delong`.
        - p_holm: the p-value, corrected for the number of other methods.
        - significant: whether p_holm is at most 0.05.
        - reading and n_to_decide, from `readings`, not corrected. A score that is the same as the
          reference's on every question reads `identical` and has no n_to_decide.

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
    difference_low, difference_high = tests.interval()
    is_uncorrected = uncertainties.columns.isin(list(uncorrected))
    p_holm = holm(np.where(is_uncorrected, np.nan, tests.p_value))
    reading, n_to_decide = readings(tests)
    n_differ = count_differing(uncertainties, uncertainties[reference])
    is_identical = (n_differ == 0) & (uncertainties.columns != reference)
    columns = {
        "method": uncertainties.columns,
        "auroc": aurocs,
        "low": low,
        "high": high,
        "interval": "by question" if clusters is None else "by cluster",
        "n_differ": n_differ,
        "difference": aurocs - aurocs[tests.reference],
        "difference_low": difference_low,
        "difference_high": difference_high,
        "p_value": tests.p_value,
        "p_holm": p_holm,
        "significant": p_holm <= SIGNIFICANT,
        "reading": np.where(is_identical, "identical", reading),
        "n_to_decide": np.where(is_identical, np.nan, n_to_decide),
    }
    return pd.DataFrame(columns)


def count_differing(scores: ArrayLike, reference: ArrayLike) -> NDArray[np.int64]:
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
    column = as_floats(reference)[:, None]
    is_same = np.isclose(as_floats(scores), column, rtol=ROUNDING, atol=ROUNDING)
    return np.asarray((~is_same).sum(axis=0))


def differences_in_words(comparison: pd.DataFrame, reference: str) -> list[str]:
    """Say how each method's AUROC differs from that of the reference.

    Args:
        comparison: the table of `compare_aurocs`.
        reference: the method that the others were compared with.

    Returns:
        A text per other method, such as "PRO minus NLL +0.012 [−0.003, +0.027]". If the table has
        no interval the text says why, and if the two scores are equal on every question it says
        "identical".

    Example:
        >>> scores = pd.DataFrame({"NLL": [0.1, 0.9, 0.6, 0.5], "PE": [0.2, 0.4, 0.3, 0.6]})
        >>> comparison = compare_aurocs(scores, [True, False, True, False], reference="NLL")
        >>> differences_in_words(comparison, "NLL")
        ['PE minus NLL +0.250, without an interval: fewer than 5 right answers']
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
    differences.

    Args:
        tests: the tests of A differences.

    Returns:
        The readings (A,), empty for the reference; if there is no interval, the reading says why.
        The number of questions that are needed to decide (A,), if the difference and the moves of
        the answers stay as they are. Because the next sample varies, about half of the samples of
        this size are decided.
    """
    n_methods = len(tests.difference)
    if tests.moves is None:
        words = [tests.method] * n_methods
        words[tests.reference] = ""
        return words, np.full(n_methods, np.nan)
    is_different = _is_different(tests.moves, 1.0)
    is_equivalent = _is_equivalent(tests.moves, 1.0)
    is_unknown = np.isnan(tests.moves.variance)
    words = []
    for column, is_without_interval in enumerate(is_unknown):
        if is_without_interval:
            words.append("all answers of one class are in one cluster")
        else:
            words.append(name_reading(is_different[column], is_equivalent[column]))
    words[tests.reference] = ""
    needed = np.ceil(tests.n_questions * _scale_to_decide(tests.moves))
    needed[tests.reference] = np.nan
    return words, needed


def name_reading(is_different: bool, is_equivalent: bool) -> str:
    """Return the reading of a difference, as `readings` explains it.

    Example:
        >>> name_reading(False, True)
        'equivalent'
    """
    if is_different and is_equivalent:
        return "different and equivalent"
    if is_different:
        return "different"
    return "equivalent" if is_equivalent else "undecided"


def _is_different(moves: Moves, scale: ArrayLike) -> Labels:
    """Return whether the 95 % interval excludes 0, with this multiple of the questions, (A,)."""
    is_above: Labels = moves.difference > moves.half_width(-1, 0.95, scale)
    is_below: Labels = -moves.difference > moves.half_width(1, 0.95, scale)
    return is_above | is_below


def _is_equivalent(moves: Moves, scale: ArrayLike) -> Labels:
    """Return whether the 90 % interval is in the margin, with this multiple of the questions."""
    low = moves.difference - moves.half_width(-1, 0.9, scale)
    high = moves.difference + moves.half_width(1, 0.9, scale)
    is_within: Labels = (low > -MARGIN) & (high < MARGIN)
    return is_within


def _scale_to_decide(moves: Moves) -> FloatArray:
    """Return the smallest multiple (A,) of the questions that decides a reading, or inf for never.

    The multiple is found by bisection. The prediction is undefined for fewer than two answers of a
    class or two clusters, so the search starts there.
    """
    fewest = 2 / min(moves.sizes)
    if moves.n_clusters is not None:
        fewest = max(fewest, 2 / moves.n_clusters)
    low = np.full(len(moves.difference), np.log(min(fewest, 1.0)))
    high = np.full(len(moves.difference), np.log(_FARTHEST))

    def is_decided(log_scale: FloatArray) -> Labels:
        scale = np.exp(log_scale)
        return _is_different(moves, scale) | _is_equivalent(moves, scale)

    is_never_decided = ~is_decided(high)
    for _ in range(40):
        middle = (low + high) / 2
        is_enough = is_decided(middle)
        high = np.where(is_enough, middle, high)
        low = np.where(is_enough, low, middle)
    scales: FloatArray = np.exp(high)
    scales[is_never_decided] = np.inf
    scales[np.isnan(moves.variance)] = np.nan
    return scales


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
