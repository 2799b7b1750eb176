"""Decode token by token: the loop that greedy decoding, beams and samples share, and the answers it returns.

The host knows where each answer stands, and waits for the device once a step.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from pro_lib.generation.decoding.next_tokens import Endings, check_numbers
from pro_lib.generation.decoding.packed_tree import Tree, to_device


@dataclass(frozen=True)
class Outcome:
    """One path through the tree, its tokens and their log-probabilities under the unmodified model (nats).

    `end_log_prob` is that of ending here, by whichever stop token. It is None where the last token carries the newline
    that ends the answer, and 0 for a path still open at the length cut (not `finished`). `path_entropy` of a sample is
    the sum of H(next | v) over the prefixes v of its path, in nats; its mean over the model's samples estimates H(Y).
    """

    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    end_log_prob: float | None
    finished: bool
    path_entropy: float | None = None

    @property
    def log_prob(self) -> float:
        """Return that of the tokens alone, in nats, added up in order as in a search: what is at α must stay there."""
        return reduce(operator.add, self.token_log_probs, 0.0)

    @property
    def complete_log_prob(self) -> float:
        """Return that of the tokens and of ending there, in nats."""
        return self.log_prob + (self.end_log_prob or 0.0)


# Chooses the next token of every answer: from the number of the step, the log-probabilities (rows, V), and the row of
# each answer (questions, answers) and whether it is still open.
Choose = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def decode_steps(
    tree: Tree, endings: Endings, choose: Choose, *, n_answers: int, max_new_tokens: int
) -> list[list[Outcome]]:
    """Decode `n_answers` answers per question, token by token; answers with the same beginning share its nodes."""
    log_probs = tree.plant()
    device, (stop, closing) = log_probs.device, endings.on_host
    rows = torch.arange(len(log_probs))[:, None].repeat(1, n_answers)
    is_open, steps = torch.ones_like(rows, dtype=torch.bool), []
    for step in range(max_new_tokens):
        at, still = to_device(device, rows.numpy(), is_open.numpy())
        chosen = choose(step, log_probs, at, still)
        tokens, ends = chosen.cpu(), endings.log_prob(log_probs)[at]
        stops, closes = is_open & stop[tokens], is_open & closing[tokens]
        steps.append((tokens, stops, closes, log_probs[at, chosen], ends))
        is_open = is_open & ~stops & ~closes
        if step + 1 == max_new_tokens or not is_open.any():
            break
        # A child for each distinct (row, token) of the open answers; the row of a closed answer means nothing.
        vocabulary = log_probs.shape[1]
        log_probs = torch.empty(0)  # let go of, so that there is room for the next ones
        children, child_of = torch.unique(
            rows[is_open] * vocabulary + tokens[is_open], return_inverse=True
        )
        log_probs = tree.grow(children // vocabulary, children % vocabulary)
        rows = torch.zeros_like(rows).masked_scatter_(is_open, child_of)
    return _answers(*(torch.stack(column, dim=-1).cpu() for column in zip(*steps, strict=True)))


def _answers(
    tokens: Tensor, stops: Tensor, closes: Tensor, log_probs: Tensor, ends: Tensor
) -> list[list[Outcome]]:
    """Return the outcomes in columns `(questions, answers, steps)`; what stands after an end means nothing."""
    check_numbers(log_probs)
    ended, closed = stops | closes, closes.any(dim=-1)
    finished = ended.any(dim=-1)
    length = (
        torch.where(finished, ended.int().argmax(dim=-1) + 1, tokens.shape[-1])
        - stops.any(dim=-1).int()
    )
    columns = (
        tokens,
        log_probs.double(),
        length,
        torch.where(stops, ends, 0.0).sum(dim=-1),
        closed,
        finished,
    )
    return [
        [
            Outcome(tuple(t[:size]), tuple(p[:size]), None if own else end, done)
            for t, p, size, end, own, done in zip(*columns_of_question, strict=True)
        ]
        for columns_of_question in zip(*(column.tolist() for column in columns), strict=True)
    ]
