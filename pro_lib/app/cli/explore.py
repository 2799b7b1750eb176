"""The command `pro explore`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pro_lib.app.cli.base import Command
from pro_lib.app.cli.options import (
    ANSWERS,
    OUTPUT_FILE,
    alpha_option,
    answer_options,
    force_option,
    read_answers,
)
from pro_lib.app.cli.output import say
from pro_lib.common import catalog
from pro_lib.common.files import check_output, link_target, regular, sha256, write_whole
from pro_lib.common.validation import extra, is_printable, printable

if TYPE_CHECKING:
    from pro_lib.runs.run import Run

_LONGEST_NAME = 200  # bytes of a default name, so that a digest and a suffix can follow


@click.command("explore", cls=Command)
@click.argument("run", required=False, type=ANSWERS)
@answer_options
@click.option("--html", type=OUTPUT_FILE, help="Write the page here, and open no browser.")
@force_option
@alpha_option
def explore_command(
    run: str | None, html: Path | None, force: bool, alpha: float, **reading: Any
) -> None:
    """Open the explorer in the browser.

    Without RUN, it opens as a notebook in JupyterLab. With RUN, it opens as a page. RUN is a run
    folder, the name of a run that pro generate printed, or a file of responses.
    """
    if run is None:
        context = click.get_current_context()
        has_alpha = context.get_parameter_source("alpha") is not ParameterSource.DEFAULT
        if html or force or has_alpha or any(reading.values()):
            raise click.UsageError("these options need a RUN, as in: pro explore responses.jsonl")
        _open_jupyterlab()
        return
    from pro_lib.app import explorer

    inputs = [path for path in (run, reading["questions"]) if path]
    if html:  # checked before the run is read, which may take long
        _check_page(html, run, inputs, force)
    answers = read_answers(run, reading)
    page = html or _default_page(run, answers)
    _check_page(page, run, inputs, force)
    explorer.to_html(answers, page, alpha=alpha, source=run)
    counts = f"{len(answers.questions):,} questions, {len(answers.answers):,} answers"
    say(f"{counts}; page: {printable(page)}")
    if not html:
        webbrowser.open(Path(page).absolute().as_uri())


def _check_page(page: Path, run: str, inputs: Sequence[str], force: bool) -> None:
    """Check that writing a page does not lose an input or a file that is not a page of the run."""
    from pro_lib.app import explorer

    def is_ours(path: Path) -> bool:
        return explorer.page_source(path) == explorer.source_digest(run)

    foreign = "is not a page of the same RUN"
    check_output(
        page, option="--html", inputs=inputs, force=force, is_ours=is_ours, foreign=foreign
    )


def _default_page(path: str, run: Run) -> Path:
    """Return the default page of a run folder or of a file, in the working folder.

    Its name consists of dataset, model and the name of the run folder, or it is the name of the
    file. If a page of another run has this name, a digest of the path follows, so that no two runs
    share a page.
    """
    from pro_lib.app import explorer

    name = os.path.basename(os.path.realpath(path))
    if os.path.isdir(path):
        name = f"{run.info.dataset}_{run.info.model}_{name}"
    name = "".join(char if is_printable(char) and char not in "/\\" else "_" for char in name)
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = f"{name[:60]}-{sha256(os.fsencode(name))[:8]}"
    page = Path(f"{name}.html")
    digest = explorer.source_digest(path)
    if page.is_file() and explorer.page_source(page) not in (None, digest):
        return Path(f"{name}-{digest}.html")
    return page


def _open_jupyterlab() -> None:
    """Replace this process by JupyterLab with notebook 00.

    JupyterLab saves the notebook that it opens. The notebook of an installed package is therefore
    copied into the working folder.
    """
    with extra("notebooks", "JupyterLab"):
        import jupyterlab  # noqa: F401
    path = catalog.notebook("00")
    if not catalog.CHECKOUT:
        copy = regular(link_target(path.name))
        if not copy.exists():
            write_whole(path.read_bytes(), copy)
        path = Path(path.name)
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    options = ["--allow-root"] if is_root else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *options, str(path)])
