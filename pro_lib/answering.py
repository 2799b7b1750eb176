"""Answer or abstain: a question in, an answer out where the promise of a calibration run covers it; also over HTTP.

`application`: `POST /` with `{"question": "..."}`, `GET /` for the promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic_core import from_json

from pro_lib import asking
from pro_lib import questions as question_sets
from pro_lib.checks import Name, checked, extra, one_line
from pro_lib.correctness import Choices
from pro_lib.engine.strategies import own_settings
from pro_lib.evaluation import evaluate
from pro_lib.promises import Promise, promise
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

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
    now = {"quantization": None} | model.parameters()
    if questions is not None:
        now |= questions.parameters() | {"set": questions.name}
    asking.check_calibration(calibration, now)
    splits = [name for name in calibration.questions["split"].unique() if name != "validation"]
    is_split = 0 < len(splits) < calibration.questions["split"].nunique()
    known = evaluate(calibration, split="validation" if is_split else None, choices=choices)
    scores = [evaluate(calibration, split=name, choices=choices).pro(alpha) for name in splits if is_split]
    unlabelled = np.concatenate(scores) if scores else None
    made = promise(known.pro(alpha), known.correct, target=target, confidence=confidence, unlabelled=unlabelled)
    asked_as = question_sets.like(parameters, name=calibration.info.dataset)
    own = {"strategy": parameters["strategy"], "chat": parameters.get("chat", False)}
    return Answerer(model, made, alpha, asked_as, own | own_settings(own["strategy"], parameters))


@checked
class _Question:
    question: Name


def application(answerer: Answerer, *, length: int = 4000, waiting: int = 8, seconds: float = 120.0) -> Starlette:
    """Return the application, which puts one question at a time to the model; an error is `{"error": sentence}`.

    A body has at most `length` bytes; at most `waiting` questions are asked or wait, each at most `seconds`.
    """
    with extra("serve", "serving"):
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    turn, tasks = asyncio.Lock(), set[asyncio.Task]()

    def refused(status: int, message: object) -> JSONResponse:
        return JSONResponse({"error": one_line(message)}, status)

    async def asked(question: str) -> JSONResponse:
        async with turn:
            return JSONResponse(asdict(await run_in_threadpool(answerer, question)))

    async def ask(request: Request) -> JSONResponse:
        if int(request.headers.get("Content-Length") or length + 1) > length:
            return refused(413, f"a question takes at most {length} bytes, and says how many")
        if len(tasks) >= waiting:
            return refused(503, f"{waiting} questions wait already")
        try:
            task = asyncio.ensure_future(asked(_Question(**from_json(await request.body())).question))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return await asyncio.wait_for(asyncio.shield(task), seconds)
        except TimeoutError:
            return refused(504, f"no answer within {seconds:g} seconds")
        except (ValueError, TypeError, MemoryError) as error:
            return refused(422, error if isinstance(error, ValueError) else 'send {"question": "..."}')

    async def promise(_: Request) -> JSONResponse:
        return JSONResponse({"promise": answerer.promise.sentence()})

    return Starlette(routes=[Route("/", ask, methods=["POST"]), Route("/", promise)])
