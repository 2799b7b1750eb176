"""Whether an answer is right, by ROUGE-L F1 or by matching its references; knows no model and no threshold.

The ROUGE values are those of Google's rouge-score package without stemming, whose tokens are runs of a-z and 0-9:
accented letters split a word, and a text in another script has no token at all (see `TokenizerWarning`). The
matches compare texts after `normalize`, which keeps every script.
"""

from __future__ import annotations

import string
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rouge_score import rouge_scorer, tokenize

_SCORER = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
_ARTICLES = {"a", "an", "the"}


class TokenizerWarning(UserWarning):
    """A text or reference is not empty, but ROUGE sees nothing in it, so it can only score 0."""


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]], *, best: str = "max") -> NDArray[np.float64]:
    """ROUGE-L F1 of each text, the best over its references: shape `(n,)`, in [0, 1], higher = closer.

    `texts` are n answers, `references` their n sequences of accepted answers. The paper calls an answer
    right if this exceeds 0.3. An empty text scores 0. `best="last"` compares with the last reference only, as the
    code released with the paper does. Emits one `TokenizerWarning` that counts the texts and the references
    compared without any ROUGE token. Raises `ValueError` if the lengths differ, for another `best`, and, naming
    the row, for a question without references or anything that is not a string.
    """
    if best not in ("max", "last"):
        raise ValueError(f"best must be 'max' or 'last', not {best!r}")
    rows = _checked_rows(texts, references)
    if best == "last":
        rows = [(text, accepted[-1:]) for text, accepted in rows]
    _warn_about_invisible(rows)
    values = (max(_f1(text, reference) for reference in accepted) for text, accepted in rows)
    return np.fromiter(values, dtype=np.float64, count=len(rows))


def exact_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Whether each text equals one of its references after `normalize`: shape `(n,)`.

    The exact match of SQuAD (Rajpurkar et al. 2016) with the differences that `normalize` names. A text of which
    nothing is left matches nothing. Raises as `rouge_l` does.
    """
    return _matches(texts, references, lambda words, accepted: words == accepted)


def alias_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Whether each text contains one of its references whole, word for word, after `normalize`: shape `(n,)`.

    "It is Paris, France" contains "Paris", and "Parisian" does not; a part of a reference is not enough ("Adams" for
    "John Adams"). So an answer in a sentence counts, but so does one that lists several ("Paris or Rome") or denies
    ("not Paris"). Every exact match is an alias match. Raises as `rouge_l` does.
    """
    return _matches(texts, references, lambda words, accepted: f" {accepted} " in f" {words} ")


@lru_cache(maxsize=200_000)
def normalize(text: str) -> str:
    """The words of a text in lower case, without punctuation and articles, one space between them.

    The steps, in this order: case folding, and one form (NFC) for accented letters; punctuation, of ASCII (its
    symbols, such as $, among it) and of Unicode, and accents that stand alone are dropped, not replaced ("U.S."
    becomes "us"); the words a, an and the are left out; white space collapses. That is SQuAD's normalisation, but
    for what lies beyond ASCII, and in that a text of nothing but articles ("The The", vitamin "A") keeps them.
    """
    folded = unicodedata.normalize("NFC", text.casefold())
    words = "".join(character for character in folded if not _is_punctuation(character)).split()
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def _matches(
    texts: Sequence[str], references: Sequence[Sequence[str]], same: Callable[[str, str], bool]
) -> NDArray[np.bool_]:
    rows = _checked_rows(texts, references)
    found = (any(_hits(normalize(text), normalize(alias), same) for alias in accepted) for text, accepted in rows)
    return np.fromiter(found, dtype=bool, count=len(rows))


def _hits(words: str, accepted: str, same: Callable[[str, str], bool]) -> bool:
    return bool(accepted) and same(words, accepted)


def _is_punctuation(character: str) -> bool:
    category = unicodedata.category(character)
    return character in string.punctuation or category.startswith("P") or category == "Sk"


def _checked_rows(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[str, list[str]]]:
    if len(texts) != len(references):
        raise ValueError(f"texts has {len(texts)} entries, but references {len(references)}")
    return [
        _checked_row(row, text, accepted) for row, (text, accepted) in enumerate(zip(texts, references, strict=True))
    ]


@lru_cache(maxsize=200_000)
def _f1(text: str, reference: str) -> float:
    return _SCORER.score(reference, text)["rougeL"].fmeasure


def _checked_row(row: int, text: str, accepted: Sequence[str]) -> tuple[str, list[str]]:
    if not isinstance(text, str):
        raise ValueError(f"texts row {row} must be a string, not {text!r}")
    if isinstance(accepted, str) or not np.iterable(accepted):
        raise ValueError(f"references row {row} must be a sequence of strings, not {accepted!r}")
    accepted = list(accepted)
    if not accepted:
        raise ValueError(f"references row {row} is empty: a question without references cannot be judged")
    for reference in accepted:
        if not isinstance(reference, str):
            raise ValueError(f"references row {row} must hold strings only, not {reference!r}")
    return text, accepted


def _warn_about_invisible(rows: list[tuple[str, list[str]]]) -> None:
    n_texts = n_references = 0
    first = None
    for row, (text, accepted) in enumerate(rows):
        in_text, in_references = _is_invisible(text), sum(map(_is_invisible, accepted))
        n_texts, n_references = n_texts + in_text, n_references + in_references
        if first is None and (in_text or in_references):
            first = row
    if first is not None:
        warnings.warn(
            f"texts: {n_texts}, references: {n_references} have no character that ROUGE sees "
            f"(a-z, 0-9; first in row {first}) and can only score 0.",
            TokenizerWarning,
            stacklevel=3,
        )


@lru_cache(maxsize=200_000)
def _is_invisible(text: str) -> bool:
    return bool(text.strip()) and not tokenize.tokenize(text, None)
