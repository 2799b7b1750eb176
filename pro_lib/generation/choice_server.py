"""A judge behind an OpenAI-compatible server, which is asked for one letter.

Servers of chat models do not return the probability of a given text. They list the likeliest tokens
of their reply, so the judge is asked to reply with a letter, and the probabilities of the letters
are read from that list.
"""

import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from pro_lib.common.nested import as_items, inner_value
from pro_lib.common.validation import SentenceError
from pro_lib.generation.server_client import ROUNDING, Connection, Server

_TOP = 20  # length of the list that most servers allow
_MOST_TOKENS = 4  # tokens of a chat reply: an opening bracket or a space may precede the letter

# The likely tokens at one place of a reply with their probabilities, times that of the place.
_Listing = list[tuple[str, float]]


@dataclass(frozen=True)
class ChoiceServer:
    """A model behind a server that chooses between a few letters.

    Attributes:
        name: the server's name for the model.
        endpoint: `chat` for `/chat/completions`, or `completions` for `/completions`.
        server: the settings of the connection.
    """

    name: str
    endpoint: Literal["chat", "completions"]
    server: Server = field(repr=False)

    def __post_init__(self) -> None:
        """Check the endpoint."""
        if self.endpoint not in ("chat", "completions"):
            raise ValueError(f"endpoint={self.endpoint!r} is unknown; choose chat or completions")

    @property
    def fingerprint(self) -> str:
        """The host and the endpoint, which stand for the model's weights."""
        return f"served by {urlsplit(self.server.base_url).hostname}, {self.endpoint}"

    @property
    def reply_settings(self) -> dict[str, Any]:
        """The whole address, and the length of the lists that are requested."""
        return {"base_url": self.server.base_url.rstrip("/"), "top": self.server.top}

    @property
    def prompts_at_once(self) -> int:
        """How many prompts are sent before their replies are stored."""
        return self.server.concurrency

    def choice_log_probs(
        self, prompts: Sequence[str], choices: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return log P(letter | prompt) in nats, (n, C); NaN for a letter that is not listed.

        Args:
            prompts: n prompts.
            choices: C choices, each with one letter or word, such as " (A)" and " (B)".

        Raises:
            SentenceError: two choices have the same letter, or one has none.
            RunError: the server does not answer.
        """
        letters = ["".join(re.findall(r"\w", choice)) for choice in choices]
        if len(set(letters)) < len(letters) or "" in letters:
            raise SentenceError(f"choices={list(choices)!r} must have a different letter each")
        beginning = choices[0][: choices[0].index(letters[0])]

        def log_probs(prompt: str) -> list[float]:
            if self.endpoint == "chat":
                instruction = f"\n\nReply with {' or '.join(letters)} only."
                listings = list(_chat_listings(connection, prompt + instruction))
            else:
                listings = [_completion_listing(connection, prompt + beginning)]
            return _letter_log_probs(listings, letters)

        with (
            self.server.connect() as connection,
            ThreadPoolExecutor(self.server.concurrency) as pool,
        ):
            rows = list(pool.map(log_probs, prompts))
        return np.array(rows).reshape(len(prompts), len(letters))


def connect_choice_server(
    base_url: str,
    *,
    model: str,
    endpoint: Literal["chat", "completions"] = "chat",
    top: int = _TOP,
    **options: Any,
) -> ChoiceServer:
    """Return a judge behind an OpenAI-compatible server. Nothing is sent yet.

    Args:
        base_url: address of the API, such as `http://localhost:8000/v1`.
        model: the server's name for the model.
        endpoint: `chat` for `/chat/completions`, or `completions` for `/completions`.
        top: number of log-probabilities requested for a token; most servers allow 20 at most.
        options: further settings of `server_client.Server`: concurrency, timeout, api_key_env and
            longest_wait.

    Raises:
        ValueError: an option has an invalid value.

    Example:
        >>> connect_choice_server("http://localhost:8000/v1", model="llama").fingerprint
        'served by localhost, chat'
    """
    server = Server(base_url=base_url, model=model, texts=(), top=top, **options)
    return ChoiceServer(model, endpoint, server)


def _chat_listings(connection: Connection, text: str) -> Iterator[_Listing]:
    """Yield the likely tokens at each place of a chat reply, up to the letter."""
    fields = {
        "messages": [{"role": "user", "content": text}],
        "logprobs": True,
        "top_logprobs": connection.server.top,
        "max_tokens": _MOST_TOKENS,
        "temperature": 0,
    }
    reply = connection.post(fields, "chat/completions")
    weight = 1.0  # probability of the tokens before the letter
    for token in as_items(inner_value(reply, "choices", 0, "logprobs", "content")):
        yield _listing(inner_value(token, "top_logprobs"), weight)
        log_prob = inner_value(token, "logprob")
        is_opening = re.fullmatch(r"[\s(\[\"'*]*", str(inner_value(token, "token")))
        if not is_opening or not _is_log_prob(log_prob):
            return
        weight *= math.exp(log_prob)


def _completion_listing(connection: Connection, prompt: str) -> _Listing:
    """Return the likely tokens after a prompt."""
    fields = {"prompt": prompt, "logprobs": connection.server.top, "temperature": 0}
    listed = inner_value(connection.post(fields), "choices", 0, "logprobs", "top_logprobs", 0)
    if isinstance(listed, dict):
        listed = [{"token": text, "logprob": value} for text, value in listed.items()]
    return _listing(listed, 1.0)


def _listing(entries: object, weight: float) -> _Listing:
    """Return the listed tokens; none if an entry is not a token with a log-probability."""
    pairs: _Listing = []
    for entry in as_items(entries):
        text = inner_value(entry, "token")
        log_prob = inner_value(entry, "logprob")
        if not isinstance(text, str) or not _is_log_prob(log_prob):
            return []
        pairs.append((text, weight * math.exp(log_prob)))
    total = sum(probability for _, probability in pairs)
    return pairs if total <= weight * (1 + ROUNDING) else []


def _letter_log_probs(listings: Sequence[_Listing], letters: Sequence[str]) -> list[float]:
    """Return the log-probability of each letter, which several tokens may show ("A", "A)")."""
    masses = dict.fromkeys(letters, 0.0)
    for listing in listings:
        for text, probability in listing:
            shown = re.fullmatch(r"[\s(\[\"'*]*(\w+)[\s)\].\"'*:]*", text)
            if shown and shown[1] in masses:
                masses[shown[1]] += probability
    return [math.log(mass) if mass else math.nan for mass in masses.values()]


def _is_log_prob(value: Any) -> bool:
    """Return whether a value of a reply is a log-probability."""
    return type(value) in (int, float) and value <= ROUNDING
