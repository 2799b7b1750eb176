"""The plain prefix tree: a row to each prefix, for networks that a packed step is wrong for; knows no mask or text."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    attention_kernels,
    forward_parameters,
    keep_logits,
    reducing_device,
    to_device,
    tokens_per_call,
)


class _Row(NamedTuple):
    """An open prefix: its whole text, and at which place of which cache it is, if of any."""

    text: tuple[int, ...] = ()
    cache: Cache | None = None
    place: int = 0


class PlainTree:
    """A `Tree` of batches of rows of one length: no mask, no padding. Unless `cached`, each step runs whole texts."""

    prefix_length = 0

    def __init__(
        self,
        network: PreTrainedModel,
        prompts: Sequence[Sequence[int]],
        counts: ForwardCounts,
        *,
        cached: bool = True,
    ):
        self._network, self._prompts, self._counts, self._cached = network, prompts, counts, cached
        self._at_once = tokens_per_call(network)
        self._rows: list[_Row] = []

    @torch.inference_mode()
    def plant(self) -> Tensor:
        """Run as `Tree.plant`."""
        self._rows = []
        log_probs, n_tokens = self._run([(_Row(), tuple(prompt)) for prompt in self._prompts])
        self._counts.prompt_tokens += n_tokens
        return log_probs

    @torch.inference_mode()
    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Run as `Tree.grow`."""
        steps = [
            (self._rows[row], (token,))
            for row, token in zip(parents.tolist(), tokens.tolist(), strict=True)
        ]
        self._rows = [] if keep is None else [self._rows[row] for row in keep.tolist()]
        log_probs, n_tokens = self._run(steps)  # which adds the children to the rows
        self._counts.token_forwards += n_tokens
        return log_probs

    def _run(self, steps: Sequence[tuple[_Row, tuple[int, ...]]]) -> tuple[Tensor, int]:
        """Make rows of prefixes and what follows each; return log-probabilities after them, and how many tokens ran."""
        inputs = [row.text + new if row.cache is None else new for row, new in steps]
        groups: dict[tuple[int, int], list[int]] = {}
        for number, ((row, _), ids) in enumerate(zip(steps, inputs, strict=True)):
            groups.setdefault((id(row.cache), len(ids)), []).append(number)
        rows, order, log_probs = {}, [], []
        for (_, width), group in groups.items():
            for piece in torch.tensor(group).split(max(1, self._at_once // width)):
                numbers = piece.tolist()
                parents = [steps[number][0] for number in numbers]
                cache = copy.deepcopy(parents[0].cache)  # others may grow from the same rows
                if cache is not None:
                    cache.reorder_cache(
                        *to_device(
                            self._network.device, np.array([parent.place for parent in parents])
                        )
                    )
                piece_log_probs, cache = self._forward(
                    [inputs[number] for number in numbers], cache
                )
                for place, (number, parent) in enumerate(zip(numbers, parents, strict=True)):
                    rows[number] = _Row(parent.text + steps[number][1], cache, place)
                order += numbers
                log_probs.append(piece_log_probs)
        self._rows += [rows[number] for number in range(len(steps))]
        joined = torch.cat(log_probs)
        return joined[to_device(joined.device, np.argsort(order))[0]], sum(map(len, inputs))

    def _forward(
        self, inputs: Sequence[Sequence[int]], cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """Run texts, or what follows a cache's rows; return log-probabilities in float32, and the cache after."""
        [ids] = to_device(self._network.device, np.array(inputs))
        name = (
            "cache_params"
            if "cache_params" in forward_parameters(type(self._network).forward)
            else "past_key_values"
        )
        past = {} if cache is None else {name: cache}
        with attention_kernels(ids.device):
            output = self._network(
                input_ids=ids, use_cache=self._cached, **past, **keep_logits(self._network, 1)
            )
        self._counts.model_calls += 1
        log_probs = torch.log_softmax(output.logits[:, -1].float(), dim=-1)
        return log_probs.to(reducing_device(ids.device)), output[name] if self._cached else None
