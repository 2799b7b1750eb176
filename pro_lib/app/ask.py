"""A question asked of a model: its answer and uncertainty, or none where no guarantee covers it; knows no widget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pro_lib import scoring
from pro_lib.common.files import RunError
from pro_lib.common.validation import not_empty
from pro_lib.evaluation import guarantees
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.evaluation.guarantees import Guarantee
from pro_lib.generation import decoding
from pro_lib.generation.decoding.strategies import own_settings
from pro_lib.metrics.correctness import Choices
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs import storage
from pro_lib.runs.run import Run, read_run

if TYPE_CHECKING:
    from pro_lib.generation.models import Model

# Settings that may differ between two runs whose PRO values are compared; all others must match.
# `model` is a name, and `fingerprint` compares the weights. `search_alpha` says how far down a search
# looked, and PRO reads only the answers above α. `seed` decides which samples are drawn.
_MAY_DIFFER = ("model", "search_alpha", "seed")


class NoAnswerError(ValueError):
    """No answer ended within the tokens that there are."""


@dataclass(frozen=True)
class Answer:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first, each with the probability of its complete text,
    ending included; PRO read the first `kept`. `status` (see `runs.certificate`) and `entropy_bounds` (nats, of H(Y):
    tree bound and loose upper bound) come from an exact search, else they are None. `probability_right` is an estimate
    for `text`, as `calibrated` tells.
    """

    question: str
    text: str
    uncertainty: float
    answers: tuple[tuple[str, float], ...]
    kept: int
    status: str | None = None
    entropy_bounds: tuple[float, float] | None = None
    probability_right: float | None = None
    calibrated: str = ""

    def __repr__(self) -> str:
        # A bare "certified" would read as "right"
        search = f", search: {self.status}" if self.status else ""
        kept = f"{self.kept} of {len(self.answers)} answers kept"
        return f"Answer({self.text!r}: PRO = {self.uncertainty:z.2f} nats, {kept}{search})"

    def sentence(self) -> str:
        """Say how probable the best answer is to the model: high from 0.7, low below 0.3; then what is calibrated."""
        p, n = self.answers[0][1], len(self.answers)
        level = "High" if p >= 0.7 else "Middling" if p >= 0.3 else "Low"
        sentence = f"{level} confidence: the best of {n} answer{'s' * (n > 1)} has {p:.0%}."
        if not self.text:
            other = next(
                (f"{text} ({p:.0%})" for text, p in self.answers if text), "none was found"
            )
            sentence += f" It is to say nothing; the best that says something: {other}."
        if self.probability_right is not None:
            sentence += (
                f" It is right with probability {self.probability_right:.2f} ({self.calibrated})."
            )
        return sentence


def ask(
    model: str | Path | Model,
    question: str,
    *,
    alpha: float = 0.4,
    questions: QuestionSet | None = None,
    n_shots: int | None = None,
    strategy: str = "threshold",
    calibration: Run | str | Path | None = None,
    **settings: Any,
) -> Answer:
    """Ask a question; return the answer with its uncertainty: PRO of the answers with `p >= alpha`.

    Args:
        model: a loaded one, or its name, as in `pro_lib.load_model`; by name the last one loaded is held.
        questions: a question set whose header, template and shots are used; None takes `n_shots` (10) of world-facts.
        strategy: how answers are looked for; by default all with p ≥ search_alpha.
        calibration: a run of the model on questions with known answers, or its folder: the question is asked as those
            were, and the answer says how probably it is right.
        settings: as in `generate`: search_alpha, budget, n_answers, max_new_tokens, chat, …

    Raises `ValueError` for an empty question, an alpha outside [0, 1] or below search_alpha, no answer that ended, and
    a calibration by another model, strategy or way of asking.
    """
    if not isinstance(question, str):
        raise ValueError(f"question={question!r:.60} is no text; generate.generate takes several")
    if np.ndim(alpha):
        raise ValueError(f"alpha={alpha!r:.60} is more than one number")
    search_alpha = getattr(
        decoding.strategy(strategy, **own_settings(strategy, settings)), "search_alpha", None
    )
    # what cannot be is refused before it is asked
    scoring.pro(np.zeros((1, 1)), alpha=alpha, search_alpha=search_alpha)
    not_empty(calibration, "calibration")
    calibration = read_run(calibration) if isinstance(calibration, str | Path) else calibration
    run_parameters: Mapping[str, Any] = calibration.info.parameters if calibration else {}
    fit, about = None, ""
    if questions is None and (n_shots is not None or not run_parameters):
        questions = question_sets.load_questions("world-facts", limit=1, n_shots=n_shots)
    run = answer_question(
        model,
        question,
        questions=questions,
        run_parameters=run_parameters,
        strategy=strategy,
        **settings,
    )
    if calibration:
        check_calibration(calibration, {**dict.fromkeys(run_parameters), **run.info.parameters})
        fit, about = guarantees.right_probability(calibration, alpha=alpha)
    table = run.ranked_answers()
    if table.empty:
        cut = run.info.parameters["max_new_tokens"]
        raise NoAnswerError(
            f"no answer of {run.info.model} ended within {cut} tokens: {question!r}"
        )
    [row] = run.questions.join(run.scores(alpha=alpha)[["text", "pro", "n_kept"]]).to_dict(
        "records"
    )
    answers = tuple(zip(table["text"], np.exp(table["value"]), strict=True))
    status = row.get("status")
    bounds = (row["tree_bound"], row["upper_bound"]) if status else None
    right = float(fit([row["pro"]])[0]) if fit else None
    return Answer(
        row["question"],
        row["text"],
        row["pro"],
        answers,
        row["n_kept"],
        status,
        bounds,
        right,
        about,
    )


def check_calibration(calibration: Run, now: Mapping[str, Any]) -> None:
    """Check that a calibration run was made with the parameters `now`, except those that may differ.

    Raises:
        RunError: the run was made with another model or another way of asking.
    """
    before = calibration.info.parameters
    if "strategy" not in before:
        raise RunError(f"calibration: run {calibration.name} does not say how a model was asked")
    compared = {name: value for name, value in now.items() if name not in _MAY_DIFFER}
    difference = storage.difference(before, {**before, **compared})
    if difference:
        raise RunError(f"calibration: run {calibration.name} was made with {difference}")


def answer_question(
    model: str | Path | Model,
    question: str,
    *,
    run_parameters: Mapping[str, Any],
    questions: QuestionSet | None = None,
    **settings: Any,
) -> Run:
    """Answer a question with the prompt of `questions`, or that of a run with `run_parameters`; return the run."""
    from pro_lib.generation.generate import generate

    prompt_set = (
        question_sets.empty_question_set(run_parameters) if questions is None else questions
    )
    settings = {
        name: run_parameters[name]
        for name in ("chat", "max_new_tokens", "stop")
        if name in run_parameters
    } | settings
    return generate(model, prompt_set.with_questions(question), **{"progress": False} | settings)


@dataclass(frozen=True)
class Reply:
    """What a user gets: `answer` is None unless `answered`, which is where PRO is below the guarantee's threshold.

    `uncertainty` is PRO in nats, higher = more uncertain, None where no answer ended. `guarantee` is of all questions
    of the calibration's kind that are answered, never of this one. `status` is what an exact search is sure of.
    """

    answer: str | None
    uncertainty: float | None
    answered: bool
    guarantee: str
    status: str | None


@dataclass(frozen=True)
class Answerer:
    """What `answerer` returns: called with a question, it asks the model as the calibration run did."""

    guarantee: Guarantee
    ask: Callable[[str], Answer]

    def __call__(self, question: str) -> Reply:
        """Return the reply; `ValueError` for a question that is empty, or too long for the model."""
        sentence = self.guarantee.sentence()
        try:
            answer = self.ask(question)
        except NoAnswerError:
            return Reply(None, None, False, sentence, "cut")
        is_sure = bool(self.guarantee.answers(answer.uncertainty))
        return Reply(
            answer.text if is_sure else None, answer.uncertainty, is_sure, sentence, answer.status
        )


def answerer(
    model: str | Path | Model,
    *,
    calibration: Run | str | Path,
    target: float = 0.8,
    confidence: float = 0.95,
    alpha: float = 0.4,
    choices: Choices | None = None,
) -> Answerer:
    """Return what answers where at least `target` of such answers are right, with `confidence`, and abstains elsewhere.

    Args:
        model: a loaded one, or its name, as in `pro_lib.load_model`.
        calibration: a run, or its folder, of the model on questions with known answers, of the kind that will be asked.
            Its validation questions show the guarantee, one question of each text, and the scores of its others are
            the thresholds; without a validation split, all do.
        alpha: of PRO, fixed beforehand.
        choices: what counts as right, as in `evaluate`.

    Questions are asked as those of the calibration were. Raises `RunError` where it is of another model, or knows no
    right answers.
    """
    from pro_lib.generation import models

    not_empty(calibration, "calibration")
    calibration = read_run(calibration) if isinstance(calibration, str | Path) else calibration
    model, parameters = models.cached_model(model), calibration.info.parameters
    check_calibration(calibration, {"quantization": None, "server": None} | model.parameters())
    splits = [name for name in calibration.questions["split"].unique() if name != "validation"]
    is_split = 0 < len(splits) < calibration.questions["split"].nunique()
    known = evaluate(calibration, split="validation" if is_split else None, choices=choices)
    scores = [
        evaluate(calibration, split=name, choices=choices).pro(alpha) for name in splits if is_split
    ]
    others = np.concatenate(scores) if scores else None
    made = guarantees.guarantee(
        known.pro(alpha),
        known.correct,
        target=target,
        confidence=confidence,
        unlabelled=others,
        texts=known.answers.get("text_number"),
    )
    own = {"strategy": parameters["strategy"], "chat": parameters.get("chat", False)}
    own |= own_settings(own["strategy"], parameters) | {
        "questions": question_sets.empty_question_set(parameters)
    }
    return Answerer(made, partial(ask, model, alpha=alpha, **own))
