"""What an exact search is sure of: status, masses, bounds, the tree expanded; knows neither torch nor who searched."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Masses(NamedTuple):
    """Where all probability lies after a search, each part added up where it arises; the five sum to 1.

    `found` (complete, at least α), `small_endings` (complete, below α), `pruned` (continuations below α), `length_cut`
    (open at T tokens) and `budget_cut` (open, at least α, left by the budget).
    """

    found: float
    small_endings: float
    pruned: float
    length_cut: float
    budget_cut: float


class SearchTree(NamedTuple):
    """The expanded prefixes, the prompt first and each behind its parent, a column for each thing known of them.

    The parent's place (-1: none), the last token (-1: none), log p(v), H(next | v) in nats, whether on the greedy path.
    """

    parents: Sequence[int]
    tokens: Sequence[int]
    log_probs: Sequence[float]
    entropies: Sequence[float]
    greedy: Sequence[bool]

    def depths(self) -> list[int]:
        """How many tokens each prefix has."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths


@dataclass(frozen=True)
class Certificate:
    """What an exact search knows about one question; the field names are columns of a run's questions.

    The five masses are those of `Masses`, the columns that begin with `tree_` those of `SearchTree`. Bounds are in
    nats: `alpha_floor` ≤ `tree_bound` ≤ H(Y) ≤ `upper_bound`, whatever the status.
    """

    status: str
    """`certified`: every answer with p ≥ α was found, and there is one; `fallback`: none reaches α; `undecided`."""
    why: str
    search_alpha: float
    """α; with `top_n` the probability of the N-th answer, or how far down the search got."""
    epsilon: float
    """By how many nats a log-probability may be off, the most of any depth; what lies so close to α is undecided."""
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
    upper_bound: float | None
    """None where the vocabulary's size is not known."""
    tree_parents: tuple[int, ...]
    tree_tokens: tuple[int, ...]
    tree_log_probs: tuple[float, ...]
    tree_entropies: tuple[float, ...]
    tree_greedy: tuple[bool, ...]
    prompt_tokens: int = 0
    """Of the prompt behind what it shares with the others; known to whoever asked the question."""


def certify(
    *,
    tree: SearchTree,
    masses: Masses,
    doubts: Mapping[str, bool],
    n_found: int,
    open_entropy: float | None,
    why_certified: str = "",
    **known: float,
) -> Certificate:
    """The certificate of a finished search.

    Args:
        doubts: sentence -> whether it holds; each that does leaves the question undecided.
        n_found: complete answers at or above α.
        open_entropy: the most entropy that may lie below what was not expanded, in nats; None if nobody knows.
        why_certified: what is to be said of a certified search, if anything.
        known: fields that only the search knows: search_alpha, epsilon, token_forwards, and alpha_floor, whose terms
            each search adds up where they arise.
    """
    why = "; ".join(sentence for sentence, holds in doubts.items() if holds)
    status = "undecided" if why else "certified" if n_found else "fallback"
    depths = tree.depths()
    tree_bound = float(np.sum(np.exp(tree.log_probs) * np.asarray(tree.entropies)))
    return Certificate(
        status=status,
        why=why or {"certified": why_certified, "fallback": "no answer reaches α"}[status],
        expanded_prefixes=len(depths),
        depth=max(depths),
        live_width=max(Counter(depths).values()),
        tree_bound=tree_bound,
        upper_bound=None if open_entropy is None else tree_bound + float(open_entropy),
        **{f"{name}_mass": float(mass) for name, mass in masses._asdict().items()},
        **{f"tree_{name}": tuple(np.asarray(column).tolist()) for name, column in tree._asdict().items()},
        **known,
    )
