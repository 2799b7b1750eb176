"""PRO and the likelihood baselines as pure functions of arrays; knows no model, text or correctness.

Every score takes natural-log probabilities of shape `(n, N)`: `n` questions, up to `N` answers each, in any
order, NaN where a question has fewer answers. It returns `(n,)` float64 in nats, **higher = more uncertain**,
and NaN for a question without any answer. A log-probability of `-inf` is an error, not an answer: PRO is
infinite once such an answer is kept, so whoever made the array has to leave it out. Log-probabilities may
exceed 0 by 1e-6 (rounding) and are then used as they are.

`search_alpha` says that the answers are those of an exact search: every one with p ≥ search_alpha is there, no claim is
made below, and what would need the others is refused (`Run.search_alpha`).

PRO is from Nguyen, Gupta and Le, "Probabilities Are All You Need" (AAAI 2026, arXiv 2511.07694).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

_ROUNDING = 1e-6  # how far a log-probability may lie above 0, or a question's mass above 1


class PremiseWarning(UserWarning):
    """PRO need not be a lower bound of the entropy: a premise of the paper's Proposition 1 does not hold."""


@dataclass(frozen=True)
class Premise:
    """How far each question's answers meet the premise of Proposition 1; every field has the shape (n,)."""

    mass: NDArray[np.float64]
    """Sum of the answers' probabilities; 0 without answers."""
    above_one: NDArray[np.bool_]
    """Whether the mass exceeds 1 by more than 1e-6: these answers cannot all be distinct outcomes."""
    duplicates: NDArray[np.int64]
    """Answers whose log-probability another answer of the question already has. A sign, not a proof, that an
    answer is there twice: token ids settle it, and this module does not see them."""

    def warn_if_violated(self, *, stacklevel: int = 2) -> None:
        """Emit one `PremiseWarning` that counts the questions with mass above 1 or with duplicates."""
        violated = self.above_one | (self.duplicates > 0)
        if violated.any():
            warnings.warn(
                f"{violated.sum()} of {len(violated)} questions violate the premise of Proposition 1 "
                f"({self.above_one.sum()} with mass above 1, {(self.duplicates > 0).sum()} with equal "
                f"log-probabilities; first in row {violated.argmax()}), so PRO may exceed their entropy.",
                PremiseWarning,
                stacklevel=stacklevel,
            )


def premise(log_probs: ArrayLike) -> Premise:
    """Measure what Proposition 1 asks of the answers: distinct, and a mass of at most 1."""
    ordered = _descending(_checked(log_probs))
    mass = _mass(ordered)
    duplicates = (ordered[:, 1:] == ordered[:, :-1]).sum(axis=1)
    return Premise(mass=mass, above_one=mass > 1 + _ROUNDING, duplicates=duplicates)


def pro(
    log_probs: ArrayLike, *, alpha: float | ArrayLike = 0.4, search_alpha: float | None = None, strict: bool = False
) -> NDArray[np.float64]:
    """PRO with adaptive K: the answers with `p >= alpha`, or the most probable one if none has.

    `alpha` is one number, or `(A,)` numbers for a result of shape `(n, A)`. `strict` keeps those with `p > alpha`, as
    the code released with the paper does (the paper has ≥). A `PremiseWarning` counts the
    questions whose answers (all given, not only those kept) have a mass above 1. Raises `ValueError` for an
    alpha outside [0, 1], for one below the `search_alpha` of an exact search, and for log-probabilities that are
    positive or infinite.

    On the answers of a *certified* search (all with p ≥ search_alpha, none open) every premise of Proposition 1
    holds, and PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y). Where none reaches alpha it is the NLL of one answer, and
    no bound is claimed.
    """
    checked = _checked(log_probs)
    _refuse_below_search(alpha, search_alpha)
    n_kept = _kept(checked, alpha, strict)
    _warn_above_one(checked)
    return _at(_pro_all_k(checked), n_kept)


def pro_at_k(log_probs: ArrayLike, k: int | ArrayLike, *, search_alpha: float | None = None) -> NDArray[np.float64]:
    """PRO of the `k` most probable answers; a question with fewer than `k` uses all it has.

    `k` is one integer of at least 1, or `(A,)` of them for a result of shape `(n, A)`. Warns as `pro` does. Raises
    `ValueError` for a `k` that a search with a `search_alpha` did not reach on every question (`top_n` does).
    `pro_at_k(log_probs, 1)` is exactly `nll(log_probs)`.
    """
    checked = _checked(log_probs)
    requested = np.asarray(k)
    if requested.dtype.kind not in "iu" or requested.ndim > 1 or (requested < 1).any():
        raise ValueError(f"k must be an integer of at least 1, or several of them, not {k!r}")
    _refuse_beyond_search(search_alpha, checked, int(requested.max(initial=1)))
    _warn_above_one(checked)
    n_answers = (~np.isnan(checked)).sum(axis=1)
    n_used = np.minimum(requested, n_answers if requested.ndim == 0 else n_answers[:, None])
    return _at(_pro_all_k(checked), n_used)


def pro_all_k(log_probs: ArrayLike) -> NDArray[np.float64]:
    """PRO for every K at once, shape `(n, N)`: column `K - 1` holds PRO_K, NaN where K answers are not there.

    PRO_K = -log p_K - sum_{i<=K} p_i log(p_i / p_K), with p sorted downwards. Warns as `pro` does.
    """
    checked = _checked(log_probs)
    _warn_above_one(checked)
    return _pro_all_k(checked)


def adaptive_k(
    log_probs: ArrayLike, alpha: float | ArrayLike, *, search_alpha: float | None = None
) -> NDArray[np.int64]:
    """Adaptive K: how many answers have `p >= alpha`, at least 1; 0 where a question has no answer.

    The comparison is `log_probs >= np.log(alpha)`, in the space the probabilities come in: an answer given
    as `np.log(0.1)` is kept at `alpha=0.1`, which comparing `exp` does not promise. `alpha=0` keeps all.
    `alpha` is one number, shape `(n,)`, or `(A,)` numbers, shape `(n, A)`, each in [0, 1].
    """
    _refuse_below_search(alpha, search_alpha)
    return _kept(_checked(log_probs), alpha)


def alpha_floor(
    log_probs: ArrayLike,
    *,
    alpha: float | ArrayLike,
    open_log_probs: ArrayLike | None = None,
    search_alpha: float | None = None,
) -> NDArray[np.float64]:
    """The α-floor: `-Σ_found p log p - (1 - found) log α`, found being the answers with `p >= alpha`.

    A lower bound of H(Y) **when** `log_probs` holds every answer with p ≥ alpha and `open_log_probs` (n, M) every
    prefix with p ≥ alpha that was left open, at the length cut or by a budget: then everything else is made of
    outcomes below alpha, each of which adds more than -p log α. At least PRO at the same alpha. Where nothing
    reaches alpha it is -log α. `alpha` above 0, one number or `(A,)`, as in `pro`; raises `ValueError` as `pro` does.
    """
    checked = _checked(log_probs)
    if open_log_probs is not None:
        checked = np.column_stack([checked, _checked(open_log_probs, "open_log_probs")])
    _refuse_below_search(alpha, search_alpha)
    log_alpha = _log_alpha(alpha, "alpha_floor")
    terms = [_above(checked, value) for value in np.atleast_1d(log_alpha)]
    floors = [
        np.nansum(-np.exp(a) * a, axis=1) - (1 - _mass(a)) * v for a, v in zip(terms, log_alpha.flat, strict=True)
    ]
    return np.column_stack(floors).reshape(len(checked), *log_alpha.shape)


def mass_not_found(
    log_probs: ArrayLike, *, alpha: float | ArrayLike, search_alpha: float | None = None
) -> NDArray[np.float64]:
    """One minus the probabilities of the answers with `p >= alpha`: what lies outside the likely answers.

    In [0, 1], not in nats. A score; the four masses of a search's ledger add up to the same, each measured where it
    arises. It claims nothing about the entropy. `alpha` as in `pro`.
    """
    checked = _checked(log_probs)
    _refuse_below_search(alpha, search_alpha)
    log_alpha = _log_alpha(alpha, "mass_not_found")
    masses = [1 - _mass(_above(checked, value)) for value in np.atleast_1d(log_alpha)]
    return np.maximum(np.column_stack(masses), 0.0).reshape(len(checked), *log_alpha.shape)


def tree_bound(
    prefix_log_probs: ArrayLike, next_entropies: ArrayLike, *, alpha: float | ArrayLike = 0.0
) -> NDArray[np.float64]:
    """The tree bound: `Σ_v p(v) H(next | v)` over expanded prefixes v with `p(v) >= alpha`.

    A lower bound of H(Y) for any set of distinct prefixes (chain rule of entropy), whatever was found, when
    H(next | v) counts the ending as one event; at least the α-floor at the same alpha when every prefix with
    p ≥ alpha that could be expanded was. `prefix_log_probs` and `next_entropies` are (n, M), NaN where a question
    has fewer prefixes (`Run.tree`). `alpha` as in `pro`; 0 takes all.
    """
    checked, entropies = _checked(prefix_log_probs, "prefix_log_probs"), np.asarray(next_entropies, dtype=np.float64)
    if entropies.shape != checked.shape:
        raise ValueError(f"next_entropies has the shape {entropies.shape}, but prefix_log_probs {checked.shape}")
    alphas = _alphas(alpha)
    with np.errstate(divide="ignore"):
        above = [_above(checked, value) for value in np.atleast_1d(np.log(alphas))]
    sums = [np.nansum(np.exp(a) * entropies, axis=1) for a in above]
    sums = np.column_stack(sums).reshape(len(checked), *alphas.shape)
    return np.where(np.isnan(checked).all(axis=1).reshape(-1, *[1] * alphas.ndim), np.nan, sums)


@dataclass(frozen=True)
class EntropyEstimate:
    """A Monte-Carlo estimate of H(Y) in nats, with a limit on either side; every field has the shape `(n,)`."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def entropy_estimate(log_probs: ArrayLike, *, level: float = 0.95) -> EntropyEstimate:
    """Estimate H(Y) from independent samples of Y: the mean of `-log p`, with Student's interval of a mean.

    `log_probs` (n, N) are those of the samples, repeats kept, samples cut by length included
    (`Run.outcome_log_probs`). The mean is unbiased. The interval is too narrow where the samples are few and what is
    rare carries the entropy; where all samples agree it has no width at all. NaN with fewer than two samples.
    """
    surprise = -_checked(log_probs)
    n_samples = (~np.isnan(surprise)).sum(axis=1)
    enough = np.where(n_samples > 1, n_samples, np.nan)
    mean = np.nansum(surprise, axis=1) / enough
    variance = np.nansum((surprise - mean[:, None]) ** 2, axis=1) / (enough - 1)
    half_width = stats.t.ppf((1 + level) / 2, enough - 1) * np.sqrt(variance / enough)
    return EntropyEstimate(mean, mean - half_width, mean + half_width)


def nll(log_probs: ArrayLike) -> NDArray[np.float64]:
    """NLL: `-log p` of the most probable answer."""
    return -_row_max(_checked(log_probs))


def average_log_likelihood(mean_log_probs: ArrayLike, log_probs: ArrayLike) -> NDArray[np.float64]:
    """ALL: minus the token-averaged log-probability, `-(1/T) log p`, of the most probable answer.

    `mean_log_probs` (n, N) is aligned with `log_probs` (n, N), which says which answer is most probable; of
    answers that tie, the one with the highest mean counts. NaN where the mean of that answer is not known.
    """
    means, totals = _checked(mean_log_probs, "mean_log_probs"), _checked(log_probs)
    if means.shape != totals.shape:
        raise ValueError(f"mean_log_probs has the shape {means.shape}, but log_probs {totals.shape}")
    most_probable = totals == _row_max(totals)[:, None]
    return -_row_max(np.where(most_probable, means, np.nan))


def predictive_entropy(log_probs: ArrayLike) -> NDArray[np.float64]:
    """PE as in the paper's Eq. 2: `-sum_i p_i log p_i` over the answers given."""
    checked = _checked(log_probs)
    terms = np.nansum(np.exp(checked) * checked, axis=1)
    return np.where(np.isnan(checked).all(axis=1), np.nan, -terms)


def predictive_entropy_mc(log_probs: ArrayLike) -> NDArray[np.float64]:
    """PE, Monte-Carlo form: `-mean_i log p_i`, an estimate of the entropy if the answers are samples."""
    return _minus_mean(_checked(log_probs))


def normalized_entropy(mean_log_probs: ArrayLike) -> NDArray[np.float64]:
    """NE: the Monte-Carlo form on length-normalised (token-averaged) log-probabilities (n, N)."""
    return _minus_mean(_checked(mean_log_probs, "mean_log_probs"))


def _checked(log_probs: ArrayLike, name: str = "log_probs") -> NDArray[np.float64]:
    array = np.asarray(log_probs, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name} must have the shape (n, N), not {array.shape}")
    bad = np.isinf(array) | (array > _ROUNDING)
    if bad.any():
        row, answer = np.argwhere(bad)[0]
        raise ValueError(
            f"{name} row {row}, answer {answer} is {array[row, answer]}: a log-probability must be finite "
            f"and at most 0 (leave out an answer of probability 0, or make it NaN)"
        )
    return array


def _alphas(alpha: float | ArrayLike) -> NDArray[np.float64]:
    alphas = np.asarray(alpha, dtype=np.float64)
    if alphas.ndim > 1 or not ((alphas >= 0) & (alphas <= 1)).all():
        raise ValueError(f"alpha must lie in [0, 1], not {alpha}")
    return alphas


def _log_alpha(alpha: float | ArrayLike, score: str) -> NDArray[np.float64]:
    alphas = _alphas(alpha)
    if not (alphas > 0).all():
        raise ValueError(f"alpha must be above 0 for {score}, not {alpha}")
    return np.log(alphas)


def _above(log_probs: NDArray[np.float64], log_alpha: float) -> NDArray[np.float64]:
    return np.where(log_probs >= log_alpha, log_probs, np.nan)


def _refuse_below_search(alpha: float | ArrayLike, search_alpha: float | None) -> None:
    lowest = _alphas(alpha).min(initial=1.0)
    if search_alpha is not None and lowest < search_alpha:
        raise ValueError(
            f"alpha={lowest:g} is below search_alpha={search_alpha:g}: the search did not look for answers in "
            "between; search again with a lower search_alpha, or score at a higher alpha"
        )


def _refuse_beyond_search(search_alpha: float | None, checked: NDArray[np.float64], k: int) -> None:
    found = (~np.isnan(checked)).sum(axis=1)
    if search_alpha is not None and k > 1 and (found < k).any():
        raise ValueError(
            f"k={k}: the search found fewer answers with p >= {search_alpha:g} in row {(found < k).argmax()}; "
            f"fixed K wants a search for the most probable (top_n={k})"
        )


def _kept(log_probs: NDArray[np.float64], alpha: float | ArrayLike, strict: bool = False) -> NDArray[np.int64]:
    alphas = _alphas(alpha)
    with np.errstate(divide="ignore"):  # log(0) = -inf keeps everything, as it should
        thresholds = np.log(np.atleast_1d(alphas))
    counts = np.zeros((len(log_probs), len(thresholds)), dtype=np.int64)
    for answer in log_probs.T:  # a loop over the few answers, not over the questions
        counts += answer[:, None] > thresholds if strict else answer[:, None] >= thresholds
    has_answer = ~np.isnan(log_probs).all(axis=1)
    counts = np.maximum(counts, has_answer[:, None])
    return counts[:, 0] if alphas.ndim == 0 else counts


def _pro_all_k(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = _descending(log_probs)
    probs = np.exp(ordered)
    # In this form, not -sum p log p - (1 - P_K) log p_K, the correction is exactly 0 at K = 1: PRO_1 is NLL.
    correction = np.cumsum(probs * ordered, axis=1) - ordered * np.cumsum(probs, axis=1)
    return -ordered - correction


def _at(pro_by_k: NDArray[np.float64], k: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pick PRO_K by question; `k` is (n,) or (n, A), and K = 0 (no answer) is NaN."""
    from_zero = np.column_stack([np.full(len(pro_by_k), np.nan), pro_by_k])
    columns = k[:, None] if k.ndim == 1 else k
    return np.take_along_axis(from_zero, columns, axis=1).reshape(k.shape)


def _warn_above_one(log_probs: NDArray[np.float64]) -> None:
    above = _mass(log_probs) > 1 + _ROUNDING
    if above.any():
        warnings.warn(
            f"{above.sum()} of {len(above)} questions have answers whose probabilities sum to more than 1 "
            f"(first in row {above.argmax()}), so PRO may exceed their entropy (Proposition 1).",
            PremiseWarning,
            stacklevel=3,
        )


def _mass(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nansum(np.exp(log_probs), axis=1)


def _descending(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.sort(-log_probs, axis=1)  # NaN stays last


def _row_max(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.fmax.reduce(values, axis=1, initial=np.nan)  # fmax passes over NaN, silently; no answer is NaN


def _minus_mean(log_probs: NDArray[np.float64]) -> NDArray[np.float64]:
    n_answers = (~np.isnan(log_probs)).sum(axis=1)
    means = np.nansum(log_probs, axis=1) / np.maximum(n_answers, 1)
    return np.where(n_answers > 0, -means, np.nan)
