"""AUROC, mean K and differences of methods with their intervals, for each split of a run.

The page shows these numbers. Intervals are by cluster if questions depend on each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.metrics.roc import FloatArray
from pro_lib.runs.run import Run

# A number with the ends of its 95 % interval, None where it is not defined.
Rows = list[list[float | None]]


def _by_split(run: Run, evaluation: Evaluation) -> dict[str, Evaluation]:
    """Return the evaluation of each split of a run by name, and the whole under the name `all`."""
    splits = run.questions.set_index("question_id")["split"]
    splits = splits.reindex(evaluation.answers["question_id"])
    names = [name for name in splits.unique() if isinstance(name, str) and name]
    parts = {name: evaluation.select((splits == name).to_numpy()) for name in names}
    return parts | {"all": evaluation}


def sweeps(run: Run, alphas: list[float], rules: AnswerRules) -> dict[str, dict]:
    """Return AUROC of PRO and mean K at every α.

    Args:
        run: a run with log-probabilities.
        alphas: the values of α, (A,).
        rules: what makes an answer right.

    Returns:
        The keys `distinct` and `repeats` (repeated answers count), then the splits, then `auroc`
        and `mean_kept`: a list [value, low, high] for each α.
    """
    results: dict[str, dict] = {}
    for key in ("distinct", "repeats"):
        counted = replace(rules, distinct=key == "distinct")
        evaluation = evaluate(run, rules=counted, must_judge=False)
        parts = _by_split(run, evaluation.whole)
        results[key] = {
            name: _sweep(part, evaluation, np.array(alphas)) for name, part in parts.items()
        }
    return results


def _sweep(part: Evaluation, evaluation: Evaluation, alphas: FloatArray) -> dict[str, Rows]:
    """Return the entry of `sweeps` for one split, whose judged questions are in `evaluation`."""
    is_in_part = evaluation.answers["question_id"].isin(part.answers["question_id"])
    judged = evaluation.select(is_in_part)
    auroc = judged.judgement.auroc(judged.pro(alphas))
    scored = part.select(~np.isnan(part.log_probs).all(axis=1))
    kept = scoring.adaptive_k(scored.log_probs, alphas)
    clusters = scored.answers.get("cluster", scored.answers["question_id"])
    return {
        "auroc": _json_rows(auroc.value, auroc.low, auroc.high),
        "mean_kept": _mean_rows(kept, clusters),
    }


def comparisons(run: Run, judged: Evaluation, alphas: list[float]) -> dict[str, dict[str, Any]]:
    """Return AUROC of every method, and the paired differences of methods.

    Args:
        run: the run whose questions were judged.
        judged: the judged questions with the scores of all methods.
        alphas: the values of α of PRO, (A,).

    Returns:
        By split: `aurocs` by method, `differences` by the method that is subtracted and the other
        method, and `reason`, why differences have no interval. A method has one list [value, low,
        high], PRO one for each α.
    """
    parts = _by_split(run, judged)
    return {name: _comparison(part, np.array(alphas)) for name, part in parts.items()}


def _comparison(part: Evaluation, alphas: FloatArray) -> dict[str, Any]:
    """Return the entry of `comparisons` for one split."""
    scores = np.column_stack([part.pro(alphas), part.baselines])

    def by_method(*columns: FloatArray) -> dict[str, Rows]:
        rows = _json_rows(*columns)
        single_rows = [[row] for row in rows[len(alphas) :]]
        return {"PRO": rows[: len(alphas)], **dict(zip(part.baselines, single_rows, strict=True))}

    auroc = part.judgement.auroc(scores)
    clusters = part.answers.get("cluster")
    differences = {}
    reason = ""
    for reference, method in enumerate(part.baselines, len(alphas)):
        tests = metrics.delong(scores, part.correct, reference=reference, clusters=clusters)
        difference = auroc.value - auroc.value[reference]
        differences[method] = by_method(difference, tests.low, tests.high)
        reason = tests.problem
    aurocs = by_method(auroc.value, auroc.low, auroc.high)
    return {"aurocs": aurocs, "differences": differences, "reason": reason}


def _mean_rows(values: NDArray[np.int64], clusters: pd.Series) -> Rows:
    """Return the mean of each column (n, A) of K with its normal interval by cluster."""
    n = len(values)
    if n == 0:
        return [[None] * 3] * values.shape[1]
    means = values.mean(axis=0)
    deviations = (values - means) / n
    errors = [metrics.influence_error(column, clusters) for column in deviations.T]
    low, high = metrics.normal(means, errors)
    return _json_rows(means, np.maximum(low, 1), high)  # no K is below 1


def _json_rows(*columns: FloatArray) -> Rows:
    """Return columns as rows of JSON, in which NaN is None."""
    table = np.column_stack(columns)
    cells = table.astype(object)
    cells[np.isnan(table)] = None
    rows: Rows = cells.tolist()
    return rows
