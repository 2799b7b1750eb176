"""The verdicts of a judge model on the answers of a run, and their CSV file."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.metrics.correctness import joined_references
from pro_lib.metrics.judge_model import JUDGE_THRESHOLD, judge
from pro_lib.metrics.yes_no import ChoiceModel
from pro_lib.runs.run import Run

_COLUMNS = ["question_id", "question", "text", "correct", "p_right", "mass", "status"]
_COLUMNS += ["accepted_answers"]


def answers_to_judge(run: Run, *, every_answer: bool) -> pd.DataFrame:
    """Return the answers of a run that a judge is asked about, each text once per question.

    Args:
        run: a run whose questions have references.
        every_answer: whether all answers are judged, or only the most probable one of a question.

    Returns:
        The columns question_id, question, references and text.

    Raises:
        RunError: no question has references, or no answer has a text.
    """
    questions = run.questions[["question_id", "question", "references"]]
    answers = run.answers if every_answer else run.top()
    texts = answers[["question_id", "text"]].dropna().drop_duplicates()
    table = questions.merge(texts, on="question_id")
    has_references = table["references"].map(lambda value: value is not None and len(value) > 0)
    if not has_references.any():
        raise RunError(
            f"run {run.name} has no question with both references and an answer's text, which a "
            "judge compares; give a file of questions with references (--questions)"
        )
    table = table[has_references].reset_index(drop=True)
    return table.assign(references=table["references"].map(list))


def verdict_table(
    answers: pd.DataFrame,
    *,
    model: ChoiceModel,
    cache: Path,
    confirm: Callable[[list[str]], None],
) -> pd.DataFrame:
    """Return a judge's verdicts, a row per answer.

    Args:
        answers: the result of `answers_to_judge`.
        model: the judge.
        cache: the file in which its replies are kept.
        confirm: called with the prompts that will be sent.

    Returns:
        The columns question_id, question, text, correct (whether the probability is at least 0.5;
        missing without a verdict), p_right, mass and status, as `metrics.judge` explains them, and
        accepted_answers, the references as the judge read them.
    """
    columns = (answers["question"], answers["references"], answers["text"])
    table = judge(*columns, model=model, cache=cache, progress=True, confirm=confirm)
    is_right = table["p_right"] >= JUDGE_THRESHOLD
    table["correct"] = is_right.astype("boolean").where(table["status"] == "judged")
    references = answers["references"].map(joined_references)
    return answers.assign(accepted_answers=references).join(table)[_COLUMNS]


def is_verdict_table(path: Path) -> bool:
    """Return whether a CSV file begins as the tables of `verdict_table`."""
    with open(path, encoding="utf-8", newline="") as file:
        columns = next(csv.reader([file.readline(1000)]), [])
    return columns == _COLUMNS
