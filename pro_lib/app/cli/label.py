"""The command `pro label`."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import ANSWERS, OUTPUT_FILE, answer_options
from pro_lib.app.cli.output import say
from pro_lib.common.files import check_output

if TYPE_CHECKING:
    from pro_lib.app.answer_source import Reading

FEWEST_ANSWERS = 300  # of a run, in the simulation of docs/results/labels.md


@pro.command("label")
@click.argument("run", type=ANSWERS)
@answer_options
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
    "--labeller",
    help="Your name, for several labellers; default: me, or adjudicator with --adjudicate.",
)
@click.option(
    "--adjudicate", is_flag=True, help="Decide the answers on which the labellers differ."
)
@click.option("--browser/--no-browser", default=True, help="Whether to open the browser.")
def label_command(  # noqa: PLR0913 - one argument per option
    run: str,
    reading: Reading,
    labels: Path | None,
    planned: int | None,
    split: str,
    labeller: str | None,
    adjudicate: bool,
    browser: bool,
) -> None:
    """Label answers of RUN by hand, on a page in the browser.

    RUN is a run folder, the name of a run that pro generate printed, or a file of responses, with
    or without references. Every label is written at once. Repeat the same command to continue.
    All labellers of a run use the same label file.
    """
    from pro_lib.app.label_page import LabelServer
    from pro_lib.labels.plan import plan_path
    from pro_lib.labels.session import ADJUDICATOR, LabelSession

    path = labels or default_label_file(run)
    check_output(path, option="--labels", inputs=[run, reading.questions])
    if plan_path(path).exists():
        # The plan says which answers are labelled, also after a later call for fewer questions.
        reading = replace(reading, all_questions=True)
    answers = reading.read(run)
    session = LabelSession.open(
        answers,
        path,
        n_planned=planned,
        labeller=labeller or (ADJUDICATOR if adjudicate else "me"),
        split=split,
        is_adjudication=adjudicate,
    )
    with LabelServer(session) as server, server.redirect_file() as page:
        n_answers = len(session.planned.answers)
        n_labels = min(session.planned.plan.n_labels, n_answers)
        say(session.planned.evaluation.exclusions, *session.reply("open")["notes"])
        if adjudicate:
            say("To decide: the answers on which the labellers differ.")
        else:
            say(
                f"To label: {n_labels} of {n_answers} different answers, with "
                f"{session.planned.n_requests} labels in all."
            )
        if n_answers < FEWEST_ANSWERS:
            say(f"The intervals were tested with {FEWEST_ANSWERS} answers or more.")
        say(f"Labels: {path}", f"Page: {server.address}", "Press Ctrl-C to stop.")
        if browser:
            webbrowser.open(page.as_uri())
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("Stopped. Repeat the command to continue.")


def default_label_file(run: str | Path) -> Path:
    """Return the label file beside a run folder or a file of answers."""
    path = Path(run).resolve()
    name = path.name if path.is_dir() else path.stem
    return path.with_name(f"{name}.labels.jsonl")
