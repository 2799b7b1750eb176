"""The command `pro score`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import ANSWERS, OUTPUT_FILE
from pro_lib.app.cli.output import json_line, say, table_lines
from pro_lib.app.cli.scoring_options import FILE_ORDER, answer_sources, scoring_options
from pro_lib.common.files import check_output, write_whole

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.app.cli.scoring_options import ScoreRequest
    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.scored_answers import ScoredAnswers


@pro.command("score")
@click.argument("responses", nargs=-1, type=ANSWERS)
@scoring_options
@click.option("--output", type=OUTPUT_FILE, help="Write scores to a .csv, .jsonl or .parquet file.")
@click.option("--answers", is_flag=True, help="Write a row per answer to --output.")
@click.option("--raw-text", is_flag=True, help="Write texts to a CSV file unchanged, formulas too.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Print this many rows of the table.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def score_command(  # noqa: PLR0913 - one argument per option
    responses: Sequence[str],
    request: ScoreRequest,
    output: Path | None,
    answers: bool,
    raw_text: bool,
    force: bool,
    top: int,
    example: bool,
    as_json: bool,
) -> None:
    """Say which answers to trust: accuracy, AUROC of every method, and a table of the answers.

    RESPONSES is a file of API responses, of records, or of texts and log-probabilities in CSV. It
    may also be a run folder, the name of a run that pro generate printed, or - for a file on
    standard input. The most uncertain answers come first, and ! marks those to mistrust. --output
    and --json have the order of the file, unless --sort names a method. Two files are compared on
    the questions that they share.

    If right answers are known, accuracy and AUROC are printed. A file of labels has the columns
    question_id, text and correct, or pro label has written it. A line or an answer that cannot be
    used is left out with a message. With --strict, it is an error.

    In a CSV file, a text that a spreadsheet would read as a formula begins with ', unless
    --raw-text is given.
    """
    sources = answer_sources(responses, example=example)
    if len(sources) > 2:
        raise click.UsageError("give one file of RESPONSES, or two to compare them")
    if output is None and (raw_text or force or answers):
        raise click.UsageError("--raw-text, --force and --answers need --output")
    if len(sources) == 2:
        one_file_options = {
            "--output": output,
            "--answers": answers,
            "--sort": request.sort,
            "--target": request.target,
        }
        _compare(sources, request, one_file_options, as_json)
        return
    from pro_lib.app import score_summary, score_table

    [source] = sources
    if output:
        score_table.check_suffix(output)
        inputs = [source, *request.files]
        is_ours = score_table.is_score_table
        check_output(output, option="--output", inputs=inputs, force=force, is_ours=is_ours)
    scored = request.score(source, accepts_sample=True)
    mistrust = request.mistrust(scored)
    rows = score_table.question_table(scored, mistrust)
    ranked = rows.iloc[scored.ranking(mistrust.method)]
    if request.sort == FILE_ORDER:
        ranked = rows
    elif request.sort:
        rows = ranked
    if output:
        written = score_table.answer_table(scored, rows.index) if answers else rows
        write_whole(score_table.file_bytes(written, output, raw_text=raw_text), output)
    if as_json:
        content = score_summary.summary_json(scored, mistrust)
        say(json_line({**content, "answers": score_table.json_rows(rows)}))
        return
    _print_summary(scored, mistrust)
    if output:
        say(f"{output}: {len(rows):,} questions")
    else:
        _print_table(ranked, top, scored, mistrust)


def _print_table(rows: pd.DataFrame, top: int, scored: ScoredAnswers, mistrust: Mistrust) -> None:
    """Print the first rows of the table, and how many there are besides."""
    from pro_lib.app.score_table import printed_table

    say(*table_lines(printed_table(rows.head(top), scored, mistrust.method)))
    if len(rows) > top:
        say(f"… and {len(rows) - top:,} more; --output scores.csv writes all")


def _print_summary(scored: ScoredAnswers, mistrust: Mistrust) -> None:
    """Print what is known about the answers, and the rule of the marks in the table."""
    from pro_lib.app import score_summary

    say(*score_summary.summary(scored, method=mistrust.method))
    if scored.texts is not None:
        say("", "The texts of all questions, without their log-probabilities:")
        say(*score_summary.summary(scored.texts, method=scored.texts.main_method))
    say("", score_summary.mistrust_line(scored, mistrust))
    if mistrust.by_field is not None:
        say("", f"By field, with {mistrust.method}:", *table_lines(mistrust.by_field))


def _compare(
    sources: Sequence[str],
    request: ScoreRequest,
    one_file_options: Mapping[str, object],
    as_json: bool,
) -> None:
    """Compare two files or runs on the questions that they share."""
    for name, value in one_file_options.items():
        if value:
            raise click.UsageError(f"{name} needs one file of RESPONSES; two are only compared")
    from pro_lib.app import score_summary
    from pro_lib.app.answer_comparison import compare_answers

    both = [request.score(source, is_fixed=True) for source in sources]
    comparison = compare_answers(*both)
    if as_json:
        content = score_summary.comparison_json(comparison)
        say(json_line({"files": list(sources), **content}))
        return
    say(*score_summary.comparison_lines(comparison, (sources[0], sources[1])))
    say(both[0].alpha.reason)
