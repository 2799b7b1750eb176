"""Texts of tokens: control tokens, and the tokens that end an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase as Tokenizer

from pro_lib.common.control_tokens import ADDED_CONTROL_TOKEN
from pro_lib.generation.decoding.compatibility import PackingError
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import reducing_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NEWLINE = ("\n",)  # the text that ends every answer


def decode(tokenizer: Any, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
    """Return the text of some tokens, without the removal of spaces that some tokenizers do."""
    return str(
        tokenizer.decode(
            list(token_ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
    )


@lru_cache(maxsize=2)
def control_tokens(tokenizer: Any, n_tokens: int) -> tuple[re.Pattern, frozenset[int]]:
    """Return a pattern for the texts of a tokenizer's control tokens, and their ids.

    Added tokens of white space, words or HTML, which some tokenizers have, are not control tokens.

    Args:
        tokenizer: the tokenizer.
        n_tokens: the tokenizer's length, so that the cached result changes if tokens are added.
    """
    texts: dict[int, str] = {}
    for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        text = str(token.content)
        if text.strip() and (token.special or ADDED_CONTROL_TOKEN.fullmatch(text.strip())):
            texts[token_id] = text
    longest_first = sorted(texts.values(), key=len, reverse=True)
    matches_nothing = r"(?!)"
    pattern = "|".join(map(re.escape, longest_first)) or matches_nothing
    return re.compile(pattern), frozenset(texts)


def first_control_token(tokenizer: Tokenizer, text: str) -> str | None:
    """Return the first control token that is written in a text, or None if there is none."""
    pattern, _ = control_tokens(tokenizer, len(tokenizer))
    match = pattern.search(text)
    return match[0] if match else None


@lru_cache(maxsize=2)
def token_texts(tokenizer: Any, n_tokens: int) -> tuple[str, ...]:
    """Return the text of each of the first `n_tokens` tokens.

    Part of a character is U+FFFD.
    """
    texts = []
    for token_id in range(n_tokens):
        # mistral-common's SentencePiece returns raw pieces unless special tokens are skipped, and
        # then special tokens have no text.
        text = decode(tokenizer, [token_id], skip_special_tokens=True)
        texts.append(text or decode(tokenizer, [token_id], skip_special_tokens=False))
    return tuple(texts)


def text_before(text: str, ends: Sequence[str]) -> str:
    """Return the part of a text before the first occurrence of one of `ends`."""
    return min((text.partition(end)[0] for end in ends), key=len)


def classify_tokens(
    tokenizer: Any, ends: Sequence[str], *configurations: Any, size: int
) -> Endings:
    """Return which of `size` tokens end an answer.

    Args:
        tokenizer: the tokenizer; None if only the ids in `configurations` end an answer.
        ends: texts that end an answer. A token that contains one of them is a stop token if it has
            only white space before that text. Otherwise it is a closing token: it also ends the
            answer, but the part before that text belongs to the answer.
        configurations: objects with an `eos_token_id`, which may be an id, several or None.
        size: the number of tokens of the model.
    """
    stop = torch.zeros(size, dtype=torch.bool)
    closing = torch.zeros(size, dtype=torch.bool)
    texts = () if tokenizer is None else token_texts(tokenizer, len(tokenizer))
    for token_id, text in enumerate(texts[:size]):
        before = text_before(text, ends)
        if before != text:  # true for few tokens, because writing into a tensor is slow
            flags = closing if before.strip() else stop
            flags[token_id] = True
    for source in (tokenizer, *configurations):
        for token_id in _end_of_text_ids(source):
            if 0 <= token_id < size:
                stop[token_id] = True
    return Endings(stop, closing & ~stop)


def _end_of_text_ids(source: Any) -> Sequence[int]:
    """Return the end-of-text ids of a tokenizer or a configuration."""
    ids = getattr(source, "eos_token_id", None)
    return [ids] if isinstance(ids, int) else ids or []


def find_endings(
    tokenizer: Tokenizer | None,
    network: PreTrainedModel,
    ends: Sequence[str] = NEWLINE,
    *,
    config: Any = None,
) -> Endings:
    """Return the tokens that end an answer, on the device of the model's log-probabilities.

    Args:
        tokenizer: the tokenizer of the network. Without one, only `config` names stop tokens.
        network: the network.
        ends: texts that end an answer.
        config: a generation configuration whose end-of-text tokens also stop.

    Raises:
        PackingError: no token stops an answer.
    """
    configurations = [config]
    if tokenizer is not None:
        configurations += [network.config.get_text_config(), network.generation_config]
    head: Any = network.get_output_embeddings() or network.get_input_embeddings()
    endings = classify_tokens(tokenizer, ends, *configurations, size=len(head.weight))
    if not endings.stop.any():
        raise PackingError("has neither an end-of-text token (no eos_token_id) nor a newline token")
    device = reducing_device(network.device)
    return Endings(endings.stop.to(device), endings.closing.to(device))
