"""Walkers that go down a prefix tree token by token; the host knows where each stands, and waits once a step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pro_lib.engine.tree import Tree, sent


@dataclass(frozen=True)
class Answer:
    """One path through the tree, its tokens and their log-probabilities under the unmodified model (nats).

    `end_log_prob` is that of ending here, by whichever stop token: None where the last token carries the newline that
    ends the answer, 0 for a path still open at the length cut (not `finished`). `path_entropy` of a sample sums
    H(next | v) over the prefixes v of its path, in nats: its mean over samples of the model itself estimates H(Y).
    """

    token_ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    end_log_prob: float | None
    finished: bool
    path_entropy: float | None = None


@dataclass(frozen=True)
class Endings:
    """The tokens that end an answer, as boolean tables `(V,)`: a `stop` token is no part of it, a `closing` one is."""

    stop: Tensor
    closing: Tensor

    # As ids: a boolean index is counted anew at each use, and on a GPU waited for.
    @cached_property
    def stop_ids(self) -> Tensor:
        """Return the stop tokens, in order."""
        return self.stop.nonzero().squeeze(1)

    @cached_property
    def closing_ids(self) -> Tensor:
        """Return the closing tokens, in order."""
        return self.closing.nonzero().squeeze(1)

    @cached_property
    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return both tables, `stop` and `closing`, where the bookkeeping is done."""
        return self.stop.cpu(), self.closing.cpu()

    def log_prob(self, log_probs: Tensor) -> Tensor:
        """Return from `(rows, V)` the log-probability `(rows,)` that the answer ends here, by whichever stop token."""
        return torch.logsumexp(log_probs.index_select(1, self.stop_ids).double(), dim=-1)


# Of the step, log-probabilities (rows, V), the row of each walker (questions, walkers) and whether it is open, a token.
Choose = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def walk(tree: Tree, endings: Endings, choose: Choose, *, n_answers: int, max_new_tokens: int) -> list[list[Answer]]:
    """Let `n_answers` walkers per question go down the tree; walkers on one path share its nodes."""
    log_probs = tree.plant()
    device, (stop, closing) = log_probs.device, endings.on_host
    rows = torch.arange(len(log_probs))[:, None].repeat(1, n_answers)
    is_open, steps = torch.ones_like(rows, dtype=torch.bool), []
    for step in range(max_new_tokens):
        at, still = sent(device, rows.numpy(), is_open.numpy())
        chosen = choose(step, log_probs, at, still)
        tokens, ends = chosen.cpu(), endings.log_prob(log_probs)[at]
        stops, closes = is_open & stop[tokens], is_open & closing[tokens]
        steps.append((tokens, stops, closes, log_probs[at, chosen], ends))
        is_open = is_open & ~stops & ~closes
        if step + 1 == max_new_tokens or not is_open.any():
            break
        # A child for each distinct (row, token) of the open walkers; a closed walker's row means nothing.
        vocabulary = log_probs.shape[1]
        children, child_of = torch.unique(rows[is_open] * vocabulary + tokens[is_open], return_inverse=True)
        log_probs = tree.grow(children // vocabulary, children % vocabulary)
        rows = torch.zeros_like(rows).masked_scatter_(is_open, child_of)
    return _answers(*(torch.stack(column, dim=-1).cpu() for column in zip(*steps, strict=True)))


def _answers(tokens: Tensor, stops: Tensor, closes: Tensor, log_probs: Tensor, ends: Tensor) -> list[list[Answer]]:
    """Return what the walkers did, of columns `(questions, walkers, steps)`; after an end they mean nothing."""
    check_numbers(log_probs)
    ended, closed = stops | closes, closes.any(dim=-1)
    finished = ended.any(dim=-1)
    length = torch.where(finished, ended.int().argmax(dim=-1) + 1, tokens.shape[-1]) - stops.any(dim=-1).int()
    columns = (tokens, log_probs.double(), length, torch.where(stops, ends, 0.0).sum(dim=-1), closed, finished)
    return [
        [
            Answer(tuple(t[:size]), tuple(p[:size]), None if own else end, done)
            for t, p, size, end, own, done in zip(*walkers, strict=True)
        ]
        for walkers in zip(*(column.tolist() for column in columns), strict=True)
    ]


def check_numbers(log_probs: Tensor | np.ndarray) -> None:
    """Raise `ValueError` where a log-probability, on the host, is NaN: then its whole row is."""
    if n := int(np.isnan(np.asarray(log_probs)).sum()):
        why = "a weight that is none, or an overflow in half precision"
        raise ValueError(f"the model gives log-probabilities that are no numbers, {n} times: {why}")
