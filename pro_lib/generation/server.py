"""A model behind a server, searched exactly through the lists of likely next tokens that the server gives.

No weights are loaded here; `server_client` sends the requests.
"""

import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy.special import entr
from torch import Tensor
from transformers import AutoTokenizer

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.decoding.next_tokens import END, OTHER, UNSEEN, Children, Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.models import Model
from pro_lib.generation.server_client import (
    LOWEST,
    PROBE_PROMPTS,
    ROUNDING,
    Server,
    largest_difference,
    short_digest,
)

_MORE = 16  # the factor by which a longer list is asked for where a list leaves something open


def connect_server(
    base_url: str, *, model: str, tokenizer: Any, stop_ids: Sequence[int] = (), **options: Any
) -> Model:
    """Return the model of a server as one for `generate` and `ask`, with the strategy `threshold` alone.

    The server is probed with a few requests here and again for every run, so that a stored run is
    returned only for the server that made it.

    Args:
        base_url: as in `http://localhost:8000/v1`.
        model: the server's name for the model; runs are kept under it, with `--` for `/`.
        tokenizer: the model's own as transformers has it, or the name or folder that it is loaded from.
        stop_ids: tokens that end an answer, beside the tokenizer's end of text and tokens with a
            newline.
        options: `top`, `epsilon`, `repeats`, `concurrency`, `timeout`, `api_key_env` and
            `longest_wait`, as `Server` describes them.

    Raises:
        ValueError: an option cannot be used.
        RunError: the server does not answer, or does not list the model's own probabilities.
    """
    # The options are checked before a tokenizer is loaded.
    server = Server(base_url=base_url, model=model, texts=(), **options)
    if isinstance(tokenizer, str | os.PathLike):
        if not str(tokenizer).strip():
            help_ = "give the model's tokenizer, or its name or folder"
            raise SentenceError(f"tokenizer must not be empty; {help_}")
        tokenizer = AutoTokenizer.from_pretrained(catalog.locate(str(tokenizer)))
    server = replace(server, texts=models.token_texts(tokenizer, len(tokenizer)))
    more = SimpleNamespace(eos_token_id=list(stop_ids))
    endings = models.endings(tokenizer, models.NEWLINE, more, size=len(tokenizer))
    fingerprint = f"served, within {server.epsilon:g} nats"
    nothing: Any = torch.nn.Identity()
    fit = Fit(0.0, ServedModel.plain)
    name = _folder_name(model)
    served = ServedModel(
        name, base_url, fingerprint, nothing, tokenizer, endings, fit, server=server
    )
    served.parameters()
    return served


def _folder_name(model: str) -> str:
    """Return the folder name for a model's runs, such as `meta-llama--Llama-2-7b`.

    It has at most 100 characters. Names that a folder cannot have get digits of their SHA-256, so that
    different models have different folders.
    """
    name = re.sub(r"[^\w.-]", "-", model.strip("/").replace("/", "--"), flags=re.ASCII)
    if name.replace("--", "/") == model and len(name) <= 100 and not name.startswith("."):
        return name
    return f"{name.lstrip('.')[:91]}-{short_digest(model)[:8]}"


@dataclass(frozen=True)
class ServedModel(Model):
    """A model whose weights are elsewhere."""

    server: Server = field(kw_only=True, repr=False)
    device, dtype, quantization, plain = (
        torch.device("cpu"),
        "served",
        None,
        "is asked through a server",
    )

    @property
    def is_remote(self) -> bool:
        """A server may die, so its answers are stored question by question."""
        return True

    @property
    def concurrency(self) -> int:
        """How many requests the server gets at once."""
        return self.server.concurrency

    @property
    def epsilon(self) -> np.ndarray:
        """By how many nats prefixes of 0, 1, … tokens may be off: errors add up along an answer."""
        return self.server.epsilon * np.arange(2**16)

    def parameters(self) -> dict[str, Any]:
        """Return what decides a run; the server is asked, so that a replaced one is noticed."""
        prompts = [self.encode(prompt) for prompt in PROBE_PROMPTS]
        return super().parameters() | {"server": self.server.identity(prompts)}

    def with_stop(self, stop: Sequence[str]) -> Model:
        """Return the model; `ValueError` for further texts that end an answer."""
        if stop:
            raise ValueError(
                "stop= is not supported over a server; connect(stop_ids=) names tokens that end an answer"
            )
        return self

    def fit_for(self, n_tokens: int) -> Any:
        """Return the model itself, which makes the trees that are asked through the server."""
        return self

    def tree(
        self, network: Any, prompts: Sequence[Sequence[int]], *, prefix: Any, counts: ForwardCounts
    ) -> "ServerTree":
        """Return the tree of some prompts, as `Fit.tree` does."""
        return ServerTree(self.server, prompts, counts)


class ServerTree:
    """A `Tree` whose rows are numbers of prefixes, and which itself asks what may follow them."""

    prefix_length, is_partial = 0, True

    def __init__(self, server: Server, prompts: Sequence[Sequence[int]], counts: ForwardCounts):
        self._server, self._prompts, self._counts = (
            server,
            [tuple(prompt) for prompt in prompts],
            counts,
        )

    def plant(self) -> Tensor:
        """Return the numbers of the prompts."""
        self._rows = self._new = self._prompts
        return torch.arange(len(self._new))

    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Return the numbers of the children."""
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._new = [(*self._rows[parent], token) for parent, token in pairs]
        self._rows = [
            self._rows[row] for row in (() if keep is None else keep.tolist())
        ] + self._new
        self._counts.token_forwards += len(self._new)
        return torch.arange(len(self._new))

    def children(
        self, rows: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
    ) -> Children:
        """Return what may follow, as `next_tokens.children` does of all log-probabilities.

        The probability that a list leaves out is `UNSEEN` where an event at its row's floor may be in it, else `OTHER`.
        """
        with self._server.asking() as send, ThreadPoolExecutor(self._server.concurrency) as pool:
            prefixes, follow = (
                [self._new[row] for row in rows.tolist()],
                partial(_events, self._server, send, endings),
            )
            told = pool.map(follow, prefixes, floors.tolist(), greedy.tolist())
            events, entropy, best, n_requests = zip(*told, strict=True)
        self._counts.model_calls += sum(n_requests)
        of_rows = ((row, *event) for row, own in enumerate(events) for event in own)
        row, token, log_prob, completes = map(np.array, zip(*of_rows, strict=True))
        return Children(row, token, log_prob, completes, np.array(entropy), np.array(best))


def _events(
    server: Server,
    send: Callable,
    endings: Endings,
    prefix: tuple[int, ...],
    floor: float,
    greedy: bool,
) -> tuple[list[tuple[int, float, bool]], float, int, int]:
    """Return what may follow a prefix, its entropy, what is likeliest, and the number of requests.

    Longer lists are asked for while one leaves open whether an event reaches the floor.
    """
    n_tokens, n_requests, (is_stop, is_closing) = (
        server.top,
        0,
        (table.numpy() for table in endings.on_host),
    )
    while True:
        lists = [
            server.listed(send, prefix, min(n_tokens, len(is_stop))) for _ in range(server.repeats)
        ]
        n_requests += len(lists)
        known = [(token, value) for token, value in lists[0].items() if token < len(is_stop)]
        ids, log_probs = map(np.array, zip(*known, strict=True))
        probs, stops = np.exp(log_probs), is_stop[ids]
        rest, ending = max(0.0, 1 - probs.sum()), probs[stops].sum()
        # No token that is left out is likelier than the last of those asked for.
        least = 0.0 if len(ids) == len(is_stop) else probs[min(n_tokens, len(ids)) - 1]
        hidden = min(
            rest + ROUNDING, (is_stop.sum() - stops.sum()) * least
        )  # at most, of endings left out
        is_open = _log(min(rest + ROUNDING, least)) >= floor  # a token left out may reach it
        is_open |= (
            _log(ending + hidden) >= floor and hidden > math.expm1(server.epsilon) * ending
        )  # or the ending may
        is_noisy = any(largest_difference(lists[0], other) > server.epsilon for other in lists[1:])
        if is_noisy or not is_open or len(ids) < n_tokens:
            break
        n_tokens *= _MORE
    # Where lists differ nothing is certain any more, and only the greedy path goes on.
    lowest = min(math.inf if is_noisy else floor, log_probs[0] if greedy else math.inf)
    closes, named = is_closing[ids], ~stops & (log_probs >= lowest)
    closing, other = (probs[~stops & ~named & of].sum() for of in (closes, ~closes))
    events = [(END, _log(ending), True), (OTHER, _log(closing), True), (OTHER, _log(other), False)]
    events += [(UNSEEN if is_open or is_noisy else OTHER, _log(rest), False)]
    events += zip(*(column[named].tolist() for column in (ids, log_probs, closes)), strict=True)
    # Part of the rest may be endings: the entropy is at least the lesser of none and all that may be.
    either = (entr([p, ending + rest - p]).sum() for p in (ending, ending + min(hidden, rest)))
    best = int(ids[0]) if greedy and not stops[0] else END
    return events, entr(probs[~stops]).sum() + min(either), best, n_requests


def _log(p: float) -> float:
    return math.log(p) if p > 0 else LOWEST
