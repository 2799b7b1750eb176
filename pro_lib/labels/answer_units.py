"""The answers of an evaluation as units that get one label each, with their features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib.common.files import RunError, json_digest
from pro_lib.evaluation.alpha_choice import Splits, default_alpha
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.labels.file import KEY, answer_key
from pro_lib.metrics.correctness import MATCHES
from pro_lib.metrics.roc import FloatArray, IntArray
from pro_lib.runs.run import Run
from pro_lib.scoring.similarity import lexical

ROUGE_BINS = ("0", "above 0 to 0.3", "above 0.3 to 0.6", "above 0.6 to below 1", "1")
_FEATURES = ["exact_match", "alias_match", "NLL", "ALL"]


@dataclass(frozen=True)
class AnswerUnits:
    """The G different answers of an evaluation, the units that get one label each.

    Answers with the same words to the same question are one unit.

    Attributes:
        evaluation: the n judged answers.
        table: a row per unit: dataset, question_id (the smallest of the questions with this text),
            answer (`answer_key`), question (its text; empty if unknown), references (texts), text
            (the answer as first found) and rouge_l.
        units: (n,) number of the unit of each answer.
        strata: (G,) bin of ROUGE-L.
        features: (G, F) for the label model: bins of ROUGE-L, exact and alias match, ranks of NLL
            and ALL.
    """

    evaluation: Evaluation
    table: pd.DataFrame
    units: IntArray
    strata: IntArray
    features: FloatArray

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def clusters(self) -> IntArray | None:
        """Numbers (G,) of clusters of units; None for independent questions."""
        if "cluster" not in self.evaluation.answers:
            return None
        # A unit belongs to one question text, and so to one cluster.
        numbers = pd.factorize(self.evaluation.answers["cluster"])[0]
        clusters = np.zeros(len(self), dtype=np.intp)
        clusters[self.units] = numbers
        return clusters


def answer_units(evaluation: Evaluation) -> AnswerUnits:
    """Collect the different answers of an evaluation.

    Returns:
        The answers, in the order in which they are first met.

    Raises:
        RunError: if an answer has no text.
    """
    rows = _rows_of(evaluation)
    units = pd.factorize(pd.MultiIndex.from_frame(rows[KEY]))[0]
    table = rows[[*KEY, "question", "references", "text", "rouge_l"]]
    # `factorize` numbers units by their first row, so these rows are in the order of the units.
    table = table[~pd.Series(units).duplicated()].reset_index(drop=True)
    strata = rouge_bin(table["rouge_l"].fillna(0.0))
    # The features of several answers of one unit are averaged. Constant ones are left out.
    means = rows[_FEATURES].fillna(0.0).groupby(units).mean().to_numpy()
    bins = strata[:, None] == np.arange(len(ROUGE_BINS))
    varies = np.ptp(means, axis=0) > 0
    features = np.column_stack([bins[:, bins.any(axis=0)], means[:, varies]]).astype(np.float64)
    return AnswerUnits(evaluation, table, units, strata, features)


def with_placeholders(run: Run, labelled: Run) -> Run:
    """Return a run, with placeholders for verdicts if nothing can judge the labelled part of it.

    The placeholders call all answers of the run wrong, so that no AUROC by a judge exists.
    """
    has_verdicts = labelled.answers.filter(["correct", "rouge_l"]).notna().any(axis=None)
    if has_verdicts or labelled.questions["references"].notna().any():
        return run
    return replace(run, answers=run.answers.assign(correct=False))


def evaluate_answers(run: Run) -> Evaluation:
    """Return the evaluation of a run that the page labels, or that chooses its α."""
    similarities = {"lexical": lexical} if run.has_several_answers else None
    return evaluate(run, similarities=similarities, must_judge=False)


def scores_at_alphas(
    evaluation: Evaluation, alphas: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Return the scores of an evaluation, a column per method: NLL, then PRO, then others.

    Args:
        evaluation: the judged answers.
        alphas: α of the scores that need one, by their names; 0.4 without. Choose α before
            labelling, for example on the validation questions (`evaluation.Splits.alpha`).
    """
    if np.isnan(evaluation.log_probs).all():
        table = evaluation.baselines
    else:
        defaults = dict.fromkeys(evaluation.alpha_names, DEFAULT_ALPHA)
        table = evaluation.scores({**defaults, **(alphas or {})})
    first = [name for name in ("NLL", "PRO") if name in table]
    return table[[*first, *table.columns.drop(first)]]


def prepare_answers(evaluation: Evaluation, run: Run) -> tuple[Evaluation, dict[str, float], str]:
    """Return the answers of the labelled split in the order of their ids, and α of their scores.

    The page and `pro score` need the same order, because the folds of the label model depend on it.
    A file may have the questions in random order.

    Args:
        evaluation: the answers that are labelled.
        run: their run. Its validation questions choose α by their automatic judge, as notebook 10
            does by default, unless they are labelled themselves.

    Returns:
        The answers; α of each score that needs one; and a sentence about α of PRO, which is empty
        for texts without log-probabilities.
    """
    ids = evaluation.answers["question_id"].to_numpy(object)
    ordered = evaluation.select(np.argsort(ids, kind="stable"))
    is_validation = run.questions["split"] == "validation"
    pool = None
    if is_validation.any() and not run.questions["question_id"][is_validation].isin(ids).any():
        pool = evaluate_answers(run.select(split="validation"))
    return ordered, *_alphas_without_labels(pool, ordered)


def _alphas_without_labels(
    pool: Evaluation | None, reported: Evaluation
) -> tuple[dict[str, float], str]:
    if np.isnan(reported.log_probs).all():
        return {}, ""
    problem = "there are no validation questions"
    if pool is not None:
        words = pool.judgement.one_class
        problem = words and f"among the validation questions, {words}"
    if pool is None or problem:
        why = f"it is not chosen on labelled questions, and {problem}"
        choice = default_alpha(reported.search_alpha, why=why)
        return dict.fromkeys(reported.alpha_names, choice.alpha), f"PRO has {choice.reason}"
    splits = Splits(pool.with_methods_of(reported), reported)
    alphas = splits.alphas_of(splits.pool.alpha_names)
    n_questions = len(splits.validation.answers)
    words = f"{pool.rule} on {n_questions} validation questions, as notebook 10 does by default"
    return alphas, f"PRO has α = {alphas['PRO']:g}, chosen by {words}."


def rouge_bin(rouge: ArrayLike) -> IntArray:
    """Return the bin (n,) of ROUGE-L values: 0 for 0, 1 to 0.3, 2 to 0.6, 3 below 1, 4 for 1.

    Example:
        >>> rouge_bin([0.0, 0.3, 0.4, 0.9, 1.0])
        array([0, 1, 2, 3, 4])
    """
    values = np.asarray(rouge, dtype=np.float64)
    return np.searchsorted([0.0, 0.3, 0.6, 1.0], values, side="left") + (values >= 1)


def ranks(values: ArrayLike) -> FloatArray:
    """Return ranks (n,) between -1 and 1; ties share a rank, missing values have 0."""
    series = pd.Series(np.asarray(values, dtype=np.float64))
    n = series.count()
    return np.asarray(((2 * series.rank() - n - 1) / n).fillna(0.0))


def references_digest(references: Sequence[str] | None) -> str:
    """Return a hash of references in any order, in hexadecimal; None has that of no reference.

    Example:
        >>> references_digest(["Paris", "Lyon"]) == references_digest(["Lyon", "Paris"])
        True
    """
    # Missing references of a table are None or NaN.
    return json_digest(sorted(references) if isinstance(references, Iterable) else [])[:16]


def _rows_of(evaluation: Evaluation) -> pd.DataFrame:
    """Return a row per judged answer, with the key of its unit and what the label model reads."""
    answers = evaluation.answers
    is_missing = answers["text"].isna()
    if is_missing.any():
        question_id = answers["question_id"][is_missing].iloc[0]
        raise RunError(
            f"{evaluation.dataset}, {evaluation.model}: the answer to question {question_id!r} has "
            "no text, so nobody can label it"
        )
    question_ids = answers["question_id"].astype(str)
    if "text_number" in answers:
        question_ids = question_ids.groupby(answers["text_number"]).transform("min")
    rows = pd.DataFrame(
        {
            "dataset": evaluation.dataset,
            "question_id": question_ids,
            "answer": [answer_key(text) for text in answers["text"]],
            "question": answers["question"].fillna(""),
            "references": answers["references"],
            "text": answers["text"],
        }
    )
    for name in ("rouge_l", *MATCHES):
        rows[name] = answers[name].astype(float)
    for name in ("NLL", "ALL"):
        scores = evaluation.baselines.get(name)
        rows[name] = 0.0 if scores is None else ranks(scores)
    return rows
