"""What an exact search is sure of: status, masses, bounds, the tree expanded. It knows no torch and no search."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """What an exact search knows about one question; the field names are columns of a run's questions.

    `status` is `certified` if every answer with p ≥ α was found, and there is one. It is `fallback` if none reaches α,
    and `cut` if the greedy answer did not end either; else `undecided`. The five masses are each added up where they
    arise, and sum to 1. `tree_` are the expanded prefixes, the prompt first and each behind its parent. Bounds are in
    nats: `alpha_floor` ≤ `tree_bound` ≤ H(Y) ≤ `upper_bound`, whatever the status.
    """

    status: str
    why: str
    search_alpha: (
        float  # α; with `top_n` the probability of the N-th answer, or how far down the search got
    )
    epsilon: float  # by how many nats a log-probability may be off, the most of any depth; so close to α is undecided
    found_mass: float  # complete, at least α
    small_endings_mass: float  # complete, below α
    pruned_mass: float  # continuations below α
    length_cut_mass: float  # open at T tokens
    budget_cut_mass: float  # open, at least α, left by the budget
    expanded_prefixes: int
    depth: int  # tokens of the longest prefix expanded
    token_forwards: int  # without the prompt's tokens; with `top_n` those of all its searches
    alpha_floor: float
    tree_bound: float
    upper_bound: float
    tree_parents: tuple[int, ...]  # the place of each prefix's parent among them, -1 for the prompt
    tree_tokens: tuple[int, ...]  # the last token of each, -1 for the prompt
    tree_log_probs: tuple[float, ...]  # log p(v)
    tree_entropies: tuple[float, ...]  # H(next | v), in nats
    tree_greedy: tuple[bool, ...]  # whether on the greedy path
    prompt_tokens: int = (
        0  # of the prompt behind what it shares with the others; known to whoever asked
    )
