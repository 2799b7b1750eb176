"""Between token ids and texts: what ends an answer, and how its text is trimmed; free of torch, knows no model."""

from collections.abc import Sequence
from typing import Any


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a prompt, with the beginning-of-text token where the tokenizer adds one, and no end of text."""
    ids = tokenizer(text)["input_ids"]
    return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids


def token_text(tokenizer: Any, token_id: int) -> str:
    """The text of a token by itself; part of a character shows as U+FFFD."""
    return tokenizer.decode([token_id], clean_up_tokenization_spaces=False)


def answer_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """The text of an answer, without special tokens, trimmed."""
    return trimmed(tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def trimmed(text: str) -> str:
    """What an answer says: up to its first newline, without surrounding white space."""
    return text.lstrip().partition("\n")[0].strip()


def ending(text: str) -> str | None:
    """How a token with a newline ends an answer: `stop`, `closing` if text comes before it; None if it has none."""
    before, newline, _ = text.partition("\n")
    if not newline:
        return None
    return "closing" if before.strip() else "stop"
