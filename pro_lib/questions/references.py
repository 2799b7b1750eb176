"""The right answers in a row of a question file, and the choices that a cell names."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from pro_lib.questions.cell_values import (
    NO_ANSWER,
    is_missing,
    list_in_text,
    plain_name,
    shortened,
    texts_in,
)
from pro_lib.questions.tables import BadRow

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
) -> "list[str] | BadRow":
    """Return the references of a row, each text once.

    Args:
        row: the row.
        columns: the columns with references.
        choices: the columns with choices; the first of `columns` then names choices.
        first: the index of the first choice.
        separator: the text between several references in one text; None for one reference.

    Example:
        >>> row = {"answer": "Paris", "aliases": ["City of Light", "Paris"]}
        >>> references_of(row, ["answer", "aliases"])
        ['Paris', 'City of Light']
    """
    texts: list[str | None] = []
    answers: Sequence[str | None] | BadRow
    for name in columns:
        cell = row.get(name)
        if choices and name == columns[0]:
            answers = chosen_texts(name, cell, choices_of(row, choices, first))
        else:
            answers = _answers_in(name, cell, separator)
        if isinstance(answers, BadRow):
            return answers
        texts += answers
    stripped = [text if text is None else text.strip() for text in texts]
    references = list(dict.fromkeys(text for text in stripped if text not in NO_ANSWER))
    cells = [row.get(name) for name in columns if name in row]
    shown = f"references={shortened(cells[0] if len(cells) == 1 else cells)}"
    if None in references:
        return BadRow(f"{shown} must be text or lists of texts")
    return [text for text in references if text] or BadRow(f"{shown} must hold a text")


def _answers_in(name: str, cell: object, separator: str | None) -> "list[str | None] | BadRow":
    """Return the texts in a cell."""
    if is_missing(cell):
        return []
    if not isinstance(cell, str):
        return texts_in(cell)
    try:
        values = list_in_text(cell)
    except ValueError as error:
        return BadRow(f"{name}={shortened(cell)} {error}")
    if values is not None:
        return texts_in(values)
    final_answer = _FINAL_ANSWER.search(cell)
    if final_answer:
        return [final_answer[1]]
    return list(cell.split(separator)) if separator else [cell]


# --- Choices ---


@dataclass(frozen=True)
class Choices:
    """The choices of a question with their labels, and the index of the first one.

    The labels are letters if the file has no others. With labels of the file, `first` is None.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    first: int | None = 0

    def named(self, value: str, *, is_number: bool = False) -> "str | BadRow":
        """Return the choice that a value names by its label, its index or its text.

        A text that names no choice is an answer of its own, unless it is a letter or a number.
        """
        letter = _LETTER.fullmatch(value)
        label = letter[1] if letter else value
        text_after = None
        with_text = _LETTER_AND_TEXT.fullmatch(value)
        if with_text:
            label = with_text[1]
            text_after = with_text[2].strip()
        is_index = re.fullmatch(r"-?\d{1,3}", value) is not None
        meant = set()
        for index, (text, own_label) in enumerate(zip(self.texts, self.labels, strict=True)):
            has_label = own_label.casefold() == label.casefold()
            if text_after is not None:
                has_label = has_label and text.strip() == text_after
            has_index = self.first is not None and is_index and int(value) == index + self.first
            has_text = not is_number and text.strip() == value
            if has_label or has_index or has_text:
                meant.add(text)
        if len(meant) == 1:
            return meant.pop()
        if meant:
            return BadRow("names one choice by its text and another one by its label or index")
        if letter or is_index:
            return BadRow(f"is not one of the {len(self.texts)} choices, counted from {self.first}")
        return value


def choices_of(row: Mapping[str, object], columns: Sequence[str], first: int) -> Choices | None:
    """Return the choices of a row, or None if its columns list fewer than two.

    Args:
        row: the row.
        columns: the column with all choices, or the columns with one each.
        first: the index of the first choice.
    """
    if len(columns) == 1:
        texts, labels = _texts_and_labels(row.get(columns[0]))
    else:
        texts = [row.get(name) for name in columns if not is_missing(row.get(name))]
        labels = []
    written = texts_in(texts)
    if len(written) != len(texts) or None in written or len(written) < 2:
        return None
    stripped = _without_letters(written)
    if len(labels) == len(written) and None not in labels:
        return Choices(stripped, tuple(map(str, labels)), None)
    return Choices(stripped, tuple(chr(ord("A") + place) for place in range(len(written))), first)


def _texts_and_labels(cell: Any) -> tuple[list, list]:
    """Return the choices in a cell and their labels, which may be missing.

    Choices are a list, a list of objects with label and text, an object with a list of each, or an
    object with a text by label.
    """
    if isinstance(cell, str):
        with suppress(ValueError):
            cell = list_in_text(cell)
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, Mapping):
        fields = {plain_name(str(name)): value for name, value in cell.items()}
        if "text" in fields:
            return list(fields["text"]), list(fields.get("label", ()))
        return list(cell.values()), list(cell)
    if not isinstance(cell, (list, tuple)):
        return [], []
    if all(isinstance(choice, Mapping) for choice in cell):
        return [choice.get("text") for choice in cell], [choice.get("label") for choice in cell]
    return list(cell), []


def _without_letters(texts: Sequence[str]) -> tuple[str, ...]:
    """Return choices without the letters before them (`A) 7`), if each choice has its letter."""
    stripped_texts = []
    for place, text in enumerate(texts):
        match = _LETTER_AND_TEXT.fullmatch(text.strip())
        if match is None or match[1].upper() != chr(ord("A") + place):
            return tuple(texts)
        stripped_texts.append(match[2].strip())
    return tuple(stripped_texts)


def chosen_texts(name: str, cell: Any, choices: Choices | None) -> "list[str] | BadRow":
    """Return the texts of the choices that a cell names."""
    if is_missing(cell):
        return []
    values = cell.tolist() if isinstance(cell, np.ndarray) else cell
    texts = []
    for value in values if isinstance(values, (list, tuple)) else [values]:
        [written, *_] = texts_in(value) or [None]
        if written is None or written.strip() in (*NO_ANSWER, "-1"):
            continue
        if choices is None:
            return BadRow(
                f"{name}={shortened(cell)} names a choice, but the choices are not a list"
            )
        text = choices.named(written.strip(), is_number=not isinstance(value, str))
        if isinstance(text, BadRow):
            return BadRow(f"{name}={shortened(cell)} {text.reason}")
        texts.append(text)
    return texts
