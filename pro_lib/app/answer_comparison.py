"""Compare the answers of two runs to the same questions: accuracy, and AUROC of every method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri, stdtrit

from pro_lib import metrics
from pro_lib.app.scored_answers import ScoredAnswers
from pro_lib.common.files import RunError
from pro_lib.evaluation.judgement import Estimate
from pro_lib.metrics.differences import FEWEST_OF_A_CLASS
from pro_lib.metrics.roc import FloatArray

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
    texts that occur only once are compared instead. The runs have different answers, so a question
    may be right in one and wrong in the other.

    The influence of a question is its part of the deviation of an AUROC from its mean, as
    `metrics.influence` computes it. The variance of the difference between the two AUROCs is the
    sum over the questions of the squared difference of their influences. This is DeLong's variance,
    with a cluster for each question as in Obuchowski (1997).

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
    methods = [name for name in first.reported_scores if name in second.reported_scores]
    correct = [pairs[name].to_numpy(bool) for name in ("correct", f"correct{_SECOND}")]
    only_first = int((correct[0] & ~correct[1]).sum())
    only_second = int((correct[1] & ~correct[0]).sum())
    n_discordant = only_first + only_second
    # Twice the binomial tail of the rarer kind, as both kinds are equally probable.
    p_value = min(1.0, 2 * float(bdtr(min(only_first, only_second), n_discordant, 0.5)))
    return AnswerComparison(
        n_questions=len(pairs),
        rule=first.reported.judgement.rule,
        accuracy=(float(correct[0].mean()), float(correct[1].mean())),
        only_first=only_first,
        only_second=only_second,
        accuracy_difference=_accuracy_difference(correct, clusters),
        p_value=p_value,
        auroc=_auroc_differences(pairs, methods, correct, clusters),
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


def _accuracy_difference(correct: list[NDArray[np.bool_]], clusters: pd.Series | None) -> Estimate:
    """Return the difference of accuracies with the interval of Bonett and Price (2012).

    With clusters, the interval is Student's with the variance between clusters.
    """
    differences = correct[1].astype(float) - correct[0]
    n = len(differences)
    mean = float(differences.mean())
    if clusters is not None:
        error = metrics.influence_error((differences - mean) / n, clusters)
        half_width = _student(clusters.nunique()) * error
        return Estimate(mean, mean - half_width, mean + half_width)
    gained = ((differences > 0).sum() + 1) / (n + 2)
    lost = ((differences < 0).sum() + 1) / (n + 2)
    middle = float(gained - lost)
    half_width = float(ndtri(0.975) * np.sqrt((gained + lost - middle**2) / (n + 2)))
    return Estimate(mean, middle - half_width, middle + half_width)


def _auroc_differences(
    pairs: pd.DataFrame,
    methods: list[str],
    correct: list[NDArray[np.bool_]],
    clusters: pd.Series | None,
) -> pd.DataFrame:
    """Return the AUROCs of each method of both runs, and their difference with its interval."""
    rows = []
    n_rarer = min(min(labels.sum(), (~labels).sum()) for labels in correct)
    for name in methods if n_rarer else []:
        aurocs = []
        moves: list[FloatArray] = []
        for column, labels in zip((name, f"{name}{_SECOND}"), correct, strict=True):
            shares = metrics.placements(pairs[column], labels)
            aurocs.append(float(shares[labels].mean()))
            moves.append(metrics.influence(shares, labels))
        difference = aurocs[1] - aurocs[0]
        half_width = np.nan
        if n_rarer >= FEWEST_OF_A_CLASS:
            n_independent = n_rarer if clusters is None else min(n_rarer, clusters.nunique())
            error = metrics.influence_error(moves[1] - moves[0], clusters)
            half_width = _student(n_independent) * error
        rows.append((name, *aurocs, difference, difference - half_width, difference + half_width))
    columns = ["method", "first", "second", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _student(n: int) -> float:
    """Return the 97.5 % quantile of Student's distribution for n independent values."""
    return float(-stdtrit(max(n - 1, 1), 0.025))
