"""The command `pro label`."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click

from pro_lib.app.cli.base import Command
from pro_lib.app.cli.explore import read_run_or_responses
from pro_lib.app.cli.options import (
    OUTPUT_FILE,
    columns_option,
    question_file_parameters,
    questions_option,
    strict_option,
)
from pro_lib.app.cli.output import say
from pro_lib.common.files import check_output
from pro_lib.common.validation import printable

FEWEST_ANSWERS = 300  # of a run, in the simulation of docs/results/labels.md


@click.command("label", cls=Command)
@click.argument("run", type=click.Path(exists=True))
@questions_option
@columns_option
@strict_option
@click.option(
    "--labels",
    type=OUTPUT_FILE,
    help="The label file; default: <name of RUN>.labels.jsonl beside RUN.",
)
@click.option(
    "--planned",
    type=int,
    help="How many different answers to label; default: 100, or as planned before.",
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    help="Label only questions of this split, if RUN has several splits.",
)
@click.option(
    "--labeller", default="me", show_default=True, help="Your name, for several labellers."
)
@click.option("--browser/--no-browser", default=True, help="Whether to open the browser.")
def label_command(  # noqa: PLR0913 - one argument per option
    run: str,
    questions: str | None,
    columns: Sequence[str],
    strict: bool,
    labels: Path | None,
    planned: int | None,
    split: str,
    labeller: str,
    browser: bool,
) -> None:
    """Label answers of RUN by hand, on a page in the browser.

    RUN is a run folder or a file of responses, with or without references. Every label is written
    at once. Repeat the same command to continue.
    """
    from pro_lib.app.explorer.label_server import LabelServer
    from pro_lib.app.explorer.labelling import LabelSession
    from pro_lib.app.label_files import default_label_file

    names = question_file_parameters(
        columns, strict, option="--questions", has_questions=bool(questions), reads_answers=True
    )
    path = labels or default_label_file(run)
    inputs = [run, questions] if questions else [run]
    check_output(path, option="--labels", inputs=inputs)
    answers = read_run_or_responses(run, questions, names)
    session = LabelSession.open(answers, path, n_planned=planned, labeller=labeller, split=split)
    with LabelServer(session) as server, server.redirect_file() as page:
        n_answers = f"{session.plan.n_labels} of {len(session.plan.answers)} different answers"
        for note in session.notes:
            say(note)
        say(f"To label: {n_answers}, with {session.plan.n_requests} labels in all.")
        if len(session.plan.answers) < FEWEST_ANSWERS:
            say(f"The intervals were tested with {FEWEST_ANSWERS} answers or more.")
        say(f"Labels: {printable(str(path))}\nPage: {server.address}\nPress Ctrl-C to stop.")
        if browser:
            webbrowser.open(page.as_uri())
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("Stopped. Repeat the command to continue.")
