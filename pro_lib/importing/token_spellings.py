"""Spell the tokens that a server lists, in the forms that servers and tokenizers write them."""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from pro_lib.common.control_tokens import CONTROL_SIGNS, CONTROL_TOKEN
from pro_lib.importing.parsed_answers import ParsedAnswer

_CONTROL_TOKENS = rf"(?:(?:{CONTROL_TOKEN.pattern})\s*)+"
_CONTROL_EDGES = re.compile(rf"\A\s*{_CONTROL_TOKENS}|\s*{_CONTROL_TOKENS}\Z")

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Many libraries show a part of a character as U+FFFD.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
REPLACEMENT_BYTES = REPLACEMENT.encode()


class Spelling(NamedTuple):
    """The bytes that each token adds to the text.

    Attributes:
        texts: the text of each token, "" if unknown.
        units: the bytes of each token; none for a special token.
        is_special: whether each token is special.
        joined: the bytes of all tokens.
        ends: the position in `joined` after each token.
    """

    texts: list[str]
    units: list[bytes]
    is_special: list[bool]
    joined: bytes
    ends: list[int]

    def start_of(self, index: int) -> int:
        """Return the position of a token in `joined`."""
        return self.ends[index - 1] if index else 0


def possible_spellings(answer: ParsedAnswer) -> list[Spelling]:
    """Return the possible spellings of the tokens of an answer.

    They are the texts as they are, and the texts in the spelling of SentencePiece, which comes
    first, or of byte-level tokenizers, if they look like it.
    """
    tokens = answer.token_texts
    texts = [shown(token) for token in tokens]
    flags = answer.token_specials or [False] * len(texts)
    is_special = [
        bool(text) and (flag or is_control_token(text))
        for text, flag in zip(texts, flags, strict=True)
    ]
    spellers: list[Callable[[str], bytes]] = [_as_written]
    joined = "".join(texts)
    if "▁" in joined or "<0x" in joined:
        # It comes first, because a token `▁` before the text is white space of the answer.
        spellers.insert(0, _from_sentencepiece)
    if not joined.isascii():
        spellers.append(_from_byte_level)
    spellings = []
    for spell in spellers:
        units = []
        for token, text, special in zip(tokens, texts, is_special, strict=True):
            has_only_bytes = spell is _as_written or REPLACEMENT in text
            if special:
                units.append(b"")
            elif isinstance(token, bytes) and has_only_bytes:
                units.append(token)
            else:
                units.append(spell(text))
        ends = list(accumulate(map(len, units)))
        spellings.append(Spelling(texts, units, is_special, b"".join(units), ends))
    return spellings


@lru_cache(maxsize=1 << 16)
def _as_written(text: str) -> bytes:
    """Return the bytes of a token's text, in which OpenAI writes the bytes of some characters."""
    data = encoded(text)
    if not (text.startswith("bytes:") and "\\x" in text):
        return data
    digits = re.compile(rb"\\x([0-9a-fA-F]{2})")
    return digits.sub(lambda match: bytes.fromhex(match[1].decode()), data[len("bytes:") :])


@lru_cache(maxsize=1 << 16)
def _from_sentencepiece(text: str) -> bytes:
    """Return the bytes of a token in SentencePiece's spelling: `▁Paris`, `<0x0A>`."""
    byte = _BYTE_FALLBACK.fullmatch(text)
    return bytes.fromhex(byte[1]) if byte else encoded(text.replace("▁", " "))


# The byte of each character in GPT-2's table for byte-level tokenizers.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE}
BYTE_OF_CHARACTER |= {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}


@lru_cache(maxsize=1 << 16)
def _from_byte_level(text: str) -> bytes:
    """Return the bytes of a token in the spelling of byte-level tokenizers: `ĠParis`."""
    if all(character in BYTE_OF_CHARACTER for character in text):
        return bytes(BYTE_OF_CHARACTER[character] for character in text)
    return encoded(text)


# --- Texts and bytes ---


def encoded(text: str) -> bytes:
    """Return a text in UTF-8, also with unpaired surrogates."""
    return text.encode("utf-8", "surrogatepass")


def shown(text: str | bytes | None) -> str:
    """Return a token as text, or "" if it has no text, as the ending alone may have."""
    if text is None:
        return ""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


@lru_cache(maxsize=1 << 16)
def is_control_token(text: str) -> bool:
    """Return whether a token's text is that of a control token."""
    return bool(CONTROL_TOKEN.fullmatch(text.strip()))


def without_special_edges(text: str) -> str:
    """Return a text without the special tokens at its ends and the white space next to them."""
    if not any(sign in text for sign in CONTROL_SIGNS):
        return text
    return _CONTROL_EDGES.sub("", text)


def right_stripped(data: bytes) -> bytes:
    """Return bytes of text without white space at the end."""
    return data.decode("utf-8", "surrogateescape").rstrip().encode("utf-8", "surrogateescape")


def is_space(data: bytes) -> bool:
    """Return whether bytes of text are white space only, or empty."""
    return not data.decode("utf-8", "surrogateescape").strip()
