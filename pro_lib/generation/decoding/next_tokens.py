"""Events that may follow a prefix, from the log-probabilities of its next token."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pro_lib.generation.decoding.packed_tree import to_device

# Codes in place of a token id.
END = -1  # the answer ends here
OTHER = -2  # all tokens that are not listed, as one event
UNSEEN = -3  # probability that a server does not list, and that may belong to any token

# Log-probabilities that are processed at once: on a CPU, what fits into the cache of one thread;
# on another device, what its memory has space for.
_PIECE = 2**19
_PIECE_ELSEWHERE = 2**26
# A GPU's host waits for the number of listed places, unless a fixed number of them is copied.
# Up to this number the copy takes less time than the wait.
_MOST_PADDED = 2**20
# Nats below a floor at which a token is still listed, so that rounding to float32 hides none.
_FLOOR_MARGIN = 1e-4
# In sums, probabilities below e^-80 count as 0: otherwise they would be -inf times 0, or subnormal
# numbers, which are slow.
_LOWEST_LOG_PROB = -80.0
_LOWEST_PROB = math.exp(-79.99)
_LOWEST_END_LOG_PROB = -1e4


@dataclass(frozen=True)
class Endings:
    """The tokens that end an answer.

    Attributes:
        stop: boolean table `(V,)` of the tokens that end an answer and are not a part of it.
        closing: boolean table `(V,)` of the tokens that end an answer as its last token, such as
            a token that ends with a newline.

    Example:
        >>> import torch
        >>> is_stop = torch.tensor([True, False, False])
        >>> Endings(stop=is_stop, closing=torch.zeros(3, dtype=torch.bool)).stop_ids
        tensor([0])
    """

    stop: Tensor
    closing: Tensor

    # Ids, because torch counts a boolean index at each use, and a GPU's host waits for the count.
    @cached_property
    def stop_ids(self) -> Tensor:
        """Return the ids of the stop tokens in ascending order."""
        return self.stop.nonzero().squeeze(1)

    @cached_property
    def closing_ids(self) -> Tensor:
        """Return the ids of the closing tokens in ascending order."""
        return self.closing.nonzero().squeeze(1)

    @cached_property
    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return the tables `stop` and `closing` in host memory."""
        return self.stop.cpu(), self.closing.cpu()

    def log_prob(self, log_probs: Tensor) -> Tensor:
        """Return the log-probability that the answer ends here, by any stop token.

        Args:
            log_probs: log-probabilities of the next token in nats, `(rows, V)`.

        Returns:
            Log-probabilities in nats, `(rows,)`, in float64.
        """
        stop_log_probs = log_probs.index_select(1, self.stop_ids)
        return torch.logsumexp(stop_log_probs.double(), dim=-1)


def pieces(log_probs: Tensor) -> tuple[Tensor, ...]:
    """Split log-probabilities `(rows, V)` into pieces of rows that are processed one by one."""
    n_at_once = _PIECE_ELSEWHERE
    if log_probs.device.type == "cpu":
        n_at_once = _PIECE * torch.get_num_threads()
    # All pieces have two rows or more: torch splits the sum of a single row among threads, which
    # rounds it in another way.
    rows_at_once = max(2, n_at_once // log_probs.shape[1])
    return log_probs.tensor_split(max(1, len(log_probs) // rows_at_once))


def most_probable_tokens(log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the `n` most probable tokens of each row.

    Among equal ones, any may be returned.

    Args:
        log_probs: log-probabilities in nats, `(rows, V)`.
        n: number of tokens. If V is smaller, all V tokens are returned.

    Returns:
        Token ids in ascending order and their log-probabilities, both `(rows, n)`.
    """
    values, ids = log_probs.topk(min(n, log_probs.shape[1]), dim=-1)
    ids, order = ids.sort(dim=-1)
    return ids, values.gather(1, order)


def places_above_floor(
    log_probs: Tensor,
    greatest: Tensor,
    floors: Tensor,
    greedy: Tensor,
    *,
    most: int,
    padding: int,
) -> Tensor:
    """Find the tokens at or above the floor of their row, and the best token of greedy rows.

    Args:
        log_probs: log-probabilities in nats, `(rows, V)`.
        greatest: the maximum of each row, `(rows,)`.
        floors: the least log-probability of a listed token, `(rows,)`.
        greedy: whether the row's best token is listed in any case, `(rows,)`.
        most: number of places returned on a GPU, whose host would otherwise wait for the count.
            It must not be smaller than the count.
        padding: the place that fills the result up to `most` places.

    Returns:
        Places in the flattened `log_probs`, in ascending order before the padding.
    """
    if log_probs.device.type == "cpu":
        lowest = torch.where(greedy, torch.minimum(floors, greatest), floors)
        places = np.flatnonzero(log_probs.numpy() >= lowest.numpy()[:, None])
        return torch.from_numpy(places)
    is_listed = _is_best(log_probs) & greedy[:, None]
    is_listed = (is_listed | (log_probs >= floors[:, None])).flatten()
    if most > _MOST_PADDED:
        return is_listed.nonzero().squeeze(1)
    return is_listed.nonzero_static(size=most, fill_value=padding).squeeze(1)


def _is_best(log_probs: Tensor) -> Tensor:
    """Return which token of each row is its most probable one, as a boolean table `(rows, V)`."""
    # A function of its own, so that the memory of `ids` is freed.
    ids = torch.arange(log_probs.shape[1], device=log_probs.device)
    return ids == log_probs.argmax(dim=-1)[:, None]


class NextEvents(NamedTuple):
    """The next event after each row: a token that does not stop, or the end of the answer.

    Attributes:
        probs: probability of each token, `(rows, V)`; 0 for stop tokens.
        end_log_prob: log-probability that the answer ends here, `(rows,)`, in nats.
        entropy: entropy of the next event H(next | row), `(rows,)`, in nats.
    """

    probs: Tensor
    end_log_prob: Tensor
    entropy: Tensor


def next_events(log_probs: Tensor, endings: Endings) -> NextEvents:
    """Compute the distribution of the next event from log-probabilities `(rows, V)` in nats."""
    clamped = log_probs.clamp_min(_LOWEST_LOG_PROB)
    probs = torch.threshold_(clamped.exp(), _LOWEST_PROB, 0.0)
    probs.index_fill_(1, endings.stop_ids, 0)
    end = endings.log_prob(log_probs).clamp_min(_LOWEST_END_LOG_PROB)
    # The product is written over `clamped`: a third matrix would raise the peak memory.
    token_entropy = -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64)
    return NextEvents(probs, end, token_entropy - end.exp() * end)


def check_numbers(log_probs: Tensor | np.ndarray) -> None:
    """Raise `ValueError` if a log-probability on the host is NaN.

    If one log-probability after a prefix is NaN, all of them are, so one of each row is enough.
    """
    n_missing = int(np.isnan(np.asarray(log_probs)).sum())
    if n_missing:
        raise ValueError(
            f"the model returns log-probabilities that are not numbers (NaN), {n_missing} times; "
            "the cause is an invalid weight, or an overflow in half precision"
        )


@dataclass(frozen=True)
class Children:
    """The events that may follow some rows.

    Attributes:
        row: row of each event, `(events,)`.
        token: token id of each event, or `END`, `OTHER` or `UNSEEN`, `(events,)`.
        log_prob: log-probability of each event after its row in nats, `(events,)`.
        completes: whether each event completes an answer, `(events,)`.
        entropy: entropy of the next event of each row in nats, `(rows,)`.
        best: most probable token of each greedy row, `(rows,)`. It is `END` where that token stops
            the answer, and for rows that are not greedy.
    """

    row: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray
    completes: np.ndarray
    entropy: np.ndarray
    best: np.ndarray


@torch.inference_mode()
def children(
    log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
) -> Children:
    """List the events that may follow each row.

    Tokens at or above the floor, or slightly below it, are listed. The others are summed.

    Args:
        log_probs: log-probabilities of the next token in nats, `(rows, V)`.
        endings: the tokens that end an answer.
        floors: log-probability in nats from which tokens are listed, `(rows,)`.
        greedy: whether the best token of a row is listed in any case, `(rows,)`.

    Returns:
        The events of all rows: first the endings, then the listed tokens. The sums of closing
        tokens that are not listed come next, and the sums of all other tokens last.

    Raises:
        ValueError: a log-probability is NaN.
    """
    n_rows, vocabulary = log_probs.shape
    is_stop, is_closing = (table.numpy() for table in endings.on_host)
    floors = (floors - _FLOOR_MARGIN).astype(np.float32)
    padding = int(is_stop.argmax())  # a stop token, because these are removed from the list below
    columns = _host_columns(log_probs, endings, floors, greedy, padding)
    check_numbers(columns.greatest)
    row, token = np.divmod(columns.places.astype(np.int64), vocabulary)

    best = np.full(n_rows, END)
    # In reverse, because numpy keeps the last value: of equal tokens it is the first one.
    best_places = np.flatnonzero(columns.log_prob == columns.greatest[row])[::-1]
    best[row[best_places]] = token[best_places]
    is_continued = greedy & ~is_stop[best]

    is_listed = ~is_stop[token]
    row = row[is_listed]
    token = token[is_listed]
    log_prob = columns.log_prob[is_listed]

    every_row = np.arange(n_rows)
    others = np.full(n_rows, OTHER)
    yes = np.full(n_rows, True)
    return Children(
        row=np.concatenate([every_row, row, every_row, every_row]),
        token=np.concatenate([np.full(n_rows, END), token, others, others]),
        log_prob=np.concatenate([columns.end, log_prob, columns.closing, columns.other]),
        completes=np.concatenate([yes, is_closing[token], yes, ~yes]),
        entropy=columns.entropy,
        best=np.where(is_continued, best, END),
    )


_Numbers = TypeVar("_Numbers", Tensor, np.ndarray)


class _Columns(NamedTuple, Generic[_Numbers]):
    """The numbers from which `children` makes events, on a device or on the host.

    Attributes:
        end: log-probability of the ending, `(rows,)`.
        entropy: entropy of the next event, `(rows,)`.
        closing: log-probability of all closing tokens that are not listed, `(rows,)`.
        other: log-probability of all other tokens that are not listed, `(rows,)`.
        greatest: greatest log-probability, `(rows,)`.
        log_prob: log-probabilities of the listed tokens, `(listed,)`.
        places: places of the listed tokens in the flattened log-probabilities, `(listed,)`.
    """

    end: _Numbers
    entropy: _Numbers
    closing: _Numbers
    other: _Numbers
    greatest: _Numbers
    log_prob: _Numbers
    places: _Numbers


def _host_columns(
    log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray, padding: int
) -> _Columns[np.ndarray]:
    """Compute the columns of all rows, piece by piece, and copy them to the host."""
    n_rows, vocabulary = log_probs.shape
    device_floors, device_greedy = to_device(log_probs.device, floors, greedy)
    # At most 1/p tokens have a probability of p or more, apart from rounding.
    most_listed = 1.001 * np.exp(np.minimum(-floors, math.log(vocabulary))) + 1
    columns_by_piece: list[_Columns[Tensor]] = []
    start = 0
    for piece in pieces(log_probs):
        stop = start + len(piece)
        columns = _piece_columns(
            piece,
            endings,
            device_floors[start:stop],
            device_greedy[start:stop],
            most=math.ceil(most_listed[start:stop].sum()),
            padding=padding,
        )
        columns_by_piece.append(columns._replace(places=columns.places + start * vocabulary))
        start = stop
    parts: list[Tensor] = []
    for column in zip(*columns_by_piece, strict=True):
        parts += column
    # One copy, because the host waits for each. Float64 represents every place exactly.
    numbers = torch.cat([part.double() for part in parts]).cpu().numpy()
    by_row = numbers[: 5 * n_rows].reshape(5, n_rows)
    by_listed_token = numbers[5 * n_rows :].reshape(2, -1)
    return _Columns(*by_row, *by_listed_token)


def _piece_columns(
    log_probs: Tensor,
    endings: Endings,
    floors: Tensor,
    greedy: Tensor,
    *,
    most: int,
    padding: int,
) -> _Columns[Tensor]:
    """Compute the columns of some rows on their device, as in `places_above_floor`."""
    events = next_events(log_probs, endings)
    greatest = log_probs.amax(dim=-1)
    places = places_above_floor(log_probs, greatest, floors, greedy, most=most, padding=padding)
    # Tokens with an event of their own are set to 0, so that the sums contain only the others.
    unlisted = events.probs
    unlisted.view(-1).index_fill_(0, places, 0)
    closing = _log_sums(unlisted.index_select(1, endings.closing_ids))
    unlisted.index_fill_(1, endings.closing_ids, 0)
    return _Columns(
        end=events.end_log_prob,
        entropy=events.entropy,
        closing=closing,
        other=_log_sums(unlisted),
        greatest=greatest,
        log_prob=log_probs.take(places),
        places=places,
    )


def _log_sums(probs: Tensor) -> Tensor:
    """Return the logarithm of the sum of each row, `(rows,)`, in float64."""
    return probs.sum(dim=-1, dtype=torch.float64).log()
