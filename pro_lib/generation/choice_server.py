"""A judge behind an OpenAI-compatible server, which is asked for one letter.

Servers of chat models do not return the probability of a given text. They list the likeliest tokens
of their reply, so the judge is asked to reply with a letter, and the probabilities of the letters
are read from that list.
"""

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from pro_lib.common.nested import inner_value
from pro_lib.common.validation import PositiveInt, SentenceError, checked
from pro_lib.generation.server_client import ROUNDING, Server, listed_tokens

_MOST_TOKENS = 4  # tokens of a chat reply: an opening bracket or a space may precede the letter


@checked
class ChoiceServer(Server):
    """A model behind a server that chooses between a few letters.

    Args:
        endpoint: `chat` for `/chat/completions`, or `completions` for `/completions`.
        top: number of log-probabilities requested for a token; most servers allow 20 at most.

    Example:
        >>> ChoiceServer("http://localhost:8000/v1", "llama").fingerprint
        'served by localhost, chat'
    """

    texts: tuple[str, ...] = ()
    top: PositiveInt = 20
    endpoint: Literal["chat", "completions"] = "chat"

    @property
    def name(self) -> str:
        """The server's name for the model."""
        return self.model

    @property
    def fingerprint(self) -> str:
        """The host and the endpoint, which stand for the model's weights."""
        return f"served by {urlsplit(self.base_url).hostname}, {self.endpoint}"

    @property
    def reply_settings(self) -> dict[str, Any]:
        """The whole address, and the length of the lists that are requested."""
        return {"base_url": self.base_url.rstrip("/"), "top": self.top}

    @property
    def prompts_at_once(self) -> int:
        """How many prompts are sent before their replies are stored."""
        return self.concurrency

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
                content = f"{prompt}\n\nReply with {' or '.join(letters)} only."
                fields = {
                    "messages": [{"role": "user", "content": content}],
                    "logprobs": True,
                    "top_logprobs": self.top,
                    "max_tokens": _MOST_TOKENS,
                }
                reply = connection.post(fields, "chat/completions")
            else:
                reply = connection.post({"prompt": prompt + beginning, "logprobs": self.top})
            return _letter_log_probs(reply, letters)

        with self.connect() as connection, ThreadPoolExecutor(self.concurrency) as pool:
            rows = list(pool.map(log_probs, prompts))
        return np.array(rows).reshape(len(prompts), len(letters))


def _letter_log_probs(reply: object, letters: Sequence[str]) -> list[float]:
    """Return the log-probability of each letter, which several tokens may show ("A", "A)")."""
    masses = dict.fromkeys(letters, 0.0)
    weight = 1.0  # probability of the tokens before the letter
    for place in range(_MOST_TOKENS):
        for text, probability in _listed_probabilities(reply, place):
            shown = re.fullmatch(r"[\s(\[\"'*]*(\w+)[\s)\].\"'*:]*", text)
            if shown and shown[1] in masses:
                masses[shown[1]] += weight * probability
        token = inner_value(reply, "choices", 0, "logprobs", "content", place)
        log_prob = inner_value(token, "logprob")
        is_opening = re.fullmatch(r"[\s(\[\"'*]*", str(inner_value(token, "token")))
        if not is_opening or not _is_log_prob(log_prob):
            break
        weight *= math.exp(log_prob)
    return [math.log(mass) if mass else math.nan for mass in masses.values()]


def _listed_probabilities(reply: object, place: int) -> list[tuple[str, float]]:
    """Return the tokens listed at a place of a reply; none if an entry has no log-probability."""
    pairs = listed_tokens(reply, "token", place)
    if not all(isinstance(text, str) and _is_log_prob(value) for text, value in pairs):
        return []
    probabilities = [(text, math.exp(value)) for text, value in pairs]
    total = sum(probability for _, probability in probabilities)
    return probabilities if total <= 1 + ROUNDING else []


def _is_log_prob(value: Any) -> bool:
    """Return whether a value of a reply is a log-probability."""
    return type(value) in (int, float) and value <= ROUNDING
