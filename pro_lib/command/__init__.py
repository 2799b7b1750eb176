"""The command `pro`: what is typed becomes calls of the package, what is wrong becomes one line; computes nothing.

A command imports what it needs when it is called, so that `pro --help` is there at once.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import pro_lib
from pro_lib.checks import extra, one_line

FILE, WRITTEN = click.Path(exists=True, dir_okay=False), click.Path(dir_okay=False, path_type=Path)
ALPHA = click.option("--alpha", type=float, default=0.4, show_default=True, help="PRO keeps answers with p ≥ α.")
EXECUTED = click.option("--executed", type=click.Path(file_okay=False, path_type=Path), help="Folder of the copies.")


class _OneLine(click.Group):
    """Commands whose errors are one line and exit status 1."""

    def invoke(self, context: click.Context) -> Any:
        warnings.formatwarning = lambda message, *_, **__: f"{one_line(message)}\n"
        try:
            return super().invoke(context)
        except BrokenPipeError:  # who read it has read enough; click ends without a word
            raise
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(one_line(error)) from error


@click.group(cls=_OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pro_lib.__version__)
def pro() -> None:
    """Uncertainty of language-model answers from the probabilities of the likely ones."""


@pro.command()
@click.argument("question")
@click.option("--model", default="facts-2m", show_default=True, help="A bundled or paper's name, hub id or folder.")
@ALPHA
@click.option("--search-alpha", type=float, default=0.02, show_default=True, help="Find every answer with p ≥ this.")
@click.option("--calibration", type=click.Path(exists=True), help="A run with known answers, of the same model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(question: str, model: str, alpha: float, search_alpha: float, calibration: str | None, as_json: bool) -> None:
    """Ask a model one question: its answer, and how uncertain it is."""
    from pro_lib import asking
    from pro_lib.command import said

    found = asking.ask(model, question, alpha=alpha, search_alpha=search_alpha, calibration=calibration)
    told = said.answer(found, alpha=alpha, search_alpha=search_alpha)
    click.echo(json.dumps(asdict(found), ensure_ascii=False) if as_json else told)


@pro.command()
@click.argument("responses", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@ALPHA
@click.option("--questions", type=FILE, help="Questions with references, where RESPONSES has none.")
@click.option("--labels", type=FILE, help="Which answers are right: question_id, text, correct.")
@click.option("--output", type=WRITTEN, help="Write the table: .csv, .parquet or .jsonl.")
def score(responses: str, alpha: float, questions: str | None, labels: str | None, output: Path | None) -> None:
    """Score answers made elsewhere: a table with PRO, NLL, K and mass.

    RESPONSES holds our records, OpenAI's responses or vLLM's outputs, one JSON object a line; - is standard input.
    Where right answers are known, accuracy and AUROC stand below the table.
    """
    from pro_lib.command import said
    from pro_lib.settings import Settings

    read = ["/dev/stdin" if path == "-" else path for path in (responses, questions, labels) if path]
    if output and output.exists() and any(output.samefile(path) for path in read):
        raise ValueError(f"--output {output} would overwrite what is read")
    with tempfile.TemporaryDirectory() as folder:
        if responses == "-":
            responses = f"{folder}/stdin.jsonl"
            Path(responses).write_bytes(sys.stdin.buffer.read())
        given = {"dataset": questions, "correctness": labels}
        settings = Settings(records=responses, alpha=alpha, **{name: path for name, path in given.items() if path})
        run = settings.run(*settings.pairs()[0])
    table = run.scores(alpha=alpha)
    if output:
        said.write(table, output)
    told = f"{output}: {len(table):,} questions" if output else said.table(table, whole=not sys.stdout.isatty())
    click.echo(told)
    click.echo(said.quality(run, settings.choices, alpha=alpha, needed=bool(questions or labels)))


@pro.command()
@click.argument("notebook")
@click.option("-p", "typed", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter, as in -p alpha 0.3.")
@EXECUTED
def run(notebook: str, typed: Sequence[tuple[str, str]], executed: Path | None) -> None:
    """Run a notebook, by number, name or path. A VALUE is a Python literal (0.3, None, '["facts-2m"]'), else text.

    With parameters other than it comes with, its figures go to a folder of their own, which is said at the end.
    """
    from pro_lib.command import notebooks

    given: dict[str, object] = dict(typed)
    for name, text in typed:
        with suppress(ValueError, SyntaxError):
            given[name] = ast.literal_eval(text)
    click.echo(notebooks.run(notebook, given, executed))


@pro.command("download")
@click.argument("name")
@click.option("--url", envvar="PRO_PUBLISHED_URL", help="Another place of the files, ending in /.")
def get_published(name: str, url: str | None) -> None:
    """Get published outputs of large models: NAME is rank-calibration, or rank-calibration/<model>/<dataset>."""
    from pro_lib.command.download import URL, fetched

    for line in fetched(name, url or URL):
        click.echo(line)


@pro.command()
@EXECUTED
def figures(executed: Path | None) -> None:
    """Run every notebook, three at a time, after the runs they share; leave figures/."""
    from pro_lib.command import notebooks

    notebooks.run_all(executed)


@pro.command()
@click.argument("run", required=False, type=click.Path(exists=True))
@click.option("--html", type=WRITTEN, help="Write the explorer of RUN as one page.")
@ALPHA
def explore(run: str | None, html: Path | None, alpha: float) -> None:
    """Open the explorer in JupyterLab, or write that of RUN, a run folder or a file of responses, as one page."""
    if (run is None) != (html is None):
        raise click.UsageError("RUN and --html go together, as in: pro explore RUN --html run.html")
    if html:
        from pro_lib import explorer, imports, runs

        read = runs.read if os.path.isdir(run) else imports.from_file
        click.echo(explorer.to_html(read(run), html, alpha=alpha))
        return
    from pro_lib import bundled
    from pro_lib.command import notebooks

    with extra("notebooks", "opening a notebook"):
        import jupyterlab  # noqa: F401
    path = notebooks.found("00")
    if not bundled.CHECKOUT:  # JupyterLab saves what it opens
        path = path.name if os.path.exists(path.name) else shutil.copy(path, path.name)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", str(path)])
