"""Find the text of an answer in the joined tokens."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from pro_lib.importing.answers import Answer
from pro_lib.importing.replaced_characters import span_with_replacements
from pro_lib.importing.token_spellings import (
    Span,
    Spelling,
    encoded,
    left_stripped,
    right_stripped,
    without_space,
    without_special_edges,
)


def spans_of_text(
    answer: Answer, spellings: list[Spelling]
) -> Iterator[tuple[str, Spelling, Span]]:
    """Yield the places of an answer's text in its tokens, the most certain first.

    Each place comes with the text that was found, which may lack the special tokens at its ends,
    and with the spelling in which it was found. First the text must be in the tokens exactly; last,
    white space may differ.
    """
    texts = texts_without_specials(answer)
    for find in (_whole, _before_stop, _at_end, span_with_replacements):
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
