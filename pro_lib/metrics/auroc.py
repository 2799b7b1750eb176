"""AUROC of an uncertainty, with its interval, by question or by cluster. `differences` compares several.

Everywhere `uncertainty` is `(n,)`, or `(n, A)` for A of them, higher = more uncertain, and `correct` is `(n,)`, True
for a right answer. AUROC is the probability that a wrong answer has the higher uncertainty of the two, ties counting
half. Raises `OneClassError` unless right and wrong answers both occur, and `ValueError` for NaN (see `usable`).
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import ndtri

FloatArray = NDArray[np.float64]
Labels = NDArray[np.bool_]
_Z = ndtri(0.975)
# Where (n - 1) a (1 - a) of a class falls to this, what its placements scatter counts as much as the most they could.
_SCARCE = 0.7
FEWEST_CLUSTERS = 5  # fewer say too little about how much clusters differ


class OneClassError(ValueError):
    """What was asked is not defined: all answers are right, all are wrong, or there are none."""


def usable(
    uncertainties: pd.DataFrame, correct: ArrayLike, *, has_only_texts: ArrayLike = False
) -> tuple[Labels, str]:
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
    lacking = {
        method: rows
        for method, rows in missing.items()
        if rows.any() and not rows.equals(without_nll)
    }
    reasons += [f"{method} is missing for {rows.sum()}" for method, rows in lacking.items()]
    excluded = missing.index[~mask]
    labels = ", ".join(map(str, excluded[:5])) + (", …" if len(excluded) > 5 else "")
    return (
        mask,
        f"{len(excluded)} of {len(mask)} questions are left out ({labels}): {', '.join(reasons)}.",
    )


def auroc(uncertainty: ArrayLike, correct: ArrayLike) -> float:
    """Return AUROC of one uncertainty (n,)."""
    return float(auroc_intervals(np.asarray(uncertainty)[:, None], correct)[0][0])


def auroc_intervals(
    uncertainty: ArrayLike, correct: ArrayLike, *, clusters: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the AUROC of each column of `uncertainty` (n, A) and the ends of its 95 % interval.

    The interval is Wilson's for the AUROC a as a share of 1/v answers, where v a (1 - a) is
    DeLong's variance. The variance of the placements of a class is at most a (1 - a). A class with
    few answers says little about it, so the estimate is shrunk towards this maximum with the
    weight 1 / (1 + (s / 0.7)³), s = (n - 1) a (1 - a) for n answers in the class. One answer in a
    class is enough.

    Questions in one cluster may be right or wrong together. With `clusters`, v is at least the
    jackknife variance over clusters (the variance estimated by Obuchowski 1997, with whole clusters
    left out), the maximum assumes that a cluster counts as one answer, and Student's quantile for
    the effective number of clusters replaces the normal one. docs/intervals.md has the coverage.

    Args:
        uncertainty: (n, A); higher means more uncertain.
        correct: (n,); True for a right answer.
        clusters: (n,) names of the clusters; None for independent questions. With fewer than
            `FEWEST_CLUSTERS` clusters the ends are NaN.

    Returns:
        AUROC, low, high: (A,) each.
    """
    won_by_wrong, won_by_right = pairs_won(uncertainty, correct)
    n_wrong, n_right = won_by_wrong.shape[1], won_by_right.shape[1]
    of_wrong, of_right = won_by_wrong / n_right, won_by_right / n_wrong
    area = of_wrong.mean(axis=1)
    labels = np.asarray(correct).astype(bool)
    codes = None if clusters is None else cluster_codes(clusters, len(labels))
    inverse_n = np.zeros(len(area))
    for placements, members in ((of_wrong, ~labels), (of_right, labels)):
        n = placements.shape[1]
        most = (n - 1) * area * (1 - area)
        squares = n * placements.var(axis=1)
        per_cluster = np.ones(n) if codes is None else np.bincount(codes[members])
        effect = (per_cluster**2).sum() / n  # of clusters whose answers are all alike
        inverse_n += (most**2 * squares + _SCARCE**3 * effect) / (most**3 + _SCARCE**3) / n
    if codes is not None:
        inverse_n = _clustered(inverse_n, area, jackknifed_aurocs(uncertainty, labels, codes))
    # Whole and half pairs are added up, so that equal AUROCs are exactly equal.
    return won_by_wrong.sum(axis=1) / (n_right * n_wrong), *wilson(area, 1 / inverse_n)


def auroc_in_words(auroc: float, low: float, high: float) -> str:
    """Return an AUROC with its interval as text, and say if the whole interval lies below 0.5."""
    verdict = ", worse than chance" if high < 0.5 else ""
    return f"{auroc:.3f} ({low:.3f} to {high:.3f}{verdict})"


def _clustered(inverse_n: FloatArray, area: FloatArray, jackknifed: FloatArray) -> FloatArray:
    """Raise 1/n of AUROCs (A,) to what their jackknife over clusters (A, I) says."""
    n_clusters = jackknifed.shape[1]
    if n_clusters < FEWEST_CLUSTERS:
        return np.full(len(area), np.nan)
    most = area * (1 - area)
    variance = jackknife_variance(jackknifed, area)
    shares = np.divide(variance, most, out=np.zeros(len(area)), where=most > 0)
    # A variance that few clusters dominate is known less well: 1.5 times their effective number.
    squares = (jackknifed - area[:, None]) ** 2
    total = squares.sum(axis=1) ** 2
    fourth = (squares**2).sum(axis=1)
    effective = np.divide(total, fourth, out=np.full(len(area), np.inf), where=fourth != 0)
    freedom = np.minimum(n_clusters - 1, 1.5 * effective)
    return np.maximum(inverse_n, shares) * (stats.t.isf(0.025, freedom) / _Z) ** 2


def cluster_codes(clusters: ArrayLike, n_questions: int) -> NDArray[np.intp]:
    """Number the clusters of questions (n,) from 0."""
    names = np.asarray(clusters)
    if names.shape != (n_questions,):
        raise ValueError(
            f"clusters must have one name per question; got {names.shape}, expected ({n_questions},)"
        )
    return np.unique(names, return_inverse=True)[1]


def jackknifed_aurocs(
    uncertainty: ArrayLike, correct: ArrayLike, codes: NDArray[np.intp]
) -> FloatArray:
    """Return the AUROCs (A, I) without the questions of each of I clusters, in O(n log n).

    NaN where only one class is left. `codes` (n,) are from `cluster_codes`.
    """
    values, labels = aligned(uncertainty, correct, columns=True)
    won_by_wrong, won_by_right = pairs_won(values, labels)
    n_wrong, n_right = won_by_wrong.shape[1], won_by_right.shape[1]
    n_clusters = codes.max() + 1

    def by_cluster(rows: FloatArray, members: Labels) -> FloatArray:
        sums = [np.bincount(codes[members], weights=row, minlength=n_clusters) for row in rows]
        return np.stack(sums)

    # Ranks are at most n, so that the clusters do not overlap after this shift: a question wins
    # no pair against a later cluster, and all pairs against an earlier one.
    shifted = stats.rankdata(values, axis=0) + 2.0 * len(labels) * codes[:, None]
    won_shifted, _ = pairs_won(shifted, labels)
    wrong_sizes = np.bincount(codes[~labels], minlength=n_clusters)
    right_sizes = np.bincount(codes[labels], minlength=n_clusters)
    earlier = np.cumsum(right_sizes) - right_sizes
    won_within = by_cluster(won_shifted - earlier[codes[~labels]], ~labels)
    lost = by_cluster(won_by_wrong, ~labels) + by_cluster(n_wrong - won_by_right, labels)
    n_pairs = (n_wrong - wrong_sizes) * (n_right - right_sizes)
    pairs_left = won_by_wrong.sum(axis=1)[:, None] - lost + won_within
    return np.divide(pairs_left, n_pairs, out=np.full(lost.shape, np.nan), where=n_pairs > 0)


def jackknife_variance(jackknifed: FloatArray, estimate: FloatArray) -> FloatArray:
    """Return the variance (A,) of estimates (A,) from those without each of I clusters (A, I)."""
    n_clusters = jackknifed.shape[1]
    squares = ((jackknifed - estimate[:, None]) ** 2).sum(axis=1)
    return (n_clusters - 1) / n_clusters * squares


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


def aligned(
    uncertainty: ArrayLike, correct: ArrayLike, *, columns: bool = False
) -> tuple[FloatArray, Labels]:
    """Check uncertainties (n,), or (n, A) where they are `columns`, and labels (n,)."""
    values, labels = np.asarray(uncertainty, dtype=np.float64), np.asarray(correct)
    # As scikit-learn does: 0 and 1, and booleans of tables that may hold missing ones.
    flat, kinds = np.ravel(labels).tolist(), bool | int | float
    if labels.dtype != bool and all(isinstance(label, kinds) and label in (0, 1) for label in flat):
        labels = labels.astype(bool)
    if labels.dtype != bool or labels.ndim != 1:
        given = f"{labels.dtype} {labels.shape}"
        raise ValueError(
            f"correct must be (n,) booleans, such as rouge_l > 0.3, or 0 and 1, not {given}"
        )
    if values.ndim != 1 + columns or len(values) != len(labels):
        shape = f"({len(labels)}, A)" if columns else f"({len(labels)},)"
        raise ValueError(
            f"uncertainty must have the shape {shape}, a row per label in correct, not {values.shape}"
        )
    missing = np.isnan(values if columns else values[:, None]).any(axis=1)
    if missing.any():
        first = f"first in row {missing.argmax()}"
        raise ValueError(f"uncertainty is NaN in {missing.sum()} of {len(values)} rows, {first}")
    return values, labels


def need_both(correct: Labels, what: str) -> None:
    """Raise `OneClassError`, saying what needs both, unless right and wrong answers occur."""
    if correct.all() or not correct.any():
        which = (
            f"all {len(correct)} are {'right' if correct[0] else 'wrong'}"
            if correct.size
            else "none are given"
        )
        raise OneClassError(f"{what} needs right and wrong answers, but {which}")


def pairs_won(uncertainty: ArrayLike, correct: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Count exactly how many right answers lie below each wrong one, and how many wrong ones below each right one.

    `uncertainty` is (n, A). Ties count half. Shapes: (A, n_wrong) and (A, n_right).
    """
    values, labels = aligned(uncertainty, correct, columns=True)
    need_both(labels, "AUROC")
    wrong, right = np.ascontiguousarray(values[~labels].T), np.ascontiguousarray(values[labels].T)
    n_wrong, together = (
        wrong.shape[1],
        stats.rankdata(np.concatenate([wrong, right], axis=1), axis=1),
    )
    return together[:, :n_wrong] - stats.rankdata(wrong, axis=1), together[
        :, n_wrong:
    ] - stats.rankdata(right, axis=1)
