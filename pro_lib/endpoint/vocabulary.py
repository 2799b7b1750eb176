"""How tokens are sent, read and sorted, and what a list of them keeps to itself; knows servers' layouts, no search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import AliasPath, Field, FiniteFloat

from pro_lib.base import texts
from pro_lib.base.checks import Format, Text, fitted
from pro_lib.endpoint.asking import Asking
from pro_lib.endpoint.noise import ROUNDING, Noise
from pro_lib.imports.responses import NOT_GIVEN
from pro_lib.storage import RunError

# As many tokens may be named in a request (vLLM's MAX_LOGPROB_TOKEN_IDS).
_MOST_NAMED = 128
# Noise may lift a log-probability above 0, but not so far.
_LogProb = Annotated[FiniteFloat, Field(le=1)]


class _Token(Format):
    token: Text = ""
    raw: list[Annotated[int, Field(ge=0, lt=256)]] | None = Field(None, validation_alias="bytes")
    id: Any = None
    logprob: _LogProb | None = None
    top_logprobs: list["_Token"] | None = None

    @property
    def text(self) -> str:
        return bytes(self.raw).decode("utf-8", "replace") if self.raw else self.token


def _within(name: str) -> Any:
    return Field(None, validation_alias=AliasPath("choices", 0, "logprobs", name))


class _Response(Format):
    """What is read of a response: OpenAI's layout, or that of chat (`content`), which llama.cpp uses here as well."""

    text: Text | None = Field(None, validation_alias=AliasPath("choices", 0, "text"))
    content: list[_Token] | None = _within("content")
    tokens: list[Text] | None = _within("tokens")
    top_logprobs: list[dict[Text, _LogProb] | None] | None = _within("top_logprobs")
    logprobs: Any = Field({}, validation_alias=AliasPath("choices", 0, "logprobs"))
    prompt_tokens: int | None = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))

    def chosen(self, where: str) -> _Token:
        """The token chosen, and with it those listed in its place: none where it is part of a character."""
        if self.logprobs is None:
            return _Token()
        if "content" in self.model_fields_set:
            return self.content[0] if self.content else _Token()
        if "top_logprobs" not in self.model_fields_set:
            raise RunError(f"{where}: logprobs are missing; the server must return those of the most probable tokens")
        first = (self.top_logprobs or [None])[0] or {}
        listed = [_Token(token=text, logprob=value) for text, value in first.items()]
        return _Token(token=(self.tokens or [""])[0], top_logprobs=listed)


class Token(NamedTuple):
    """A next token that the server listed; `id` is None where only texts are known.

    `kind`: `stop`, `closing` (text, then a newline), `open`, `broken` (no text that could be sent) or `unknown`.
    """

    text: str
    id: int | None
    log_prob: float
    kind: str

    @property
    def prob(self) -> float:
        """Its probability."""
        return math.exp(self.log_prob)


class Listed(NamedTuple):
    """What a server listed at a place, the most probable token first, its log-probabilities as they came.

    `named` are tokens that were asked for by their ids afterwards.
    """

    tokens: tuple[Token, ...]
    n_prompt_tokens: int
    where: str
    named: tuple[Token, ...] = ()
    n_requests: int = 1

    def filled(self) -> "Listed":
        """Without places that may not have been filled: their tokens count as not listed."""
        return self._replace(tokens=tuple(token for token in self.tokens if token.log_prob > NOT_GIVEN))

    @property
    def is_cut(self) -> bool:
        """Whether places are not filled, though likely tokens are not listed."""
        found = self.filled().tokens
        return len(found) < len(self.tokens) and math.fsum(token.prob for token in found) < 1 - ROUNDING


@dataclass(frozen=True)
class Next:
    """What is known of the events after a prefix: probabilities, and the tokens listed that do not stop.

    `ending` belongs to the stop tokens listed, `hidden_ending` at most to those that are not, `rest` to all tokens
    not listed, none of which has more than `largest`. `best` is the first of all that are listed, `total` what these
    have together.
    """

    ending: float
    hidden_ending: float
    rest: float
    largest: float
    tokens: tuple[Token, ...]
    best: Token | None
    total: float
    n_prompt_tokens: int
    n_requests: int

    def least(self, log_prob: float = 0.0, log_alpha: float = -math.inf) -> float:
        """The least that the ending and what is not listed add to `Σ -x log max(x, α)`, the prefix having `log_prob`.

        How much of the rest is the ending is not known; the sum is concave in it, so the least is at one end.
        """
        log_largest = log_prob + math.log(self.largest) if self.largest > 0 else 0.0
        return min(
            weighed(log_prob + log(self.ending + hidden), log_alpha)
            - math.exp(log_prob) * (self.rest - hidden) * max(log_largest, log_alpha)
            for hidden in (0.0, self.hidden_ending)
        )


class Vocabulary:
    """The tokens of a model: known by their texts, or by their ids where there is a tokenizer.

    `n_stop` tokens end an answer, None if that is not known; `names` is whether single tokens can be asked for.
    """

    def __init__(self, asking: Asking):
        self.stop, self.top, self.ends = asking.stops, asking.top, (*texts.NEWLINE, *filter(None, asking.stops))
        self.n_stop, self.tokenizer = asking.n_stop_tokens, asking.tokenizer
        if self.tokenizer is not None:
            known = texts.configurations(self.tokenizer)
            # The model's own outputs: padded ones are no tokens, but are listed as others are.
            size = getattr(known[0], "vocab_size", None) if known else None
            self.endings = texts.endings(self.tokenizer, self.ends, *known, size=size)
            self.texts = [*texts.token_texts(self.tokenizer), *[""] * len(self.endings)]
            self.n_stop = self.endings.count("stop")
        self.names = self.tokenizer is not None

    def prompt(self, question: str, tokens: Sequence[Token]) -> str | list[int]:
        """What is sent for a prompt and the tokens after it."""
        if self.tokenizer is None:
            return question + "".join(token.text for token in tokens)
        return [*texts.encode(self.tokenizer, question), *(token.id for token in tokens)]

    def answer(self, tokens: Sequence[Token]) -> str:
        """The text of an answer."""
        if self.tokenizer is None:
            return texts.trimmed("".join(token.text for token in tokens), self.ends)
        return texts.answer_text(self.tokenizer, [token.id for token in tokens], self.ends)

    def read(self, response: object, where: str) -> Listed:
        """What a response lists of the place after the prompt, as it stands there.

        Raises:
            RunError: it is not laid out as known, or its tokens cannot be sent back.
        """
        said = fitted(_Response, response, where, RunError)
        chosen = said.chosen(where)
        listed = chosen.top_logprobs or []
        if any(entry.logprob is None for entry in listed):
            raise RunError(f"{where}: logprobs are missing of some of the tokens listed")
        # Tokens of one text are one event where only texts are known: whatever is sent afterwards is the same.
        merged: dict[str | int, float] = {}
        for entry in listed:
            key = entry.text if self.tokenizer is None else self._id(entry, where)
            if key in merged and self.tokenizer is not None:
                raise RunError(f"{where}: token id {key} is listed twice")
            merged[key] = float(np.logaddexp(merged.get(key, -math.inf), entry.logprob))
        self._check_chosen(said, chosen, merged, where)
        tokens = sorted((self._token(*item) for item in merged.items()), key=lambda token: -token.log_prob)
        return Listed(tuple(tokens), said.prompt_tokens or 0, where)

    def unlisted(self, told: Listed) -> list[list[int]]:
        """The stop tokens that are not listed, as many ids at a time as a request may name."""
        known = {token.id for token in told.tokens}
        missing = [n for n, kind in enumerate(self.endings) if kind == "stop" and n not in known]
        return [missing[n : n + _MOST_NAMED] for n in range(0, len(missing), _MOST_NAMED)]

    def named(self, told: Listed, ids: Sequence[int], response: object) -> Listed | None:
        """What was listed, and what a response tells of the tokens named; None where it does not tell all of them."""
        if response is None:
            return None
        tokens = [token for token in self.read(response, told.where).tokens if token.id in ids]
        more = {"named": (*told.named, *tokens), "n_requests": told.n_requests + 1}
        return told._replace(**more) if len(tokens) == len(ids) else None

    def _check_chosen(self, said: _Response, chosen: _Token, known: Mapping[str | int, float], where: str) -> None:
        if not known:
            return
        is_told = self.tokenizer is not None and (chosen.text or chosen.id is not None)
        if is_told and (number := self._id(chosen, where)) not in known:
            raise RunError(f"{where}: the server chooses token id {number} but does not list it")
        for text in (said.text, chosen.text) if self.tokenizer is None else ():
            # A list that lost something, often a space: put together, its texts would be another prompt.
            if text and "\ufffd" not in text and text not in known:
                lost = f"{where}: the server writes {text!r} but lists {next(iter(known))!r}"
                raise RunError(f"{lost}, so that texts cannot be put together; give tokenizer=, to send token ids")

    def _token(self, key: str | int, log_prob: float) -> Token:
        if self.tokenizer is not None:
            return Token(self.texts[key], key, log_prob, self.endings[key] or "open")
        kind = "stop" if key in self.stop else texts.ending(key, self.ends) or ("open" if key else "unknown")
        if kind == "open" and ("\ufffd" in key or key.startswith("bytes:\\x")):
            kind = "broken"
        return Token(key, None, log_prob, kind)  # unknown: some servers show the end of text without text

    def _id(self, entry: _Token, where: str) -> int:
        spelled = entry.text.removeprefix("token_id:")
        number = int(spelled) if spelled != entry.text and spelled.isdecimal() and len(spelled) < 10 else entry.id
        if type(number) is not int:
            raise RunError(f"{where}: the server returns no token ids; leave tokenizer out, so that texts are sent")
        if not 0 <= number < len(self.endings):
            size = f"the tokenizer's model has {len(self.endings)} tokens"
            raise RunError(f"{where}: {size}, so that it is not the server's, which has a token id {number}")
        return number

    def after(self, told: Listed, noise: Noise) -> Next:
        """What is known of the place where this was listed, by a server of such noise.

        Raises:
            RunError: the probabilities add up to more than noise explains, or more tokens stop than there are.
        """
        total = math.fsum(token.prob for token in (*told.tokens, *told.named))
        if total > math.exp(noise.epsilon) + ROUNDING:
            raise RunError(
                f"{told.where}: the log-probabilities are not those of one distribution: they add up to {total:.4g}, "
                f"more than an error of {noise.epsilon:.2g} nats explains"
            )
        listed, named = (
            [t._replace(log_prob=min(t.log_prob, 0.0)) for t in each] for each in (told.tokens, told.named)
        )
        unknown = sum(token.prob for token in listed if token.kind == "unknown")
        all_stops = [token for token in (*listed, *named) if token.kind == "stop"]
        stops, n_stops = sum(token.prob for token in all_stops), len(all_stops)
        if self.n_stop is not None and n_stops > self.n_stop:
            raise RunError(f"{told.where}: {n_stops} stop tokens are listed, but n_stop_tokens={self.n_stop}")
        others = tuple(token for token in listed if token.kind not in ("stop", "unknown"))
        # Where what is told need not add up to 1, what is listed may have less than it says.
        surely = 1.0 if noise.sums_to_one else math.exp(-noise.epsilon)
        rest = max(0.0, 1.0 - surely * (stops + sum(token.prob for token in others)))
        # Fewer than asked for: two tokens may have been written as one, and one of them may be likely.
        least = listed[self.top - 1].prob if len(listed) >= self.top else rest
        largest = min(rest, max(least, unknown))
        hidden = rest if self.n_stop is None else min(rest, (self.n_stop - n_stops) * largest)
        best = listed[0] if listed and listed[0].prob > 0 else None
        return Next(stops, hidden, rest, largest, others, best, total, told.n_prompt_tokens, told.n_requests)


def log(value: float) -> float:
    """The logarithm, -inf of 0."""
    return math.log(value) if value > 0 else -math.inf


def weighed(log_prob: float, log_alpha: float = -math.inf) -> float:
    """`-p log max(p, α)`, in nats."""
    return -math.exp(log_prob) * max(log_prob, log_alpha) if log_prob > -math.inf else 0.0
