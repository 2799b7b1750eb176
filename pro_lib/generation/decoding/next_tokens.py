"""What may follow a prefix, from the log-probabilities of the next token, and what ends an answer.

The functions run on the device where the log-probabilities are; trees and search are elsewhere.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pro_lib.generation.decoding.packed_tree import to_device

# Codes that stand in the place of a token: the ending, the sum of the tokens that are not listed,
# and the probability that a server leaves out, which may belong to any token.
END = -1
OTHER = -2
UNSEEN = -3
# Numbers per piece of work: few enough for the cache of a thread on a CPU, and for the free memory
# of another device.
_PIECE = 2**19
_PIECE_ELSEWHERE = 2**26
# Up to so many places are copied from a GPU with padding: faster than a wait for their number.
_MOST_PADDED = 2**20


@dataclass(frozen=True)
class Endings:
    """The tokens that end an answer, as boolean tables `(V,)`.

    A `stop` token is not a part of the answer; a `closing` token, such as one with a newline, is.
    """

    stop: Tensor
    closing: Tensor

    # Ids, because a boolean index is converted to ids at each use, and a GPU's host waits for that.
    @cached_property
    def stop_ids(self) -> Tensor:
        """Return the ids of the stop tokens, in ascending order."""
        return self.stop.nonzero().squeeze(1)

    @cached_property
    def closing_ids(self) -> Tensor:
        """Return the ids of the closing tokens, in ascending order."""
        return self.closing.nonzero().squeeze(1)

    @cached_property
    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return both tables, `stop` and `closing`, in the memory of the host."""
        return self.stop.cpu(), self.closing.cpu()

    def log_prob(self, log_probs: Tensor) -> Tensor:
        """Return the log-probability that the answer ends here, by any stop token.

        Args:
            log_probs: log-probabilities of the next token in nats, `(rows, V)`.

        Returns:
            Log-probabilities in nats, `(rows,)`, float64.
        """
        return torch.logsumexp(log_probs.index_select(1, self.stop_ids).double(), dim=-1)


def pieces(log_probs: Tensor) -> tuple[Tensor, ...]:
    """Split rows `(rows, V)` into pieces that are processed one after the other."""
    is_on_cpu = log_probs.device.type == "cpu"
    piece_size = _PIECE * torch.get_num_threads() if is_on_cpu else _PIECE_ELSEWHERE
    # Pieces have at least two rows and even sizes. The sum of a single row would be split among
    # threads, and so would be rounded differently.
    rows_per_piece = max(2, piece_size // log_probs.shape[1])
    return log_probs.tensor_split(max(1, len(log_probs) // rows_per_piece))


def most_probable_tokens(log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the n most probable tokens of each row, in ascending order of their ids.

    Among equally probable tokens at the limit, any may be returned.

    Args:
        log_probs: log-probabilities `(rows, V)`.
        n: number of tokens; all V if there are fewer.

    Returns:
        Token ids and log-probabilities, `(rows, n)` each.
    """
    values, ids = log_probs.topk(min(n, log_probs.shape[1]), dim=-1)
    ids, order = ids.sort(dim=-1)
    return ids, values.gather(1, order)


def reaching(
    log_probs: Tensor, top: Tensor, lowest: Tensor, greedy: Tensor, *, most: int, padding: int
) -> Tensor:
    """Return the flat places in `(rows, V)` of the tokens to list.

    They are the tokens that reach `lowest` of their row, and the best token of a `greedy` row.
    The host of a GPU would wait for their number, so there `most` places are returned.

    Args:
        log_probs: log-probabilities in nats, `(rows, V)`.
        top: largest log-probability of each row, `(rows,)`.
        lowest: log-probability from which tokens are listed, `(rows,)`.
        greedy: whether each row is on the greedy path, `(rows,)`.
        most: an upper bound on the number of places.
        padding: place that fills up the result to `most` on a GPU.
    """
    if log_probs.device.type == "cpu":
        floors = torch.where(greedy, torch.minimum(lowest, top), lowest)
        return torch.from_numpy(np.flatnonzero(log_probs.numpy() >= floors.numpy()[:, None]))
    columns = torch.arange(log_probs.shape[1], device=log_probs.device)
    is_best = columns == log_probs.argmax(dim=-1)[:, None]
    is_listed = (log_probs >= lowest[:, None]) | (is_best & greedy[:, None])
    is_listed = is_listed.flatten()
    if most > _MOST_PADDED:
        return is_listed.nonzero().squeeze(1)
    return is_listed.nonzero_static(size=most, fill_value=padding).squeeze(1)


@dataclass(frozen=True)
class Children:
    """What may follow some rows, as columns with an entry per event.

    The endings of the rows come first, then the listed tokens, then a row's sum of the other
    closing tokens, then its sum of all other tokens.

    Attributes:
        row: row that the event follows, `(events,)`.
        token: token id or a code such as `END`, `(events,)`.
        log_prob: log-probability in nats, `(events,)`.
        completes: whether the event completes an answer, `(events,)`.
        entropy: H(next | row) in nats, `(rows,)`.
        best: token with which a greedy row goes on, or `END`, `(rows,)`.
    """

    row: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray
    completes: np.ndarray
    entropy: np.ndarray
    best: np.ndarray


def next_events(log_probs: Tensor, endings: Endings) -> tuple[Tensor, Tensor, Tensor]:
    """Return probabilities of the tokens that go on, and the ending and entropy of each row.

    Args:
        log_probs: log-probabilities of the next token in nats, `(rows, V)`.
        endings: the tokens that end an answer.

    Returns:
        Probabilities `(rows, V)`, 0 for stop tokens; the log-probability of ending `(rows,)`; and
        H(next | row) `(rows,)`, in nats, where all stop tokens are one event.
    """
    # Probabilities up to e^-80 count as 0 in the sums. Otherwise they would be -inf times 0, or
    # subnormal numbers, which are slow.
    clamped = log_probs.clamp_min(-80.0)
    probs = torch.threshold_(clamped.exp(), math.exp(-79.99), 0.0)
    probs.index_fill_(1, endings.stop_ids, 0)
    end = endings.log_prob(log_probs).clamp_min(-1e4)
    entropy = -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64) - end.exp() * end
    return probs, end, entropy


def check_numbers(log_probs: Tensor | np.ndarray) -> None:
    """Check that no log-probability is NaN. If one is, its whole row is.

    Args:
        log_probs: log-probabilities in the memory of the host, of any shape.

    Raises:
        ValueError: a log-probability is NaN.
    """
    n_nan = int(np.isnan(np.asarray(log_probs)).sum())
    if n_nan:
        why = "a weight that is none, or an overflow in half precision"
        raise ValueError(
            f"the model gives log-probabilities that are no numbers, {n_nan} times: {why}"
        )


@torch.inference_mode()
def children(
    log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
) -> Children:
    """List the tokens that may follow each row, and sum up the others.

    Listed are the tokens at or above the row's floor, or up to 1e-4 nats below it, and the best
    token of a greedy row.

    Args:
        log_probs: log-probabilities of the next token in nats, `(rows, V)`.
        endings: the tokens that end an answer.
        floors: log-probability in nats from which tokens are listed, `(rows,)`.
        greedy: whether each row is on the greedy path, `(rows,)`.

    Raises:
        ValueError: a log-probability is NaN.
    """
    n_rows, vocabulary = log_probs.shape
    is_stop, is_closing = (table.numpy() for table in endings.on_host)
    numbers = _events_on_host(log_probs, endings, (floors - 1e-4).astype(np.float32), greedy)
    end, entropy, closing, other, greatest = numbers[: 5 * n_rows].reshape(5, n_rows)
    check_numbers(greatest)
    listed_log_prob, places = numbers[5 * n_rows :].reshape(2, -1)
    row, token = np.divmod(places.astype(np.int64), vocabulary)
    best = np.full(n_rows, END)
    is_top = listed_log_prob == greatest[row]
    tops = is_top.nonzero()[0][::-1]
    best[row[tops]] = token[tops]  # of equal tokens, the first one is written last
    goes_on = ~is_stop[token]
    row = row[goes_on]
    token = token[goes_on]
    every_row = np.arange(n_rows)
    others = np.full(n_rows, OTHER)
    true = np.ones(n_rows, np.bool_)
    return Children(
        row=np.concatenate([every_row, row, every_row, every_row]),
        token=np.concatenate([np.full(n_rows, END), token, others, others]),
        log_prob=np.concatenate([end, listed_log_prob[goes_on], closing, other]),
        completes=np.concatenate([true, is_closing[token], true, ~true]),
        entropy=entropy,
        best=np.where(greedy & ~is_stop[best], best, END),
    )


def _events_on_host(
    log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
) -> np.ndarray:
    """Return the numbers of `children` in the memory of the host, one block after the other.

    The first five blocks have a number per row: ending, entropy, sum of the other closing tokens,
    sum of all other tokens, and largest log-probability. The last two blocks have a number per
    listed token: log-probability, and flat place in `(rows, V)`.
    """
    vocabulary = log_probs.shape[1]
    lowest, takes_best = to_device(log_probs.device, floors, greedy)
    # At most 1/p tokens have a probability of p or more, except for rounding.
    most = 1.001 * np.exp(np.minimum(-floors, math.log(vocabulary))) + 1
    # A stop token can be padding, since stop tokens are removed from the list afterwards.
    padding = int(endings.on_host[0].numpy().argmax())
    columns: list[list[Tensor]] = []
    start = 0
    for piece in pieces(log_probs):
        rows = slice(start, start + len(piece))
        probs, end, entropy = next_events(piece, endings)
        top = piece.amax(dim=-1)
        n_most = math.ceil(most[rows].sum())
        listed = reaching(piece, top, lowest[rows], takes_best[rows], most=n_most, padding=padding)
        probs.view(-1).index_fill_(0, listed, 0)
        closing = probs.index_select(1, endings.closing_ids).sum(dim=-1, dtype=torch.float64).log()
        probs.index_fill_(1, endings.closing_ids, 0)
        other = probs.sum(dim=-1, dtype=torch.float64).log()
        places = listed + start * vocabulary
        parts = (end, entropy, closing, other, top, piece.take(listed), places)
        columns.append([part.double() for part in parts])
        start += len(piece)
    blocks = [part for column in zip(*columns, strict=True) for part in column]
    # One copy, for which the host waits. A double represents every place in `(rows, V)` exactly.
    return torch.cat(blocks).cpu().numpy()
