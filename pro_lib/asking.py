"""Questions asked of a model: answers with their uncertainty; knows generation and scores, no widget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pro_lib import engine, promises, scores, store
from pro_lib import questions as question_sets
from pro_lib.engine.strategies import own_settings
from pro_lib.files import RunError
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run

if TYPE_CHECKING:
    from pro_lib.models import Model

# What must be the same of a run for its PRO to say anything of another's; how far down a search looked need not be.
_MATTERS: tuple[str, ...] = ("chat", "diversity_penalty", "dtype", "fingerprint", "header", "max_new_tokens")
_MATTERS += ("n_answers", "quantization", "shots", "stop", "strategy", "temperature", "template", "top_p")


class NoAnswerError(ValueError):
    """No answer ended within the tokens that there are."""


@dataclass(frozen=True)
class Answer:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first, each with the probability of its complete text,
    ending included; PRO read the first `kept`. `status` (see `engine.certificate`) and `entropy_bounds` (nats, of H(Y):
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
        search = f", search: {self.status}" if self.status else ""  # a bare "certified" would read as "right"
        kept = f"{self.kept} of {len(self.answers)} answers kept"
        return f"Answer({self.text!r}: PRO = {self.uncertainty:.2f} nats, {kept}{search})"

    def sentence(self) -> str:
        """Say how probable the best answer is to the model: high from 0.7, low below 0.3; then what is calibrated."""
        p, n = self.answers[0][1], len(self.answers)
        level = "High" if p >= 0.7 else "Middling" if p >= 0.3 else "Low"
        sentence = f"{level} confidence: the best of {n} answer{'s' * (n > 1)} has {p:.0%}."
        if not self.text:
            other = next((f"{text} ({p:.0%})" for text, p in self.answers if text), "none was found")
            sentence += f" It is to say nothing; the best that says something: {other}."
        if self.probability_right is not None:
            sentence += f" It is right with probability {self.probability_right:.2f} ({self.calibrated})."
        return sentence


def ask(
    model: str | Path | Model, question: str, *, alpha: float = 0.4, questions: QuestionSet | None = None,
    n_shots: int | None = None, strategy: str = "threshold", calibration: Run | None = None, **settings: Any,
) -> Answer:  # fmt: skip
    """Ask a question; return the answer with its uncertainty: PRO of the answers with `p >= alpha`.

    Args:
        model: a loaded one, or its name, as in `models.load`; by name the last one loaded is held.
        questions: a question set whose header, template and shots are used; None takes `n_shots` (10) of world-facts.
        strategy: how answers are looked for; by default all with p ≥ search_alpha.
        calibration: a run of the model on questions with known answers, asked as they were: the answer says how
            probably it is right.
        settings: as in `generate`: search_alpha, budget, n_answers, max_new_tokens, chat, …

    Raises `ValueError` for an empty question, an alpha outside [0, 1] or below search_alpha, no answer that ended, and
    a calibration by another model, strategy or way of asking.
    """
    if not isinstance(question, str):
        raise ValueError(f"question={question!r:.60} is no text; generate.generate takes several")
    if np.ndim(alpha):
        raise ValueError(f"alpha={alpha!r:.60} is more than one number")
    search_alpha = getattr(engine.strategy(strategy, **own_settings(strategy, settings)), "search_alpha", None)
    scores.pro(np.zeros((1, 1)), alpha=alpha, search_alpha=search_alpha)  # what cannot be is refused before it is asked
    like, fit, about = calibration.info.parameters if calibration else None, None, ""
    if questions is None and not like:
        questions = question_sets.load("world-facts", limit=1, n_shots=n_shots)
    run = answered(model, question, questions=questions, like=like, strategy=strategy, **settings)
    if calibration:
        check_calibration(calibration, {**dict.fromkeys(_MATTERS), **run.info.parameters})
        fit, about = promises.right_probability(calibration, alpha=alpha)
    table = run.ranked()
    if table.empty:
        cut = run.info.parameters["max_new_tokens"]
        raise NoAnswerError(f"no answer of {run.info.model} ended within {cut} tokens: {question!r}")
    [row] = run.questions.join(run.scores(alpha=alpha)[["text", "pro", "n_kept"]]).to_dict("records")
    return Answer(
        question=row["question"],
        text=row["text"],
        uncertainty=row["pro"],
        answers=tuple(zip(table["text"], np.exp(table["value"]), strict=True)),
        kept=row["n_kept"],
        status=row.get("status"),
        entropy_bounds=(row["tree_bound"], row["upper_bound"]) if "status" in row else None,
        probability_right=fit and float(fit([row["pro"]])[0]),
        calibrated=about,
    )


def check_calibration(calibration: Run, now: Mapping[str, Any]) -> None:
    """Refuse, with a `RunError`, a run of which `now` is not so in what matters: another model or way of asking."""
    before = {**calibration.info.parameters, "set": calibration.info.dataset}
    if "strategy" not in before:
        raise RunError(f"calibration: run {calibration.name} does not say how a model was asked")
    matters = {name: value for name, value in now.items() if name in (*_MATTERS, "set")}
    if difference := store.difference(before, matters, only_known=True):
        raise RunError(f"calibration: run {calibration.name} was made with {difference}")


def answered(
    model: str | Path | Model, question: str, *, questions: QuestionSet | None = None,
    like: Mapping[str, Any] | None = None, **settings: Any,
) -> Run:  # fmt: skip
    """Return the run of a question, asked as `questions` or a run of parameters `like` were."""
    from pro_lib.generate import generate

    if like:
        questions = question_sets.like(like) if questions is None else questions
        settings = {name: like[name] for name in ("chat", "max_new_tokens", "stop") if name in like} | settings
    # One without questions of its own, which is falsy, still says how to ask.
    question_set = question_sets.asked(question) if questions is None else questions.with_questions(question)
    return generate(model, question_set, **{"progress": False} | settings)
