"""The command `pro generate`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import columns_option, strict_option
from pro_lib.app.cli.output import say

if TYPE_CHECKING:
    from pro_lib.runs.run import Run

# With fewer questions in a split, an AUROC has an interval of more than ±0.1.
_FEW_QUESTIONS = 100


@pro.command("generate")
@click.argument("model")
@click.argument("strategies", nargs=-1, required=True)
@click.option(
    "--dataset",
    multiple=True,
    default=["world-facts", "world-facts-reworded"],
    show_default=True,
    help="Dataset or question file. May be repeated.",
)
@columns_option
@strict_option
@click.option(
    "--search-alpha",
    type=float,
    default=0.02,
    show_default=True,
    help="Find every answer whose probability is at least this (strategy threshold).",
)
@click.option("--limit", type=int, help="At most this many questions of each split.")
def generate_command(strategies: Sequence[str], dataset: Sequence[str], **parameters: Any) -> None:
    """Generate answers of MODEL with each of the STRATEGIES, for notebooks and pro score.

    Strategies are greedy, multinomial, diverse_beam and threshold. The model answers the
    validation and the test questions. The command prints the folder of each run, and the next
    command.
    """
    from pro_lib.app.experiment import Experiment
    from pro_lib.generation.decoding.strategies import STRATEGIES
    from pro_lib.runs import storage

    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise click.BadParameter(
                f"{strategy!r} is an unknown strategy; choose {', '.join(STRATEGIES)}.",
                param_hint="'STRATEGIES'",
            )
    if parameters["search_alpha"] != 0.02 and "threshold" not in strategies:
        raise click.UsageError("--search-alpha is for the strategy threshold; add this strategy")
    experiment = Experiment(dataset=list(dataset), strategy=strategies[0], **parameters)
    described = set()
    for strategy, pair in product(strategies, experiment.pairs()):
        # Notebooks 00 and 01 ask test questions only. They come first here, because answers are
        # generated in the order of questions.
        if strategy == "diverse_beam" and not experiment.limit:
            experiment.run(*pair, strategy=strategy)
        run = experiment.run_of_both_splits(*pair, strategy)
        if run.info.dataset not in described:
            described.add(run.info.dataset)
            say(*_split_lines(run, experiment.split))
        say(run)
        folder = run.folder
        assert folder is not None  # the experiment stores its runs
        questions = experiment.questions(pair[1], *experiment.both_split_names)
        with storage.RunFolder(folder, run.info) as stored:
            stored.store_questions(questions.table, questions.source)
        name = shlex.quote(str(Path(*folder.parts[-3:])))
        say(f"  folder: {folder}", f"  next: pro score {name}, or pro explore {name}")


def _split_lines(run: Run, reported_split: str) -> list[str]:
    """Return how many questions of a dataset are shots, validation and test questions."""
    counts = run.questions["split"].value_counts(sort=False)
    parts = {"shots": len(run.info.parameters.get("shots") or ()), **counts}
    words = ", ".join(f"{count:,} {name}" for name, count in parts.items())
    n_questions = sum(map(int, parts.values()))
    lines = [f"{run.info.dataset}: {n_questions:,} questions: {words}"]
    if counts.get(reported_split, 0) < _FEW_QUESTIONS:
        lines.append(
            f"Fewer than {_FEW_QUESTIONS} {reported_split} questions are too few to compare "
            "methods: intervals of AUROC will be wide."
        )
    return lines
