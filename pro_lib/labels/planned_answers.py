"""The answers of an evaluation that a plan has: which to show next, and which labels count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.run_evaluation import MISSING_SHARE
from pro_lib.labels.answer_units import (
    AnswerUnits,
    answer_units,
    references_digest,
    scores_at_alphas,
)
from pro_lib.labels.file import KEY, Label, merge_labels
from pro_lib.labels.inference import (
    SCOPES,
    Ranking,
    Scope,
    WeightedLabels,
    label_weights,
)
from pro_lib.labels.label_model import cross_fitted
from pro_lib.labels.plan import REPEAT_EVERY, LabelPlan
from pro_lib.labels.sampled_verdicts import SampledVerdicts
from pro_lib.labels.sampling import second_probabilities
from pro_lib.metrics.roc import BoolArray, IntArray
from pro_lib.questions.repeats import normalized_question

_CHANGED = "Labels that do not count, because the text of their question has changed"
_GONE = "Labels that do not count, because their answer has changed or no longer exists"
_WITHOUT_QUESTION = (
    "Labels from before label files contained the question, so that a changed question is not "
    "noticed"
)
_OTHER_REFERENCES = "Labels that count, although the references have changed since"


@dataclass(frozen=True)
class Request:
    """An answer to show to the labeller.

    Attributes:
        position: its position among the answers of the plan.
        is_repetition: whether it was shown before. The labeller must not see this.
        question_id: the smallest of the questions with this text, as the evaluation has it.
        question: the text of the question; empty if it is unknown.
        references: the right answers; None if they are unknown.
        text: the answer.
    """

    position: int
    is_repetition: bool
    question_id: str
    question: str
    references: Sequence[str] | None
    text: str


@dataclass(frozen=True)
class CurrentLabels:
    """The labels that count for the answers of today, and what has changed since they were given.

    A label belongs to the text of its question and to the words of its answer.

    Attributes:
        labels: with the columns `position`, that in the plan, and `unit`, the number of the answer
            of today. Labels of answers that do not exist today (unit -1) count for the weights
            only.
        notes: a sentence about each kind of change.
    """

    labels: pd.DataFrame
    notes: tuple[str, ...]

    @cached_property
    def existing(self) -> pd.DataFrame:
        """The labels of answers that exist today."""
        return self.labels[self.labels["unit"] >= 0]


@dataclass(frozen=True)
class PlannedAnswers:
    """The answers of an evaluation that a plan has.

    A plan stays valid as long as some of its answers exist. Answers that the evaluation gets later
    are outside the plan, and answers that it does not have any more are not shown.

    Attributes:
        plan: which answers are labelled, in which order.
        evaluation: the answers of today, also those outside the plan.

    Example:
        >>> plan = LabelPlan.create(evaluation, n_labels=100)  # doctest: +SKIP
        >>> planned = PlannedAnswers(plan, evaluation)  # doctest: +SKIP
        >>> current = planned.current_labels(read_label_file("labels.jsonl"))  # doctest: +SKIP
        >>> # Draw the second phase when the first is complete.
        >>> planned = planned.advance(current)  # doctest: +SKIP
        >>> planned.plan.save(plan_path("labels.jsonl"))  # doctest: +SKIP
        >>> request = planned.next_request(current, "ada")  # doctest: +SKIP
        >>> label = planned.label(request, True, labeller="ada")  # doctest: +SKIP
        >>> append_label("labels.jsonl", label)  # doctest: +SKIP
    """

    plan: LabelPlan
    evaluation: Evaluation

    @classmethod
    def read(cls, path: str | Path, evaluation: Evaluation) -> PlannedAnswers:
        """Read a plan, and find its answers in an evaluation.

        Raises:
            RunError: if the file cannot be read, or the evaluation has none of its answers.
        """
        planned = cls(LabelPlan.read(path), evaluation)
        if not planned.is_planned.any():
            raise RunError(
                f"{path} is a plan for other answers: none of its {len(planned.plan.answers)} "
                f"answers is among these {len(planned._all_answers)}; use another label file"
            )
        return planned

    @cached_property
    def _all_answers(self) -> AnswerUnits:
        return answer_units(self.evaluation)

    @cached_property
    def _all_positions(self) -> IntArray:
        return self.plan.positions_of_answers(self._all_answers)

    @property
    def is_planned(self) -> BoolArray:
        """Whether each judged answer (n,) of the evaluation is one of the plan's answers."""
        is_planned: BoolArray = (self._all_positions >= 0)[self._all_answers.units]
        return is_planned

    @property
    def is_nearly_complete(self) -> bool:
        """Whether at least 95 % of the judged answers are answers of the plan."""
        return bool(self.is_planned.mean() >= 1 - MISSING_SHARE)

    @property
    def left_out(self) -> str:
        """How many judged answers are not in the plan, in words; empty if all are."""
        n_left_out = np.count_nonzero(~self.is_planned)
        if not n_left_out:
            return ""
        n_answers = len(self.is_planned)
        return f"{n_left_out} of {n_answers} answers are not among those of the label plan"

    @cached_property
    def answers(self) -> AnswerUnits:
        """The answers that are in the plan. The exclusions say how many others are left out."""
        if not self.left_out:
            return self._all_answers
        evaluation = self.evaluation
        exclusions = f"{evaluation.exclusions} Left out: {self.left_out}."
        return answer_units(replace(evaluation.select(self.is_planned), exclusions=exclusions))

    @property
    def positions(self) -> IntArray:
        """The position in the plan of each different answer (G,)."""
        # Units stay in their order if others are left out.
        return self._all_positions[self._all_positions >= 0]

    @cached_property
    def unit_at(self) -> IntArray:
        """The number of the answer of today at each position of the plan; -1 if it is gone."""
        units = np.full(len(self.plan.answers), -1)
        units[self.positions] = np.arange(len(self.answers))
        return units

    @cached_property
    def _unit_of_question(self) -> dict[str, int]:
        names = self.answers.table["question_id"].tolist()
        return {name: unit for unit, name in enumerate(names)}

    def with_plan(self, plan: LabelPlan) -> PlannedAnswers:
        """Return the same answers with their plan after the draw of its second phase."""
        other = replace(self, plan=plan)
        # What is known about the answers does not depend on the second phase.
        vars(other).update({**vars(self), "plan": plan})
        return other

    def current_labels(self, labels: pd.DataFrame, *, is_whole: bool = False) -> CurrentLabels:
        """Return the labels that count for these answers.

        Args:
            labels: from `read_label_file`; empty before the first label.
            is_whole: whether the evaluation has all answers of today, so that an answer that is
                not in it does not exist any more.

        Raises:
            RunError: if a label belongs to another plan, or to another draw of this plan.
        """
        positions = self.plan.check(labels)
        table = self.answers.table
        units = self.unit_at[positions]
        exists = units >= 0
        # The question of an answer that is gone may exist.
        by_id = [self._unit_of_question.get(name, -1) for name in labels["question_id"]]
        shown = table.reindex(np.where(exists, units, by_id))
        question = shown["question"].fillna("").to_numpy(object)
        references = shown["references"].map(references_digest).to_numpy(object)
        pairs = zip(labels["question"], question, strict=True)
        is_changed = np.array([_is_changed(*pair) for pair in pairs], dtype=bool)
        counts = exists & ~is_changed
        given = labels["references"].to_numpy(object)
        changes = {
            _CHANGED: is_changed,
            _GONE: ~exists & ~is_changed & is_whole,
            _WITHOUT_QUESTION: counts & (question != "") & (labels["question"] == "").to_numpy(),
            _OTHER_REFERENCES: counts & (given != "") & (references != given),
        }
        notes = tuple(f"{kind}: {is_so.sum():,}." for kind, is_so in changes.items() if is_so.any())
        is_current = counts | ~exists
        return CurrentLabels(labels.assign(position=positions, unit=units)[is_current], notes)

    def advance(
        self, current: CurrentLabels, alphas: Mapping[str, float] | None = None
    ) -> PlannedAnswers:
        """Draw the second phase as soon as all answers of the first phase have a label.

        Save the plan afterwards: the second phase must not be drawn again after a label of the
        first has changed.

        Args:
            current: the labels of one or several labellers.
            alphas: α of the scores that need one, as in `scores_at_alphas`.

        Returns:
            The answers with the plan of both phases, or the same answers.
        """
        first = np.array(self.plan.first)
        shown = first[self.unit_at[first] >= 0]
        if self.plan.is_drawn or not np.isin(shown, current.labels["position"]).all():
            return self
        merged = merge_labels(current.existing)
        answers = self.answers
        values = np.full(len(answers), np.nan)
        values[merged["unit"]] = merged["correct"].astype(float)
        probabilities = second_probabilities(
            Ranking.from_scores(scores_at_alphas(answers.evaluation, alphas), answers.units),
            answers.features,
            values,
            np.isin(self.positions, first),
            n_second=self.plan.n_labels - len(first),
        )
        return self.with_plan(self.plan.with_second_phase(self.positions, probabilities))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about answers that were added or lost after the plan was made."""
        notes = []
        n_outside = np.count_nonzero(self._all_positions < 0)
        if n_outside:
            notes.append(
                "Answers that are outside the plan and its estimates, because they were added or "
                f"changed after it was made: {n_outside:,}."
            )
        n_gone = np.count_nonzero(self.unit_at < 0)
        if n_gone:
            notes.append(
                "Planned answers that are not shown, because they have changed or no longer "
                f"exist: {n_gone:,}."
            )
        return tuple(notes)

    @property
    def n_requests(self) -> int:
        """The number of answers that a labeller sees in the whole plan, repetitions included."""
        positions = [position for position, _ in self.plan.requests()]
        n_gone = int(np.count_nonzero(self.unit_at[positions] < 0))
        n_existing = int(np.count_nonzero(self.unit_at >= 0))
        # Gone answers that are not drawn yet cannot be drawn.
        n_labels = min(self.plan.n_labels - n_gone, n_existing)
        return n_labels + self.plan.n_labels // REPEAT_EVERY

    def next_request(self, current: CurrentLabels, labeller: str) -> Request | None:
        """Return the next answer that a labeller should label.

        Args:
            current: the labels of all labellers.
            labeller: name of the person.

        Returns:
            The answer, or None if this labeller has labelled all answers of the phases drawn so
            far. Call `advance` first, because it may draw further answers.
        """
        own = current.labels[current.labels["labeller"] == labeller]
        done = set(zip(own["position"], own["repetition"], strict=True))
        for position, is_repetition in self.plan.requests():
            if self.unit_at[position] >= 0 and (position, is_repetition) not in done:
                return self.request(position, is_repetition)
        return None

    def request(self, position: int, is_repetition: bool) -> Request:
        """Return an answer of the plan that exists, to be shown."""
        row = self.answers.table.iloc[self.unit_at[position]]
        shown = row[["question_id", "question", "references", "text"]]
        return Request(position, is_repetition, *shown)

    def label(
        self, request: Request, correct: bool | None, *, labeller: str, **values: Any
    ) -> Label:
        """Return the label of an answer, as `append_label` writes it.

        Args:
            request: from `next_request`.
            correct: True for right, False for wrong, None if the labeller cannot decide.
            labeller: name of the person.
            **values: comment, change and adjudication, as in `Label`.

        Returns:
            The label, with the phase and the inclusion probability.
        """
        plan = self.plan
        # The plan's own question_id, because labels and plan must agree if ids change.
        dataset, question_id, _ = plan.answers[request.position]
        phase, probability = plan.draws()[request.position]
        return Label(
            dataset=dataset,
            question_id=question_id,
            question=request.question,
            references=references_digest(request.references),
            text=request.text,
            correct=correct,
            labeller=labeller,
            repetition=request.is_repetition,
            phase=phase,
            probability=probability,
            n_first=len(plan.first),
            n_second=len(plan.second or ()) if phase == 2 else 0,
            n_answers=len(plan.answers),
            plan=plan.digest,
            **values,
        )

    def judgement(self, labels: pd.DataFrame, *, scope: Scope = "population") -> SampledVerdicts:
        """Return labels as the judgement of these answers.

        Args:
            labels: from `read_label_file`.
            scope: as in `LabelSample.with_labels`.

        Raises:
            RunError: if a label belongs to another plan, or `scope` is unknown.
        """
        if scope not in SCOPES:
            raise RunError(f"unknown scope {scope!r}; choose {' or '.join(SCOPES)}")
        plan = self.plan
        current = self.current_labels(labels)
        merged = merge_labels(current.labels).set_index("position")
        # Rows and weights by the position in the plan
        merged = merged.drop(columns=[*KEY, "unit"]).reindex(range(len(plan.answers)))
        decided = merged["correct"].astype(float).to_numpy()
        weights = label_weights(
            decided,
            (merged["phase"] == 1).to_numpy(),
            merged["probability"].to_numpy(float),
            n_first=len(plan.first),
            n_second=len(plan.second or ()),
        )
        # From the answers of the plan to those of the evaluation
        answers = self.answers
        values = decided[self.positions]
        model = cross_fitted(answers.features, values)
        weights = weights[self.positions]
        weighted = WeightedLabels(values, weights, model, scope, answers.clusters)
        merged = merged.iloc[self.positions].reset_index(drop=True)
        return SampledVerdicts(weighted, merged, answers.units, current.notes)


def _is_changed(stored: str, current: str) -> bool:
    """Return whether both texts of a question are known, and they differ."""
    if not stored or not current or stored == current:
        return False
    return normalized_question(stored) != normalized_question(current)
