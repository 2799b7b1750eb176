"""Multiple-choice questions: find the choices in a table, and which choices a column names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pro_lib.common.files import RunError
from pro_lib.questions.cell_values import NO_ANSWER, is_missing, plain_name, shortened, texts_in
from pro_lib.questions.tables import BadRow
from pro_lib.questions.text_lists import list_in_text

# Columns with the choices of multiple-choice questions.
CHOICES_COLUMNS = (
    "choices",
    "options",
    "endings",
    "answer_choices",
    "answer_options",
    "candidates",
)
# Columns with one choice each, such as `option_a`.
_CHOICE_COLUMN = re.compile(r"(?:choice|option|opt|op|ending|answer|sol)?_?([a-z]|\d)")
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]?")
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])[)\].:]\s*(\S.*)", re.DOTALL)


@dataclass(frozen=True)
class Choices:
    """The choices of a question.

    Attributes:
        texts: the texts of the choices.
        labels: the label of each choice; none if choices are named by position.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


# --- Find the choices ---


def choices_of(
    names: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> "tuple[str, list[Choices | None]]":
    """Return the columns that contain the choices, as words, and the choices of each row.

    The words are empty if there are no choices.

    Args:
        names: the columns of a file.
        rows: the rows of the file.
    """
    columns_by_name = {plain_name(name): name for name in names}
    for usual_name in CHOICES_COLUMNS:
        if usual_name in columns_by_name:
            column = columns_by_name[usual_name]
            return f"column {column!r}", [_choices_in(row.get(column)) for row in rows]
    columns = _choice_columns(columns_by_name)
    if not columns:
        return "", [None] * len(rows)
    labels = tuple(columns)
    choices = []
    for row in rows:
        cells = [row.get(column) for column in columns.values()]
        choices.append(_choices_in_cells(cells, labels))
    return f"columns {', '.join(map(repr, columns.values()))}", choices


def _choice_columns(columns_by_name: Mapping[str, str]) -> dict[str, str]:
    """Return the columns with one choice each, by their letter or number.

    The letters must begin with a, the numbers with 0 or 1, and there must be no gaps.
    """
    groups: dict[str, dict[str, str]] = {}
    for name, column in columns_by_name.items():
        match = _CHOICE_COLUMN.fullmatch(name)
        if match:
            prefix = name[: match.start(1)]
            groups.setdefault(prefix, {})[match[1]] = column
    for columns in groups.values():
        labels = sorted(columns)
        first = ord(labels[0])
        has_gaps = [ord(label) for label in labels] != list(range(first, first + len(labels)))
        if len(labels) >= 2 and labels[0] in ("a", "0", "1") and not has_gaps:
            return {label: columns[label] for label in labels}
    return {}


def _choices_in_cells(cells: Sequence[object], labels: Sequence[str]) -> Choices | None:
    """Return the choices in cells with one choice each, or None if there are fewer than two."""
    texts = [texts_in(cell)[0] for cell in cells if not is_missing(cell) and texts_in(cell)]
    if len(texts) < 2 or None in texts:
        return None
    return Choices(tuple(texts), tuple(labels[: len(texts)]))


def _choices_in(cell: object) -> Choices | None:
    """Return the choices in a cell, or None if it does not list choices."""
    values, labels = _values_and_labels(cell)
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        return None
    texts = texts_in(list(values))
    if len(texts) != len(values) or None in texts or len(texts) < 2:
        return None
    if len(labels) != len(texts) or None in labels:
        labels = []
    return Choices(_without_letters(texts), tuple(str(label) for label in labels))


def _values_and_labels(cell: Any) -> tuple[Any, list]:
    """Return the choices in a cell and their labels, which may be missing.

    Choices are a list, a list of objects with label and text, an object with a list of each, or an
    object with a text by label.
    """
    if isinstance(cell, str):
        text_list = list_in_text(cell)
        cell = text_list[1] if text_list else None
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, Mapping):
        fields = {plain_name(str(name)): value for name, value in cell.items()}
        if "text" in fields:
            return fields["text"], list(fields.get("label", ()))
        return list(cell.values()), [str(name) for name in cell]
    is_list = isinstance(cell, (list, tuple))
    if is_list and cell and all(isinstance(choice, Mapping) for choice in cell):
        texts = [choice.get("text") for choice in cell]
        return texts, [choice.get("label") for choice in cell]
    return cell, []


def _without_letters(texts: Sequence[str]) -> tuple[str, ...]:
    """Return choices without the letters before them (`A) 7`), if each choice has its letter."""
    stripped_texts = []
    for place, text in enumerate(texts):
        match = _LETTER_AND_TEXT.fullmatch(text.strip())
        if match is None or match[1].upper() != chr(ord("A") + place):
            return tuple(texts)
        stripped_texts.append(match[2].strip())
    return tuple(stripped_texts)


# --- Find the named choices ---


def _by_text(value: str, choices: Choices) -> str | None:
    """Return the choice with this text."""
    return next((text for text in choices.texts if text.strip() == value), None)


def _by_label(value: str, choices: Choices) -> str | None:
    """Return the choice with this letter or label, which the text of the choice may follow."""
    letter = _LETTER.fullmatch(value)
    text = _text_with_label(letter[1] if letter else value, choices)
    if text is not None:
        return text
    letter_and_text = _LETTER_AND_TEXT.fullmatch(value)
    if letter_and_text is None:
        return None
    text = _text_with_label(letter_and_text[1], choices)
    return text if text is not None and text.strip() == letter_and_text[2].strip() else None


def _text_with_label(label: str, choices: Choices) -> str | None:
    """Return the first choice with a label, whatever its case.

    The usual labels are letters.
    """
    labels = choices.labels or tuple(chr(ord("A") + place) for place in range(len(choices.texts)))
    folded_labels = [other.casefold() for other in labels]
    if label.casefold() not in folded_labels:
        return None
    return choices.texts[folded_labels.index(label.casefold())]


def _by_index(value: str, choices: Choices, first: int) -> str | None:
    """Return the choice at this position, where the first choice has the index `first`."""
    if not re.fullmatch(r"\d{1,3}", value):
        return None
    place = int(value) - first
    return choices.texts[place] if 0 <= place < len(choices.texts) else None


_MODES: dict[str, Callable[[str, Choices], str | None]] = {
    "text": _by_text,
    "label": _by_label,
    "index from 0": lambda value, choices: _by_index(value, choices, 0),
    "index from 1": lambda value, choices: _by_index(value, choices, 1),
}
_MODE_WORDS = {
    "label": "by letter or label",
    "index from 0": "by index, counted from 0",
    "index from 1": "by index, counted from 1",
}


def chosen_texts(
    name: str,
    cells: Sequence[object],
    choices: "Sequence[Choices | None]",
) -> "tuple[str, list]":
    """Return how the cells name choices, as words, and the texts of the named choices.

    If the cells contain the texts themselves, the words are empty and the cells are unchanged.

    Args:
        name: the column of the cells.
        cells: the cell of each row.
        choices: the choices of each row.

    Raises:
        RunError: it is not certain which choices the cells name.
    """
    values_of_cells = [_chosen_values(cell) for cell in cells]
    pairs = zip(values_of_cells, choices, strict=True)
    questions = [(values, options) for values, options in pairs if options and values]
    if not questions:
        return "", list(cells)
    mode = _certain_mode(name, cells, questions)
    if mode in (None, "text"):
        return "", list(cells)
    resolved: list = []
    for cell, values, options in zip(cells, values_of_cells, choices, strict=True):
        if options is None:
            resolved.append(cell)
        elif not values:
            resolved.append(None)
        else:
            words = f"{name}={shortened(cell)} is not one of the {len(options.texts)} choices"
            resolved.append(_named(values, options, mode) or BadRow(words))
    return _MODE_WORDS[mode], resolved


def _chosen_values(cell: object) -> list[str]:
    """Return the choices that a cell names, as texts.

    The list is empty for no choice, such as -1.
    """
    if is_missing(cell) or isinstance(cell, (bool, Mapping)):
        return []
    if isinstance(cell, str):
        text_list = list_in_text(cell)
        cell = text_list[1] if text_list else cell
    texts = [text.strip() for text in texts_in(cell) if text is not None]
    return [text for text in texts if text not in (*NO_ANSWER, "-1")]


def _named(values: Sequence[str], choices: Choices, mode: str) -> list[str] | None:
    """Return the choices that values name in a mode, or None if one of them names no choice."""
    texts = []
    for value in values:
        text = _MODES[mode](value, choices)
        if text is None:
            return None
        texts.append(text)
    return texts


def _certain_mode(
    name: str,
    cells: Sequence[object],
    questions: Sequence[tuple[list[str], Choices]],
) -> str | None:
    """Return the mode in which a column names choices, or None if its cells are other answers.

    Args:
        name: the column, for errors.
        cells: its cells.
        questions: the values and the choices of each question that has both.
    """
    named_choices = {}
    for mode in _MODES:
        named_choices[mode] = [_named(values, options, mode) for values, options in questions]
    complete_modes = [mode for mode, texts in named_choices.items() if None not in texts]
    has_numbers = any(isinstance(cell, (int, float)) and not is_missing(cell) for cell in cells)
    if not complete_modes:
        return _usual_mode(name, named_choices, questions)
    if complete_modes[0] == "text":
        texts = named_choices["text"]
        index_modes = [mode for mode in complete_modes if mode.startswith("index")]
        if has_numbers and any(named_choices[mode] != texts for mode in index_modes):
            raise RunError(_ambiguous(name, "the choices themselves or their places"))
        return "text"
    if complete_modes == ["index from 0", "index from 1"] and not has_numbers:
        raise RunError(_ambiguous(name, "places counted from 0 or from 1"))
    return complete_modes[0]


def _usual_mode(
    name: str,
    named_choices: Mapping[str, list],
    questions: Sequence[tuple[list[str], Choices]],
) -> str | None:
    """Return the mode in which more than half of the cells name choices, if it is certain."""
    counts = {mode: len(texts) - texts.count(None) for mode, texts in named_choices.items()}
    best_mode = max(counts, key=lambda mode: counts[mode])
    if 2 * counts[best_mode] <= len(questions) or best_mode == "text":
        return None
    if best_mode == "label":
        return "label"
    all_values = [value for values, _ in questions for value in values]
    if not all(re.fullmatch(r"\d{1,3}", value) for value in all_values):
        return None
    if counts["index from 0"] == counts["index from 1"]:
        raise RunError(_ambiguous(name, "places counted from 0 or from 1"))
    return best_mode


def _ambiguous(name: str, kinds: str) -> str:
    """Return the message for a column that may name choices in two ways."""
    remedy = "write the text of the right choice into a column of its own"
    return f"column {name!r} is ambiguous: it may hold {kinds}; {remedy}"
