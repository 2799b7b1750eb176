"""One question asked of a model: the answer with its uncertainty; knows generation and scores, no widget."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from pro_lib import questions as question_sets
from pro_lib import scores
from pro_lib.runs import Run

if TYPE_CHECKING:
    from pro_lib.models import Model


class AnswerProbability(NamedTuple):
    """An answer and the probability of its complete text, ending included."""

    text: str
    probability: float


@dataclass(frozen=True)
class Asked:
    """A model's answer to one question, with its PRO uncertainty (nats, higher = more uncertain).

    `answers` are the distinct answers found, the most probable first; PRO read the first `kept` of them.
    `status` (`certified`, `fallback` or `undecided`, see `certificate.Ledger`) and `entropy_bounds` (nats, of the
    entropy over complete token sequences: the tree bound and the loose upper bound) come from an exact search; they
    are None for another strategy.
    """

    question: str
    text: str
    uncertainty: float
    answers: tuple[AnswerProbability, ...]
    kept: int
    status: str | None = None
    entropy_bounds: tuple[float, float] | None = None


def ask(
    model: "Model",
    question: str,
    *,
    alpha: float = 0.4,
    questions: question_sets.QuestionSet | None = None,
    strategy: str = "threshold",
    search_alpha: float = 0.02,
    budget: int | None = None,
    n_answers: int = 10,
    max_new_tokens: int = 32,
    chat: bool = False,
) -> Asked:
    """Ask one question; the answer with its uncertainty.

    Args:
        model: a loaded model.
        question: the question, as text.
        alpha: PRO keeps the answers with `p >= alpha`.
        questions: a question set whose header, template and shots are used; None asks without shots.
        strategy: how answers are looked for, as in `generate`; by default all with p ≥ search_alpha.
        search_alpha: how far down the exact search goes.
        budget: token-forwards the search may spend; None for no limit.
        n_answers: N, as in `generate`.
        max_new_tokens: T, as in `generate`.
        chat: ask in the model's own chat template, as in `generate`.

    Raises:
        ValueError: an empty question, alpha outside [0, 1] or below search_alpha, or no answer that ended within
            `max_new_tokens`.
    """
    options = {"search_alpha": search_alpha, "budget": budget} if strategy == "threshold" else {"n_answers": n_answers}
    options |= {"max_new_tokens": max_new_tokens, "chat": chat}
    run = answered(model, question, questions=questions, strategy=strategy, **options)
    log_probs = run.log_probs()
    kept = int(scores.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)[0])
    if not kept:
        raise ValueError(f"no answer of {model.name} ended within {max_new_tokens} tokens: {question!r}")
    found = run.ranked().itertuples()
    answers = tuple(AnswerProbability(row.text, float(np.exp(row.value))) for row in found)
    asked = Asked(
        question,
        answers[0].text,
        float(scores.pro(log_probs, alpha=alpha, search_alpha=run.search_alpha)[0]),
        answers,
        kept,
    )
    if "status" not in run.questions:
        return asked
    ledger = run.questions.iloc[0]
    bounds = (float(ledger["tree_bound"]), float(ledger["upper_bound"]))
    return replace(asked, status=ledger["status"], entropy_bounds=bounds)


def answered(
    model: "Model", question: str, *, questions: question_sets.QuestionSet | None = None, **options: object
) -> Run:
    """The run of one question, asked as `questions` are; `options` as in `generate`. ValueError if it is empty."""
    from pro_lib import generate

    if not isinstance(question, str) or not question.strip():
        raise ValueError("question is empty")
    if questions is None:  # one without questions of its own, which is falsy, still says how to ask
        questions = question_sets.QuestionSet("asked", pd.DataFrame())
    return generate.generate(model, questions.with_questions([question.strip()]), progress=False, **options)
