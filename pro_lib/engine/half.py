"""Half precision held against float32: a network's copy, and how far apart what the two find is; knows no question."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from pro_lib.engine.walk import Answer

# The difference is measured on all answers to so many questions with p ≥ α. Greedy paths alone would not do: where the
# model is sure, rounding hardly shows.
N_QUESTIONS, ALPHA = 16, 0.01


def float32_copy(network: PreTrainedModel) -> PreTrainedModel:
    """The network with its weights in float32, 4 bytes each.

    Raises `MemoryError`, or what torch does, if there is no memory for it, and `ValueError` for quantised weights.
    """
    if hasattr(network, "hf_device_map"):
        raise ValueError("its weights are quantised, or on several devices")
    told, needed = Path("/proc/meminfo"), 4 * network.num_parameters()
    # A system that says what it can still give would kill the process that takes more.
    if network.device.type == "cpu" and told.exists():
        free = 1024 * int(re.search(r"MemAvailable: *(\d+)", told.read_text())[1])
        if needed > free:
            raise MemoryError(f"it takes {needed:,} bytes, {free:,} are free")
    return copy.deepcopy(network).float()


def epsilons(these: Sequence[list[Answer]], those: Sequence[list[Answer]], length: int) -> np.ndarray:
    """By how many nats log-probabilities may be off, `(T + 1,)` by the tokens of a prefix, its ending counted.

    Twice the largest difference, up to that depth, of the prefixes of the answers that both found to a question.
    """
    largest = np.zeros(length + 1)
    for mine, theirs in zip(map(_prefixes, these), map(_prefixes, those), strict=True):
        for path in mine.keys() & theirs.keys():
            largest[len(path)] = max(largest[len(path)], abs(mine[path] - theirs[path]))
    return 2 * np.maximum.accumulate(largest)


def _prefixes(answers: list[Answer]) -> dict[tuple[int, ...], float]:
    """Log-probability of each prefix of some answers, and of the answers: their ending is the token -1."""
    found = {}
    for answer in answers:
        sums = np.cumsum([*answer.token_log_probs, *([answer.end_log_prob] if answer.end_log_prob else [])])
        found |= {(*answer.token_ids, -1)[: place + 1]: log_prob for place, log_prob in enumerate(sums.tolist())}
    return found
