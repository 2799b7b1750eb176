"""Compare the text of an answer with the tokens that a server lists for it, and keep the tokens that spell it."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from pro_lib.common.thoughts import THOUGHT_MARKS
from pro_lib.importing.left_out import NOT_RETURNED, OPEN_THOUGHT, THOUGHT_IN_TOKENS

# The number that servers write for a log-probability that they do not give; vLLM also writes it for -inf.
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
ECHO_UNKNOWN = "whose first token has no probability, as in an echoed prompt, and which start at an unknown token"

# Another spelling of the tokens may show that the text starts and ends with whole tokens.
_REASONS_OF_A_SPELLING = (STARTS_WITHIN, STARTS_WITHIN_WORD, ENDS_WITHIN)

_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>"  # <|im_end|>, <｜end▁of▁sentence｜>
    r"|<\|[a-z_]{1,20}>|<[a-z_]{1,20}\|>"  # <|turn>, <turn|>
    r"|</?(?:s|eos|bos|pad|unk|sep|cls|mask|eod|eot|sop|eop)>"
    r"|</?(?:think|thinking|thought|reasoning|seed:think)>"
    r"|<[a-z]{1,12}_of_[a-z]{1,12}>"  # <end_of_turn>
    r"|\[/?(?:INST|THINK|EOS|BOS|PAD|UNK|SEP|CLS|MASK|gMASK|SYSTEM_PROMPT)\]"
    r"|◁/?think▷"
)
_SPECIAL_EDGES = re.compile(
    rf"\A\s*(?:(?:{_SPECIAL.pattern})\s*)+|\s*(?:(?:{_SPECIAL.pattern})\s*)+\Z"
)
_SPECIAL_SIGNS = ("<", "[", "◁")

_TOKEN_ID = re.compile(r"token_id:\d+")
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# OpenAI writes a token of incomplete characters as "bytes:\xe2\x80", llama.cpp a single byte as "byte: \xe2".
_ESCAPED = re.compile(r"bytes:(?=.*\\x)(.*)|byte: ((?:\\x[0-9a-fA-F]{2})+)", re.DOTALL)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()
_NOT_ASCII = bytes(range(128, 256))
_SPLIT_CHARACTER = rf"[^\x00-\x7f{_REPLACEMENT}]"


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """An answer's text and the tokens that a server lists beside it.

    Attributes:
        text: the answer's text, as the server returned it.
        token_texts: the text of each token, or its bytes; None where it is unknown.
        log_probs: the log-probability of each token, in nats; None or a placeholder where it is unknown.
        finished: whether the model ended the answer; False if the answer was cut at a length.
        token_specials: whether each token is a special one, where the server says so.
        text_offsets: the position of each token's first character in the text, where the server lists it.
        prompt: the text of the prompt, or of the question in it.
        n_prompt_tokens: the number of the prompt's tokens, as the server counts them.
        n_generated: the number of tokens that the model generated, as the server counts them.
        stop: the stop string that ended the answer, where the server names it.
        has_reasoning: whether the server returned reasoning in a field of its own.
    """

    text: str
    token_texts: Sequence[str | bytes | None]
    log_probs: Sequence[Any]
    finished: bool = True
    token_specials: Sequence[bool] | None = None
    text_offsets: Sequence[int] | None = None
    prompt: str | None = None
    n_prompt_tokens: int | None = None
    n_generated: int | None = None
    stop: str | None = None
    has_reasoning: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the model ended the answer, and the tokens are known to be all that it generated."""
        return self.finished and self.n_generated == len(self.token_texts)


@dataclass(frozen=True, slots=True)
class Alignment:
    """The tokens that spell an answer.

    Attributes:
        text: the answer's text without special tokens at its ends and without an echoed prompt.
        token_log_probs: the log-probabilities of the tokens that spell the text and of those that end it.
        end_log_prob: the part of them that belongs to the ending; None if the tokens do not contain an ending, or if
            its log-probability is unknown.
        n_before: the number of tokens before the answer that are left out: an echoed prompt, a prefill, reasoning.
        n_after: the number of tokens after the answer that are left out.
        is_compared: whether text and tokens were compared; False if the token texts are unknown.
        lacks_ending: whether a placeholder stands in the place of the ending's log-probability.
    """

    text: str
    token_log_probs: list[Any]
    end_log_prob: float | None = None
    n_before: int = 0
    n_after: int = 0
    is_compared: bool = True
    lacks_ending: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The reason why an answer cannot be scored; it completes the sentence "3 answers … are left out"."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The bytes that each token adds to the text; none for a special token."""

    units: list[bytes]
    is_special: list[bool]
    joined: bytes
    ends: list[int]  # the position in `joined` after each token

    def start_of(self, index: int) -> int:
        return self.ends[index - 1] if index else 0


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of the joined tokens, in bytes."""

    start: int
    end: int


def is_placeholder(log_prob: object) -> bool:
    """Return whether a server wrote this value in place of a log-probability that it does not give."""
    return log_prob is None or (isinstance(log_prob, int | float) and not log_prob > NOT_GIVEN)


def align(answer: AnswerTokens) -> Alignment | Mismatch:
    """Return the log-probabilities of the tokens that spell an answer, or the reason why it is left out.

    The tokens may spell more than the text: special tokens, an echoed prompt, a prefill, reasoning, or a stop string.
    They may also be written in a tokenizer's own spelling (`▁Paris`, `ĠParis`, `<0x0A>`), and characters that are
    split over tokens may be replaced by U+FFFD. The server may have removed white space, but the tokens must spell the
    white space that the text has. Tokens of white space before the text count as part of the answer, except after
    tokens that are left out.

    The answer is what the tokens spell last. A text that the tokens do not spell, or that starts within a token, is
    a `Mismatch`. A token whose log-probability is a placeholder is one too, except in the place of the ending.

    Example:
        >>> tokens = ["<think>", "Hm", "</think>", "Par", "is", "</s>"]
        >>> alignment = align(AnswerTokens("Paris", tokens, [-1.0, -2.0, -0.5, -0.25, -0.5, -0.125]))
        >>> alignment.n_before, alignment.token_log_probs, alignment.end_log_prob
        (3, [-0.25, -0.5, -0.125], -0.125)
    """
    if len(answer.token_texts) != len(answer.log_probs):
        return Mismatch(UNEVEN)
    return _identical(answer) or _aligned(answer)


def _identical(answer: AnswerTokens) -> Alignment | None:
    """Return the alignment of the usual answer, whose joined tokens are its text; None for any other answer."""
    texts: Any = answer.token_texts
    ending = _shown(texts[-1]) if texts else ""
    has_ending = len(texts) > 1 and answer.finished and (not ending or _is_special(ending))
    body = texts[:-1] if has_ending else texts
    try:
        joined = b"".join(body).decode() if body and isinstance(body[0], bytes) else "".join(body)
    except (TypeError, UnicodeDecodeError):
        return None
    if not joined or joined != answer.text or any(sign in joined for sign in _SPECIAL_SIGNS):
        return None
    if any(map(is_placeholder, answer.log_probs)):
        return None
    log_probs = list(answer.log_probs)
    return Alignment(answer.text, log_probs, log_probs[-1] if has_ending else None)


def _aligned(answer: AnswerTokens) -> Alignment | Mismatch:
    """Return the alignment of any answer."""
    if not answer.token_texts:
        return _without_tokens(answer)
    answer = _with_known_texts(answer)
    is_known = [text is not None for text in answer.token_texts]
    if not any(is_known):
        return _not_compared(answer)
    if not all(is_known[:-1]):  # the ending alone may have no text
        return Mismatch(PARTLY_UNKNOWN)
    texts = [_shown(text) for text in answer.token_texts]
    specials = answer.token_specials or [False] * len(texts)
    is_special = [
        bool(text) and (flag or _is_special(text))
        for text, flag in zip(texts, specials, strict=True)
    ]
    spellings = list(_spellings(answer, texts, is_special))
    reasons = []
    for text, spelling, span in _spans(answer, spellings):
        result = _scored(answer, spelling, span, texts, text)
        if isinstance(result, Alignment):
            return result
        reasons.append(result.reason)
        if result.reason not in _REASONS_OF_A_SPELLING:
            break
    if reasons:
        return Mismatch(reasons[0])
    return (
        _first_part(answer, spellings, texts)
        or _full_text(answer, spellings)
        or _not_found(answer, spellings)
    )


def _spans(
    answer: AnswerTokens, spellings: list[_Spelling]
) -> Iterator[tuple[str, _Spelling, _Span]]:
    """Yield the places of the text in the tokens, the most certain first, with the text that was found."""
    texts = _texts_without_specials(answer)
    for find in (_whole, _before_stop, _at_end, _replaced):
        for text in texts:
            for spelling in spellings:
                span = _with_outer_space(
                    text, spelling, find(answer, spelling, _encoded(text.strip()))
                )
                if span is not None:
                    yield text, spelling, span
    if answer.log_probs[0] is None:  # an echoed prompt is compared exactly
        return
    for text in texts:
        for spelling in spellings:
            packed = _packed(spelling)
            target = b"".join(_encoded(text).split())
            span = _at_end(answer, packed, target)
            if span is not None and _word_ends(_encoded(text)) <= _word_ends(spelling.joined):
                yield text, packed, span


def _with_outer_space(text: str, spelling: _Spelling, span: _Span | None) -> _Span | None:
    """Return a span with the white space around the text, which the tokens must spell as well; else None."""
    if span is None:
        return None
    if span.start == span.end:
        return span if _encoded(text) in spelling.joined else None
    before = _encoded(text[: len(text) - len(text.lstrip())])
    after = _encoded(text[len(text.rstrip()) :])
    is_spelled = spelling.joined.endswith(before, 0, span.start) and spelling.joined.startswith(
        after, span.end
    )
    return _Span(span.start - len(before), span.end + len(after)) if is_spelled else None


def _packed(spelling: _Spelling) -> _Spelling:
    """Return a spelling without white space."""
    return _spelled([b"".join(unit.split()) for unit in spelling.units], spelling.is_special)


def _word_ends(data: bytes) -> set[int]:
    """Return the places of white space, as numbers of other bytes after them."""
    sizes = [len(word) for word in reversed(data.split())]
    places = set(accumulate(sizes[:-1]))
    if data[:1].isspace():
        places.add(sum(sizes))
    return places | {0} if data[-1:].isspace() else places


def _texts_without_specials(answer: AnswerTokens) -> list[str]:
    """Return the answer's text, and the text without the special tokens at its ends where it has some."""
    return list(dict.fromkeys([answer.text, _without_special_edges(answer.text)]))


def _first_part(
    answer: AnswerTokens, spellings: list[_Spelling], texts: list[str]
) -> Alignment | Mismatch | None:
    """Return the tokens of a text that they spell first, before a stop string that the server does not name."""
    is_exact = not any(_REPLACEMENT_BYTES in spelling.joined for spelling in spellings)
    if not answer.finished or answer.has_reasoning or not is_exact:
        return None
    reason = None
    for text in _texts_without_specials(answer):
        for spelling in spellings:
            span = _with_outer_space(text, spelling, _at_start(spelling, _encoded(text.strip())))
            result = _scored(answer, spelling, span, texts, text) if span else None
            if isinstance(result, Alignment):
                return result
            reason = reason or result
    return reason


def _without_tokens(answer: AnswerTokens) -> Alignment | Mismatch:
    if answer.text.strip():
        return Mismatch(TOO_FEW)
    return Mismatch(NOT_RETURNED) if answer.finished else Alignment(answer.text, [])


def _not_compared(answer: AnswerTokens) -> Alignment | Mismatch:
    """Return all tokens of an answer, since their texts are unknown."""
    if answer.has_reasoning:
        return Mismatch(THOUGHT_IN_TOKENS)
    if any(map(is_placeholder, answer.log_probs)):
        return Mismatch(NOT_RETURNED)
    return Alignment(_without_special_edges(answer.text), list(answer.log_probs), is_compared=False)


def _with_known_texts(answer: AnswerTokens) -> AnswerTokens:
    """Return the answer with None for texts that only name an id, or with the texts that offsets give."""
    texts = [
        None if text is None or _TOKEN_ID.fullmatch(_shown(text)) else text
        for text in answer.token_texts
    ]
    offsets = answer.text_offsets
    is_named = any(text is not None for text in answer.token_texts)
    if is_named or not offsets or len(offsets) != len(texts):
        return replace(answer, token_texts=texts)
    positions = [offset - offsets[0] for offset in offsets] + [len(answer.text)]
    if positions != sorted(positions):
        return answer
    pieces = [answer.text[start:end] for start, end in pairwise(positions)]
    return replace(answer, token_texts=pieces)


# --- Spellings of tokens ---


def _spellings(
    answer: AnswerTokens, texts: list[str], is_special: list[bool]
) -> Iterator[_Spelling]:
    """Yield the spellings of the tokens that may be meant: as they are, and those of two kinds of tokenizers."""
    spellers = [_plain]
    joined = "".join(texts)
    if "▁" in joined or "<0x" in joined:
        spellers.append(_sentencepiece)
    if not joined.isascii():
        spellers.append(_byte_level)
    tokens = list(zip(answer.token_texts, texts, is_special, strict=True))
    for spell in spellers:
        units = []
        for token, text, special in tokens:
            has_only_bytes = spell is _plain or _REPLACEMENT in text
            unit = token if isinstance(token, bytes) and has_only_bytes else spell(text)
            units.append(b"" if special else unit)
        yield _spelled(units, is_special)


def _spelled(units: list[bytes], is_special: list[bool]) -> _Spelling:
    return _Spelling(units, is_special, b"".join(units), list(accumulate(map(len, units))))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _shown(text: str | bytes | None) -> str:
    if text is None:  # the ending alone may have no text
        return ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


@lru_cache(maxsize=1 << 16)
def _is_special(text: str) -> bool:
    return bool(_SPECIAL.fullmatch(text.strip()))


@lru_cache(maxsize=1 << 16)
def _plain(text: str) -> bytes:
    escaped = _ESCAPED.fullmatch(text) if text.startswith("byte") else None
    if not escaped:
        return _encoded(text)
    data = _encoded(escaped[1] or escaped[2])
    return re.sub(rb"\\x([0-9a-fA-F]{2})", lambda digits: bytes.fromhex(digits[1].decode()), data)


@lru_cache(maxsize=1 << 16)
def _sentencepiece(text: str) -> bytes:
    byte = _BYTE_FALLBACK.fullmatch(text)
    return bytes.fromhex(byte[1]) if byte else _encoded(text.replace("▁", " "))


def _bytes_by_character() -> dict[str, int]:
    """Return the byte that each character stands for in the vocabulary of a byte-level tokenizer (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _bytes_by_character()


@lru_cache(maxsize=1 << 16)
def _byte_level(text: str) -> bytes:
    if all(character in _BYTE_OF for character in text):
        return bytes(_BYTE_OF[character] for character in text)
    return _encoded(text)


def _without_special_edges(text: str) -> str:
    """Return a text without the special tokens at its ends, and without the white space beside them."""
    if not any(sign in text for sign in _SPECIAL_SIGNS):
        return text
    return _SPECIAL_EDGES.sub("", text)


# --- Places of the text in the joined tokens ---


def _whole(answer: AnswerTokens, spelling: _Spelling, target: bytes) -> _Span | None:
    """Return the span of a text that is all that the tokens spell."""
    start = len(spelling.joined) - len(_left_stripped(spelling.joined))
    end = len(_right_stripped(spelling.joined))
    if not target:
        return _Span(0, 0) if not end else None
    return _Span(start, end) if spelling.joined[start:end] == target else None


def _at_end(answer: AnswerTokens, spelling: _Spelling, target: bytes) -> _Span | None:
    """Return the span of a text that the tokens spell last."""
    body = _right_stripped(spelling.joined)
    return _Span(len(body) - len(target), len(body)) if target and body.endswith(target) else None


def _before_stop(answer: AnswerTokens, spelling: _Spelling, target: bytes) -> _Span | None:
    """Return the span of a text right before the stop string, which the server cut off."""
    position = _stop_position(answer, spelling)
    if position is None:
        return None
    body = _right_stripped(spelling.joined[:position])
    if not target:
        return None if body else _Span(0, 0)
    return _Span(len(body) - len(target), len(body)) if body.endswith(target) else None


def _stop_position(answer: AnswerTokens, spelling: _Spelling) -> int | None:
    """Return where the stop string begins, if it reaches into the last token with a text."""
    if not answer.stop or not answer.finished:
        return None
    stop = _encoded(answer.stop)
    position = spelling.joined.rfind(stop)
    last = bisect_left(spelling.ends, len(spelling.joined))
    return position if position >= 0 and position + len(stop) > spelling.start_of(last) else None


def _at_start(spelling: _Spelling, target: bytes) -> _Span | None:
    """Return the span of a text that the tokens spell first."""
    body = _left_stripped(spelling.joined)
    start = len(spelling.joined) - len(body)
    return _Span(start, start + len(target)) if target and body.startswith(target) else None


def _replaced(answer: AnswerTokens, spelling: _Spelling, target: bytes) -> _Span | None:
    """Return the span of a text whose characters are split over tokens and shown as U+FFFD.

    Any split character looks like any other. None is returned if the text also fits other tokens than the last ones.
    """
    is_shown = _REPLACEMENT_BYTES in target or _REPLACEMENT_BYTES in spelling.joined
    if not target or not is_shown or target in spelling.joined:
        return None
    text = target.decode("utf-8", "replace")
    found = set()
    for start, stop in _ranges_of_length(spelling, len(target)):
        piece = spelling.joined[start:stop]
        inner = _left_stripped(_right_stripped(piece))
        is_border = not (
            _ends_with_part(spelling.joined[:start]) or _starts_with_part(spelling.joined[stop:])
        )
        is_alike = inner.translate(None, _NOT_ASCII) == target.translate(None, _NOT_ASCII)
        if is_alike and is_border and _fits(inner, text):
            found.add((stop - len(_left_stripped(piece)), start + len(_right_stripped(piece))))
    end = len(_right_stripped(spelling.joined))
    if len(found) != 1:
        return None
    [(start, stop)] = found
    return _Span(start, stop) if stop == end else None


def _ranges_of_length(spelling: _Spelling, length: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the tokens that may show so many bytes, each U+FFFD (3 bytes) for one to three."""
    for first, unit in enumerate(spelling.units):
        start = spelling.start_of(first)
        if _is_space(unit):
            continue
        for last in range(first, len(spelling.units)):
            stop = spelling.ends[last]
            if stop - start > 3 * length + len(spelling.units[last]):
                break
            if 3 * (stop - start) >= length and spelling.units[last]:
                yield start, stop


def _ends_with_part(data: bytes) -> bool:
    """Return whether data ends with one U+FFFD alone, since a split character is shown as two at least."""
    rest = data.removesuffix(_REPLACEMENT_BYTES)
    return rest != data and not rest.endswith(_REPLACEMENT_BYTES)


def _starts_with_part(data: bytes) -> bool:
    """Return whether data starts with one U+FFFD alone."""
    rest = data.removeprefix(_REPLACEMENT_BYTES)
    return rest != data and not rest.startswith(_REPLACEMENT_BYTES)


def _fits(spelled: bytes, text: str) -> bool:
    """Return whether tokens show a text, with U+FFFD in place of the parts of its split characters.

    A character that is split into two to four parts is shown as so many U+FFFD. A text that was cut within a
    character ends with U+FFFD itself, in place of the bytes of the last token.
    """
    parts = re.split(
        f"({_REPLACEMENT}+|[\udc80-\udcff]+)", spelled.decode("utf-8", "surrogateescape")
    )
    patterns = [re.escape(parts[0])]
    for run, literal in zip(parts[1::2], parts[2::2], strict=True):
        most = len(run) // 2 if run[0] == _REPLACEMENT else 0
        cut = rf"{_SPLIT_CHARACTER}{{0,{most}}}{_REPLACEMENT}{{1,{len(run)}}}"
        whole = rf"{_SPLIT_CHARACTER}{{{-(-len(run) // 4)},{most}}}|" if most else ""
        patterns.append(f"({whole}{cut})" + re.escape(literal))
    match = re.fullmatch("".join(patterns), text, re.DOTALL)
    if not match:
        return False
    runs = zip(parts[1::2], match.groups(), strict=True)
    return all(run[0] != _REPLACEMENT or len(run) <= len(_encoded(part)) for run, part in runs)


def _left_stripped(data: bytes) -> bytes:
    return data.decode("utf-8", "surrogateescape").lstrip().encode("utf-8", "surrogateescape")


def _right_stripped(data: bytes) -> bytes:
    return data.decode("utf-8", "surrogateescape").rstrip().encode("utf-8", "surrogateescape")


def _is_space(data: bytes) -> bool:
    return not data.decode("utf-8", "surrogateescape").strip()


# --- The tokens of a span ---


def _scored(
    answer: AnswerTokens, spelling: _Spelling, span: _Span, texts: list[str], text: str
) -> Alignment | Mismatch:
    """Return the tokens of a span with those that end it, or the reason why they cannot be scored."""
    if span.start == span.end:
        return _scored_empty(answer, spelling, texts)
    first = bisect_right(spelling.ends, span.start)
    last = bisect_left(spelling.ends, span.end)
    is_text_before = not _is_space(spelling.joined[: spelling.start_of(first)])
    n_before = first if is_text_before or any(spelling.is_special[:first]) else 0
    reason = _border_reason(answer, spelling, span, first, last)
    if not reason and n_before:
        reason = _reason_before(spelling, span, texts[:first], first)
    if reason:
        return Mismatch(reason)
    if answer.log_probs[0] is None and not is_text_before:
        echo = _echo_end(answer, spelling, span, last)
        if isinstance(echo, Mismatch):
            return echo
        n_before, text = echo
    ending = _ending(answer, spelling, last)
    log_probs = list(answer.log_probs[n_before : last + 1])
    if any(map(is_placeholder, log_probs)):
        return Mismatch(NOT_RETURNED)
    return replace(
        ending, text=text, token_log_probs=log_probs + ending.token_log_probs, n_before=n_before
    )


def _scored_empty(
    answer: AnswerTokens, spelling: _Spelling, texts: list[str]
) -> Alignment | Mismatch:
    """Return the tokens that end an answer without a text."""
    shown = "".join(texts)
    if any(mark in shown for mark in (*THOUGHT_MARKS, *THOUGHT_MARKS.values())):
        return Mismatch(THOUGHT_IN_TOKENS)
    ending = _ending(answer, spelling, -1)
    return ending if ending.token_log_probs else Mismatch(NOT_RETURNED)


def _border_reason(
    answer: AnswerTokens, spelling: _Spelling, span: _Span, first: int, last: int
) -> str | None:
    """Return why a span does not consist of whole tokens, if it does not."""
    if not _is_space(spelling.joined[spelling.start_of(first) : span.start]):
        return STARTS_WITHIN
    stop = None if answer.is_complete else _stop_position(answer, spelling)
    rest = spelling.joined[span.end : spelling.ends[last] if stop is None else max(stop, span.end)]
    if not _is_space(rest) and not answer.is_complete:
        return ENDS_WITHIN
    if any(spelling.is_special[first : last + 1]):
        return SPECIAL_WITHIN
    return None


def _reason_before(spelling: _Spelling, span: _Span, before: list[str], first: int) -> str | None:
    """Return why the tokens before a span make it uncertain, if they do."""
    shown = "".join(before)
    opened = max(map(shown.rfind, THOUGHT_MARKS))
    if opened > max(map(shown.rfind, THOUGHT_MARKS.values())):
        return OPEN_THOUGHT
    previous = next(
        (n for n in reversed(range(first)) if spelling.units[n] or spelling.is_special[n]), first
    )
    is_ascii = spelling.joined[span.start] < 128
    if previous < first - 1 and not is_ascii:  # an empty token may be the first part of a character
        return STARTS_WITHIN
    is_word = spelling.joined[span.start - 1 : span.start + 1].isalnum() and span.start > 0
    if is_word and not spelling.is_special[previous]:
        return STARTS_WITHIN_WORD
    return None


def _ending(answer: AnswerTokens, spelling: _Spelling, last: int) -> Alignment:
    """Return the tokens after the text that belong to the answer: white space, a stop string, and a special token."""
    stop = _stop_position(answer, spelling)
    kept: list[Any] = []
    ending: list[Any] = []
    for index in range(last + 1, len(spelling.units)):
        unit, log_prob = spelling.units[index], answer.log_probs[index]
        is_stop = stop is not None and spelling.ends[index] > stop
        if not _is_space(unit) and not is_stop:
            if not answer.is_complete:
                return Alignment("", [], n_after=len(spelling.units) - last - 1)
            is_stop = True  # the server cut off a stop string that it does not name
        if is_placeholder(log_prob):
            return Alignment("", kept, lacks_ending=True)
        kept.append(log_prob)
        if answer.finished and (not unit or is_stop):
            ending.append(log_prob)
        if spelling.is_special[
            index
        ]:  # what follows the end, such as padding, is not part of the answer
            break
    is_number = all(isinstance(log_prob, int | float) and log_prob <= 1 for log_prob in ending)
    return Alignment("", kept, sum(ending) if ending and is_number else None)


# --- Echoed prompts ---


def _echo_end(
    answer: AnswerTokens, spelling: _Spelling, span: _Span, last: int
) -> tuple[int, str] | Mismatch:
    """Return the number of tokens of an echoed prompt, whose first token has no probability, and the text after it."""
    given = [
        index for index, log_prob in enumerate(answer.log_probs[: last + 1]) if log_prob is not None
    ]
    if not given:
        return Mismatch(NOT_RETURNED)
    by_prompt = _prompt_end(answer, spelling, span)
    n_before = answer.n_prompt_tokens or by_prompt
    if n_before is None and given[0] > 1:
        n_before = given[0]
    if n_before is None or not given[0] <= n_before <= last or n_before < (by_prompt or 0):
        return Mismatch(ECHO_UNKNOWN)
    text = (
        spelling.joined[spelling.start_of(n_before) : span.end].decode("utf-8", "replace").strip()
    )
    # A question may be only a part of the prompt. A colon or a line break then ends the rest of it.
    if answer.n_prompt_tokens is None and by_prompt is not None and re.search(r"[:\n]", text):
        return Mismatch(ECHO_UNKNOWN)
    return (n_before, text) if text else Mismatch(ECHO_UNKNOWN)


def _prompt_end(answer: AnswerTokens, spelling: _Spelling, span: _Span) -> int | None:
    """Return the number of tokens that spell the prompt at the start of a span; None if it does not start with it."""
    prompt = _encoded((answer.prompt or "").strip())
    position = span.start + len(prompt)
    if not prompt or not spelling.joined.startswith(prompt, span.start):
        return None
    index = bisect_left(spelling.ends, position)
    is_border = _is_space(spelling.joined[position : spelling.ends[index]])
    return index + 1 if is_border else None


def _full_text(answer: AnswerTokens, spellings: list[_Spelling]) -> Alignment | Mismatch | None:
    """Return the alignment of a text that holds the prompt before the answer, where the tokens spell the answer alone.

    The tokens are known to be complete if the server counts as many, or if the rest of the text is the prompt. A
    prompt that is known must be in the rest of the text.
    """
    target = answer.text.strip()
    prompt = (answer.prompt or "").strip()
    for spelling in spellings:
        shown = spelling.joined.decode("utf-8", "replace").strip()
        if not shown or shown == target or not target.endswith(shown):
            continue
        rest = target.removesuffix(shown).strip()
        is_complete = answer.n_generated == len(spelling.units) and prompt in rest
        if is_complete or (prompt and rest == prompt):
            return _aligned(replace(answer, text=shown))
    return None


def _not_found(answer: AnswerTokens, spellings: list[_Spelling]) -> Mismatch:
    """Return why a text was not found in the tokens."""
    if any(_REPLACEMENT_BYTES in spelling.joined for spelling in spellings):
        return Mismatch(SPLIT_UNKNOWN)
    cleaned = _without_special_edges(answer.text)
    if _SPECIAL.search(cleaned):
        return Mismatch(SPECIAL_WITHIN)
    shown = [spelling.joined.decode("utf-8", "replace").strip() for spelling in spellings]
    return Mismatch(TOO_FEW if any(text in cleaned for text in shown) else DIFFERENT)
