"""By how many nats half precision is off: the same questions asked together and alone. It knows no question's text."""

from collections.abc import Callable, Sequence

import numpy as np

from pro_lib.engine.exact import search
from pro_lib.engine.tree import Tree
from pro_lib.engine.walk import Answer, Endings

# ε is measured on all answers to so many questions with p ≥ α. Greedy paths alone would not do: where the model is
# sure, rounding hardly shows.
N_QUESTIONS, _ALPHA = 16, 0.01


Prompts = Sequence[Sequence[int]]


def measured_epsilon(
    tree_of: Callable[[Prompts], Tree], prompts: Prompts, endings: Endings, *, max_new_tokens: int
) -> np.ndarray:
    """Ask prompts together and alone, on the tree that `tree_of` makes of them; return their `epsilons`."""

    def answers(pack: Prompts) -> list[list[Answer]]:
        results = search(tree_of(pack), endings, search_alpha=_ALPHA, max_new_tokens=max_new_tokens)
        return [answers for answers, _ in results]

    alone = [answers([prompt])[0] for prompt in prompts]
    return epsilons(answers(prompts), alone, max_new_tokens)


def epsilons(these: Sequence[list[Answer]], those: Sequence[list[Answer]], length: int) -> np.ndarray:
    """Return by how many nats log-probabilities may be off, `(T + 1,)` by the tokens of a prefix, its ending counted.

    That is twice the largest difference, up to that depth, of the prefixes of the answers that both have to a question.
    """
    largest = np.zeros(length + 1)
    for mine, theirs in zip(map(_prefixes, these), map(_prefixes, those), strict=True):
        for path in mine.keys() & theirs.keys():
            largest[len(path)] = max(largest[len(path)], abs(mine[path] - theirs[path]))
    return 2 * np.maximum.accumulate(largest)


def _prefixes(answers: list[Answer]) -> dict[tuple[int, ...], float]:
    """Return the log-probability of each prefix of some answers, and of the answers: their ending is the token -1."""
    prefixes = {}
    for answer in answers:
        sums = np.cumsum([*answer.token_log_probs, *([answer.end_log_prob] if answer.end_log_prob else [])])
        for length, log_prob in enumerate(sums.tolist(), start=1):
            prefixes[(*answer.token_ids, -1)[:length]] = log_prob
    return prefixes
