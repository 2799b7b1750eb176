"""The command `pro report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import ANSWERS, OUTPUT_FILE
from pro_lib.app.cli.output import say
from pro_lib.app.cli.scoring_options import answer_sources, scoring_options
from pro_lib.common.files import check_output, write_whole

if TYPE_CHECKING:
    from pro_lib.app.cli.scoring_options import ScoreRequest


@pro.command("report")
@click.argument("responses", required=False, type=ANSWERS)
@click.option(
    "--output",
    type=OUTPUT_FILE,
    default=Path("report.html"),
    show_default=True,
    help="Write the page here.",
)
@scoring_options
def report_command(
    responses: str | None, request: ScoreRequest, output: Path, force: bool, example: bool
) -> None:
    """Write a report on answers as one HTML page, which can be sent and printed.

    RESPONSES is a file or a run folder, as for pro score. The page has the summary, the
    accuracy of the most certain answers, AUROC of all methods, the reliability diagram, the most
    and the least certain answers, and definitions. It needs no network.
    """
    from pro_lib.app import report

    [source] = answer_sources([responses] if responses else [], example=example)
    inputs = [source, *request.files]
    check_output(output, option="--output", inputs=inputs, force=force, is_ours=report.is_report)
    scored = request.score(source)
    mistrust = request.mistrust(scored)
    name = scored.run.name if os.path.isdir(source) else os.path.basename(source)
    page = report.report_html(scored, mistrust, name=name)
    write_whole(page.encode(), output)
    say(f"{len(scored.questions):,} questions; page: {output}")
