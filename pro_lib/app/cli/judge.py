"""The command `pro judge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import (
    ANSWERS,
    OUTPUT_FILE,
    answer_options,
    force_option,
)
from pro_lib.app.cli.output import say
from pro_lib.common import catalog
from pro_lib.common.files import check_output, write_whole

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.app.answer_source import Reading
    from pro_lib.metrics.yes_no import ChoiceModel

_CHARACTERS_PER_TOKEN = 4  # a usual mean, for the estimate of the cost
_CLOSE = (0.4, 0.6)  # probabilities of a verdict that could easily be the opposite
# Why answers have no verdict, by their status
_WITHOUT_VERDICT = {
    "refused": "because both letters have less than half of the probability",
    "unknown": "because the reply had no probabilities",
}


@pro.command("judge")
@click.argument("answers", type=ANSWERS)
@click.option("--model", required=True, help="The judge: a local model, or its name on --server.")
@click.option("--server", help="Address of an OpenAI-compatible server, such as http://host/v1.")
@click.option(
    "--endpoint",
    type=click.Choice(["chat", "completions"]),
    default="chat",
    show_default=True,
    help="The server's API: chat completions, or completions of texts.",
)
@click.option(
    "--api-key-env",
    default="OPENAI_API_KEY",
    show_default=True,
    help="Environment variable with the server's key.",
)
@click.option(
    "--concurrency", type=int, default=4, show_default=True, help="Requests at the same time."
)
@click.option(
    "--every-answer",
    is_flag=True,
    help="Judge all answers, not only the most probable one to each question.",
)
@click.option(
    "--output",
    type=OUTPUT_FILE,
    required=True,
    help="CSV file of the verdicts. The model's replies are kept in OUTPUT.replies.jsonl.",
)
@answer_options
@force_option
@click.option("--yes", is_flag=True, help="Send requests to a server without asking first.")
def judge_command(  # noqa: PLR0913 - one argument per option
    answers: str,
    reading: Reading,
    model: str,
    server: str | None,
    endpoint: str,
    api_key_env: str,
    concurrency: int,
    every_answer: bool,
    output: Path,
    force: bool,
    yes: bool,
) -> None:
    """Ask a model whether answers are right, given the references.

    ANSWERS is a run folder, the name of a run that pro generate printed, or a file of responses.
    The output is a file of labels for --correctness of `pro score`, and for the parameter
    `correctness` of notebooks. An answer is labelled right if the judge's probability that it is
    right is 0.5 or more. An answer without a verdict has no label. Repeat an interrupted command
    to continue.
    """
    if server is None:
        catalog.check_model(model)  # before torch is loaded, which takes seconds
    from pro_lib.app import judge_verdicts
    from pro_lib.common.files import csv_text

    check_output(
        output,
        option="--output",
        inputs=[answers, reading.questions],
        force=force,
        is_ours=judge_verdicts.is_verdict_table,
    )
    run = reading.read(answers)
    table = judge_verdicts.answers_to_judge(run, every_answer=every_answer)

    def confirm(prompts: list[str]) -> None:
        say(f"{len(table):,} answers, of which {len(prompts):,} have no stored verdict", err=True)
        if server and prompts and not yes:
            n_tokens = sum(map(len, prompts)) // _CHARACTERS_PER_TOKEN
            cost = f"{len(prompts):,} requests with about {n_tokens:,} tokens in all"
            click.confirm(f"Send {cost} to {server}?", abort=True, err=True)

    if server is None:
        from pro_lib.generation.models import cached_model

        judge: ChoiceModel = cached_model(model)
    else:
        from pro_lib.generation.choice_server import ChoiceServer

        judge = ChoiceServer(
            server,
            model,
            endpoint=endpoint,  # type: ignore[arg-type]  # click checks the choice
            api_key_env=api_key_env,
            concurrency=concurrency,
        )
    cache = output.with_name(f"{output.name}.replies.jsonl")
    table = judge_verdicts.verdict_table(table, model=judge, cache=cache, confirm=confirm)
    write_whole(csv_text(table).encode(), output)
    say(_summary(table, output))


def _summary(table: pd.DataFrame, output: Path) -> str:
    """Return a sentence about the verdicts."""
    counts = table["status"].value_counts()
    n_right = int(table["correct"].fillna(False).sum())
    n_close = int(table["p_right"].between(*_CLOSE).sum())
    low, high = _CLOSE
    text = (
        f"{output}: {counts.get('judged', 0):,} verdicts, {n_right:,} of them right, "
        f"{n_close:,} of them close (probability between {low} and {high})"
    )
    for status, reason in _WITHOUT_VERDICT.items():
        if status in counts:
            text += f"; {counts[status]:,} answers without one, {reason}"
    return text
