"""Read the right answers of question files, in the forms in which datasets and tools write them."""

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html.entities import html5
from typing import Any

import numpy as np
from pandas import isna
from pandas.api.types import is_scalar

from pro_lib.common.files import RunError
from pro_lib.questions.tables import BadRow

# The values of datasets that do not publish their answers.
_NO_ANSWER = ("", "<unk>")
# Keys of objects with answers: text in SQuAD, value and aliases in TriviaQA, spans in DROP.
_ANSWER_KEYS = ("text", "value", "aliases", "spans")
_NORMALIZED_KEYS = ("normalized_value", "normalized_aliases")
_FINAL_ANSWER = re.compile(r"####[ \t]*(\S[^\n]*?)\s*\Z")
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_WHOLE = re.compile(r"-?\d+\.0+")
# Columns with the choices of multiple-choice questions, and those with one choice each.
CHOICES_COLUMNS = (
    "choices",
    "options",
    "endings",
    "answer_choices",
    "answer_options",
    "candidates",
)
_CHOICE_COLUMN = re.compile(r"(?:choice|option|opt|op|ending|answer|sol)?_?([a-z]|\d)")
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]?")
_LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])[)\].:]\s*(\S.*)", re.DOTALL)


def plain_name(name: str) -> str:
    """Return a column's name in lower case with underscores: `Best Answer` and `bestAnswer` are best_answer."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip().strip("\ufeff"))
    return re.sub(r"[\s_-]+", "_", parted).casefold()


def is_missing(cell: object) -> bool:
    """Return whether a cell is None or NaN."""
    return bool(is_scalar(cell) and isna(cell))


# --- Values ---


def texts_in(value: object) -> list:
    """Return the texts within lists and objects, numbers as text; None stands for any other value.

    Objects are those of SQuAD (text), TriviaQA (value, aliases), DROP (spans) and TruthfulQA
    (choices with labels). Missing values in a list are left out.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [text for inner in value if not is_missing(inner) for text in texts_in(inner)]
    if isinstance(value, Mapping):
        return texts_in(_answers_of(value))
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return [_number_text(value)]
    return [None]


def _answers_of(value: Mapping) -> list:
    """Return the answers in an object; `[object()]`, which is not a text, if it has none."""
    inner = {plain_name(str(name)): each for name, each in value.items()}
    if {"choices", "labels"} <= set(inner):
        return [
            text
            for text, label in zip(inner["choices"], inner["labels"], strict=False)
            if label == 1
        ]
    answers = [inner[name] for name in _ANSWER_KEYS if inner.get(name) is not None]
    if not any(texts_in(answer) for answer in answers):
        answers = [
            inner[name] for name in _NORMALIZED_KEYS if inner.get(name) is not None
        ] or answers
    known = {*_ANSWER_KEYS, *_NORMALIZED_KEYS}
    return answers if known & set(inner) else [object()]


def _number_text(value: str | float) -> str | None:
    """Return a number as text; a whole one without `.0`, which pandas adds where a column has gaps."""
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else str(float(value))


# --- Lists that are written as text ---


def list_in_text(text: str) -> "tuple[str, list | dict] | None":
    """Return the notation and the value of a list or object that is written as text; None for other texts.

    The notation is JSON, Python, or NumPy, which separates elements by spaces.
    """
    text = text.strip()
    if text.startswith("(list (description"):
        found = re.findall(r'\(description (?:"([^"]*)"|([^()"]*))\)', text)
        return "Lisp", [quoted or bare for quoted, bare in found]
    if not re.fullmatch(r"\[.*\]|\(.*,.*\)|\{.*\}", text, re.DOTALL):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _python_list(text)
    return ("JSON", value) if isinstance(value, (list, dict)) else None


def _python_list(text: str) -> "tuple[str, list | dict] | None":
    """Return the list of a Python or NumPy notation."""
    with_arrays = re.sub(r"\barray\(", "(", text)
    plain = re.sub(r",\s*dtype=[\w.<>'\"]+\s*\)", ")", with_arrays)
    tokens = _tokens(plain)
    if tokens is None:
        return None
    parts, n_commas = _with_commas(tokens)
    try:
        value = ast.literal_eval(parts.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if not isinstance(value, (list, tuple, dict)):
        return None
    return ("NumPy" if n_commas else "Python", value if isinstance(value, dict) else list(value))


# A quoted text, a number or name, or a sign of a Python notation.
_TOKEN = re.compile(
    r"""\s+|[rbuRBU]?"(?:[^"\\\n]|\\.)*"|[rbuRBU]?'(?:[^'\\\n]|\\.)*'|[+-]?[\w.]+(?:[+-]\d+)?|[\[\](){},:]"""
)


def _tokens(text: str) -> list[str] | None:
    """Return the tokens of a Python notation; None if the text is not one."""
    tokens = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return None
        tokens.append(match[0])
        place = match.end()
    return tokens


def _with_commas(tokens: Sequence[str]) -> tuple[str, int]:
    """Return a notation with commas between its elements, and the number of commas that were added.

    NumPy leaves the commas out, and Python would join the texts of `['a' 'b']`. Names of missing
    values, such as nan, become None.
    """
    parts: list[str] = []
    n_commas = 0
    before = "["
    for token in tokens:
        if token.isspace():
            parts.append(token)
            continue
        if token[0] not in "])},:" and before[0] not in "[({,:":
            parts.append(",")
            n_commas += 1
        parts.append("None" if token in ("nan", "NaN", "null") else token)
        before = token
    return "".join(parts), n_commas


def _is_list_of_texts(value: object) -> bool:
    """Return whether a list or an object contains a text; intervals and coordinates do not."""
    if isinstance(value, dict):
        return bool({plain_name(str(name)) for name in value} & {*_ANSWER_KEYS, *_NORMALIZED_KEYS})
    return isinstance(value, list) and (
        not value or any(isinstance(inner, (str, list, dict)) for inner in value)
    )


# --- One column ---


@dataclass(frozen=True)
class Reading:
    """The answers in each cell of a column, and the words of the note about how they were read."""

    answers: "list[list[str | None] | BadRow]"
    words: tuple[str, ...] = ()


def read_column(name: str, cells: Sequence[object]) -> Reading:
    """Return the texts in each cell of a column of references.

    A text is one answer or several separated by semicolons; a semicolon that ends an HTML entity
    separates nothing. Texts that write a list are read as that list, the end of a rationale after
    `####` is the answer, and whole numbers in a column of decimals lose their `.0`.
    """
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip() not in _NO_ANSWER]
    lists = {text: list_in_text(text) for text in texts if text.lstrip()[:1] in ("[", "(", "{")}
    are_lists = (
        bool(texts) and all(text.lstrip().startswith("[") for text in texts) and name.endswith("s")
    )
    are_decimals = bool(texts) and all(_DECIMAL.fullmatch(text.strip()) for text in texts)
    n_final = sum(_FINAL_ANSWER.search(text) is not None for text in texts)
    are_rationales = 2 * n_final > len(texts)
    kinds: Counter = Counter()

    def read(cell: object) -> "list[str | None] | BadRow":
        if is_missing(cell):
            return []
        if not isinstance(cell, str):
            return texts_in(cell)
        found = lists.get(cell)
        if found is not None and (are_lists or _is_list_of_texts(found[1])):
            kinds[f"read as {found[0]} lists"] += 1
            return texts_in(found[1])
        if found is None and cell in lists and (are_lists or re.match(r"\s*[\[({]\s*['\"]", cell)):
            return BadRow(f"{name}={_short(cell)} looks like a list but cannot be read as one")
        final = _FINAL_ANSWER.search(cell)
        if are_rationales and final:
            kinds["the text after ####"] += 1
            return [final[1]]
        if are_decimals and _WHOLE.fullmatch(cell.strip()):
            kinds["whole numbers without .0"] += 1
            return [cell.strip().partition(".")[0]]
        if any(map(_is_entity, _ENTITY.finditer(cell))):
            kinds["with HTML entities such as &amp; kept as they are"] += 1
        return list(split_at_semicolons(cell))

    answers = [read(cell) for cell in cells]
    if len([kind for kind in kinds if kind.startswith("read as")]) > 1:
        del kinds[
            "read as JSON lists"
        ]  # an empty list, or one of numbers, is the same in JSON and Python
    return Reading(answers, tuple(kinds))


def split_at_semicolons(text: str) -> list[str]:
    """Return the parts of a text between semicolons, except those that end an HTML entity."""
    parts = []
    start = 0
    entity_ends = {match.end() - 1 for match in _ENTITY.finditer(text) if _is_entity(match)}
    for match in re.finditer(";", text):
        if match.start() in entity_ends:
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    return [*parts, text[start:]]


def _is_entity(match: re.Match) -> bool:
    """Return whether HTML knows an entity, such as &amp; or &#39;."""
    return match[1].startswith("#") or f"{match[1]};" in html5


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


# --- Choices ---


@dataclass(frozen=True)
class Choices:
    """The choices of a question and their labels; there are no labels if choices are named by position."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


def choices_of(
    names: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> "tuple[str, list[Choices | None]]":
    """Return the columns that contain the choices, as words, and the choices of each row."""
    plain = {plain_name(name): name for name in names}
    for known in CHOICES_COLUMNS:
        if known in plain:
            column = plain[known]
            return f"column {column!r}", [_choices_in(row.get(column)) for row in rows]
    columns = _choice_columns(plain)
    if not columns:
        return "", [None] * len(rows)
    labels = tuple(columns)
    several = [
        _choices_of_columns([row.get(name) for name in columns.values()], labels) for row in rows
    ]
    return f"columns {', '.join(map(repr, columns.values()))}", several


def _choice_columns(plain: Mapping[str, str]) -> dict[str, str]:
    """Return the columns with one choice each, by letter or number; none if the letters or numbers have gaps."""
    families: dict[str, dict[str, str]] = {}
    for name, column in plain.items():
        match = _CHOICE_COLUMN.fullmatch(name)
        if match:
            families.setdefault(name[: match.start(1)], {})[match[1]] = column
    for columns in families.values():
        labels = sorted(columns)
        first = ord(labels[0])
        follow = [ord(label) for label in labels] == list(range(first, first + len(labels)))
        if len(labels) >= 2 and labels[0] in ("a", "0", "1") and follow:
            return {label: columns[label] for label in labels}
    return {}


def _choices_of_columns(cells: Sequence[object], labels: Sequence[str]) -> Choices | None:
    texts = [texts_in(cell)[0] for cell in cells if not is_missing(cell) and texts_in(cell)]
    if len(texts) < 2 or None in texts:
        return None
    return Choices(tuple(texts), tuple(labels[: len(texts)]))


def _choices_in(cell: object) -> Choices | None:
    """Return the choices in a cell, or None if it does not list choices."""
    if isinstance(cell, str):
        found = list_in_text(cell)
        cell = found[1] if found else None
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    labels: list = []
    if isinstance(cell, Mapping):
        inner = {plain_name(str(name)): value for name, value in cell.items()}
        if "text" in inner:
            labels = list(inner.get("label", ()))
            cell = inner["text"]
        else:
            labels = [str(name) for name in cell]
            cell = list(cell.values())
    elif (
        isinstance(cell, (list, tuple)) and cell and all(isinstance(each, Mapping) for each in cell)
    ):
        labels = [each.get("label") for each in cell]
        cell = [each.get("text") for each in cell]
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if not isinstance(cell, (list, tuple)):
        return None
    texts = texts_in(list(cell))
    if len(texts) != len(cell) or None in texts or len(texts) < 2:
        return None
    has_labels = len(labels) == len(texts) and None not in labels
    return Choices(
        _without_letters(texts), tuple(str(label) for label in labels) if has_labels else ()
    )


def _without_letters(texts: Sequence[str]) -> tuple[str, ...]:
    """Return choices without the letters before them, as in `A) 7`, if each choice has its letter."""
    matches = [_LETTER_AND_TEXT.fullmatch(text.strip()) for text in texts]
    for place, match in enumerate(matches):
        if match is None or match[1].upper() != chr(ord("A") + place):
            return tuple(texts)
    return tuple(match[2].strip() for match in matches if match is not None)


def _by_text(value: str, choices: Choices) -> str | None:
    return next((text for text in choices.texts if text.strip() == value), None)


def _by_label(value: str, choices: Choices) -> str | None:
    labels = choices.labels or tuple(chr(ord("A") + place) for place in range(len(choices.texts)))
    names = [label.casefold() for label in labels]
    letter = _LETTER.fullmatch(value)
    name = (letter[1] if letter else value).casefold()
    if name in names:
        return choices.texts[names.index(name)]
    both = _LETTER_AND_TEXT.fullmatch(value)
    if both and both[1].casefold() in names:
        text = choices.texts[names.index(both[1].casefold())]
        return text if text.strip() == both[2].strip() else None
    return None


def _by_index(first: int) -> Callable[[str, Choices], str | None]:
    def find(value: str, choices: Choices) -> str | None:
        if not re.fullmatch(r"\d{1,3}", value):
            return None
        place = int(value) - first
        return choices.texts[place] if 0 <= place < len(choices.texts) else None

    return find


_MODES: dict[str, Callable[[str, Choices], str | None]] = {
    "text": _by_text,
    "label": _by_label,
    "index from 0": _by_index(0),
    "index from 1": _by_index(1),
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
    """Return how the cells name choices, as words, and the texts of the choices that they name.

    If the cells contain the texts themselves, the words are empty and the cells are unchanged.

    Raises:
        RunError: if it is not certain which choices the cells name.
    """
    values = [_chosen_values(cell) for cell in cells]
    several = [(each, those) for each, those in zip(values, choices, strict=True) if those and each]
    if not several:
        return "", list(cells)
    found = {mode: [_named(each, those, mode) for each, those in several] for mode in _MODES}
    complete = [mode for mode in _MODES if all(answers is not None for answers in found[mode])]
    mode = _certain_mode(name, cells, found, complete, several)
    if mode in (None, "text"):
        return "", list(cells)
    resolved: list = []
    for cell, each, those in zip(cells, values, choices, strict=True):
        if not those or not each:
            resolved.append(None if those else cell)
            continue
        answers = _named(each, those, mode)
        words = f"{name}={_short(cell)} is not one of the {len(those.texts)} choices"
        resolved.append(BadRow(words) if answers is None else answers)
    return _MODE_WORDS[mode], resolved


def _chosen_values(cell: object) -> list[str]:
    """Return the choices that a cell names, as texts; an empty list if it does not name any, such as -1."""
    if is_missing(cell) or isinstance(cell, (bool, Mapping)):
        return []
    if isinstance(cell, str):
        found = list_in_text(cell)
        cell = found[1] if found else cell
    texts = texts_in(cell)
    return [
        text.strip()
        for text in texts
        if text is not None and text.strip() not in (*_NO_ANSWER, "-1")
    ]


def _named(values: Sequence[str], choices: Choices, mode: str) -> list[str] | None:
    answers = [_MODES[mode](value, choices) for value in values]
    return None if None in answers else [answer for answer in answers if answer is not None]


def _certain_mode(
    name: str,
    cells: Sequence[object],
    found: Mapping[str, list],
    complete: Sequence[str],
    several: Sequence[tuple[list[str], Choices]],
) -> str | None:
    """Return how a column names choices; None if its cells are answers of their own."""
    are_numbers = all(re.fullmatch(r"\d{1,3}", value) for values, _ in several for value in values)
    are_native = any(isinstance(cell, (int, float)) and not is_missing(cell) for cell in cells)
    if complete and complete[0] == "text":
        others = [
            mode for mode in complete if mode.startswith("index") and found[mode] != found["text"]
        ]
        if are_native and others:
            raise RunError(_ambiguous(name, "the choices themselves or their places"))
        return "text"
    if complete and complete[0] == "label":
        return "label"
    if complete == ["index from 0", "index from 1"]:
        if not are_native:
            raise RunError(_ambiguous(name, "places counted from 0 or from 1"))
        return "index from 0"
    if complete:
        return complete[0]
    counts = {mode: sum(answers is not None for answers in each) for mode, each in found.items()}
    best = max(counts, key=lambda mode: counts[mode])
    is_usual = 2 * counts[best] > len(several) and best != "text"
    if is_usual and are_numbers and best.startswith("index"):
        if counts["index from 0"] == counts["index from 1"]:
            raise RunError(_ambiguous(name, "places counted from 0 or from 1"))
        return best
    return best if is_usual and best == "label" else None


def _ambiguous(name: str, kinds: str) -> str:
    return f"column {name!r} may hold {kinds}; write the text of the right choice into a column of its own"


# --- The references of a table ---


def read_references(
    used: Sequence[str],
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    notes: list[str],
) -> "list[list[str] | BadRow]":
    """Return the references of each row, each text once, from the columns that are used.

    The cells of a column `references` are not looked up among choices. The notes about how a column
    was read are added to `notes`.
    """
    readings = []
    for position, name in enumerate(used):
        cells: list = [row.get(name) for row in rows]
        words: list[str] = []
        if position == 0 and plain_name(name) != "references":
            columns, choices = choices_of([other for other in names if other not in used], rows)
            manner = ""
            if columns:
                manner, cells = chosen_texts(name, cells, choices)
            if manner:
                words.append(f"which names the choices in {columns} {manner}")
        reading = read_column(name, [None if isinstance(cell, BadRow) else cell for cell in cells])
        words += reading.words
        if words:
            notes.append(f"references from column {name!r}, {', '.join(words)}")
        bad = [cell if isinstance(cell, BadRow) else None for cell in cells]
        readings.append([one or other for one, other in zip(bad, reading.answers, strict=True)])
    return [
        _merged(parts, used, row)
        for parts, row in zip(zip(*readings, strict=True), rows, strict=True)
    ]


def _merged(
    parts: Sequence[Any], used: Sequence[str], row: Mapping[str, object]
) -> "list[str] | BadRow":
    texts: list = []
    for part in parts:
        if isinstance(part, BadRow):
            return part
        texts += part
    cells = [row.get(name) for name in used]
    shown = f"references={_short(cells[0] if len(cells) == 1 else cells)}"
    if None in texts:
        return BadRow(f"{shown} must be text or lists of texts")
    references = list(
        dict.fromkeys(text.strip() for text in texts if text.strip() not in _NO_ANSWER)
    )
    return references or BadRow(f"{shown} must hold a text")
