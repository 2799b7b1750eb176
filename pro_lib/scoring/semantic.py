"""Uncertainty from the meanings of answers, as functions of arrays.

`compared` (n, N, N) or (n, N, N, 3) is the result of a similarity, with the most probable answers
first. A similarity s counts as entailment with probability s and contradiction with 1 - s.
`log_probs` (n, N) are natural logarithms, NaN where an answer is missing or does not count;
`meaning` (n, N) is the result of `clusters`. Scores are float64 arrays (n,), **higher = more
uncertain**, with NaN where there is nothing to score. The order of the answers after the first does
not change a single bit of them. Arrays whose shapes do not fit raise `ValueError`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pro_lib.metrics.roc import FloatArray, as_floats
from pro_lib.scoring.likelihood import as_log_probs, row_sums

Mask = NDArray[np.bool_]


def matches(compared: ArrayLike) -> Mask:
    """Return whether two answers mean the same.

    Two answers match if entailment is the most probable label in both directions (Kuhn et al. 2023,
    and the paper), or if their similarity is at least 0.5.

    Args:
        compared: similarities (n, N, N) or probabilities of three labels (n, N, N, 3).

    Returns:
        Truth values (n, N, N), symmetric; False where an answer is missing.

    Example:
        >>> matches([[[1.0, 0.6], [0.6, 1.0]]]).tolist()
        [[[True, True], [True, True]]]
    """
    (entailment, neutral, contradiction), _ = _checked(compared)
    # Comparisons with NaN, of a missing answer, are False.
    entails = (entailment >= neutral) & (entailment >= contradiction)
    return np.asarray(entails & entails.transpose(0, 2, 1))


def clusters(compared: ArrayLike) -> NDArray[np.int64]:
    """Number the meanings of the answers, in the order in which they appear.

    An answer gets the first meaning whose first answer it `matches`, or a new meaning.

    Args:
        compared: similarities (n, N, N) or probabilities of three labels (n, N, N, 3).

    Returns:
        The number of each answer's meaning (n, N), from 0; -1 for a missing answer.

    Example:
        >>> clusters([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]]).tolist()
        [[0, 1, 0]]
    """
    _, present = _checked(compared)
    n_answers = present.shape[1]
    same = matches(compared) | np.eye(n_answers, dtype=bool)
    is_first = np.zeros_like(present)  # whether an answer is the first of its meaning
    first_answer = np.zeros(present.shape, dtype=np.int64)
    for i in range(n_answers):
        has_match = (same[:, :i, i] & is_first[:, :i]).any(axis=1)
        is_first[:, i] = present[:, i] & ~has_match
        first_answer[:, i] = (same[:, : i + 1, i] & is_first[:, : i + 1]).argmax(axis=1)
    numbers = np.take_along_axis(is_first.cumsum(axis=1), first_answer, axis=1) - 1
    return np.where(present, numbers, -1)


def meaning_log_probs(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return the log-probabilities log P(c) of the meanings, for PRO over meanings.

    P(c) is the sum of the probabilities of a meaning's answers, but at most 1, because repeated
    answers and rounding may add up to more.

    Args:
        log_probs: natural-log probabilities of the answers (n, N).
        meaning: the number of each answer's meaning (n, N).

    Returns:
        Log-probabilities (n, C) in descending order, NaN where a question has fewer meanings.

    Example:
        >>> np.exp(meaning_log_probs(np.log([[0.2, 0.2, 0.5]]), [[0, 0, 1]])).round(2).tolist()
        [[0.5, 0.4]]
    """
    masses = _masses(log_probs, meaning)[:, ::-1]
    return np.where(np.isfinite(masses), np.minimum(masses, 0.0), np.nan)


def semantic_entropy(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return SE: -Σ_c Q log Q with Q = P(c) / Σ P (Farquhar et al. 2024).

    P(c) is the sum of the probabilities of a meaning's answers.

    Args:
        log_probs: natural-log probabilities of the answers (n, N).
        meaning: the number of each answer's meaning (n, N).

    Returns:
        The scores in nats (n,); higher = more uncertain.

    Example:
        >>> semantic_entropy(np.log([[0.2, 0.2, 0.4]]), [[0, 0, 1]]).round(4).tolist()
        [0.6931]
    """
    masses = _masses(log_probs, meaning)
    has_mass = np.isfinite(masses)
    total = np.logaddexp.reduce(masses, axis=1, keepdims=True, initial=-np.inf)
    log_q = np.subtract(masses, total, out=np.zeros_like(masses), where=has_mass)
    entropy = -row_sums(np.exp(log_q) * log_q) + 0.0
    return np.where(has_mass.any(axis=1), entropy, np.nan)


def degree(compared: ArrayLike) -> FloatArray:
    """Return Deg: trace(m I - D) / m² for m answers (Lin et al. 2023).

    D has the row sums of the entailment probabilities on its diagonal. Column sums give the same.

    Args:
        compared: similarities (n, N, N) or probabilities of three labels (n, N, N, 3).

    Returns:
        The scores (n,) in [0, 1]; higher = more uncertain.

    Example:
        >>> degree([[[1.0, 0.0], [0.0, 1.0]]]).tolist()
        [0.5]
    """
    labels, present = _checked(compared)
    n_answers = present.sum(axis=1)
    differences = row_sums(1 - labels.entailment)
    return np.where(n_answers > 0, differences / np.maximum(n_answers, 1) ** 2, np.nan)


def semantic_density(mean_log_probs: ArrayLike, compared: ArrayLike) -> FloatArray:
    """Return SD of the first answer among those of its question, as 1 - density.

    The density is Σ w K / Σ w with w = exp(mean_log_probs) and the kernel K = 1 - E‖v‖² (Qiu &
    Miikkulainen 2024). E‖v‖² = P(contradiction) + P(neutral) / 2 is the mean of both directions.
    The authors use each text once (`distinct`).

    Args:
        mean_log_probs: token-averaged log-probabilities (n, N), in nats.
        compared: similarities (n, N, N) or probabilities of three labels (n, N, N, 3).

    Returns:
        The scores (n,) in [0, 1]; higher = more uncertain; NaN if the first answer has no weight.

    Example:
        >>> semantic_density(np.log([[0.5, 0.5]]), [[[1.0, 0.0], [0.0, 1.0]]]).tolist()
        [0.5]
    """
    labels, present = _checked(compared)
    logs = _fitting(mean_log_probs, present)
    largest = np.fmax.reduce(logs, axis=1, initial=np.nan)
    weights = np.exp(logs - largest[:, None])
    kernel = labels.entailment + labels.neutral / 2
    distances = 1 - (kernel[:, 0] + kernel[:, :, 0]) / 2
    mean = row_sums(distances * weights) / np.maximum(row_sums(weights), 1e-300)
    return np.where(np.isnan(weights[:, 0]), np.nan, mean)


class _Labels(NamedTuple):
    """The probabilities of the three labels of each pair of answers, (n, N, N) each."""

    entailment: FloatArray
    neutral: FloatArray
    contradiction: FloatArray


def _checked(compared: ArrayLike) -> tuple[_Labels, Mask]:
    """Return probabilities of three labels, and which answers are present (n, N)."""
    array = as_floats(compared)
    has_answers = array.ndim in (3, 4) and array.shape[1] == array.shape[2]
    if not has_answers or array.shape[3:] not in ((), (3,)):
        shapes = "(n, N, N) or (n, N, N, 3)"
        raise ValueError(f"compared must have the shape {shapes}, not {array.shape}")
    if array.ndim == 3:
        labels = _Labels(array, np.broadcast_to(0.0, array.shape), 1 - array)
    else:
        labels = _Labels(*np.moveaxis(array, -1, 0))
    present = ~np.isnan(np.diagonal(labels.entailment, axis1=1, axis2=2))
    are_both_present = present[:, :, None] & present[:, None, :]
    is_bad = np.isnan(labels.entailment) == are_both_present
    for values in labels:
        is_bad |= values < -1e-6
    if array.ndim == 4:
        # The labels are added one by one, because NumPy is slow along an axis of three.
        total = labels.entailment + labels.neutral + labels.contradiction
        is_bad |= (np.abs(total - 1) > 1e-4) | (np.isnan(total) == are_both_present)
    if is_bad.any():
        place = tuple(np.argwhere(is_bad)[0].tolist())
        raise ValueError(
            f"compared{list(place)} is {array[place]}, but it must be a similarity in [0, 1], or "
            "three probabilities, for each pair of answers"
        )
    return labels, present


def _fitting(log_probs: ArrayLike, present: Mask) -> FloatArray:
    """Return log-probabilities (n, N), or raise `ValueError` if a missing answer has one."""
    array = as_log_probs(log_probs, "log_probs", present.shape)
    if not (np.isnan(array) | present).all():
        raise ValueError("log_probs must be NaN where there is no answer")
    return array


def _masses(log_probs: ArrayLike, meaning: ArrayLike) -> FloatArray:
    """Return log P(c) (n, C) in ascending order, -inf where a question has fewer meanings."""
    numbers = np.ma.filled(meaning, -1)
    logs = np.nan_to_num(_fitting(log_probs, numbers >= 0), nan=-np.inf)[:, :, None]
    n_meanings = max(numbers.max(initial=0) + 1, 1)
    is_member = numbers[:, :, None] == np.arange(n_meanings)
    # The least probable answers are added first, so that their order in the run does not matter.
    in_order = np.sort(np.where(is_member, logs, -np.inf), axis=1)
    return np.sort(np.logaddexp.reduce(in_order, axis=1, initial=-np.inf), axis=1)
