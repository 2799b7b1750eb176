"""The group `pro`: its commands refuse empty names, and turn every error into one line."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import click

import pro_lib
from pro_lib.common.validation import describe, not_empty, one_line

# Parameters that are text and may be empty; all others are names, paths or numbers.
MAY_BE_EMPTY = {"header"}


class Command(click.Command):
    """A command that refuses empty names and paths, such as those of unset shell variables."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            SentenceError: if a value is empty; the message names its parameter.
        """
        if not ctx.resilient_parsing:
            values, _, _ = self.make_parser(ctx).parse_args(list(args))
            for parameter in self.get_params(ctx):
                if parameter.name not in MAY_BE_EMPTY:
                    _check_not_empty(parameter, values.get(parameter.name))
        return super().parse_args(ctx, args)


def _check_not_empty(parameter: click.Parameter, value: object) -> None:
    """Raise `SentenceError` if a name or path in the value of a parameter is empty."""
    name = "/".join(parameter.opts)
    if isinstance(parameter, click.Argument):
        name = parameter.human_readable_name
    for text in value if isinstance(value, list | tuple) else [value]:
        # The value in a pair NAME VALUE may be an empty text.
        not_empty(text[0] if isinstance(text, tuple) else text, name)


class Group(click.Group):
    """A group of commands: output is UTF-8, and an error is one line.

    The exit status is 2 if the command line is wrong, and 1 for every other error. Only an unknown
    command or option and a missing argument print the usage, too.
    """

    command_class = Command

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command with UTF-8 streams."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # the streams of a notebook do not have it
                stream.reconfigure(encoding="utf-8")
        return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn errors, warnings and log messages into single lines."""

        def worded(message: object) -> str:
            command = self.commands.get(ctx.invoked_subcommand or "")
            return _with_option_names(one_line(message), command.params if command else ())

        warnings.formatwarning = lambda message, *_, **__: f"{worded(message)}\n"
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(_OneLineFormatter())
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = worded(error.message)  # type: ignore[misc]
            is_missing = isinstance(error, click.MissingParameter)
            if isinstance(error, click.BadParameter) and not is_missing:
                error.ctx = None  # click prints the usage of a context
            raise
        except BrokenPipeError:  # the reader of the output has stopped; click ends silently
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(worded(describe(error))) from error
        except RuntimeError as error:
            # The name is compared, because torch may not be imported.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise click.ClickException(describe(error)) from error


def _with_option_names(message: str, parameters: Iterable[click.Parameter]) -> str:
    """Return a message with options as they are typed: `--alpha 2` for `alpha=2`.

    Names inside of a path, such as that of a run folder, stay as they are.
    """
    for parameter in parameters:
        if isinstance(parameter, click.Option) and parameter.opts[0].startswith("--"):
            name = rf"(?<![\w,/-]){parameter.name}="
            message = re.sub(rf"{name}(?=[\s,;.)]|$)", parameter.opts[0], message)
            message = re.sub(name, f"{parameter.opts[0]} ", message)
            if "_" in str(parameter.name):
                name = rf"(?<![\w,/-]){parameter.name}\b(?!\.\w)"
                message = re.sub(name, parameter.opts[0], message)
    return message


class _OneLineFormatter(logging.Formatter):
    """A formatter that writes a log message as one printable line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message as one line without control characters."""
        return one_line(super().format(record))


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Measure how uncertain a language model is about its answers.

    PRO, the main score, is computed from the probabilities of the most likely answers. A higher
    score means more uncertainty.
    """
