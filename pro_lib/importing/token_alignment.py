"""Compare the text of an answer with its tokens, and keep the tokens that spell it."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from pro_lib.common.control_tokens import CONTROL_SIGNS, CONTROL_TOKEN
from pro_lib.common.thoughts import THOUGHT_MARKS
from pro_lib.importing.answers import Answer
from pro_lib.importing.left_out import NOT_RETURNED, OPEN_THOUGHT, THOUGHT_IN_TOKENS
from pro_lib.importing.token_places import (
    is_complete,
    span_at_start,
    spans_of_text,
    stop_position,
    texts_without_specials,
    with_outer_space,
)
from pro_lib.importing.token_spellings import (
    REPLACEMENT_BYTES,
    Span,
    Spelling,
    encoded,
    is_control_token,
    is_space,
    possible_spellings,
    shown,
    without_special_edges,
)

# Servers write this number for a log-probability that they do not return, and vLLM also for -inf.
NOT_GIVEN = -9999.0

# The reasons why an answer is left out, besides those of `left_out`.
TOO_FEW = "whose tokens spell less than their text"
DIFFERENT = "whose tokens spell a different text"
UNEVEN = "whose numbers of tokens and of log-probabilities differ"
PARTLY_UNKNOWN = "with texts for some of their tokens only"
STARTS_WITHIN = "whose text starts within a token"
ENDS_WITHIN = "whose text ends within a token"
STARTS_WITHIN_WORD = "whose text starts within a word of the tokens"
SPLIT_UNKNOWN = (
    "whose tokens show parts of characters as U+FFFD, so that the comparison is undecided"
)
SPECIAL_WITHIN = "with a special token within their text"
ECHO_UNKNOWN = (
    "whose first token has no probability, as in an echoed prompt, "
    "and which start at an unknown token"
)

# After these reasons another spelling is tried, in which the text may start and end with whole
# tokens.
_REASONS_OF_A_SPELLING = (STARTS_WITHIN, STARTS_WITHIN_WORD, ENDS_WITHIN)

_TOKEN_ID = re.compile(r"token_id:\d+")


class Alignment(NamedTuple):
    """The tokens that spell an answer.

    Attributes:
        text: the answer's text without special tokens at its ends and without an echoed prompt.
        token_log_probs: the log-probabilities of the tokens that spell the text and of those that
            end it.
        n_before: the number of tokens before the answer that are left out: an echoed prompt, a
            prefill, reasoning.
        n_after: the number of tokens after the answer that are left out.
        lacks_ending: whether the ending has a placeholder instead of a log-probability.
    """

    text: str
    token_log_probs: list[Any]
    n_before: int = 0
    n_after: int = 0
    lacks_ending: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The reason why an answer cannot be scored, as in "3 answers <reason> are left out"."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of an answer in one spelling.

    Attributes:
        answer: the answer.
        texts: the text of each token, "" if unknown.
        spelling: the bytes of each token.
    """

    answer: Answer
    texts: list[str]
    spelling: Spelling


def is_placeholder(log_prob: object) -> bool:
    """Return whether a server wrote this value because it does not return the log-probability."""
    return log_prob is None or (isinstance(log_prob, int | float) and not log_prob > NOT_GIVEN)


def align(answer: Answer) -> Alignment | Mismatch:
    """Return the tokens that spell an answer, or the reason why the answer cannot be scored.

    The tokens may spell more than the text: special tokens, an echoed prompt, a prefill, reasoning,
    or a stop string. They may be in the spelling of a tokenizer (`▁Paris`, `ĠParis`, `<0x0A>`), and
    characters that are split over tokens may be replaced by U+FFFD. The server may have removed
    white space, but the tokens must spell the white space that the text has. Tokens of white space
    before the text belong to the answer, except after tokens that are left out.

    The answer is the text that the tokens spell last. The result is a `Mismatch` if the tokens do
    not spell the text, if the text starts within a token, or if a log-probability is a placeholder.
    Only the ending may have a placeholder.

    Args:
        answer: the text and the tokens, with log-probabilities in nats.

    Example:
        >>> tokens = ["<think>", "Hm", "</think>", "Par", "is", "</s>"]
        >>> log_probs = [-1.0, -2.0, -0.5, -0.25, -0.5, -0.125]
        >>> alignment = align(Answer("Paris", tokens, log_probs))
        >>> alignment.n_before, alignment.token_log_probs
        (3, [-0.25, -0.5, -0.125])
    """
    if answer.token_texts is None:
        answer = answer._replace(token_texts=[None] * len(answer.token_log_probs))
    if len(answer.token_texts or ()) != len(answer.token_log_probs):
        return Mismatch(UNEVEN)
    return _identical(answer) or _aligned(answer)


def _identical(answer: Answer) -> Alignment | None:
    """Return the alignment if the joined tokens are the text, as is usual, or None otherwise."""
    texts: Any = answer.token_texts
    ending = shown(texts[-1]) if texts else ""
    has_ending = len(texts) > 1 and answer.finished and (not ending or is_control_token(ending))
    body = texts[:-1] if has_ending else texts
    try:
        joined = b"".join(body).decode() if body and isinstance(body[0], bytes) else "".join(body)
    except (TypeError, UnicodeDecodeError):
        return None
    if not joined or joined != answer.text or any(sign in joined for sign in CONTROL_SIGNS):
        return None
    if any(map(is_placeholder, answer.token_log_probs)):
        return None
    return Alignment(answer.text, list(answer.token_log_probs))


def _aligned(answer: Answer) -> Alignment | Mismatch:
    """Return the alignment of any answer."""
    if not answer.token_texts:
        return _without_tokens(answer)
    answer = _with_known_texts(answer)
    is_known = [text is not None for text in answer.token_texts]
    if not any(is_known):
        return _not_compared(answer)
    if not all(is_known[:-1]):  # the ending alone may have no text
        return Mismatch(PARTLY_UNKNOWN)
    texts = [shown(text) for text in answer.token_texts]
    spellings = list(possible_spellings(answer, texts, _special_flags(answer, texts)))
    first_mismatch = None
    for text, spelling, span in spans_of_text(answer, spellings):
        result = _scored(_Tokens(answer, texts, spelling), span, text)
        if isinstance(result, Alignment):
            return result
        first_mismatch = first_mismatch or result
        if result.reason not in _REASONS_OF_A_SPELLING:
            break
    return (
        first_mismatch
        or _first_part(answer, spellings, texts)
        or _full_text(answer, spellings)
        or _not_found(answer, spellings)
    )


def _special_flags(answer: Answer, texts: list[str]) -> list[bool]:
    """Return whether each token is special, as the server says or as its text shows."""
    flags = answer.token_specials or [False] * len(texts)
    return [
        bool(text) and (flag or is_control_token(text))
        for text, flag in zip(texts, flags, strict=True)
    ]


def _first_part(
    answer: Answer, spellings: list[Spelling], texts: list[str]
) -> Alignment | Mismatch | None:
    """Return the alignment of a text that the tokens spell first.

    The tokens after it may be a stop string that the server does not name.
    """
    is_exact = not any(REPLACEMENT_BYTES in spelling.joined for spelling in spellings)
    if not answer.finished or answer.has_thoughts or not is_exact:
        return None
    first_mismatch = None
    for text in texts_without_specials(answer):
        target = encoded(text.strip())
        for spelling in spellings:
            span = with_outer_space(text, spelling, span_at_start(spelling, target))
            if span is None:
                continue
            result = _scored(_Tokens(answer, texts, spelling), span, text)
            if isinstance(result, Alignment):
                return result
            first_mismatch = first_mismatch or result
    return first_mismatch


def _without_tokens(answer: Answer) -> Alignment | Mismatch:
    """Return the alignment of an answer without tokens, which may be an empty text that was cut."""
    if answer.text.strip():
        return Mismatch(TOO_FEW)
    return Mismatch(NOT_RETURNED) if answer.finished else Alignment(answer.text, [])


def _not_compared(answer: Answer) -> Alignment | Mismatch:
    """Return all tokens of an answer, since their texts are unknown."""
    if answer.has_thoughts:
        return Mismatch(THOUGHT_IN_TOKENS)
    if any(map(is_placeholder, answer.token_log_probs)):
        return Mismatch(NOT_RETURNED)
    return Alignment(without_special_edges(answer.text), list(answer.token_log_probs))


def _with_known_texts(answer: Answer) -> Answer:
    """Return the answer with None for token texts that only state an id.

    If no token has a text, the texts are cut out of the answer at the offsets of the tokens.
    """
    texts = [
        None if text is None or _TOKEN_ID.fullmatch(shown(text)) else text
        for text in answer.token_texts
    ]
    offsets = answer.text_offsets
    has_texts = any(text is not None for text in answer.token_texts)
    if has_texts or not offsets or len(offsets) != len(texts):
        return answer._replace(token_texts=texts)
    positions = [offset - offsets[0] for offset in offsets] + [len(answer.text)]
    if positions != sorted(positions):
        return answer
    pieces = [answer.text[start:end] for start, end in pairwise(positions)]
    return answer._replace(token_texts=pieces)


# --- The tokens of a span ---


def _scored(tokens: _Tokens, span: Span, text: str) -> Alignment | Mismatch:
    """Return the tokens of a span and its ending, or the reason why they cannot be scored."""
    if span.start == span.end:
        return _scored_empty(tokens)
    answer = tokens.answer
    spelling = tokens.spelling
    first = bisect_right(spelling.ends, span.start)
    last = bisect_left(spelling.ends, span.end)
    has_text_before = not is_space(spelling.joined[: spelling.start_of(first)])
    n_before = first if has_text_before or any(spelling.is_special[:first]) else 0
    reason = _border_reason(tokens, span, first, last)
    if not reason and n_before:
        reason = _reason_before(tokens, span, first)
    if reason:
        return Mismatch(reason)
    if answer.token_log_probs[0] is None and not has_text_before:
        echo = _echo_end(tokens, span, last)
        if isinstance(echo, Mismatch):
            return echo
        n_before, text = echo
    log_probs = list(answer.token_log_probs[n_before : last + 1])
    if any(map(is_placeholder, log_probs)):
        return Mismatch(NOT_RETURNED)
    ending = _ending(tokens, last)
    log_probs += ending.token_log_probs
    return ending._replace(text=text, token_log_probs=log_probs, n_before=n_before)


def _scored_empty(tokens: _Tokens) -> Alignment | Mismatch:
    """Return the tokens that end an answer without a text."""
    joined = "".join(tokens.texts)
    if any(mark in joined for mark in (*THOUGHT_MARKS, *THOUGHT_MARKS.values())):
        return Mismatch(THOUGHT_IN_TOKENS)
    ending = _ending(tokens, -1)
    return ending if ending.token_log_probs else Mismatch(NOT_RETURNED)


def _border_reason(tokens: _Tokens, span: Span, first: int, last: int) -> str | None:
    """Return the reason if a span does not consist of whole tokens, or contains a special one."""
    spelling = tokens.spelling
    if not is_space(spelling.joined[spelling.start_of(first) : span.start]):
        return STARTS_WITHIN
    if not is_complete(tokens.answer):
        stop = stop_position(tokens.answer, spelling)
        end = spelling.ends[last] if stop is None else max(stop, span.end)
        if not is_space(spelling.joined[span.end : end]):
            return ENDS_WITHIN
    if any(spelling.is_special[first : last + 1]):
        return SPECIAL_WITHIN
    return None


def _reason_before(tokens: _Tokens, span: Span, first: int) -> str | None:
    """Return the reason if the tokens before a span make it uncertain that it is the answer."""
    spelling = tokens.spelling
    text_before = "".join(tokens.texts[:first])
    last_opening = max(map(text_before.rfind, THOUGHT_MARKS))
    last_closing = max(map(text_before.rfind, THOUGHT_MARKS.values()))
    if last_opening > last_closing:
        return OPEN_THOUGHT
    previous = _last_token_before(spelling, first)
    is_ascii = spelling.joined[span.start] < 128
    if previous < first - 1 and not is_ascii:  # an empty token may be the first part of a character
        return STARTS_WITHIN
    is_within_word = span.start > 0 and spelling.joined[span.start - 1 : span.start + 1].isalnum()
    if is_within_word and not spelling.is_special[previous]:
        return STARTS_WITHIN_WORD
    return None


def _last_token_before(spelling: Spelling, first: int) -> int:
    """Return the last token before `first` that is special or has a text, else `first`."""
    for index in reversed(range(first)):
        if spelling.units[index] or spelling.is_special[index]:
            return index
    return first


def _ending(tokens: _Tokens, last: int) -> Alignment:
    """Return the tokens after `last` that belong to the answer.

    They are white space, a stop string, and the special token that ends the answer.
    """
    answer = tokens.answer
    spelling = tokens.spelling
    stop = stop_position(answer, spelling)
    log_probs: list[Any] = []
    for index in range(last + 1, len(spelling.units)):
        unit = spelling.units[index]
        log_prob = answer.token_log_probs[index]
        is_stop = stop is not None and spelling.ends[index] > stop
        if not is_space(unit) and not is_stop:
            if not is_complete(answer):
                return Alignment("", [], n_after=len(spelling.units) - last - 1)
            is_stop = True  # the server cut off a stop string that it does not name
        if is_placeholder(log_prob):
            return Alignment("", log_probs, lacks_ending=True)
        log_probs.append(log_prob)
        if spelling.is_special[index]:
            break  # the tokens after it, such as padding, are not part of the answer
    return Alignment("", log_probs)


# --- Echoed prompts ---


def _echo_end(tokens: _Tokens, span: Span, last: int) -> tuple[int, str] | Mismatch:
    """Return the number of tokens of an echoed prompt, and the text of the answer after it.

    The first token of an echoed prompt has no log-probability.
    """
    answer = tokens.answer
    spelling = tokens.spelling
    n_unknown = _number_unknown(answer.token_log_probs[: last + 1])
    if n_unknown == last + 1:
        return Mismatch(NOT_RETURNED)
    n_spelled = _n_prompt_tokens(tokens, span)
    n_before = answer.n_prompt_tokens or n_spelled
    if n_before is None and n_unknown > 1:
        n_before = n_unknown
    if n_before is None or not n_unknown <= n_before <= last or n_before < (n_spelled or 0):
        return Mismatch(ECHO_UNKNOWN)
    data = spelling.joined[spelling.start_of(n_before) : span.end]
    text = data.decode("utf-8", "replace").strip()
    # A question may be only a part of the prompt. A colon or a line break then ends the rest of it.
    is_question_alone = answer.n_prompt_tokens is None and n_spelled is not None
    if not text or (is_question_alone and re.search(r"[:\n]", text)):
        return Mismatch(ECHO_UNKNOWN)
    return n_before, text


def _number_unknown(log_probs: Sequence[Any]) -> int:
    """Return how many log-probabilities at the start are None."""
    for index, log_prob in enumerate(log_probs):
        if log_prob is not None:
            return index
    return len(log_probs)


def _n_prompt_tokens(tokens: _Tokens, span: Span) -> int | None:
    """Return the number of tokens that spell the prompt at the start of a span.

    The result is None if the span does not start with the prompt and the end of a token.
    """
    spelling = tokens.spelling
    prompt = encoded((tokens.answer.prompt or "").strip())
    end = span.start + len(prompt)
    if not prompt or not spelling.joined.startswith(prompt, span.start):
        return None
    index = bisect_left(spelling.ends, end)
    ends_with_token = is_space(spelling.joined[end : spelling.ends[index]])
    return index + 1 if ends_with_token else None


def _full_text(answer: Answer, spellings: list[Spelling]) -> Alignment | Mismatch | None:
    """Return the alignment if the text is prompt and answer, but the tokens spell the answer.

    The tokens are known to be complete if the server counts as many tokens, or if the rest of the
    text is the prompt. If the prompt is known, it must be in the rest of the text.
    """
    target = answer.text.strip()
    prompt = (answer.prompt or "").strip()
    for spelling in spellings:
        token_text = spelling.joined.decode("utf-8", "replace").strip()
        if not token_text or token_text == target or not target.endswith(token_text):
            continue
        rest = target.removesuffix(token_text).strip()
        is_complete = answer.n_generated == len(spelling.units) and prompt in rest
        if is_complete or (prompt and rest == prompt):
            return _aligned(answer._replace(text=token_text))
    return None


def _not_found(answer: Answer, spellings: list[Spelling]) -> Mismatch:
    """Return the reason why a text was not found in the tokens."""
    if any(REPLACEMENT_BYTES in spelling.joined for spelling in spellings):
        return Mismatch(SPLIT_UNKNOWN)
    text = without_special_edges(answer.text)
    if CONTROL_TOKEN.search(text):
        return Mismatch(SPECIAL_WITHIN)
    for spelling in spellings:
        if spelling.joined.decode("utf-8", "replace").strip() in text:
            return Mismatch(TOO_FEW)
    return Mismatch(DIFFERENT)
