"""Options that several commands share, and their conversion into parameters of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pro_lib.app.answer_source import locate_answers
from pro_lib.common.validation import SentenceError

if TYPE_CHECKING:
    from pro_lib.runs.run import Run

Function = TypeVar("Function", bound=Callable[..., Any])


class _Answers(click.ParamType):
    """A file of answers, a run folder, or the name of a run that `pro generate` printed."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path of the answers, or fail if there is nothing."""
        path = locate_answers(str(value))
        if path is None:
            self.fail(f"There is no file, run folder or run named {value!r}.", param, ctx)
        return path


class _AutoAlpha(click.ParamType):
    """α as a number, or `auto`."""

    name = "auto|FLOAT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | float:
        """Return `auto` or the number, or fail for anything else."""
        if value == "auto":
            return "auto"
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor auto.", param, ctx)


ANSWERS = _Answers()
AUTO_ALPHA = _AutoAlpha()
INPUT_FILE = click.Path(exists=True, dir_okay=False)
OUTPUT_FILE = click.Path(path_type=Path)

correctness_option = click.option(
    "--correctness",
    "--labels",
    default="rouge_l",
    show_default=True,
    help="How answers are judged: rouge_l, exact_match, alias_match, log:NAME for a metric or "
    "scorer of a log, or a file of labels, for pro score also one of pro label.",
)
methods_option = click.option(
    "--methods",
    multiple=True,
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
_ANSWER_OPTIONS = (
    click.option(
        "--questions",
        type=INPUT_FILE,
        help="File of questions, whose references (right answers) and splits replace those of the "
        "answers.",
    ),
    columns_option,
    separator_option,
    strict_option,
    all_option,
)
force_option = click.option(
    "--force",
    is_flag=True,
    help="Also replace a file that this command did not write.",
)


def answer_options(function: Function) -> Function:
    """Add the options of a command that reads answers, whose values `read_answers` takes."""
    for option in reversed(_ANSWER_OPTIONS):
        function = option(function)
    return function


def requested_answers(path: str, options: Mapping[str, Any]) -> Run:
    """Return the answers that a command is given, with the values of `answer_options`."""
    from pro_lib.app import answer_source

    questions = options["questions"]
    names = question_file_parameters(
        options["columns"],
        options["strict"],
        option="--questions",
        has_questions=bool(questions),
        reads_answers=True,
    )
    kind, _, verdict = (options.get("correctness") or "").partition(":")
    return answer_source.read_answers(
        path,
        questions=questions,
        separator=options["separator"],
        verdict=verdict if kind == answer_source.LOG else None,
        all_questions=options["all_questions"],
        **names,
    )


def question_file_parameters(
    columns: Sequence[str],
    strict: bool,
    *,
    option: str,
    has_questions: bool,
    reads_answers: bool = False,
) -> dict[str, Any]:
    """Return the parameters `columns` and `strict` for the readers of files.

    Args:
        columns: the values of --columns.
        strict: whether --strict is given.
        option: the option that gives a question file.
        has_questions: whether a question file is given.
        reads_answers: whether the command reads a file of answers, which --strict is about too.

    Raises:
        click.UsageError: if --columns or --strict is given without a file for it.
        SentenceError: if a value of --columns is wrong.
    """
    if columns and not has_questions:
        raise click.UsageError(
            f"--columns names the columns of a question file; give the file with {option}"
        )
    if strict and not has_questions and not reads_answers:
        raise click.UsageError(f"--strict checks a question file; give the file with {option}")
    return {"columns": _parse_columns(columns), "strict": strict}


def _parse_columns(columns: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the column names by our names from the values of --columns, or None without values."""
    if not columns:
        return None
    from pro_lib.questions.question_formats import COLUMN_NAMES

    names: dict[str, list[str]] = {}
    for text in columns:
        ours, sign, theirs = text.partition("=")
        if not sign or ours.strip() not in COLUMN_NAMES or not theirs.strip():
            choices = ", ".join(COLUMN_NAMES)
            raise SentenceError(
                f"--columns {text!r} must be NAME=COLUMN, where NAME is one of {choices}"
            )
        names.setdefault(ours.strip(), []).append(theirs)
    return names


def method_names(values: Sequence[str]) -> list[str] | None:
    """Return the names in the values of --methods, which may be lists with commas."""
    names = [name.strip() for value in values for name in value.split(",")]
    return [name for name in names if name] or None
