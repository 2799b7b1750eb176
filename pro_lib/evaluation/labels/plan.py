"""Which answers to label next: a plan of two phases that is saved as JSON and continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.common.files import RunError, parse, reading, regular, write_whole
from pro_lib.common.validation import (
    Format,
    Name,
    PositiveInt,
    Probability,
    Text,
    WholeNumber,
)
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.evaluation.labels.answers import Alphas, Answers, collect_answers
from pro_lib.evaluation.labels.design import (
    first_phase,
    first_size,
    second_phase,
    second_probabilities,
)
from pro_lib.evaluation.labels.label_file import KEY, Label, merge_labels
from pro_lib.evaluation.sweeps import DEFAULT_ALPHA

REPEAT_EVERY = 10  # after so many answers one of them, or of those before, is shown again
_STREAMS = {"first": 1, "second": 2, "repetitions": 3}


class _SavedPlan(Format):
    """The file of a plan.

    `answers` has dataset, question_id and `answer_key` of each answer, and `digest` identifies
    them. `first` and `second` are positions among them.
    """

    version: PositiveInt
    digest: Name
    answers: list[list[Text]]
    n_labels: PositiveInt
    seed: WholeNumber
    first: list[WholeNumber]
    second: list[WholeNumber] | None
    probabilities: list[Probability] | None


@dataclass(frozen=True)
class Request:
    """An answer to show to the labeller.

    Attributes:
        unit: its position among the answers of the plan.
        dataset: name of the dataset.
        question_id: of the first question with this text.
        text: the answer.
        is_repetition: whether it was shown before. The labeller must not see this.
        number: which request of the phases known so far it is, from 1.
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
    the labels of the first, and is fixed from then on. Everything depends on the seed and these
    labels only.

    Attributes:
        answers: the answers of the evaluations.
        n_labels: the planned number of different answers to label.
        seed: of all random choices.
        first: units of the first phase, in their order.
        second: units of the second phase, in their order; None before it is drawn.
        probabilities: inclusion probabilities of the units of the second phase; None before it is
            drawn.

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
    first: tuple[int, ...]
    second: tuple[int, ...] | None = None
    probabilities: tuple[float, ...] | None = None

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
            n_labels: how many different answers to label. With 60, 100 and 200 labels estimates
                were tested.
            seed: of all random choices.
            alphas: α of PRO, chosen before labelling (see `collect_answers`).

        Returns:
            The plan.

        Raises:
            RunError: if `n_labels` is below 20.
        """
        if n_labels < 20:
            raise RunError(f"n_labels must be at least 20; got {n_labels}")
        answers = collect_answers(evaluations, alphas=alphas)
        rng = np.random.default_rng([seed, _STREAMS["first"]])
        n_first = first_size(n_labels, len(answers))
        first = first_phase(answers.strata, n_first, rng)
        return cls(answers, min(n_labels, len(answers)), seed, tuple(first.tolist()))

    @classmethod
    def read(
        cls, path: str | Path, evaluations: Sequence[Evaluation], *, alphas: Alphas = DEFAULT_ALPHA
    ) -> LabelPlan:
        """Return a saved plan.

        Args:
            path: a file that `save` wrote.
            evaluations: those that the plan was created for, in the same order.
            alphas: as for `create`.

        Returns:
            The plan.

        Raises:
            RunError: if the file cannot be read, or the evaluations have other answers.
        """
        saved = _read_saved_plan(path)
        answers = collect_answers(evaluations, alphas=alphas)
        if saved.digest != answers.digest:
            counts = f"it has {len(saved.answers)} answers, the evaluations {len(answers)}"
            raise RunError(
                f"{path} is a plan for other answers ({counts}); "
                "create a new plan for these evaluations"
            )
        second = None if saved.second is None else tuple(saved.second)
        probabilities = None if saved.probabilities is None else tuple(saved.probabilities)
        return cls(answers, saved.n_labels, saved.seed, tuple(saved.first), second, probabilities)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, completely or not at all."""
        values = {
            "version": 1,
            "digest": self.answers.digest,
            "answers": self.answers.table[KEY].to_numpy().tolist(),
            "n_labels": self.n_labels,
            "seed": self.seed,
            "first": self.first,
            "second": self.second,
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
        if not set(self.first) <= set(self.answers.positions(self._own(labels)).tolist()):
            return self
        merged = merge_labels(labels)
        units = self.answers.positions(merged)
        values = np.full(len(self.answers), np.nan)
        values[units] = merged["correct"].astype(float)
        is_first = np.zeros(len(self.answers), dtype=bool)
        is_first[list(self.first)] = True
        rankings = [setting.ranking for setting in self.answers.settings]
        probabilities = second_probabilities(
            rankings, self.answers.features, values, is_first, n_second=n_second
        )
        chosen = second_phase(probabilities, np.random.default_rng([self.seed, _STREAMS["second"]]))
        return replace(
            self, second=tuple(chosen.tolist()), probabilities=tuple(probabilities[chosen].tolist())
        )

    @property
    def is_complete_plan(self) -> bool:
        """Return whether all phases are drawn."""
        return self.second is not None or self.n_labels == len(self.first)

    @property
    def n_requests(self) -> int:
        """Return how many answers a labeller sees in the whole plan, repetitions included."""
        return self.n_labels + self.n_labels // REPEAT_EVERY

    def requests(self) -> list[tuple[int, bool]]:
        """Return the units in the order in which they are shown, and whether each is a repetition.

        After every tenth different answer one of those shown before is repeated, each at most once.
        The repetitions of the phases drawn so far do not change when the second phase is drawn.
        """
        order = [*self.first, *(self.second or ())]
        shown: list[tuple[int, bool]] = []
        repeated: set[int] = set()
        for number, unit in enumerate(order, start=1):
            shown.append((unit, False))
            if number % REPEAT_EVERY == 0:
                # The last answers are still remembered.
                candidates = [
                    each for each in order[: number - REPEAT_EVERY + 2] if each not in repeated
                ]
                rng = np.random.default_rng([self.seed, _STREAMS["repetitions"], number])
                again = candidates[rng.integers(len(candidates))]
                repeated.add(again)
                shown.append((again, True))
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
        own = labels[labels["labeller"] == labeller]
        units = self.answers.positions(self._own(own)).tolist()
        done = set(zip(units, own["repetition"].astype(bool).tolist(), strict=True))
        for number, (unit, is_repetition) in enumerate(self.requests(), start=1):
            if (unit, is_repetition) not in done:
                row = self.answers.table.iloc[unit]
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
        probability = len(self.first) / len(self.answers)
        phase = 1
        n_second = 0
        if request.unit not in self.first:
            second = self.second or ()
            phase = 2
            n_second = len(second)
            probability = (self.probabilities or ())[second.index(request.unit)]
        return Label(
            dataset=request.dataset,
            question_id=request.question_id,
            text=request.text,
            correct=correct,
            labeller=labeller,
            repetition=request.is_repetition,
            phase=phase,
            probability=probability,
            n_first=len(self.first),
            n_second=n_second,
            n_answers=len(self.answers),
            plan=self.answers.digest,
        )

    def _own(self, labels: pd.DataFrame) -> pd.DataFrame:
        """Return the labels; raise `RunError` if some belong to another plan."""
        others = labels[labels["plan"] != self.answers.digest]
        if len(others):
            label = others.iloc[0]
            where = f"question {label['question_id']!r}"
            raise RunError(
                f"{len(others)} labels belong to another plan, first that of {where}; "
                "use another label file"
            )
        return labels


@dataclass(frozen=True)
class PlanAnswers:
    """The answers that a plan chose from, as its file has them.

    Attributes:
        table: a row per answer, in the order of the plan: dataset, question_id and answer.
        digest: what tells this set of answers from others, in hexadecimal.
    """

    table: pd.DataFrame
    digest: str

    @classmethod
    def read(cls, path: str | Path) -> PlanAnswers:
        """Return the answers of a saved plan.

        Args:
            path: a file that `LabelPlan.save` wrote.

        Raises:
            RunError: if the file cannot be read.
        """
        saved = _read_saved_plan(path)
        return cls(pd.DataFrame(saved.answers, columns=KEY), saved.digest)

    def positions(self, table: pd.DataFrame) -> NDArray[np.intp]:
        """Return the position of each row of a table with the same columns; -1 for others."""
        answers = pd.MultiIndex.from_frame(self.table)
        positions: NDArray[np.intp] = answers.get_indexer(pd.MultiIndex.from_frame(table[KEY]))
        return positions


def plan_path(path: str | Path) -> Path:
    """Return where the plan of a label file is stored: beside it, with the suffix `.plan.json`."""
    return Path(path).with_suffix(".plan.json")


def _read_saved_plan(path: str | Path) -> _SavedPlan:
    with reading(path):
        values = json.loads(regular(path).read_text(encoding="utf-8"))
    saved: _SavedPlan = parse(_SavedPlan, values, str(path))
    if any(len(answer) != len(KEY) for answer in saved.answers):
        raise RunError(f"{path}: each of the answers must be a list of {', '.join(KEY)}")
    return saved
