"""Estimates from labels of a sample, as tables and as words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib.common.files import RunError
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import Evaluation, with_columns_in_front
from pro_lib.evaluation.judgement import Estimate
from pro_lib.evaluation.methods import split_name
from pro_lib.labels.answer_units import scores_at_alphas
from pro_lib.labels.file import label_table, read_label_file
from pro_lib.labels.inference import Scope
from pro_lib.labels.plan import LabelPlan, plan_path
from pro_lib.labels.planned_answers import PlannedAnswers
from pro_lib.metrics.correctness import MATCHES, ROUGE_THRESHOLD

BY_JUDGE = "AUROC by ROUGE-L"
_OUTSIDE = "an estimate is not between 0 and 1; label more answers"
SHOWN = "yes"  # in the column shown, if nothing prevents an estimate
_ROUNDING = 1e-9
_SMALLEST_SHOWN = 0.0005  # a smaller difference has only zeros


@dataclass(frozen=True)
class LabelSample:
    """A label file and the answers that its labels were chosen from.

    Attributes:
        labels: from `read_label_file`; those of several labellers are merged (`merge_labels`).
        plan: the plan that chose the answers.
    """

    labels: pd.DataFrame
    plan: LabelPlan

    @classmethod
    def read(cls, path: str | Path) -> LabelSample:
        """Read a label file and its plan.

        Args:
            path: the label file. The plan has the same name with the suffix `.plan.json`.

        Returns:
            The labels with their plan.

        Raises:
            RunError: if a file cannot be read, or the labels belong to another plan.
        """
        labels = read_label_file(path)
        plan = LabelPlan.read(plan_path(path))
        plan.check(labels)
        return cls(labels, plan)

    @classmethod
    def without_labels(cls, evaluation: Evaluation) -> LabelSample:
        """Return the sample before the first label, for the answers of an evaluation."""
        return cls(label_table([]), LabelPlan.create(evaluation))

    def covers(self, evaluation: Evaluation) -> bool:
        """Return whether at least 95 % of the judged answers are answers of the plan."""
        return PlannedAnswers(self.plan, evaluation).is_nearly_complete

    def with_labels(self, evaluation: Evaluation, *, scope: Scope = "population") -> Evaluation:
        """Return an evaluation whose AUROCs and accuracy are estimated from the labels.

        Args:
            evaluation: the questions with the verdicts of an automatic judge.
            scope: "population" for intervals about the population that the questions come from;
                "questions" for these questions, whose intervals have length 0 once all answers have
                labels.

        Returns:
            The planned questions, with the labels as its judgement.
        """
        planned = self.planned_answers(evaluation)
        judgement = planned.judgement(self.labels, scope=scope)
        return replace(planned.answers.evaluation, sampled_judgement=judgement)

    def estimate(
        self,
        evaluation: Evaluation,
        *,
        alphas: Mapping[str, float] | None = None,
        scope: Scope = "population",
    ) -> pd.DataFrame:
        """Estimate the AUROC of every method as if all answers had labels, with 95 % intervals.

        It uses all labels of the file, so it may be computed after any number of them.

        Args:
            evaluation: of the answers of the plan, or of a part of them.
            alphas: α of the scores that need one, as in `scores_at_alphas`.
            scope: as in `with_labels`.

        Returns:
            A row per method. Without ten labels of each class all estimates are NaN. An AUROC that
            is estimated outside (0, 1) is NaN; its differences are still shown.

        Columns:
            - dataset, model, strategy, protocol, split, n_questions: the setting.
            - method, similarity: the score; similarity is empty if it does not compare meanings.
            - auroc, auroc_low, auroc_high: AUROC by the labels. n_labels is their number.
            - auroc_by_judge: AUROC by the correctness of the evaluation.
            - auroc_minus_pro, auroc_minus_nll: differences, with _low and _high. NaN without PRO or
              NLL.
            - n_labels: decided labels, without repetitions. n_right and n_wrong are its parts.
            - n_undecided: answers that nobody could decide. n_disputed: answers that labellers
              decided differently, without an adjudication.
            - n_effective: Kish's effective number, which shows how unequal the weights are.
            - scope: the argument. shown: "yes", or why there is no AUROC.

        Raises:
            RunError: if more than 5 % of the answers are not in the plan, or `scope` is unknown.

        Example:
            >>> sample = LabelSample.read("labels.jsonl")  # doctest: +SKIP
            >>> table = sample.estimate(evaluation)  # doctest: +SKIP
            >>> table[["method", "auroc", "auroc_low", "auroc_high"]]  # doctest: +SKIP
              method  auroc  auroc_low  auroc_high
            0    NLL  0.812      0.751       0.861
            1    PRO  0.815      0.752       0.865
        """
        planned = self.planned_answers(evaluation)
        return estimated_aurocs(planned, self.labels, alphas=alphas, scope=scope)

    def judge_agreement(
        self, evaluation: Evaluation, *, scope: Scope = "population"
    ) -> pd.DataFrame:
        """Estimate the accuracy of the answers, and the agreement of each judge with the labels.

        Args:
            evaluation: of the answers of the plan, or of a part of them.
            scope: as in `with_labels`.

        Returns:
            A row per judge.

        Columns:
            - those of the setting.
            - judge: "rouge_l" (above 0.3), "exact_match" or "alias_match".
            - accuracy_by_judge: the share of answers that the judge calls right.
            - accuracy, agreement: by the labels, each with _low and _high.
            - n_labels, n_right, n_wrong, scope and shown: as in `estimate`.

        Raises:
            RunError: as `estimate`.

        Example:
            >>> sample.judge_agreement(evaluation)[["judge", "agreement"]]  # doctest: +SKIP
                     judge  agreement
            0      rouge_l      0.884
        """
        planned = self.planned_answers(evaluation)
        judgement = planned.judgement(self.labels, scope=scope)
        evaluation = planned.answers.evaluation
        verdicts = evaluation.answers.filter(["rouge_l", *MATCHES]).dropna(axis=1)
        is_right = verdicts.to_numpy(float).T > ROUGE_THRESHOLD  # a match is 0 or 1
        agreement = judgement.accuracies(np.where(is_right, 1.0, -1.0))
        accuracy = judgement.accuracies(np.ones(is_right.shape))
        table = pd.DataFrame(
            {
                "judge": verdicts.columns,
                "accuracy_by_judge": is_right.mean(axis=1),
                **accuracy.columns("accuracy"),
                **agreement.columns("agreement"),
                **judgement.counts,
                "scope": scope,
            }
        )
        is_missing = table[["accuracy_low", "agreement_low"]].isna().any(axis=1)
        table["shown"] = shown_or_why(is_missing, judgement.accuracy_problem)
        return with_columns_in_front(table, evaluation.setting)

    def planned_answers(self, evaluation: Evaluation) -> PlannedAnswers:
        """Return the judged answers that are among those of the plan.

        A label cannot be estimated for another answer, because the plan could not choose it. The
        exclusions of the evaluation say how many questions are left out.

        Args:
            evaluation: the questions.

        Raises:
            RunError: if more than 5 % of the questions would be left out.
        """
        planned = PlannedAnswers(self.plan, evaluation)
        if not planned.is_nearly_complete:
            raise RunError(
                f"{evaluation.dataset}, {evaluation.model}, {evaluation.split}: "
                f"{planned.left_out}; use the parameters of the labelled run, or label these "
                "answers by pro label"
            )
        return planned


@dataclass(frozen=True)
class LabelledSplits:
    """The questions of a setting, with the labels of a sample of the reported answers.

    Attributes:
        splits: the validation questions and the reported questions.
        sample: the labels.
    """

    splits: Splits
    sample: LabelSample


def estimated_aurocs(
    planned: PlannedAnswers,
    labels: pd.DataFrame,
    *,
    alphas: Mapping[str, float] | None = None,
    scope: Scope = "population",
) -> pd.DataFrame:
    """Return the table of `LabelSample.estimate`."""
    judgement = planned.judgement(labels, scope=scope)
    evaluation = planned.answers.evaluation
    scores = scores_at_alphas(evaluation, alphas)
    values = scores.to_numpy(np.float64)
    names = list(map(split_name, scores.columns))
    table = pd.DataFrame(
        {
            "method": [method for method, _ in names],
            "similarity": [similarity for _, similarity in names],
            **judgement.auroc(values).columns("auroc"),
            "auroc_by_judge": evaluation.without_labels().judgement.auroc(values).value,
        }
    )
    for name in ("PRO", "NLL"):
        difference = Estimate(np.nan, np.nan, np.nan)
        if name in scores:
            difference = judgement.differences(values, scores[name].to_numpy()).estimate
        table = table.assign(**difference.columns(f"auroc_minus_{name.lower()}"))
    shown = shown_or_why(table["auroc"].isna(), judgement.problem)
    table = table.assign(**judgement.counts, scope=scope, shown=shown)
    return with_columns_in_front(table, evaluation.setting)


def shown_or_why(is_missing: ArrayLike, problem: str) -> NDArray[np.str_]:
    """Return `yes` for estimates (A,) that are shown, or why they are missing."""
    return np.where(is_missing, problem or _OUTSIDE, SHOWN)


def estimate_words(table: pd.DataFrame, labellers: Iterable[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the table of `LabelSample.estimate` as texts, and sentences about the labels.

    The page of `pro label` and `pro score` show them.
    """
    rows = []
    for row in table.to_dict("records"):
        difference = _words(row, "auroc_minus_nll", sign="+")
        size = max(abs(row[f"auroc_minus_nll_{end}"]) for end in ("low", "high"))
        if row["method"] == "NLL":
            difference = "–"
        elif size < _ROUNDING:
            difference = "identical"
        elif size < _SMALLEST_SHOWN:
            difference = f"within ±{_SMALLEST_SHOWN}"
        name = ", ".join(text for text in (row["method"], row["similarity"]) if text)
        auroc = _words(row, "auroc")
        rows.append({"method": name, "difference to NLL": difference, "AUROC by labels": auroc})
    words = pd.DataFrame(rows)
    if table["auroc_by_judge"].notna().any():
        words[BY_JUDGE] = table["auroc_by_judge"].map("{:.3f}".format)
    counts = table.iloc[0]
    *others, last = sorted(set(labellers)) or [""]
    given = f" by {', '.join(others)} and {last} together" if others else ""
    sentences = [
        "AUROC is the probability that a wrong answer is scored as more uncertain than a right "
        "one.",
        f"{counts['n_labels']:,} answers have a decided label{given} ({counts['n_right']:,} right, "
        f"{counts['n_wrong']:,} wrong).",
    ]
    reasons = [reason for reason in table["shown"].unique() if reason != SHOWN]
    sentences += [f"Not shown: {reason}." for reason in reasons]
    if counts["n_undecided"]:
        sentences.append(f"{counts['n_undecided']:,} labelled answers are undecided and left out.")
    sentences += [
        f"Kish's effective number of labels is {counts['n_effective']:.0f}. It is "
        f"{counts['n_labels']:,} if all labels have the same weight, and smaller if a few labels "
        "have large weights.",
        "If the interval of a difference contains 0, the labels do not show which method is "
        "better. The methods need not be equal.",
    ]
    return words, sentences


def _words(row: Mapping[str, Any], name: str, *, sign: str = "") -> str:
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if np.isnan(value):
        return "not shown"
    words = f"{value:{sign}z.3f} (95 %: {low:{sign}z.3f} to {high:{sign}z.3f})"
    return words.replace("-", "−")
