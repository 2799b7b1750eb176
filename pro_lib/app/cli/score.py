"""The command `pro score`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import ANSWERS, OUTPUT_FILE, check_output_of
from pro_lib.app.cli.output import json_line, say, table_lines
from pro_lib.app.cli.scoring_options import (
    FILE_ORDER,
    answer_sources,
    requested_mistrust,
    requested_scores,
    scoring_options,
)
from pro_lib.common.files import write_whole

_ONE_FILE_OPTIONS = ("output", "answers", "sort", "target")


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
def score_command(responses: Sequence[str], as_json: bool, **options: Any) -> None:
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
    sources = answer_sources(responses, options)
    if len(sources) > 2:
        raise click.UsageError("give one file of RESPONSES, or two to compare them")
    if options["output"] is None and any(
        options[name] for name in ("raw_text", "force", "answers")
    ):
        raise click.UsageError("--raw-text, --force and --answers need --output")
    if len(sources) == 2:
        _compare(sources, options, as_json)
        return
    _score(sources[0], options, as_json)


def _score(source: str, options: dict[str, Any], as_json: bool) -> None:
    """Score one file or run."""
    from pro_lib.app import score_summary, score_table

    output = options["output"]
    if output:
        score_table.check_suffix(output)
        check_output_of(source, output, options, is_ours=score_table.is_score_table)
    scored = requested_scores(source, options, accepts_sample=True)
    mistrust = requested_mistrust(scored, options)
    method = mistrust.method
    rows = score_table.question_table(scored, mistrust)
    printed = rows if options["sort"] == FILE_ORDER else rows.iloc[scored.ranking(method)]
    if options["sort"]:
        rows = printed
    if output:
        written = score_table.answer_table(scored) if options["answers"] else rows
        data = score_table.file_bytes(written, output, raw_text=options["raw_text"])
        write_whole(data, output)
    if as_json:
        content = score_summary.summary_json(scored, mistrust)
        content["answers"] = score_table.json_rows(rows)
        say(json_line(content))
        return
    say(*score_summary.summary(scored, method=method))
    if scored.texts is not None:
        say("", "The texts of all questions, without their log-probabilities:")
        say(*score_summary.summary(scored.texts, method=scored.texts.main_method))
    say("", score_summary.mistrust_line(scored, mistrust))
    if mistrust.by_field is not None:
        say("", f"By field, with {method}:", *table_lines(mistrust.by_field))
    if output:
        say(f"{output}: {len(rows):,} questions")
        return
    table = score_table.printed_table(printed.head(options["top"]), scored, method)
    say(*table_lines(table))
    n_more = len(rows) - len(table)
    if n_more > 0:
        say(f"… and {n_more:,} more; --output scores.csv writes all")


def _compare(sources: Sequence[str], options: dict[str, Any], as_json: bool) -> None:
    """Compare two files or runs on the questions that they share."""
    refused = [f"--{name}" for name in _ONE_FILE_OPTIONS if options[name]]
    if refused:
        raise click.UsageError(f"{refused[0]} needs one file of RESPONSES; two are only compared")
    from pro_lib.app import score_summary
    from pro_lib.app.answer_comparison import compare_answers

    both = [requested_scores(source, options, is_fixed=True) for source in sources]
    comparison = compare_answers(*both)
    if as_json:
        content = score_summary.comparison_json(comparison)
        say(json_line({"files": list(sources), **content}))
        return
    say(*score_summary.comparison_lines(comparison, (sources[0], sources[1])))
    say(both[0].alpha.reason)
