"""The packed prefix tree: all live prefixes of many questions in one row of a forward pass."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Tokens in one call of the network. On a CPU the masked tokens of other questions cost time, on a
# GPU small calls do.
_AT_ONCE = 256
_AT_ONCE_ELSEWHERE = 4096
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
# A `DynamicCache`. The declared type of its layers includes layers without keys and values.
_Cache: TypeAlias = Any
# Bytes to which arrays in one copy are aligned, so that each can be viewed as 64-bit numbers.
_ALIGNMENT = 8


@dataclass(frozen=True)
class Prefix:
    """The beginning that all prompts share, already run through the network.

    Attributes:
        token_ids: its T tokens.
        layers: keys and values of each layer, each `(1, heads, T, head_dim)`.

    Example:
        >>> Prefix(token_ids=(), layers=()).shared_with([[5, 6], [5, 7]])
        Prefix(token_ids=(), layers=())
    """

    token_ids: tuple[int, ...]
    layers: tuple[tuple[Tensor, Tensor], ...]

    def shared_with(self, prompts: Sequence[Sequence[int]]) -> Prefix:
        """Return the part of the prefix that all prompts share, at least one token shorter."""
        shortest = min(len(prompt) for prompt in prompts)
        length = min(common_prefix_length([self.token_ids, *prompts]), shortest - 1)
        if not length:
            return Prefix((), ())
        layers = ((keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers)
        return Prefix(self.token_ids[:length], tuple(layers))


@dataclass
class ForwardCounts:
    """The cost of a run, which its trees add up.

    Attributes:
        prompt_tokens: tokens of prompts that went through the network; a shared prefix counts once.
        token_forwards: tokens of answers that went through the network.
        model_calls: forward passes.

    Example:
        >>> ForwardCounts()
        ForwardCounts(prompt_tokens=0, token_forwards=0, model_calls=0)
    """

    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0


def common_prefix_length(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the longest prefix that all sequences share.

    Args:
        sequences: token ids, at least one sequence.

    Example:
        >>> common_prefix_length([[5, 6, 7], [5, 6, 8, 9]])
        2
    """
    # In dictionary order, all sequences lie between the first and the last one. So they share
    # whatever these two share.
    first = min(map(tuple, sequences))
    last = max(map(tuple, sequences))
    for length, (token, other) in enumerate(zip(first, last, strict=False)):
        if token != other:
            return length
    return min(len(first), len(last))


class Tree(Protocol):
    """All live prefixes of a batch of questions, grown by one token at a time.

    The rows of a tree are the open prefixes. After `plant` they are one per question. After `grow`
    they are the kept rows, then the children. Rows and tokens are on the host, log-probabilities on
    the device of the network.

    Attributes:
        prefix_length: number of tokens of the prompts that a shared prefix covers.

    Example:
        A loaded network is needed. Two children of question 0 and one of question 1:

            log_probs = tree.plant()
            log_probs = tree.grow(torch.tensor([0, 0, 1]), torch.tensor([11, 12, 11]))
    """

    prefix_length: int

    def plant(self) -> Tensor:
        """Run the prompts.

        A tree that is planted again starts from the beginning.

        Returns:
            Log-probabilities of the first answer token in nats, `(questions, V)`.
        """

    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Give row `parents[i]` the child `tokens[i]`.

        Args:
            parents: rows of the parents, `(children,)`.
            tokens: token ids of the children, `(children,)`.
            keep: rows that stay rows, before the children; None for none.

        Returns:
            Log-probabilities of the token after each child in nats, `(children, V)`.
        """


@torch.inference_mode()
def encode_prefix(
    network: PreTrainedModel, token_ids: Sequence[int], *, counts: ForwardCounts | None = None
) -> Prefix:
    """Run a prefix that prompts share through the network once.

    An empty prefix costs nothing.

    Args:
        network: the network.
        token_ids: tokens of the prefix.
        counts: counts of tokens and forward passes, which are increased; None to count nothing.

    Returns:
        The prefix, for `PackedTree`.

    Example:
        A loaded network is needed:

            prefix = encode_prefix(network, prompts[0][: common_prefix_length(prompts)])
    """
    if not token_ids:
        return Prefix((), ())
    cache: _Cache = DynamicCache()
    ids = torch.tensor([list(token_ids)], device=network.device)
    with attention_kernels(ids.device):
        network(input_ids=ids, past_key_values=cache, use_cache=True, **keep_logits(network, 1))
    if counts is not None:
        counts.prompt_tokens += len(token_ids)
        counts.model_calls += 1
    return Prefix(tuple(token_ids), tuple((layer.keys, layer.values) for layer in cache.layers))


@dataclass(frozen=True)
class _NewTokens:
    """Tokens that are appended to the cache.

    A token attends to its visible slots, to itself, and to the tokens of its owner that are not
    after it.

    Attributes:
        ids: token ids, `(tokens,)`.
        positions: position of each token in its text, `(tokens,)`.
        owner: number of the prompt or child to which each token belongs, `(tokens,)`.
        visible: slots of the cache to which each token attends, `(tokens, slots)`.
    """

    ids: np.ndarray
    positions: np.ndarray
    owner: np.ndarray
    visible: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def piece(self, start: int, size: int) -> _NewTokens:
        """Return `size` tokens from `start` on."""
        part = slice(start, start + size)
        return _NewTokens(
            self.ids[part], self.positions[part], self.owner[part], self.visible[part]
        )

    def mask(self, slots: np.ndarray | None = None) -> np.ndarray:
        """Return where each token attends, `(tokens, slots + tokens)`."""
        visible = self.visible if slots is None else self.visible[:, slots]
        is_same_owner = self.owner[:, None] == self.owner
        is_not_after = self.positions[:, None] >= self.positions
        return np.concatenate([visible, is_same_owner & is_not_after], axis=1)


class PackedTree:
    """A `Tree` in one row of a forward pass, on the part of the prefix that all prompts share.

    The keys and values of all prefixes are slots of one cache. A boolean matrix `(rows, slots)` on
    the host says which slots a row attends to: those of its parent, and itself. So siblings share
    their past, and nothing is reordered or padded. Slots that no row attends to are dropped when
    they outnumber the others.

    Args:
        network: the network.
        prompts: token ids of the prompts.
        prefix: a beginning of the prompts that is already run; see `encode_prefix`.
        counts: counts of tokens and forward passes, which the tree increases.

    Example:
        A loaded network is needed:

            tree = PackedTree(network, [[5, 6, 7], [5, 8]], Prefix((), ()), ForwardCounts())
            first_log_probs = tree.plant()
    """

    def __init__(
        self,
        network: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        prefix: Prefix,
        counts: ForwardCounts,
    ):
        prefix = prefix.shared_with(prompts)
        self._network = network
        self._counts = counts
        # Stored, because these properties of a network search its parameters.
        self._device = network.device
        self._dtype = network.dtype
        self._at_once = tokens_per_call(network)
        devices = getattr(network, "hf_device_map", {}).values()
        self._is_on_several_devices = len(set(devices)) > 1
        self.prefix_length = len(prefix.token_ids)
        self._prefix_layers = prefix.layers
        self._suffixes = [prompt[self.prefix_length :] for prompt in prompts]

    @property
    def slots(self) -> int:
        """Return how many slots the cache has: prefix, prompts, and nodes that are not dropped."""
        return self._visible.shape[1]

    @torch.inference_mode()
    def plant(self) -> Tensor:
        """Start with the prompts and return their log-probabilities, as in `Tree.plant`."""
        self._cache = _new_cache(self._prefix_layers)
        self._visible = np.empty((0, self.prefix_length), np.bool_)
        self._positions = np.empty(0, np.int64)
        lengths = np.array([len(suffix) for suffix in self._suffixes])
        owner = np.arange(len(lengths)).repeat(lengths)
        ends = lengths.cumsum()
        numbers = np.arange(len(owner)) - (ends - lengths)[owner]  # within each suffix
        tokens = _NewTokens(
            ids=np.array(list(itertools.chain.from_iterable(self._suffixes))),
            positions=self.prefix_length + numbers,
            owner=owner,
            visible=np.ones((len(owner), self.prefix_length), np.bool_),
        )
        self._counts.prompt_tokens += len(tokens)
        return self._run(tokens, ends - 1, _suffix_pieces(lengths.tolist(), self._at_once))

    @torch.inference_mode()
    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Append the children and return their log-probabilities, as in `Tree.grow`."""
        parent_rows = parents.numpy()
        kept_rows = (parents[:0] if keep is None else keep).numpy()
        n_kept = len(kept_rows)
        needed = self._visible[np.concatenate([kept_rows, parent_rows])]
        visible = self._drop_dead_slots(needed)
        positions = self._positions[parent_rows] + 1
        self._visible = visible[:n_kept]
        self._positions = self._positions[kept_rows]
        self._counts.token_forwards += len(tokens)
        # Each child has an owner of its own, so it attends to itself and to no other child.
        numbers = np.arange(len(tokens))
        children = _NewTokens(tokens.numpy(), positions, numbers, visible[n_kept:])
        n_pieces = max(1, -(-len(tokens) // self._at_once))
        sizes = [len(piece) for piece in np.array_split(numbers, n_pieces)]
        return self._run(children, numbers, sizes)

    def add_unrelated_slots(self, n_slots: int) -> None:
        """Add slots of zeros that only one new row attends to, like slots of other questions."""
        self._cache = _new_cache(
            (_padded(layer.keys, n_slots), _padded(layer.values, n_slots))
            for layer in self._cache.layers
        )
        self._visible = np.pad(self._visible, ((0, 1), (0, n_slots)))
        self._visible[-1, self.slots - n_slots :] = True
        self._positions = np.append(self._positions, n_slots)

    def _run(self, tokens: _NewTokens, last: np.ndarray, sizes: Sequence[int]) -> Tensor:
        """Run tokens in pieces of these sizes, and return log-probabilities `(owners, V)`."""
        # The last token of each owner, whose number is in `last`, becomes a row.
        if len(sizes) == 1:
            log_probs = self._forward(
                self._cache, tokens.ids, tokens.positions, tokens.mask(), last
            )
        else:
            log_probs = self._run_pieces(tokens, last, sizes)
        self._append_rows(tokens, last)
        return log_probs

    def _run_pieces(self, tokens: _NewTokens, last: np.ndarray, sizes: Sequence[int]) -> Tensor:
        """Run tokens as `_run` does, each piece on a copy of the slots that it attends to."""
        caches = [self._cache]
        first_new_slots = [0]
        log_probs = []
        start = 0
        for size in sizes:
            piece = tokens.piece(start, size)
            slots = np.flatnonzero(piece.visible.any(axis=0))
            cache = self._copy_of_slots(slots)
            is_in_piece = (last >= start) & (last < start + size)
            piece_log_probs = self._forward(
                cache, piece.ids, piece.positions, piece.mask(slots), last[is_in_piece] - start
            )
            log_probs.append(piece_log_probs)
            caches.append(cache)
            first_new_slots.append(len(slots))
            start += size
        self._cache = _joined_caches(caches, first_new_slots)
        return torch.cat(log_probs)

    def _append_rows(self, tokens: _NewTokens, last: np.ndarray) -> None:
        """Make the last token of each owner a row, which attends to all tokens of its owner."""
        n_rows, n_slots = self._visible.shape
        visible = np.zeros((n_rows + len(last), n_slots + len(tokens)), np.bool_)
        visible[:n_rows, :n_slots] = self._visible
        visible[n_rows:, :n_slots] = tokens.visible[last]
        visible[n_rows:, n_slots:] = tokens.owner[last, None] == tokens.owner
        self._visible = visible
        self._positions = np.concatenate([self._positions, tokens.positions[last]])

    def _copy_of_slots(self, slots: np.ndarray) -> _Cache:
        """Return a cache with a copy of some slots."""
        layers = self._cache.layers
        devices = {layer.keys.device for layer in layers}
        places = {device: to_device(device, slots)[0] for device in devices}
        return _new_cache(
            (
                layer.keys[:, :, places[layer.keys.device]],
                layer.values[:, :, places[layer.values.device]],
            )
            for layer in layers
        )

    def _drop_dead_slots(self, visible: np.ndarray) -> np.ndarray:
        """Drop slots that no row attends to, once they outnumber the others beside the prefix."""
        is_alive = np.asarray(visible.any(axis=0))
        is_alive[: self.prefix_length] = True
        n_alive = int(is_alive.sum())
        n_dead = self.slots - n_alive
        if n_dead <= n_alive - self.prefix_length:
            return visible
        self._cache = self._copy_of_slots(np.flatnonzero(is_alive))
        return visible[:, is_alive]

    def _forward(
        self,
        cache: _Cache,
        ids: np.ndarray,  # token ids, (tokens,)
        positions: np.ndarray,  # of each token, (tokens,)
        mask: np.ndarray,  # the slots to which each token attends, (tokens, slots)
        keep: np.ndarray,  # numbers of the tokens after which log-probabilities are returned
    ) -> Tensor:
        """Run tokens, append them to the cache, and return log-probabilities `(kept, V)`."""
        device_ids, device_positions, device_mask, device_keep = to_device(
            self._device, ids, positions, mask, keep
        )
        if self._is_on_several_devices:
            # The device of the last layer accepts indices on the host, but not on another device.
            device_keep = torch.from_numpy(keep)
        # Additive, not boolean: some architectures add any mask to the scores in eager attention.
        lowest = torch.finfo(self._dtype).min
        additive_mask = torch.where(device_mask, 0.0, lowest).to(self._dtype)
        with attention_kernels(self._device):
            output = self._network(
                input_ids=device_ids[None],
                position_ids=device_positions[None],
                attention_mask=additive_mask[None, None],
                past_key_values=cache,
                use_cache=True,
                **keep_logits(self._network, device_keep),
            )
        self._counts.model_calls += 1
        logits = output.logits[0]
        if len(logits) != len(keep):  # the network has no argument for it
            logits = logits[device_keep]
        logits = logits.float()
        # In place, because logits over a large vocabulary need much memory.
        log_probs = torch.log_softmax(logits, dim=-1, out=logits)
        return log_probs.to(reducing_device(self._device))


def _new_cache(layers: Iterable[tuple[Tensor, Tensor]]) -> _Cache:
    """Return a cache of keys and values of each layer."""
    # They are neither copied nor changed.
    cache: _Cache = DynamicCache()
    for keys, values in layers:
        layer = cache.layer_class_to_replicate()
        layer.lazy_initialization(keys, values)
        layer.keys = keys
        layer.values = values
        cache.layers.append(layer)
    return cache


def _joined_caches(caches: Sequence[_Cache], starts: Sequence[int]) -> _Cache:
    """Return one cache of the slots of several, of each cache from its start on."""
    # A cache without slots may have no layers.
    filled = [(cache, start) for cache, start in zip(caches, starts, strict=True) if cache.layers]

    def joined_layers() -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(len(filled[0][0].layers)):
            parts = [(cache.layers[number], start) for cache, start in filled]
            keys = torch.cat([layer.keys[:, :, start:] for layer, start in parts], dim=2)
            values = torch.cat([layer.values[:, :, start:] for layer, start in parts], dim=2)
            yield keys, values

    return _new_cache(joined_layers())


def _padded(tensor: Tensor, n_slots: int) -> Tensor:
    """Return keys or values `(1, heads, slots, head_dim)` with further slots of zeros."""
    return torch.nn.functional.pad(tensor, (0, 0, 0, n_slots))


def _suffix_pieces(lengths: Sequence[int], limit: int) -> list[int]:
    """Return sizes of pieces of whole suffixes, in order."""
    sizes: list[int] = []
    for length in lengths:
        if sizes and sizes[-1] + length <= limit:
            sizes[-1] += length
        else:
            sizes.append(length)
    return sizes


def to_device(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """Copy arrays to a device in one copy for which the host does not wait.

    The copy is made from pinned memory, which torch keeps until the copy is done.

    Args:
        device: the device. On a CPU nothing is copied.
        arrays: arrays of any types and shapes.

    Returns:
        Tensors with the types and shapes of the arrays.
    """
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    places: list[slice] = []
    size = 0
    for array in arrays:
        places.append(slice(size, size + array.nbytes))
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    packed = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    for place, array in zip(places, arrays, strict=True):
        packed.numpy()[place] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    on_device = packed.to(device, non_blocking=True)
    tensors = []
    for place, array in zip(places, arrays, strict=True):
        dtype = torch.from_numpy(array).dtype
        tensors.append(on_device[place].view(dtype).view(array.shape))
    return tensors


def tokens_per_call(network: PreTrainedModel) -> int:
    """Return how many tokens are put through the network in one call."""
    return _AT_ONCE if network.device.type == "cpu" else _AT_ONCE_ELSEWHERE


def reducing_device(device: torch.device) -> torch.device:
    """Return the device for sums in float64: the CPU for MPS, which does not support float64."""
    return torch.device("cpu") if device.type == "mps" else device


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Disable cuDNN's attention on CUDA: it plans anew for every shape, and most are new here."""
    return sdpa_kernel(_KERNELS) if device.type == "cuda" else nullcontext()


def keep_logits(network: PreTrainedModel, keep: Tensor | int) -> dict[str, Tensor | int]:
    """Return the argument of a forward pass that selects logits, if the network has one.

    Args:
        network: the network.
        keep: numbers of tokens, or how many of the last tokens.
    """
    if "logits_to_keep" in forward_parameters(type(network).forward):
        return {"logits_to_keep": keep}
    return {}


@lru_cache(maxsize=16)
def forward_parameters(forward: Callable) -> frozenset[str]:
    """Return the names of the parameters of a forward pass."""
    return frozenset(inspect.signature(forward).parameters)
