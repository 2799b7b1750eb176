"""Texts of the command line: printable lines, tables and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pro_lib.common.validation import is_printable, printable

if TYPE_CHECKING:
    import pandas as pd


def say(text: object, *, err: bool = False) -> None:
    """Print lines of text.

    Every output of the commands uses this function.

    Control characters other than line ends are escaped. A text of the data, such as an answer,
    must be made `printable` before, because a line end in it would begin a new line.

    Args:
        text: what is printed.
        err: whether it is printed to stderr.
    """
    lines = str(text).split("\n")
    click.echo("\n".join(map(printable, lines)), err=err)


def json_line(value: object) -> str:
    """Return a value as JSON on one line, with an escape for each unprintable character."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if is_printable(char) else _json_escape(char) for char in text)


def _json_escape(character: str) -> str:
    """Return the escape of a character in JSON, which consists of UTF-16 code units."""
    code_units = character.encode("utf-16-be", "surrogatepass")
    starts = range(0, len(code_units), 2)
    return "".join(f"\\u{code_units[start : start + 2].hex()}" for start in starts)


def table_text(table: pd.DataFrame, *, width: int = 60) -> str:
    """Return a table as aligned lines, with escapes for unprintable characters.

    Args:
        table: the table.
        width: the largest number of characters of a cell.
    """
    import pandas as pd

    cells = table.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
    # A wide letter takes two columns of a terminal.
    with pd.option_context("display.unicode.east_asian_width", True):
        return cells.to_string(
            index=False, float_format="{:z.4f}".format, na_rep="", max_colwidth=width
        )
