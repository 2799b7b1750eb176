"""The right answers in a row of a question file, and the choices that a cell names."""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pandas import isna
from pandas.api.types import is_scalar

from pro_lib.common.nested import as_items, plain
from pro_lib.questions.question_formats import plain_name

# The values of datasets that do not publish their answers.
NO_ANSWER = ("", "<unk>")
# Keys of objects with answers: text in SQuAD, value and aliases in TriviaQA, spans in DROP.
_ANSWER_KEYS = ("text", "value", "aliases", "spans")
_LIST_OF_TEXTS = r"[\[({]\s*['\"]|\(list \(description"
_LIST = rf"\[.*\]|\(.*,.*\)|\{{.*\}}|(?:{_LIST_OF_TEXTS}).*"
_ADJACENT_TEXTS = re.compile(r"['\"]\s+['\"]")
# The end of a rationale of GSM8K.
_FINAL_ANSWER = re.compile(r"\n####[ \t]*(\S[^\n]*?)\s*\Z")
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])[)\].:]\s*(\S.*)", re.DOTALL)
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]?")


def references_of(
    row: Mapping[str, object],
    columns: Sequence[str],
    *,
    choices: Sequence[str] = (),
    first: int = 0,
    separator: str | None = None,
) -> list[str]:
    """Return the references of a row, each text once.

    Args:
        row: the row.
        columns: the columns with references.
        choices: the columns with choices; the first of `columns` then names choices.
        first: the index of the first choice.
        separator: the text between several references in one text; None for one reference.

    Raises:
        ValueError: the row has no reference, or a value that is none.

    Example:
        >>> row = {"answer": "Paris", "aliases": ["City of Light", "Paris"]}
        >>> references_of(row, ["answer", "aliases"])
        ['Paris', 'City of Light']
    """
    texts: list[str | None] = []
    for name in columns:
        if choices and name == columns[0]:
            texts += _chosen_texts(name, row, choices, first)
        else:
            texts += _texts_in_cell(name, row.get(name), separator)
    cells = [row.get(name) for name in columns if name in row]
    shown = f"references={_shortened(cells[0] if len(cells) == 1 else cells)}"
    if None in texts:
        raise ValueError(f"{shown} must be text or lists of texts")
    stripped = [text.strip() for text in texts if text]
    references = [text for text in dict.fromkeys(stripped) if text not in NO_ANSWER]
    if not references:
        raise ValueError(f"{shown} must hold a text")
    return references


def _texts_in_cell(name: str, cell: object, separator: str | None) -> list[str | None]:
    if not isinstance(cell, str):
        return [] if is_missing(cell) else texts_in(cell)
    try:
        values = list_in_text(cell)
    except ValueError as error:
        raise ValueError(f"{name}={_shortened(cell)} {error}") from error
    if values is not None:
        return texts_in(values)
    final_answer = _FINAL_ANSWER.search(cell)
    if final_answer:
        return [final_answer[1]]
    return list(cell.split(separator)) if separator else [cell]


def is_missing(cell: object) -> bool:
    """Return whether a cell is None or NaN."""
    return bool(is_scalar(cell) and isna(cell))


def texts_in(value: object) -> list[str | None]:
    """Return the texts within lists and objects, numbers as text, or None for any other value.

    Objects are those of SQuAD (text), TriviaQA (value, aliases), DROP (spans) and TruthfulQA
    (choices with labels). Missing values in a list are left out.

    Example:
        >>> texts_in({"text": ["Paris", 75]})
        ['Paris', '75']
    """
    value = plain(value)
    if isinstance(value, Mapping):
        value = _answers_of(value)
    if isinstance(value, (list, tuple)):
        texts = []
        for inner in value:
            if not is_missing(inner):
                texts += texts_in(inner)
        return texts
    if isinstance(value, float):  # without the `.0` that pandas adds in columns with gaps
        is_whole = value.is_integer() and abs(value) < 2**53
        return [str(int(value) if is_whole else value) if math.isfinite(value) else None]
    is_text = isinstance(value, (str, int)) and not isinstance(value, bool)
    return [str(value) if is_text else None]


def _answers_of(value: Mapping) -> Any:
    """Return the answers in an object, or the object if it has none."""
    fields = {plain_name(str(name)): inner for name, inner in value.items()}
    if "choices" in fields and "labels" in fields:
        pairs = zip(fields["choices"], fields["labels"], strict=False)
        return [choice for choice, label in pairs if label == 1]
    if fields.keys().isdisjoint(_ANSWER_KEYS):
        return object()
    return [fields[name] for name in _ANSWER_KEYS if fields.get(name) is not None]


def list_in_text(text: str) -> list | dict | None:
    """Return the list or object that a text contains in JSON or Python notation, else None.

    Raises:
        ValueError: the text begins like a list of texts but cannot be read.

    Example:
        >>> list_in_text("['Paris', 'City of Light']")
        ['Paris', 'City of Light']
    """
    stripped = text.strip()
    if not re.fullmatch(_LIST, stripped, re.DOTALL):
        return None
    value = None
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        # NumPy writes lists without commas. Python would join the texts of such a list.
        is_joined = _ADJACENT_TEXTS.search(stripped)
        value = None if is_joined else ast.literal_eval(stripped)
    with suppress(ValueError, RecursionError):
        value = json.loads(stripped)
    if isinstance(value, (list, tuple)):
        is_of_texts = all(isinstance(inner, (str, list, dict, type(None))) for inner in value)
        return list(value) if is_of_texts else None
    if isinstance(value, dict):
        names = map(plain_name, map(str, value))
        return None if set(_ANSWER_KEYS).isdisjoint(names) else value
    if value is None and re.match(_LIST_OF_TEXTS, stripped):
        raise ValueError(
            "looks like a list but cannot be read as one in JSON or Python notation; "
            "write lists as JSON (column.map(list).map(json.dumps) in pandas)"
        )
    return None


def _shortened(value: object) -> str:
    """Return the representation of a value for a message, with at most 80 characters."""
    representation = repr(value)
    return representation if len(representation) <= 80 else f"{representation[:77]}..."


# --- Choices ---


def _chosen_texts(
    name: str, row: Mapping[str, object], columns: Sequence[str], first: int
) -> list[str | None]:
    """Return the texts of the choices that the cell in a column names."""
    cell = row.get(name)
    chosen: list[str | None] = []
    for value in as_items(plain(cell)):
        [written, *_] = texts_in(value) or [None]
        label = "" if is_missing(value) or written is None else written.strip()
        if label in (*NO_ANSWER, "-1"):
            continue
        try:
            texts, labels = _choices(row, columns)
            is_text = isinstance(value, str)
            chosen.append(_named_choice(label, texts, labels, first, is_text=is_text))
        except ValueError as error:
            raise ValueError(f"{name}={_shortened(cell)} {error}") from error
    return chosen


def _choices(row: Mapping[str, object], columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the choices of a row and the labels that the file gives them, if it gives any.

    Choices are in several columns, or in one: a list, a list of objects with label and text, an
    object with a list of each, or an object with a text by label.
    """
    cell: Any = [row.get(name) for name in columns if not is_missing(row.get(name))]
    labels: Any = []
    if len(columns) == 1:
        cell = plain(row.get(columns[0]))
    if isinstance(cell, str):
        with suppress(ValueError):
            cell = list_in_text(cell)
    if isinstance(cell, Mapping):
        fields = {plain_name(str(name)): value for name, value in cell.items()}
        labels = list(fields.get("label", ()) if "text" in fields else cell)
        cell = fields.get("text", list(cell.values()))
    elif isinstance(cell, list) and all(isinstance(each, Mapping) for each in cell):
        labels = [choice.get("label") for choice in cell]
        cell = [choice.get("text") for choice in cell]
    texts = texts_in(cell) if isinstance(cell, list) else []
    if None in texts or len(texts) < 2:
        raise ValueError("names a choice, but the choices are not a list")
    labels = [] if None in labels or len(labels) != len(texts) else list(map(str, labels))
    return _without_letters(texts), labels


def _without_letters(texts: Sequence[Any]) -> list[str]:
    """Return choices without the letters before them (`A) 7`), if each choice has its letter."""
    stripped_texts = []
    for place, text in enumerate(texts):
        match = _LETTER_AND_TEXT.fullmatch(text.strip())
        if match is None or match[1].upper() != chr(ord("A") + place):
            return list(texts)
        stripped_texts.append(match[2].strip())
    return stripped_texts


def _named_choice(
    value: str, texts: Sequence[str], labels: Sequence[str], first: int, *, is_text: bool
) -> str:
    """Return the choice that a value names by its label, its index or its text.

    Without labels of the file, a choice has a letter and an index. A text that names no choice is
    an answer of its own, unless it is a letter or a number.
    """
    letter = _LETTER.fullmatch(value)
    letter_and_text = _LETTER_AND_TEXT.fullmatch(value)
    match = letter or letter_and_text
    label = (match[1] if match else value).casefold()
    is_index = re.fullmatch(r"-?\d{1,3}", value) is not None
    named = set()
    for place, text in enumerate(texts):
        own_label = labels[place] if labels else chr(ord("A") + place)
        has_label = own_label.casefold() == label
        if letter_and_text:
            has_label = has_label and text.strip() == letter_and_text[2].strip()
        has_index = not labels and is_index and int(value) == place + first
        if has_label or has_index or (is_text and text.strip() == value):
            named.add(text)
    if len(named) > 1:
        raise ValueError("names one choice by its text and another one by its label or index")
    if not named and (letter or is_index):
        counted = "" if labels else f", counted from {first}"
        raise ValueError(f"is not one of the {len(texts)} choices{counted}")
    return named.pop() if named else value
