"""Compare the answers of two runs to the same questions: accuracy, and AUROC of every method."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from pro_lib.app.scored_answers import ScoredAnswers
from pro_lib.common.files import RunError
from pro_lib.evaluation.judgement import Estimate
from pro_lib.metrics import two_runs

_SECOND = " of the second run"  # ends the names of the second run's columns


@dataclass(frozen=True)
class AnswerComparison:
    """Two runs on the judged questions that they share.

    Attributes:
        n_questions: the number of these questions.
        rule: the rule by which an answer is right.
        accuracy: the accuracy of each run.
        only_first: the number of questions that only the first run answers correctly.
        only_second: the number that only the second run answers correctly.
        accuracy_difference: accuracy of the second run minus that of the first, with its 95 %
            interval.
        p_value: of equal accuracies, by McNemar's exact test.
        auroc: a row per method of both runs, with the columns method, first and second (AUROC),
            difference (second minus first), low and high (its 95 % interval). The last two are NaN
            if a run has fewer than five right or five wrong answers.
        by_cluster: whether the intervals are by cluster. The p-value is not.
    """

    n_questions: int
    rule: str
    accuracy: tuple[float, float]
    only_first: int
    only_second: int
    accuracy_difference: Estimate
    p_value: float
    auroc: pd.DataFrame
    by_cluster: bool


def compare_answers(first: ScoredAnswers, second: ScoredAnswers) -> AnswerComparison:
    """Compare two runs on the judged questions that they share, question by question.

    Two questions are the same if their ids and their texts are equal. If the runs share no id,
    texts that occur only once are compared instead. `metrics.two_runs` has the statistics.

    Args:
        first: the scores and judged answers of a run.
        second: those of the other run.

    Raises:
        RunError: a run has no judged answers, or no judged question is shared.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.app.scored_answers import score_answers
        >>> from pro_lib.importing import import_answers
        >>> scored = score_answers(import_answers(catalog.EXAMPLE), alpha=0.4)
        >>> comparison = compare_answers(scored, scored)
        >>> comparison.n_questions, comparison.accuracy_difference.value
        (788, 0.0)
    """
    pairs = _paired_questions(first, second)
    clusters = pairs.get("cluster")
    correct = [pairs[name].to_numpy(bool) for name in ("correct", f"correct{_SECOND}")]
    rows = []
    if all(0 < labels.sum() < len(labels) for labels in correct):
        for name in first.reported_scores:
            if name in second.reported_scores:
                scores = [pairs[name], pairs[f"{name}{_SECOND}"]]
                row = two_runs.auroc_difference(scores, correct, clusters=clusters)
                rows.append((name, *row))
    columns = ["method", "first", "second", "difference", "low", "high"]
    difference = two_runs.accuracy_difference(*correct, clusters=clusters)
    return AnswerComparison(
        n_questions=len(pairs),
        rule=first.reported.judgement.rule,
        accuracy=(float(correct[0].mean()), float(correct[1].mean())),
        only_first=int((correct[0] & ~correct[1]).sum()),
        only_second=int((correct[1] & ~correct[0]).sum()),
        accuracy_difference=Estimate(*difference),
        p_value=two_runs.mcnemar(*correct),
        auroc=pd.DataFrame(rows, columns=columns),
        by_cluster=clusters is not None,
    )


def _paired_questions(first: ScoredAnswers, second: ScoredAnswers) -> pd.DataFrame:
    """Return a row per shared question, with the columns of both runs."""
    suffixes = ("", _SECOND)
    tables = [_judged_questions(first), _judged_questions(second)]
    tables[1] = tables[1].drop(columns="cluster", errors="ignore")
    pairs = tables[0].merge(tables[1], on=["question_id", "question"], suffixes=suffixes)
    if pairs.empty:
        once = [
            table[table["question"] != ""].drop_duplicates("question", keep=False)
            for table in tables
        ]
        pairs = once[0].merge(once[1], on="question", suffixes=suffixes)
    if pairs.empty:
        raise RunError(
            f"runs {first.run.name} and {second.run.name} share no judged question; they need "
            "questions with the same ids and texts"
        )
    return pairs


def _judged_questions(scored: ScoredAnswers) -> pd.DataFrame:
    """Return id, text, verdict, cluster and scores of each question; an unknown text is empty."""
    answers = scored.reported.answers.filter(["question_id", "question", "correct", "cluster"])
    if answers.empty:
        raise RunError(
            f"run {scored.run.name} has no answer that can be judged; give right answers with "
            "--questions or --labels"
        )
    return answers.fillna({"question": ""}).join(scored.reported_scores)
