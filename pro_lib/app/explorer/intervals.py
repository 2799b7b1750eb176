"""AUROC, mean K and differences of methods with their intervals, for each split of a run.

The page shows these numbers. Intervals are by cluster if questions depend on each other.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import metrics, scoring
from pro_lib.evaluation.dependence import dependence_columns
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.metrics.correctness import Choices
from pro_lib.metrics.roc import FloatArray, Labels, cluster_codes
from pro_lib.runs.run import Run

# A number with the ends of its 95 % interval, None where it is not defined.
Rows = list[list[float | None]]


@dataclass(frozen=True)
class _Part:
    """The questions of a split, or all questions of a run.

    Attributes:
        codes: the number of each question's cluster (n,), -1 for a question outside the part. Each
            question has its own number if questions do not depend on each other.
        has_clusters: whether questions depend on each other.
    """

    codes: NDArray[np.intp]
    has_clusters: bool

    @classmethod
    def select(cls, questions: pd.DataFrame, rows: NDArray[np.intp]) -> _Part:
        """Return the part of some rows of the questions."""
        selected = questions.iloc[rows].reset_index(drop=True)
        clusters = dependence_columns(selected, Choices().cluster).get("cluster")
        codes = np.full(len(questions), -1)
        codes[rows] = range(len(rows)) if clusters is None else cluster_codes(clusters, len(rows))
        return cls(codes, clusters is not None)

    def clusters(self, rows: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """Return the clusters of some questions of the part, or None if there are no clusters."""
        return self.codes[rows] if self.has_clusters else None


def _parts(questions: pd.DataFrame) -> dict[str, _Part]:
    """Return the splits of questions by name, and all questions under the name `all`."""
    splits = questions["split"].to_numpy()
    names = [name for name in dict.fromkeys(splits) if isinstance(name, str) and name]
    parts = {name: _Part.select(questions, np.flatnonzero(splits == name)) for name in names}
    return parts | {"all": _Part.select(questions, np.arange(len(questions)))}


def sweeps(run: Run, alphas: list[float], correct: list[bool | None]) -> dict[str, dict]:
    """Return AUROC of PRO and mean K at every α.

    Args:
        run: a run with log-probabilities.
        alphas: the values of α, (A,).
        correct: whether the answer to each question is right, None if this is unknown.

    Returns:
        The keys `distinct` and `repeats` (repeated answers count), then the splits, then `auroc`
        and `mean_kept`: a list [value, low, high] for each α.
    """
    results: dict[str, dict] = {}
    parts = _parts(run.questions)
    for key in ("distinct", "repeats"):
        log_probs = run.log_probs(distinct=key == "distinct")
        with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
            scores = scoring.pro(log_probs, alpha=alphas)
        kept = scoring.adaptive_k(log_probs, alphas)
        results[key] = {}
        for name, part in parts.items():
            is_scored = (part.codes >= 0) & (kept[:, 0] > 0)
            scored = np.flatnonzero(is_scored)
            judged = np.flatnonzero(is_scored & pd.notna(np.array(correct, dtype=object)))
            labels = np.array([correct[row] for row in judged], dtype=bool)
            results[key][name] = {
                "auroc": _json_rows(*_aurocs(scores[judged], labels, part.clusters(judged))),
                "mean_kept": _mean_rows(kept[scored], part.codes[scored]),
            }
    return results


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
    question_ids = pd.Index(run.questions["question_id"])
    rows = question_ids.get_indexer(judged.answers["question_id"])
    pro = judged.pro(np.array(alphas))
    results = {}
    for name, part in _parts(run.questions).items():
        inside = np.flatnonzero(part.codes[rows] >= 0)
        others = judged.baselines.iloc[inside]
        clusters = part.clusters(rows[inside])
        results[name] = _comparison(pro[inside], others, judged.correct[inside], clusters)
    return results


def _comparison(
    pro: FloatArray, others: pd.DataFrame, correct: Labels, clusters: NDArray[np.intp] | None
) -> dict[str, Any]:
    """Return the entry of `comparisons` for PRO (n, A) and the other methods of a split."""
    n_alphas = pro.shape[1]
    scores = np.column_stack([pro, others])

    def by_method(rows: Rows) -> dict[str, Rows]:
        single_rows = [[row] for row in rows[n_alphas:]]
        return {"PRO": rows[:n_alphas], **dict(zip(others, single_rows, strict=True))}

    areas, low, high = _aurocs(scores, correct, clusters)
    differences = {}
    reason = ""
    for position, method in enumerate(others):
        reference = n_alphas + position
        tests = metrics.delong(scores, correct, reference=reference, clusters=clusters)
        differences[method] = by_method(_json_rows(areas - areas[reference], tests.low, tests.high))
        reason = tests.problem
    aurocs = by_method(_json_rows(areas, low, high))
    return {"aurocs": aurocs, "differences": differences, "reason": reason}


def _aurocs(
    scores: FloatArray, correct: Labels, clusters: NDArray[np.intp] | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return AUROC of each column (n, A) with the ends of its interval, NaN for one class."""
    try:
        return metrics.auroc_intervals(scores, correct, clusters=clusters)
    except metrics.OneClassError:
        undefined = np.full(scores.shape[1], np.nan)
        return undefined, undefined, undefined


def _mean_rows(values: NDArray[np.int64], codes: NDArray[np.intp]) -> Rows:
    """Return the mean of each column (n, A) of K with its normal interval by cluster."""
    n = len(values)
    if n == 0:
        return [[None] * 3] * values.shape[1]
    means = values.mean(axis=0)
    errors = [metrics.influence_error(column, codes) for column in ((values - means) / n).T]
    low, high = metrics.normal(means, errors)
    return _json_rows(means, np.maximum(low, 1), high)  # no K is below 1


def _json_rows(*columns: FloatArray) -> Rows:
    """Return columns as rows of JSON, in which NaN is None."""
    table = np.column_stack(columns)
    cells = table.astype(object)
    cells[np.isnan(table)] = None
    rows: Rows = cells.tolist()
    return rows
