"""Exact search with a model behind a server, through the lists of next tokens that it returns.

The requests themselves are in `server_client`.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import entr

from pro_lib.common.validation import extra

with extra("models", "the tokenizer of a model behind a server"):
    import torch
    from torch import Tensor
    from transformers import AutoTokenizer

from pro_lib.common import catalog
from pro_lib.common.validation import not_empty
from pro_lib.generation import tokens
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.decoding.next_tokens import END, OTHER, UNSEEN, Children, Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.models import Model
from pro_lib.generation.server_client import (
    LOWEST,
    PROBE_PROMPTS,
    ROUNDING,
    Server,
    short_digest,
)
from pro_lib.runs.parameters import difference, largest_difference

_LONGER = 16  # factor by which the next list is longer if a list leaves something open


def connect_server(
    base_url: str, *, model: str, tokenizer: Any, stop_ids: Sequence[int] = (), **options: Any
) -> Model:
    """Connect to a model behind a server, for `generate` and `ask` with the strategy `threshold`.

    A few requests test the server now and before every run. Their results identify the model, so a
    stored run is returned only if the same model made it.

    Args:
        base_url: address of the API, such as `http://localhost:8000/v1`.
        model: the server's name for the model. Runs are stored under it, with `--` for `/`.
        tokenizer: the model's tokenizer, or the name or folder from which transformers loads it.
        stop_ids: ids of tokens that end an answer, in addition to the tokenizer's end of text and
            tokens with a newline.
        options: `top`, `epsilon` (nats), `repeats`, `concurrency`, `timeout` (seconds),
            `api_key_env` and `longest_wait` (seconds), as `Server` describes them.

    Returns:
        A model whose answers `generate` stores question by question.

    Raises:
        ValueError: an option has an invalid value.
        RunError: the server does not answer, or lists other probabilities than the model's own.

    Example:
        A running server is needed:

            url = "http://localhost:8000/v1"
            model = connect_server(url, model="gemma", tokenizer="google/gemma-2b")
            run = generate(model, ["Who painted Guernica?"], strategy="threshold")
    """
    # The options are checked before a tokenizer is loaded.
    server = Server(base_url=base_url, model=model, texts=(), **options)
    if isinstance(tokenizer, str | os.PathLike):
        name = str(not_empty(tokenizer, "tokenizer"))
        tokenizer = AutoTokenizer.from_pretrained(catalog.locate(name))
    server = replace(server, texts=tokens.token_texts(tokenizer, len(tokenizer)))
    further_stops = SimpleNamespace(eos_token_id=list(stop_ids))
    endings = tokens.classify_tokens(tokenizer, tokens.NEWLINE, further_stops, size=len(tokenizer))
    network: Any = torch.nn.Identity()  # a placeholder, since the weights are elsewhere
    served_model = ServedModel(
        name=_folder_name(model),
        source=base_url,
        fingerprint=f"served, within {server.epsilon:g} nats",
        network=network,
        tokenizer=tokenizer,
        endings=endings,
        fit=ServerFit(0.0, "is asked through a server", server=server),
        server=server,
    )
    served_model.parameters()  # probes the server
    return served_model


def _folder_name(model: str) -> str:
    """Return the folder name for a model's runs, such as `meta-llama--Llama-2-7b`."""
    # It has at most 100 characters. Names that are not valid folder names get digits of their
    # SHA-256, so that different models have different folders.
    name = re.sub(r"[^\w.-]", "-", model.strip("/").replace("/", "--"), flags=re.ASCII)
    if name.replace("--", "/") == model and len(name) <= 100 and not name.startswith("."):
        return name
    return f"{name.lstrip('.')[:91]}-{short_digest(model)[:8]}"


@dataclass(frozen=True)
class ServerFit(Fit):
    """The tree whose prefixes a server evaluates."""

    server: Server = field(kw_only=True)

    def tree(self, network: Any, prompts: Sequence, *, prefix: Any, counts: ForwardCounts) -> Any:
        """Return the tree of some prompts, as `Fit.tree` does."""
        return ServerTree(self.server, prompts, counts)


@dataclass(frozen=True)
class ServedModel(Model):
    """A model whose weights are behind a server."""

    server: Server = field(kw_only=True, repr=False)
    device = torch.device("cpu")
    dtype = "served"
    quantization = None
    is_remote = True

    @property
    def prompts_at_once(self) -> int:
        """How many requests the server gets at the same time."""
        return self.server.concurrency

    @property
    def epsilon(self) -> np.ndarray:
        """The largest error of the log-probability of a prefix of 0, 1, … tokens, in nats.

        The errors of the tokens add up along an answer.
        """
        return self.server.epsilon * np.arange(2**16)

    @property
    def reply_settings(self) -> dict[str, Any]:
        """The server and the model that replies come from."""
        return {"base_url": self.server.base_url.rstrip("/"), "model": self.server.model}

    def parameters(self) -> dict[str, Any]:
        """Return the settings that decide a run, with the identity that the server shows now."""
        prompts = [self.encode(prompt) for prompt in PROBE_PROMPTS]
        return super().parameters() | {"server": self.server.identity(prompts)}

    def change_since(self, parameters: Mapping[str, Any]) -> str:
        """Return how the server differs from the one that had these parameters, or "".

        If two new probes differ from each other, the server is noisy, and an earlier probe may
        differ three times as much.
        """
        now = self.parameters()
        if not difference(parameters, {**parameters, **now}):
            return ""
        probe = now["server"]["probe"]
        other_probe = self.parameters()["server"]["probe"]
        pairs = zip(probe["log_probs"], other_probe["log_probs"], strict=True)
        noise = max(largest_difference(*pair) for pair in pairs)
        probe["within"] = max(probe["within"], 3 * noise)
        return difference(parameters, {**parameters, **now})

    def with_stop(self, stop: Sequence[str]) -> Model:
        """Return the model itself.

        `stop` must be empty.

        Raises:
            ValueError: there are texts in `stop`, which a server does not support.
        """
        if stop:
            raise ValueError(
                "stop= is not supported over a server; pass the ids of the tokens that end an "
                "answer as connect_server(stop_ids=)"
            )
        return self

    def fit_for(self, n_tokens: int) -> Fit:
        """Return the tree whose prefixes the server evaluates, for texts of any length."""
        return self.fit


class ServerTree:
    """A `Tree` that requests the next tokens of its prefixes from a server.

    `plant` and `grow` return the numbers of the new prefixes instead of log-probabilities, which
    `children` requests later. `_rows` are the prefixes that `grow` extends. `_added` are the
    prefixes that were added last.
    """

    prefix_length = 0
    is_partial = True

    def __init__(self, server: Server, prompts: Sequence[Sequence[int]], counts: ForwardCounts):
        self._server = server
        self._prompts = [tuple(prompt) for prompt in prompts]
        self._counts = counts

    def plant(self) -> Tensor:
        """Make the prompts the rows, and return their numbers."""
        self._rows = self._prompts
        self._added = self._prompts
        return torch.arange(len(self._added))

    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Append the children to the rows in `keep`, and return the children's numbers."""
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._added = [(*self._rows[parent], token) for parent, token in pairs]
        kept_rows = [] if keep is None else [self._rows[row] for row in keep.tolist()]
        self._rows = kept_rows + self._added
        self._counts.token_forwards += len(self._added)
        return torch.arange(len(self._added))

    def log_probs_of(self, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of tokens after new prefixes; NaN if one is not listed."""
        prefixes = [self._added[row] for row in rows]
        n_listed = min(self._server.top, len(self._server.texts))
        with self._server.connect() as connection:
            lists = {
                prefix: self._server.request_list(connection, prefix, n_listed)
                for prefix in dict.fromkeys(prefixes)
            }
        pairs = zip(prefixes, tokens.tolist(), strict=True)
        return np.array([lists[prefix].get(token, np.nan) for prefix, token in pairs])

    def children(
        self, rows: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray
    ) -> Children:
        """Return the next events of each row, as `next_tokens.children` for full distributions.

        The probability that a list leaves out is `UNSEEN` where it may contain an event that
        reaches the floor of its row, else `OTHER`.

        Args:
            rows: numbers of new prefixes, `(rows,)`, as `plant` or `grow` returned them.
            endings: the tokens that end an answer.
            floors: log-probability in nats from which events are listed, `(rows,)`.
            greedy: whether each row is on the greedy path, `(rows,)`.
        """
        prefixes = [self._added[row] for row in rows.tolist()]
        with (
            self._server.connect() as connection,
            ThreadPoolExecutor(self._server.concurrency) as pool,
        ):
            follow = partial(_events_after, self._server, connection, endings)
            results = list(pool.map(follow, prefixes, floors.tolist(), greedy.tolist()))
        self._counts.model_calls += sum(result.n_requests for result in results)
        events = [(row, *event) for row, result in enumerate(results) for event in result.events]
        row, token, log_prob, completes = map(np.array, zip(*events, strict=True))
        return Children(
            row=row,
            token=token,
            log_prob=log_prob,
            completes=completes,
            entropy=np.array([result.entropy for result in results]),
            best=np.array([result.best for result in results]),
        )


@dataclass(frozen=True)
class _EventsAfter:
    """The events that may follow one prefix.

    `events` are triples: a token or a code of `next_tokens`, its log-probability, and whether it
    completes an answer. `best` is the next token of the greedy path, or `END`.
    """

    events: list[tuple[int, float, bool]]
    entropy: float  # nats
    best: int
    n_requests: int


def _events_after(
    server: Server,
    connection: Any,
    endings: Endings,
    prefix: tuple[int, ...],
    floor: float,
    is_greedy: bool,
) -> _EventsAfter:
    """Return the events that may follow a prefix."""
    # A longer list is requested while the list does not show whether some event reaches the floor.
    is_stop, is_closing = (table.numpy() for table in endings.on_host)
    n_tokens = server.top
    n_requests = 0
    while True:
        n_listed = min(n_tokens, len(is_stop))
        lists = [server.request_list(connection, prefix, n_listed) for _ in range(server.repeats)]
        n_requests += len(lists)
        tokens = _TokenList(lists[0], is_stop, n_tokens)
        is_open = tokens.may_hide_event(floor, server.epsilon)
        is_noisy = any(largest_difference(lists[0], other) > server.epsilon for other in lists[1:])
        if is_noisy or not is_open or len(tokens.ids) < n_tokens:
            break
        n_tokens *= _LONGER
    # If the lists differ, no event is certain, and only the greedy path is continued.
    lowest = math.inf if is_noisy else floor
    if is_greedy:
        lowest = min(lowest, tokens.log_probs[0])
    return _EventsAfter(
        events=tokens.events(lowest, is_closing, is_undecided=is_open or is_noisy),
        entropy=tokens.least_entropy(),
        best=int(tokens.ids[0]) if is_greedy and not tokens.stops[0] else END,
        n_requests=n_requests,
    )


class _TokenList:
    """The likeliest next tokens that a server lists, and bounds on the tokens that it omits."""

    def __init__(self, log_probs: dict[int, float], is_stop: np.ndarray, n_requested: int):
        self.ids, self.log_probs = map(np.array, zip(*log_probs.items(), strict=True))
        self.probs = np.exp(self.log_probs)
        self.stops = is_stop[self.ids]
        self.rest = max(0.0, 1 - self.probs.sum())
        self.ending = self.probs[self.stops].sum()
        # No token that is left out is more probable than the last of the requested ones, unless
        # these tokens cannot have the whole rest together.
        n_left_out = len(is_stop) - len(self.ids)
        least = self.probs[min(n_requested, len(self.ids)) - 1]
        unexplained = self.rest - n_left_out * least
        self.most_left_out = max(least, unexplained) if n_left_out else 0.0
        n_stops_left_out = is_stop.sum() - self.stops.sum()
        self.most_ending_left_out = min(self.rest + ROUNDING, n_stops_left_out * self.most_left_out)

    def may_hide_event(self, floor: float, epsilon: float) -> bool:
        """Return whether an event that the list does not show may reach the floor."""
        if _log(min(self.rest + ROUNDING, self.most_left_out)) >= floor:
            return True
        # The stop tokens that are left out may lift the ending to the floor.
        reaches = _log(self.ending + self.most_ending_left_out) >= floor
        return reaches and self.most_ending_left_out > math.expm1(epsilon) * self.ending

    def events(
        self, lowest: float, is_closing: np.ndarray, *, is_undecided: bool
    ) -> list[tuple[int, float, bool]]:
        """Return the ending, the sums of the other tokens, and each token at or above `lowest`."""
        closes = is_closing[self.ids]
        is_named = ~self.stops & (self.log_probs >= lowest)
        is_other = ~self.stops & ~is_named
        named = (column[is_named].tolist() for column in (self.ids, self.log_probs, closes))
        return [
            (END, _log(self.ending), True),
            (OTHER, _log(self.probs[is_other & closes].sum()), True),
            (OTHER, _log(self.probs[is_other & ~closes].sum()), False),
            (UNSEEN if is_undecided else OTHER, _log(self.rest), False),
            *zip(*named, strict=True),
        ]

    def least_entropy(self) -> float:
        """Return a lower bound on the entropy of the next event, in nats."""
        # A part of the unlisted probability may belong to endings. Entropy is concave in that part,
        # so the lesser value of its two extremes, none and all that is possible, is a lower bound.
        highest = self.ending + min(self.most_ending_left_out, self.rest)
        total = self.ending + self.rest
        extremes = [entr([ending, total - ending]).sum() for ending in (self.ending, highest)]
        return entr(self.probs[~self.stops]).sum() + min(extremes)


def _log(p: float) -> float:
    """Return log p in nats, `LOWEST` for 0."""
    return math.log(p) if p > 0 else LOWEST
