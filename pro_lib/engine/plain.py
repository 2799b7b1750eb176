"""The plain prefix tree, for networks that a packed step is wrong for: one row a prefix, the library's own cache.

It knows token ids and log-probabilities; it does not know masks, positions, text, datasets, stop tokens or scores.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from pro_lib.engine.tree import Counts, accepted, at_once, keep_logits, shared_length


@dataclass(frozen=True)
class PlainPrefix:
    """The tokens that all prompts begin with; `held` is what a network keeps of so many of them, once it is needed.

    A state cannot be cut as keys and values can. Unless `cached` nothing is kept: each step runs whole texts.
    """

    token_ids: tuple[int, ...]
    cached: bool = True
    held: dict[int, Cache] = field(default_factory=dict, repr=False)

    def shared_with(self, prompts: Sequence[Sequence[int]]) -> "PlainPrefix":
        """As `Prefix.shared_with`."""
        return replace(self, token_ids=self.token_ids[: shared_length(self.token_ids, prompts)])


class _Row(NamedTuple):
    """An open prefix: its whole text, and at which place of which cache it is, if of any."""

    text: tuple[int, ...]
    cache: Cache | None = None
    place: int = 0


class PlainTree:
    """A `Tree` whose open prefixes are rows of a batch, those of one length together, so that no mask is needed.

    A recurrent state takes in whatever stands in its row, padding too.
    """

    def __init__(self, network: PreTrainedModel, prompts: Sequence[Sequence[int]], prefix: PlainPrefix, counts: Counts):
        self._network, self._prompts, self._prefix, self._counts = network, prompts, prefix, counts
        self.prefix_length = len(prefix.token_ids)
        self._at_once = at_once(network)
        self._rows: list[_Row] = []

    @torch.inference_mode()
    def plant(self) -> Tensor:
        """As `Tree.plant`."""
        shared, held, length = self._prefix.token_ids, self._prefix.held, self.prefix_length
        if self._prefix.cached and length and length not in held:
            held[length] = self._forward([shared], None)[1]
            self._counts.prompt_tokens += length
        start = _Row(shared, held.get(length))
        log_probs, n_tokens = self._run([(start, tuple(prompt[length:])) for prompt in self._prompts])
        self._counts.prompt_tokens += n_tokens
        return log_probs

    @torch.inference_mode()
    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """As `Tree.grow`."""
        rows, self._rows = self._rows, [] if keep is None else [self._rows[row] for row in keep.tolist()]
        children = zip(parents.tolist(), tokens.tolist(), strict=True)
        log_probs, n_tokens = self._run([(rows[parent], (token,)) for parent, token in children])
        self._counts.token_forwards += n_tokens
        return log_probs

    def _run(self, asked: Sequence[tuple[_Row, tuple[int, ...]]]) -> tuple[Tensor, int]:
        """Make rows of prefixes and what is to follow each; log-probabilities after them, and how many tokens ran."""
        inputs = [row.text + new if row.cache is None else new for row, new in asked]
        groups: dict[tuple[int, int], list[int]] = {}
        for number, ((row, _), ids) in enumerate(zip(asked, inputs, strict=True)):
            groups.setdefault((id(row.cache), len(ids)), []).append(number)
        made, order, log_probs = {}, [], []
        for (_, width), numbers in groups.items():
            for some in torch.tensor(numbers).split(max(1, self._at_once // width)):
                rows, numbers = [asked[number][0] for number in some], some.tolist()
                cache = copy.deepcopy(rows[0].cache)  # others may grow from the same rows
                if cache is not None:
                    cache.reorder_cache(torch.tensor([row.place for row in rows]))
                found, kept = self._forward([inputs[number] for number in numbers], cache)
                texts = (asked[number][0].text + asked[number][1] for number in numbers)
                made |= {n: _Row(text, kept, place) for place, (n, text) in enumerate(zip(numbers, texts, strict=True))}
                order, log_probs = order + numbers, [*log_probs, found]
        self._rows += [made[number] for number in range(len(asked))]
        return torch.cat(log_probs)[torch.tensor(order).argsort()], sum(map(len, inputs))

    def _forward(self, inputs: Sequence[Sequence[int]], cache: Cache | None) -> tuple[Tensor, Cache | None]:
        """One call on texts, or on what follows a cache's rows; log-probabilities in float32, and what it keeps."""
        ids = torch.tensor(inputs, device=self._network.device)
        name = "cache_params" if "cache_params" in accepted(type(self._network)) else "past_key_values"
        kept = {} if cache is None else {name: cache}
        last = keep_logits(self._network, ids.new_tensor([ids.shape[1] - 1]))
        output = self._network(input_ids=ids, use_cache=self._prefix.cached, **kept, **last)
        self._counts.model_calls += 1
        log_probs = torch.log_softmax(output.logits[:, -1].float(), dim=-1)
        return log_probs, output[name] if self._prefix.cached else None
