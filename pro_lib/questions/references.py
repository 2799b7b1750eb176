"""Read the right answers of question files, in the forms in which datasets and tools write them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.entities import html5
from typing import Any

from pro_lib.questions.cell_values import NO_ANSWER, is_missing, plain_name, shortened, texts_in
from pro_lib.questions.choices import choices_of, chosen_texts
from pro_lib.questions.tables import BadRow
from pro_lib.questions.text_lists import is_list_of_texts, list_in_text

_FINAL_ANSWER = re.compile(r"####[ \t]*(\S[^\n]*?)\s*\Z")
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_WHOLE = re.compile(r"-?\d+\.0+")
_LIST_WITH_QUOTE = re.compile(r"\s*[\[({]\s*['\"]")


# --- One column ---


@dataclass(frozen=True)
class Reading:
    """The answers in each cell of a column, and words for a note about how they were read."""

    answers: "list[list[str | None] | BadRow]"
    words: tuple[str, ...] = ()


def read_column(name: str, cells: Sequence[object]) -> Reading:
    """Return the texts in each cell of a column of references.

    A text is one answer or several separated by semicolons. Special forms are read as follows:

    - A text with a list in JSON, Python or NumPy notation is that list.
    - The text after `####` is the answer of a rationale, if most texts have such an end.
    - Whole numbers in a column of decimals lose their `.0`.
    - A semicolon that ends an HTML entity does not separate answers.

    Args:
        name: the name of the column.
        cells: the cell of each row.

    Example:
        >>> read_column("answers", ["Paris; City of Light", '["Rome"]']).answers
        [['Paris', ' City of Light'], ['Rome']]
    """
    column = _Column(name, cells)
    answers = [column.answers_in(cell) for cell in cells]
    return Reading(answers, column.words())


class _Column:
    """A column of references, with the properties of all its cells that decide how one is read."""

    def __init__(self, name: str, cells: Sequence[object]) -> None:
        texts = [cell for cell in cells if isinstance(cell, str) and cell.strip() not in NO_ANSWER]
        self.name = name
        self.lists = {
            text: list_in_text(text) for text in texts if text.lstrip()[:1] in ("[", "(", "{")
        }
        all_begin_lists = bool(texts) and all(text.lstrip().startswith("[") for text in texts)
        self.are_lists = all_begin_lists and name.endswith("s")
        self.are_decimals = bool(texts) and all(_DECIMAL.fullmatch(text.strip()) for text in texts)
        n_rationales = sum(_FINAL_ANSWER.search(text) is not None for text in texts)
        self.are_rationales = 2 * n_rationales > len(texts)
        self._forms: Counter = Counter()

    def answers_in(self, cell: object) -> "list[str | None] | BadRow":
        """Return the texts in a cell, and count its form."""
        if is_missing(cell):
            return []
        if not isinstance(cell, str):
            return texts_in(cell)
        if cell in self.lists:
            answers = self._answers_in_list(cell)
            if answers is not None:
                return answers
        return self._answers_in_text(cell)

    def _answers_in_list(self, cell: str) -> "list[str | None] | BadRow | None":
        """Return the answers in a text that looks like a list, or None if it is not read as one."""
        text_list = self.lists[cell]
        if text_list is None:
            if self.are_lists or _LIST_WITH_QUOTE.match(cell):
                words = "looks like a list but cannot be read as one"
                return BadRow(f"{self.name}={shortened(cell)} {words}")
            return None
        notation, value = text_list
        if not self.are_lists and not is_list_of_texts(value):
            return None
        self._forms[f"read as {notation} lists"] += 1
        return texts_in(value)

    def _answers_in_text(self, cell: str) -> "list[str | None]":
        """Return the answers in a text that is not a list."""
        final_answer = _FINAL_ANSWER.search(cell)
        if self.are_rationales and final_answer:
            self._forms["the text after ####"] += 1
            return [final_answer[1]]
        if self.are_decimals and _WHOLE.fullmatch(cell.strip()):
            self._forms["whole numbers without .0"] += 1
            return [cell.strip().partition(".")[0]]
        if any(map(_is_entity, _ENTITY.finditer(cell))):
            self._forms["with HTML entities such as &amp; kept as they are"] += 1
        return list(split_at_semicolons(cell))

    def words(self) -> tuple[str, ...]:
        """Return the forms of the cells, as words for a note."""
        forms = list(self._forms)
        if sum(form.startswith("read as") for form in forms) > 1:
            # An empty list, or one of numbers, is the same in JSON and in other notations.
            forms = [form for form in forms if form != "read as JSON lists"]
        return tuple(forms)


def split_at_semicolons(text: str) -> list[str]:
    """Return the parts of a text between semicolons, except those that end an HTML entity.

    Example:
        >>> split_at_semicolons("AT&amp;T;Bell")
        ['AT&amp;T', 'Bell']
    """
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
    """Return whether HTML has an entity with this name or number, such as &amp; or &#39;."""
    return match[1].startswith("#") or f"{match[1]};" in html5


# --- The references of a table ---


def read_references(
    used_columns: Sequence[str],
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    notes: list[str],
) -> "list[list[str] | BadRow]":
    """Return the references of each row, each text once.

    Cells that name choices become the texts of these choices, except in a column `references`.

    Args:
        used_columns: the columns with references.
        names: all columns of the file.
        rows: the rows of the file.
        notes: takes notes about how a column was read.
    """
    other_names = [name for name in names if name not in used_columns]
    answers_by_column = []
    for position, name in enumerate(used_columns):
        cells: list = [row.get(name) for row in rows]
        words: list[str] = []
        if position == 0 and plain_name(name) != "references":
            columns, choices = choices_of(other_names, rows)
            manner = ""
            if columns:
                manner, cells = chosen_texts(name, cells, choices)
            if manner:
                words.append(f"which names the choices in {columns} {manner}")
        reading = read_column(name, [None if isinstance(cell, BadRow) else cell for cell in cells])
        words += reading.words
        if words:
            notes.append(f"references from column {name!r}, {', '.join(words)}")
        answers = [
            cell if isinstance(cell, BadRow) else texts
            for cell, texts in zip(cells, reading.answers, strict=True)
        ]
        answers_by_column.append(answers)
    answers_by_row = zip(*answers_by_column, strict=True)
    return [
        _merged(parts, used_columns, row) for parts, row in zip(answers_by_row, rows, strict=True)
    ]


def _merged(
    parts: Sequence[Any], used_columns: Sequence[str], row: Mapping[str, object]
) -> "list[str] | BadRow":
    """Return the references of a row from those in each of its columns."""
    texts: list = []
    for part in parts:
        if isinstance(part, BadRow):
            return part
        texts += part
    if None in texts:
        return BadRow(f"{_shown_cells(used_columns, row)} must be text or lists of texts")
    stripped_texts = [text.strip() for text in texts]
    references = list(dict.fromkeys(text for text in stripped_texts if text not in NO_ANSWER))
    return references or BadRow(f"{_shown_cells(used_columns, row)} must hold a text")


def _shown_cells(used_columns: Sequence[str], row: Mapping[str, object]) -> str:
    """Return the cells of the references for a message."""
    cells = [row.get(name) for name in used_columns]
    return f"references={shortened(cells[0] if len(cells) == 1 else cells)}"
