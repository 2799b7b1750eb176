"""The command `pro generate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import click

from pro_lib.app.cli.base import Command
from pro_lib.app.cli.options import columns_option, question_file_parameters, strict_option
from pro_lib.app.cli.output import say
from pro_lib.common.validation import printable


@click.command("generate", cls=Command)
@click.argument("model")
@click.argument("strategies", nargs=-1, required=True)
@click.option(
    "--dataset",
    multiple=True,
    default=["world-facts", "world-facts-reworded"],
    help="One or several.",
)
@columns_option
@strict_option
@click.option(
    "--search-alpha", type=float, default=0.02, show_default=True, help="Of strategy threshold."
)
@click.option("--limit", type=int, help="At most this many questions of each split.")
def generate_command(
    strategies: Sequence[str],
    dataset: Sequence[str],
    columns: Sequence[str],
    strict: bool,
    **parameters: Any,
) -> None:
    """Generate the answers of MODEL that notebooks read, by each of the STRATEGIES.

    Strategies are greedy, multinomial, diverse_beam and threshold. The validation and the test
    questions are asked.
    """
    from pro_lib.app.experiment import Experiment

    parameters |= question_file_parameters(
        columns, strict, option="--dataset", has_questions=any(map(os.path.isfile, dataset))
    )
    experiment = Experiment(
        dataset=list(dataset),
        strategy=strategies[0],
        other_strategies=strategies[1:],
        **parameters,
    )
    for strategy, pair in product(strategies, experiment.pairs()):
        # Notebooks 00 and 01 ask test questions only. They come first here, because answers are
        # generated in the order of questions.
        if strategy == "diverse_beam" and not experiment.limit:
            experiment.run(*pair, strategy=strategy)
        say(printable(experiment.both_splits(*pair, strategy)))
