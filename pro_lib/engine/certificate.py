"""What an exact search is sure of, and how far half precision is off; only measuring that takes torch, on first use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pro_lib.engine.tree import Tree
    from pro_lib.engine.walk import Answer, Endings

# ε is measured on all answers to so many questions with p ≥ α. Greedy paths alone would not do: where the model is
# sure, rounding hardly shows.
N_QUESTIONS, _ALPHA = 16, 0.01


@dataclass(frozen=True)
class Certificate:
    """What an exact search knows about one question; the field names are columns of a run's questions.

    `status` is `certified` if every answer with p ≥ α was found, and there is one; `fallback` if none reaches α; `cut`
    if neither does any, nor did the greedy answer end; else `undecided`.

    The five masses say where all probability lies: each is added up where it arises, and they sum to 1. What begins
    with `tree_` are the expanded prefixes, the prompt first and each behind its parent. Bounds are in nats:
    `alpha_floor` ≤ `tree_bound` ≤ H(Y) ≤ `upper_bound`, whatever the status.
    """

    status: str
    why: str
    search_alpha: float  # α; with `top_n` the probability of the N-th answer, or how far down the search got
    epsilon: float  # by how many nats a log-probability may be off, the most of any depth; so close to α is undecided
    found_mass: float  # complete, at least α
    small_endings_mass: float  # complete, below α
    pruned_mass: float  # continuations below α
    length_cut_mass: float  # open at T tokens
    budget_cut_mass: float  # open, at least α, left by the budget
    expanded_prefixes: int
    depth: int  # tokens of the longest prefix expanded
    live_width: int  # the most prefixes expanded at one depth
    token_forwards: int  # without the prompt's tokens; with `top_n` those of all its searches
    alpha_floor: float
    tree_bound: float
    upper_bound: float
    tree_parents: tuple[int, ...]  # the place of each prefix's parent among them, -1 for the prompt
    tree_tokens: tuple[int, ...]  # the last token of each, -1 for the prompt
    tree_log_probs: tuple[float, ...]  # log p(v)
    tree_entropies: tuple[float, ...]  # H(next | v), in nats
    tree_greedy: tuple[bool, ...]  # whether on the greedy path
    prompt_tokens: int = 0  # of the prompt behind what it shares with the others; known to whoever asked


def measured_epsilon(
    tree_of: "Callable[..., Tree]", prompts: Sequence[Sequence[int]], endings: "Endings", *, max_new_tokens: int
) -> np.ndarray:
    """Ask prompts together and alone; return by how many nats log-probabilities may be off.

    That is `(T + 1,)`, by the tokens of a prefix, its ending counted: twice the largest difference, up to that depth,
    of the prefixes of the answers found both ways. `tree_of` makes a tree of prompts.
    """
    from pro_lib.engine.exact import search

    packs = ([prompt] for prompt in prompts)
    together, *alone = (
        search(tree_of(pack), endings, search_alpha=_ALPHA, max_new_tokens=max_new_tokens) for pack in (prompts, *packs)
    )
    largest = np.zeros(max_new_tokens + 1)
    for (answers, _), [(others, _)] in zip(together, alone, strict=True):
        mine, theirs = _prefixes(answers), _prefixes(others)
        for path in mine.keys() & theirs.keys():
            largest[len(path)] = max(largest[len(path)], abs(mine[path] - theirs[path]))
    return 2 * np.maximum.accumulate(largest)


def _prefixes(answers: "list[Answer]") -> dict[tuple[int, ...], float]:
    """Return the log-probability of each prefix of some answers, and of the answers: their ending is the token -1."""
    prefixes = {}
    for answer in answers:
        sums = np.cumsum([*answer.token_log_probs, *([answer.end_log_prob] if answer.end_log_prob else [])])
        for length, log_prob in enumerate(sums.tolist(), start=1):
            prefixes[(*answer.token_ids, -1)[:length]] = log_prob
    return prefixes
