"""The command `pro ask`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pro_lib.app.cli.base import pro
from pro_lib.app.cli.options import (
    ANSWERS,
    INPUT_FILE,
    all_option,
    alpha_option,
    check_columns,
    columns_option,
    strict_option,
)
from pro_lib.app.cli.output import json_line, say
from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError

if TYPE_CHECKING:
    from pro_lib.app.single_question import Answer
    from pro_lib.generation.models import Model
    from pro_lib.questions.question_sets import QuestionSet

# The guarantee of an exact search, by its status.
SEARCH_SENTENCES = {
    "certified": "All answers with p ≥ {:g} were found. This does not say whether they are right.",
    "fallback": "No answer has p ≥ {:g}; PRO is the NLL of the greedy answer.",
    "cut": "No answer has p ≥ {:g}, and the greedy one did not end: raise --max-new-tokens.",
    "undecided": "Answers with p ≥ {:g} may be missing: "
    "the search reached its limit of length or cost.",
}


@pro.command("ask")
@click.argument("question")
@click.option(
    "--model",
    help="A bundled model, a model of the paper, a hub id or a folder; by default the best "
    "downloaded model.",
)
@alpha_option
@click.option(
    "--search-alpha",
    type=float,
    default=0.02,
    show_default=True,
    help="Find every answer whose probability is at least this.",
)
@click.option(
    "--calibration",
    type=ANSWERS,
    help="A run of the same model with judged answers, for the probability of being right.",
)
@all_option
@click.option("--n-shots", type=int, help="Examples (shots) in the prompt; 10 by default.")
@click.option(
    "--questions",
    type=INPUT_FILE,
    help="Question file from which the shots are taken; world-facts by default.",
)
@columns_option
@strict_option
@click.option("--header", default="", help="Text before the shots.")
@click.option("--template", help="Text of a question in the prompt; {question} is replaced.")
@click.option(
    "--chat/--no-chat",
    default=None,
    help="Use the model's chat template; by default only without shots.",
)
@click.option(
    "--max-new-tokens",
    type=int,
    help="The most tokens of an answer; 32 by default, or 64 in a chat.",
)
@click.option(
    "--strategy",
    default="threshold",
    show_default=True,
    help="threshold (exact search), greedy, diverse_beam or multinomial.",
)
@click.option(
    "--dtype", default="auto", help="float32, bfloat16 or float16; auto is float32 on a CPU."
)
@click.option("--device", default="auto", help="cpu, cuda, cuda:1 or mps.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask_command(  # noqa: PLR0913 - one argument per option
    question: str,
    model: str | None,
    alpha: float,
    search_alpha: float,
    calibration: str | None,
    all_questions: bool,
    dtype: str,
    device: str,
    as_json: bool,
    chat: bool | None,
    max_new_tokens: int | None,
    strategy: str,
    **prompt_options: Any,
) -> None:
    """Ask a model one question: its answer, and how uncertain it is."""
    from pro_lib.app import single_question
    from pro_lib.app.answer_source import Reading

    if all_questions and calibration is None:
        raise click.UsageError("--all is about the run of --calibration; give one")
    calibration_run = None
    if calibration:
        calibration_run = Reading(all_questions=all_questions).read(calibration)
        model = model or calibration_run.info.model
    model = model or _default_model()
    catalog.check_model(model)  # before torch is loaded, which takes seconds
    from pro_lib.generation import models

    prompt = _read_prompt(**prompt_options)
    loaded = models.cached_model(model, dtype=dtype, device=device)
    say(f"{_describe_model(loaded)} {catalog.scope(model)}".strip(), err=True)
    settings: dict[str, Any] = {
        "strategy": strategy,
        "chat": chat,
        "max_new_tokens": max_new_tokens,
        "n_shots": prompt_options["n_shots"],
    }
    if strategy == "threshold":
        settings["search_alpha"] = search_alpha
    answer = single_question.ask(
        loaded, question, alpha=alpha, calibration=calibration_run, questions=prompt, **settings
    )
    if as_json:
        say(json_line(asdict(answer)))
        return
    say(*_answer_lines(answer, alpha))
    if answer.status:
        say(SEARCH_SENTENCES[answer.status].format(search_alpha))


def _default_model() -> str:
    """Return the best downloaded model. If there is none, offer to download one.

    Raises:
        SentenceError: if there is no model, and nobody at the terminal wants one.
    """
    best = catalog.best_download()
    if best:
        return best
    name = catalog.FIRST_DOWNLOAD
    size = f"{catalog.DOWNLOADS[name].n_bytes / 1e6:.0f} MB"
    offer = f"No real model is installed. Download {name} ({size})?"
    if not (_is_terminal() and click.confirm(offer, err=True)):
        raise SentenceError(
            f"no real model is installed; run `pro download {name}` ({size}), or name another one, "
            "such as --model facts-2m, a small bundled model that knows 36 relations"
        )
    from pro_lib.common import downloads

    downloads.download(name)
    return name


def _is_terminal() -> bool:
    """Return whether somebody can answer a question."""
    return sys.stdin.isatty()


def _read_prompt(
    *,
    questions: str | None,
    columns: dict[str, list[str]] | None,
    strict: bool,
    n_shots: int | None,
    header: str,
    template: str | None,
) -> QuestionSet | None:
    """Return a question set with the prompt, or None for the usual one."""
    from pro_lib.questions import question_sets

    check_columns(columns, questions)
    if not (questions or header or template):
        return None
    source: dict[str, Any] = {"name": "world-facts"}
    if questions:
        source = {"path": questions, "split": None, "columns": columns, "strict": strict}
    return question_sets.load_questions(
        **source,
        limit=1,
        n_shots=n_shots,
        header=header,
        template=template or question_sets.TEMPLATE,
    )


def _describe_model(model: Model) -> str:
    """Return the name, size and place of a loaded model as a sentence."""
    millions = model.network.num_parameters() / 1e6
    gigabytes = model.network.get_memory_footprint() / 1e9
    return (
        f"{model.name}: {millions:,.0f} million parameters, {gigabytes:.2f} GB, {model.dtype} "
        f"on {model.device}."
    )


def _answer_lines(answer: Answer, alpha: float) -> list[str]:
    """Return the answer, its uncertainty, and the answers that PRO keeps."""
    kept = f"the {answer.kept} answers with p ≥ {alpha:g}"
    if answer.answers[0][1] < alpha:
        kept = f"the most probable answer, because none has p ≥ {alpha:g}"
    elif answer.kept == 1:
        kept = f"the only answer with p ≥ {alpha:g}"
    lines = [
        answer.text or "(nothing)",
        answer.sentence(),
        "",
        f"PRO {answer.uncertainty:z.3f} nats, from {kept}:",
    ]
    for text, probability in answer.answers[: answer.kept]:
        lines.append(f"  {probability:.4f}  {text or '(nothing)'}")
    n_others = len(answer.answers) - answer.kept
    if n_others > 0:
        lines.append(f"  and {n_others} with less")
    return lines
