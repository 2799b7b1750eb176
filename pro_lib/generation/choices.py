"""Tokens and probabilities of a few given continuations of a prompt."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pro_lib.common.validation import SentenceError
from pro_lib.generation.decoding.packed_tree import Tree, common_prefix_length, to_device


def encode_choices(
    encode: Callable[[str], list[int]], prompt: str, choices: Sequence[str]
) -> tuple[list[int], list[list[int]]]:
    """Return the tokens of a prompt and of its choices."""
    # A tokenizer may join the end of the prompt with the beginning of a choice. The choices then
    # begin at the first token that is not the same for the prompt and for every choice.
    prompt_ids = encode(prompt)
    with_choices = [encode(prompt + choice) for choice in choices]
    start = common_prefix_length([prompt_ids, *with_choices])
    remainders = [ids[start:] for ids in with_choices]
    for choice, remainder in zip(choices, remainders, strict=True):
        if not remainder:
            raise SentenceError(
                f"choice {choice!r} adds no token to the prompt, so it has no probability; give a "
                "text that is more than white space"
            )
    return prompt_ids[:start], remainders


@torch.inference_mode()
def choice_totals(tree: Tree, choices: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.float64]:
    """Return the log-probabilities (rows, C) of the choices of each prompt of a tree."""
    paths = list(itertools.chain.from_iterable(choices))
    totals = np.zeros(len(paths))
    log_probs = tree.plant()
    # The paths that have a token at the current depth, and the row before that token of each.
    numbers = np.arange(len(paths))
    rows = np.repeat(np.arange(len(choices)), len(choices[0]))
    for depth in range(max(map(len, paths))):
        tokens = np.array([paths[number][depth] for number in numbers])
        if hasattr(tree, "log_probs_of"):  # a server lists only some tokens
            totals[numbers] += tree.log_probs_of(rows, tokens)
        else:
            device_rows, device_tokens = to_device(log_probs.device, rows, tokens)
            totals[numbers] += log_probs[device_rows, device_tokens].double().cpu().numpy()
        is_longer = np.array([len(paths[number]) > depth + 1 for number in numbers])
        numbers = numbers[is_longer]
        if len(numbers):
            log_probs = tree.grow(
                torch.from_numpy(rows[is_longer]), torch.from_numpy(tokens[is_longer])
            )
            rows = np.arange(len(numbers))
    return totals.reshape(len(choices), -1)
