"""Questions asked of a model: answers with their uncertainty; knows generation and scores, no widget."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import questions as question_sets
from pro_lib import scores
from pro_lib.promises import Calibrated, calibrated
from pro_lib.questions import QuestionSet
from pro_lib.runs import EntropyEstimate, Run
from pro_lib.shown import shown

if TYPE_CHECKING:
    from pro_lib.models import Model


def _said(asked: "Answer") -> str:
    search = f", search: {asked.status}" if asked.status else ""  # a bare "certified" would read as "right"
    kept = f"{asked.kept} of {len(asked.answers)} answers kept"
    return f"{asked.text!r}: PRO = {asked.uncertainty:.2f} nats, {kept}{search}"


@shown(_said)
@dataclass(frozen=True)
class Answer:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first, each with the probability of its complete text,
    ending included; PRO read the first `kept` of them. Where none ended, `text` is None and `uncertainty` NaN.
    `status` (see `engine.certificate`), `entropy_bounds` (nats, of the entropy over complete token sequences: tree
    bound and loose upper bound) and `entropy` (its estimate by draws, with Student's 95 % limits) come from an exact
    search; they are None for another strategy. `probability_right` is that of `text` where a calibration was
    given, which `calibrated` tells about: an estimate, and no guarantee.
    """

    question: str
    text: str | None
    uncertainty: float
    answers: tuple[tuple[str, float], ...]
    kept: int
    status: str | None
    entropy_bounds: tuple[float, float] | None
    probability_right: float | None = None
    calibrated: str = ""
    entropy: EntropyEstimate | None = None

    def sentence(self) -> str:
        """What a person can use: the answer and what is known of it."""
        known = []
        if self.probability_right is not None:
            known.append(f"right with probability {self.probability_right:.2f} ({self.calibrated})")
        if self.entropy:
            known.append("the entropy of its answers is about {:.2f} nats ({:.2f} to {:.2f})".format(*self.entropy))
        return f"{self.text}: {'; '.join(known)}" if known else str(self.text)

    def to_df(self) -> pd.DataFrame:
        """The answers found, a row each: text, probability, and whether PRO kept it."""
        return pd.DataFrame(self.answers, columns=["text", "probability"]).assign(kept=lambda t: t.index < self.kept)


def ask(
    model: "str | Path | Model",
    question: str | Iterable[str],
    *,
    alpha: float = 0.4,
    questions: QuestionSet | None = None,
    strategy: str = "threshold",
    calibration: Run | Calibrated | str | Path | None = None,
    **settings: object,
) -> Answer | list[Answer]:
    """Ask a question; the answer with its uncertainty, of which PRO keeps the answers with `p >= alpha`.

    Args:
        model: a loaded one, or its name, as in `models.load`; by name the last one loaded is held.
        question: one, or several for a list of answers in their order: they are asked together, which is faster, and
            are the same to rounding. Of several, one without an answer that ended is no error.
        questions: a question set whose header, template and shots are used; None asks without shots.
        strategy: how answers are looked for; by default all with p ≥ search_alpha.
        calibration: a run of the model, or its folder, on questions whose right answers are known, or what
            `tables.calibrated` made of it: the question is asked as its were, and the answer says how probably it is
            right, as answers to such questions were.
        settings: as in `generate`: search_alpha, budget, n_answers, max_new_tokens, chat, …

    Raises:
        ValueError: an empty question, alpha outside [0, 1] or below search_alpha, no answer that ended within
            `max_new_tokens`, or a calibration by another model, strategy or way of asking.
    """
    if calibration is not None:
        calibration = calibration if isinstance(calibration, Calibrated) else calibrated(calibration, alpha=alpha)
    like = calibration and calibration.run.info.parameters
    run = answered(model, question, questions=questions, like=like, strategy=strategy, **settings)
    if calibration is not None:
        calibration.check(run.info.parameters, alpha)
    texts, log_probs = run.matrix(ranked := run.ranked(), "text", None), run.matrix(ranked, "value")
    pro, n_kept = (of(log_probs, alpha=alpha, search_alpha=run.search_alpha) for of in (scores.pro, scores.adaptive_k))
    answers, columns = [], ["question", "status", "tree_bound", "upper_bound"]
    for n, row in enumerate(run.questions.filter(columns).to_dict("records")):
        found = tuple((text, p) for text, p in zip(texts[n], np.exp(log_probs[n]).tolist(), strict=True) if p == p)
        exact = (row["status"], (row["tree_bound"], row["upper_bound"])) if "status" in row else (None, None)
        said = found[0][0] if found else None, float(pro[n]), found, int(n_kept[n])
        known = (calibration.probability(said[1]), calibration.sentence()) if calibration else (None, "")
        answers.append(Answer(row["question"], *said, *exact, *known))
    if isinstance(question, str) and not answers[0].answers:
        cut, model = run.info.parameters["max_new_tokens"], run.info.model
        raise ValueError(f"no answer of {model} ended within {cut} tokens: {question!r}")
    return answers[0] if isinstance(question, str) else answers


def answered(
    model: "str | Path | Model",
    question: str | Iterable[str],
    *,
    questions: QuestionSet | None = None,
    like: Mapping[str, object] | None = None,
    **settings: object,
) -> Run:
    """The run of questions, asked as `questions` or a run of parameters `like` were; ValueError if one is empty."""
    from pro_lib.generate import generate

    if like:
        questions = question_sets.like(like) if questions is None else questions
        settings = {name: like[name] for name in ("chat", "max_new_tokens", "stop") if name in like} | settings
    # One without questions of its own, which is falsy, still says how to ask.
    asked = question_sets.asked(question) if questions is None else questions.with_questions(question)
    return generate(model, asked, **{"progress": False} | settings)
