"""The options that `pro score` and `pro report` share, and the scored answers that they ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from pro_lib.app.cli.options import (
    AUTO_ALPHA,
    answer_options,
    correctness_option,
    example_option,
    force_option,
    methods_option,
    several_options,
    take_group,
)
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

if TYPE_CHECKING:
    from pro_lib.app.answer_source import Reading
    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.scored_answers import ScoredAnswers

FILE_ORDER = "file"


@dataclass(frozen=True)
class ScoreRequest:
    """How `pro score` and `pro report` read, score and mark answers: the values of their options.

    Attributes:
        reading: how the answers are read.
        fields: whether each field of answers that are JSON objects is scored.
        alpha: α of PRO; None chooses it on judged answers.
        correctness: what makes an answer right, as `read_correctness` takes it.
        methods: the names of the methods; None for all.
        sort: the method that orders the table and marks answers, or `file`; None for the main one.
        target: the accuracy to guarantee; None to mark the most uncertain quarter.
    """

    reading: Reading
    fields: bool
    alpha: float | None
    correctness: str
    methods: Sequence[str] | None
    sort: str | None
    target: float | None

    @property
    def files(self) -> list[str | None]:
        """The files that are read beside the answers."""
        return [self.reading.questions, self.correctness]

    def score(
        self, source: str, *, is_fixed: bool = False, accepts_sample: bool = False
    ) -> ScoredAnswers:
        """Read and score the answers of a file or a run.

        Args:
            source: the file or the run folder.
            is_fixed: whether an α that is not given is 0.4, instead of being chosen.
            accepts_sample: whether the file of `pro label` may judge the answers.
        """
        from pro_lib.app.correctness import read_correctness
        from pro_lib.app.scored_answers import score_answers

        correctness = read_correctness(
            self.correctness, accepts_sample=accepts_sample, fields=self.fields
        )
        if self.fields and correctness.log_metric:
            raise SentenceError(
                "--fields compares values of fields, but log:NAME judges whole answers; give a "
                "rule, such as --correctness value_match"
            )
        run = self.reading.read(source, fields=self.fields, log_metric=correctness.log_metric)
        for name in correctness.rules.by_field:
            if name not in set(run.questions["field"]):
                names = ", ".join(run.questions["field"].unique())
                raise SentenceError(f"--correctness {name}=…: no field has this name, only {names}")
        return score_answers(
            run,
            rules=correctness.rules,
            sample=correctness.sample,
            alpha=self.alpha,
            methods=self.methods,
            is_fixed=is_fixed,
            must_judge=bool(self.reading.questions) or os.path.isfile(self.correctness),
        )

    def mistrust(self, scored: ScoredAnswers) -> Mistrust:
        """Return the answers to mistrust by the method that --sort names, or by the main one."""
        from pro_lib.app.mistrust import find_mistrust

        method = self.sort
        if method in (None, FILE_ORDER):
            method = scored.main_method
        if method not in scored.methods:
            choices = ", ".join([*scored.methods, FILE_ORDER])
            raise SentenceError(
                f"--sort {method!r} is not among the methods. Choose from {choices}."
            )
        return find_mistrust(scored, method, target=self.target)


def scoring_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that scores answers. Most values become its `request`."""

    @wraps(command)
    def command_with_request(**values: Any) -> None:
        command(request=take_group(values, ScoreRequest), **values)

    add = several_options(
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
            "which --correctness value_match compares by default; --correctness NAME=RULE is for "
            "one field.",
        ),
        correctness_option,
        methods_option,
        click.option(
            "--sort",
            help="Method whose score orders the table and marks answers, or file for its own "
            "order.",
        ),
        click.option(
            "--target",
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            help="Mark answers such that at least this share of the others is right, by a "
            "guarantee.",
        ),
        force_option,
        example_option,
    )
    return add(command_with_request)


def answer_sources(responses: Sequence[str], *, example: bool) -> list[str]:
    """Return the given files or run folders, or the bundled example for --example."""
    if example == bool(responses):
        raise click.UsageError(
            "give either RESPONSES, a file or a run folder, or --example for the bundled answers"
        )
    return list(responses) or [str(catalog.EXAMPLE)]
