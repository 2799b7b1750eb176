"""PRO and the likelihood baselines as pure functions of arrays; knows no model, text or correctness.

Every score takes natural-log probabilities of shape `(n, N)`: `n` questions, up to `N` answers each, in any order, NaN
where a question has fewer answers. It returns `(n,)` float64 in nats, **higher = more uncertain**, and NaN for a
question without any answer. A log-probability must be finite and at most 0 (1e-6 above is rounding): `ValueError`.

`alpha` is one number in [0, 1], or `(A,)` of them for a result of shape `(n, A)`. `search_alpha` says that the answers
are those of an exact search (`Run.search_alpha`), all with p ≥ search_alpha; what would need others is a `ValueError`.

PRO is from Nguyen, Gupta and Le, "Probabilities Are All You Need" (AAAI 2026, arXiv 2511.07694).
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pro_lib.metrics.auroc import FloatArray

IntArray = NDArray[np.int64]
_ROUNDING = 1e-6  # how far a log-probability may lie above 0, or a question's mass above 1


class PremiseWarning(UserWarning):
    """PRO need not be a lower bound of the entropy: a premise of the paper's Proposition 1 does not hold."""


def mass(log_probs: ArrayLike) -> FloatArray:
    """Return the sum of each question's probabilities (n,), 0 without answers; Proposition 1 asks for at most 1."""
    return row_sums(np.exp(as_log_probs(log_probs)))


def above_one(log_probs: ArrayLike) -> NDArray[np.bool_]:
    """Return of which questions (n,) the answers cannot all be distinct outcomes: their mass is above 1 + 1e-6."""
    return mass(log_probs) > 1 + _ROUNDING


def pro(
    log_probs: ArrayLike, *, alpha: ArrayLike = 0.4, search_alpha: float | None = None
) -> FloatArray:
    """Return PRO with adaptive K: of the answers with `p >= alpha`, or the most probable one if none has.

    A `PremiseWarning` counts the questions whose answers (all given, not only those kept) have a mass above 1. On the
    answers of a *certified* search (all with p ≥ search_alpha, none open) every premise of Proposition 1 holds, and
    PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y). Where none reaches alpha it is the NLL of one answer, without a bound.
    """
    return _pro(log_probs, adaptive_k(log_probs, alpha, search_alpha=search_alpha))


def pro_at_k(
    log_probs: ArrayLike, k: ArrayLike, *, search_alpha: float | None = None
) -> FloatArray:
    """Return PRO of the `k` most probable answers; a question with fewer than `k` uses all it has.

    `k` is one integer of at least 1, or `(A,)` of them for a result of shape `(n, A)`. Warns as `pro` does. A `k` that
    a search with a `search_alpha` did not reach on every question is a `ValueError`. PRO_1 is exactly NLL.
    """
    requested = np.asarray(k)
    if (
        requested.dtype.kind not in "iu"
        or requested.ndim > 1
        or not (requested.size and (requested >= 1).all())
    ):
        raise ValueError(f"k must be an integer of at least 1, or several of them, not {k!r}")
    n_answers, largest = (~np.isnan(as_log_probs(log_probs))).sum(axis=1), int(requested.max())
    if search_alpha is not None and largest > 1 and (n_answers < largest).any():
        fewer = f"row {(n_answers < largest).argmax()} has fewer answers with p >= {search_alpha:g}"
        raise ValueError(f"k={largest}: {fewer}; search with top_n={largest}")
    return _pro(log_probs, np.minimum.outer(n_answers, requested))


def pro_all_k(log_probs: ArrayLike) -> FloatArray:
    """Return PRO for every K at once, shape `(n, N)`: column `K - 1` holds PRO_K, NaN where K answers are not there.

    PRO_K = -log p_K - sum_{i<=K} p_i log(p_i / p_K), with p sorted downwards. Warns as `pro` does.
    """
    return _pro(log_probs)


def adaptive_k(
    log_probs: ArrayLike, alpha: ArrayLike, *, search_alpha: float | None = None
) -> IntArray:
    """Return adaptive K: how many answers have `p >= alpha`, at least 1; 0 where a question has no answer.

    The comparison is `log_probs >= np.log(alpha)`: an answer given as `np.log(0.1)` is kept at `alpha=0.1`, which
    comparing `exp` does not guarantee. `alpha=0` keeps all.
    """
    checked = as_log_probs(log_probs)
    found = (~np.isnan(checked)).any(axis=1)
    return _by_alpha(
        lambda above, _: np.maximum((~np.isnan(above)).sum(axis=1), found),
        checked,
        alpha,
        search_alpha,
    )


def alpha_floor(
    log_probs: ArrayLike,
    *,
    alpha: ArrayLike,
    open_log_probs: ArrayLike | None = None,
    search_alpha: float | None = None,
) -> FloatArray:
    """Return the α-floor: `-Σ p log p - (1 - Σ p) log α`, over the answers with `p >= alpha`; `alpha` is above 0.

    A lower bound of H(Y) **when** `log_probs` holds every answer with p ≥ alpha and `open_log_probs` (n, M) every
    prefix with p ≥ alpha that was left open, at the length cut or by a budget. All else is outcomes below alpha, each
    of which adds more than -p log α. It is at least PRO at the same alpha, and -log α where nothing reaches it.
    """
    checked = as_log_probs(log_probs)
    if open_log_probs is not None:
        checked = np.column_stack([checked, as_log_probs(open_log_probs, "open_log_probs")])
    if np.any(np.asarray(alpha) == 0):
        raise ValueError(f"alpha must be above 0 for alpha_floor, not {np.asarray(alpha)}")

    def floor(above: FloatArray, log_alpha: float) -> FloatArray:
        return row_sums(-np.exp(above) * above) - (1 - mass(above)) * log_alpha

    return _by_alpha(floor, checked, alpha, search_alpha)


def mass_not_found(
    log_probs: ArrayLike, *, alpha: ArrayLike, search_alpha: float | None = None
) -> FloatArray:
    """Return one minus the probabilities of the answers with `p >= alpha`, in [0, 1]; no claim about the entropy."""
    return _by_alpha(
        lambda above, _: np.maximum(1 - mass(above), 0.0),
        as_log_probs(log_probs),
        alpha,
        search_alpha,
    )


def tree_bound(
    prefix_log_probs: ArrayLike, next_entropies: ArrayLike, *, alpha: ArrayLike = 0.0
) -> FloatArray:
    """Return the tree bound: `Σ_v p(v) H(next | v)` over expanded prefixes v with `p(v) >= alpha`.

    By the chain rule, a lower bound of H(Y) for any distinct prefixes; H(next | v) counts the ending as one event. It
    is at least the α-floor at the same alpha if every prefix with p ≥ alpha that could be expanded was.
    `prefix_log_probs` and `next_entropies` are (n, M), NaN where a question has fewer prefixes (`Run.tree`).
    """
    checked = as_log_probs(prefix_log_probs, "prefix_log_probs")
    entropies = np.asarray(next_entropies, dtype=np.float64)
    nothing = np.where(np.isnan(checked).all(axis=1), np.nan, 0.0)
    return _by_alpha(
        lambda above, _: np.nansum(np.exp(above) * entropies, axis=1) + nothing, checked, alpha
    )


def nll(log_probs: ArrayLike) -> FloatArray:
    """Return NLL: `-log p` of the most probable answer."""
    # fmax ignores NaN. Adding 0 turns -0.0, the score of a certain answer, into 0.0.
    return -np.fmax.reduce(as_log_probs(log_probs), axis=1, initial=np.nan) + 0.0


def average_log_likelihood(mean_log_probs: ArrayLike, log_probs: ArrayLike) -> FloatArray:
    """Return ALL: minus the token-averaged log-probability, `-(1/T) log p`, of the most probable answer.

    `log_probs` (n, N) says which answer is most probable; of answers that tie, the one with the highest mean counts.
    NaN where the mean of that answer is not known.
    """
    totals = as_log_probs(log_probs)
    means = as_log_probs(mean_log_probs, "mean_log_probs", totals.shape)
    return nll(np.where(totals == -nll(totals)[:, None], means, np.nan))


def predictive_entropy(log_probs: ArrayLike) -> FloatArray:
    """Return PE as in the paper's Eq. 2: `-sum_i p_i log p_i` over the answers given."""
    checked = as_log_probs(log_probs)
    return np.where(
        np.isnan(checked).all(axis=1), np.nan, -row_sums(np.exp(checked) * checked) + 0.0
    )


def predictive_entropy_mc(log_probs: ArrayLike) -> FloatArray:
    """Return PE, Monte-Carlo form: `-mean_i log p_i`, an estimate of the entropy if the answers are samples."""
    checked = as_log_probs(log_probs)
    n_answers = (~np.isnan(checked)).sum(axis=1)
    return np.where(n_answers > 0, -row_sums(checked) / np.maximum(n_answers, 1) + 0.0, np.nan)


def normalized_entropy(mean_log_probs: ArrayLike) -> FloatArray:
    """Return NE: the Monte-Carlo form on length-normalised (token-averaged) log-probabilities (n, N)."""
    return predictive_entropy_mc(as_log_probs(mean_log_probs, "mean_log_probs"))


def as_log_probs(
    log_probs: ArrayLike, name: str = "log_probs", shape: tuple[int, int] | None = None
) -> FloatArray:
    """Return log-probabilities (n, N) as an array; `ValueError` with the place of what is none, or for a shape."""
    array = np.asarray(log_probs, dtype=np.float64)
    if array.ndim != 2 or shape not in (None, array.shape):
        raise ValueError(f"{name} must have the shape {shape or '(n, N)'}, not {array.shape}")
    bad = np.isinf(array) | (array > _ROUNDING)
    if bad.any():
        row, answer = np.argwhere(bad)[0]
        value = f"{name} row {row}, answer {answer} is {array[row, answer]}"
        raise ValueError(
            f"{value}: a log-probability is finite and at most 0, NaN where there is no answer"
        )
    return array


def _by_alpha(
    score: Callable[[FloatArray, float], NDArray],
    log_probs: FloatArray,
    alpha: ArrayLike,
    search_alpha: float | None = None,
) -> NDArray:
    """Return `score(above, log α)` by α, (n,) or (n, A); `above` are the log-probabilities with p ≥ α, else NaN."""
    alphas = np.asarray(alpha, dtype=np.float64)
    if alphas.ndim > 1 or not (alphas.size and ((alphas >= 0) & (alphas <= 1)).all()):
        raise ValueError(f"alpha must lie in [0, 1], not {alphas}")
    if search_alpha is not None and alphas.min() < search_alpha:
        message = f"alpha={alphas.min():g} is below search_alpha={search_alpha:g}"
        raise ValueError(f"{message}: the search did not look for answers in between")
    with np.errstate(divide="ignore"):  # log(0) = -inf keeps everything, as it should
        log_alphas = np.log(np.atleast_1d(alphas))
    columns = [
        score(np.where(log_probs >= value, log_probs, np.nan), value) for value in log_alphas
    ]
    return np.column_stack(columns).reshape(len(log_probs), *alphas.shape)


def _pro(log_probs: ArrayLike, k: IntArray | None = None) -> FloatArray:
    """Return PRO at the `k` of each question, (n,) or (n, A), NaN for 0, or at every K, (n, N); warn two callers up."""
    ordered = -np.sort(-as_log_probs(log_probs), axis=1)  # downwards, NaN last
    probs = np.exp(ordered)
    if (above := above_one(ordered)).any():
        message = f"{above.sum()} of {len(above)} questions have answers whose probabilities sum to more than 1 "
        message += (
            f"(first in row {above.argmax()}), so PRO may exceed their entropy (Proposition 1)."
        )
        warnings.warn(message, PremiseWarning, stacklevel=3)
    # In this form, not -sum p log p - (1 - P_K) log p_K, the correction is exactly 0 at K = 1: PRO_1 is NLL.
    correction = np.cumsum(probs * ordered, axis=1) - ordered * np.cumsum(probs, axis=1)
    by_k = -ordered - correction + 0.0  # 0.0 for a certain answer, not -0.0
    if k is None:
        return by_k
    from_zero = np.column_stack([np.full(len(by_k), np.nan), by_k])
    return np.take_along_axis(from_zero, k[:, None] if k.ndim == 1 else k, axis=1).reshape(k.shape)


def row_sums(values: FloatArray) -> FloatArray:
    """Return sums (n,) of what is there, correctly rounded: no order of answers, and no padding, puts a tie apart."""
    rows = np.where(np.isnan(values), 0.0, values).reshape(len(values), math.prod(values.shape[1:]))
    return np.array([math.fsum(row) for row in rows.tolist()])
