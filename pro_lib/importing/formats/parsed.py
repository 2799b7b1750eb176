"""An answer as an API returned it, a response format, and what the parsers of several formats share."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from pro_lib.common.nested import as_items, as_mapping, first_value
from pro_lib.common.thoughts import without_thoughts

TokenText: TypeAlias = str | bytes | None
# Types of the parts of a message that are thoughts.
_THOUGHT_TYPES = {
    "reasoning", "reasoning_content", "reasoning_text", "redacted_thinking", "thinking", "thought",
}  # fmt: skip
# Fields of a message or a choice in which servers put the thought beside the answer.
_THOUGHT_FIELDS = (
    "reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks", "reasoning_text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer as an API returned it. Fields that the API does not return are None. The values are not checked.

    Attributes:
        text: the answer without its thoughts.
        reason: the finish reason, in lower case.
        token_texts: the text of every token (bytes, where the API gives them), in the order of `token_log_probs`.
            The tokens may be more than those of the answer: a prompt that is echoed, or a thought.
        token_log_probs: the log-probability of every token, in nats.
        token_specials: whether a token is special (an end of text, for example), where the API says so.
        text_offsets: where each token begins in the prompt and the text, where the API says so.
        stop: the stop string that ended the answer, if the API names it.
        n_generated: the number of tokens that the model generated, where the API counts those of each answer.
        n_prompt_tokens: the number of the prompt's tokens, where the API counts those of one prompt.
        log_prob: the log-probability of all tokens together, in nats.
        correct: the verdict of a log.
        has_thoughts: whether the model wrote a thought before the answer.
        lacks_log_probs: whether the API never returns log-probabilities, so that the text is read alone.
        problem: why the answer has no usable log-probabilities, as a sentence without subject; None if unknown.
        index: the position of the answer in the response, if the response states it.
    """

    text: Any
    reason: Any
    token_texts: list[TokenText] | None = None
    token_log_probs: Any = None
    token_specials: list[bool] | None = None
    text_offsets: list[int] | None = None
    stop: str | None = None
    n_generated: int | None = None
    n_prompt_tokens: int | None = None
    log_prob: Any = None
    correct: bool | None = None
    has_thoughts: bool = False
    lacks_log_probs: bool = False
    problem: str | None = None
    index: int | None = None


@dataclass(frozen=True)
class ResponseFormat:
    """A response format: how to recognise one, and how to read its answers.

    Attributes:
        name: the name of the format in docs and runs.
        request: how to ask for log-probabilities; "" for logs, which may hold texts alone.
        recognises: tells whether a response, a dictionary, has this format.
        parse: returns the answers of a response of this format.
    """

    name: str
    request: str
    recognises: Callable[[dict], bool]
    parse: Callable[[dict], list[ParsedAnswer]]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of an answer: their texts and log-probabilities; `log_probs` is None if the API gave none."""

    texts: list[TokenText] | None = None
    log_probs: Any = None
    specials: list[bool] | None = None
    offsets: list[int] | None = None
    problem: str | None = None


def parsed_answer(
    text: object, reason: object, tokens: Tokens, *, has_thoughts: bool = False, **fields: Any
) -> ParsedAnswer:
    """Return an answer; thoughts at the beginning of its text are removed."""
    if isinstance(text, str):
        text, thought_in_text = without_thoughts(text)
        has_thoughts = has_thoughts or thought_in_text
    return ParsedAnswer(
        text=text,
        reason=finish_reason(reason),
        token_texts=tokens.texts,
        token_log_probs=tokens.log_probs,
        token_specials=tokens.specials,
        text_offsets=tokens.offsets,
        problem=tokens.problem,
        has_thoughts=has_thoughts,
        **fields,
    )


def text_or_none(value: object) -> str | None:
    """Return a text that is not empty, and None for anything else."""
    return value if isinstance(value, str) and value else None


def count_or_none(value: object) -> int | None:
    """Return a positive whole number, and None for anything else."""
    return value if type(value) is int and value > 0 else None


def finish_reason(reason: object) -> object:
    """Return a finish reason in lower case, without the name of the enumeration that contains it."""
    if not isinstance(reason, str):
        return reason
    word = reason.rpartition(".")[2].lower().removeprefix("finish_reason_")
    return None if word in ("", "none", "unspecified") else word


def text_of_parts(content: object) -> tuple[object, bool]:
    """Return the text of a message's content, and whether a part of it is a thought.

    Content is a text, or a list of texts and parts (`{"type": "text", "text": …}`). Any other value is returned
    unchanged, so that the check of the record refuses it.
    """
    if not isinstance(content, (list, tuple)):
        return content, False
    texts, has_thoughts = [], False
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif is_thought(part):
            has_thoughts = True
        elif isinstance(part, dict):
            if part.get("text") is not None:
                texts.append(part["text"])
        else:
            return content, has_thoughts
    if not texts:
        return None, has_thoughts
    return ("".join(texts) if all(isinstance(text, str) for text in texts) else texts), has_thoughts


def is_thought(part: object) -> bool:
    """Return whether a part of a message is a thought."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return part.get("thought") is True or (isinstance(kind, str) and kind in _THOUGHT_TYPES)


def has_thought_field(*values: object) -> bool:
    """Return whether a message (or what is beside it) has a field that holds a thought."""
    return any(as_mapping(value).get(name) for value in values for name in _THOUGHT_FIELDS)


def token_list(
    steps: object, *, log_prob: Sequence[str] = ("logprob",), text: Sequence[str] = ("token",)
) -> Tokens:
    """Return the tokens of a list of objects, one a token.

    Args:
        steps: the list, or None if there is none. Any other value is kept, so that the check of the record refuses it.
        log_prob: possible names of the log-probability, in order of preference.
        text: possible names of the text, in order of preference.
    """
    if not isinstance(steps, (list, tuple)):
        return Tokens(log_probs=steps)
    texts: list[TokenText] = []
    log_probs: list[Any] = []
    for step in steps:
        if isinstance(step, dict):
            value = step.get(log_prob[0])
            log_probs.append(
                value if value is not None or len(log_prob) == 1 else first_value(step, log_prob[1:])
            )
            texts.append(_token_text(step, text))
        else:
            log_probs.append(step if isinstance(step, (int, float)) else None)
            texts.append(None)
    return Tokens(texts if texts.count(None) < len(texts) else None, log_probs)


def _token_text(step: dict, names: Sequence[str]) -> TokenText:
    """Return the bytes of a token where they are given, since a character may be cut, else its text."""
    given = step.get("bytes")
    if isinstance(given, list) and given:
        with suppress(TypeError, ValueError):
            return bytes(given)
    text = first_value(step, names)
    return text if isinstance(text, str) else None


def joined_tokens(tokens: Sequence[Tokens]) -> Tokens:
    """Return the tokens of several parts together; `log_probs` is None if no part has any."""
    given = [part for part in tokens if part.log_probs is not None]
    if len(given) == 1:
        return given[0]
    if not all(isinstance(part.log_probs, list) for part in given):
        return Tokens(log_probs=[part.log_probs for part in given])
    if not given:
        return Tokens()
    texts: list[TokenText] = []
    for part in given:
        texts += part.texts or [None] * len(part.log_probs)
    return Tokens(texts, [value for part in given for value in part.log_probs])


def verdict(value: object) -> bool | None:
    """Return whether a log calls an answer right (C, 1) or wrong (I, N, 0); None for any other verdict."""
    if isinstance(value, (str, int, float)):  # others cannot be looked up
        return {"C": True, "I": False, "N": False, 1: True, 0: False}.get(value)
    return None


def choices_of(value: object) -> list[dict]:
    """Return the entries of a list of answers as dictionaries; any other entry becomes an empty one."""
    return [as_mapping(entry) for entry in as_items(value)]
