"""Compare the text of an answer with its tokens, and keep the tokens that spell it."""

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pro_lib.common.control_tokens import CONTROL_SIGNS, CONTROL_TOKEN
from pro_lib.common.thoughts import THOUGHT_MARKS
from pro_lib.importing.parsed_answers import (
    NOT_RETURNED,
    OPEN_THOUGHT,
    THOUGHT_IN_TOKENS,
    ParsedAnswer,
)
from pro_lib.importing.token_spellings import (
    REPLACEMENT,
    REPLACEMENT_BYTES,
    Spelling,
    encoded,
    is_control_token,
    is_space,
    possible_spellings,
    right_stripped,
    shown,
    without_special_edges,
)

# Servers write this number for a log-probability that they do not return, and vLLM also for -inf.
NOT_GIVEN = -9999.0

# The reasons why an answer is left out, besides those of `answers`.
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

# A part of the joined tokens in bytes: its start and its end.
_Span: TypeAlias = tuple[int, int]
# A function that returns the span of a text, if it finds it in a spelling.
_Find: TypeAlias = Callable[[ParsedAnswer, Spelling, bytes], _Span | None]


def is_placeholder(log_prob: object) -> bool:
    """Return whether a server wrote this value because it does not return the log-probability."""
    return log_prob is None or (isinstance(log_prob, int | float) and not log_prob > NOT_GIVEN)


def align(answer: ParsedAnswer, prompt: str | None = None) -> ParsedAnswer | str:
    """Return an answer with the tokens that spell it, or the reason why it cannot be scored.

    The tokens may spell more than the text: special tokens, an echoed prompt, a prefill, reasoning,
    or a stop string. They may be in the spelling of a tokenizer (`▁Paris`, `ĠParis`, `<0x0A>`), and
    characters that are split over tokens may be replaced by U+FFFD. The server may have removed
    white space around the text. Tokens of white space
    before the text belong to the answer, except after tokens that are left out.

    The answer is the text that the tokens spell last. A reason is returned if the tokens do not
    spell the text, if the text starts within a token, or if a log-probability is a placeholder.
    Only the ending may have a placeholder.

    Args:
        answer: the text and the tokens, with log-probabilities in nats.
        prompt: the text of the prompt, or of the question in it, if it is known.

    Example:
        >>> tokens = ["<think>", "Hm", "</think>", "Par", "is", "</s>"]
        >>> log_probs = [-1.0, -2.0, -0.5, -0.25, -0.5, -0.125]
        >>> aligned = align(ParsedAnswer("Paris", tokens, log_probs))
        >>> aligned.n_before, aligned.token_log_probs
        (3, [-0.25, -0.5, -0.125])
    """
    log_probs = answer.token_log_probs
    tokens = [None] * len(log_probs) if answer.token_texts is None else answer.token_texts
    if len(tokens) != len(log_probs):
        return UNEVEN
    if _is_identical(answer):
        return answer
    if not tokens:
        if answer.text.strip():
            return TOO_FEW
        return NOT_RETURNED if answer.finished else answer
    # Some servers only state the ids of tokens.
    has_text = [token is not None and not _TOKEN_ID.fullmatch(shown(token)) for token in tokens]
    if any(has_text):
        # The ending alone may have no text.
        if not all(has_text[:-1]):
            return PARTLY_UNKNOWN
        return _aligned(answer._replace(prompt=(prompt or "").strip()))
    if answer.has_thoughts:
        return THOUGHT_IN_TOKENS
    if any(map(is_placeholder, log_probs)):
        return NOT_RETURNED
    return answer._replace(text=without_special_edges(answer.text))


def _aligned(answer: ParsedAnswer) -> ParsedAnswer | str:
    """Return an answer whose tokens have texts, or the reason why it cannot be scored."""
    spellings = possible_spellings(answer)
    searches: list[tuple[_Find, ...]] = [(_before_stop, _at_end, _with_replacements)]
    is_exact = not any(REPLACEMENT_BYTES in spelling.joined for spelling in spellings)
    if answer.finished and not answer.has_thoughts and is_exact and answer.text.strip():
        # The tokens after the text may be a stop string that the server does not name.
        searches.append((_at_start,))
    for search in searches:
        first_reason = ""
        for text, spelling, span in _places(search, answer, spellings):
            result = _scored(answer, spelling, span, text)
            if isinstance(result, ParsedAnswer):
                return result
            first_reason = first_reason or result
            if result not in _REASONS_OF_A_SPELLING:
                break
        if first_reason:
            return first_reason
    return _reason_not_found(answer, spellings)


def _is_identical(answer: ParsedAnswer) -> bool:
    """Return whether the joined tokens are the text, as is usual, and have log-probabilities."""
    texts: Any = answer.token_texts
    ending = shown(texts[-1]) if texts else ""
    has_ending = bool(texts) and answer.finished and (not ending or is_control_token(ending))
    body = texts[:-1] if has_ending else texts
    if not body:
        return False
    try:
        joined = b"".join(body).decode() if isinstance(body[0], bytes) else "".join(body)
    except (TypeError, UnicodeDecodeError):
        return False
    if joined != answer.text or any(sign in joined for sign in CONTROL_SIGNS):
        return False
    return not any(map(is_placeholder, answer.token_log_probs))


def _reason_not_found(answer: ParsedAnswer, spellings: list[Spelling]) -> str:
    """Return the reason why a text was not found in the tokens."""
    if any(REPLACEMENT_BYTES in spelling.joined for spelling in spellings):
        return SPLIT_UNKNOWN
    text = without_special_edges(answer.text)
    if CONTROL_TOKEN.search(text):
        return SPECIAL_WITHIN
    token_texts = [spelling.joined.decode("utf-8", "replace").strip() for spelling in spellings]
    return TOO_FEW if any(token_text in text for token_text in token_texts) else DIFFERENT


# --- Places of a text ---


def _places(
    search: tuple[_Find, ...], answer: ParsedAnswer, spellings: list[Spelling]
) -> Iterator[tuple[str, Spelling, _Span]]:
    """Yield the text, the spelling and the span of each place that the functions of a search find.

    The span includes the white space around the text. The text may also have special tokens at its
    ends, which are not spelled.
    """
    texts = dict.fromkeys([answer.text, without_special_edges(answer.text)])
    for find, text in itertools.product(search, texts):
        before = encoded(text[: len(text) - len(text.lstrip())])
        after = encoded(text[len(text.rstrip()) :])
        for spelling in spellings:
            start, end = find(answer, spelling, encoded(text.strip())) or (-1, -1)
            if start < 0:
                continue
            if start == end and encoded(text) in spelling.joined:
                yield text, spelling, (start, end)
            has_space = spelling.joined.endswith(before, 0, start)
            if start < end and has_space and spelling.joined.startswith(after, end):
                yield text, spelling, (start - len(before), end + len(after))


def _at_end(answer: ParsedAnswer, spelling: Spelling, target: bytes) -> _Span | None:
    """Return the span of a text that the tokens spell last."""
    return _span_at_end(spelling.joined, target)


def _before_stop(answer: ParsedAnswer, spelling: Spelling, target: bytes) -> _Span | None:
    """Return the span of a text right before the stop string, which the server cut off."""
    position = _stop_position(answer, spelling)
    return None if position is None else _span_at_end(spelling.joined[:position], target)


def _span_at_end(data: bytes, target: bytes) -> _Span | None:
    body = right_stripped(data)
    if not target:
        return None if body else (0, 0)
    return (len(body) - len(target), len(body)) if body.endswith(target) else None


def _at_start(answer: ParsedAnswer, spelling: Spelling, target: bytes) -> _Span | None:
    """Return the span of a text that the tokens spell first."""
    start = len(spelling.joined) - len(spelling.joined.lstrip())
    is_first = spelling.joined.startswith(target, start)
    return (start, start + len(target)) if is_first else None


def _stop_position(answer: ParsedAnswer, spelling: Spelling) -> int | None:
    """Return where the stop string begins, if it reaches into the last token with a text."""
    if not answer.stop or not answer.finished:
        return None
    stop = encoded(answer.stop)
    position = spelling.joined.rfind(stop)
    last = bisect_left(spelling.ends, len(spelling.joined))
    reaches_last = position + len(stop) > spelling.start_of(last)
    return position if position >= 0 and reaches_last else None


def _with_replacements(answer: ParsedAnswer, spelling: Spelling, target: bytes) -> _Span | None:
    """Return the span of a text whose characters are split over tokens and shown as U+FFFD.

    All split characters look the same. The result is None if the text fits more than one place, or
    if tokens with a text are after it.
    """
    joined = spelling.joined
    if not target or target in joined or REPLACEMENT_BYTES not in target + joined:
        return None
    characters = target.decode("utf-8", "replace")
    pattern = re.compile(rb"\s*(" + b"".join(map(_as_shown, characters)) + rb")\s*")
    spans = set()
    for first, unit in enumerate(spelling.units):
        start = spelling.start_of(first)
        if is_space(unit) or _is_cut(joined[:start].endswith):
            continue
        for end in spelling.ends[first:]:
            if end - start > 4 * len(target):
                break
            match = pattern.fullmatch(joined, start, end)
            if match and not _is_cut(joined[end:].startswith):
                spans.add(match.span(1))
    [span, *others] = spans or [(0, 0)]
    is_last = 0 < span[1] == len(right_stripped(joined))
    return span if is_last and not others else None


def _as_shown(character: str) -> bytes:
    """Return a pattern of the bytes with which tokens show a character.

    A character that is split into two to four parts is shown as two to four U+FFFD. A text that was
    cut within a character ends with U+FFFD itself, for the bytes of the last token.
    """
    data = encoded(character)
    if character == REPLACEMENT:
        return rb"(?:(?:%b){1,4}|[\x80-\xff]{1,4})" % data
    if len(data) == 1:
        return re.escape(data)
    return rb"(?:%b|(?:%b){2,%d})" % (re.escape(data), REPLACEMENT_BYTES, len(data))


def _is_cut(has: Callable[[bytes], bool]) -> bool:
    """Return whether bytes have a single U+FFFD at an end, which is only a part of a character."""
    return has(REPLACEMENT_BYTES) and not has(2 * REPLACEMENT_BYTES)


# --- The tokens of a span ---


def _scored(answer: ParsedAnswer, spelling: Spelling, span: _Span, text: str) -> ParsedAnswer | str:
    """Return the answer with the tokens of a span and its ending, or why it cannot be scored."""
    start, end = span
    if start == end:
        joined = "".join(spelling.texts)
        if any(mark in joined for mark in (*THOUGHT_MARKS, *THOUGHT_MARKS.values())):
            return THOUGHT_IN_TOKENS
        empty = _with_ending(answer._replace(text=text), spelling, 0, -1)
        return empty if isinstance(empty, str) or empty.token_log_probs else NOT_RETURNED
    first = bisect_right(spelling.ends, start)
    last = bisect_left(spelling.ends, end)
    has_text_before = not is_space(spelling.joined[: spelling.start_of(first)])
    n_before = first if has_text_before or any(spelling.is_special[:first]) else 0
    reason = _reason_at_borders(answer, spelling, span, first, last)
    if not reason and n_before:
        reason = _reason_before(spelling, start, first)
    if reason:
        return reason
    if answer.token_log_probs[0] is None and not has_text_before:
        n_before, is_by_text = _number_echoed(answer, spelling, span, last)
        data = spelling.joined[spelling.start_of(n_before) : end]
        text = data.decode("utf-8", "replace").strip()
        # A question may be only a part of the prompt. A colon or a line end then ends the rest.
        if not n_before or not text or (is_by_text and re.search(r"[:\n]", text)):
            is_known = any(value is not None for value in answer.token_log_probs[: last + 1])
            return ECHO_UNKNOWN if is_known else NOT_RETURNED
    return _with_ending(answer._replace(text=text), spelling, n_before, last)


def _number_echoed(
    answer: ParsedAnswer, spelling: Spelling, span: _Span, last: int
) -> tuple[int, bool]:
    """Return how many tokens are those of an echoed prompt, and whether only its text says so.

    The first token of an echoed prompt has no log-probability. The number is 0 if it is unknown.
    """
    log_probs = answer.token_log_probs[: last + 1]
    n_unknown = next((n for n, value in enumerate(log_probs) if value is not None), last + 1)
    prompt = encoded(answer.prompt or "")
    end = span[0] + len(prompt)
    n_spelled = 0
    if prompt and spelling.joined.startswith(prompt, span[0]):
        index = bisect_left(spelling.ends, end)
        ends_with_token = is_space(spelling.joined[end : spelling.ends[index]])
        n_spelled = index + 1 if ends_with_token else 0
    n_before = answer.n_prompt_tokens or n_spelled or (n_unknown if n_unknown > 1 else 0)
    is_possible = max(n_unknown, n_spelled) <= n_before <= last
    return n_before if is_possible else 0, n_spelled > 0 and answer.n_prompt_tokens is None


def _reason_at_borders(
    answer: ParsedAnswer, spelling: Spelling, span: _Span, first: int, last: int
) -> str | None:
    """Return the reason if a span does not consist of whole tokens, or contains a special one."""
    if not is_space(spelling.joined[spelling.start_of(first) : span[0]]):
        return STARTS_WITHIN
    if not _is_complete(answer):
        stop = _stop_position(answer, spelling)
        end = spelling.ends[last] if stop is None else max(stop, span[1])
        if not is_space(spelling.joined[span[1] : end]):
            return ENDS_WITHIN
    return SPECIAL_WITHIN if any(spelling.is_special[first : last + 1]) else None


def _is_complete(answer: ParsedAnswer) -> bool:
    """Return whether the model ended an answer and its tokens are all that it generated."""
    return answer.finished and answer.n_generated == len(answer.token_texts or ())


def _reason_before(spelling: Spelling, start: int, first: int) -> str | None:
    """Return the reason if the tokens before a span make it uncertain that it is the answer."""
    text_before = "".join(spelling.texts[:first])
    last_opening = max(map(text_before.rfind, THOUGHT_MARKS))
    last_closing = max(map(text_before.rfind, THOUGHT_MARKS.values()))
    if last_opening > last_closing:
        return OPEN_THOUGHT
    # The last token before the span that is special or has a text
    indices = [n for n in range(first) if spelling.units[n] or spelling.is_special[n]]
    previous = indices[-1] if indices else first
    is_ascii = spelling.joined[start] < 128
    if previous < first - 1 and not is_ascii:  # an empty token may be the first part of a character
        return STARTS_WITHIN
    is_within_word = start > 0 and spelling.joined[start - 1 : start + 1].isalnum()
    return STARTS_WITHIN_WORD if is_within_word and not spelling.is_special[previous] else None


def _with_ending(
    answer: ParsedAnswer, spelling: Spelling, n_before: int, last: int
) -> ParsedAnswer | str:
    """Return the answer with its tokens up to `last` and those that end it.

    They are white space, a stop string, and the special token that ends the answer.
    """
    log_probs = list(answer.token_log_probs[n_before : last + 1])
    if any(map(is_placeholder, log_probs)):
        return NOT_RETURNED
    stop = _stop_position(answer, spelling)
    ending: list[Any] = []
    n_after = 0
    lacks_ending = False
    for index in range(last + 1, len(spelling.units)):
        is_stop = stop is not None and spelling.ends[index] > stop
        is_ending = is_stop or is_space(spelling.units[index])
        if not is_ending and not _is_complete(answer):
            ending = []
            n_after = len(spelling.units) - last - 1
            break
        lacks_ending = is_placeholder(answer.token_log_probs[index])
        if lacks_ending:
            break
        ending.append(answer.token_log_probs[index])
        if spelling.is_special[index]:
            break  # the tokens after it, such as padding, are not part of the answer
    log_probs += ending
    is_whole = log_probs == answer.token_log_probs
    ids = answer.token_ids
    return answer._replace(
        token_log_probs=log_probs,
        token_ids=ids[n_before : n_before + len(log_probs)] if isinstance(ids, list) else ids,
        log_prob=answer.log_prob if is_whole else None,
        mean_log_prob=answer.mean_log_prob if is_whole else None,
        n_before=n_before,
        n_after=n_after,
        lacks_ending=lacks_ending,
    )
