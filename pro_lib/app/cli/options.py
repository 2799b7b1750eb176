"""Options that several commands share, and their conversion into parameters of the package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

Function = TypeVar("Function", bound=Callable[..., Any])
Group = TypeVar("Group")


class _Answers(click.ParamType):
    """A file of answers, a run folder, or the name of a run that `pro generate` printed."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path of the answers, or fail if there is nothing."""
        path = str(value)
        if path == "-" or os.path.exists(path):  # - is standard input
            return path
        folder = catalog.HOME / "data" / "generations" / path
        if not (folder / "run.json").is_file():
            self.fail(f"There is no file, run folder or run named {value!r}.", param, ctx)
        return str(folder)


class _AutoAlpha(click.ParamType):
    """α as a number, or `auto`."""

    name = "auto|FLOAT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the number, or None for `auto`, or fail for anything else."""
        if value is None or value == "auto":
            return None
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor auto.", param, ctx)


def _parse_columns(
    _ctx: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, list[str]] | None:
    """Return the names of columns by our names for them, or None without values."""
    from pro_lib.questions.question_formats import COLUMN_NAMES

    names: dict[str, list[str]] = {}
    for text in values:
        ours, sign, theirs = text.partition("=")
        if not sign or ours.strip() not in COLUMN_NAMES or not theirs.strip():
            choices = ", ".join(COLUMN_NAMES)
            raise SentenceError(
                f"--columns {text!r} must be NAME=COLUMN, where NAME is one of {choices}"
            )
        names.setdefault(ours.strip(), []).append(theirs)
    return names or None


def _parse_methods(
    _ctx: click.Context, _option: click.Parameter, values: Sequence[str]
) -> list[str] | None:
    """Return the names of methods in values that may be lists with commas, or None without any."""
    names = [name.strip() for value in values for name in value.split(",")]
    return [name for name in names if name] or None


ANSWERS = _Answers()
AUTO_ALPHA = _AutoAlpha()
INPUT_FILE = click.Path(exists=True, dir_okay=False)
OUTPUT_FILE = click.Path(path_type=Path)

correctness_option = click.option(
    "--correctness",
    "--labels",
    default="",
    show_default="rouge_l",
    help="How answers are judged: rouge_l, exact_match, alias_match, value_match, log:NAME for a "
    "metric or scorer of a log, or a file of labels, for pro score also one of pro label.",
)
methods_option = click.option(
    "--methods",
    multiple=True,
    callback=_parse_methods,
    help="Methods to show, as in PRO,NLL,SE; by default all that the answers allow.",
)
example_option = click.option(
    "--example", is_flag=True, help="Use the bundled answers, 788 of SmolLM2-135M."
)
alpha_option = click.option(
    "--alpha",
    type=float,
    default=0.4,
    show_default=True,
    help="α of PRO, which keeps the answers with a probability p ≥ α.",
)
columns_option = click.option(
    "--columns",
    multiple=True,
    callback=_parse_columns,
    metavar="NAME=COLUMN",
    help="The name of a column in a question file, if it is not the usual one, or its number if "
    "the file has no header. NAME is question, references, question_id, split or choices, as in "
    "--columns question=Frage. May be repeated.",
)
separator_option = click.option(
    "--separator",
    metavar="TEXT",
    help="The text between several right answers in one cell of a file, as in --separator ';'. By "
    "default a cell is one answer.",
)
strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Stop with an error if a row, line or answer of a file cannot be used.",
)
all_option = click.option(
    "--all",
    "all_questions",
    is_flag=True,
    help="Use all stored answers of a run, not only those of the last call of pro generate.",
)


def several_options(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Return a decorator that adds options to a command, in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def take_group(values: dict[str, Any], group: type[Group]) -> Group:
    """Remove the values of some options from those of a command, and return them as one object.

    Args:
        values: the values of all options.
        group: a dataclass, whose fields have the names of the options.
    """
    names = [field.name for field in fields(group) if field.name in values]  # type: ignore[arg-type]
    return group(**{name: values.pop(name) for name in names})


def answer_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that reads answers. Their values become its `reading`."""

    @wraps(command)
    def command_with_reading(**values: Any) -> None:
        from pro_lib.app.answer_source import Reading

        check_columns(values["columns"], values["questions"])
        command(reading=take_group(values, Reading), **values)

    add = several_options(
        click.option(
            "--questions",
            type=INPUT_FILE,
            help="File of questions, whose references (right answers) and splits replace those of "
            "the answers.",
        ),
        columns_option,
        separator_option,
        strict_option,
        all_option,
    )
    return add(command_with_reading)


force_option = click.option(
    "--force",
    is_flag=True,
    help="Also replace a file that this command did not write.",
)


def check_columns(columns: Mapping[str, list[str]] | None, questions: str | None) -> None:
    """Raise `UsageError` if the columns of a question file are named, but no file is given."""
    if columns and not questions:
        raise click.UsageError(
            "--columns names the columns of a question file; give the file with --questions"
        )
