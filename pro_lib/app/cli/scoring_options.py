"""The options that `pro score` and `pro report` share, and the scored answers that they ask for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pro_lib.app.cli.options import (
    AUTO_ALPHA,
    answer_options,
    correctness_option,
    example_option,
    force_option,
    methods_option,
    requested_answers,
    several_options,
)
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

if TYPE_CHECKING:
    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.scored_answers import ScoredAnswers

FILE_ORDER = "file"
scoring_options = several_options(
    click.option(
        "--alpha",
        type=AUTO_ALPHA,
        default="auto",
        show_default=True,
        help="α of PRO, which keeps the answers with a probability p ≥ α: a number, or auto to "
        "choose it on judged answers.",
    ),
    answer_options,
    click.option(
        "--fields",
        is_flag=True,
        help="Score each field of answers that are JSON objects. The right answers are values, "
        "which --correctness value_match compares by default; --correctness NAME=RULE is for one "
        "field.",
    ),
    correctness_option,
    methods_option,
    click.option(
        "--sort",
        help="Method whose score orders the table and marks answers, or file for its own order.",
    ),
    click.option(
        "--target",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        help="Mark answers such that at least this share of the others is right, by a guarantee.",
    ),
    force_option,
    example_option,
)


def requested_scores(
    source: str,
    options: dict[str, Any],
    *,
    is_fixed: bool = False,
    accepts_sample: bool = False,
) -> ScoredAnswers:
    """Read and score the answers of a file or a run.

    Args:
        source: the file or the run folder.
        options: the values of `scoring_options`.
        is_fixed: whether α is 0.4 if `options` leave it open, instead of being chosen on the judged
            answers.
        accepts_sample: whether the file of `pro label` may judge the answers.
    """
    from pro_lib.app.correctness import read_correctness
    from pro_lib.app.scored_answers import score_answers

    fields = options["fields"]
    correctness = read_correctness(
        options["correctness"], accepts_sample=accepts_sample, fields=fields
    )
    run = requested_answers(source, options, fields=fields, log_metric=correctness.log_metric)
    for name in correctness.rules.by_field:
        if name not in set(run.questions["field"]):
            names = ", ".join(run.questions["field"].unique())
            raise SentenceError(f"--correctness {name}=…: no field has this name, only {names}")
    return score_answers(
        run,
        rules=correctness.rules,
        sample=correctness.sample,
        alpha=None if options["alpha"] == "auto" else options["alpha"],
        methods=options["methods"],
        is_fixed=is_fixed,
        must_judge=bool(options["questions"]) or os.path.isfile(options["correctness"]),
    )


def answer_sources(responses: Sequence[str], options: dict[str, Any]) -> list[str]:
    """Return the given files or run folders, or the bundled example for --example."""
    if options["example"] == bool(responses):
        raise click.UsageError(
            "give either RESPONSES, a file or a run folder, or --example for the bundled answers"
        )
    return list(responses) or [str(catalog.EXAMPLE)]


def requested_mistrust(scored: ScoredAnswers, options: dict[str, Any]) -> Mistrust:
    """Return the answers to mistrust by the method that --sort names, or by the main one."""
    from pro_lib.app.mistrust import find_mistrust

    method = options["sort"]
    if method in (None, FILE_ORDER):
        method = scored.main_method
    if method not in scored.methods:
        choices = ", ".join([*scored.methods, FILE_ORDER])
        raise SentenceError(f"--sort {method!r} is not among the methods. Choose from {choices}.")
    return find_mistrust(scored, method, target=options["target"])
