"""Labels of a sample as the correctness of evaluations, from which tables estimate AUROCs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.common.judges import BY_LABELS
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.evaluate import MISSING_SHARE
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.judgement import Differences, Estimate
from pro_lib.evaluation.labels.answers import collect_answers
from pro_lib.evaluation.labels.estimate import (
    class_problem,
    count_labels,
    estimate,
    judge_agreement,
    sample_problem,
    unit_labels,
)
from pro_lib.evaluation.labels.estimator import Ranking
from pro_lib.evaluation.labels.inference import AurocEstimates, Sample, estimate_aurocs
from pro_lib.evaluation.labels.intervals import FEWEST_LABELS
from pro_lib.evaluation.labels.label_file import label_table, read_label_file
from pro_lib.evaluation.labels.plan import plan_path
from pro_lib.evaluation.labels.planned import CurrentLabels, PlanAnswers
from pro_lib.evaluation.labels.shares import estimate_shares
from pro_lib.metrics.differences import SIGNIFICANT, name_reading
from pro_lib.metrics.selective import (
    answered_weights,
    bin_numbers,
    confidence_bins,
    oracle_accuracy,
    rejection_table,
)

FloatArray = NDArray[np.float64]
INTERVAL = "from labels of a sample"
_MOST_BINS = 10  # of a calibration
_LABELS_PER_BIN = 30  # so that hardly any bin has too few labels for an accuracy


@dataclass(frozen=True)
class LabelSample:
    """A label file and the answers that its labels were chosen from.

    Attributes:
        labels: from `read_label_file`.
        plan: the answers of the plan.
    """

    labels: pd.DataFrame
    plan: PlanAnswers

    @classmethod
    def read(cls, path: str | Path) -> LabelSample:
        """Read a label file and its plan.

        Args:
            path: the label file. The plan has the same name with the suffix `.plan.json`.

        Returns:
            The labels with the answers of their plan.

        Raises:
            RunError: if a file cannot be read, the plan is missing, or the labels belong to another
                plan.
        """
        labels = read_label_file(path)
        plan_file = plan_path(path)
        if not plan_file.exists():
            raise RunError(
                f"{path} has labels of a sample, but their plan {plan_file} is missing; put the "
                "plan beside the label file"
            )
        plan = PlanAnswers.read(plan_file)
        try:
            plan.check(labels)
        except RunError as error:
            raise RunError(f"{path} and {plan_file}: {error}") from None
        return cls(labels, plan)

    @classmethod
    def without_labels(cls, evaluation: Evaluation) -> LabelSample:
        """Return the sample before the first label, for the answers of an evaluation."""
        return cls(label_table([]), collect_answers([evaluation]).as_plan())

    def covers(self, evaluation: Evaluation) -> bool:
        """Return whether at least 95 % of the judged answers are answers of the plan."""
        return bool(self._is_planned(evaluation).mean() >= 1 - MISSING_SHARE)

    def planned_part(self, evaluation: Evaluation) -> Evaluation:
        """Return the questions whose judged answer is one of the plan's answers.

        A label cannot be estimated for another answer, because the plan could not choose it.

        Args:
            evaluation: the questions.

        Returns:
            The evaluation. Its exclusions say how many questions are left out.

        Raises:
            RunError: if more than 5 % of the questions would be left out.
        """
        evaluation = evaluation.judged
        is_planned = self._is_planned(evaluation)
        n_unplanned = int((~is_planned).sum())
        if not n_unplanned:
            return evaluation
        setting = f"{evaluation.dataset}, {evaluation.model}, {evaluation.split}"
        counts = f"{n_unplanned} of {len(is_planned)} answers are not among those of the label plan"
        if not self.covers(evaluation):
            raise RunError(
                f"{setting}: {counts}; use the parameters of the labelled run, or label these "
                "answers by pro label"
            )
        exclusions = f"{evaluation.exclusions} Left out: {counts}."
        return replace(evaluation.rows(is_planned), exclusions=exclusions)

    def estimate(self, evaluations: Sequence[Evaluation], **options: Any) -> pd.DataFrame:
        """Return the table of `labels.estimate` for the planned questions.

        Args:
            evaluations: of the answers of the plan, or of a part of them, in any order.
            **options: alphas and scope, as in `labels.estimate`.
        """
        planned = [self.planned_part(evaluation) for evaluation in evaluations]
        return estimate(self.labels, planned, plan=self.plan, **options)

    def judge_agreement(self, evaluations: Sequence[Evaluation], **options: Any) -> pd.DataFrame:
        """Return the table of `labels.judge_agreement` for the planned questions.

        Args:
            evaluations: of the answers of the plan, or of a part of them, in any order.
            **options: scope, as in `labels.judge_agreement`.
        """
        planned = [self.planned_part(evaluation) for evaluation in evaluations]
        return judge_agreement(self.labels, planned, plan=self.plan, **options)

    def _is_planned(self, evaluation: Evaluation) -> NDArray[np.bool_]:
        """Return whether each judged answer (n,) is one of the plan's answers."""
        answers = collect_answers([evaluation])
        is_planned: NDArray[np.bool_] = self.plan.places(answers.table) >= 0
        return is_planned[answers.settings[0].codes]

    def with_labels(self, evaluation: Evaluation) -> Evaluation:
        """Return an evaluation whose AUROCs and accuracy are estimated from the labels.

        Args:
            evaluation: the questions with the verdicts of an automatic judge.

        Returns:
            The planned questions, with the labels as its judgement.
        """
        planned = self.planned_part(evaluation)
        verdicts = replace(
            self.sampled_verdicts(planned), notes=self.current_labels(evaluation).notes
        )
        return replace(planned, labels=verdicts)

    def current_labels(self, evaluation: Evaluation) -> CurrentLabels:
        """Return the labels without those of this evaluation that do not count any more.

        Args:
            evaluation: of the answers of the plan, or of a part of them.
        """
        return self.plan.current_labels(self.labels, collect_answers([evaluation]).table)

    def sampled_verdicts(self, planned: Evaluation) -> SampledVerdicts:
        """Return the labels of an evaluation from `planned_part`."""
        answers = collect_answers([planned])
        sample, merged = unit_labels(self.labels, answers, self.plan)
        [setting] = answers.settings
        return SampledVerdicts(sample, merged, setting.codes, setting.clusters)


@dataclass(frozen=True)
class SampledVerdicts:
    """The judgement of the n answers of an evaluation by labels of a sample of them.

    Attributes:
        sample: the labels of the G units, answers that share a label.
        merged: a row per unit with its merged label, from `unit_labels`.
        codes: (n,) number of the unit of each answer.
        clusters: (G,) numbers of clusters of units; None for independent questions.
        notes: sentences about changes since the labels were given.
    """

    sample: Sample
    merged: pd.DataFrame
    codes: NDArray[np.intp]
    clusters: NDArray[np.intp] | None
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Mapping[str, float]:
        """n_labels, n_right, n_wrong, n_undecided, n_disputed and n_effective of the n answers."""
        return count_labels(self.sample, self.merged, self._members)

    @cached_property
    def problem(self) -> str:
        """Why no AUROC can be estimated; empty if it can."""
        return class_problem(self.counts) or self._accuracy_problem

    @cached_property
    def _accuracy_problem(self) -> str:
        """Why no accuracy can be estimated; empty if it can."""
        n_clusters = None
        if self.clusters is not None:
            n_clusters = len(np.unique(self.clusters[self._members]))
        return sample_problem(self.counts["n_labels"], n_clusters=n_clusters)

    @property
    def _pseudo_labels(self) -> FloatArray:
        """Estimates (n,) of whether each answer is right; they may be below 0 or above 1."""
        return self.sample.pseudo[self.codes]

    @property
    def _members(self) -> NDArray[np.bool_]:
        """Whether a unit (G,) is one of the n answers."""
        members = np.zeros(len(self.sample.labels), dtype=bool)
        members[self.codes] = True
        return members

    @property
    def rule(self) -> str:
        """The rule by which an answer is right."""
        return f"labels of {self.counts['n_labels']} answers"

    @property
    def verdicts(self) -> NDArray[np.bool_]:
        """Raise `SentenceError`, because only some answers have a label."""
        raise SentenceError(
            "This needs a verdict for each question, but only a sample of the answers has labels."
        )

    @property
    def interval(self) -> str:
        """The kind of the intervals."""
        return INTERVAL

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

    def rows(self, places: NDArray[np.intp]) -> SampledVerdicts:
        """Return the labels of some of the answers.

        Args:
            places: positions among the n answers, of shape (k,).
        """
        return replace(self, codes=self.codes[places])

    def estimates(self, uncertainty: ArrayLike) -> AurocEstimates:
        """Return the estimated AUROCs of scores (n, A), higher = more uncertain."""
        ranking = Ranking.from_scores(uncertainty, self.codes, len(self.sample.labels))
        return estimate_aurocs(ranking, self.sample, clusters=self.clusters)

    def areas(self, scores: FloatArray) -> FloatArray:
        """Return the estimated AUROCs (A,) of scores (n, A), also if there is a `problem`."""
        return self.estimates(scores).areas.auroc

    def auroc(self, scores: FloatArray) -> Estimate:
        """Return the estimated AUROCs (A,) of scores (n, A); NaN if there are too few labels."""
        estimates = self.estimates(scores)
        ends = estimates.interval()
        return Estimate(*[self._shown(values) for values in (estimates.auroc, *ends)])

    def accuracies(self, weights: FloatArray) -> Estimate:
        """Return the accuracy of groups of answers, with 95 % intervals, (A,) each.

        It is NaN for a group with fewer than 20 labels, and if the questions are in fewer than five
        clusters. `weights` (A, n) says how much each answer counts in each group.
        """
        shares = estimate_shares(self.sample, self.codes, weights, clusters=self.clusters)
        is_hidden = (shares.n_labels < FEWEST_LABELS) | bool(self._accuracy_problem)
        shown = shares.hidden(is_hidden)
        return Estimate(shown.share, shown.low, shown.high)

    def accuracy_at(self, scores: ArrayLike, n_answered: NDArray[np.intp]) -> Estimate:
        """Return the accuracy among the k least uncertain answers, for some k (A,)."""
        return self.accuracies(answered_weights(scores, n_answered))

    def accuracy_of(self, is_chosen: NDArray[np.bool_]) -> Estimate:
        """Return the accuracy of the answers of a mask (n,); NaN if there are none."""
        if not is_chosen.any():
            return Estimate(np.nan, np.nan, np.nan)
        group = self.accuracies(is_chosen[None].astype(np.float64))
        return Estimate(group.value.item(), group.low.item(), group.high.item())

    def compare(
        self, scores: pd.DataFrame, *, reference: str = "PRO", uncorrected: Collection[str] = ()
    ) -> pd.DataFrame:
        """Return the table of `metrics.compare_aurocs`.

        n_to_decide is NaN, because the number of labels limits what can be decided, not the number
        of questions. With too few labels, the estimates are NaN and the readings say why.

        Args:
            scores: a row per answer and a column per method.
            reference: the method that the others are compared with.
            uncorrected: methods that Holm's correction does not count.
        """
        values = scores.to_numpy(np.float64)
        names = scores.columns
        is_reference = names == reference
        of_reference = scores[reference].to_numpy(np.float64)
        differences = self.differences(values, of_reference, is_reference=is_reference)
        p_value = differences.p_value
        p_holm = metrics.holm(np.where(names.isin(list(uncorrected)), np.nan, p_value))
        return pd.DataFrame(
            {
                "method": names,
                **self.auroc(values).columns("auroc"),
                "interval": self.interval,
                "n_differ": differences.n_differ,
                **differences.estimate.columns("difference"),
                "p_value": p_value,
                "p_holm": p_holm,
                "significant": p_holm <= SIGNIFICANT,
                "reading": self._readings(values, differences, is_reference),
                "n_to_decide": np.nan,
            }
        )

    def _readings(
        self,
        scores: FloatArray,
        differences: Differences,
        is_reference: NDArray[np.bool_],
    ) -> list[str]:
        """Return the reading of the difference of each score (n, A) to one of them."""
        is_different = differences.p_value <= SIGNIFICANT
        _, low, high = self.estimates(scores).difference(np.argmax(is_reference).item(), level=0.9)
        is_equivalent = (low > -metrics.MARGIN) & (high < metrics.MARGIN)
        words = []
        for place, n_differ in enumerate(differences.n_differ):
            if is_reference[place]:
                words.append("")
            elif n_differ == 0:
                words.append("identical")
            elif self.problem:
                words.append(self.problem)
            else:
                words.append(name_reading(is_different[place], is_equivalent[place]))
        return words

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
        n = len(self.codes)
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
        estimates = self.estimates(np.column_stack([reference, scores]))
        difference, low, high = (self._shown(values[1:]) for values in estimates.difference(0))
        by_definition = np.broadcast_to(is_reference, scores.shape[1])
        is_zero = by_definition & (not self.problem)
        p_value = self._shown(estimates.p_values(0)[1:])
        return Differences(
            metrics.count_differing(scores, reference),
            Estimate(difference, np.where(is_zero, 0.0, low), np.where(is_zero, 0.0, high)),
            np.where(by_definition, np.nan, p_value),
        )

    def _shown(self, values: FloatArray) -> FloatArray:
        return np.full_like(values, np.nan) if self.problem else values
