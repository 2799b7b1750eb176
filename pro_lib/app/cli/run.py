"""The command `pro run`."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from pro_lib.app.cli.base import Command, pro
from pro_lib.app.cli.options import force_option
from pro_lib.app.cli.output import say
from pro_lib.common import catalog
from pro_lib.common.files import check_output, writing
from pro_lib.common.validation import SentenceError, extra


class _RunCommand(Command):
    """The command `run`, whose help lists the parameters of notebooks."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name and help text of every parameter.

        They are imported for this only.
        """
        from pro_lib.app.parameters import help_texts

        with formatter.section("Parameters"):
            formatter.write_dl(list(help_texts().items()))


@pro.command("run", cls=_RunCommand)
@click.argument("notebook")
@click.option(
    "-p",
    "typed",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="A parameter, as in -p alpha 0.3. May be repeated.",
)
@click.option(
    "--executed",
    type=click.Path(path_type=Path),
    help="Folder for the executed copy of the notebook.",
)
@force_option
def run_command(
    notebook: str, typed: Sequence[tuple[str, str]], executed: Path | None, force: bool
) -> None:
    """Run a notebook, by number, name or path.

    A VALUE is read as a Python literal (0.3, None, '["facts-2m"]'), or else as a text. If you
    change a parameter, the figures are written to a separate folder, which is printed at the end.
    """
    with extra("notebooks", "running a notebook"):
        import ipykernel  # noqa: F401
        import papermill  # noqa: F401
    from pro_lib.app import notebook_execution

    values = _parse_values(typed)
    path = catalog.notebook(notebook)
    if path.parent == catalog.ROOT / "notebooks":
        from pro_lib.app.parameters import check_names

        check_names(values)
    copy = _prepare_folder(executed) / path.name
    check_output(
        copy,
        option="--executed",
        inputs=[path, *_paths_in(values)],
        force=force,
        is_ours=lambda file: notebook_execution.is_executed_copy(file, path),
    )
    outputs = notebook_execution.execute_notebook(path, copy, values)
    say(*(f"- {sentence}" for sentence in notebook_execution.findings(outputs)))
    default_folder = values.get("figures_dir") or catalog.HOME / "figures"
    figures_folder = notebook_execution.figures_folder(outputs) or default_folder
    figure = Path(figures_folder) / f"{path.stem}.png"
    figure_text = f"figure: {figure}; " if figure.is_file() else ""
    say(f"{figure_text}notebook: {copy}")


def _parse_values(typed: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the values of parameters: Python literals, and other texts as they are."""
    values: dict[str, Any] = dict(typed)
    for name, text in typed:
        if not name.isidentifier():
            raise SentenceError(f"-p {name!r} is not the name of a parameter.")
        with suppress(ValueError, SyntaxError):
            values[name] = ast.literal_eval(text)
    return values


def _prepare_folder(executed: Path | None) -> Path:
    """Create the folder of the executed copy, and return it."""
    default = catalog.CHECKOUT / "build" / "notebooks" if catalog.CHECKOUT else Path("executed")
    folder = executed or default
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _paths_in(parameters: Mapping[str, Any]) -> list[str]:
    """Return the files among the values of parameters, and the folders of models and datasets."""
    paths: list[str] = []
    for name, value in parameters.items():
        values = value if isinstance(value, list | tuple) else [value]
        exists = os.path.exists if name in ("model", "dataset") else os.path.isfile
        paths += [text for text in values if isinstance(text, str) and exists(text)]
    return paths
