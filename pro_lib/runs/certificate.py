"""The certificate of an exact search: its status, masses, bounds and expanded tree."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """The result of an exact search for one question.

    The attributes are columns of the questions of a run. The five masses are each added up where
    they arise, and their sum is 1. Bounds are in nats, and `alpha_floor` ≤ `tree_bound` ≤ H(Y) ≤
    `upper_bound` holds for every status. The tuples have one value per expanded prefix: the prompt
    is the first, and each prefix comes after its parent.

    Attributes:
        status: `certified`: all answers with p ≥ α were found, and there is at least one.
            `fallback`: no answer reaches α, and the greedy answer ended. `cut`: no answer reaches
            α, and the greedy answer did not end. `undecided`: none of these is known.
        why: the reason for the status.
        search_alpha: α. With `top_n`, the probability of the N-th answer if N answers were found,
            otherwise the smallest probability down to which the search is complete.
        epsilon: the largest rounding error of a log-probability over all depths, in nats. A prefix
            whose log-probability differs from log α by less is undecided.
        found_mass: probability of the complete answers with p ≥ α.
        small_endings_mass: probability of the complete answers with p < α.
        pruned_mass: probability of the continuations with p < α.
        length_cut_mass: probability of the prefixes that are open at the length limit.
        budget_cut_mass: probability of the open prefixes with p ≥ α that the budget left.
        expanded_prefixes: number of expanded prefixes.
        depth: number of tokens of the longest expanded prefix.
        token_forwards: number of tokens that the model read, without the prompt; with `top_n`, of
            all searches of the question.
        alpha_floor: lower bound of the entropy from the answers.
        tree_bound: lower bound of the entropy from the tree.
        upper_bound: upper bound of the entropy.
        tree_parents: index of the parent of each prefix; -1 for the prompt.
        tree_tokens: last token of each prefix; -1 for the prompt.
        tree_log_probs: log p(v) of each prefix v.
        tree_entropies: H(next | v) of each prefix v, in nats.
        tree_greedy: whether each prefix is on the greedy path.
        prompt_tokens: number of tokens of the prompt after the part that all prompts share.
    """

    status: str
    why: str
    search_alpha: float
    epsilon: float
    found_mass: float
    small_endings_mass: float
    pruned_mass: float
    length_cut_mass: float
    budget_cut_mass: float
    expanded_prefixes: int
    depth: int
    token_forwards: int
    alpha_floor: float
    tree_bound: float
    upper_bound: float
    tree_parents: tuple[int, ...]
    tree_tokens: tuple[int, ...]
    tree_log_probs: tuple[float, ...]
    tree_entropies: tuple[float, ...]
    tree_greedy: tuple[bool, ...]
    prompt_tokens: int = 0
