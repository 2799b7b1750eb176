"""The client of a server that lists likely next tokens: requests, retries, the server's identity.

Every request for tokens is `POST {base_url}/completions` with a prompt of token ids, one token to
generate and `logprobs`, as llama.cpp, vLLM and similar servers support it.
"""

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import numpy as np
from pydantic_core import from_json

from pro_lib.common.files import RunError, sha256
from pro_lib.common.nested import as_items, inner_value
from pro_lib.common.validation import (
    NotNegative,
    Positive,
    PositiveInt,
    SentenceError,
    checked,
    extra,
    rule,
)
from pro_lib.runs.parameters import largest_difference

with extra("server", "asking a server"):
    import httpx
    import tenacity

if TYPE_CHECKING:
    import ssl

_logger = logging.getLogger(__name__)
_TRIES = 5
_TEMPORARY = (429, 502, 503, 504)  # HTTP statuses of a server that may answer later
# The seconds before the next try if the server does not say how many.
_BACKOFF = tenacity.wait_random_exponential(multiplier=0.2, max=5.0)
ROUNDING = 1e-3  # by how much probabilities may add up to more than 1
LOWEST = -1e4  # stands for the logarithm of 0
_N_STORED = 20  # number of likely tokens of the probe that are stored
_SAMPLED_LIST = ("choices", 0, "logprobs", "content", 0, "top_probs")  # of llama.cpp
# The prompts of the probe. No model is certain of the token after the first two prompts; most
# models are certain of the token after the third.
PROBE_PROMPTS = (
    "Here is a word:",
    "Question: Name a word.\nAnswer:",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,",
)
_PROBE_TOLERANCE = 0.01  # nats by which the probes of one server may differ after a restart
# llama.cpp rounds differently if a part of the prompt is in its cache.
_UNCACHED = {"cache_prompt": False}
_SAMPLING = {"temperature": 0.5, "top_p": 0.5}
# Fields of the entry in /models and of /props that describe the model and survive a restart.
_MODEL_FIELDS = ("id", "root", "parent", "owned_by", "max_model_len", "meta")
_PROPS_FIELDS = ("model_path", "bos_token", "eos_token")
_WORDS = "must be printable text and not be empty"
_NotEmpty = Annotated[str, rule(str, lambda text: text.strip() and text.isprintable(), _WORDS)]


@checked
class Server:
    """The settings of a server: how it is queried, and how exact its lists are taken to be.

    Args:
        base_url: address of the API, such as `http://localhost:8000/v1`.
        model: the server's full name for the model.
        texts: the texts of the model's tokens, by token id.
        top: number of log-probabilities in the first list requested for a prefix. A longer list
            follows if this one does not show whether some event reaches α.
        epsilon: nats. If lists for the same prefix differ by more, the prefix is undecided.
            Otherwise each value is taken to be within `epsilon` of the model's own.
        repeats: number of lists requested for each prefix.
        concurrency: number of prefixes requested at the same time.
        timeout: seconds to wait for a connection, and for each part of a reply.
        api_key_env: environment variable that holds the key; no error, file or log shows the key.
        longest_wait: seconds. If a server answers 429 or 503 with `Retry-After`, the request is
            repeated after that time; if that is longer than `longest_wait`, an error says so.
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
            # The address itself may contain a key, so the message does not show it.
            raise ValueError(f"base_url must be an address such as {example}")
        port = self.base_url.split("/")[2].partition(":")[2]
        if port and not 1 <= int(port) <= 65535:
            raise ValueError(f"base_url has port {port}; a port is a number from 1 to 65535")

    @contextmanager
    def connect(self) -> "Iterator[Connection]":
        """Yield an open connection."""
        key = self._key()
        headers = {"Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        with httpx.Client(
            headers=headers, timeout=self.timeout, trust_env=False, verify=_ssl_context()
        ) as client:
            yield Connection(self, client)

    def _key(self) -> str:
        """Return the key, or "" if there is none."""
        key = os.environ.get(self.api_key_env, "")
        if key and not re.fullmatch(r"[!-~]+", key):
            words = "contains white space or a character that is not ASCII; set it to the key alone"
            raise SentenceError(f"environment variable {self.api_key_env} (api_key_env) {words}")
        return key

    def request_list(
        self, connection: "Connection", prefix: Sequence[int], n_tokens: int, **sampling: Any
    ) -> dict[int, float]:
        """Return the log-probabilities of the likeliest next tokens.

        Args:
            connection: the connection that `connect` yields.
            prefix: token ids of the prompt.
            n_tokens: length of the list to request.
            sampling: other fields of the request, such as `temperature` (0 by default).

        Returns:
            Log-probabilities in nats by token id, the likeliest token first.

        Raises:
            RunError: the reply is not a list of log-probabilities, or belongs to another prompt
                or tokenizer.
        """
        fields = {"prompt": list(prefix), "logprobs": n_tokens, "return_tokens_as_token_ids": True}
        reply = connection.post(fields | sampling)
        pairs = listed_tokens(reply, "id")
        log_probs = _by_token_id(pairs)
        fault = _list_fault(reply, log_probs, len(pairs))
        # A model may have a few unused tokens more than its tokenizer. A likely one leaves a gap.
        log_probs = {token: value for token, value in log_probs.items() if token < len(self.texts)}
        fault = fault or _gap(log_probs, n_tokens, len(self.texts))
        if not fault and inner_value(reply, "usage", "prompt_tokens") not in (None, len(prefix)):
            fault = "counts other prompt tokens than were sent"
        # At a temperature above 0 any token may be the generated one.
        is_sampled = sampling.get("temperature", 0) > 0
        if not fault and not self._has_known_tokens(reply, log_probs, is_sampled=is_sampled):
            fault = "has other tokens than the tokenizer"
        if fault:
            how_to_start = "docs/how_to/use_a_server.md says how servers must be started"
            raise RunError(f"{self.base_url} {fault}; {how_to_start}")
        return {token: min(max(value, LOWEST), 0.0) for token, value in log_probs.items()}

    def _has_known_tokens(
        self, reply: object, log_probs: dict[int, float], *, is_sampled: bool
    ) -> bool:
        """Return whether the generated text is one of the likeliest tokens of the tokenizer."""
        # A sampled text may be any token, and a text with a replacement character is a part of a
        # character; neither is compared.
        likeliest = [*log_probs][:3]
        text = str(inner_value(reply, "choices", 0, "text") or "").strip()
        if is_sampled or not text or "\ufffd" in text:
            return True
        return text in [self.texts[token].strip() for token in likeliest]

    def identity(self, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return values for JSON that identify the model behind the server.

        They are its name, the host without the port, the server's description of the model, and
        the log-probabilities after a few prompts.

        Args:
            prompts: token ids of the probe's prompts.

        Raises:
            RunError: the server cannot be used.
        """
        with self.connect() as connection:
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

    def _description(self, connection: "Connection") -> dict[str, Any]:
        """Return the server's description of its model, from `/models` and llama.cpp's `/props`."""
        base = self.base_url.rstrip("/")
        entries = inner_value(connection.get(f"{base}/models"), "data")
        entries = entries if isinstance(entries, list) else []
        matches = [entry for entry in entries if inner_value(entry, "id") == self.model]
        if not matches and len(entries) == 1:
            matches = entries  # llama.cpp has one model, which answers to every name
        entry = matches[0] if matches else None
        values = {name: inner_value(entry, name) for name in _MODEL_FIELDS}
        props = connection.get(f"{base.removesuffix('/v1')}/props")
        values |= {name: inner_value(props, name) for name in _PROPS_FIELDS}
        values["n_ctx"] = inner_value(props, "default_generation_settings", "n_ctx")
        template = inner_value(props, "chat_template")
        if isinstance(template, str):
            values["chat_template"] = short_digest(template)
        return {name: self._storable(value) for name, value in values.items() if value is not None}

    def _storable(self, value: Any) -> Any:
        """Return a value of a description without the key, or its digest if it is long."""
        text = json.dumps(value, sort_keys=True)
        key = json.dumps(self._key())[1:-1]
        if len(key) >= 16:  # shorter keys are words such as "none", which servers ignore
            text = text.replace(key, "***")
        is_finite = not re.search(r"NaN|Infinity", text)
        return json.loads(text) if len(text) <= 1000 and is_finite else short_digest(text)

    def _probe(
        self, connection: "Connection", prompts: Sequence[Sequence[int]]
    ) -> list[dict[str, float]]:
        """Return the log-probabilities of the likeliest tokens after each prompt, by token id."""
        n_tokens = min(self.top, len(self.texts))
        lists = [self.request_list(connection, prompt, n_tokens, **_UNCACHED) for prompt in prompts]
        why = self._why_cut(lists, n_tokens)
        why = why or self._why_sampled(connection, prompts[0], lists[0], n_tokens)
        if why:
            remedy = "start vLLM with --logprobs-mode raw_logprobs, and llama.cpp without "
            remedy += "post_sampling_probs and sampler options"
            problem = f"does not list the model's own probabilities: {why}"
            raise RunError(f"{self.base_url} {problem}; {remedy}")
        return [_rounded(log_probs) for log_probs in lists]

    def _why_cut(self, lists: Sequence[dict[int, float]], n_tokens: int) -> str:
        """Return in what way lists are cut and then normalised, or "" if they are not."""
        # After a prompt with many possible continuations, the tokens that are not in a short list
        # have some probability. So lists are cut if all of them are short and complete, or if one
        # is complete and much shorter than another, which a server's limit does not explain.
        possible_values = [_possible_values(log_probs) for log_probs in lists]
        lengths = [len(values) for values in possible_values]
        is_complete = [sum(np.exp(values)) > 1 - 1e-4 for values in possible_values]
        short = min(max(n_tokens, 200), len(self.texts)) / 2
        if all(is_complete) and max(lengths) == 1:
            return "one token has the probability 1, as after temperature 0"
        complete = [length for length, whole in zip(lengths, is_complete, strict=True) if whole]
        is_short = all(is_complete) and max(lengths) < short
        if is_short or (complete and min(complete) < max(lengths) / 2):
            total = f"{min(complete)} tokens have the probability 1 together"
            return f"{total}, as after top_k, top_p or min_p"
        return ""

    def _why_sampled(
        self,
        connection: "Connection",
        prompt: Sequence[int],
        log_probs: dict[int, float],
        n_tokens: int,
    ) -> str:
        """Return in what way the list of a prompt depends on the sampling settings, or ""."""
        # If two lists of the same request differ about as much, the server is noisy instead; then
        # the search reports its questions as undecided.
        sampled = self.request_list(connection, prompt, n_tokens, **_UNCACHED, **_SAMPLING)
        first_difference = largest_difference(log_probs, sampled)
        if first_difference <= self.epsilon:
            return ""
        again = self.request_list(connection, prompt, n_tokens, **_UNCACHED)
        difference = min(first_difference, largest_difference(again, sampled))
        noise = largest_difference(log_probs, again)
        if difference <= max(self.epsilon, 3 * noise):
            return ""
        settings = " and ".join(f"{name} {value}" for name, value in _SAMPLING.items())
        return f"they change by {difference:.2g} nats when a request has {settings}"


@cache
def _ssl_context() -> "ssl.SSLContext":
    """Return the certificates of all clients."""
    # A search opens many, and reading them is slow.
    return httpx.create_ssl_context(trust_env=False)


@dataclass(frozen=True)
class Connection:
    """An open connection to a server, which threads may share."""

    server: Server
    client: httpx.Client

    def post(self, fields: dict, path: str = "completions") -> object:
        """Return the JSON reply to a request for one token.

        Args:
            fields: the fields of the request, in addition to the model and the defaults.
            path: the path of the API below `base_url`.

        Raises:
            RunError: there is no reply.
        """
        body = {"model": self.server.model, "max_tokens": 1, "temperature": 0, **fields}
        return self._repeated(f"{self.server.base_url.rstrip('/')}/{path}", body)

    def get(self, address: str) -> object:
        """Return the JSON at an address, or None if the server has none there."""
        return self._repeated(address, None)

    def _repeated(self, address: str, body: dict | None) -> object:
        """Return the reply to a request, which is repeated while another try may help."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_help),
            wait=_seconds_to_wait,
            stop=tenacity.stop_after_attempt(_TRIES),
            before_sleep=self._log_try,
            reraise=True,
        )
        try:
            return retrying(self._reply, address, body)
        except (httpx.HTTPError, ValueError) as error:
            failure = self._failure(error)
        # An error raised in the `except` clause would show the server's text as its context.
        raise RunError(f"{self.server.base_url} {failure}")

    def _reply(self, address: str, body: dict | None) -> object:
        """Return the JSON reply to one request, None if there is no page to get."""
        if body is not None:
            response = self.client.post(address, json=body)
            return from_json(response.raise_for_status().content)
        response = self.client.get(address)
        if response.status_code in _TEMPORARY:
            response.raise_for_status()
        with suppress(ValueError):
            return from_json(response.content) if response.is_success else None
        return None

    def _may_help(self, error: BaseException) -> bool:
        """Return whether another try may help. A server refuses the same request again."""
        if not isinstance(error, httpx.HTTPStatusError):
            return isinstance(error, (httpx.HTTPError, ValueError))
        status = error.response.status_code
        is_soon = (_retry_after(error) or 0.0) <= self.server.longest_wait
        return is_soon and (status == 429 or status >= 500)

    def _log_try(self, state: tenacity.RetryCallState) -> None:
        """Log the reason of a failed try in a few words, without any text from the server."""
        error = _error_of(state)
        reason = f"no complete answer ({type(error).__name__})"
        if isinstance(error, httpx.HTTPStatusError):
            reason = f"HTTP status {error.response.status_code}"
        words = "%s: %s; trying again in %.1f s (try %d of %d)"
        url = self.server.base_url
        _logger.warning(words, url, reason, state.upcoming_sleep, state.attempt_number + 1, _TRIES)

    def _failure(self, error: Exception) -> str:
        """Name the problem and a remedy, without any text from the server."""
        if not isinstance(error, httpx.HTTPStatusError):
            return f"gives no complete answer in {_TRIES} tries ({type(error).__name__})"
        server = self.server
        status = error.response.status_code
        failure = f"answers with HTTP status {status}"
        seconds = _retry_after(error) or 0.0
        if seconds > server.longest_wait:
            limit = f"longest_wait={server.longest_wait:g} s"
            return f"{failure} and asks to wait {seconds:,.0f} s, longer than {limit}"
        if status in (401, 403):
            return f"{failure}; the key is taken from environment variable {server.api_key_env}"
        if status in (400, 422):
            remedy = f"lower top={server.top} or raise the limit (vLLM: --max-logprobs)"
            return f"{failure}; if lists are limited, {remedy}"
        return failure


def listed_tokens(reply: object, key: str, place: int = 0) -> list[tuple[Any, Any]]:
    """Return the tokens that a reply lists at a place, as pairs of a token and its value.

    The token is the value of `key`, or the name if a text completion lists tokens by their names.
    """
    log_probs = inner_value(reply, "choices", 0, "logprobs")
    listing = inner_value(log_probs, "content", place, "top_logprobs")
    if listing is None:
        listing = inner_value(log_probs, "top_logprobs", place)
    if isinstance(listing, dict):
        return list(listing.items())
    return [(inner_value(item, key), inner_value(item, "logprob")) for item in as_items(listing)]


def _by_token_id(pairs: Sequence[tuple[Any, Any]]) -> dict[int, float]:
    """Return the values of the pairs that have a token id and a number, the likeliest first."""
    log_probs: dict[int, float] = {}
    for name, value in pairs:
        token = str(name).removeprefix("token_id:")
        if type(value) in (float, int) and re.fullmatch(r"\d{1,9}", token, re.ASCII):
            log_probs[int(token)] = float(value)
    return dict(sorted(log_probs.items(), key=lambda item: -item[1]))


def _list_fault(reply: object, log_probs: dict[int, float], n_listed: int) -> str:
    """Return why a reply is not a list of the model's log-probabilities, or "" if it is one."""
    if inner_value(reply, *_SAMPLED_LIST) is not None:
        return "lists probabilities after sampling (post_sampling_probs)"
    if not log_probs or len(log_probs) < n_listed:
        return "lists no log-probabilities by token id"
    if not all(value <= ROUNDING for value in log_probs.values()):
        return "lists values that are not log-probabilities"
    if sum(np.exp([*log_probs.values()])) > 1 + ROUNDING:
        return "lists probabilities that add up to more than 1"
    return ""


def _gap(log_probs: dict[int, float], n_requested: int, n_tokens: int) -> str:
    """Return in what way a list leaves out a likely token, or "" if it does not."""
    # A token that is not listed is at most as likely as the last of the requested ones.
    if not log_probs:
        return "has other tokens than the tokenizer"
    probabilities = np.exp([*log_probs.values()])
    least = probabilities[min(n_requested, len(probabilities)) - 1]
    n_others = n_tokens - len(probabilities)
    rest = 1 - probabilities.sum()
    if rest <= n_others * least + ROUNDING:
        return ""
    return (
        f"leaves out a likely token: its list lacks the probability {rest:.2g}, which the "
        f"{n_others:,} tokens that are not listed cannot have"
    )


def _possible_values(log_probs: dict[int, float]) -> list[float]:
    """Return the log-probabilities of the tokens whose probability is not 0."""
    return [value for value in log_probs.values() if value > LOWEST / 10]


def _rounded(log_probs: dict[int, float]) -> dict[str, float]:
    """Return the likeliest tokens and their log-probabilities, as they are stored."""
    likeliest = [*log_probs.items()][:_N_STORED]
    return {str(token): round(value, 6) for token, value in likeliest}


def _error_of(state: tenacity.RetryCallState) -> Any:
    """Return the error of the last try."""
    return state.outcome and state.outcome.exception()


def _seconds_to_wait(state: tenacity.RetryCallState) -> float:
    """Return how many seconds to wait before the next try."""
    seconds = _retry_after(_error_of(state))
    return _BACKOFF(state) if seconds is None else seconds


def _retry_after(error: Exception) -> float | None:
    """Return the seconds that a server asks to wait, or None."""
    # They are in `Retry-After` of an answer with status 429 or 503, as a number or a date.
    if not isinstance(error, httpx.HTTPStatusError) or error.response.status_code not in (429, 503):
        return None
    headers = error.response.headers
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value, re.ASCII):
        return float(value)
    until = parsedate_tz(value)
    if until is None:
        return None
    now = parsedate_tz(headers.get("Date", ""))  # this machine's clock may be wrong
    return max(0.0, mktime_tz(until) - (mktime_tz(now) if now else time.time()))


def short_digest(text: str) -> str:
    """Return 16 digits of the SHA-256 of a text."""
    return sha256(text.encode())[:16]
