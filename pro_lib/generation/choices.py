"""Probabilities of a few given continuations of a prompt, for P(True) and for judges."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from pro_lib.common.validation import SentenceError
from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    Tree,
    common_prefix_length,
    to_device,
)

if TYPE_CHECKING:
    from pro_lib.generation.models import Model

_BATCH = 32  # prompts in one forward pass


def choice_log_probs(
    model: "Model",
    prompts: Sequence[str],
    choices: Sequence[str],
    *,
    batch_size: int = _BATCH,
    counts: ForwardCounts | None = None,
) -> NDArray[np.float64]:
    r"""Return log P(choice | prompt) in nats for a few choices.

    All prompts of a batch go through the network together, and text that all prompts begin with
    goes through it once. A choice of several tokens needs one more pass for each further token.

    Args:
        model: a loaded model.
        prompts: n prompts.
        choices: C continuations. A choice usually begins with a space.
        batch_size: number of prompts in one forward pass.
        counts: a counter to which the passes and tokens are added.

    Returns:
        (n, C) log-probabilities in nats; NaN for a prompt that the tokenizer cannot encode, as one
        in which a control token is written.

    Raises:
        SentenceError: there is no choice, or a choice adds no token to a prompt.

    Example:
        >>> from pro_lib import load_model
        >>> model = load_model("facts-2m")
        >>> choice_log_probs(model, ["Q: Capital of France?\nA:"], [" Paris", " Rome"]).shape
        (1, 2)
    """
    if not choices:
        raise SentenceError("choices must have at least one text; got []")
    counts = counts or ForwardCounts()
    results = np.full((len(prompts), len(choices)), np.nan)
    places = [place for place, prompt in enumerate(prompts) if _can_encode(model, prompt)]
    if not places:
        return results
    encoded = [_encode_choices(model, prompts[place], choices) for place in places]
    prompt_ids = [ids for ids, _ in encoded]
    choice_ids = [continuations for _, continuations in encoded]
    fit = model.fit_for(max(len(ids) + max(map(len, ends)) for ids, ends in encoded))
    prefix = fit.prefix(model.network, [ids[:-1] for ids in prompt_ids], counts)
    for start in range(0, len(places), batch_size):
        batch = slice(start, start + batch_size)
        tree = fit.tree(model.network, prompt_ids[batch], prefix=prefix, counts=counts)
        results[places[batch]] = _follow(tree, choice_ids[batch])
    return results


def _can_encode(model: "Model", prompt: str) -> bool:
    """Return whether the tokenizer of a model can encode a prompt."""
    try:
        model.encode(prompt)
    except SentenceError:
        return False
    return True


def _encode_choices(
    model: "Model", prompt: str, choices: Sequence[str]
) -> tuple[list[int], list[list[int]]]:
    """Return the tokens of a prompt and of its choices."""
    # A tokenizer may join the end of the prompt with the beginning of a choice. The choices then
    # begin at the first token that is not the same for the prompt and for every choice.
    prompt_ids = model.encode(prompt)
    with_choices = [model.encode(prompt + choice) for choice in choices]
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
def _follow(tree: Tree, choices: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.float64]:
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
