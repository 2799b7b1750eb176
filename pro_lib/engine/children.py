"""What may follow a prefix, reduced to a few numbers where the log-probabilities lie; knows no tree and no search."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pro_lib.engine.walk import Endings, check_numbers

# In place of a token: the ending, the sum of several tokens that are not listed, and what no server tells, which may be
# any of them.
END, OTHER, UNSEEN = -1, -2, -3
_PIECE = 2**19  # numbers that a thread works on together, to find them in its cache


def pieces(log_probs: Tensor) -> tuple[Tensor, ...]:
    """Split rows `(rows, V)` into pieces to work on one after the other; a GPU takes all at once."""
    # Two rows at least, and even pieces: a single row's sum is split among threads, and so rounded otherwise.
    at_once = max(2, _PIECE * torch.get_num_threads() // log_probs.shape[1])
    return log_probs.tensor_split(max(1, len(log_probs) // at_once) if log_probs.device.type == "cpu" else 1)


def most_probable(log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return ids, rising, and log-probabilities `(rows, n or fewer)` of the most probable tokens, any of equals."""
    values, ids = log_probs.topk(min(n, log_probs.shape[1]), dim=-1)
    ids, order = ids.sort(dim=-1)
    return ids, values.gather(1, order)


def at_least(log_probs: Tensor, floors: Tensor) -> Tensor:
    """Return the flat places in `(rows, V)` of log-probabilities at or above their row's floor `(rows,)`, in order."""
    if log_probs.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(log_probs.numpy() >= floors.numpy()[:, None]))
    return (log_probs >= floors[:, None]).flatten().nonzero().squeeze(1)


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
    probs = torch.threshold_(clamped.exp(), math.exp(-79.99), 0.0).index_fill_(1, endings.stop_ids, 0)
    end = endings.log_prob(log_probs).clamp_min(-1e4)
    return probs, end, -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64) - end.exp() * end


@torch.inference_mode()
def children(log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray) -> Children:
    """List tokens at or above `floors (rows,)`, a little less too, and the best of `greedy (rows,)`; sum up others."""
    (rows, vocabulary), columns, start = log_probs.shape, list[list[Tensor]](), 0
    # The floor of a greedy row is no higher than its best token.
    lowest = np.array([floors - 1e-4, np.where(greedy, 0.0, np.inf)], np.float32)
    lowest, slack = torch.from_numpy(lowest).to(log_probs.device, non_blocking=True)
    for piece in pieces(log_probs):
        mine = slice(start, start := start + len(piece))
        probs, *sums = next_events(piece, endings)
        top = piece.amax(dim=-1)
        listed = at_least(piece, torch.minimum(lowest[mine], top + slack[mine]))
        probs.view(-1).index_fill_(0, listed, 0)
        sums.append(probs.index_select(1, endings.closing_ids).sum(dim=-1, dtype=torch.float64).log())
        sums.append(probs.index_fill_(1, endings.closing_ids, 0).sum(dim=-1, dtype=torch.float64).log())
        columns.append([part.double() for part in (*sums, top, piece.take(listed), listed + mine.start * vocabulary)])
    # One copy to the host, for which it waits; doubles hold every place in `(rows, V)`.
    numbers = torch.cat([part for column in zip(*columns, strict=True) for part in column]).cpu().numpy()
    end, entropy, closing, other, greatest = numbers[: 5 * rows].reshape(5, rows)
    check_numbers(greatest)
    listed_log_prob, places = numbers[5 * rows :].reshape(2, -1)
    row, token = np.divmod(places.astype(np.int64), vocabulary)
    is_stop, is_closing = (table.numpy() for table in endings.on_host)
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
