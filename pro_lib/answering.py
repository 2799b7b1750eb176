"""Answer or abstain: a question in, an answer out where the promise of a calibration run covers it; knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pro_lib import asking, store
from pro_lib import questions as question_sets
from pro_lib.correctness import Choices
from pro_lib.engine.strategies import STRATEGIES, own_settings
from pro_lib.evaluation import evaluate
from pro_lib.files import RunError
from pro_lib.promises import Promise, promise
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run

if TYPE_CHECKING:
    from pro_lib.models import Model


@dataclass(frozen=True)
class Reply:
    """What a user gets: `answer` is None unless `answered`, which is where PRO is below the promise's threshold.

    `uncertainty` is PRO in nats, higher = more uncertain, None where no answer ended. `promise` is of all questions
    of the calibration's kind that are answered, never of this one. `status` is what an exact search is sure of.
    """

    answer: str | None
    uncertainty: float | None
    answered: bool
    promise: str
    status: str | None


@dataclass(frozen=True)
class Answerer:
    """What `answerer` returns: called with a question, it asks the model as the calibration run did."""

    model: Model
    promise: Promise
    alpha: float
    questions: QuestionSet
    settings: Mapping[str, Any]

    def __call__(self, question: str) -> Reply:
        """Return the reply; `ValueError` for a question that is empty, or too long for the model."""
        sentence = self.promise.sentence()
        try:
            answer = asking.ask(self.model, question, alpha=self.alpha, questions=self.questions, **self.settings)
        except asking.NoAnswerError:
            return Reply(None, None, False, sentence, "cut")
        is_sure = bool(self.promise.answers(answer.uncertainty))
        return Reply(answer.text if is_sure else None, answer.uncertainty, is_sure, sentence, answer.status)


def answerer(
    model: str | Path | Model, *, calibration: Run, target: float = 0.8, confidence: float = 0.95, alpha: float = 0.4,
    questions: QuestionSet | None = None, choices: Choices | None = None,
) -> Answerer:  # fmt: skip
    """Return what answers where at least `target` of such answers are right, with `confidence`, and abstains elsewhere.

    Args:
        model: a loaded one, or its name, as in `models.load`.
        calibration: a run of the model on questions with known answers, of the kind that will be asked. Its validation
            questions show the promise, the scores of its others are the thresholds; without a validation split, all do.
        alpha: of PRO, fixed beforehand.
        questions: how questions will be asked and of which set, to be held against the calibration; None for as it was.
        choices: what counts as right, as in `evaluate`.

    Raises `RunError` where the calibration is of another model, prompt or set, or knows no right answers.
    """
    from pro_lib import models

    model, parameters = models.held(model), calibration.info.parameters
    if parameters.get("strategy") not in STRATEGIES:
        raise RunError(f"calibration: run {calibration.name} does not say how a model was asked")
    now = model.parameters() | {"set": calibration.info.dataset}
    if questions is not None:
        now |= questions.parameters() | {"set": questions.name}
    names = {"fingerprint", "dtype", "quantization", "set", *(now.keys() & {"header", "template", "shots"})}
    before = {**parameters, "set": calibration.info.dataset}
    if difference := store.difference(*({name: of.get(name) for name in names} for of in (before, now))):
        raise RunError(f"calibration: run {calibration.name} was made with {difference}")
    splits = [name for name in calibration.questions["split"].unique() if name != "validation"]
    is_split = 0 < len(splits) < calibration.questions["split"].nunique()
    known = evaluate(calibration, split="validation" if is_split else None, choices=choices)
    scores = [evaluate(calibration, split=name, choices=choices).pro(alpha) for name in splits if is_split]
    unlabelled = np.concatenate(scores) if scores else None
    made = promise(known.pro(alpha), known.correct, target=target, confidence=confidence, unlabelled=unlabelled)
    strategy = parameters["strategy"]
    asked_as = question_sets.like(parameters, name=calibration.info.dataset)
    own = own_settings(strategy, parameters) | {"strategy": strategy, "chat": parameters.get("chat", False)}
    return Answerer(model, made, alpha, asked_as, own)
