"""The method P(True) of an experiment: the model is asked whether its own answers are true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pro_lib import runs, scoring

if TYPE_CHECKING:
    from pro_lib.metrics.yes_no import ChoiceModel
    from pro_lib.runs.run import Run

P_TRUE = "P(True)"
_MOST_IDEAS = 10  # sampled answers that the prompt shows


def with_p_true(
    answers: Run,
    samples: Run,
    others: Sequence[Run],
    *,
    convention: str,
    model: ChoiceModel,
    cache: Path,
) -> Run:
    """Return a run whose questions have the score P(True) of their judged answer.

    The judged answer is the most probable one of all runs. The prompt shows it after up to ten
    sampled answers.

    Args:
        answers: the run that most methods read.
        samples: the run of samples.
        others: further runs whose answers may be the most probable one.
        convention: `complete` (ending included) or `answer_tokens` (ending left out), by which the
            most probable answer is judged.
        model: the model that answered.
        cache: the file in which the model's replies are kept.
    """
    question_ids = list(answers.questions["question_id"])
    samples = samples.select(question_ids=question_ids)
    others = [run.select(question_ids=question_ids) for run in others]
    tops = [run.top(convention=convention) for run in (answers, samples, *others)]
    judged = runs.most_probable_answers(tops)
    texts_by_question = samples.answers.groupby("question_id")["text"].apply(list).to_dict()
    ideas = [texts_by_question.get(name, [])[:_MOST_IDEAS] for name in question_ids]
    scores = scoring.p_true(
        model,
        list(answers.questions["question"]),
        list(judged["text"]),
        ideas=ideas,
        cache=cache,
        progress=True,
    )
    questions = answers.questions.assign(**{f"score_{P_TRUE}": scores})
    return replace(answers, questions=questions)
