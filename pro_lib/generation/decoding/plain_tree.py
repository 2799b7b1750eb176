"""The plain prefix tree: one row per prefix, for networks for which a packed step is wrong."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import Cache

from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    attention_kernels,
    forward_parameters,
    keep_logits,
    reducing_device,
    to_device,
    tokens_per_call,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class _Row(NamedTuple):
    """An open prefix.

    Attributes:
        text: all its token ids.
        cache: keys and values of a batch of prefixes; None if each step runs whole texts.
        place: row of the prefix in the cache.
    """

    text: tuple[int, ...] = ()
    cache: Cache | None = None
    place: int = 0


class _Extension(NamedTuple):
    """A row of the tree and the tokens that are appended to it."""

    parent: _Row
    tokens: tuple[int, ...]

    @property
    def text(self) -> tuple[int, ...]:
        """Return all token ids of the new row."""
        return self.parent.text + self.tokens

    @property
    def input_ids(self) -> tuple[int, ...]:
        """Return the tokens that go through the network: all of them if there is no cache."""
        return self.text if self.parent.cache is None else self.tokens


class PlainTree:
    """A `Tree` that runs batches of texts of equal length, without a mask and without padding.

    Args:
        network: the network.
        prompts: token ids of the prompts.
        counts: counts of tokens and forward passes, which the tree increases.
        cached: whether keys and values are kept. If not, each step runs whole texts.

    Example:
        A loaded network is needed:

            tree = PlainTree(network, [[5, 6, 7], [5, 8]], ForwardCounts())
            first_log_probs = tree.plant()
    """

    prefix_length = 0

    def __init__(
        self,
        network: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        counts: ForwardCounts,
        *,
        cached: bool = True,
    ):
        self._network = network
        self._prompts = prompts
        self._counts = counts
        self._cached = cached
        self._at_once = tokens_per_call(network)
        self._rows: list[_Row] = []

    @torch.inference_mode()
    def plant(self) -> Tensor:
        """Start with the prompts and return their log-probabilities, as in `Tree.plant`."""
        self._rows = []
        extensions = [_Extension(_Row(), tuple(prompt)) for prompt in self._prompts]
        log_probs = self._run(extensions)
        self._counts.prompt_tokens += _n_input_tokens(extensions)
        return log_probs

    @torch.inference_mode()
    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Append the children and return their log-probabilities, as in `Tree.grow`."""
        extensions = [
            _Extension(self._rows[row], (token,))
            for row, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        kept_rows = [] if keep is None else keep.tolist()
        self._rows = [self._rows[row] for row in kept_rows]
        log_probs = self._run(extensions)
        self._counts.token_forwards += _n_input_tokens(extensions)
        return log_probs

    def _run(self, extensions: Sequence[_Extension]) -> Tensor:
        """Run extensions, append them to the rows and return log-probabilities after each."""
        rows: list[_Row] = []
        log_probs: list[Tensor] = []
        order: list[int] = []
        for numbers in self._batches(extensions):
            batch_rows, batch_log_probs = self._run_batch([extensions[n] for n in numbers])
            rows += batch_rows
            log_probs.append(batch_log_probs)
            order += numbers
        position = np.argsort(order)
        self._rows += [rows[n] for n in position.tolist()]
        joined = torch.cat(log_probs)
        return joined[to_device(joined.device, position)[0]]

    def _batches(self, extensions: Sequence[_Extension]) -> list[list[int]]:
        """Return numbers of extensions that are run together: of one cache and one length."""
        groups: dict[tuple[int, int], list[int]] = {}
        for number, extension in enumerate(extensions):
            key = (id(extension.parent.cache), len(extension.input_ids))
            groups.setdefault(key, []).append(number)
        batches = []
        for (_, width), group in groups.items():
            size = max(1, self._at_once // width)
            batches += [group[start : start + size] for start in range(0, len(group), size)]
        return batches

    def _run_batch(self, batch: Sequence[_Extension]) -> tuple[list[_Row], Tensor]:
        """Run extensions of rows of one cache and return their rows and log-probabilities."""
        cache = copy.deepcopy(batch[0].parent.cache)  # other batches may extend the same rows
        if cache is not None:
            places = np.array([extension.parent.place for extension in batch])
            [device_places] = to_device(self._network.device, places)
            cache.reorder_cache(device_places)  # type: ignore[arg-type]  # int64, as declared
        log_probs, cache = self._forward([extension.input_ids for extension in batch], cache)
        rows = [_Row(extension.text, cache, place) for place, extension in enumerate(batch)]
        return rows, log_probs

    def _forward(
        self, inputs: Sequence[Sequence[int]], cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """Run texts, or the tokens after the rows of a cache."""
        [ids] = to_device(self._network.device, np.array(inputs))
        name = "past_key_values"
        if "cache_params" in forward_parameters(type(self._network).forward):
            name = "cache_params"
        past = {} if cache is None else {name: cache}
        with attention_kernels(ids.device):
            output = self._network(
                input_ids=ids, use_cache=self._cached, **past, **keep_logits(self._network, 1)
            )
        self._counts.model_calls += 1
        log_probs = torch.log_softmax(output.logits[:, -1].float(), dim=-1)
        new_cache = output[name] if self._cached else None
        return log_probs.to(reducing_device(ids.device)), new_cache


def _n_input_tokens(extensions: Sequence[_Extension]) -> int:
    """Return how many tokens go through the network."""
    return sum(len(extension.input_ids) for extension in extensions)
