"""What an exact search is sure of; free of torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ledger:
    """What an exact search knows about one question; the field names are columns of a run's questions.

    The five masses are added up apart, each where it arises, and sum to 1 within rounding: `found` (complete, at
    least α), `small_endings` (complete, below α), `pruned` (continuations below α), `length_cut` (open at T tokens)
    and `budget_cut` (open, at least α, left by the budget). Bounds are in nats: `alpha_floor` ≤ `tree_bound` ≤
    H(Y) ≤ `upper_bound`, whatever the status. The `tree_` tuples have an entry per expanded prefix, the prompt
    first: its parent's place (-1: none), its last token (-1: none), log p(v), H(next | v), whether greedy.
    """

    status: str
    """`certified`: every answer with p ≥ α was found, and there is one; `fallback`: none reaches α; `undecided`."""
    why: str
    search_alpha: float
    """α; with `top_n` the probability of the N-th answer, or how far down the search got."""
    epsilon: float
    """By how many nats a log-probability may be off; what lies so close to α is undecided."""
    found_mass: float
    small_endings_mass: float
    pruned_mass: float
    length_cut_mass: float
    budget_cut_mass: float
    expanded_prefixes: int
    depth: int
    """Tokens of the longest prefix expanded."""
    live_width: int
    """The most prefixes expanded at one depth."""
    token_forwards: int
    """Without the prompt's tokens; with `top_n` those of prefixes expanded again count again."""
    alpha_floor: float
    tree_bound: float
    upper_bound: float
    tree_parents: tuple[int, ...]
    tree_tokens: tuple[int, ...]
    tree_log_probs: tuple[float, ...]
    tree_entropies: tuple[float, ...]
    tree_greedy: tuple[bool, ...]
