"""The types of parsed answers and response formats, and functions that several parsers use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pro_lib.common.nested import as_items, as_mapping, first_value
from pro_lib.common.thoughts import without_thoughts

TokenText: TypeAlias = str | bytes | None
# Types of the parts of a message that are thoughts.
_THOUGHT_TYPES = {
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "redacted_thinking",
    "thinking",
    "thought",
}
# Fields of a message or a choice in which servers return the thought.
_THOUGHT_FIELDS = frozenset(
    (
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking",
        "thinking_blocks",
        "reasoning_text",
    )
)


class ParsedAnswer(NamedTuple):
    """An answer as an API returned it.

    The values are not checked.

    Fields that the API does not return are None.

    Attributes:
        text: the answer without its thoughts.
        reason: the finish reason, in lower case.
        token_texts: the text of every token (bytes, where the API gives them), in the order of
            `token_log_probs`. The tokens may be more than those of the answer: a prompt that is
            echoed, or a thought.
        token_log_probs: the log-probability of every token, in nats.
        token_specials: whether a token is special (an end of text, for example), where the API says
            so.
        text_offsets: where each token begins in the prompt and the text, where the API says so.
        stop: the stop string that ended the answer, if the API names it.
        n_generated: the number of tokens that the model generated, where the API counts those of
            each answer.
        n_prompt_tokens: the number of the prompt's tokens, where the API counts those of one
            prompt.
        log_prob: the log-probability of all tokens together, in nats.
        correct: the verdict of a log.
        has_thoughts: whether the model wrote a thought before the answer.
        lacks_log_probs: whether the API never returns log-probabilities, so that the text is read
            alone.
        problem: why the answer has no usable log-probabilities, as a sentence without subject; None
            if unknown.
        position: the position of the answer in the response, if the response states it.
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
    position: int | None = None


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


class Tokens(NamedTuple):
    """The tokens of an answer.

    `log_probs` is None if the API returned none.
    """

    texts: list[TokenText] | None = None
    log_probs: Any = None
    specials: list[bool] | None = None
    offsets: list[int] | None = None
    problem: str | None = None


def parsed_answer(
    text: object, reason: object, tokens: Tokens, *, has_thoughts: bool = False, **fields: Any
) -> ParsedAnswer:
    """Return an answer.

    Thoughts at the beginning of its text are removed.
    """
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
    """Return a finish reason in lower case, without the name of its enumeration."""
    if not isinstance(reason, str):
        return reason
    word = reason.rpartition(".")[2].lower().removeprefix("finish_reason_")
    return None if word in ("", "none", "unspecified") else word


def text_of_parts(content: object) -> tuple[object, bool]:
    """Return the text of a message's content, and whether a part of it is a thought.

    Content is a text, or a list of texts and parts (`{"type": "text", "text": …}`). Any other value
    is returned unchanged, so that the check of the record refuses it.
    """
    if not isinstance(content, (list, tuple)):
        return content, False
    texts = []
    has_thoughts = False
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
    if not all(isinstance(text, str) for text in texts):
        return texts, has_thoughts
    return "".join(texts), has_thoughts


def is_thought(part: object) -> bool:
    """Return whether a part of a message is a thought."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return part.get("thought") is True or (isinstance(kind, str) and kind in _THOUGHT_TYPES)


def has_thought_field(*values: object) -> bool:
    """Return whether a message, or another part of its choice, has a field with a thought."""
    for value in values:
        # Few messages have such a field, and this is asked of every answer.
        if not isinstance(value, dict) or _THOUGHT_FIELDS.isdisjoint(value):
            continue
        if any(value.get(name) for name in _THOUGHT_FIELDS):
            return True
    return False


def token_list(
    steps: object, *, log_prob: Sequence[str] = ("logprob",), text: Sequence[str] = ("token",)
) -> Tokens:
    """Return the tokens of a list of objects, one a token.

    Args:
        steps: the list, or None if there is none. Any other value is kept, so that the check of the
            record refuses it.
        log_prob: possible names of the log-probability, in order of preference.
        text: possible names of the text, in order of preference.
    """
    if not isinstance(steps, (list, tuple)):
        return Tokens(log_probs=steps)
    texts: list[TokenText] = []
    log_probs: list[Any] = []
    for step in steps:
        if isinstance(step, dict):
            log_probs.append(first_value(step, log_prob))
            texts.append(_token_text(step, text))
        else:
            log_probs.append(step if isinstance(step, (int, float)) else None)
            texts.append(None)
    has_texts = texts.count(None) < len(texts)
    return Tokens(texts if has_texts else None, log_probs)


def _token_text(step: dict, names: Sequence[str]) -> TokenText:
    """Return the bytes of a token, since it may be a part of a character, or else its text."""
    byte_values = step.get("bytes")
    if isinstance(byte_values, list) and byte_values:
        try:
            return bytes(byte_values)
        except (TypeError, ValueError):
            pass  # not bytes; the text is used
    text = first_value(step, names)
    return text if isinstance(text, str) else None


def joined_tokens(parts: Sequence[Tokens]) -> Tokens:
    """Return the tokens of several parts together.

    `log_probs` is None if no part has any.
    """
    known_parts = [part for part in parts if part.log_probs is not None]
    if not known_parts:
        return Tokens()
    if len(known_parts) == 1:
        return known_parts[0]
    if not all(isinstance(part.log_probs, list) for part in known_parts):
        return Tokens(log_probs=[part.log_probs for part in known_parts])
    texts: list[TokenText] = []
    log_probs: list[Any] = []
    for part in known_parts:
        texts += part.texts or [None] * len(part.log_probs)
        log_probs += part.log_probs
    return Tokens(texts, log_probs)


_VERDICTS = {"C": True, "I": False, "N": False, 1: True, 0: False}


def verdict(value: object) -> bool | None:
    """Return whether a log calls an answer right (C, 1) or wrong (I, N, 0), or None otherwise."""
    if isinstance(value, (str, int, float)):  # other values cannot be looked up
        return _VERDICTS.get(value)
    return None


def choices_of(value: object) -> list[dict]:
    """Return the entries of a list as dictionaries.

    Any other entry becomes an empty one.
    """
    return [as_mapping(entry) for entry in as_items(value)]
