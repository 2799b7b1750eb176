"""Between token ids and texts: what ends an answer, and how its text is trimmed; free of torch, knows no model."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

# What ends every answer.
NEWLINE = ("\n",)
_EXACTLY = {"clean_up_tokenization_spaces": False}
# What chat templates take for today, so that a run does not depend on the day: the date that Llama's own fall back on.
TODAY = "2024-07-26"
# Characters of a chat template, and of a prompt that one makes: over longer ones tokenizers take minutes, or crash.
_LONGEST = 2**20
# How thoughts begin, in the prompt or in the answer: of DeepSeek and Qwen, Seed, Mistral, Cohere, gpt-oss, Gemma, Kimi.
_THOUGHTS: tuple[str, ...] = ("<think>", "<thinking>", "<thought>", "<seed:think>", "[THINK]", "<|START_THINKING|>")
_THOUGHTS += ("<|channel|>analysis", "<|channel>thought", "◁think▷", "<reasoning>")


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> str:
    """Return a conversation in the chat template, up to where the answer begins.

    `options` are the template's, and `date`, its today. Raises `ValueError`, or what the template raises, if refused.
    """
    template, settings = tokenizer.get_chat_template(), dict(options)
    if len(template) > _LONGEST:
        raise ValueError(f"it has {len(template):,} characters, more than {_LONGEST:,}")
    for name in options:
        if name not in template and not (name == "date" and "strftime_now" in template):
            raise ValueError(f"it has no option {name!r}")
    day = date.fromisoformat(settings.pop("date", TODAY))
    # Transformers answers this call with the day it is, whatever it is given.
    template = re.sub(r"""strftime_now\(\s*(["'])(.*?)\1\s*\)""", lambda call: repr(day.strftime(call[2])), template)
    if "strftime_now(" in template:
        raise ValueError("it asks for the date in a way that is not known here")
    settings |= {"chat_template": template, "tokenize": False, "add_generation_prompt": True}
    text = tokenizer.apply_chat_template(list(messages), **settings)
    if len(text) > _LONGEST:
        raise ValueError(f"what it makes of the prompt has {len(text):,} characters, more than {_LONGEST:,}")
    if text.rstrip().endswith(_THOUGHTS):
        raise ValueError("it opens a thinking block; an option may close it, as chat={'enable_thinking': False}")
    return text


def thought(text: str) -> str | None:
    """Return the mark of a thought that the text begins with, if it does."""
    return next((mark for mark in _THOUGHTS if text.lstrip().startswith(mark)), None)


@lru_cache(maxsize=2)
def token_texts(tokenizer: Any, n_tokens: int) -> tuple[str, ...]:
    """Return the texts of the first `n_tokens`, each by itself, part of a character as U+FFFD; more may be added."""
    # mistral-common's SentencePiece writes pieces raw unless special tokens are skipped, which have then no text.
    texts = (tokenizer.decode([token_id], skip_special_tokens=True, **_EXACTLY) for token_id in range(n_tokens))
    return tuple(text or tokenizer.decode([n], skip_special_tokens=False, **_EXACTLY) for n, text in enumerate(texts))


def answer_text(tokenizer: Any, token_ids: Sequence[int], ends: Sequence[str] = NEWLINE) -> str:
    """Return the text of an answer up to the first text that ends it, without special tokens, trimmed."""
    text = tokenizer.decode(list(token_ids), skip_special_tokens=True, **_EXACTLY)
    return _before(text.lstrip(), ends).strip()


def _before(text: str, ends: Sequence[str]) -> str:
    return min((text.partition(end)[0] for end in ends), key=len)


def endings(tokenizer: Any, ends: Sequence[str], *configurations: Any, size: int | None = None) -> list[str | None]:
    """Return for `size` tokens how each ends an answer at one of `ends`: `stop`, `closing` (after text), or None."""
    cut = ((text, _before(text, ends)) for text in token_texts(tokenizer, len(tokenizer)))
    kinds = [None if before == text else "closing" if before.strip() else "stop" for text, before in cut]
    kinds = kinds if size is None else (kinds + [None] * size)[:size]
    for source in (tokenizer, *configurations):
        ids = getattr(source, "eos_token_id", None)
        for token_id in [ids] if isinstance(ids, int) else ids or []:
            if 0 <= token_id < len(kinds):
                kinds[token_id] = "stop"
    return kinds
