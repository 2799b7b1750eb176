"""How well an uncertainty tells wrong answers from right ones: AUROC, intervals, tests; knows no score by its formula.

Everywhere `uncertainty` is `(n,)`, or `(n, A)` for A of them, higher = more uncertain, and `correct` is `(n,)`, True
for a right answer. AUROC is the probability that a wrong answer has the higher uncertainty of the two, ties counting
half. Raises `OneClassError` unless right and wrong answers both occur, and `ValueError` for NaN (see `usable`).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import erfc, ndtri

FloatArray = NDArray[np.float64]
Labels = NDArray[np.bool_]
MARGIN = 0.01  # AUROCs that differ by less are equal for all that this project reports
_Z, _Z_ONE_SIDED = ndtri(0.975), ndtri(0.95)
# Where (n - 1) a (1 - a) of a class falls to this, what its placements scatter counts as much as the most they could.
_SCARCE = 0.7


class OneClassError(ValueError):
    """What was asked is not defined: all answers are right, all are wrong, or there are none."""


def usable(uncertainties: pd.DataFrame, correct: ArrayLike, *, has_only_texts: ArrayLike = False) -> tuple[Labels, str]:
    """Find the questions (n,) that all methods (columns) and `correct` have a value for; say why others are not.

    `has_only_texts` (n,) says which questions have answers whose log-probabilities are all unknown.
    """
    missing = uncertainties.isna().assign(correct=pd.isna(np.asarray(correct)))
    mask = ~missing.any(axis=1).to_numpy()
    if mask.all():
        return mask, f"All {len(mask)} questions are used."
    # NLL has a value wherever an answer has a log-probability.
    without_nll = missing.get("NLL", missing["correct"] & False)
    texts_alone = without_nll & np.broadcast_to(has_only_texts, mask.shape)
    cut = without_nll & ~texts_alone
    reasons = [f"{cut.sum()} are cut (no answer ended)"] if cut.any() else []
    reasons += [f"{texts_alone.sum()} have no log-probabilities"] if texts_alone.any() else []
    lacking = {method: rows for method, rows in missing.items() if rows.any() and not rows.equals(without_nll)}
    reasons += [f"{method} is missing for {rows.sum()}" for method, rows in lacking.items()]
    excluded = missing.index[~mask]
    labels = ", ".join(map(str, excluded[:5])) + (", …" if len(excluded) > 5 else "")
    return mask, f"{len(excluded)} of {len(mask)} questions are left out ({labels}): {', '.join(reasons)}."


def auroc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Return AUROC of one uncertainty (n,)."""
    return float(auroc_intervals(np.asarray(uncertainty)[:, None], correct)[0][0])


def auroc_intervals(uncertainty: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return AUROC of each column of `uncertainty` (n, A), and the ends of its 95 % interval: (A,) each.

    Wilson's interval of the AUROC a as of a share, with that n which gives a (1 - a) / n DeLong's variance. The
    placements of a class can vary by a (1 - a) at most. Few of them say little of how much they do. Their part of the
    most is shrunk towards all of it, with the weight 1 / (1 + (s / 0.7)³), s = (n - 1) a (1 - a). One answer of a
    class is enough. Its coverage: docs/intervals.md.
    """
    won_by_wrong, won_by_right = pairs_won(uncertainty, correct)
    n_wrong, n_right = won_by_wrong.shape[1], won_by_right.shape[1]
    of_wrong, of_right = won_by_wrong / n_right, won_by_right / n_wrong
    area, inverse_n = of_wrong.mean(axis=1), 0.0
    for placements in (of_wrong, of_right):
        n = placements.shape[1]
        most = (n - 1) * area * (1 - area)
        squares = n * placements.var(axis=1)
        inverse_n += (most**2 * squares + _SCARCE**3) / (most**3 + _SCARCE**3) / n
    # Of whole and half pairs, so that equal AUROCs are exactly equal.
    return won_by_wrong.sum(axis=1) / (n_right * n_wrong), *wilson(area, 1 / inverse_n)


def compare_aurocs(
    uncertainties: pd.DataFrame,
    correct: ArrayLike,
    *,
    reference: str = "PRO",
    uncorrected: Collection[str] = (),
    clusters: ArrayLike | None = None,
) -> pd.DataFrame:
    """Tabulate the AUROC of several methods, and test their differences to one of them.

    `uncertainties` has a row per question and a column per method. Columns: `method, auroc, low, high`
    (`auroc_intervals`); `n_differ`, on how many questions the two scores differ; `difference`, the method's AUROC minus
    the reference's, with `difference_low` and `difference_high`, the ends of its normal interval; `p_value` (`delong`);
    `p_holm`, corrected for the number of other methods; `significant` (`p_holm` at most 0.05); `reading` and
    `n_to_decide` (`readings`, not corrected). A score that is the same on every question reads `identical`. The
    reference has no test: NaN, False and an empty reading. So has every method where fewer than two answers are right,
    or wrong. Methods `uncorrected` are no part of the family, and have no `p_holm`. `clusters` as in `delong`.
    """
    aurocs, low, high = auroc_intervals(uncertainties, correct)
    tests = delong(uncertainties, correct, reference=reference, clusters=clusters)
    difference_low, difference_high = tests.interval()
    is_uncorrected, untested = uncertainties.columns.isin(list(uncorrected)), np.isnan(tests.p_value)
    p_holm = holm(np.where(is_uncorrected, np.nan, tests.p_value))
    reading, n_to_decide = readings(tests.difference, tests.standard_error, len(uncertainties))
    columns = {"method": uncertainties.columns, "auroc": aurocs, "low": low, "high": high}
    n_differ = uncertainties.ne(uncertainties[reference], axis=0).sum().to_numpy()
    columns["n_differ"] = n_differ
    columns["difference"] = aurocs - aurocs[uncertainties.columns.get_loc(reference)]
    columns |= {"difference_low": difference_low, "difference_high": difference_high}
    columns |= {"p_value": tests.p_value, "p_holm": p_holm, "significant": p_holm <= 0.05}
    read = np.where(untested, "", np.where(n_differ == 0, "identical", reading))
    columns |= {"reading": read, "n_to_decide": np.where(untested, np.nan, n_to_decide)}
    return pd.DataFrame(columns)


def auroc_in_words(auroc: float, low: float, high: float) -> str:
    """Return an AUROC with its interval as text, and say if the whole interval lies below 0.5."""
    verdict = ", worse than chance" if high < 0.5 else ""
    return f"{auroc:.3f} ({low:.3f} to {high:.3f}{verdict})"


@dataclass(frozen=True)
class DeLong:
    """Tests of the AUROCs of A uncertainties on the same n questions against that of one of them."""

    difference: FloatArray  # (A,): AUROC minus the reference's; 0 for the reference itself
    standard_error: FloatArray  # (A,), of the difference
    p_value: FloatArray  # (A,), two-sided, of the hypothesis of equal AUROCs; NaN for the reference itself

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the 95 % interval of each difference, (A,)."""
        return normal(self.difference, self.standard_error)


def delong(
    uncertainties: ArrayLike, correct: ArrayLike, *, reference: int | str = 0, clusters: ArrayLike | None = None
) -> DeLong:
    """Test the AUROC of each column of `uncertainties` (n, A) against that of one, by its place or its name.

    DeLong, DeLong & Clarke-Pearson (1988): the AUROC is the mean *placement* of the wrong answers among the right
    ones, and of the right among the wrong. The variances of the two, each over its number, add up. Placements are
    found by sorting, in O(n log n) (Sun & Xu 2014). Nearly equal scores differ on few questions, and a sample may hold
    none. So in each class half a question more is won by one score, and half lost (docs/intervals.md; Bonett & Price
    2012 add one of each to a paired share). Questions of one of the `clusters` (n,) may be right together: their
    placements are added up before the variance is taken (Obuchowski 1997). All is NaN where fewer than two answers are
    right, or wrong, or for a single cluster.
    """
    at = reference if isinstance(reference, int) else pd.DataFrame(uncertainties).columns.get_loc(reference)
    values, labels = aligned(uncertainties, correct, columns=True)
    n_right, n_wrong = np.count_nonzero(labels), np.count_nonzero(~labels)
    if min(n_right, n_wrong) < 2:
        return DeLong(*np.full((3, values.shape[1]), np.nan))
    of_wrong, of_right = (won / n for won, n in zip(pairs_won(values, labels), (n_right, n_wrong), strict=True))
    # Differences are taken before the variance: columns that rank alike then differ by exactly 0. A right answer is
    # the better placed the fewer wrong ones lie below it, so that its difference has the other sign.
    by_wrong, by_right = of_wrong - of_wrong[at], of_right[at] - of_right
    difference, deviations = by_wrong.mean(axis=1), np.empty((values.shape[1], len(labels)))
    variance, of_halves = np.zeros((2, len(difference)))
    for which, moves in ((~labels, by_wrong), (labels, by_right)):
        # What the moves of a class, in [-1, 1], and half a 1 and half a -1 beside them, add to their mean's variance.
        n = moves.shape[1] + 1
        mean = moves.sum(axis=1) / n
        halves = (1 + mean**2) / (n * (n - 1))
        variance += ((moves - mean[:, None]) ** 2).sum(axis=1) / (n * (n - 1)) + halves
        of_halves += halves
        deviations[:, which] = (moves - difference[:, None]) / moves.shape[1]
    if clusters is not None:
        names, cluster = np.unique(np.asarray(clusters), return_inverse=True)
        sums = np.stack([np.bincount(cluster, weights=row) for row in deviations])
        # As wide as Student's quantile for so many clusters is beside the normal one.
        m = len(names)
        factor = (stats.t.isf(0.025, m - 1) / _Z) ** 2 * m / (m - 1) if m > 1 else np.nan
        variance = factor * (sums**2).sum(axis=1) + of_halves
    standard_error = np.sqrt(variance)
    p_value = erfc(np.abs(difference) / standard_error / np.sqrt(2))
    standard_error[at], p_value[at] = 0.0, np.nan
    return DeLong(difference, standard_error, p_value)


def holm(p_values: ArrayLike) -> FloatArray:
    """Correct p-values (A,) by Holm's step-down procedure (1979); NaN stays NaN and counts for nothing.

    The i-th smallest of m is multiplied by m - i + 1; none falls below a smaller one's, none exceeds 1.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p_values)[: np.count_nonzero(~np.isnan(p_values))]  # NaN sorts last
    corrected = np.full(p_values.shape, np.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


def wilson(share: ArrayLike, n: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the ends of 95 % score intervals of shares of `n` (Wilson 1927), of any shape; NaN for n = 0."""
    share, n = np.asarray(share, float), np.asarray(n, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    # Rounding must not leave a little beside what is exact.
    low = np.where((share == 0) & (n > 0), 0.0, middle - half)
    return low, np.where((share == 1) & (n > 0), 1.0, middle + half)


def normal(mean: ArrayLike, standard_error: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the ends of 95 % normal intervals, of any shape."""
    half = _Z * np.asarray(standard_error, float)
    return mean - half, mean + half


def readings(difference: FloatArray, standard_error: FloatArray, n: int) -> tuple[list[str], FloatArray]:
    """Read what differences (A,) of n questions say: `different`, `equivalent`, both or `undecided`; and when.

    *Different*: the 95 % interval is without 0. *Equivalent*: the 90 % interval lies within ± `MARGIN`, which are two
    one-sided tests at 5 % (Schuirmann 1987). Nothing is corrected for the number of differences. Beside it stands how
    many questions (A,) decide, if d stays and its standard error e falls with the root of their number. It is the
    smaller of n (1.960 e / |d|)² and, for |d| below the margin, n (1.645 e / (margin - |d|))². NaN is undecided.
    """
    size = np.abs(difference)
    different, equivalent = size > _Z * standard_error, size + _Z_ONE_SIDED * standard_error < MARGIN
    words = {(0, 0): "undecided", (1, 0): "different", (0, 1): "equivalent", (1, 1): "different and equivalent"}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        to_differ = np.where(size > 0, (_Z * standard_error / size) ** 2, np.inf)
        to_equal = np.where(size < MARGIN, (_Z_ONE_SIDED * standard_error / (MARGIN - size)) ** 2, np.inf)
    needed = np.where(np.isnan(size), np.nan, np.ceil(n * np.minimum(to_differ, to_equal)))
    return [words[pair] for pair in zip(different.tolist(), equivalent.tolist(), strict=True)], needed


def aligned(uncertainty: ArrayLike, correct: ArrayLike, *, columns: bool = False) -> tuple[FloatArray, Labels]:
    """Check uncertainties (n,), or (n, A) where they are `columns`, and labels (n,)."""
    values, labels = np.asarray(uncertainty, dtype=np.float64), np.asarray(correct)
    # As scikit-learn does: 0 and 1, and booleans of tables that may hold missing ones.
    flat, kinds = np.ravel(labels).tolist(), bool | int | float
    if labels.dtype != bool and all(isinstance(label, kinds) and label in (0, 1) for label in flat):
        labels = labels.astype(bool)
    if labels.dtype != bool or labels.ndim != 1:
        given = f"{labels.dtype} {labels.shape}"
        raise ValueError(f"correct must be (n,) booleans, such as rouge_l > 0.3, or 0 and 1, not {given}")
    if values.ndim != 1 + columns or len(values) != len(labels):
        shape = f"({len(labels)}, A)" if columns else f"({len(labels)},)"
        raise ValueError(f"uncertainty must have the shape {shape}, a row per label in correct, not {values.shape}")
    missing = np.isnan(values if columns else values[:, None]).any(axis=1)
    if missing.any():
        first = f"first in row {missing.argmax()}"
        raise ValueError(f"uncertainty is NaN in {missing.sum()} of {len(values)} rows, {first}")
    return values, labels


def need_both(correct: Labels, what: str) -> None:
    """Raise `OneClassError`, saying what needs both, unless right and wrong answers occur."""
    if correct.all() or not correct.any():
        which = f"all {len(correct)} are {'right' if correct[0] else 'wrong'}" if correct.size else "none are given"
        raise OneClassError(f"{what} needs right and wrong answers, but {which}")


def pairs_won(uncertainty: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Count exactly how many right answers lie below each wrong one, and how many wrong ones below each right one.

    `uncertainty` is (n, A). Ties count half. Shapes: (A, n_wrong) and (A, n_right).
    """
    values, labels = aligned(uncertainty, correct, columns=True)
    need_both(labels, "AUROC")
    wrong, right = np.ascontiguousarray(values[~labels].T), np.ascontiguousarray(values[labels].T)
    n_wrong, together = wrong.shape[1], stats.rankdata(np.concatenate([wrong, right], axis=1), axis=1)
    return together[:, :n_wrong] - stats.rankdata(wrong, axis=1), together[:, n_wrong:] - stats.rankdata(right, axis=1)
