"""The packed prefix tree: all live prefixes of many questions in one row of a forward pass; knows no stop token."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, PreTrainedModel

# Tokens put through the network at once: a processor loses by masked tokens of other questions, a GPU by small calls.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 256, 4096
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_Cache: TypeAlias = (
    Any  # a `DynamicCache`, whose layers are declared wider than those that have keys and values
)


@dataclass(frozen=True)
class Prefix:
    """The tokens that all prompts begin with; of each layer keys and values, each `(1, heads, T, head_dim)`."""

    token_ids: tuple[int, ...]
    layers: tuple[tuple[Tensor, Tensor], ...]

    def shared_with(self, prompts: Sequence[Sequence[int]]) -> "Prefix":
        """Return as much of the prefix as all prompts begin with, leaving each at least one token of its own."""
        length = min(common_prefix_length([self.token_ids, *prompts]), min(map(len, prompts)) - 1)
        layers = (
            (keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers if length
        )
        return Prefix(self.token_ids[:length], tuple(layers))


@dataclass
class ForwardCounts:
    """What the trees of a run cost: tokens of prompts (a shared prefix once), tokens after them, forward passes."""

    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0


def common_prefix_length(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the longest prefix that all sequences share."""
    # All between them share what they do
    ends = (
        min(map(tuple, sequences)),
        max(map(tuple, sequences)),
    )
    return sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*ends, strict=False))
    )


class Tree(Protocol):
    """All live prefixes of a batch of questions, grown one token at a time.

    Its *rows* are the open prefixes: after `plant` one per question, after `grow` one per child, behind the rows that
    stay. Rows and tokens are on the host, log-probabilities on the device of the network.
    """

    prefix_length: int

    def plant(self) -> Tensor:
        """Run the prompts; return log-probabilities `(questions, V)` of the first answer token, in nats."""

    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Give row `parents[i]` the child `tokens[i]`; the children become the rows, after the rows in `keep`.

        Return log-probabilities `(children, V)` of the token after each child, in nats, in the children's order.
        """


@torch.inference_mode()
def encode_prefix(
    network: PreTrainedModel, token_ids: Sequence[int], *, counts: ForwardCounts | None = None
) -> Prefix:
    """Run the shared prefix through the network once; an empty prefix costs nothing."""
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


class PackedTree:
    """A `Tree` in one row, on as much of the prefix as all prompts begin with; the dead go once they are the most.

    What a row may attend to is a line of a boolean matrix `(rows, slots)` on the host: a child sees what its parent
    saw, and itself. Siblings share their past, and nothing is reordered or padded.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        prefix: Prefix,
        counts: ForwardCounts,
    ):
        prefix = prefix.shared_with(prompts)
        self._network, self._counts = network, counts
        # A network's properties walk over its parameters.
        self._device, self._dtype, self._at_once = (
            network.device,
            network.dtype,
            tokens_per_call(network),
        )
        self._is_spread = len(set(getattr(network, "hf_device_map", {}).values())) > 1
        self.prefix_length, self._prefix_layers = len(prefix.token_ids), prefix.layers
        self._suffixes = [prompt[self.prefix_length :] for prompt in prompts]

    @property
    def slots(self) -> int:
        """Return how many keys are in the cache: prefix, prompts, and nodes not yet dropped."""
        return self._visible.shape[1]

    @torch.inference_mode()
    def plant(self) -> Tensor:
        """Run as `Tree.plant`; a tree planted again begins anew."""
        self._cache = _filled(self._prefix_layers)
        self._visible = np.empty((0, self.prefix_length), np.bool_)
        self._positions = np.empty(0, np.int64)
        lengths = np.array(list(map(len, self._suffixes)))
        owner, last = np.arange(len(lengths)).repeat(lengths), lengths.cumsum() - 1
        tokens = np.array(list(itertools.chain.from_iterable(self._suffixes)))
        positions = self.prefix_length + np.arange(len(tokens)) - (last - lengths + 1)[owner]
        shared = np.ones((len(tokens), self.prefix_length), np.bool_)
        self._counts.prompt_tokens += len(tokens)
        return self._run(
            tokens, positions, owner, shared, last, _sizes(lengths.tolist(), self._at_once)
        )

    @torch.inference_mode()
    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Run as `Tree.grow`."""
        above, rows = parents.numpy(), (parents[:0] if keep is None else keep).numpy()
        inherited = self._drop_dead(self._visible[np.concatenate([rows, above])])
        positions = self._positions[above] + 1
        self._visible, self._positions = inherited[: len(rows)], self._positions[rows]
        self._counts.token_forwards += len(tokens)
        # A child is its own owner: it sees itself and none of the others.
        owner = np.arange(len(tokens))
        sizes = [
            len(piece) for piece in np.array_split(owner, max(1, -(-len(tokens) // self._at_once)))
        ]
        return self._run(tokens.numpy(), positions, owner, inherited[len(rows) :], owner, sizes)

    def crowd(self, slots: int) -> None:
        """Add a row that alone sees so many further slots of zeros: what other questions of a batch are to the rest."""
        self._cache = _filled(
            [
                torch.nn.functional.pad(tensor, (0, 0, 0, slots))
                for tensor in (layer.keys, layer.values)
            ]
            for layer in self._cache.layers
        )
        self._visible = np.pad(self._visible, ((0, 1), (0, slots)))
        self._visible[-1, self.slots - slots :] = True
        self._positions = np.append(self._positions, slots)

    def _run(
        self, tokens: np.ndarray, positions: np.ndarray, owner: np.ndarray, before: np.ndarray, last: np.ndarray,
        sizes: Sequence[int],
    ) -> Tensor:  # fmt: skip
        """Run tokens, in pieces of these sizes; the `last` of each owner become rows; return their log-probabilities.

        A token sees those slots that `before (tokens, slots)` says, its owner's earlier tokens, and itself.
        """
        caches, own_from, log_probs, start = [self._cache], [0], [], 0
        for size in sizes:
            piece, cache = slice(start, start + size), self._cache
            seen, mine, at = before[piece], owner[piece], positions[piece]
            if size < len(tokens):
                kept = np.flatnonzero(seen.any(axis=0))
                seen, cache = seen[:, kept], self._only(kept)
                caches.append(cache)
                own_from.append(len(kept))
            own = (mine[:, None] == mine) & (at[:, None] >= at)
            wanted = last[(last >= start) & (last < start + size)] - start
            log_probs.append(
                self._forward(cache, tokens[piece], at, np.concatenate([seen, own], axis=1), wanted)
            )
            start += size
        self._cache = _joined(caches, own_from)
        n, slots = self._visible.shape
        visible = np.zeros((n + len(last), slots + len(tokens)), np.bool_)
        visible[:n, :slots], visible[n:, :slots] = self._visible, before[last]
        visible[n:, slots:] = owner[last, None] == owner
        self._visible, self._positions = visible, np.concatenate([self._positions, positions[last]])
        return torch.cat(log_probs) if len(log_probs) > 1 else log_probs[0]

    def _only(self, slots: np.ndarray) -> _Cache:
        """Return a copy of some of the cache's slots."""
        layers = self._cache.layers
        places = {
            device: to_device(device, slots)[0]
            for device in {layer.keys.device for layer in layers}
        }
        return _filled(
            [pair[:, :, places[pair.device]] for pair in (layer.keys, layer.values)]
            for layer in layers
        )

    def _drop_dead(self, visible: np.ndarray) -> np.ndarray:
        """Leave out of the cache the slots that no row of `visible` sees, once they outnumber the others."""
        living = np.asarray(visible.any(axis=0))
        living[: self.prefix_length] = True
        n_living = int(living.sum())
        if self.slots - n_living <= n_living - self.prefix_length:
            return visible
        self._cache = self._only(np.flatnonzero(living))
        return visible[:, living]

    def _forward(self, cache: _Cache, *arrays: np.ndarray) -> Tensor:
        """Run tokens, at positions, on the slots they see; return log-probabilities of some. It fills the cache."""
        tokens, positions, visible, keep = to_device(self._device, *arrays)
        if self._is_spread:  # the last layer's device takes indices on the host, and its own
            keep = torch.from_numpy(arrays[-1])
        # Additive, not boolean: under eager attention some architectures add whatever they are handed.
        mask = torch.where(visible, 0.0, torch.finfo(self._dtype).min).to(self._dtype)
        with attention_kernels(self._device):
            output = self._network(
                input_ids=tokens[None],
                position_ids=positions[None],
                attention_mask=mask[None, None],
                past_key_values=cache,
                use_cache=True,
                **keep_logits(self._network, keep),
            )
        self._counts.model_calls += 1
        logits = output.logits[0]
        logits = (logits if len(logits) == len(keep) else logits[keep]).float()
        # In place: a wide vocabulary's logits are large
        log_probs = torch.log_softmax(logits, dim=-1, out=logits)
        return log_probs.to(reducing_device(self._device))


def _filled(layers: Iterable[Sequence[Tensor]]) -> _Cache:
    """Return a cache of these keys and values; it does not copy them, and an update leaves them as they are."""
    cache: _Cache = DynamicCache()
    for keys, values in layers:
        cache.layers.append(layer := cache.layer_class_to_replicate())
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
    return cache


def _joined(caches: Sequence[_Cache], starts: Sequence[int]) -> _Cache:
    """Return one cache of the slots of several, of each from its start on; one without slots may have no layers."""
    if len(caches) == 1:
        return caches[0]
    used = [
        (cache.layers, start) for cache, start in zip(caches, starts, strict=True) if cache.layers
    ]
    parts = [
        [(layer.keys[:, :, start:], layer.values[:, :, start:]) for layer in layers]
        for layers, start in used
    ]
    layers = zip(*parts, strict=True)
    return _filled(
        [torch.cat(tensors, dim=2) for tensors in zip(*layer, strict=True)] for layer in layers
    )


def _sizes(lengths: Sequence[int], limit: int) -> list[int]:
    """Return sizes of pieces of at most `limit` tokens, or of one suffix, for suffixes of these lengths in order."""
    sizes: list[int] = []
    for length in lengths:
        if sizes and sizes[-1] + length <= limit:
            sizes[-1] += length
        else:
            sizes.append(length)
    return sizes


def to_device(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """Return arrays on a device, by one copy that the host does not wait for: torch keeps the pinned memory so long."""
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    starts = np.cumsum(
        [0, *(-(-array.nbytes // 8) * 8 for array in arrays)]
    ).tolist()  # as views of 64 bits must
    pieces = [
        slice(start, start + array.nbytes) for start, array in zip(starts, arrays, strict=False)
    ]
    packed = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for piece, array in zip(pieces, arrays, strict=True):
        packed.numpy()[piece] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = packed.to(device, non_blocking=True)
    like = [torch.from_numpy(array) for array in arrays]
    return [
        there[piece].view(one.dtype).view(one.shape)
        for piece, one in zip(pieces, like, strict=True)
    ]


def tokens_per_call(network: PreTrainedModel) -> int:
    """Return how many tokens are put through the network in one call."""
    return _AT_ONCE if network.device.type == "cpu" else _AT_ONCE_ELSEWHERE


def reducing_device(device: torch.device) -> torch.device:
    """Return where log-probabilities of a device are summed up in float64: MPS has none, so on the processor."""
    return torch.device("cpu") if device.type == "mps" else device


def attention_kernels(device: torch.device) -> AbstractContextManager[None]:
    """Leave out cuDNN's attention on CUDA: it plans anew for every shape, and ours are nearly all new."""
    return sdpa_kernel(_KERNELS) if device.type == "cuda" else nullcontext()


def keep_logits(network: PreTrainedModel, keep: Tensor | int) -> dict[str, Tensor | int]:
    """Return the argument that asks the network for the logits of some positions, or the last, where it has one."""
    return (
        {"logits_to_keep": keep}
        if "logits_to_keep" in forward_parameters(type(network).forward)
        else {}
    )


@lru_cache(maxsize=16)
def forward_parameters(forward: Callable) -> frozenset[str]:
    """Return the names of what a forward pass can be given."""
    return frozenset(inspect.signature(forward).parameters)
