"""One question asked of a model: the answer with its uncertainty; knows generation and scores, no widget."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib.questions import QuestionSet
from pro_lib.runs import Run

if TYPE_CHECKING:
    from pro_lib.models import Model


@dataclass(frozen=True)
class Asked:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first, each with the probability of its complete text,
    ending included; PRO read the first `kept` of them.
    `status` (`certified`, `fallback` or `undecided`, see `decoding.certificate`) and `entropy_bounds` (nats, of the
    entropy over complete token sequences: the tree bound and the loose upper bound) come from an exact search; they
    are None for another strategy.
    """

    question: str
    text: str
    uncertainty: float
    answers: tuple[tuple[str, float], ...]
    kept: int
    status: str | None
    entropy_bounds: tuple[float, float] | None


def ask(
    model: "Model",
    question: str,
    *,
    alpha: float = 0.4,
    questions: QuestionSet | None = None,
    strategy: str = "threshold",
    **settings: object,
) -> Asked:
    """Ask one question; the answer with its uncertainty, of which PRO keeps the answers with `p >= alpha`.

    Args:
        questions: a question set whose header, template and shots are used; None asks without shots.
        strategy: how answers are looked for; by default all with p ≥ search_alpha.
        settings: as in `generate`: search_alpha, budget, n_answers, max_new_tokens, chat, …

    Raises:
        ValueError: an empty question, alpha outside [0, 1] or below search_alpha, or no answer that ended within
            `max_new_tokens`.
    """
    run = answered(model, question, questions=questions, strategy=strategy, **settings)
    found, scored, row = run.ranked(), run.scores(alpha=alpha).iloc[0], run.questions.iloc[0]
    if found.empty:
        length = run.info.parameters["max_new_tokens"]
        raise ValueError(f"no answer of {model.name} ended within {length} tokens: {question!r}")
    answers = tuple(zip(found["text"], np.exp(found["value"]).tolist(), strict=True))
    bounds = (float(row["tree_bound"]), float(row["upper_bound"])) if "status" in row else None
    return Asked(
        question, answers[0][0], float(scored["pro"]), answers, int(scored["n_kept"]), row.get("status"), bounds
    )


def answered(model: "Model", question: str, *, questions: QuestionSet | None = None, **settings: object) -> Run:
    """The run of one question, asked as `questions` are; `settings` as in `generate`. ValueError if it is empty."""
    from pro_lib.generate import generate

    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is empty")
    if questions is None:  # one without questions of its own, which is falsy, still says how to ask
        questions = QuestionSet("asked", pd.DataFrame())
    return generate(model, questions.with_questions([question.strip()]), progress=False, **settings)
