"""Which answers are right, and the statistics that follow from it.

`Judgement` has two implementations: `Verdicts`, if there is one for every answer, and
`labels.SampledVerdicts`, which estimates the statistics from labels of a sample. Tables and figures
do not ask which of the two they have. Scores are (n,) or (n, A), higher = more uncertain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics
from pro_lib.metrics.roc import FloatArray
from pro_lib.metrics.selective import Calibration, accuracy_curve, oracle_accuracy

_RENAMED = {"low": "auroc_low", "high": "auroc_high"}


@dataclass(frozen=True)
class Estimate:
    """Values with their 95 % confidence intervals, a number or (A,) each; NaN where unknown.

    Example:
        >>> Estimate(0.7, 0.6, 0.8).columns("auroc")
        {'auroc': 0.7, 'auroc_low': 0.6, 'auroc_high': 0.8}
    """

    value: Any
    low: Any
    high: Any

    def columns(self, name: str) -> dict[str, Any]:
        """Return the value under a name, and the ends of its interval."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


class Judgement(Protocol):
    """Which of n answers are right, with the statistics of their scores."""

    @property
    def rule(self) -> str:
        """The rule by which an answer is right, such as "ROUGE-L > 0.3"."""

    @property
    def verdicts(self) -> NDArray[np.bool_]:
        """Whether each answer is right, (n,).

        Raises:
            SentenceError: only a sample of the answers has labels.
        """

    @property
    def known_verdicts(self) -> NDArray[np.object_]:
        """Whether each answer is right, (n,); NaN where it has no verdict."""

    @property
    def n_verdicts(self) -> int:
        """The number of verdicts, or of labels."""

    @property
    def counts_in_words(self) -> str:
        """The words "24 of 80 judged answers", or of how many answers the accuracy is estimated."""

    @property
    def interval(self) -> str:
        """The kind of the intervals, such as "by question"."""

    @property
    def accuracy(self) -> float:
        """The share of right answers."""

    @property
    def one_class(self) -> str:
        """The words "all 20 judged answers are right" (or wrong); empty if both occur."""

    @property
    def problem(self) -> str:
        """Why no AUROC can be measured; empty if it can."""

    @property
    def caution(self) -> str:
        """A sentence about what restricts the result; empty if nothing does."""

    def columns(self) -> dict[str, Any]:
        """Return the columns that tables have besides those of `Verdicts`."""

    def select(self, positions: NDArray[np.intp]) -> Judgement:
        """Return the judgement of some of the answers."""

    def areas(self, scores: FloatArray) -> FloatArray:
        """Return the AUROCs (A,) of scores, without intervals."""

    def auroc(self, scores: FloatArray) -> Estimate:
        """Return the AUROCs (A,) of scores; NaN if there is a `problem`."""

    def differences(
        self, scores: FloatArray, reference: FloatArray, *, is_reference: ArrayLike = False
    ) -> Differences:
        """Return the paired differences between the AUROCs of scores and of a reference (n,).

        Args:
            scores: (n, A).
            reference: the score (n,) that they are compared with.
            is_reference: (A,), whether a score is the reference by definition, such as PRO with
                K = 1 and NLL. Its interval is 0 to 0, and it has no p-value.
        """

    def compare(
        self, scores: pd.DataFrame, *, reference: str = "PRO", uncorrected: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return the table of `metrics.compare_aurocs`, with auroc_low and auroc_high."""

    def rejection(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Return the table of `metrics.rejection`; NaN if there is a `problem`."""

    def accuracies(self, weights: FloatArray) -> Estimate:
        """Return the accuracy (A,) of groups of answers.

        `weights` (A, n) says how much each answer counts in each group, from 0 to 1; the weights of
        a group must not all be 0.
        """

    def accuracy_at(self, scores: ArrayLike, n_answered: NDArray[np.intp]) -> Estimate:
        """Return the accuracy among the k least uncertain answers, for some k (A,)."""

    def oracle(self) -> tuple[FloatArray, FloatArray]:
        """Return a score (n,) that ranks all right answers first, and its accuracy among k."""

    def check(self, fitted: Calibration) -> Calibration:
        """Return a calibration that is checked by this judgement."""


def accuracy_of(judgement: Judgement, is_chosen: NDArray[np.bool_]) -> Estimate:
    """Return the accuracy of the answers of a mask (n,); NaN if there are none."""
    if not is_chosen.any():
        return Estimate(np.nan, np.nan, np.nan)
    group = judgement.accuracies(is_chosen[None].astype(np.float64))
    return Estimate(group.value.item(), group.low.item(), group.high.item())


@dataclass(frozen=True)
class Differences:
    """Paired differences in AUROC between A scores and a reference, (A,) each.

    Attributes:
        n_differ: how many questions have another place in the order of a score than in that of the
            reference (`metrics.count_moved`).
        estimate: the difference with its interval.
        p_value: of equal AUROCs, not corrected.
    """

    n_differ: NDArray[np.int64]
    estimate: Estimate
    p_value: FloatArray

    def columns(self, name: str) -> dict[str, Any]:
        """Return the columns of a table, in which the reference has the given name."""
        columns = self.estimate.columns(f"auroc_minus_{name}")
        return {"n_differ": self.n_differ, **columns, "p_value": self.p_value}

    def with_reference(self, is_reference: ArrayLike) -> Differences:
        """Return the differences with an interval of 0 and no p-value where it is (A,) true."""
        low = np.where(is_reference, 0.0, self.estimate.low)
        high = np.where(is_reference, 0.0, self.estimate.high)
        p_value = np.where(is_reference, np.nan, self.p_value)
        return Differences(self.n_differ, Estimate(self.estimate.value, low, high), p_value)


@dataclass(frozen=True)
class Verdicts:
    """A verdict for each of n answers.

    Attributes:
        verdicts: whether each answer is right, (n,).
        rule: the rule by which an answer is right.
        clusters: (n,) names of the clusters of questions; None for independent questions.

    Example:
        >>> judgement = Verdicts(np.array([True, False, True]))
        >>> judgement.areas(np.array([[0.1, 0.9], [0.5, 0.8], [0.3, 0.7]])).tolist()
        [1.0, 0.5]
    """

    verdicts: NDArray[np.bool_]
    rule: str = ""
    clusters: pd.Series | None = None

    @property
    def known_verdicts(self) -> NDArray[np.object_]:
        """Whether each answer is right, (n,)."""
        return self.verdicts.astype(object)

    @property
    def n_verdicts(self) -> int:
        """The number of verdicts."""
        return len(self.verdicts)

    @property
    def counts_in_words(self) -> str:
        """The words "24 of 80 judged answers"."""
        return f"{self.verdicts.sum():,} of {self.n_verdicts:,} judged answers"

    @property
    def interval(self) -> str:
        """The kind of the intervals."""
        return "by question" if self.clusters is None else "by cluster"

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.verdicts.mean()) if len(self.verdicts) else float("nan")

    @cached_property
    def one_class(self) -> str:
        """The words "all 20 judged answers are right" (or wrong); empty if both occur."""
        if not len(self.verdicts):
            return "no question has both a judged answer and a score"
        if self.verdicts.all() or not self.verdicts.any():
            kind = "right" if self.verdicts.any() else "wrong"
            return f"all {len(self.verdicts)} judged answers are {kind}"
        return ""

    @property
    def problem(self) -> str:
        """Why no AUROC can be measured."""
        return self.one_class

    @property
    def caution(self) -> str:
        """An empty text, because there is a verdict for each answer."""
        return ""

    def columns(self) -> dict[str, Any]:
        """Return no further columns."""
        return {}

    def select(self, positions: NDArray[np.intp]) -> Verdicts:
        """Return the verdicts of some of the answers."""
        clusters = None if self.clusters is None else self.clusters.iloc[positions]
        return replace(self, verdicts=self.verdicts[positions], clusters=clusters)

    def areas(self, scores: FloatArray) -> FloatArray:
        """Return the AUROCs (A,) of scores (n, A)."""
        return metrics.auroc_intervals(scores, self.verdicts)[0]

    def auroc(self, scores: FloatArray) -> Estimate:
        """Return the AUROCs (A,) of scores (n, A)."""
        if self.problem:
            return Estimate(*[np.full(scores.shape[1], np.nan)] * 3)
        return Estimate(*metrics.auroc_intervals(scores, self.verdicts, clusters=self.clusters))

    def differences(
        self, scores: FloatArray, reference: FloatArray, *, is_reference: ArrayLike = False
    ) -> Differences:
        """Return the differences to a reference, by `metrics.delong`."""
        both = np.column_stack([reference, scores])
        tests = metrics.delong(both, self.verdicts, clusters=self.clusters)
        estimate = Estimate(tests.difference[1:], tests.low[1:], tests.high[1:])
        differences = Differences(tests.n_differ[1:], estimate, tests.p_value[1:])
        return differences.with_reference(is_reference)

    def compare(
        self, scores: pd.DataFrame, *, reference: str = "PRO", uncorrected: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return AUROCs, and the paired differences to a reference."""
        table = metrics.compare_aurocs(
            scores,
            self.verdicts,
            reference=reference,
            uncorrected=uncorrected,
            clusters=self.clusters,
        )
        return table.rename(columns=_RENAMED)

    def rejection(self, scores: pd.DataFrame) -> pd.DataFrame:
        """Return PRR and AUARC of scores."""
        return metrics.rejection(scores, self.verdicts)

    def accuracies(self, weights: FloatArray) -> Estimate:
        """Return the accuracy (A,) of groups of answers (A, n), with Wilson's interval."""
        sizes = weights.sum(axis=1)
        shares = weights @ self.verdicts / sizes
        return Estimate(shares, *metrics.wilson(shares, sizes))

    def accuracy_at(self, scores: ArrayLike, n_answered: NDArray[np.intp]) -> Estimate:
        """Return the accuracy among the k least uncertain answers, with Wilson's interval."""
        curve = accuracy_curve(np.asarray(scores, dtype=np.float64), self.verdicts)
        accuracy = curve[np.asarray(n_answered) - 1]
        return Estimate(accuracy, *metrics.wilson(accuracy, n_answered))

    def oracle(self) -> tuple[FloatArray, FloatArray]:
        """Return whether each answer is wrong, and the accuracy if all right ones come first."""
        return (~self.verdicts).astype(np.float64), oracle_accuracy(self.verdicts)

    def check(self, fitted: Calibration) -> Calibration:
        """Return the calibration, which these verdicts have checked already."""
        return fitted
