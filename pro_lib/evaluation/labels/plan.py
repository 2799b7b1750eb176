"""Which answers to label next: a plan of two phases that is saved as JSON and continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib.common.files import RunError, write_whole
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.evaluation.labels.answers import Alphas, Answers, collect_answers
from pro_lib.evaluation.labels.design import (
    first_phase,
    first_size,
    second_phase,
    second_probabilities,
)
from pro_lib.evaluation.labels.label_file import KEY, Label, merge_labels
from pro_lib.evaluation.labels.planned import (
    CurrentLabels,
    PlanAnswers,
    SavedPlan,
    read_saved_plan,
)

FEWEST_PLANNED = 20
REPEAT_EVERY = 10  # after so many answers, an earlier one is shown again
_N_REMEMBERED = 8  # but none of the last answers, which the labeller still remembers
_STREAMS = {"first": 1, "second": 2, "repetitions": 3}


@dataclass(frozen=True)
class Request:
    """An answer to show to the labeller.

    Attributes:
        unit: its position among the answers of the plan.
        dataset: name of the dataset.
        question_id: the smallest of the questions with this text, as the evaluations have it.
        text: the answer.
        is_repetition: whether it was shown before. The labeller must not see this.
        number: its place in `LabelPlan.requests`, from 1.
        n_requests: the requests of the whole plan, repetitions included.
    """

    unit: int
    dataset: str
    question_id: str
    text: str
    is_repetition: bool
    number: int
    n_requests: int


@dataclass(frozen=True)
class LabelPlan:
    """Which of the answers of some evaluations to label, in which order.

    The first phase is drawn when the plan is created. The second phase is drawn by `advance` from
    the labels of the first, and is fixed from then on. Both depend on the evaluations, α, the seed
    and these labels only. All labellers of a plan use one label file.

    A plan stays valid as long as some of its answers exist. Answers that the evaluations get later
    are outside the plan, and answers that they do not have any more are not shown.

    Attributes:
        answers: those of the plan's answers that the evaluations have.
        n_labels: the planned number of different answers to label.
        seed: of all random choices.
        planned: all answers of the plan, and the chosen ones of each phase in their order.
        probabilities: inclusion probabilities of the units of the second phase; None before it is
            drawn.
        n_outside: answers of the evaluations that are not in the plan.

    Example:
        >>> plan = LabelPlan.create(evaluations, n_labels=100)  # doctest: +SKIP
        >>> plan.save("plan.json")  # doctest: +SKIP
        >>> labels = read_label_file("labels.jsonl")  # doctest: +SKIP
        >>> # Draw the second phase when the first is complete.
        >>> plan = plan.advance(labels)  # doctest: +SKIP
        >>> request = plan.next_request(labels, "ada")  # doctest: +SKIP
        >>> label = plan.label(request, True, labeller="ada")  # doctest: +SKIP
        >>> append_label("labels.jsonl", label)  # doctest: +SKIP
    """

    answers: Answers
    n_labels: int
    seed: int
    planned: PlanAnswers
    probabilities: tuple[float, ...] | None = None
    n_outside: int = 0

    @classmethod
    def create(
        cls,
        evaluations: Sequence[Evaluation],
        *,
        n_labels: int = 100,
        seed: int = 0,
        alphas: Alphas = DEFAULT_ALPHA,
    ) -> LabelPlan:
        """Draw the first phase of a plan.

        Args:
            evaluations: one or several, of any datasets, models and protocols.
            n_labels: how many different answers to label. The estimates were tested with 60, 100
                and 200 labels.
            seed: of all random choices.
            alphas: α of PRO, chosen before labelling (see `collect_answers`).

        Returns:
            The plan.

        Raises:
            RunError: if `n_labels` is below `FEWEST_PLANNED`.
        """
        if n_labels < FEWEST_PLANNED:
            raise RunError(
                f"the number of planned labels must be at least {FEWEST_PLANNED}; got {n_labels}"
            )
        answers = collect_answers(evaluations, alphas=alphas)
        rng = np.random.default_rng([seed, _STREAMS["first"]])
        n_first = first_size(n_labels, len(answers))
        first = tuple(first_phase(answers.strata, n_first, rng).tolist())
        planned = replace(answers.as_plan(), first=first)
        return cls(answers, min(n_labels, len(answers)), seed, planned)

    @classmethod
    def read(
        cls, path: str | Path, evaluations: Sequence[Evaluation], *, alphas: Alphas = DEFAULT_ALPHA
    ) -> LabelPlan:
        """Return a saved plan.

        Args:
            path: a file that `save` wrote.
            evaluations: those that the plan was created for, in the same order. They may have got
                further answers, and may have lost some.
            alphas: as for `create`.

        Returns:
            The plan.

        Raises:
            RunError: if the file cannot be read, or the evaluations have none of its answers.
        """
        saved = read_saved_plan(path)
        planned = PlanAnswers.from_saved(saved)
        answers = collect_answers(evaluations, alphas=alphas)
        is_planned = planned.places(answers.table) >= 0
        if not is_planned.any():
            raise RunError(
                f"{path} is a plan for other answers: none of its {len(saved.answers)} answers is "
                f"among these {len(answers)}; use another label file"
            )
        n_outside = int((~is_planned).sum())
        if n_outside:
            parts = []
            for setting in answers.settings:
                parts.append(setting.evaluation.rows(is_planned[setting.codes]))
            answers = collect_answers([part for part in parts if len(part.answers)], alphas=alphas)
        plan = cls(answers, saved.n_labels, saved.seed, planned, n_outside=n_outside)
        return plan._with_second_phase(saved)

    def reread(self, path: str | Path) -> LabelPlan:
        """Return the plan with the second phase of its file, if another process has drawn it.

        Args:
            path: the file that `save` wrote.

        Raises:
            RunError: if the file cannot be read, or has become another plan.
        """
        saved = read_saved_plan(path)
        mine = (self.planned.digest, self.n_labels, self.seed, self.planned.first)
        if (saved.digest, saved.n_labels, saved.seed, tuple(saved.first)) != mine:
            raise RunError(f"{path} was replaced by another plan; open the label file again")
        return self._with_second_phase(saved)

    def _with_second_phase(self, saved: SavedPlan) -> LabelPlan:
        if saved.second is None or saved.probabilities is None:
            return self
        planned = replace(self.planned, second=tuple(saved.second))
        return replace(self, planned=planned, probabilities=tuple(saved.probabilities))

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, completely or not at all."""
        values = {
            "version": 1,
            "digest": self.planned.digest,
            "answers": self.planned.table[KEY].to_numpy().tolist(),
            "questions": self.planned.table["question"].tolist(),
            "n_labels": self.n_labels,
            "seed": self.seed,
            "first": self.planned.first,
            "second": self.planned.second,
            "probabilities": self.probabilities,
        }
        write_whole((json.dumps(values) + "\n").encode("utf-8"), Path(path))

    def advance(self, labels: pd.DataFrame) -> LabelPlan:
        """Draw the second phase as soon as all answers of the first phase have a label.

        Save the plan afterwards: the second phase must not be drawn again after a label of the
        first has changed.

        Args:
            labels: from `read_label_file`, of one or several labellers.

        Returns:
            The plan with the second phase, or the same plan.
        """
        n_second = self.n_labels - len(self.first)
        if self.second is not None or n_second == 0:
            return self
        self.planned.check(labels)
        labels = self.current_labels(labels).labels
        first = self._rows.keys() & set(self.first)
        if not first <= set(self.planned.positions(labels).tolist()):
            return self
        merged = merge_labels(labels)
        rows = [self._rows[unit] for unit in self.planned.positions(merged).tolist()]
        values = np.full(len(self.answers), np.nan)
        values[rows] = merged["correct"].astype(float)
        is_first = np.zeros(len(self.answers), dtype=bool)
        is_first[[self._rows[unit] for unit in first]] = True
        rankings = [setting.ranking for setting in self.answers.settings]
        probabilities = second_probabilities(
            rankings, self.answers.features, values, is_first, n_second=n_second
        )
        chosen = second_phase(probabilities, np.random.default_rng([self.seed, _STREAMS["second"]]))
        second = tuple(self.planned.places(self.answers.table)[chosen].tolist())
        return replace(
            self,
            planned=replace(self.planned, second=second),
            probabilities=tuple(probabilities[chosen].tolist()),
        )

    def current_labels(self, labels: pd.DataFrame) -> CurrentLabels:
        """Return the labels of the plan's answers that exist, without those that do not count.

        Args:
            labels: from `read_label_file`, of this plan.
        """
        return self.existing.current_labels(labels, self.answers.table)

    @property
    def first(self) -> tuple[int, ...]:
        """Positions of the answers of the first phase, in their order."""
        return self.planned.first or ()

    @property
    def second(self) -> tuple[int, ...] | None:
        """Positions of the answers of the second phase, in their order; None if not drawn."""
        return self.planned.second

    @cached_property
    def existing(self) -> PlanAnswers:
        """The plan of the answers that the evaluations have."""
        return self.planned.part(np.array(sorted(self._rows), dtype=np.intp))

    @cached_property
    def _rows(self) -> dict[int, int]:
        """The row in the table of `answers` of each position that exists."""
        places = self.planned.places(self.answers.table).tolist()
        return {place: row for row, place in enumerate(places)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about answers that were added or lost after the plan was made."""
        notes = []
        if self.n_outside:
            notes.append(
                "Answers that are outside the plan and its estimates, because they were added or "
                f"changed after it was made: {self.n_outside:,}."
            )
        n_gone = len(self.planned.table) - len(self._rows)
        if n_gone:
            notes.append(
                "Planned answers that are not shown, because they have changed or no longer "
                f"exist: {n_gone:,}."
            )
        return tuple(notes)

    @property
    def is_complete_plan(self) -> bool:
        """Return whether all phases are drawn."""
        return self.second is not None or self.n_labels == len(self.first)

    @property
    def n_requests(self) -> int:
        """Return how many answers a labeller sees in the whole plan, repetitions included."""
        n_gone = sum(unit not in self._rows for unit, _ in self.requests())
        return self.n_labels + self.n_labels // REPEAT_EVERY - n_gone

    def requests(self) -> list[tuple[int, bool]]:
        """Return the units in the order in which they are shown, and whether each is a repetition.

        After every tenth answer, one earlier answer is shown again. No answer is repeated twice.
        The repetitions of the first phase do not change when the second phase is drawn.
        """
        order = [*self.first, *(self.second or ())]
        shown: list[tuple[int, bool]] = []
        repeated: set[int] = set()
        for number, unit in enumerate(order, start=1):
            shown.append((unit, False))
            if number % REPEAT_EVERY == 0:
                earlier = order[: number - _N_REMEMBERED]
                candidates = [each for each in earlier if each not in repeated]
                rng = np.random.default_rng([self.seed, _STREAMS["repetitions"], number])
                repetition = candidates[rng.integers(len(candidates))]
                repeated.add(repetition)
                shown.append((repetition, True))
        return shown

    def next_request(self, labels: pd.DataFrame, labeller: str) -> Request | None:
        """Return the next answer that a labeller should label.

        Args:
            labels: from `read_label_file`; empty before the first label.
            labeller: name of the person.

        Returns:
            The answer, or None if this labeller has labelled all answers of the phases drawn so
            far. Call `advance` first, because it may draw further answers.
        """
        labelled = labels[labels["labeller"] == labeller]
        self.planned.check(labelled)
        labelled = self.current_labels(labelled).labels
        units = self.planned.positions(labelled).tolist()
        done = set(zip(units, labelled["repetition"].astype(bool).tolist(), strict=True))
        requests = [request for request in self.requests() if request[0] in self._rows]
        for number, (unit, is_repetition) in enumerate(requests, start=1):
            if (unit, is_repetition) not in done:
                row = self.answers.table.iloc[self._rows[unit]]
                place = (number, self.n_requests)
                return Request(
                    unit, row["dataset"], row["question_id"], row["text"], is_repetition, *place
                )
        return None

    def label(self, request: Request, correct: bool | None, *, labeller: str) -> Label:
        """Return the label of an answer, as `append_label` writes it.

        Args:
            request: from `next_request`.
            correct: True for right, False for wrong, None if the labeller cannot decide.
            labeller: name of the person.

        Returns:
            The label, with the phase and the inclusion probability.
        """
        probability = len(self.first) / len(self.planned.table)
        phase = 1
        n_second = 0
        if request.unit not in self.first:
            second = self.second or ()  # drawn, because it has the request
            phase = 2
            n_second = len(second)
            probability = (self.probabilities or ())[second.index(request.unit)]
        # The plan's own question_id, because labels and plan must agree if ids change.
        planned = self.planned.table.iloc[request.unit]
        row = self.answers.table.iloc[self._rows[request.unit]]
        return Label(
            dataset=planned["dataset"],
            question_id=planned["question_id"],
            question=row["question"],
            references=row["references"],
            text=request.text,
            correct=correct,
            labeller=labeller,
            repetition=request.is_repetition,
            phase=phase,
            probability=probability,
            n_first=len(self.first),
            n_second=n_second,
            n_answers=len(self.planned.table),
            plan=self.planned.digest,
        )


def plan_path(path: str | Path) -> Path:
    """Return the file of the plan of a label file.

    It is in the same folder. The suffix `.plan.json` replaces `.jsonl` or `.json`, or follows
    another suffix.

    Example:
        >>> plan_path("quiz.labels.jsonl").name, plan_path("answers.1").name
        ('quiz.labels.plan.json', 'answers.1.plan.json')
    """
    path = Path(path)
    name = path.stem if path.suffix in (".jsonl", ".json") else path.name
    return path.with_name(f"{name}.plan.json")
