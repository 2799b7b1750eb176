"""Ask a model one question: its answer with an uncertainty, or an answer within a guarantee."""

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
from pro_lib.evaluation.calibration_runs import right_probability, run_guarantee
from pro_lib.evaluation.guarantees import Guarantee
from pro_lib.generation.decoding import strategies
from pro_lib.generation.decoding.strategies import own_settings
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.questions import question_sets
from pro_lib.questions.question_sets import QuestionSet
from pro_lib.runs.parameters import difference
from pro_lib.runs.run import Run, read_run

if TYPE_CHECKING:
    from pro_lib.generation.models import Model

# Settings that may differ between two runs whose PRO values are compared; all others must match.
# `model` is a name, and `fingerprint` compares the weights. `search_alpha` is the lowest
# probability that a search has looked for, and PRO reads only the answers above α. `seed` decides
# which samples are drawn.
_MAY_DIFFER = ("model", "search_alpha", "seed")


class NoAnswerError(ValueError):
    """No answer ended within the limit of new tokens."""


@dataclass(frozen=True)
class Answer:
    """A model's answer to one question, with its uncertainty.

    Attributes:
        question: the question.
        text: the most probable answer.
        uncertainty: PRO in nats, higher = more uncertain.
        answers: the distinct answers, the most probable first, each with the probability of its
            complete text, ending included.
        kept: how many of the answers PRO has used.
        status: what an exact search guarantees, see `runs.Certificate`; None without a search.
        entropy_bounds: the tree bound and the loose upper bound of H(Y) of an exact search, in
            nats; None without a search.
        probability_right: an estimate of the probability that `text` is right; None without a
            calibration run.
        calibrated: how this probability was estimated.
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
        # A bare "certified" would read as "right".
        search = f", search: {self.status}" if self.status else ""
        kept = f"{self.kept} of {len(self.answers)} answers kept"
        return f"Answer({self.text!r}: PRO = {self.uncertainty:z.2f} nats, {kept}{search})"

    def sentence(self) -> str:
        """Return how probable the best answer is, and how probably it is right if that is known."""
        n_answers = len(self.answers)
        probability = self.answers[0][1]
        answer_word = "answer" if n_answers == 1 else "answers"
        best = f"the best of {n_answers} {answer_word} has {probability:.0%}"
        sentences = [f"{_confidence_level(probability)} confidence: {best}."]
        if not self.text:
            other = self._best_text()
            sentences.append(f"It is to say nothing; the best that says something: {other}.")
        if self.probability_right is not None:
            estimate = f"{self.probability_right:.2f} ({self.calibrated})"
            sentences.append(f"It is right with probability {estimate}.")
        return " ".join(sentences)

    def _best_text(self) -> str:
        """Return the most probable answer that is not empty, with its probability."""
        for text, probability in self.answers:
            if text:
                return f"{text} ({probability:.0%})"
        return "none was found"


def _confidence_level(probability: float) -> str:
    """Return the word for the probability of the best answer."""
    if probability >= 0.7:
        return "High"
    return "Middling" if probability >= 0.3 else "Low"


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
    """Ask a model one question, and return its answer with its uncertainty.

    Args:
        model: a loaded model, or the name of one as in `pro_lib.load_model`. The model that was
            loaded last stays in memory.
        question: the question.
        alpha: PRO uses the answers with p ≥ α.
        questions: a question set whose header, template and shots make the prompt.
        n_shots: the number of shots of world-facts if there are no `questions`; None for 10.
        strategy: the decoding strategy; an exact search by default.
        calibration: a run of the model on questions with known answers, or its folder. The question
            gets the prompt of this run, unless `questions` or `n_shots` are given, and the answer
            says how probably it is right.
        settings: further settings of `generation.generate`, such as search_alpha, budget,
            n_answers, max_new_tokens and chat.

    Returns:
        The answer. Its uncertainty is PRO in nats, higher = more uncertain.

    Raises:
        ValueError: if the question is empty or not a text, or if `alpha` is outside [0, 1] or
            below search_alpha.
        NoAnswerError: if no answer ends within max_new_tokens.
        RunError: if the calibration is a run of another model, strategy or prompt.

    Example:
        >>> import pro_lib
        >>> answer = pro_lib.ask("facts-2m", "What is the capital of France?")
        >>> answer.text
        'Paris'
    """
    if not isinstance(question, str):
        remedy = "generation.generate takes several questions"
        raise ValueError(f"question={question!r:.60} must be a text; {remedy}")
    if np.ndim(alpha):
        raise ValueError(f"alpha={alpha!r:.60} must be one number")
    decoder = strategies.strategy(strategy, **own_settings(strategy, settings))
    # A wrong α is an error before the model is asked.
    scoring.check_alpha(alpha, search_alpha=getattr(decoder, "search_alpha", None))
    known_run = None if calibration is None else _read_calibration(calibration)
    run_parameters: Mapping[str, Any] = known_run.info.parameters if known_run else {}
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
    if known_run:
        check_calibration(known_run, {**dict.fromkeys(run_parameters), **run.info.parameters})
    return _read_answer(run, question, alpha, known_run)


def _read_calibration(calibration: Run | str | Path) -> Run:
    """Return a calibration run, which may be given by its folder."""
    if isinstance(calibration, str | Path):
        return read_run(not_empty(calibration, "calibration"))
    return calibration


def _read_answer(run: Run, question: str, alpha: float, calibration: Run | None) -> Answer:
    """Return the answer in a run of one question, with a probability if there is a calibration."""
    fit = None
    calibrated = ""
    if calibration:
        fit, calibrated = right_probability(calibration, alpha=alpha)
    ranked = run.ranked_answers()
    if ranked.empty:
        limit = run.info.parameters["max_new_tokens"]
        problem = f"no answer of {run.info.model} ended within {limit} tokens"
        raise NoAnswerError(f"{problem}: {question!r}; raise max_new_tokens")
    scores = run.scores(alpha=alpha)[["text", "pro", "n_kept"]]
    [row] = run.questions.join(scores).to_dict("records")
    status = row.get("status")
    return Answer(
        question=row["question"],
        text=row["text"],
        uncertainty=row["pro"],
        answers=tuple(zip(ranked["text"], np.exp(ranked["value"]), strict=True)),
        kept=row["n_kept"],
        status=status,
        entropy_bounds=(row["tree_bound"], row["upper_bound"]) if status else None,
        probability_right=float(fit([row["pro"]])[0]) if fit else None,
        calibrated=calibrated,
    )


def check_calibration(calibration: Run, parameters: Mapping[str, Any]) -> None:
    """Check that a calibration run was made with some parameters, except those that may differ.

    Raises:
        RunError: if the run was made with another model, strategy or prompt; the message names the
            difference.
    """
    run_parameters = calibration.info.parameters
    if "strategy" not in run_parameters:
        raise RunError(
            f"calibration: run {calibration.name} has no generation parameters, because it "
            "was imported; give a run that the workbench generated"
        )
    compared = {name: value for name, value in parameters.items() if name not in _MAY_DIFFER}
    change = difference(run_parameters, {**run_parameters, **compared})
    if change:
        raise RunError(
            f"calibration: run {calibration.name} was made with {change}; give a run with the "
            "same settings as the question"
        )


def answer_question(
    model: str | Path | Model,
    question: str,
    *,
    run_parameters: Mapping[str, Any],
    questions: QuestionSet | None = None,
    **settings: Any,
) -> Run:
    """Generate the answers to one question, with the prompt of a question set or of another run.

    Args:
        model: a loaded model, or the name of one.
        question: the question.
        run_parameters: the parameters of a run. Its chat, max_new_tokens and stop are used unless
            they are among the settings.
        questions: the question set with the prompt; None for the prompt of the run.
        settings: settings of `generation.generate`.

    Returns:
        A run of one question.
    """
    from pro_lib.generation.run_generation import generate

    if questions is None:
        questions = question_sets.empty_question_set(run_parameters)
    options: dict[str, Any] = {"progress": False}
    for name in ("chat", "max_new_tokens", "stop"):
        if name in run_parameters:
            options[name] = run_parameters[name]
    return generate(model, questions.with_questions(question), **options | settings)


@dataclass(frozen=True)
class Reply:
    """The reply of an `Answerer` to a question.

    Attributes:
        answer: the answer; None if the question is not answered.
        uncertainty: PRO in nats, higher = more uncertain; None if no answer ended.
        answered: whether PRO is below the threshold of the guarantee.
        guarantee: a sentence about all answered questions that are like those of the calibration.
            It does not say that this answer is right.
        status: what an exact search guarantees; None without a search.
    """

    answer: str | None
    uncertainty: float | None
    answered: bool
    guarantee: str
    status: str | None


@dataclass(frozen=True)
class Answerer:
    """A function that answers a question only if its uncertainty is below a threshold.

    Attributes:
        guarantee: the threshold, and the accuracy that it guarantees.
        ask: returns the answer to a question, with the prompt of the calibration run.
    """

    guarantee: Guarantee
    ask: Callable[[str], Answer]

    def __call__(self, question: str) -> Reply:
        """Ask the model, and return its answer if PRO is below the threshold.

        Raises:
            ValueError: if the question is empty, or too long for the model.
        """
        guarantee = self.guarantee.sentence()
        try:
            answer = self.ask(question)
        except NoAnswerError:
            return Reply(None, None, answered=False, guarantee=guarantee, status="cut")
        answered = bool(self.guarantee.answers(answer.uncertainty))
        return Reply(
            answer=answer.text if answered else None,
            uncertainty=answer.uncertainty,
            answered=answered,
            guarantee=guarantee,
            status=answer.status,
        )


def answerer(
    model: str | Path | Model,
    *,
    calibration: Run | str | Path,
    target: float = 0.8,
    confidence: float = 0.95,
    alpha: float = 0.4,
    rules: AnswerRules | None = None,
) -> Answerer:
    """Return a function that answers questions only where an accuracy is guaranteed.

    Args:
        model: a loaded model, or the name of one as in `pro_lib.load_model`.
        calibration: a run of the model, or its folder, on questions with known answers. The
            questions must be of the kind that will be asked. The guarantee is shown on the
            validation questions, one question of each text, and the scores of the other questions
            are the thresholds. Without a validation split, all questions serve for both.
        target: the share of right answers among the answered questions.
        confidence: the confidence with which the guarantee holds.
        alpha: α of PRO, which must be chosen before.
        rules: what makes an answer correct, as in `evaluate`.

    Returns:
        An `Answerer`. It asks questions with the prompt and the strategy of the calibration run.

    Raises:
        RunError: if the run is of another model, or no answer in it can be judged.

    Example:
        >>> import pro_lib
        >>> questions = pro_lib.load_questions("world-facts", split="validation", limit=100)
        >>> model = pro_lib.load_model("facts-2m")
        >>> run = pro_lib.generate(model, questions, strategy="threshold", progress=False)
        >>> answer = pro_lib.answerer(model, calibration=run, target=0.5)
        >>> answer("What is the capital of France?").answer
        'Paris'
    """
    from pro_lib.generation import models

    known_run = _read_calibration(calibration)
    model = models.cached_model(model)
    check_calibration(known_run, {"quantization": None, "server": None} | model.parameters())
    guarantee = run_guarantee(
        known_run, target=target, confidence=confidence, alpha=alpha, rules=rules
    )
    parameters = known_run.info.parameters
    strategy = parameters["strategy"]
    options = {
        "strategy": strategy,
        "chat": parameters.get("chat", False),
        **own_settings(strategy, parameters),
        "questions": question_sets.empty_question_set(parameters),
    }
    return Answerer(guarantee, partial(ask, model, alpha=alpha, **options))
