"""The command `pro explore`."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import (
    ANSWERS,
    OUTPUT_FILE,
    alpha_option,
    answer_options,
    correctness_option,
    example_option,
    force_option,
    methods_option,
)
from pro_lib.app.cli.output import say
from pro_lib.common import catalog
from pro_lib.common.files import check_output, link_target, regular, sha256, write_whole, writing
from pro_lib.common.validation import extra, is_printable

if TYPE_CHECKING:
    from pro_lib.app.answer_source import Reading
    from pro_lib.runs.run import Run

_LONGEST_NAME = 200  # bytes of a default name, so that a digest and a suffix can follow


@pro.command("explore")
@click.argument("run", required=False, type=ANSWERS)
@answer_options
@correctness_option
@methods_option
@alpha_option
@click.option("--html", type=OUTPUT_FILE, help="Write the page here, and open no browser.")
@force_option
@example_option
@click.option(
    "--lab", is_flag=True, help="Open the explorer in JupyterLab, where it also asks the model."
)
def explore_command(  # noqa: PLR0913 - one argument per option
    run: str | None,
    reading: Reading,
    correctness: str,
    methods: Sequence[str] | None,
    alpha: float,
    html: Path | None,
    force: bool,
    example: bool,
    lab: bool,
) -> None:
    """Open the explorer in the browser: single questions, their answers, and a slider for α.

    RUN is a run folder, the name of a run that pro generate printed, or a file of responses.
    Without RUN, the page shows the bundled answers.
    """
    if lab:
        _check_lab_is_alone()
        _open_jupyterlab()
        return
    if run is not None and example:
        raise click.UsageError("give either RUN or --example")
    from pro_lib.app import explorer
    from pro_lib.app.correctness import read_correctness

    source = run or str(catalog.EXAMPLE)

    def check_page(page: Path) -> None:
        check_output(
            page,
            option="--html",
            inputs=[source, reading.questions, correctness],
            force=force,
            is_ours=lambda file: explorer.page_source(file) == explorer.source_digest(source),
            foreign="is not a page of the same RUN",
        )

    if html:  # checked before the run is read, which may take long
        check_page(html)
    judged_by = read_correctness(correctness, accepts_sample=False)
    answers = reading.read(source, log_metric=judged_by.log_metric)
    page = html or (_example_page() if run is None else _default_page(run, answers))
    check_page(page)
    explorer.to_html(
        answers, page, alpha=alpha, source=source, rules=judged_by.rules, methods=methods
    )
    say(f"{len(answers.questions):,} questions, {len(answers.answers):,} answers; page: {page}")
    if not html:
        webbrowser.open(Path(page).absolute().as_uri())


def _check_lab_is_alone() -> None:
    """Raise `UsageError` if another argument or option than --lab is given."""
    context = click.get_current_context()
    for other in context.params:
        is_given = context.get_parameter_source(other) is not ParameterSource.DEFAULT
        if other != "lab" and is_given:
            raise click.UsageError("--lab takes neither RUN nor other options")


def _example_page() -> Path:
    """Return the page of the bundled answers, which is in the user's cache."""
    folder = catalog.CACHE.parent
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / "example.html"


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
