"""What may follow a prefix, and what ends an answer, from log-probabilities where they lie; knows no tree or search."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pro_lib.generation.decoding.packed_tree import to_device

# In place of a token: the ending, the sum of several tokens that are not listed, and what no server tells, which may be
# any of them.
END, OTHER, UNSEEN = -1, -2, -3
# Numbers worked on together: so many that a thread finds them in its cache, or that a GPU has room for what they need.
_PIECE, _PIECE_ELSEWHERE = 2**19, 2**26
_MOST_PADDED = 2**20  # places whose copy to the host takes less than to wait for their number


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


def pieces(log_probs: Tensor) -> tuple[Tensor, ...]:
    """Split rows `(rows, V)` into pieces to work on one after the other."""
    n = _PIECE * torch.get_num_threads() if log_probs.device.type == "cpu" else _PIECE_ELSEWHERE
    # Two rows at least, and even pieces: a single row's sum is split among threads, and so rounded otherwise.
    return log_probs.tensor_split(max(1, len(log_probs) // max(2, n // log_probs.shape[1])))


def most_probable_tokens(log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return ids, rising, and log-probabilities `(rows, n or fewer)` of the most probable tokens, any of equals."""
    values, ids = log_probs.topk(min(n, log_probs.shape[1]), dim=-1)
    ids, order = ids.sort(dim=-1)
    return ids, values.gather(1, order)


def reaching(
    log_probs: Tensor, top: Tensor, lowest: Tensor, greedy: Tensor, *, most: int, padding: int
) -> Tensor:
    """Return the flat places in `(rows, V)` of what reaches its row's `lowest (rows,)`, and a `greedy` row's best.

    A GPU's host would wait to hear how many they are: there `most` are returned, the rest of them `padding`.
    """
    if log_probs.device.type == "cpu":
        floors = torch.where(greedy, torch.minimum(lowest, top), lowest)
        return torch.from_numpy(np.flatnonzero(log_probs.numpy() >= floors.numpy()[:, None]))
    best = (
        torch.arange(log_probs.shape[1], device=log_probs.device)
        == log_probs.argmax(dim=-1)[:, None]
    )
    reached = ((log_probs >= lowest[:, None]) | (best & greedy[:, None])).flatten()
    if most > _MOST_PADDED:
        return reached.nonzero().squeeze(1)
    return reached.nonzero_static(size=most, fill_value=padding).squeeze(1)


@dataclass(frozen=True)
class Children:
    """What may follow some rows: each event's row, token, log-probability, and whether it completes an answer.

    The rows' endings come first, then listed tokens, the sums of other closing tokens, and those of all others.
    `entropy (rows,)` is H(next | row) in nats, `best (rows,)` what a greedy row goes on with, or `END`.
    """

    row: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray
    completes: np.ndarray
    entropy: np.ndarray
    best: np.ndarray


def next_events(log_probs: Tensor, endings: Endings) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities `(rows, V)`, 0 of stop tokens; log-probability `(rows,)` of ending; H(next | row), nats."""
    # In sums, what is not above e^-80 is nothing: as it is, it would be -inf times 0, or subnormal and slow.
    clamped = log_probs.clamp_min(-80.0)
    probs = torch.threshold_(clamped.exp(), math.exp(-79.99), 0.0).index_fill_(
        1, endings.stop_ids, 0
    )
    end = endings.log_prob(log_probs).clamp_min(-1e4)
    return probs, end, -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64) - end.exp() * end


def check_numbers(log_probs: Tensor | np.ndarray) -> None:
    """Raise `ValueError` where a log-probability, on the host, is NaN: then its whole row is."""
    if n := int(np.isnan(np.asarray(log_probs)).sum()):
        why = "a weight that is none, or an overflow in half precision"
        raise ValueError(f"the model gives log-probabilities that are no numbers, {n} times: {why}")


@torch.inference_mode()
def children(
    log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
) -> Children:
    """List tokens at or above `floors (rows,)`, a little less too, and the best of `greedy (rows,)`; sum up others."""
    (rows, vocabulary), columns, start = log_probs.shape, list[list[Tensor]](), 0
    is_stop, is_closing = (table.numpy() for table in endings.on_host)
    floors = (floors - 1e-4).astype(np.float32)
    lowest, takes_best = to_device(log_probs.device, floors, greedy)
    # At most 1/p tokens have a probability of p, but for rounding. A stop token can fill up: it is left out below.
    most = 1.001 * np.exp(np.minimum(-floors, math.log(vocabulary))) + 1
    padding = int(is_stop.argmax())
    for piece in pieces(log_probs):
        mine = slice(start, start := start + len(piece))
        probs, *sums = next_events(piece, endings)
        top, n = piece.amax(dim=-1), math.ceil(most[mine].sum())
        listed = reaching(piece, top, lowest[mine], takes_best[mine], most=n, padding=padding)
        probs.view(-1).index_fill_(0, listed, 0)
        sums.append(
            probs.index_select(1, endings.closing_ids).sum(dim=-1, dtype=torch.float64).log()
        )
        sums.append(
            probs.index_fill_(1, endings.closing_ids, 0).sum(dim=-1, dtype=torch.float64).log()
        )
        columns.append(
            [
                part.double()
                for part in (*sums, top, piece.take(listed), listed + mine.start * vocabulary)
            ]
        )
    # One copy to the host, for which it waits; doubles hold every place in `(rows, V)`.
    numbers = (
        torch.cat([part for column in zip(*columns, strict=True) for part in column]).cpu().numpy()
    )
    end, entropy, closing, other, greatest = numbers[: 5 * rows].reshape(5, rows)
    check_numbers(greatest)
    listed_log_prob, places = numbers[5 * rows :].reshape(2, -1)
    row, token = np.divmod(places.astype(np.int64), vocabulary)
    every, ends, others = np.arange(rows), np.full(rows, END), np.full(rows, OTHER)
    best, tops = ends.copy(), (listed_log_prob == greatest[row]).nonzero()[0][::-1]
    best[row[tops]] = token[tops]  # the first of equals is written last
    going_on = ~is_stop[token]
    row, token, listed_log_prob = row[going_on], token[going_on], listed_log_prob[going_on]
    return Children(
        row=np.concatenate([every, row, every, every]),
        token=np.concatenate([ends, token, others, others]),
        log_prob=np.concatenate([end, listed_log_prob, closing, other]),
        completes=np.concatenate([every >= 0, is_closing[token], every >= 0, every < 0]),
        entropy=entropy,
        best=np.where(greedy & ~is_stop[best], best, END),
    )
