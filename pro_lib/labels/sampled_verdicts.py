"""Labels of a sample as the judgement of an evaluation: its statistics are estimates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.judgement import Differences, Estimate
from pro_lib.labels.inference import Ranking, WeightedLabels
from pro_lib.metrics.differences import difference_columns
from pro_lib.metrics.roc import FEWEST_CLUSTERS, BoolArray, FloatArray, IntArray
from pro_lib.metrics.selective import (
    answered_weights,
    bin_numbers,
    confidence_bins,
    oracle_accuracy,
    rejection_table,
)

BY_LABELS = "labels"  # in the column judge, if labels of a sample estimate the values
FEWEST_FOR_AUROC = 10  # with fewer labels right, or wrong, no AUROC is shown
FEWEST_LABELS = 20  # with fewer labels no accuracy and no agreement is shown
_MOST_BINS = 10  # of a calibration
_LABELS_PER_BIN = 30  # so that hardly any bin has too few labels for an accuracy


@dataclass(frozen=True)
class SampledVerdicts:
    """The judgement of the n answers of an evaluation by labels of a sample of them.

    Attributes:
        weighted: the labels of the G units, answers that share a label.
        merged: a row per unit with the columns of `merge_labels`, NaN without a label.
        units: (n,) number of the unit of each answer.
        notes: sentences about changes since the labels were given.
    """

    weighted: WeightedLabels
    merged: pd.DataFrame
    units: IntArray
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Mapping[str, float]:
        """n_labels, n_right, n_wrong, n_undecided, n_disputed and n_effective of the n answers."""
        members = np.unique(self.units)
        labels = self.weighted.labels[members]
        weights = self.weighted.weights[members]
        rows = self.merged.iloc[members]
        n_labels = int((~np.isnan(labels)).sum())
        return {
            "n_labels": n_labels,
            "n_right": int((labels == 1).sum()),
            "n_wrong": int((labels == 0).sum()),
            "n_undecided": int(rows["phase"].count()) - n_labels,
            "n_disputed": int(rows["is_disputed"].eq(True).sum()),
            "n_effective": float(weights.sum() ** 2 / (weights**2).sum()) if n_labels else 0.0,
        }

    @cached_property
    def problem(self) -> str:
        """Why no AUROC can be estimated; empty if it can."""
        for name in ("right", "wrong"):
            n = self.counts[f"n_{name}"]
            if n < FEWEST_FOR_AUROC:
                return f"only {n} labels of {name} answers; {FEWEST_FOR_AUROC} are needed"
        return self.accuracy_problem

    @cached_property
    def accuracy_problem(self) -> str:
        """Why no accuracy can be estimated; empty if it can."""
        n_labels = self.counts["n_labels"]
        if n_labels < FEWEST_LABELS:
            return f"only {n_labels} labels; {FEWEST_LABELS} are needed"
        if self.weighted.clusters is None or self.weighted.scope == "questions":
            return ""
        n_clusters = len(np.unique(self.weighted.clusters[self.units]))
        if n_clusters >= FEWEST_CLUSTERS:
            return ""
        return f"only {n_clusters} clusters of questions; {FEWEST_CLUSTERS} are needed"

    @property
    def _pseudo_labels(self) -> FloatArray:
        """Estimates (n,) of whether each answer is right; they may be below 0 or above 1."""
        return self.weighted.pseudo[self.units]

    @property
    def rule(self) -> str:
        """The rule by which an answer is right."""
        return f"labels of {self.counts['n_labels']} answers"

    @property
    def verdicts(self) -> BoolArray:
        """Raise `SentenceError`, because only some answers have a label."""
        raise SentenceError(
            "This needs a verdict for each question, but only a sample of the answers has labels."
        )

    @property
    def known_verdicts(self) -> NDArray[np.object_]:
        """Whether each answer is right, (n,); NaN without a label."""
        return np.asarray(self.merged["correct"].iloc[self.units], dtype=object)

    @property
    def n_verdicts(self) -> int:
        """The number of labels."""
        return int(self.counts["n_labels"])

    @property
    def counts_in_words(self) -> str:
        """The words "estimated for 3,408 of them"."""
        return f"estimated for {len(self.units):,} of them"

    @property
    def interval(self) -> str:
        """The kind of the intervals."""
        return "from labels of a sample"

    @property
    def one_class(self) -> str:
        """An empty text; `problem` says whether both classes have labels."""
        return ""

    def columns(self) -> dict[str, Any]:
        """Return the columns judge and n_labels."""
        return {"judge": BY_LABELS, "n_labels": self.counts["n_labels"]}

    @property
    def accuracy(self) -> float:
        """The estimated share of right answers, between 0 and 1."""
        return float(np.clip(self._pseudo_labels.mean(), 0, 1))

    @property
    def caution(self) -> str:
        """A sentence about what is estimated from how many labels."""
        counts = self.counts
        text = (
            f"Accuracy and AUROC are estimated from the labels of {counts['n_labels']} answers "
            f"({counts['n_right']} right, {counts['n_wrong']} wrong)."
        )
        problem = [f"No AUROC is shown: {self.problem}."] if self.problem else []
        return " ".join([text, *problem, *self.notes])

    def select(self, positions: IntArray) -> SampledVerdicts:
        """Return the labels of some of the answers."""
        return replace(self, units=self.units[positions])

    def _ranking(self, scores: ArrayLike) -> Ranking:
        return Ranking.from_scores(scores, self.units, len(self.weighted.labels))

    def areas(self, scores: FloatArray) -> FloatArray:
        """Return the estimated AUROCs (A,) of scores (n, A), also if there is a `problem`."""
        return self.weighted.areas(self._ranking(scores)).auroc

    def auroc(self, scores: FloatArray) -> Estimate:
        """Return the estimated AUROCs (A,) of scores (n, A); NaN if there are too few labels."""
        return _hidden(self.weighted.auroc(self._ranking(scores)), bool(self.problem))

    def accuracies(self, weights: FloatArray) -> Estimate:
        """Return the accuracy of groups of answers, with 95 % intervals, (A,) each.

        It is NaN for a group with fewer than 20 labels, and if the questions are in fewer than five
        clusters. `weights` (A, n) says how much each answer counts, as in `WeightedLabels.shares`.
        """
        shares, n_labels = self.weighted.shares(self.units, weights)
        return _hidden(shares, (n_labels < FEWEST_LABELS) | bool(self.accuracy_problem))

    def accuracy_at(self, scores: ArrayLike, n_answered: IntArray) -> Estimate:
        """Return the accuracy among the k least uncertain answers, for some k (A,)."""
        return self.accuracies(answered_weights(scores, n_answered))

    def compare(
        self, scores: pd.DataFrame, *, reference: str = "PRO", uncorrected: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return the table of `metrics.compare_aurocs`.

        With too few labels, the estimates are NaN and the readings say why.

        Args:
            scores: a row per answer and a column per method.
            reference: the method that the others are compared with.
            uncorrected: methods that Holm's correction does not count.
        """
        values = scores.to_numpy(np.float64)
        names = scores.columns
        index = list(names).index(reference)
        found = self.differences(values, values[:, index], is_reference=names == reference)
        tests = metrics.DeLong(
            difference=found.estimate.value,
            low=found.estimate.low,
            high=found.estimate.high,
            standard_error=np.full(len(names), np.nan),
            p_value=found.p_value,
            n_differ=found.n_differ,
            reference=index,
            problem=self.problem,
        )
        return pd.DataFrame(
            {
                "method": names,
                **self.auroc(values).columns("auroc"),
                "interval": self.interval,
                **difference_columns(tests, names.isin(list(uncorrected))),
            }
        )

    def rejection(self, uncertainties: pd.DataFrame) -> pd.DataFrame:
        """Return the table of `metrics.rejection`; NaN if there are too few labels.

        Args:
            uncertainties: a row per answer and a column per method, higher = more uncertain.
        """
        table = rejection_table(uncertainties, self._pseudo_labels)
        if self.problem:
            table[["prr", "auarc"]] = np.nan
        return table

    def oracle(self) -> tuple[FloatArray, FloatArray]:
        """Return an unknown score (n,), and the accuracy of the first k if all right came first."""
        n = len(self.units)
        return np.full(n, np.nan), oracle_accuracy(np.full(n, self.accuracy))

    def check(self, fitted: metrics.Calibration) -> metrics.Calibration:
        """Return a calibration that is checked by the labels.

        There is a bin for every 30 labels, at most ten. The expected calibration error is NaN,
        because the errors of the estimated accuracies would be added to it. The Brier score is NaN
        if there are too few labels.

        Args:
            fitted: the calibration, checked by another judge.
        """
        probability = fitted.probability
        n_bins = int(np.clip(self.counts["n_labels"] // _LABELS_PER_BIN, 1, _MOST_BINS))
        numbers = bin_numbers(probability, n_bins)
        table = confidence_bins(probability, numbers)
        members = numbers == table.index.to_numpy()[:, None]
        accuracies = self.accuracies(members.astype(np.float64)).columns("accuracy")
        # The expectation of (p - r)², because r² = r
        right = self._pseudo_labels
        brier = np.mean(probability**2 - 2 * probability * right + right)
        return replace(
            fitted,
            ece=np.nan,
            brier=np.nan if self.problem else float(brier),
            table=table.reset_index(drop=True).assign(**accuracies),
        )

    def differences(
        self, scores: FloatArray, reference: FloatArray, *, is_reference: ArrayLike = False
    ) -> Differences:
        """Return the differences to a reference (n,); NaN if there are too few labels."""
        ranking = self._ranking(np.column_stack([reference, scores]))
        difference, p_values = self.weighted.difference(ranking, 0)
        estimate = Estimate(difference.value[1:], difference.low[1:], difference.high[1:])
        n_differ = metrics.count_moved(scores, reference)
        found = Differences(n_differ, estimate, p_values[1:]).with_reference(is_reference)
        is_hidden = bool(self.problem)
        p_value = np.where(is_hidden, np.nan, found.p_value)
        return replace(found, estimate=_hidden(found.estimate, is_hidden), p_value=p_value)


def _hidden(estimate: Estimate, is_hidden: BoolArray | bool) -> Estimate:
    """Return an estimate with NaN where `is_hidden`, (A,) or everywhere."""
    parts = (estimate.value, estimate.low, estimate.high)
    return Estimate(*(np.where(is_hidden, np.nan, part) for part in parts))
