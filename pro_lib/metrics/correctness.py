"""Whether an answer is right, by ROUGE-L F1 or by matching its references; knows no model and no threshold.

The ROUGE values are those of Google's rouge-score package without stemming, bit for bit. Its tokens are runs of a-z and
0-9: accented letters split a word, and a text in another script has none at all (see `TokenizerWarning`). The matches
compare texts after `normalize`, which keeps every script. What is right by ROUGE is read without accents, and in other
scripts by `exact_match` (see `closeness`).
"""

import string
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import LCSseq
from rouge_score.tokenize import tokenize

from pro_lib.common.validation import SentenceError

ROUGE_THRESHOLD = 0.3
# Letters with a stroke, which Unicode does not take apart; and how umlauts are spelled without their dots.
_STROKES = str.maketrans("øłđðıØŁʻ", "olddiOL'") | str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe"})
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
# Punctuation, and accents that stand alone
_DROPPED = (
    "Pc",
    "Pd",
    "Pe",
    "Pf",
    "Pi",
    "Po",
    "Ps",
    "Sk",
)
_tokens = lru_cache(maxsize=200_000)(partial(tokenize, stemmer=None))


class TokenizerWarning(UserWarning):
    """A text or reference is not empty, but ROUGE sees nothing in it, so it can only score 0."""


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return ROUGE-L F1 of each text, the best over its references: shape `(n,)`, in [0, 1], higher = closer.

    `texts` are n answers, `references` their n sequences of accepted answers. The paper calls an answer right if this
    exceeds 0.3. An empty text scores 0. One `TokenizerWarning` counts what has no ROUGE token. Raises `ValueError` if
    the lengths differ and, naming the row, for a question without references or anything that is not a string.
    """
    rows = _checked(texts, references)
    invisible = [
        n
        for n, row in enumerate(rows)
        for text in (row[0], *row[1])
        if text.strip() and not _tokens(text)
    ]
    if invisible:
        message = f"{len(invisible)} texts and references have no character that ROUGE sees (a-z, 0-9; first in row "
        message += (
            f"{invisible[0]}) and can only score 0; exact_match and alias_match read every script."
        )
        warnings.warn(message, TokenizerWarning, stacklevel=2)
    pairs = pd.DataFrame(rows, columns=["text", "reference"], dtype=object).explode("reference")
    values = rouge_l_between(pairs["text"].tolist(), pairs["reference"].tolist())
    return pd.Series(values, pairs.index).groupby(level=0).max().to_numpy()


def rouge_l_between(texts: Sequence[str], others: Sequence[str]) -> NDArray[np.float64]:
    """Return ROUGE-L F1 of n texts and n others, in step: shape `(n,)`, in [0, 1]; invisible texts score 0."""
    numbers: dict[str, int] = {}
    codes = {
        text: [numbers.setdefault(word, len(numbers)) for word in _tokens(text)]
        for text in {*texts, *others}
    }
    a, b = ([codes[text] for text in side] for side in (texts, others))
    common = process.cpdist(a, b, scorer=LCSseq.similarity, dtype=np.int32)
    precision, recall = (common / np.maximum(1, [*map(len, side)]) for side in (a, b))
    return 2 * precision * recall / np.where(common > 0, precision + recall, 1)


def exact_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return whether each text equals one of its references after `normalize`: shape `(n,)`.

    As SQuAD has it (Rajpurkar et al. 2016). A text of which nothing is left matches nothing. An umlaut may be spelled:
    "Göthe" is "Goethe". Raises as `rouge_l` does.
    """
    return _any_form(texts, references, lambda whole, part: whole == part)


def alias_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return whether each text contains one of its references whole, word for word, after `normalize`: shape `(n,)`.

    "It is Paris, France" contains "Paris", and "Parisian" does not; nor is a part of a reference enough. So an answer
    in a sentence counts, but so does one that lists several ("Paris or Rome") or denies ("not Paris"). Every exact
    match is an alias match. Raises as `rouge_l` does.
    """
    return _any_form(texts, references, lambda whole, part: f" {part} " in f" {whole} ")


@lru_cache(maxsize=200_000)
def normalize(text: str) -> str:
    """Return the words of a text in lower case, without punctuation and articles, one space between them.

    The steps, in this order: case folding; punctuation, of ASCII (symbols such as $ among it) and of Unicode, and
    accents that stand alone are dropped ("U.S." becomes "us"); `without_accents`; the words a, an and the are left out.
    On ASCII that is SQuAD's normalisation, except that a text of nothing but articles ("The The", "A") keeps them.
    """
    letters = [
        c
        for c in text.casefold()
        if c not in string.punctuation and unicodedata.category(c) not in _DROPPED
    ]
    words = without_accents("".join(letters)).split()
    return " ".join([word for word in words if word not in ("a", "an", "the")] or words)


@lru_cache(maxsize=200_000)
def normalized_words(text: str) -> str:
    """Return the words of a text in lower case, one space between them: all that punctuation or white space separates.

    Letters of a compatible form count as one (NFKC). A text without words is itself, so that "?" is not "!".
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(
        character if unicodedata.category(character)[0] in "LNMS" else " " for character in folded
    )
    return " ".join(kept.split()) or folded.strip()


def without_accents(text: str) -> str:
    """Return a text in its compatible form (NFKC) without the marks on its letters: "São" becomes "Sao"."""
    apart = unicodedata.normalize("NFKD", text).translate(_STROKES)
    return unicodedata.normalize("NFKC", "".join(c for c in apart if not "\u0300" <= c <= "\u036f"))


def closeness(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return what is compared with the threshold, `(n,)`: ROUGE-L F1 without accents, for every script.

    References with letters that ROUGE does not see count, as 1, by `exact_match`, with a warning. Raises as `rouge_l`.
    """

    def is_hidden(text: str) -> bool:
        return any(character.isalpha() and not character.isascii() for character in text)

    rows = _checked(texts, references)
    seen = [
        [r for r in map(without_accents, accepted) if not is_hidden(r)] for accepted in references
    ]
    hidden = np.array(
        [any(map(is_hidden, [text, *accepted])) for text, accepted in rows], dtype=bool
    )
    values, there = np.zeros(len(texts)), [n for n, accepted in enumerate(seen) if accepted]
    values[there] = rouge_l([without_accents(texts[n]) for n in there], [seen[n] for n in there])
    if foreign := sum(
        len(some) < len(accepted) for some, accepted in zip(seen, references, strict=True)
    ):
        message = (
            f"{foreign} of {len(texts)} answers have references in letters that ROUGE does not see"
        )
        warnings.warn(
            f"{message} (it sees a-z, 0-9); they are matched exactly",
            TokenizerWarning,
            stacklevel=3,
        )
    return np.where(hidden & exact_match(texts, references), 1.0, values)


def _any_form(
    texts: Sequence[str], references: Sequence[Sequence[str]], match: Callable[[str, str], bool]
) -> NDArray[np.bool_]:
    """Return whether a form of each text matches one of a reference, `(n,)`: its words, umlauts kept or spelled out."""

    def forms(text: str) -> set[str]:
        spelled = unicodedata.normalize("NFKC", text).casefold().translate(_UMLAUTS)
        return {normalize(text), normalize(spelled)} - {""}

    results = []
    for text, accepted in _checked(texts, references):
        parts = set().union(*map(forms, accepted))
        results.append(any(match(whole, part) for whole in forms(text) for part in parts))
    return np.array(results, dtype=bool)


def _checked(
    texts: Sequence[str], references: Sequence[Sequence[str]]
) -> list[tuple[str, list[str]]]:
    if len(texts) != len(references):
        raise SentenceError(f"texts has {len(texts)} entries, but references {len(references)}")
    for row, (text, accepted) in enumerate(zip(texts, references, strict=True)):
        if not isinstance(text, str):
            raise SentenceError(f"texts row {row} must be a string, not {text!r}")
        is_sequence = not isinstance(accepted, str) and np.iterable(accepted)
        if (
            not is_sequence
            or not len(accepted)
            or not all(isinstance(reference, str) for reference in accepted)
        ):
            raise SentenceError(
                f"references row {row} must hold one string at least, and only strings: {accepted!r}"
            )
    return list(zip(texts, map(list, references), strict=True))


MATCHES = {"alias_match": alias_match, "exact_match": exact_match}
CORRECTNESS = ("rouge_l", *MATCHES)


@dataclass(frozen=True)
class Choices:
    """What counts as an answer and what as right. The defaults are this project's; docs/audit.md says what others do.

    `labels` of people or of a judge model (question_id, text, correct) replace every other correctness. An answer
    without one is left out and counted.
    """

    convention: str = "complete"  # ending included, or `answer_tokens`: left out
    distinct: bool | None = None  # whether repeated beams are left out; None as the protocol has it
    correctness: str = "rouge_l"  # above 0.3; or `exact_match`, `alias_match` (see `correctness`)
    labels: pd.DataFrame | None = None
    cluster: str | None = (
        "relation"  # column of the questions whose equals belong together, where they have it
    )


def rouge_and_correct(
    answers: pd.DataFrame, questions: pd.DataFrame, choices: Choices | None = None
) -> pd.DataFrame:
    """Return ROUGE-L and correctness of answers: as labels or records brought them, else against the references.

    `answers` has the columns question_id (for labels), text and, if brought, rouge_l and correct; `questions` has the
    references, row by row. Columns: rouge_l, correct, alias_match, exact_match: booleans, or None where not known.
    """
    choices = choices or Choices()
    comparable = answers["text"].notna().to_numpy() & questions["references"].notna().to_numpy()
    compared = list(answers["text"][comparable]), list(questions["references"][comparable])
    rouge = answers.get("rouge_l", pd.Series(np.nan, answers.index)).to_numpy(float, copy=True)
    if "rouge_l" not in answers:
        rouge[comparable] = closeness(*compared)
    table = pd.DataFrame(
        {"rouge_l": rouge, "correct": None, **dict.fromkeys(MATCHES)}, index=answers.index
    )
    for name, match in MATCHES.items():
        table.loc[comparable, name] = match(*compared).astype(object)
    if choices.labels is not None:
        ids, texts, truths = (choices.labels[name] for name in ("question_id", "text", "correct"))
        labels = dict(zip(zip(ids, texts, strict=True), truths, strict=True))
        table["correct"] = [
            labels.get(pair) for pair in zip(answers["question_id"], answers["text"], strict=True)
        ]
    elif "correct" in answers:
        table["correct"] = answers["correct"].to_numpy(object)
    elif choices.correctness == "rouge_l":
        table["correct"] = np.where(np.isnan(rouge), None, rouge > ROUGE_THRESHOLD)
    else:
        table["correct"] = table[choices.correctness]
    return table.astype(dict.fromkeys(("correct", *MATCHES), object))
