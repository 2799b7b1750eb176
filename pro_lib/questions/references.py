"""Read the right answers of a row of a question file."""

import re
from collections.abc import Mapping, Sequence

from pro_lib.questions.cell_values import (
    NO_ANSWER,
    is_missing,
    list_in_text,
    shortened,
    texts_in,
)
from pro_lib.questions.choices import choices_of, chosen_texts
from pro_lib.questions.tables import BadRow

# The end of a rationale of GSM8K.
_FINAL_ANSWER = re.compile(r"\n####[ \t]*(\S[^\n]*?)\s*\Z")


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
