"""Find the text of an answer in the joined tokens."""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from pro_lib.importing.answers import Answer
from pro_lib.importing.token_spellings import (
    REPLACEMENT,
    REPLACEMENT_BYTES,
    Span,
    Spelling,
    encoded,
    is_space,
    left_stripped,
    right_stripped,
    without_space,
    without_special_edges,
)

_SPLIT_CHARACTER = rf"[^\x00-\x7f{REPLACEMENT}]"
# A run of U+FFFD, or of bytes that are not UTF-8.
_UNKNOWN_PARTS = re.compile(f"({REPLACEMENT}+|[\udc80-\udcff]+)")


def spans_of_text(
    answer: Answer, spellings: list[Spelling]
) -> Iterator[tuple[str, Spelling, Span]]:
    """Yield the places of an answer's text in its tokens, the most certain first.

    Each place comes with the text that was found, which may lack the special tokens at its ends,
    and with the spelling in which it was found. First the text must be in the tokens exactly; last,
    white space may differ.
    """
    texts = texts_without_specials(answer)
    for find in (_whole, _before_stop, _at_end, _with_replacements):
        for text in texts:
            target = encoded(text.strip())
            for spelling in spellings:
                span = with_outer_space(text, spelling, find(answer, spelling, target))
                if span is not None:
                    yield text, spelling, span
    if answer.token_log_probs[0] is None:  # an echoed prompt is compared exactly
        return
    for text in texts:
        target = b"".join(encoded(text).split())
        for spelling in spellings:
            packed = without_space(spelling)
            span = _at_end(answer, packed, target)
            if span is not None and _word_ends(encoded(text)) <= _word_ends(spelling.joined):
                yield text, packed, span


def texts_without_specials(answer: Answer) -> list[str]:
    """Return the answer's text, and the text without special tokens at its ends if it has some."""
    return list(dict.fromkeys([answer.text, without_special_edges(answer.text)]))


def with_outer_space(text: str, spelling: Spelling, span: Span | None) -> Span | None:
    """Return a span with the white space around the text, or None if the tokens do not spell it."""
    if span is None:
        return None
    if span.start == span.end:
        return span if encoded(text) in spelling.joined else None
    before = encoded(text[: len(text) - len(text.lstrip())])
    after = encoded(text[len(text.rstrip()) :])
    has_space_before = spelling.joined.endswith(before, 0, span.start)
    has_space_after = spelling.joined.startswith(after, span.end)
    if not has_space_before or not has_space_after:
        return None
    return Span(span.start - len(before), span.end + len(after))


def _word_ends(data: bytes) -> set[int]:
    """Return the places of white space, as numbers of other bytes after them."""
    sizes = [len(word) for word in reversed(data.split())]
    places = set(accumulate(sizes[:-1]))
    if data[:1].isspace():
        places.add(sum(sizes))
    if data[-1:].isspace():
        places.add(0)
    return places


def is_complete(answer: Answer) -> bool:
    """Return whether the model ended an answer and its tokens are all that it generated."""
    return answer.finished and answer.n_generated == len(answer.token_texts or ())


def _whole(answer: Answer, spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text that is all that the tokens spell."""
    start = len(spelling.joined) - len(left_stripped(spelling.joined))
    end = len(right_stripped(spelling.joined))
    if not target:
        return Span(0, 0) if not end else None
    return Span(start, end) if spelling.joined[start:end] == target else None


def _at_end(answer: Answer, spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text that the tokens spell last."""
    body = right_stripped(spelling.joined)
    return Span(len(body) - len(target), len(body)) if target and body.endswith(target) else None


def _before_stop(answer: Answer, spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text right before the stop string, which the server cut off."""
    position = stop_position(answer, spelling)
    if position is None:
        return None
    body = right_stripped(spelling.joined[:position])
    if not target:
        return None if body else Span(0, 0)
    return Span(len(body) - len(target), len(body)) if body.endswith(target) else None


def stop_position(answer: Answer, spelling: Spelling) -> int | None:
    """Return where the stop string begins, if it reaches into the last token with a text."""
    if not answer.stop or not answer.finished:
        return None
    stop = encoded(answer.stop)
    position = spelling.joined.rfind(stop)
    last = bisect_left(spelling.ends, len(spelling.joined))
    reaches_last = position + len(stop) > spelling.start_of(last)
    return position if position >= 0 and reaches_last else None


def span_at_start(spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text that the tokens spell first."""
    body = left_stripped(spelling.joined)
    start = len(spelling.joined) - len(body)
    return Span(start, start + len(target)) if target and body.startswith(target) else None


def _with_replacements(answer: Answer, spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text whose characters are split over tokens and shown as U+FFFD.

    All split characters look the same. The result is None if the text fits more than one place, or
    if tokens with a text are after it.
    """
    if not target or REPLACEMENT_BYTES not in target + spelling.joined:
        return None
    if target in spelling.joined:
        return None
    text = target.decode("utf-8", "replace")
    joined = spelling.joined
    spans = set()
    for first, unit in enumerate(spelling.units):
        start = spelling.start_of(first)
        if is_space(unit) or _is_cut(joined[:start].endswith):
            continue
        for end in spelling.ends[first:]:
            piece = left_stripped(right_stripped(joined[start:end]))
            if len(piece) > 3 * len(target):
                break
            is_long = 3 * len(piece) >= len(target)
            if is_long and not _is_cut(joined[end:].startswith) and _shows(piece, text):
                stop = start + len(right_stripped(joined[start:end]))
                spans.add((stop - len(piece), stop))
    [(start, stop), *others] = spans or [(0, 0)]
    is_last = stop == len(right_stripped(joined))
    return Span(start, stop) if is_last and stop and not others else None


def _is_cut(has: Callable[[bytes], bool]) -> bool:
    """Return whether bytes have a single U+FFFD at an end, which is only a part of a character."""
    return has(REPLACEMENT_BYTES) and not has(2 * REPLACEMENT_BYTES)


def _shows(piece: bytes, text: str) -> bool:
    """Return whether tokens show a text, with U+FFFD for the parts of its split characters.

    A character that is split into two to four parts is shown as two to four U+FFFD. A text that was
    cut within a character ends with U+FFFD itself, for the bytes of the last token.
    """
    parts = _UNKNOWN_PARTS.split(piece.decode("utf-8", "surrogateescape"))
    runs = parts[1::2]
    patterns = [re.escape(parts[0])]
    for run, literal in zip(runs, parts[2::2], strict=True):
        most = len(run) // 2 if run[0] == REPLACEMENT else 0
        cut = rf"{_SPLIT_CHARACTER}{{0,{most}}}{REPLACEMENT}{{1,{len(run)}}}"
        whole = rf"{_SPLIT_CHARACTER}{{{math.ceil(len(run) / 4)},{most}}}|" if most else ""
        patterns.append(f"({whole}{cut}){re.escape(literal)}")
    match = re.fullmatch("".join(patterns), text, re.DOTALL)
    if match is None:
        return False
    pairs = zip(runs, match.groups(), strict=True)
    return all(run[0] != REPLACEMENT or len(encoded(shown)) >= len(run) for run, shown in pairs)
