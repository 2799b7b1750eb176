"""Uncertainty from what answers mean, as pure functions of arrays; knows no text and no model.

`compared` (n, N, N) or (n, N, N, 3) is what a similarity returned, most probable answers first; a similarity s counts
as entailment with probability s, contradiction with 1 - s. `log_probs` (n, N) are natural logarithms, NaN where an
answer is missing or is not to count; `meaning` (n, N) is from `clusters`. Scores are (n,) float64, **higher = more
uncertain**, NaN where there is nothing to score, and to the bit the same in whatever order other answers than the
first come. Arrays that do not fit are a `ValueError`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pro_lib.scoring.likelihood import FloatArray, as_log_probs, row_sums

Mask = NDArray[np.bool_]


def matches(compared: ArrayLike) -> Mask:
    """Return whether two answers mean the same, (n, N, N), symmetric; False where one is missing.

    They do where entailment is the most probable label both ways (Kuhn et al. 2023, the paper); similarities from 0.5.
    """
    entailment, neutral, contradiction = np.moveaxis(_checked(compared)[0], -1, 0)
    entails = (entailment >= neutral) & (
        entailment >= contradiction
    )  # False where an answer is missing
    return entails & entails.transpose(0, 2, 1)


def clusters(compared: ArrayLike) -> NDArray[np.int64]:
    """Number the meanings, (n, N), from 0 as they appear: the first whose first answer one `matches`; -1 for none."""
    present = _checked(compared)[1]
    same = matches(compared) | np.eye(present.shape[1], dtype=bool)
    leads, first = np.zeros_like(present), np.zeros(present.shape, dtype=np.int64)
    for i in range(present.shape[1]):
        leads[:, i] = present[:, i] & ~(same[:, :i, i] & leads[:, :i]).any(axis=1)
        first[:, i] = (same[:, : i + 1, i] & leads[:, : i + 1]).argmax(axis=1)
    return np.where(present, np.take_along_axis(leads.cumsum(axis=1), first, axis=1) - 1, -1)


def meaning_log_probs(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return log P(c) of the meanings (n, C), downwards, NaN where a question has fewer: what PRO over meanings reads.

    P(c) is the sum of a meaning's probabilities, at most 1: what repeats or rounding add beyond it is not counted.
    """
    masses = _masses(log_probs, meaning)[:, ::-1]
    return np.where(np.isfinite(masses), np.minimum(masses, 0.0), np.nan)


def semantic_entropy(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return SE: -Σ_c Q log Q with Q = P(c) / Σ P, P(c) the sum of a meaning's probabilities (Farquhar et al. 2024)."""
    masses = _masses(log_probs, meaning)
    there = np.isfinite(masses)
    total = np.logaddexp.reduce(masses, axis=1, keepdims=True, initial=-np.inf)
    log_q = np.subtract(masses, total, out=np.zeros_like(masses), where=there)
    entropy = -row_sums(np.exp(log_q) * log_q) + 0.0
    return np.where(there.any(axis=1), entropy, np.nan)


def degree(compared: ArrayLike) -> FloatArray:
    """Return Deg (Lin et al. 2023): trace(m I - D) / m², D the row sums of entailment probabilities, or of columns."""
    array, present = _checked(compared)
    m = present.sum(axis=1)
    return np.where(m > 0, row_sums(1 - array[..., 0]) / np.maximum(m, 1) ** 2, np.nan)


def semantic_density(mean_log_probs: ArrayLike, compared: ArrayLike) -> FloatArray:
    """Return SD of the first answer among its question's, as 1 - density (Qiu & Miikkulainen 2024).

    density = Σ w K / Σ w with w = exp(mean_log_probs), the token-averaged log-probabilities, and the kernel
    K = 1 - E‖v‖², E‖v‖² = P(contradiction) + P(neutral) / 2, the mean of both directions. The authors take each text
    once (`distinct`). NaN where the first answer has no weight.
    """
    array, present = _checked(compared)
    logs = _fitting(mean_log_probs, present)
    weights = np.exp(logs - np.fmax.reduce(logs, axis=1, initial=np.nan)[:, None])
    kernel = array[..., 0] + array[..., 1] / 2
    distances = 1 - (kernel[:, 0] + kernel[:, :, 0]) / 2
    mean = row_sums(distances * weights) / np.maximum(row_sums(weights), 1e-300)
    return np.where(np.isnan(weights[:, 0]), np.nan, mean)


def _checked(compared: ArrayLike) -> tuple[FloatArray, Mask]:
    """Return what was compared as (n, N, N, 3), and which answers are there, (n, N)."""
    array = np.asarray(compared, dtype=np.float64)
    if (
        array.ndim not in (3, 4)
        or array.shape[1] != array.shape[2]
        or array.shape[3:] not in ((), (3,))
    ):
        raise ValueError(
            f"compared must have the shape (n, N, N) or (n, N, N, 3), not {array.shape}"
        )
    three = (
        array if array.ndim == 4 else np.stack([array, np.zeros_like(array), 1 - array], axis=-1)
    )
    e, n, c = np.moveaxis(three, -1, 0)  # added up one by one: NumPy is slow along an axis of three
    present, total = ~np.isnan(np.diagonal(e, axis1=1, axis2=2)), e + n + c
    both = present[:, :, None] & present[:, None, :]
    bad = (
        (np.minimum(np.minimum(e, n), c) < -1e-6)
        | (np.abs(total - 1) > 1e-4)
        | (np.isnan(total) == both)
    )
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        words = "a similarity in [0, 1], or three probabilities, of any two answers there are"
        raise ValueError(f"compared{list(place)} is {array[place]}, but it must be {words}")
    return three, present


def _fitting(log_probs: ArrayLike, present: Mask) -> FloatArray:
    array = as_log_probs(log_probs, "log_probs", present.shape)
    if not (np.isnan(array) | present).all():
        raise ValueError("log_probs must be NaN where there is no answer")
    return array


def _masses(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return log P(c), (n, C), upwards, -inf where a question has fewer meanings."""
    numbers = np.asarray(meaning)
    logs = np.nan_to_num(_fitting(log_probs, numbers >= 0), nan=-np.inf)[:, :, None]
    member = numbers[:, :, None] == np.arange(max(numbers.max(initial=0) + 1, 1))
    # Added up from the least probable: in the same order whatever order they come in.
    in_order = np.sort(np.where(member, logs, -np.inf), axis=1)
    return np.sort(np.logaddexp.reduce(in_order, axis=1, initial=-np.inf), axis=1)
