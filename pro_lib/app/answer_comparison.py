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
    both = (first, second)
    places = _shared_questions(first, second)
    judged = [scored.reported.rows(rows) for scored, rows in zip(both, places, strict=True)]
    clusters = judged[0].answers.get("cluster")
    correct = [evaluation.correct for evaluation in judged]
    n = len(correct[0])
    only_first = int((correct[0] & ~correct[1]).sum())
    only_second = int((correct[1] & ~correct[0]).sum())
    n_discordant = only_first + only_second
    # Twice the binomial tail of the rarer kind, as both kinds are equally probable.
    p_value = min(1.0, 2 * float(bdtr(min(only_first, only_second), n_discordant, 0.5)))
    scores = [
        scored.reported_scores.iloc[rows].reset_index(drop=True)
        for scored, rows in zip(both, places, strict=True)
    ]
    return AnswerComparison(
        n_questions=n,
        rule=judged[0].judgement.rule,
        accuracy=(float(correct[0].mean()), float(correct[1].mean())),
        only_first=only_first,
        only_second=only_second,
        accuracy_difference=_accuracy_difference(correct, clusters),
        p_value=p_value,
        auroc=_auroc_differences(scores, correct, clusters),
        by_cluster=clusters is not None,
    )


def _shared_questions(
    first: ScoredAnswers, second: ScoredAnswers
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the shared questions in the judged answers of each run."""
    tables = [_judged_questions(scored) for scored in (first, second)]
    by_id = tables[0].merge(tables[1], on=["question_id", "question"], suffixes=("", "_second"))
    if by_id.empty:
        with_texts = [
            table[table["question"] != ""].drop_duplicates("question", keep=False)
            for table in tables
        ]
        by_id = with_texts[0].merge(with_texts[1], on="question", suffixes=("", "_second"))
    if by_id.empty:
        names = " and ".join(scored.run.name for scored in (first, second))
        raise RunError(
            f"runs {names} share no judged question; they need questions with the same ids and "
            "texts"
        )
    return by_id["place"].to_numpy(), by_id["place_second"].to_numpy()


def _judged_questions(scored: ScoredAnswers) -> pd.DataFrame:
    """Return the id, text and place of each judged question.

    An unknown text is empty.
    """
    ids = scored.reported.answers["question_id"]
    texts = scored.rows.drop_duplicates("question_id").set_index("question_id")["question"]
    columns = {
        "question_id": ids.to_numpy(),
        "question": texts.reindex(ids).fillna("").to_numpy(),
        "place": np.arange(len(ids)),
    }
    return pd.DataFrame(columns)


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
    scores: list[pd.DataFrame], correct: list[NDArray[np.bool_]], clusters: pd.Series | None
) -> pd.DataFrame:
    """Return the AUROCs of each method of both runs, and their difference with its interval."""
    rows = []
    n_rarer = min(min(labels.sum(), (~labels).sum()) for labels in correct)
    names = [name for name in scores[0] if name in scores[1]] if n_rarer else []
    for name in names:
        aurocs = []
        moves: list[FloatArray] = []
        for table, labels in zip(scores, correct, strict=True):
            shares = metrics.placements(table[name], labels)
            aurocs.append(float(shares[labels].mean()))
            moves.append(metrics.influence(shares, labels))
        difference = aurocs[1] - aurocs[0]
        half_width = np.nan
        if n_rarer >= FEWEST_OF_A_CLASS:
            n_independent = n_rarer if clusters is None else min(n_rarer, clusters.nunique())
            error = metrics.influence_error(moves[1] - moves[0], clusters)
            half_width = _student(n_independent) * error
        row = {
            "method": name,
            "first": aurocs[0],
            "second": aurocs[1],
            "difference": difference,
            "low": difference - half_width,
            "high": difference + half_width,
        }
        rows.append(row)
    columns = ["method", "first", "second", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _student(n: int) -> float:
    """Return the 97.5 % quantile of Student's distribution for n independent values."""
    return float(-stdtrit(max(n - 1, 1), 0.025))
