"""A model behind a server that lists the likeliest next tokens, for exact search in `generate` and `ask`; no weights.

`POST {base_url}/completions` with a prompt of token ids, one token and `logprobs`: llama.cpp, vLLM and their like.
"""

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from pydantic_core import from_json
from scipy.special import entr
from torch import Tensor
from transformers import AutoTokenizer

from pro_lib import bundled, models
from pro_lib.checks import Name, NotNegative, Positive, PositiveInt, checked, extra
from pro_lib.engine.children import END, OTHER, UNSEEN, Children
from pro_lib.engine.fit import Fit
from pro_lib.engine.tree import Counts
from pro_lib.engine.walk import Endings
from pro_lib.files import RunError
from pro_lib.layouts import at
from pro_lib.models import Model

with extra("server", "asking a server"):
    import anyio.from_thread
    import httpx
    import stamina

_TRIES, _MOST_BYTES = 5, 2**27
_ROUNDING = 1e-3  # by how much probabilities may add up to more than 1
_MORE = 16  # so many times as many tokens are asked for where a list leaves something open
_COMPARED = 20  # tokens of a list that another list of the same place must agree with
_LISTS = "choices.0.logprobs.content.0.top_logprobs|choices.0.logprobs.top_logprobs.0"


@checked
class Server:
    """How a server is asked, and what of its answers is believed; `texts` are those of its tokens.

    `top` log-probabilities are asked for at every place, and more where a list leaves open what reaches α. A place is
    asked `repeats` times. Where lists are more than `epsilon` nats apart it is undecided; else each is taken to be
    within that of the model's own. The key in the environment variable `api_key_env` is sent, and shown nowhere.
    """

    base_url: str
    model: Name
    texts: tuple[str, ...] = field(repr=False)
    top: PositiveInt = 1000
    epsilon: NotNegative = 0.001
    repeats: PositiveInt = 2
    concurrency: PositiveInt = 1
    timeout: Positive = 60.0
    api_key_env: str = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[\w.-]+(:\d{1,5})?(/[\w./~-]*)?", self.base_url, re.ASCII):
            raise ValueError("base_url must be an address as http://localhost:8000/v1, without user, key or parameters")

    @contextmanager
    def asking(self) -> Iterator[Callable[[dict], object]]:
        """Yield what sends a request and returns what it brings, as `_reply` does."""
        key = os.environ.get(self.api_key_env)
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        client = httpx.AsyncClient(headers=headers, timeout=self.timeout, trust_env=False)
        with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
            yield partial(portal.call, self._reply, client)

    async def _reply(self, client: httpx.AsyncClient, options: dict) -> object:
        """Return what a request for one token brings, tried again where that may help.

        A try has `timeout` seconds, however slowly the answer drips. No word of the server enters an error.
        """
        body = {"model": self.model, "max_tokens": 1, "temperature": 0, **options}
        try:
            async for attempt in stamina.retry_context(on=_passes, attempts=_TRIES, timeout=None):
                with attempt, anyio.fail_after(self.timeout):
                    address, content = f"{self.base_url.rstrip('/')}/completions", bytearray()
                    async with client.stream("POST", address, json=body) as response:
                        async for chunk in response.raise_for_status().aiter_raw():
                            content += chunk
                            if len(content) > _MOST_BYTES:
                                raise ValueError("endless")
                    return from_json(bytes(content))
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            why = f"HTTP status {status}" + f"; the key is taken from {self.api_key_env}" * (status in (401, 403))
        except (httpx.HTTPError, ValueError, TimeoutError) as error:
            why = f"no whole answer in {_TRIES} tries, {type(error).__name__}"
        raise RunError(f"{self.base_url} refuses or fails: {why}")

    def listed(self, send: Callable[[dict], object], prefix: Sequence[int], n_tokens: int) -> dict[int, float]:
        """Return log-probabilities of the likeliest next tokens, downwards; `RunError` for what cannot be."""
        reply = send({"prompt": list(prefix), "logprobs": n_tokens, "return_tokens_as_token_ids": True})
        told = at(reply, _LISTS)
        if isinstance(told, list):
            pairs = [(str(at(token, "id")), at(token, "logprob")) for token in told]
        else:
            pairs = [*told.items()] if isinstance(told, dict) else []
        known = [(name.removeprefix("token_id:"), p) for name, p in pairs if type(p) in (float, int)]
        values = {int(name): float(p) for name, p in known if re.fullmatch(r"\d{1,9}", name, re.ASCII)}
        likely = sorted(values.items(), key=lambda pair: -pair[1])
        text = str(at(reply, "choices.0.text") or "").strip()
        firsts = [self.texts[token].strip() for token, _ in likely[:3] if token < len(self.texts)]
        is_other = not firsts or (text and "\ufffd" not in text and text not in firsts)
        wrong = {
            "lists no log-probabilities by token id": not values or len(values) < len(pairs),
            "lists what are no log-probabilities": not all(p <= _ROUNDING for p in values.values()),
            "lists probabilities that add up to more than 1": sum(np.exp([*values.values()])) > 1 + _ROUNDING,
            "read another prompt than was sent": at(reply, "usage.prompt_tokens") not in (None, len(prefix)),
            "has other tokens than the tokenizer": is_other,
        }
        if why := next((why for why, holds in wrong.items() if holds), ""):
            raise RunError(f"{self.base_url} {why}; docs/doors.md says how servers must be started")
        return {token: min(value, 0.0) for token, value in likely}


def connect(base_url: str, *, model: str, tokenizer: Any, stop_ids: Sequence[int] = (), **options: Any) -> Model:
    """Return the model of a server as one for `generate` and `ask`, with the strategy `threshold` alone.

    Args:
        base_url: as in `http://localhost:8000/v1`.
        model: the server's name for the model; runs are kept under its last part.
        tokenizer: the model's own as transformers has it, or the name or folder that it is loaded from.
        stop_ids: tokens that end an answer, beside the tokenizer's end of text and what holds a newline.
        options: `top`, `epsilon`, `repeats`, `concurrency`, `timeout` and `api_key_env`, as `Server` has them.
    """
    if isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(bundled.locate(str(tokenizer)))
    server = Server(base_url=base_url, model=model, texts=models.token_texts(tokenizer, len(tokenizer)), **options)
    more = SimpleNamespace(eos_token_id=list(stop_ids))
    endings = models.endings(tokenizer, models.NEWLINE, more, size=len(tokenizer))
    name, fingerprint = re.sub(r"[^\w.-]", "-", model.rpartition("/")[2]), f"served, within {server.epsilon:g} nats"
    nothing: Any = torch.nn.Identity()
    return _Served(name, base_url, fingerprint, nothing, tokenizer, endings, Fit(0.0, _Served.plain), server=server)


@dataclass(frozen=True)
class _Served(Model):
    """A model whose weights are elsewhere."""

    server: Server = field(kw_only=True, repr=False)
    device, dtype, quantization, plain = torch.device("cpu"), "served", None, "is asked through a server"

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

    def with_stop(self, stop):
        if stop:
            raise ValueError("stop= is not to be had over a server; connect(stop_ids=) names tokens that end an answer")
        return self

    def fit_for(self, n_tokens):
        return self

    def tree(self, network, prompts, *, prefix, counts):
        return ServerTree(self.server, prompts, counts)


class ServerTree:
    """A `Tree` whose rows are numbers of prefixes, and which itself asks what may follow them."""

    prefix_length, is_partial = 0, True

    def __init__(self, server: Server, prompts: Sequence[Sequence[int]], counts: Counts):
        self._server, self._prompts, self._counts = server, [tuple(prompt) for prompt in prompts], counts

    def plant(self) -> Tensor:
        """Return the numbers of the prompts."""
        self._rows = self._new = self._prompts
        return torch.arange(len(self._new))

    def grow(self, parents: Tensor, tokens: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Return the numbers of the children."""
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self._new = [(*self._rows[parent], token) for parent, token in pairs]
        self._rows = [self._rows[row] for row in (() if keep is None else keep.tolist())] + self._new
        self._counts.token_forwards += len(self._new)
        return torch.arange(len(self._new))

    def children(self, rows: Tensor, endings: Endings, floors: np.ndarray, greedy: np.ndarray) -> Children:
        """Return what may follow, as `children.children` does of all log-probabilities.

        The probability that a list leaves out is `UNSEEN` where an event at its row's floor may be in it, else `OTHER`.
        """
        with self._server.asking() as send, ThreadPoolExecutor(self._server.concurrency) as pool:
            prefixes, follow = [self._new[row] for row in rows.tolist()], partial(_events, self._server, send, endings)
            told = pool.map(follow, prefixes, floors.tolist(), greedy.tolist())
            events, entropy, best, n_requests = zip(*told, strict=True)
        self._counts.model_calls += sum(n_requests)
        of_rows = ((row, *event) for row, own in enumerate(events) for event in own)
        row, token, log_prob, completes = map(np.array, zip(*of_rows, strict=True))
        return Children(row, token, log_prob, completes, np.array(entropy), np.array(best))


def _events(
    server: Server, send: Callable, endings: Endings, prefix: tuple[int, ...], floor: float, greedy: bool
) -> tuple[list[tuple[int, float, bool]], float, int, int]:
    """Return what may follow a prefix, its entropy, what is likeliest, and the number of requests.

    Longer lists are asked for while one leaves open whether an event reaches the floor.
    """
    n_tokens, n_requests, (is_stop, is_closing) = server.top, 0, (table.numpy() for table in endings.on_host)
    while True:
        lists = [server.listed(send, prefix, min(n_tokens, len(is_stop))) for _ in range(server.repeats)]
        n_requests += len(lists)
        known = [(token, value) for token, value in lists[0].items() if token < len(is_stop)]
        ids, log_probs = map(np.array, zip(*known, strict=True))
        probs, stops = np.exp(log_probs), is_stop[ids]
        rest, ending = max(0.0, 1 - probs.sum()), probs[stops].sum()
        # No token that is left out is likelier than the last of those asked for.
        least = 0.0 if len(ids) == len(is_stop) else probs[min(n_tokens, len(ids)) - 1]
        hidden = min(rest + _ROUNDING, (is_stop.sum() - stops.sum()) * least)  # at most, of endings left out
        is_open = _log(min(rest + _ROUNDING, least)) >= floor  # a token left out may reach it
        is_open |= _log(ending + hidden) >= floor and hidden > math.expm1(server.epsilon) * ending  # or the ending may
        likeliest = [*lists[0].items()][:_COMPARED]
        apart = (value - other.get(token, min(other.values())) for other in lists[1:] for token, value in likeliest)
        is_noisy = max(map(abs, apart), default=0.0) > server.epsilon
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


def _passes(error: Exception) -> bool:
    """Return whether a request is worth another try: a server that refuses it does so again."""
    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 500
    return isinstance(error, httpx.HTTPError | ValueError | TimeoutError) and (status == 429 or status >= 500)


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -1e4
