"""The answers of evaluations as units that get one label each, with their features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.common.files import RunError
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.labels.design import ROUGE_BINS, ranks, rouge_bin
from pro_lib.evaluation.labels.estimator import Ranking
from pro_lib.evaluation.labels.label_file import KEY, answer_key
from pro_lib.evaluation.labels.planned import PlanAnswers

FloatArray = NDArray[np.float64]
Alphas = float | Mapping[str, float]


@dataclass(frozen=True)
class Setting:
    """One evaluation, its scores, and the numbers of its units.

    A unit is one answer to one question. All copies of it share a label.

    Attributes:
        evaluation: the n questions with their judged answers.
        scores: (n, M) a column per method: NLL and PRO first, if they are known.
        codes: (n,) number of the unit of each answer.
        ranking: the orders of the scores.
        members: (G,) whether a unit has answers of this setting.
        clusters: (G,) numbers of clusters of units; None for independent questions.
    """

    evaluation: Evaluation
    scores: pd.DataFrame
    codes: NDArray[np.intp]
    ranking: Ranking
    members: NDArray[np.bool_]
    clusters: NDArray[np.intp] | None


@dataclass(frozen=True)
class Answers:
    """The G different answers of several evaluations, the units that get one label each.

    Answers with the same words to the same question of a dataset are one unit, whichever model or
    strategy found them.

    Attributes:
        table: a row per unit: dataset, question_id (the smallest of the questions with this text),
            answer (`answer_key`), question (its text), references (`references_digest`), text (the
            answer as first found) and rouge_l. Question and references are empty if unknown.
        features: (G, F) for the label model: bins of ROUGE-L, exact and alias match, ranks of NLL
            and ALL, and the dataset and model if there are several.
        strata: (G,) bin of ROUGE-L.
        settings: the evaluations.
        digest: a hash of these answers, in hexadecimal.
    """

    table: pd.DataFrame
    features: FloatArray
    strata: NDArray[np.intp]
    settings: tuple[Setting, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.table)

    def as_plan(self) -> PlanAnswers:
        """Return these answers as those that a plan chooses from."""
        return PlanAnswers(self.table[[*KEY, "question"]], self.digest)


def collect_answers(
    evaluations: Sequence[Evaluation], *, alphas: Alphas = DEFAULT_ALPHA
) -> Answers:
    """Collect the different answers of evaluations.

    Args:
        evaluations: one or several, of any datasets, models and protocols.
        alphas: α of PRO and of PRO over meanings: a number, or by dataset, model and method, such
            as {"world-facts, facts-2m, PRO": 0.3}. Choose α before labelling, for example on the
            validation questions (`evaluation.chosen_alpha`).

    Returns:
        The answers, in the order in which they are first met.

    Raises:
        RunError: if there is no evaluation, or an answer has no text.
    """
    if not evaluations:
        raise RunError("evaluations is empty; labels need at least one evaluation")
    evaluations = [evaluation.judged for evaluation in evaluations]
    rows = [_rows_of(number, evaluation) for number, evaluation in enumerate(evaluations)]
    judged = pd.concat(rows, ignore_index=True)
    codes = pd.factorize(pd.MultiIndex.from_frame(judged[KEY]))[0]
    # `factorize` numbers units by their first row, so these rows are in the order of the codes.
    _, first_rows = np.unique(codes, return_index=True)
    columns = [*KEY, "question", "references", "text", "rouge_l"]
    table = judged.iloc[first_rows][columns].reset_index(drop=True)
    settings = []
    for number, evaluation in enumerate(evaluations):
        is_of_setting = (judged["setting"] == number).to_numpy()
        settings.append(_setting(evaluation, codes[is_of_setting], len(table), alphas))
    digest = hashlib.sha256(json.dumps(table[KEY].to_numpy().tolist()).encode()).hexdigest()[:16]
    strata = rouge_bin(table["rouge_l"].fillna(0.0))
    features = _features(judged, codes, strata)
    return Answers(table, features, strata, tuple(settings), digest)


def method_scores(evaluation: Evaluation, alphas: Alphas) -> pd.DataFrame:
    """Return the scores of an evaluation, a column per method: NLL, then PRO, then others."""
    has_log_probs = not np.isnan(evaluation.log_probs).all()
    names = evaluation.alpha_names if has_log_probs else ()
    where = f"{evaluation.dataset}, {evaluation.model}"
    chosen: dict[str, float] = {}
    for name in names:
        chosen[name] = (
            alphas.get(f"{where}, {name}", DEFAULT_ALPHA) if isinstance(alphas, Mapping) else alphas
        )
    table = evaluation.with_pro(chosen) if chosen else evaluation.baselines.copy()
    first = [name for name in ("NLL", "PRO") if name in table]
    return table[[*first, *table.columns.drop(first)]]


def references_digest(references: Sequence[str] | None) -> str:
    """Return a hash of references in any order, in hexadecimal; None has that of no reference.

    Example:
        >>> references_digest(["Paris", "Lyon"]) == references_digest(["Lyon", "Paris"])
        True
    """
    # Missing references of a table are None or NaN.
    texts = sorted(references) if isinstance(references, Iterable) else []
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def _rows_of(number: int, evaluation: Evaluation) -> pd.DataFrame:
    """Return a row per judged answer, with the key of its unit and what the label model reads."""
    answers = evaluation.answers
    where = f"{evaluation.dataset}, {evaluation.model}"
    if answers["text"].isna().any():
        question_id = answers["question_id"][answers["text"].isna()].iloc[0]
        raise RunError(
            f"{where}: the answer to question {question_id!r} has no text, so nobody can label it"
        )
    question_ids = answers["question_id"].astype(str)
    if "text_number" in answers:
        question_ids = question_ids.groupby(answers["text_number"]).transform("min")
    columns = {
        "setting": number,
        "dataset": evaluation.dataset,
        "model": evaluation.model,
        "question_id": question_ids,
        "answer": [answer_key(text) for text in answers["text"]],
        "question": answers["question"].fillna("") if "question" in answers else "",
        "references": "",
        "text": answers["text"],
        "rouge_l": answers["rouge_l"].astype(float),
    }
    if "references" in answers:
        columns["references"] = answers["references"].map(references_digest)
    for name in ("exact_match", "alias_match"):
        columns[name] = answers[name].astype(float) if name in answers else np.nan
    for name in ("NLL", "ALL"):
        has_score = name in evaluation.baselines
        columns[name] = ranks(evaluation.baselines[name]) if has_score else np.zeros(len(answers))
    return pd.DataFrame(columns)


def _setting(
    evaluation: Evaluation, codes: NDArray[np.intp], n_units: int, alphas: Alphas
) -> Setting:
    scores = method_scores(evaluation, alphas)
    ranking = Ranking.from_scores(scores, codes, n_units)
    clusters = None
    if "cluster" in evaluation.answers:
        # A unit belongs to one question text, and so to one cluster.
        # Units of other settings get the number 0, which has no effect: their influence is 0.
        numbers = pd.factorize(evaluation.answers["cluster"])[0]
        clusters = np.zeros(n_units, dtype=np.intp)
        clusters[codes] = numbers
    return Setting(evaluation, scores, codes, ranking, ranking.sizes > 0, clusters)


def _features(
    judged: pd.DataFrame, codes: NDArray[np.intp], strata: NDArray[np.intp]
) -> FloatArray:
    """Return the features (G, F); those of several answers of one unit are averaged.

    Constant columns and empty bins are left out.
    """
    columns = judged[["exact_match", "alias_match", "NLL", "ALL"]].fillna(0.0)
    for name in ("dataset", "model"):
        if len(judged[name].unique()) > 1:
            columns = columns.join(pd.get_dummies(judged[name], prefix=name, dtype=float))
    means = columns.groupby(codes).mean().to_numpy()
    varies = np.ptp(means, axis=0) > 0
    bins = strata[:, None] == np.arange(ROUGE_BINS)
    return np.column_stack([bins[:, bins.any(axis=0)], means[:, varies]]).astype(np.float64)
