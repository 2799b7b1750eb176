"""A judge behind an OpenAI-compatible server, which is asked for one letter.

Servers of chat models do not return the probability of a given text. They list the likeliest tokens
of their reply, so the judge is asked to reply with a letter, and the probabilities of the letters
are read from that list.
"""

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from pro_lib.common.nested import inner_value
from pro_lib.common.validation import SentenceError
from pro_lib.generation.server_client import ROUNDING, Connection, Server

ENDPOINTS = ("chat", "completions")
_TOP = 20  # length of the list that most servers allow
_MOST_TOKENS = 4  # tokens of a chat reply: an opening bracket or a space may precede the letter
_ECONOMY = {"temperature": 0}

_Listing = list[tuple[str, float]]  # texts of likely tokens, and their log-probabilities


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

    @property
    def fingerprint(self) -> str:
        """The host and the endpoint, which stand for the model's weights."""
        return f"served by {urlsplit(self.server.base_url).hostname}, {self.endpoint}"

    @property
    def reply_settings(self) -> dict[str, Any]:
        """The whole address, and the length of the lists that are requested."""
        return {"base_url": self.server.base_url.rstrip("/"), "top": self.server.top}

    @property
    def is_only_server(self) -> bool:
        """Whether the host has no other server, as hosts of the web have one port for HTTPS.

        Replies of earlier versions are stored with the host alone.
        """
        address = urlsplit(self.server.base_url)
        return address.scheme == "https" and address.port is None

    @property
    def prompts_at_once(self) -> int:
        """How many prompts are sent before their values are stored."""
        return self.server.concurrency

    def choice_log_probs(
        self, prompts: Sequence[str], choices: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return log P(letter | prompt) in nats, (n, C), as `listed_log_probs` explains them."""
        return self.listed_log_probs(prompts, choices)[0]

    def listed_log_probs(
        self, prompts: Sequence[str], choices: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return log P(letter | prompt) in nats, (n, C), and which letters the server lists.

        A letter that is not listed beside another one has the largest probability that the list
        leaves for it. A prompt whose reply lists no letter has NaN.

        Args:
            prompts: n prompts.
            choices: C choices, each with one letter or word, such as " (A)" and " (B)".

        Raises:
            SentenceError: two choices have the same letter, or one has none.
            RunError: the server does not answer.
        """
        letters = [_letter(choice) for choice in choices]
        if len(set(letters)) < len(letters) or "" in letters:
            raise SentenceError(f"choices={list(choices)!r} must have a different letter each")
        read = self._read_chat if self.endpoint == "chat" else self._read_completion
        with (
            self.server.connect() as connection,
            ThreadPoolExecutor(self.server.concurrency) as pool,
        ):
            rows = [*pool.map(lambda prompt: read(connection, prompt, choices, letters), prompts)]
        log_probs = np.array([row.log_probs() for row in rows]).reshape(-1, len(letters))
        is_listed = np.array([row.is_listed() for row in rows], bool).reshape(log_probs.shape)
        return log_probs, is_listed

    def _read_chat(
        self, connection: Connection, prompt: str, choices: Sequence[str], letters: Sequence[str]
    ) -> "_LetterMasses":
        """Return the probabilities of the letters in the reply of a chat model."""
        instruction = f"\n\nReply with {' or '.join(letters)} only."
        fields: dict[str, Any] = {
            "messages": [{"role": "user", "content": prompt + instruction}],
            "logprobs": True,
            "top_logprobs": self.server.top,
            "max_tokens": _MOST_TOKENS,
        }
        reply = connection.post(fields | _ECONOMY, "chat/completions")
        tokens = inner_value(reply, "choices", 0, "logprobs", "content")
        letters_read = _LetterMasses(letters)
        weight = 1.0  # probability of the tokens before the letter
        for token in tokens if isinstance(tokens, list) else []:
            letters_read.add(_listing(inner_value(token, "top_logprobs")), weight)
            log_prob = inner_value(token, "logprob")
            is_opening = re.fullmatch(r"[\s(\[\"'*]*", str(inner_value(token, "token")))
            if not is_opening or not _is_log_prob(log_prob):
                break
            weight *= math.exp(log_prob)
        return letters_read

    def _read_completion(
        self, connection: Connection, prompt: str, choices: Sequence[str], letters: Sequence[str]
    ) -> "_LetterMasses":
        """Return the probabilities of the letters after a prompt and their common beginning."""
        beginning = choices[0][: choices[0].index(letters[0])]
        fields = {"prompt": prompt + beginning, "logprobs": self.server.top}
        reply = connection.post(fields | _ECONOMY)
        listing = inner_value(reply, "choices", 0, "logprobs", "top_logprobs", 0)
        if isinstance(listing, dict):
            listing = [{"token": text, "logprob": value} for text, value in listing.items()]
        letters_read = _LetterMasses(letters)
        letters_read.add(_listing(listing), weight=1.0)
        return letters_read


class _LetterMasses:
    """The probabilities of letters, added up over the lists of a reply's tokens.

    Several tokens may show the same letter, such as "A", " A" and "A)".
    """

    def __init__(self, letters: Sequence[str]) -> None:
        """Begin with the probability 0 for each letter."""
        self.masses = dict.fromkeys(letters, 0.0)
        self.bound = 0.0  # the largest probability of a letter that no list contains

    def add(self, listing: _Listing, weight: float) -> None:
        """Add the probabilities in a list of likely tokens, times the probability of the place."""
        if not listing:
            return
        probabilities = [math.exp(value) for _, value in listing]
        for (text, _), probability in zip(listing, probabilities, strict=True):
            shown = re.fullmatch(r"[\s(\[\"'*]*(\w+)[\s)\].\"'*:]*", text)
            if shown and shown[1] in self.masses:
                self.masses[shown[1]] += weight * probability
        rest = max(1 - sum(probabilities), 0.0)
        self.bound += weight * min(rest, *probabilities)

    def log_probs(self) -> list[float]:
        """Return the log-probability of each letter, or NaN for all if none was listed."""
        if not any(self.masses.values()):
            return [math.nan] * len(self.masses)
        least = max(self.bound, math.exp(-100))
        return [math.log(mass or least) for mass in self.masses.values()]

    def is_listed(self) -> list[bool]:
        """Return whether each letter was listed. If none was, its value is NaN and no bound."""
        is_any_listed = any(self.masses.values())
        return [mass > 0 or not is_any_listed for mass in self.masses.values()]


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
        options: `concurrency`, `timeout` (seconds), `api_key_env` and `longest_wait` (seconds).
            The key is read from the environment variable `api_key_env`, `OPENAI_API_KEY` if it is
            not given. It is not written to a file, message or log.

    Raises:
        ValueError: an option has an invalid value.

    Example:
        >>> connect_choice_server("http://localhost:8000/v1", model="llama").fingerprint
        'served by localhost, chat'
    """
    if endpoint not in ENDPOINTS:
        raise ValueError(f"endpoint={endpoint!r} is unknown; choose {' or '.join(ENDPOINTS)}")
    server = Server(base_url=base_url, model=model, texts=(), top=top, **options)
    return ChoiceServer(model, endpoint, server)


def _letter(choice: str) -> str:
    """Return the letters and digits of a choice."""
    return "".join(re.findall(r"\w", choice))


def _listing(entries: object) -> _Listing:
    """Return the listed tokens.

    There are none if an entry is not a token with a log-probability.
    """
    pairs: _Listing = []
    for entry in entries if isinstance(entries, list) else []:
        text = inner_value(entry, "token")
        value = inner_value(entry, "logprob")
        if not isinstance(text, str) or not _is_log_prob(value):
            return []
        pairs.append((text, float(value)))  # type: ignore[arg-type]  # it is a number
    if sum(math.exp(value) for _, value in pairs) > 1 + ROUNDING:
        return []
    return pairs


def _is_log_prob(value: object) -> bool:
    """Return whether a value of a reply is a log-probability."""
    return type(value) in (int, float) and value <= ROUNDING  # type: ignore[operator]
