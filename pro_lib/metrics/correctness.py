"""Judge whether an answer is right, by ROUGE-L F1 or by matching its references.

The ROUGE values are those of Google's rouge-score package without stemming, bit for bit. Its tokens
are runs of a-z and 0-9: accented letters split a word, and a text in another script does not have
any token (see `TokenizerWarning`). The matches compare texts after `normalize`, which keeps every
script. Correctness by ROUGE ignores accents, and uses `exact_match` for other scripts (see
`closeness`).
"""

import itertools
import re
import string
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from rapidfuzz import process
from rapidfuzz.distance import LCSseq

from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError

ROUGE_THRESHOLD = 0.3
# Letters with a stroke, which Unicode does not decompose.
_STROKES = str.maketrans("øłđðıØŁʻ", "olddiOL'") | str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe"})
# The spellings of umlauts without their dots.
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
# The Unicode categories of punctuation and of accents without a letter.
_DROPPED = ("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sk")
_ARTICLES = ("a", "an", "the")


class TokenizerWarning(UserWarning):
    """A text or reference is not empty but has no ROUGE token, so that it can only score 0."""


@lru_cache(maxsize=200_000)
def _tokens(text: str) -> list[str]:
    """Return the runs of a-z and 0-9 in a text, in lower case."""
    return re.findall(r"[a-z0-9]+", text.lower())


def rouge_l(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return ROUGE-L F1 of each text, the best over its references.

    The paper calls an answer right if this value is above 0.3. An empty text scores 0. One
    `TokenizerWarning` counts the texts and references without a ROUGE token.

    Args:
        texts: the n answers.
        references: the accepted answers to each of the n questions, at least one each.

    Returns:
        Values in [0, 1], (n,); higher = closer to a reference.

    Raises:
        ValueError: the lengths differ, a question does not have references, or a value is not a
            string; the message names the row.

    Example:
        >>> rouge_l(["in Paris"], [["Paris", "the city of Paris"]]).round(2).tolist()
        [0.67]
    """
    rows = _checked(texts, references)
    invisible_rows = []
    for number, (text, accepted) in enumerate(rows):
        for value in (text, *accepted):
            if value.strip() and not _tokens(value):
                invisible_rows.append(number)
    if invisible_rows:
        warnings.warn(
            f"{len(invisible_rows)} texts and references have no character that ROUGE sees "
            f"(a-z, 0-9; first in row {invisible_rows[0]}) and can only score 0; "
            "exact_match and alias_match read every script.",
            TokenizerWarning,
            stacklevel=2,
        )
    pairs = pd.DataFrame(rows, columns=["text", "reference"], dtype=object).explode("reference")
    values = rouge_l_between(pairs["text"].tolist(), pairs["reference"].tolist())
    return np.asarray(pd.Series(values, pairs.index).groupby(level=0).max())


def rouge_l_between(texts: Sequence[str], others: Sequence[str]) -> NDArray[np.float64]:
    """Return ROUGE-L F1 of pairs of texts.

    Args:
        texts: n texts.
        others: n further texts; the i-th is compared with the i-th of `texts`.

    Returns:
        Values in [0, 1], (n,); a text without a ROUGE token scores 0.

    Example:
        >>> rouge_l_between(["in Paris"], ["Paris"]).round(2).tolist()
        [0.67]
    """
    word_numbers: dict[str, int] = {}
    codes: dict[str, list[int]] = {}
    for text in {*texts, *others}:
        words = _tokens(text)
        codes[text] = [word_numbers.setdefault(word, len(word_numbers)) for word in words]
    text_codes = [codes[text] for text in texts]
    other_codes = [codes[text] for text in others]
    n_common = process.cpdist(text_codes, other_codes, scorer=LCSseq.similarity, dtype=np.int32)
    precision = n_common / np.maximum(1, [len(words) for words in text_codes])
    recall = n_common / np.maximum(1, [len(words) for words in other_codes])
    f1: NDArray[np.float64]
    f1 = 2 * precision * recall / np.where(n_common > 0, precision + recall, 1)
    return f1


def exact_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return whether each text equals one of its references after `normalize`, as in SQuAD.

    A text that is empty after `normalize` does not match. An umlaut may be spelled out: "Göthe"
    equals "Goethe". Source: Rajpurkar et al. 2016.

    Args:
        texts: the n answers.
        references: the accepted answers to each of the n questions, at least one each.

    Returns:
        Truth values (n,).

    Raises:
        ValueError: as in `rouge_l`.

    Example:
        >>> exact_match(["The Paris.", "Paris, France"], [["paris"], ["paris"]]).tolist()
        [True, False]
    """
    return _match_forms(texts, references, lambda text, reference: text == reference)


def alias_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return whether each text contains one of its references, word by word, after `normalize`.

    "It is Paris, France" contains "Paris"; "Parisian" does not, and a part of a reference is not
    enough. An answer in a sentence matches, but so does one that lists several names ("Paris or
    Rome") or denies one ("not Paris"). Every exact match is an alias match.

    Args:
        texts: the n answers.
        references: the accepted answers to each of the n questions, at least one each.

    Returns:
        Truth values (n,).

    Raises:
        ValueError: as in `rouge_l`.

    Example:
        >>> alias_match(["It is Paris, France", "Parisian"], [["Paris"], ["Paris"]]).tolist()
        [True, False]
    """
    return _match_forms(texts, references, lambda text, reference: f" {reference} " in f" {text} ")


def value_match(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.bool_]:
    """Return whether each value equals one of its references, for fields of structured answers.

    Two numbers are compared as numbers, and other values as in `exact_match`.

    Args:
        texts: the n values.
        references: the accepted values of each of the n fields, at least one each.

    Returns:
        Truth values (n,).

    Raises:
        ValueError: as in `rouge_l`.

    Example:
        >>> value_match(["12.50", "1.5", "ACME, Inc."], [["12.5"], ["15"], ["Acme Inc"]]).tolist()
        [True, False, True]
    """
    rows = _checked(texts, references)
    return np.array(
        [any(_is_equal(text, each) for each in accepted) for text, accepted in rows], bool
    )


def _is_equal(text: str, reference: str) -> bool:
    if text.casefold() == reference.casefold():
        return True  # also for NaN, which is not equal to itself
    with suppress(ValueError):
        return float(text) == float(reference)
    return bool(_forms(text) & _forms(reference))


@lru_cache(maxsize=200_000)
def normalize(text: str) -> str:
    """Return the words of a text in lower case, without punctuation, accents and articles.

    The steps are, in this order:

    1. case folding;
    2. punctuation is dropped, of ASCII (with symbols such as $) and of Unicode, and accents without
       a letter, so that "U.S." becomes "us";
    3. `without_accents`;
    4. the words a, an and the are left out, unless the text has no other words ("The The", "A").

    On ASCII this is SQuAD's normalization, except for texts that consist of articles.

    Args:
        text: the text.

    Returns:
        The words with one space between them.

    Example:
        >>> normalize("The São Paulo, U.S.")
        'sao paulo us'
    """
    letters = []
    for character in text.casefold():
        is_ascii_mark = character in string.punctuation
        if not is_ascii_mark and unicodedata.category(character) not in _DROPPED:
            letters.append(character)
    words = without_accents("".join(letters)).split()
    without_articles = [word for word in words if word not in _ARTICLES]
    return " ".join(without_articles or words)


@lru_cache(maxsize=200_000)
def normalized_words(text: str) -> str:
    """Return the words of a text in lower case, with one space between them.

    Words are separated by punctuation or white space. Letters of a compatible form count as one
    letter (NFKC). A text without words is returned as it is, so that "?" is not "!".

    Args:
        text: the text.

    Returns:
        The words with one space between them.

    Example:
        >>> normalized_words("Rock-and-Roll!")
        'rock and roll'
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    characters = []
    for character in folded:
        # Letters, numbers, marks and symbols
        is_in_word = unicodedata.category(character)[0] in "LNMS"
        characters.append(character if is_in_word else " ")
    return " ".join("".join(characters).split()) or folded.strip()


def without_accents(text: str) -> str:
    """Return a text without the marks on its letters, in its compatible form (NFKC).

    Args:
        text: the text.

    Returns:
        The text.

    Example:
        >>> without_accents("São")
        'Sao'
    """
    decomposed = unicodedata.normalize("NFKD", text).translate(_STROKES)
    letters = [character for character in decomposed if not "\u0300" <= character <= "\u036f"]
    return unicodedata.normalize("NFKC", "".join(letters))


def closeness(texts: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the value that decides about correctness: ROUGE-L F1 without accents.

    Some references have letters that ROUGE does not see, such as those of another script. They
    count as 1 if `exact_match` holds, else as 0, and a `TokenizerWarning` counts the answers.

    Args:
        texts: the n answers.
        references: the accepted answers to each of the n questions, at least one each.

    Returns:
        Values in [0, 1], (n,); higher = closer to a reference.

    Raises:
        ValueError: as in `rouge_l`.

    Example:
        >>> closeness(["Sao Paulo"], [["São Paulo"]]).tolist()
        [1.0]
    """
    rows = _checked(texts, references)
    n_with_hidden_references = 0
    compared_texts = []
    compared_references = []
    for text, accepted in rows:
        plain_references = [without_accents(reference) for reference in accepted]
        visible = [reference for reference in plain_references if not _has_hidden_letter(reference)]
        n_with_hidden_references += len(visible) < len(accepted)
        # Without a visible reference, an empty text is compared, so that nothing is warned about.
        compared_texts.append(without_accents(text) if visible else "")
        compared_references.append(visible or [""])
    values = rouge_l(compared_texts, compared_references)
    if n_with_hidden_references:
        warnings.warn(
            f"{n_with_hidden_references} of {len(rows)} answers have references in letters that "
            "ROUGE does not see (it sees a-z, 0-9); they are matched exactly",
            TokenizerWarning,
            stacklevel=3,
        )
    has_hidden = [any(map(_has_hidden_letter, [text, *accepted])) for text, accepted in rows]
    is_exact = np.array(has_hidden, dtype=bool) & exact_match(texts, references)
    return np.where(is_exact, 1.0, values)


def nearest_reference(text: str, references: Sequence[str]) -> str:
    """Return the reference that decides about the correctness of an answer.

    Args:
        text: the answer.
        references: the accepted answers, at least one.

    Returns:
        The reference with the highest `closeness`, the first of those that have it.

    Example:
        >>> nearest_reference("Carl Orff", ["Anderson", "Carl Anderson"])
        'Carl Anderson'
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TokenizerWarning)
        values = closeness([text] * len(references), [[reference] for reference in references])
    return references[int(values.argmax())]


def _has_hidden_letter(text: str) -> bool:
    """Return whether a text has a letter that ROUGE does not see."""
    return any(character.isalpha() and not character.isascii() for character in text)


def _match_forms(
    texts: Sequence[str], references: Sequence[Sequence[str]], match: Callable[[str, str], bool]
) -> NDArray[np.bool_]:
    """Return whether some form of each text matches some form of one of its references, (n,)."""
    results = []
    for text, accepted in _checked(texts, references):
        reference_forms: set[str] = set().union(*map(_forms, accepted))
        pairs = itertools.product(_forms(text), reference_forms)
        results.append(any(match(form, reference_form) for form, reference_form in pairs))
    return np.array(results, dtype=bool)


def _forms(text: str) -> set[str]:
    """Return the normalized words of a text, with umlauts kept and with umlauts spelled out."""
    spelled_out = unicodedata.normalize("NFKC", text).casefold().translate(_UMLAUTS)
    return {normalize(text), normalize(spelled_out)} - {""}


def _checked(
    texts: Sequence[str], references: Sequence[Sequence[str]]
) -> list[tuple[str, list[str]]]:
    """Return texts with their references, or raise `SentenceError` for a row without strings."""
    if len(texts) != len(references):
        raise SentenceError(f"texts has {len(texts)} entries, but references {len(references)}")
    rows = []
    for number, (text, accepted) in enumerate(zip(texts, references, strict=True)):
        if not isinstance(text, str):
            raise SentenceError(f"texts row {number} must be a string, not {text!r}")
        is_sequence = not isinstance(accepted, str) and np.iterable(accepted)
        strings = [value for value in accepted if isinstance(value, str)] if is_sequence else []
        if not strings or len(strings) < len(accepted):
            raise SentenceError(
                f"references row {number} must hold one string at least, and only strings: "
                f"{accepted!r}"
            )
        rows.append((text, strings))
    return rows


MATCHES = {"alias_match": alias_match, "exact_match": exact_match}
# The rules by which a text is right, with their names in tables.
CORRECTNESS = {
    "rouge_l": f"ROUGE-L > {ROUGE_THRESHOLD}",
    "exact_match": "exact match",
    "alias_match": "alias match",
    "value_match": "equal values",
}
Rule = Callable[[Sequence[str], Sequence[Sequence[str]]], ArrayLike]


@dataclass(frozen=True)
class AnswerRules:
    """The rules that decide which answers count and which are right.

    The defaults are those of this project; docs/explanation/protocols.md says what others do.

    Attributes:
        convention: `complete` (the probability of the ending is included) or `answer_tokens`.
        distinct: whether repeated answers count once; None for the rule of the protocol.
        correctness: `rouge_l` (above 0.3, or the verdicts of records that have some),
            `exact_match`, `alias_match` or `value_match`; or a function of n texts and their n
            lists of references, which returns whether each text is right, (n,).
        by_field: other names of rules for some fields of structured answers.
        labels: labels of people or of a judge model, with the columns question_id, text and
            correct. They replace every other correctness; answers without a label are left out and
            counted. Spaces and line ends around a text do not count. If there are columns question
            and accepted_answers (`joined_references`), they must be the question and the references
            of the answers, and a column place names the row of an error.
        labels_name: the name of these labels in tables, such as their file.
        cluster: a column of the questions; questions with the same value form a cluster. It is
            ignored if the questions do not have it.
    """

    convention: str = "complete"
    distinct: bool | None = None
    correctness: str | Rule = "rouge_l"
    by_field: Mapping[str, str] = field(default_factory=dict)
    labels: pd.DataFrame | None = None
    labels_name: str = "labels"
    cluster: str | None = "relation"


def rouge_and_correct(
    answers: pd.DataFrame, questions: pd.DataFrame, rules: AnswerRules | None = None
) -> pd.DataFrame:
    """Return ROUGE-L and correctness of answers.

    Labels of `rules` come first. Verdicts that records brought replace the rule `rouge_l`.

    Args:
        answers: a row per answer with question_id (for labels), text and, if the records have
            them, rouge_l and correct.
        questions: the questions with their references, row by row.
        rules: the labels and the kind of correctness; None for the defaults.

    Returns:
        A table with the columns rouge_l, correct, alias_match and exact_match. The last three have
        booleans, or None where nothing is known.

    Raises:
        RunError: a label is for another question, or for other references.

    Example:
        >>> answers = pd.DataFrame({"question_id": ["a"], "text": ["Paris"]})
        >>> questions = pd.DataFrame({"references": [["Paris"]]})
        >>> rouge_and_correct(answers, questions)["correct"].tolist()
        [True]
    """
    rules = rules or AnswerRules()
    is_comparable = answers["text"].notna().to_numpy() & questions["references"].notna().to_numpy()
    texts = list(answers["text"][is_comparable])
    references = list(questions["references"][is_comparable])
    if "rouge_l" in answers:
        rouge = answers["rouge_l"].to_numpy(float, copy=True)
    else:
        rouge = np.full(len(answers), np.nan)
        rouge[is_comparable] = closeness(texts, references)
    table = pd.DataFrame(
        {"rouge_l": rouge, "correct": None, **dict.fromkeys(MATCHES)}, index=answers.index
    )
    for name, match in MATCHES.items():
        table.loc[is_comparable, name] = match(texts, references).astype(object)
    if rules.labels is not None:
        _check_label_questions(answers["question_id"], questions, rules.labels)
        known_labels = dict(zip(_keys(rules.labels), rules.labels["correct"], strict=True))
        table["correct"] = [known_labels.get(key) for key in _keys(answers)]
    elif "correct" in answers and rules.correctness == "rouge_l":
        table["correct"] = answers["correct"].to_numpy(object)
    elif callable(rules.correctness):
        verdicts = np.asarray(rules.correctness(texts, references)).astype(bool)
        if verdicts.shape != (len(texts),):
            raise SentenceError(
                f"correctness={rules.correctness.__name__} returned an array of shape "
                f"{verdicts.shape}, not a truth value for each of {len(texts)} texts"
            )
        table.loc[is_comparable, "correct"] = verdicts.astype(object)
    else:
        is_close = np.where(np.isnan(rouge), None, rouge > ROUGE_THRESHOLD)
        verdicts = table.assign(rouge_l=is_close, value_match=None)
        if "value_match" in (rules.correctness, *rules.by_field.values()):
            is_equal = value_match(texts, references)
            verdicts.loc[is_comparable, "value_match"] = is_equal.astype(object)
        table["correct"] = verdicts[rules.correctness]
        for name, rule in rules.by_field.items():
            is_ruled = (questions["field"] == name).to_numpy()
            table["correct"] = table["correct"].mask(is_ruled, verdicts[rule])
    return table.astype(dict.fromkeys(("correct", *MATCHES), object))


def rule_in_words(rules: AnswerRules, *, has_verdicts: bool = False) -> str:
    """Return the name of the rule by which `rouge_and_correct` judges.

    Args:
        rules: the labels and the kind of correctness.
        has_verdicts: whether the records bring verdicts of their own.

    Example:
        >>> rule_in_words(AnswerRules()), rule_in_words(AnswerRules(correctness="exact_match"))
        ('ROUGE-L > 0.3', 'exact match')
    """
    if rules.labels is not None:
        return rules.labels_name
    if has_verdicts and rules.correctness == "rouge_l":
        return "verdicts of the records"
    if callable(rules.correctness):
        return rules.correctness.__name__
    others = [f"{CORRECTNESS[rule]} for {name}" for name, rule in rules.by_field.items()]
    return ", ".join([CORRECTNESS[rules.correctness], *others])


def _keys(table: pd.DataFrame) -> Iterable[tuple[object, object]]:
    """Return question_id and text of each row, without spaces and line ends around the text."""
    return zip(table["question_id"], table["text"].astype(object).str.strip(), strict=True)


def _check_label_questions(
    question_ids: pd.Series, questions: pd.DataFrame, labels: pd.DataFrame
) -> None:
    """Raise `RunError` if a question or its references differ from those of a label."""
    columns = questions.filter(["question", "references"])
    rows = dict(zip(question_ids, columns.to_dict("records"), strict=True))
    for label in labels.to_dict("records"):
        row = rows.get(label["question_id"], {})
        references = row.get("references")
        accepted = joined_references(references) if isinstance(references, Iterable) else None
        for name, text in (("question", row.get("question")), ("accepted_answers", accepted)):
            given = label.get(name)
            if given and isinstance(text, str) and text.split() != given.split():
                where = label.get("place", f"the label of answer {label['text']!r}")
                raise RunError(
                    f"{where}: the label is for {name} {given!r}, but question "
                    f"{label['question_id']!r} now has {text!r}; judge the answers again, or "
                    "remove this row"
                )


def joined_references(references: Iterable[str]) -> str:
    """Return references as one text, as a judge reads them.

    Example:
        >>> joined_references(["Pablo Picasso", "Picasso "])
        'Pablo Picasso; Picasso'
    """
    return "; ".join(reference.strip() for reference in references)
