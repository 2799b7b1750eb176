"""Which answers to label next: a plan of two phases that is saved as JSON and continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

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

FEWEST_PLANNED = 20
REPEAT_EVERY = 10  # after so many answers, an earlier one is shown again
_N_REMEMBERED = 8  # but none of the last answers, which the labeller still remembers
_STREAMS = {"first": 1, "second": 2, "repetitions": 3}


class _SavedPlan(Format):
    """The file of a plan.

    `answers` has dataset, question_id and `answer_key` of each answer, and `digest` identifies
    them. `first` and `second` are positions among them.
    """

    version: Literal[1]
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
        question_id: the smallest of the questions with this text.
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
            n_common = len(
                {tuple(answer) for answer in saved.answers}
                & set(answers.table[KEY].itertuples(index=False, name=None))
            )
            raise RunError(
                f"{path} is a plan for other answers: it has {len(saved.answers)} answers, of "
                f"which {n_common} are among these {len(answers)}; use another label file"
            )
        plan = cls(answers, saved.n_labels, saved.seed, tuple(saved.first))
        return plan._with_second_phase(saved)

    def reread(self, path: str | Path) -> LabelPlan:
        """Return the plan with the second phase of its file, if another process has drawn it.

        Args:
            path: the file that `save` wrote.

        Raises:
            RunError: if the file cannot be read, or has become another plan.
        """
        saved = _read_saved_plan(path)
        mine = (self.answers.digest, self.n_labels, self.seed, self.first)
        if (saved.digest, saved.n_labels, saved.seed, tuple(saved.first)) != mine:
            raise RunError(f"{path} was replaced by another plan; open the label file again")
        return self._with_second_phase(saved)

    def _with_second_phase(self, saved: _SavedPlan) -> LabelPlan:
        if saved.second is None or saved.probabilities is None:
            return self
        return replace(self, second=tuple(saved.second), probabilities=tuple(saved.probabilities))

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
        self.check(labels)
        if not set(self.first) <= set(self.answers.positions(labels).tolist()):
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
        self.check(labelled)
        units = self.answers.positions(labelled).tolist()
        done = set(zip(units, labelled["repetition"].astype(bool).tolist(), strict=True))
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
            second = self.second or ()  # drawn, because it has the request
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

    def check(self, labels: pd.DataFrame) -> None:
        """Raise `RunError` if a label belongs to another plan.

        Args:
            labels: from `read_label_file`.
        """
        plan = PlanAnswers(
            self.answers.table[KEY], self.answers.digest, self.first, self.second or ()
        )
        plan.check(labels)


@dataclass(frozen=True)
class PlanAnswers:
    """The answers that a plan chose from, as its file has them.

    Attributes:
        table: a row per answer, in the order of the plan: dataset, question_id and answer.
        digest: a hash of these answers, in hexadecimal.
        first: positions of the answers of the first phase.
        second: positions of the answers of the second phase; empty before it is drawn.
    """

    table: pd.DataFrame
    digest: str
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()

    @classmethod
    def read(cls, path: str | Path) -> PlanAnswers:
        """Return the answers of a saved plan.

        Args:
            path: a file that `LabelPlan.save` wrote.

        Raises:
            RunError: if the file cannot be read.
        """
        saved = _read_saved_plan(path)
        table = pd.DataFrame(saved.answers, columns=KEY)
        return cls(table, saved.digest, tuple(saved.first), tuple(saved.second or ()))

    def check(self, labels: pd.DataFrame) -> None:
        """Raise `RunError` if a label belongs to another plan.

        Args:
            labels: from `read_label_file`.
        """
        positions = self.positions(labels)
        is_second = (labels["phase"] == 2).to_numpy()
        is_planned = np.where(
            is_second, np.isin(positions, self.second), np.isin(positions, self.first)
        )
        is_other = ~is_planned | (labels["plan"] != self.digest).to_numpy()
        if is_other.any():
            question_id = labels["question_id"].to_numpy()[is_other][0]
            raise RunError(
                f"{is_other.sum()} labels do not belong to this plan, the first of them that of "
                f"question {question_id!r}; restore the plan of these labels, or use another "
                "label file"
            )

    def positions(self, table: pd.DataFrame) -> NDArray[np.intp]:
        """Return the position in the plan of each row; -1 for an answer that is not in the plan.

        Args:
            table: has the columns dataset, question_id and answer.
        """
        answers = pd.MultiIndex.from_frame(self.table)
        positions: NDArray[np.intp] = answers.get_indexer(pd.MultiIndex.from_frame(table[KEY]))
        return positions


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


def _read_saved_plan(path: str | Path) -> _SavedPlan:
    with reading(path):
        values = json.loads(regular(path).read_text(encoding="utf-8"))
    saved: _SavedPlan = parse(_SavedPlan, values, str(path))
    if any(len(answer) != len(KEY) for answer in saved.answers):
        raise RunError(f"{path}: each of the answers must be a list of {', '.join(KEY)}")
    if len(set(map(tuple, saved.answers))) < len(saved.answers):
        raise RunError(f"{path}: an answer is listed twice")
    positions = [*saved.first, *(saved.second or [])]
    if len(set(positions)) < len(positions) or max(positions, default=0) >= len(saved.answers):
        raise RunError(
            f"{path}: first and second must be different positions below {len(saved.answers)}"
        )
    if len(saved.second or []) != len(saved.probabilities or []):
        raise RunError(f"{path}: second and probabilities must have the same length")
    return saved
