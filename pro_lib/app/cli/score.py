"""The command `pro score`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pro_lib.app.cli.base import Command
from pro_lib.app.cli.options import (
    INPUT_FILE,
    OUTPUT_FILE,
    alpha_option,
    columns_option,
    force_option,
    question_file_parameters,
    questions_option,
    strict_option,
)
from pro_lib.app.cli.output import say, table_text
from pro_lib.common import catalog
from pro_lib.common.files import check_output, write_whole
from pro_lib.common.validation import printable

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 20  # rows of the table that are printed


@click.command("score", cls=Command)
@click.argument("responses", required=False, type=INPUT_FILE)
@alpha_option
@questions_option
@columns_option
@strict_option
@click.option(
    "--correctness",
    "--labels",
    default="rouge_l",
    help="Or exact_match, alias_match, or a file of labels.",
)
@click.option("--output", type=OUTPUT_FILE, help="Write the table, a CSV file.")
@click.option("--raw-text", is_flag=True, help="Write texts to --output as they are, formulas too.")
@force_option
@click.option("--example", is_flag=True, help="Score answers that come along: 60 of SmolLM2-135M.")
def score_command(  # noqa: PLR0913 - one argument per option
    responses: str | None,
    alpha: float,
    questions: str | None,
    columns: Sequence[str],
    strict: bool,
    correctness: str,
    output: Path | None,
    raw_text: bool,
    force: bool,
    example: bool,
) -> None:
    """Score answers made elsewhere: a table with PRO, NLL, K and mass.

    RESPONSES is a file of a server's responses, of our records, or a CSV file of texts and
    log-probabilities. If right answers are known, accuracy, AUROC and paired differences are
    printed below. A file of labels has the columns question_id, text and correct. A line or an
    answer that cannot be used is left out, counted and named; with --strict, it is an error.

    In the CSV file, a text that a spreadsheet would read as a formula begins with ', unless
    --raw-text is given.
    """
    if example == (responses is not None):
        raise click.UsageError("give a file of RESPONSES, or --example for the bundled answers")
    if output is None and (raw_text or force):
        raise click.UsageError("--raw-text and --force need --output")
    from pro_lib.app import score_summary
    from pro_lib.app.experiment import Experiment
    from pro_lib.app.score_table import csv_text, is_score_table, score_table

    source = responses or str(catalog.EXAMPLE)
    if output:
        inputs = [path for path in (source, questions, correctness) if path]
        check_output(output, option="--output", inputs=inputs, force=force, is_ours=is_score_table)
    names = question_file_parameters(
        columns, strict, option="--questions", has_questions=bool(questions), reads_answers=True
    )
    experiment = Experiment(
        alpha=alpha,
        correctness=correctness,
        records=source,
        dataset=questions or "world-facts",
        **names,
    )
    [pair] = experiment.pairs()
    scores = score_table(experiment.run(*pair, "all"), alpha=alpha)
    if output:
        write_whole(csv_text(scores.rows, raw_text=raw_text).encode(), output)
        say(f"{printable(output)}: {len(scores.rows):,} questions")
    else:
        _print_table(scores.rows)
    for line in score_summary.notes(scores):
        say(line)
    has_references = bool(questions) or os.path.isfile(correctness)
    for run in scores.runs():
        lines = score_summary.quality(
            run, experiment.choices, alpha=alpha, is_required=has_references
        )
        for line in lines:
            say(line)


def _print_table(table: pd.DataFrame) -> None:
    """Print the first rows of a table, without columns that are empty."""
    say(table_text(table.dropna(axis="columns", how="all").head(_MOST_ROWS)))
    if len(table) > _MOST_ROWS:
        say(f"… and {len(table) - _MOST_ROWS:,} more; --output scores.csv writes all")
