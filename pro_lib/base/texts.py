"""Between token ids and texts: what ends an answer, and how its text is trimmed; free of torch, knows no model."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

# What ends every answer.
NEWLINE = ("\n",)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, with the beginning-of-text token where the tokenizer adds one, and no end of text."""
    ids = tokenizer(text)["input_ids"]
    return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids


def token_text(tokenizer: Any, token_id: int) -> str:
    """The text of a token by itself; part of a character shows as U+FFFD."""
    return tokenizer.decode([token_id], clean_up_tokenization_spaces=False)


@lru_cache(maxsize=2)
def token_texts(tokenizer: Any) -> tuple[str, ...]:
    """The texts of all tokens, each by itself."""
    return tuple(token_text(tokenizer, token_id) for token_id in range(len(tokenizer)))


def answer_text(tokenizer: Any, token_ids: Sequence[int], ends: Sequence[str] = NEWLINE) -> str:
    """The text of an answer, without special tokens, trimmed."""
    text = tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return trimmed(text, ends)


def trimmed(text: str, ends: Sequence[str] = NEWLINE) -> str:
    """What an answer says: up to the first of the texts that end it, without surrounding white space."""
    return _before(text.lstrip(), ends).strip()


def ending(text: str, ends: Sequence[str] = NEWLINE) -> str | None:
    """How a token ends an answer at one of these texts: `stop`, `closing` if text comes before; None if it has none."""
    if not any(end in text for end in ends):
        return None
    return "closing" if _before(text, ends).strip() else "stop"


def _before(text: str, ends: Sequence[str]) -> str:
    return min((text.partition(end)[0] for end in ends), key=len)
