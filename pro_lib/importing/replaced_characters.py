"""Find an answer in tokens that show the parts of split characters as U+FFFD."""

import math
import re
from collections.abc import Iterator

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
)

_NOT_ASCII = bytes(range(128, 256))
_SPLIT_CHARACTER = rf"[^\x00-\x7f{REPLACEMENT}]"
# A run of U+FFFD, or of bytes that are not UTF-8.
_UNKNOWN_PARTS = re.compile(f"({REPLACEMENT}+|[\udc80-\udcff]+)")


def span_with_replacements(answer: Answer, spelling: Spelling, target: bytes) -> Span | None:
    """Return the span of a text whose characters are split over tokens and shown as U+FFFD.

    All split characters look the same. The result is None if the text also fits other tokens than
    the last ones.

    Args:
        answer: not used; the other functions that find a text need it.
        spelling: the tokens.
        target: the text in UTF-8, without white space around it.
    """
    has_replacements = REPLACEMENT_BYTES in target or REPLACEMENT_BYTES in spelling.joined
    if not target or not has_replacements or target in spelling.joined:
        return None
    spans = set()
    for start, stop in _ranges_of_length(spelling, len(target)):
        if _shows(spelling.joined, start, stop, target):
            piece = spelling.joined[start:stop]
            spans.add((stop - len(left_stripped(piece)), start + len(right_stripped(piece))))
    if len(spans) != 1:
        return None
    [(start, stop)] = spans
    return Span(start, stop) if stop == len(right_stripped(spelling.joined)) else None


def _ranges_of_length(spelling: Spelling, length: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the tokens that may show so many bytes of text.

    A U+FFFD has 3 bytes and stands for 1 to 3 bytes of the text.
    """
    for first, unit in enumerate(spelling.units):
        if is_space(unit):
            continue
        start = spelling.start_of(first)
        for last in range(first, len(spelling.units)):
            stop = spelling.ends[last]
            if stop - start > 3 * length + len(spelling.units[last]):
                break
            if 3 * (stop - start) >= length and spelling.units[last]:
                yield start, stop


def _shows(joined: bytes, start: int, stop: int, target: bytes) -> bool:
    """Return whether a range of the joined tokens may show the text."""
    piece = left_stripped(right_stripped(joined[start:stop]))
    if piece.translate(None, _NOT_ASCII) != target.translate(None, _NOT_ASCII):
        return False
    if _ends_with_part(joined[:start]) or _starts_with_part(joined[stop:]):
        return False
    return _fits(piece, target.decode("utf-8", "replace"))


def _ends_with_part(data: bytes) -> bool:
    """Return whether data ends with a single U+FFFD, which is only a part of a character."""
    rest = data.removesuffix(REPLACEMENT_BYTES)
    return rest != data and not rest.endswith(REPLACEMENT_BYTES)


def _starts_with_part(data: bytes) -> bool:
    """Return whether data starts with a single U+FFFD."""
    rest = data.removeprefix(REPLACEMENT_BYTES)
    return rest != data and not rest.startswith(REPLACEMENT_BYTES)


def _fits(piece: bytes, text: str) -> bool:
    """Return whether tokens show a text, with U+FFFD for the parts of its split characters.

    A character that is split into two to four parts is shown as two to four U+FFFD. A text that was
    cut within a character ends with U+FFFD itself, for the bytes of the last token.
    """
    parts = _UNKNOWN_PARTS.split(piece.decode("utf-8", "surrogateescape"))
    runs = parts[1::2]
    patterns = [re.escape(parts[0])]
    for run, literal in zip(runs, parts[2::2], strict=True):
        patterns.append(f"({_pattern_of_run(run)}){re.escape(literal)}")
    match = re.fullmatch("".join(patterns), text, re.DOTALL)
    if not match:
        return False
    for run, characters in zip(runs, match.groups(), strict=True):
        has_too_few_bytes = len(encoded(characters)) < len(run)
        if run[0] == REPLACEMENT and has_too_few_bytes:
            return False
    return True


def _pattern_of_run(run: str) -> str:
    """Return a pattern for the characters that a run of U+FFFD or of bytes may stand for."""
    n_most = len(run) // 2 if run[0] == REPLACEMENT else 0
    cut_character = rf"{_SPLIT_CHARACTER}{{0,{n_most}}}{REPLACEMENT}{{1,{len(run)}}}"
    if not n_most:
        return cut_character
    n_least = math.ceil(len(run) / 4)
    return rf"{_SPLIT_CHARACTER}{{{n_least},{n_most}}}|{cut_character}"
