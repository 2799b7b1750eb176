"""What may follow a prefix, reduced to a few numbers where the log-probabilities lie; knows no tree and no search."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pro_lib.decoding.walk import Endings

# In place of a token: the ending, and the sums of the closing and of all other tokens that are not listed.
END, OTHER_CLOSING, OTHER = -1, -2, -3
# Tokens looked at together where few of the vocabulary are wanted.
_BLOCK = 128
# Numbers that a processor's thread works on together: the next pass finds them in the cache.
_PIECE = 2**19


def pieces(log_probs: Tensor) -> tuple[Tensor, ...]:
    """Rows of `(rows, V)` that are worked on one piece after the other; a GPU takes all at once."""
    # Two rows at least, and even pieces: a single row's sum is split among threads, and so rounded otherwise.
    at_once = max(2, _PIECE * torch.get_num_threads() // log_probs.shape[1])
    return log_probs.tensor_split(max(1, len(log_probs) // at_once) if log_probs.device.type == "cpu" else 1)


def argmax(log_probs: Tensor) -> Tensor:
    """The most probable token `(rows,)` of each row `(rows, V)`, the first of equals."""
    blocks = _in_blocks(log_probs)
    block = blocks.amax(dim=-1).argmax(dim=-1)
    return block * blocks.shape[2] + blocks[torch.arange(len(block), device=block.device), block].argmax(dim=-1)


def most_probable(log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Ids, rising, and log-probabilities `(rows, n)` of the n most probable tokens; fewer if there are fewer.

    Of tokens equally probable at the n-th place, any may be among them.
    """
    blocks = _in_blocks(log_probs)
    # The n best tokens lie in the n blocks with the highest maxima.
    chosen = blocks.amax(dim=-1).topk(min(n, blocks.shape[1]), dim=-1).indices
    size = blocks.shape[2]
    values = blocks.gather(1, chosen[:, :, None].expand(-1, -1, size)).flatten(1)
    ids = (chosen[:, :, None] * size + torch.arange(size, device=chosen.device)).flatten(1)
    values, place = values.topk(min(n, values.shape[1]), dim=-1)
    ids, order = ids.gather(1, place).sort(dim=-1)
    return ids, values.gather(1, order)


def at_least(log_probs: Tensor, floors: Tensor) -> tuple[Tensor, Tensor]:
    """Row and token of the log-probabilities `(rows, V)` at or above their row's floor `(rows,)`, in order."""
    blocks = _in_blocks(log_probs)
    row, block = (blocks.amax(dim=-1) >= floors[:, None]).nonzero(as_tuple=True)
    hit, place = (blocks[row, block] >= floors[row, None]).nonzero(as_tuple=True)
    return row[hit], block[hit] * blocks.shape[2] + place


def _in_blocks(log_probs: Tensor) -> Tensor:
    """`(rows, V)` seen as `(rows, blocks, size)`: maxima of blocks are quick, and say which few to look into."""
    vocabulary = log_probs.shape[1]
    size = math.gcd(vocabulary, _BLOCK)
    return log_probs.reshape(-1, vocabulary // size, size)


@dataclass(frozen=True)
class Children:
    """What may follow each of some rows: the row, the token and the log-probability of each event that is listed.

    Of each row the ending is listed as one event, then the tokens asked for in their order, then the sums of the
    others. `entropy (rows,)` is H(next | row) in nats, `best (rows,)` the most probable event of a greedy row (a token,
    or `END`), -1 elsewhere.
    """

    row: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray
    entropy: np.ndarray
    best: np.ndarray


def next_events(log_probs: Tensor, endings: Endings) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities `(rows, V)`, 0 of stop tokens; log-probability `(rows,)` of ending; H(next | row) in nats."""
    # In sums, what is not above e^-80 is nothing: as it is, it would be -inf times 0, or subnormal and slow.
    clamped = log_probs.clamp_min(-80.0)
    probs = torch.nn.functional.threshold_(clamped.exp(), math.exp(-79.99), 0.0).index_fill_(1, endings.stop_ids, 0)
    end = endings.log_prob(log_probs).clamp_min(-1e4)
    return probs, end, -clamped.mul_(probs).sum(dim=-1, dtype=torch.float64) - end.exp() * end


@torch.inference_mode()
def children(log_probs: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray) -> Children:
    """List the tokens at or above `floors (rows,)`, and of `greedy (rows,)` rows the best; sum up the others.

    The comparison is in float32 and lists a little too much; whoever reads the list compares again. The ending is one
    event, in the entropy too. The host waits for the device three times.
    """
    device, (rows, vocabulary) = log_probs.device, log_probs.shape
    parts, start, columns = pieces(log_probs), 0, []
    by_row = (np.array_split(each, len(parts)) for each in (floors - 1e-4, greedy))
    for piece, lowest, chosen in zip(parts, *by_row, strict=True):
        on_greedy_path = torch.from_numpy(chosen.nonzero()[0]).to(device, non_blocking=True)
        lowest = torch.from_numpy(lowest).to(device, log_probs.dtype, non_blocking=True)
        probs, end, entropy = next_events(piece, endings)
        row, token = at_least(piece, lowest)
        best = argmax(piece)
        listed = torch.cat([row * vocabulary + token, on_greedy_path * vocabulary + best[on_greedy_path]])
        found = piece.flatten()[listed].double()
        probs.view(-1)[listed] = 0
        closing = probs[:, endings.closing_ids].sum(dim=-1, dtype=torch.float64)
        other = probs.index_fill_(1, endings.closing_ids, 0).sum(dim=-1, dtype=torch.float64)
        sums = torch.stack([entropy, end, closing.log(), other.log(), best.double()])
        columns.append((sums, found, (listed + start).double()))
        start += piece.numel()
    # One copy to the host, for which it waits; doubles hold every place in `(rows, V)`.
    sums, found, listed = (torch.cat(column, dim=-1) for column in zip(*columns, strict=True))
    numbers = torch.cat([sums.flatten(), found, listed]).cpu().numpy()
    entropy, end, closing, other, best = numbers[: 5 * rows].reshape(5, rows)
    found, listed = numbers[5 * rows :].reshape(2, -1)
    stop, best = endings.on_host[0].numpy(), best.astype(np.int64)
    # The best child of a greedy row may be listed twice; the children come in order, without the stop tokens.
    places, first = np.unique(listed.astype(np.int64), return_index=True)
    going_on = ~stop[places % vocabulary]
    row, token = np.divmod(places[going_on], vocabulary)
    every = np.arange(rows)
    return Children(
        np.concatenate([every, row, every, every]),
        np.concatenate([np.full(rows, END), token, np.full(rows, OTHER_CLOSING), np.full(rows, OTHER)]),
        np.concatenate([end, found[first[going_on]], closing, other]),
        entropy,
        np.where(greedy & ~stop[best], best, END),
    )
