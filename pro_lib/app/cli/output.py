"""Texts of the command line: printable lines, tables and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from pro_lib.common.nested import json_value
from pro_lib.common.validation import is_printable, printable

if TYPE_CHECKING:
    import pandas as pd


def say(*lines: object, err: bool = False) -> None:
    """Print lines, with escapes for unprintable characters and for line ends.

    Every output of the commands uses this function.

    Args:
        lines: what is printed, such as texts or paths.
        err: whether they are printed to stderr.
    """
    for line in lines:
        click.echo(printable(line), err=err)


def json_line(value: object) -> str:
    """Return a value as JSON on one line, with an escape for each unprintable character."""
    text = json.dumps(json_value(value), ensure_ascii=False)
    return "".join(char if is_printable(char) else json.dumps(char)[1:-1] for char in text)


def table_lines(table: pd.DataFrame) -> list[str]:
    """Return a table as aligned lines, with escapes for unprintable characters."""
    import pandas as pd

    cells = table.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
    # A wide letter takes two columns of a terminal.
    with pd.option_context("display.unicode.east_asian_width", True):
        text = cells.to_string(
            index=False, float_format="{:z.4f}".format, na_rep="", max_colwidth=40
        )
    return text.split("\n")
