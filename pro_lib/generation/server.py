"""A model behind a server that lists the likeliest next tokens, for exact search.

Every question is `POST {base_url}/completions` with a prompt of token ids, one token to generate
and `logprobs`, as llama.cpp, vLLM and similar servers answer it. No weights are loaded here.
"""

import json
import logging
import math
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
import torch
from pydantic_core import from_json
from scipy.special import entr
from torch import Tensor
from transformers import AutoTokenizer

from pro_lib.common import catalog
from pro_lib.common.files import RunError, sha256
from pro_lib.common.validation import NotNegative, Positive, PositiveInt, SentenceError, checked, extra, rule
from pro_lib.generation import models
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.decoding.next_tokens import END, OTHER, UNSEEN, Children, Endings
from pro_lib.generation.decoding.packed_tree import Counts
from pro_lib.generation.models import Model
from pro_lib.importing.response_formats import at

with extra("server", "asking a server"):
    import anyio.from_thread
    import httpx
    import tenacity

_logger = logging.getLogger(__name__)
_TRIES = 5
# Seconds between tries, unless the server says how many.
_BACKOFF: Any = tenacity.wait_exponential(multiplier=0.1, max=5) + tenacity.wait_random(0, 1)
_MOST_BYTES = 2**27
_TEMPORARY = (429, 502, 503, 504)  # HTTP statuses of a server that may answer later
_ROUNDING = 1e-3  # by how much probabilities may add up to more than 1
_LOWEST = -1e4  # stands for the logarithm of 0
_MORE = 16  # so many times as many tokens are asked for where a list leaves something open
_COMPARED = 20  # tokens of a list that another list of the same place must agree with
_LISTS = "choices.0.logprobs.content.0.top_logprobs|choices.0.logprobs.top_logprobs.0"
_SAMPLED_LISTS = "choices.0.logprobs.content.0.top_probs"  # of llama.cpp
# The prompts of the probe. No model is certain of what follows the first two; most models are
# after the third.
_PROBE_PROMPTS = (
    "Here is a word:",
    "Question: Name a word.\nAnswer:",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,",
)
_PROBE_TOLERANCE = 0.01  # nats by which the probes of one server may differ after a restart
# llama.cpp rounds differently where a part of the prompt is in its cache.
_UNCACHED = {"cache_prompt": False}
_SAMPLING = {"temperature": 0.5, "top_p": 0.5}
# Fields of the entry in /models and of /props that describe the model and survive a restart.
_MODEL_FIELDS = ("id", "root", "parent", "owned_by", "max_model_len", "meta")
_PROPS_FIELDS = ("model_path", "bos_token", "eos_token")
_WORDS = "must be printable text and not be empty"
_NotEmpty = Annotated[str, rule(str, lambda text: text.strip() and text.isprintable(), _WORDS)]


@checked
class Server:
    """How a server is asked, and what is believed of its answers.

    Args:
        base_url: as `http://localhost:8000/v1`.
        model: the server's full name for the model.
        texts: the texts of the model's tokens.
        top: number of log-probabilities asked for at every place; more are asked for where a list
            does not show whether something reaches α.
        epsilon: nats. Where lists of one place differ by more, the place is undecided; otherwise
            each value is taken to be within `epsilon` of the model's own.
        repeats: number of times that each place is asked.
        concurrency: number of places that are asked at the same time.
        timeout: seconds for one try of a request.
        api_key_env: environment variable that holds the key; no error, file or log shows the key.
        longest_wait: seconds. A server that answers 429 or 503 with `Retry-After` is asked again
            after that time; if it asks for a longer wait than this, an error says so.
    """

    base_url: str
    model: _NotEmpty
    texts: tuple[str, ...] = field(repr=False)
    top: PositiveInt = 1000
    epsilon: NotNegative = 0.001
    repeats: PositiveInt = 2
    concurrency: PositiveInt = 1
    timeout: Positive = 60.0
    api_key_env: _NotEmpty = "OPENAI_API_KEY"
    longest_wait: NotNegative = 120.0

    def __post_init__(self) -> None:
        pattern = r"https?://[\w.-]+(:\d{1,5})?(/[\w./~-]*)?"
        if not re.fullmatch(pattern, self.base_url, re.ASCII):
            example = "http://localhost:8000/v1, without user, key or parameters"
            raise ValueError(f"base_url must be an address such as {example}")
        port = self.base_url.split("/")[2].partition(":")[2]
        if port and not 1 <= int(port) <= 65535:
            raise ValueError(f"base_url has port {port}; a port is a number from 1 to 65535")

    @contextmanager
    def asking(self) -> "Iterator[_Connection]":
        """Yield an open connection: called with the fields of a request, it returns the answer."""
        key = self._key()
        headers = {"Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        client = httpx.AsyncClient(headers=headers, timeout=self.timeout, trust_env=False)
        with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(client):
            yield _Connection(self, client, portal)

    def _key(self) -> str:
        """Return the key, or "" if there is none."""
        key = os.environ.get(self.api_key_env, "")
        if key and not re.fullmatch(r"[!-~]+", key):
            words = "contains white space or a character that is not ASCII; set it to the key alone"
            raise SentenceError(f"environment variable {self.api_key_env} (api_key_env) {words}")
        return key

    def listed(
        self, send: Callable[[dict], object], prefix: Sequence[int], n_tokens: int, **sampling: Any
    ) -> dict[int, float]:
        """Return the log-probabilities of the likeliest next tokens, downwards.

        Args:
            send: the connection that `asking` yields.
            prefix: token ids of the prompt.
            n_tokens: length of the list that is asked for.
            sampling: other fields of the request, such as `temperature` (0 by default).

        Raises:
            RunError: the answer is not a list of log-probabilities, or belongs to another prompt
                or tokenizer.
        """
        fields = {"prompt": list(prefix), "logprobs": n_tokens, "return_tokens_as_token_ids": True}
        reply = send(fields | sampling)
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
        is_sampled = sampling.get("temperature", 0) > 0  # then any token may be the generated one
        is_other_text = bool(text) and "\ufffd" not in text and text not in firsts
        wrong = {
            "lists probabilities after sampling (post_sampling_probs)": at(reply, _SAMPLED_LISTS) is not None,
            "lists no log-probabilities by token id": not values or len(values) < len(pairs),
            "lists values that are not log-probabilities": not all(p <= _ROUNDING for p in values.values()),
            "lists probabilities that add up to more than 1": sum(np.exp([*values.values()])) > 1 + _ROUNDING,
            "read another prompt than was sent": at(reply, "usage.prompt_tokens") not in (None, len(prefix)),
            "has other tokens than the tokenizer": not firsts or (is_other_text and not is_sampled),
        }
        if why := next((why for why, holds in wrong.items() if holds), ""):
            raise RunError(f"{self.base_url} {why}; docs/doors.md says how servers must be started")
        return {token: min(max(value, _LOWEST), 0.0) for token, value in likely}

    def identity(self, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return what identifies the model behind the server, as JSON can hold it.

        The port does not count. `prompts` are the token ids of the probe's prompts. Raises `RunError`
        if the server cannot be used.
        """
        with self.asking() as connection:
            description = self._description(connection)
            probe = self._probe(connection, prompts)
        within = max(_PROBE_TOLERANCE, self.epsilon)
        host = urlsplit(self.base_url).hostname
        return {
            "model": self.model,
            "host": host,
            "description": description,
            "probe": {"within": within, "log_probs": probe},
        }

    def _description(self, connection: "_Connection") -> dict[str, Any]:
        """Return what the server says of its model in `/models` and in llama.cpp's `/props`."""
        base = self.base_url.rstrip("/")
        entries = at(connection.get(f"{base}/models"), "data")
        entries = entries if isinstance(entries, list) else []
        named = [entry for entry in entries if at(entry, "id") == self.model]
        if not named and len(entries) == 1:
            named = entries  # llama.cpp has one model, which answers to every name
        entry = named[0] if named else None
        found = {name: at(entry, name) for name in _MODEL_FIELDS}
        props = connection.get(f"{base.removesuffix('/v1')}/props")
        found |= {name: at(props, name) for name in _PROPS_FIELDS}
        found["n_ctx"] = at(props, "default_generation_settings.n_ctx")
        template = at(props, "chat_template")
        if isinstance(template, str):
            found["chat_template"] = _digits(template)
        return {name: self._storable(value) for name, value in found.items() if value is not None}

    def _storable(self, value: Any) -> Any:
        """Return a value of a description without the key; its digest if it is long."""
        text = json.dumps(value, sort_keys=True)
        key = json.dumps(self._key())[1:-1]
        if len(key) >= 16:  # shorter keys are words such as "none", which servers ignore
            text = text.replace(key, "***")
        is_finite = not re.search(r"NaN|Infinity", text)
        return json.loads(text) if len(text) <= 1000 and is_finite else _digits(text)

    def _probe(self, connection: "_Connection", prompts: Sequence[Sequence[int]]) -> list[dict[str, float]]:
        """Return the log-probabilities of the likeliest tokens after each prompt, by token id.

        Raises `RunError` if the server lists other probabilities than those of the model.
        """
        n_tokens = min(self.top, len(self.texts))
        lists = [self.listed(connection, prompt, n_tokens, **_UNCACHED) for prompt in prompts]
        why = self._why_cut(lists, n_tokens)
        why = why or self._why_sampled(connection, prompts[0], lists[0], n_tokens)
        if why:
            help_ = "start vLLM with --logprobs-mode raw_logprobs, "
            help_ += "llama.cpp without post_sampling_probs and sampler options"
            raise RunError(f"{self.base_url} lists processed probabilities: {why}; {help_}")
        likeliest = [[*told.items()][:_COMPARED] for told in lists]
        return [{str(token): round(value, 6) for token, value in pairs} for pairs in likeliest]

    def _why_cut(self, lists: Sequence[dict[int, float]], n_tokens: int) -> str:
        """Return in what way lists are cut and then normalised, or "" if they are not.

        The tokens that a model leaves out of a short list have some probability after a prompt that leaves
        much open. So either all lists are short and complete, or one is complete and shorter than another,
        which no limit of a server explains.
        """
        possible = [[value for value in told.values() if value > _LOWEST / 10] for told in lists]
        lengths = [len(values) for values in possible]
        is_complete = [sum(np.exp(values)) > 1 - 1e-4 for values in possible]
        short = min(max(n_tokens, 200), len(self.texts)) / 2
        if all(is_complete) and max(lengths) == 1:
            return "one token has the probability 1, as after temperature 0"
        if all(is_complete) and max(lengths) < short:
            total = f"{max(lengths)} tokens have the probability 1 together"
            return f"{total}, as after top_k, top_p or min_p"
        complete = [length for length, whole in zip(lengths, is_complete, strict=True) if whole]
        if complete and min(complete) < max(lengths) / 2:
            total = f"{min(complete)} tokens have the probability 1 together"
            return f"{total}, as after top_p or min_p"
        return ""

    def _why_sampled(
        self, connection: "_Connection", prompt: Sequence[int], told: dict[int, float], n_tokens: int
    ) -> str:
        """Return in what way the list of a prompt depends on the sampling settings, or "".

        A server whose lists of one request differ about as much is noisy instead; its questions are
        undecided.
        """
        sampled = self.listed(connection, prompt, n_tokens, **_UNCACHED, **_SAMPLING)
        if _apart(told, sampled) <= self.epsilon:
            return ""
        again = self.listed(connection, prompt, n_tokens, **_UNCACHED)
        difference = min(_apart(told, sampled), _apart(again, sampled))
        if difference <= max(self.epsilon, 3 * _apart(told, again)):
            return ""
        settings = " and ".join(f"{name} {value}" for name, value in _SAMPLING.items())
        return f"they change by {difference:.2g} nats when a request has {settings}"

    async def post(self, client: httpx.AsyncClient, fields: dict) -> object:
        """Return the JSON answer to a request for one token; `RunError` if there is none."""
        address = f"{self.base_url.rstrip('/')}/completions"
        body = {"model": self.model, "max_tokens": 1, "temperature": 0, **fields}

        async def attempt() -> object:
            return from_json(await self._content(client, "POST", address, body))

        return await self._tried(attempt)

    async def get(self, client: httpx.AsyncClient, address: str) -> object:
        """Return the JSON at an address, or None if the server has none there."""

        async def attempt() -> bytes:
            try:
                return await self._content(client, "GET", address, None)
            except httpx.HTTPStatusError as error:
                if error.response.status_code in _TEMPORARY:
                    raise
                return b""

        content = await self._tried(attempt)
        try:
            return from_json(content)
        except ValueError:
            return None

    async def _tried(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Return what an attempt brings, repeated where that may help.

        No word of the server enters an error.
        """
        retrying = tenacity.AsyncRetrying(
            sleep=anyio.sleep,
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=_wait,
            retry=tenacity.retry_if_exception(self._may_pass),
            before_sleep=self._log_retry,
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except httpx.HTTPStatusError as error:
            why = self._refusal(error)
        except (httpx.HTTPError, ValueError, TimeoutError) as error:
            why = f"gives no complete answer in {_TRIES} tries ({type(error).__name__})"
        raise RunError(f"{self.base_url} {why}")

    async def _content(self, client: httpx.AsyncClient, method: str, address: str, body: dict | None) -> bytes:
        """Return the content of an answer; it has `timeout` seconds, however slowly it arrives."""
        content = bytearray()
        with anyio.fail_after(self.timeout):
            async with client.stream(method, address, json=body) as response:
                async for chunk in response.raise_for_status().aiter_raw():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise ValueError("the answer does not end")
        return bytes(content)

    def _may_pass(self, error: BaseException) -> bool:
        """Return whether another try may help: a server that refuses a request refuses it again."""
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            is_temporary = status == 429 or status >= 500
            return is_temporary and (_retry_after(error) or 0.0) <= self.longest_wait
        return isinstance(error, httpx.HTTPError | ValueError | TimeoutError)

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        """Log one sentence about a try that failed and the next one."""
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, httpx.HTTPStatusError):
            why = f"HTTP status {error.response.status_code}"
        else:
            why = f"no complete answer ({type(error).__name__})"
        seconds = state.next_action.sleep if state.next_action else 0.0
        words = "%s: %s; trying again in %.1f s (try %d of %d)"
        _logger.warning(words, self.base_url, why, seconds, state.attempt_number + 1, _TRIES)

    def _refusal(self, error: httpx.HTTPStatusError) -> str:
        """Return what a status other than 200 means, and what may help."""
        status = error.response.status_code
        why = f"answers with HTTP status {status}"
        seconds = _retry_after(error) or 0.0
        if seconds > self.longest_wait:
            limit = f"longest_wait={self.longest_wait:g} s"
            return f"{why} and asks to wait {seconds:,.0f} s, longer than {limit}"
        if status in (401, 403):
            return f"{why}; the key is taken from environment variable {self.api_key_env}"
        if status in (400, 422):
            help_ = f"lower top={self.top} or raise the limit (vLLM: --max-logprobs)"
            return f"{why}; if lists are limited, {help_}"
        return why


@dataclass(frozen=True)
class _Connection:
    """An open connection: called with the fields of a request, it returns the JSON answer."""

    server: Server
    client: httpx.AsyncClient
    portal: anyio.from_thread.BlockingPortal

    def __call__(self, fields: dict) -> object:
        return self.portal.call(self.server.post, self.client, fields)

    def get(self, address: str) -> object:
        """Return the JSON at an address, or None if the server has none there."""
        return self.portal.call(self.server.get, self.client, address)


def connect(base_url: str, *, model: str, tokenizer: Any, stop_ids: Sequence[int] = (), **options: Any) -> Model:
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
    fit = Fit(0.0, _Served.plain)
    name = _folder_name(model)
    served = _Served(name, base_url, fingerprint, nothing, tokenizer, endings, fit, server=server)
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
    return f"{name.lstrip('.')[:91]}-{_digits(model)[:8]}"


def _digits(text: str) -> str:
    """Return 16 digits of the SHA-256 of a text."""
    return sha256(text.encode())[:16]


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

    def parameters(self) -> dict[str, Any]:
        """Return what decides a run; the server is asked, so that a replaced one is noticed."""
        prompts = [self.encode(prompt) for prompt in _PROBE_PROMPTS]
        return super().parameters() | {"server": self.server.identity(prompts)}

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
        """Return what may follow, as `next_tokens.children` does of all log-probabilities.

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
        is_noisy = any(_apart(lists[0], other) > server.epsilon for other in lists[1:])
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


def _apart(first: dict[int, float], second: dict[int, float]) -> float:
    """Return the largest difference in nats between two lists of one place.

    The likeliest tokens of the first list are compared. A token that is missing from the second list
    is at most as likely as the last one of that list.
    """
    likeliest = [*first.items()][:_COMPARED]
    least = min(second.values())
    return max(abs(value - second.get(token, least)) for token, value in likeliest)


def _wait(state: tenacity.RetryCallState) -> float:
    """Return how many seconds to wait before the next try."""
    seconds = _retry_after(state.outcome.exception() if state.outcome else None)
    return _BACKOFF(state) if seconds is None else seconds


def _retry_after(error: BaseException | None) -> float | None:
    """Return the seconds that a server asks to wait, or None.

    They are in `Retry-After` of an answer with status 429 or 503, as a number or a date.
    """
    if not isinstance(error, httpx.HTTPStatusError) or error.response.status_code not in (429, 503):
        return None
    headers = error.response.headers
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    now = _date(headers.get("Date", "")) or datetime.now(UTC)  # the server's clock may be wrong
    return max(0.0, (until - now).total_seconds())


def _date(text: str) -> datetime | None:
    """Return the date of an HTTP header, or None if it is not one."""
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _log(p: float) -> float:
    return math.log(p) if p > 0 else _LOWEST
