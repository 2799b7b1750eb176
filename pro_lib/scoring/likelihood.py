"""PRO and the likelihood baselines as functions of log-probabilities.

Every score takes natural-log probabilities of shape `(n, N)`: `n` questions with up to `N` answers
each, in any order, NaN where a question has fewer answers. It returns a float64 array `(n,)` in
nats, **higher = more uncertain**, with NaN for a question without answers. A log-probability must
be finite and at most 0 (values up to 1e-6 above it are rounding errors); otherwise `ValueError` is
raised.

`alpha` is a number in [0, 1], or an array `(A,)` of them for a result of shape `(n, A)`.
`search_alpha` says that the answers are those of an exact search (`Run.search_alpha`), which finds
all answers with p ≥ search_alpha. A score that needs other answers raises `ValueError`.

PRO is from Nguyen, Gupta and Le, "Probabilities Are All You Need" (AAAI 2026, arXiv 2511.07694).
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pro_lib.metrics.roc import FloatArray, IntArray, as_floats

# How far a log-probability may be above 0, or the mass of a question above 1.
_ROUNDING = 1e-6


class PremiseWarning(UserWarning):
    """A premise of Proposition 1 fails, so PRO may not be a lower bound of the entropy."""


# --- Masses ---


def mass(log_probs: ArrayLike) -> FloatArray:
    """Return the sum of each question's probabilities.

    Proposition 1 requires a sum of at most 1.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        The masses (n,); 0 for a question without answers.

    Example:
        >>> mass(np.log([[0.5, 0.25]])).tolist()
        [0.75]
    """
    return row_sums(np.exp(as_log_probs(log_probs)))


def above_one(log_probs: ArrayLike) -> NDArray[np.bool_]:
    """Return whether the answers of a question cannot all be different outcomes.

    This is so if their mass is above 1 + 1e-6.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        Truth values (n,).

    Example:
        >>> above_one(np.log([[0.5, 0.25], [0.6, 0.6]])).tolist()
        [False, True]
    """
    probs = np.exp(as_log_probs(log_probs))
    limit = 1 + _ROUNDING
    masses = np.nansum(probs, axis=1)
    # Correct rounding takes long, and decides only for masses that almost equal the limit.
    is_close = np.abs(masses - limit) < _ROUNDING / 10
    masses[is_close] = row_sums(probs[is_close])
    return np.asarray(masses > limit)


def mass_not_found(
    log_probs: ArrayLike, *, alpha: ArrayLike, search_alpha: float | None = None
) -> FloatArray:
    """Return one minus the probabilities of the answers with `p >= alpha`.

    It makes no claim about the entropy.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.
        alpha: the threshold, or several (A,).
        search_alpha: the threshold of an exact search, if the answers are its result.

    Returns:
        Values in [0, 1], of shape (n,) or (n, A).

    Example:
        >>> mass_not_found(np.log([[0.5, 0.1]]), alpha=0.4).tolist()
        [0.5]
    """
    checked = as_log_probs(log_probs)

    def missing_mass(selected: FloatArray, log_alpha: float) -> FloatArray:
        return np.maximum(1 - mass(selected), 0.0)

    return _by_alpha(missing_mass, checked, alpha, search_alpha)


# --- PRO ---


def pro(
    log_probs: ArrayLike, *, alpha: ArrayLike = 0.4, search_alpha: float | None = None
) -> FloatArray:
    """Return PRO with adaptive K.

    PRO uses the answers with `p >= alpha`, or the most probable one if no answer has. A
    `PremiseWarning` counts the questions whose answers (all that are given) have a mass above 1.

    On the answers of a *certified* search (all with p ≥ search_alpha, none open), all premises of
    Proposition 1 hold, and PRO ≤ `alpha_floor` ≤ `tree_bound` ≤ H(Y). If no answer reaches alpha,
    PRO is the NLL of one answer and not a bound.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.
        alpha: the threshold, or several (A,).
        search_alpha: the threshold of an exact search, if the answers are its result.

    Returns:
        The scores in nats, of shape (n,) or (n, A); higher = more uncertain.

    Raises:
        ValueError: a log-probability or alpha is out of its range, or alpha is below search_alpha.

    Example:
        >>> pro(np.log([[0.5, 0.1]]), alpha=0.4).round(4).tolist()
        [0.6931]
    """
    k = adaptive_k(log_probs, alpha, search_alpha=search_alpha)
    return _pro(log_probs, k)


def pro_at_k(
    log_probs: ArrayLike, k: ArrayLike, *, search_alpha: float | None = None
) -> FloatArray:
    """Return PRO of the `k` most probable answers.

    A question with fewer answers uses all of them.

    PRO_1 is exactly NLL. The function warns as `pro` does.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.
        k: an integer of at least 1, or several (A,).
        search_alpha: the threshold of an exact search, if the answers are its result.

    Returns:
        The scores in nats, of shape (n,) or (n, A); higher = more uncertain.

    Raises:
        ValueError: k is not such an integer, or the search did not find k answers of every
            question.

    Example:
        >>> pro_at_k(np.log([[0.5, 0.25]]), [1, 2]).round(4).tolist()
        [[0.6931, 1.0397]]
    """
    requested = np.ma.filled(k, 0)  # a value that a mask hides is not a K
    is_integer = requested.dtype.kind in "iu" and requested.ndim <= 1 and requested.size > 0
    if not is_integer or (requested < 1).any():
        raise ValueError(f"k must be an integer of at least 1, or several of them, not {k!r}")
    n_answers = (~np.isnan(as_log_probs(log_probs))).sum(axis=1)
    largest = int(requested.max())
    has_fewer = n_answers < largest
    if search_alpha is not None and largest > 1 and has_fewer.any():
        raise ValueError(
            f"k={largest}: row {has_fewer.argmax()} has fewer answers with p >= {search_alpha:g}; "
            f"search with top_n={largest}"
        )
    return _pro(log_probs, np.minimum.outer(n_answers, requested))


def pro_all_k(log_probs: ArrayLike) -> FloatArray:
    """Return PRO for every K at once.

    PRO_K = -log p_K - sum_{i<=K} p_i log(p_i / p_K), with p in descending order. The function warns
    as `pro` does.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        The scores in nats (n, N): column `K - 1` is PRO_K, NaN if a question has fewer than K
        answers.

    Example:
        >>> pro_all_k(np.log([[0.5, 0.25]])).round(4).tolist()
        [[0.6931, 1.0397]]
    """
    return _pro(log_probs)


def adaptive_k(
    log_probs: ArrayLike, alpha: ArrayLike, *, search_alpha: float | None = None
) -> IntArray:
    """Return adaptive K: the number of answers with `p >= alpha`, but at least 1.

    The comparison is `log_probs >= np.log(alpha)`. An answer given as `np.log(0.1)` is therefore
    kept at `alpha=0.1`, which a comparison of `exp` does not guarantee. `alpha=0` keeps all
    answers.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.
        alpha: the threshold, or several (A,).
        search_alpha: the threshold of an exact search, if the answers are its result.

    Returns:
        The numbers, of shape (n,) or (n, A); 0 for a question without answers.

    Example:
        >>> adaptive_k(np.log([[0.5, 0.4, 0.1]]), 0.4).tolist()
        [2]
    """
    checked = as_log_probs(log_probs)
    has_answers = (~np.isnan(checked)).any(axis=1)

    def number(selected: FloatArray, log_alpha: float) -> IntArray:
        return np.asarray(np.maximum((~np.isnan(selected)).sum(axis=1), has_answers))

    return _by_alpha(number, checked, alpha, search_alpha)


# --- Bounds ---


def alpha_floor(
    log_probs: ArrayLike,
    *,
    alpha: ArrayLike,
    open_log_probs: ArrayLike | None = None,
    search_alpha: float | None = None,
) -> FloatArray:
    """Return the α-floor: `-Σ p log p - (1 - Σ p) log α` over the answers with `p >= alpha`.

    It is a lower bound of H(Y) **if** `log_probs` contains every answer with p ≥ alpha, and
    `open_log_probs` contains every open prefix with p ≥ alpha. A prefix is open if the search
    stopped at it, because of the length limit or a budget. All other outcomes have p < alpha, and
    each adds more than -p log α. The α-floor is at least PRO at the same alpha, and -log α if no
    answer reaches alpha.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.
        alpha: the threshold, above 0, or several (A,).
        open_log_probs: natural-log probabilities of the open prefixes (n, M), padded by NaN.
        search_alpha: the threshold of an exact search, if the answers are its result.

    Returns:
        The bounds in nats, of shape (n,) or (n, A).

    Raises:
        ValueError: alpha is 0 or below search_alpha, or a log-probability is out of its range.

    Example:
        >>> alpha_floor(np.log([[0.5, 0.1]]), alpha=0.4).round(4).tolist()
        [0.8047]
    """
    checked = as_log_probs(log_probs)
    if open_log_probs is not None:
        checked = np.column_stack([checked, as_log_probs(open_log_probs, "open_log_probs")])
    if np.any(np.asarray(alpha) == 0):
        raise ValueError(f"alpha must be above 0 for alpha_floor, not {np.asarray(alpha)}")

    def floor(selected: FloatArray, log_alpha: float) -> FloatArray:
        entropy_part = row_sums(-np.exp(selected) * selected)
        return entropy_part - (1 - mass(selected)) * log_alpha

    return _by_alpha(floor, checked, alpha, search_alpha)


def tree_bound(
    prefix_log_probs: ArrayLike, next_entropies: ArrayLike, *, alpha: ArrayLike = 0.0
) -> FloatArray:
    """Return the tree bound: `Σ_v p(v) H(next | v)` over expanded prefixes v with `p(v) >= alpha`.

    By the chain rule, it is a lower bound of H(Y) for any different prefixes. H(next | v) counts
    the ending as one event. The tree bound is at least the α-floor at the same alpha if every
    prefix with p ≥ alpha was expanded, except those that could not be.

    Args:
        prefix_log_probs: natural-log probabilities of the prefixes (n, M), padded by NaN
            (`Run.tree`).
        next_entropies: the entropy of the next token after each prefix (n, M), in nats.
        alpha: the threshold, or several (A,).

    Returns:
        The bounds in nats, of shape (n,) or (n, A); NaN for a question without prefixes.

    Example:
        >>> tree_bound([[0.0, np.log(0.5)]], [[0.7, 0.2]]).round(4).tolist()
        [0.8]
    """
    checked = as_log_probs(prefix_log_probs, "prefix_log_probs")
    entropies = as_floats(next_entropies)
    nan_without_prefixes = np.where(np.isnan(checked).all(axis=1), np.nan, 0.0)

    def bound(selected: FloatArray, log_alpha: float) -> FloatArray:
        return np.asarray(np.nansum(np.exp(selected) * entropies, axis=1) + nan_without_prefixes)

    return _by_alpha(bound, checked, alpha)


# --- Baselines ---


def nll(log_probs: ArrayLike) -> FloatArray:
    """Return NLL: `-log p` of the most probable answer.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        The scores in nats (n,); higher = more uncertain.

    Example:
        >>> nll([[-0.5, -2.0]]).tolist()
        [0.5]
    """
    # fmax ignores NaN. Adding 0 turns -0.0, the score of a certain answer, into 0.0.
    return np.asarray(-np.fmax.reduce(as_log_probs(log_probs), axis=1, initial=np.nan) + 0.0)


def average_log_likelihood(mean_log_probs: ArrayLike, log_probs: ArrayLike) -> FloatArray:
    """Return ALL: minus the token-averaged log-probability of the most probable answer.

    This is `-(1/T) log p` for an answer of T tokens. If several answers are the most probable, the
    one with the highest mean counts.

    Args:
        mean_log_probs: token-averaged log-probabilities (n, N), in nats.
        log_probs: natural-log probabilities (n, N), which decide the most probable answer.

    Returns:
        The scores in nats (n,); higher = more uncertain; NaN if the mean of the answer is unknown.

    Example:
        >>> average_log_likelihood([[-0.25, -1.0]], [[-0.5, -2.0]]).tolist()
        [0.25]
    """
    totals = as_log_probs(log_probs)
    means = as_log_probs(mean_log_probs, "mean_log_probs", totals.shape)
    is_most_probable = totals == -nll(totals)[:, None]
    return nll(np.where(is_most_probable, means, np.nan))


def predictive_entropy(log_probs: ArrayLike) -> FloatArray:
    """Return PE as in the paper's Eq. 2: `-sum_i p_i log p_i` over the given answers.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        The scores in nats (n,); higher = more uncertain.

    Example:
        >>> predictive_entropy(np.log([[0.5, 0.25]])).round(4).tolist()
        [0.6931]
    """
    checked = as_log_probs(log_probs)
    entropy = -row_sums(np.exp(checked) * checked) + 0.0
    return np.where(np.isnan(checked).all(axis=1), np.nan, entropy)


def predictive_entropy_mc(log_probs: ArrayLike) -> FloatArray:
    """Return PE in its Monte Carlo form: `-mean_i log p_i`.

    It estimates the entropy if the answers are samples.

    Args:
        log_probs: natural-log probabilities (n, N), NaN where a question has fewer answers.

    Returns:
        The scores in nats (n,); higher = more uncertain.

    Example:
        >>> predictive_entropy_mc([[-0.5, -1.5]]).tolist()
        [1.0]
    """
    checked = as_log_probs(log_probs)
    n_answers = (~np.isnan(checked)).sum(axis=1)
    means = -row_sums(checked) / np.maximum(n_answers, 1) + 0.0
    return np.where(n_answers > 0, means, np.nan)


def normalized_entropy(mean_log_probs: ArrayLike) -> FloatArray:
    """Return NE: the Monte Carlo form of PE on token-averaged log-probabilities.

    Args:
        mean_log_probs: token-averaged log-probabilities (n, N), in nats, padded by NaN.

    Returns:
        The scores in nats (n,); higher = more uncertain.

    Example:
        >>> normalized_entropy([[-0.5, -1.5]]).tolist()
        [1.0]
    """
    return predictive_entropy_mc(as_log_probs(mean_log_probs, "mean_log_probs"))


# --- Arrays ---


def as_log_probs(
    log_probs: ArrayLike, name: str = "log_probs", shape: tuple[int, int] | None = None
) -> FloatArray:
    """Return log-probabilities as a float64 array (n, N).

    Args:
        log_probs: natural-log probabilities, NaN where there is no answer.
        name: the name of the argument, for errors.
        shape: the shape that they must have, if it is known.

    Returns:
        The array.

    Raises:
        ValueError: a value is not a log-probability (names its place), or the shape is another.

    Example:
        >>> as_log_probs([[-1, float("nan")]]).tolist()
        [[-1.0, nan]]
    """
    array = as_floats(log_probs)
    if array.ndim != 2 or shape not in (None, array.shape):
        raise ValueError(f"{name} must have the shape {shape or '(n, N)'}, not {array.shape}")
    is_bad = np.isinf(array) | (array > _ROUNDING)
    if is_bad.any():
        row, answer = np.argwhere(is_bad)[0]
        value = f"{name} row {row}, answer {answer} is {array[row, answer]}"
        rule = "a log-probability is finite and at most 0, NaN where there is no answer"
        raise ValueError(f"{value}: {rule}")
    return array


def row_sums(values: FloatArray) -> FloatArray:
    """Return the sum of each row without its NaN, correctly rounded.

    Because of the rounding, the order of the answers and the padding cannot break a tie.

    Args:
        values: numbers (n, ...).

    Returns:
        The sums (n,).

    Example:
        >>> row_sums(np.array([[0.25, np.nan, 0.5]])).tolist()
        [0.75]
    """
    n_columns = math.prod(values.shape[1:])
    rows = np.where(np.isnan(values), 0.0, values).reshape(len(values), n_columns)
    return np.array([math.fsum(row) for row in rows.tolist()])


def check_alpha(alpha: ArrayLike, *, search_alpha: float | None = None) -> FloatArray:
    """Return α, or several, as an array.

    Args:
        alpha: the threshold, or several (A,).
        search_alpha: the threshold of an exact search, which alpha must not be below.

    Raises:
        ValueError: if alpha is outside [0, 1] or below search_alpha.

    Example:
        >>> check_alpha(0.4).tolist()
        0.4
    """
    alphas = as_floats(alpha)
    is_vector = alphas.ndim <= 1 and alphas.size > 0
    if not is_vector or not ((alphas >= 0) & (alphas <= 1)).all():
        raise ValueError(f"alpha must lie in [0, 1], not {alphas}")
    if search_alpha is not None and alphas.min() < search_alpha:
        message = f"alpha={alphas.min():g} is below search_alpha={search_alpha:g}"
        raise ValueError(f"{message}: the search did not look for answers in between")
    return alphas


def _by_alpha(
    score: Callable[[FloatArray, float], NDArray[Any]],
    log_probs: FloatArray,
    alpha: ArrayLike,
    search_alpha: float | None = None,
) -> NDArray[Any]:
    """Return a score of the answers with p ≥ α for each α.

    Args:
        score: a function of the selected log-probabilities (n, N), NaN for other answers, and log
            α.
        log_probs: natural-log probabilities (n, N).
        alpha: the threshold, or several (A,).
        search_alpha: the threshold of an exact search, which alpha must not be below.

    Returns:
        The scores, of shape (n,) or (n, A).
    """
    alphas = check_alpha(alpha, search_alpha=search_alpha)
    with np.errstate(divide="ignore"):  # log(0) is -inf, so that α = 0 keeps all answers
        log_alphas = np.log(np.atleast_1d(alphas))
    columns = []
    for log_alpha in log_alphas:
        selected = np.where(log_probs >= log_alpha, log_probs, np.nan)
        columns.append(score(selected, log_alpha))
    return np.column_stack(columns).reshape(len(log_probs), *alphas.shape)


def _pro(log_probs: ArrayLike, k: IntArray | None = None) -> FloatArray:
    """Return PRO at some K of each question, or at every K.

    A warning is attributed to the caller of the calling function.

    Args:
        log_probs: natural-log probabilities (n, N).
        k: the K of each question, (n,) or (n, A), 0 for no answer; None for every K.

    Returns:
        The scores, of the shape of `k`, NaN where it is 0; of shape (n, N) for every K.
    """
    ordered = -np.sort(-as_log_probs(log_probs), axis=1)  # descending, NaN last
    probs = np.exp(ordered)
    is_above_one = above_one(ordered)
    if is_above_one.any():
        counts = f"{is_above_one.sum()} of {len(is_above_one)} questions"
        words = "have answers whose probabilities sum to more than 1"
        place = f"(first in row {is_above_one.argmax()})"
        meaning = "PRO may then exceed their entropy (Proposition 1). Check for repeated answers."
        warnings.warn(f"{counts} {words} {place}. {meaning}", PremiseWarning, stacklevel=3)
    # In this form, not -sum p log p - (1 - P_K) log p_K, the correction is exactly 0 at K = 1, so
    # that PRO_1 is NLL.
    correction = np.cumsum(probs * ordered, axis=1) - ordered * np.cumsum(probs, axis=1)
    by_k: FloatArray = -ordered - correction + 0.0  # 0.0 for a certain answer, not -0.0
    if k is None:
        return by_k
    from_zero = np.column_stack([np.full(len(by_k), np.nan), by_k])
    columns = k[:, None] if k.ndim == 1 else k
    return np.take_along_axis(from_zero, columns, axis=1).reshape(k.shape)
