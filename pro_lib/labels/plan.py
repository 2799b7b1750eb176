"""Which answers to label next: a plan of two phases that is saved as JSON and continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from pro_lib.common.files import RunError, reading, regular, write_whole
from pro_lib.common.validation import (
    Format,
    Name,
    PositiveInt,
    Probability,
    Text,
    WholeNumber,
)
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.labels.answers import Answers, collect_answers, scores_at_alphas
from pro_lib.labels.drawing import first_phase, first_size, second_phase, second_probabilities
from pro_lib.labels.file import KEY, Label, merge_labels
from pro_lib.labels.inference import Ranking
from pro_lib.metrics.roc import IntArray
from pro_lib.questions.repeats import normalized_question

FEWEST_PLANNED = 20
REPEAT_EVERY = 10  # after so many answers, an earlier one is shown again
_N_REMEMBERED = 8  # but none of the last answers, which the labeller still remembers
_STREAMS = {"first": 1, "second": 2, "repetitions": 3}
_CHANGED = "Labels that do not count, because the text of their question has changed"
_GONE = "Labels that do not count, because their answer has changed or no longer exists"
_WITHOUT_QUESTION = (
    "Labels from before label files contained the question, so that a changed question is not "
    "noticed"
)
_OTHER_REFERENCES = "Labels that count, although the references have changed since"
_Key = tuple[Text, Text, Text]
_Positions = tuple[WholeNumber, ...]


@dataclass(frozen=True)
class Request:
    """An answer to show to the labeller.

    Attributes:
        unit: its position among the answers of the plan.
        is_repetition: whether it was shown before. The labeller must not see this.
        question_id: the smallest of the questions with this text, as the evaluation has it.
        question: the text of the question; empty if it is unknown.
        references: a hash of the references.
        text: the answer.
    """

    unit: int
    is_repetition: bool
    question_id: str
    question: str
    references: str
    text: str


@dataclass(frozen=True)
class CurrentLabels:
    """The labels that count for the answers of today, and what has changed since they were given.

    A label belongs to the text of its question and to the words of its answer.

    Attributes:
        labels: with the columns `unit`, the position in the plan, and `row`, that among the answers
            of today. Labels of answers that do not exist today (row -1) count for the weights only.
        notes: a sentence about each kind of change.
    """

    labels: pd.DataFrame
    notes: tuple[str, ...]


class LabelPlan(Format):
    """Which of the answers of an evaluation to label, in which order.

    The first phase is drawn when the plan is created. The second phase is drawn by `advance` from
    the labels of the first, and is fixed from then on. Both depend on the evaluation, α, the seed
    and these labels only. All labellers of a plan use one label file.

    A plan stays valid as long as some of its answers exist. Answers that the evaluation gets later
    are outside the plan, and answers that it does not have any more are not shown.

    Attributes:
        version: of the file format.
        digest: a hash of the planned answers, in hexadecimal.
        answers: dataset, question_id and `answer_key` of each planned answer.
        questions: the texts of their questions; empty if unknown. Old files do not have them.
        n_labels: the planned number of different answers to label.
        seed: of all random choices.
        first: positions of the answers of the first phase, in their order.
        second: positions of the answers of the second phase, in their order; None before it is
            drawn.
        probabilities: their inclusion probabilities.
        today: the `Answers` of today among the planned ones; None if the plan was read without an
            evaluation. They are not stored.
        n_outside: the number of answers of today that are not in the plan. It is not stored.

    Example:
        >>> plan = LabelPlan.create(evaluation, n_labels=100)  # doctest: +SKIP
        >>> plan.save("plan.json")  # doctest: +SKIP
        >>> labels = read_label_file("labels.jsonl")  # doctest: +SKIP
        >>> # Draw the second phase when the first is complete.
        >>> plan = plan.advance(labels)  # doctest: +SKIP
        >>> request = plan.next_request(labels, "ada")  # doctest: +SKIP
        >>> label = plan.label(request, True, labeller="ada")  # doctest: +SKIP
        >>> append_label("labels.jsonl", label)  # doctest: +SKIP
    """

    version: Literal[1] = 1
    digest: Name
    answers: tuple[_Key, ...]
    questions: tuple[Text, ...] | None = None
    n_labels: PositiveInt
    seed: WholeNumber
    first: _Positions
    second: _Positions | None = None
    probabilities: tuple[Probability, ...] | None = None
    today: Any = Field(default=None, exclude=True)
    n_outside: int = Field(default=0, exclude=True)

    @model_validator(mode="after")
    def _check_lengths(self) -> LabelPlan:
        n_answers = len(self.answers)
        positions = [*self.first, *(self.second or ())]
        if len(set(self.answers)) < n_answers:
            raise ValueError("an answer is listed twice")
        if len(self.questions or self.answers) != n_answers:
            raise ValueError("questions and answers must have the same length")
        if len(set(positions)) < len(positions) or max(positions, default=0) >= n_answers:
            raise ValueError(f"first and second must be different positions below {n_answers}")
        if len(self.second or ()) != len(self.probabilities or ()):
            raise ValueError("second and probabilities must have the same length")
        return self

    @classmethod
    def create(cls, evaluation: Evaluation, *, n_labels: int = 100, seed: int = 0) -> LabelPlan:
        """Draw the first phase of a plan.

        Args:
            evaluation: the answers.
            n_labels: how many different answers to label. The estimates were tested with 60, 100
                and 200 labels.
            seed: of all random choices.

        Returns:
            The plan.

        Raises:
            RunError: if `n_labels` is below `FEWEST_PLANNED`.
        """
        if n_labels < FEWEST_PLANNED:
            raise RunError(
                f"the number of planned labels must be at least {FEWEST_PLANNED}; got {n_labels}"
            )
        answers = collect_answers(evaluation)
        rng = np.random.default_rng([seed, _STREAMS["first"]])
        first = first_phase(answers.strata, first_size(n_labels, len(answers)), rng)
        return cls(
            digest=answers.digest,
            answers=tuple(_keys(answers.table)),
            questions=tuple(answers.table["question"]),
            n_labels=min(n_labels, len(answers)),
            seed=seed,
            first=tuple(first.tolist()),
            today=answers,
        )

    @classmethod
    def read(cls, path: str | Path, evaluation: Evaluation | None = None) -> LabelPlan:
        """Return a saved plan.

        Args:
            path: a file that `save` wrote.
            evaluation: that of the plan's answers. It may have got further answers, and may have
                lost some. Without it, nothing can be drawn or shown.

        Returns:
            The plan.

        Raises:
            RunError: if the file cannot be read, or the evaluation has none of its answers.
        """
        with reading(path, hint="restore the plan of the labels, or use another label file"):
            plan = cls.model_validate_json(regular(path).read_bytes())
        if evaluation is None:
            return plan
        answers = collect_answers(evaluation)
        is_planned = plan.places(answers) >= 0
        if not is_planned.any():
            raise RunError(
                f"{path} is a plan for other answers: none of its {len(plan.answers)} answers is "
                f"among these {len(answers)}; use another label file"
            )
        if not is_planned.all():
            answers = collect_answers(answers.evaluation.rows(is_planned[answers.units]))
        return plan.model_copy(update={"today": answers, "n_outside": int((~is_planned).sum())})

    def reread(self, path: str | Path) -> LabelPlan:
        """Return the plan with the second phase of its file, if another process has drawn it.

        Args:
            path: the file that `save` wrote.

        Raises:
            RunError: if the file cannot be read, or has become another plan.
        """
        saved = LabelPlan.read(path)
        fixed = {"digest", "n_labels", "seed", "first"}
        if saved.model_dump(include=fixed) != self.model_dump(include=fixed):
            raise RunError(f"{path} was replaced by another plan; open the label file again")
        second = {"second": saved.second, "probabilities": saved.probabilities}
        return self.model_copy(update=second)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, completely or not at all."""
        write_whole(f"{self.model_dump_json()}\n".encode(), Path(path))

    def check(self, labels: pd.DataFrame) -> None:
        """Raise `RunError` if a label belongs to another plan, or to another draw of this plan.

        Args:
            labels: from `read_label_file`.
        """
        draws = self._draws()
        units = self.positions(labels).tolist()
        given = zip(units, labels["phase"], labels["probability"], strict=True)
        is_drawn = [draws.get(unit) == (phase, probability) for unit, phase, probability in given]
        other = labels[~np.array(is_drawn, dtype=bool) | (labels["plan"] != self.digest)]
        if len(other):
            raise RunError(
                f"{len(other)} labels do not belong to this plan, the first of them that of "
                f"question {other['question_id'].iloc[0]!r}; restore the plan of these labels, or "
                "use another label file"
            )

    def _draws(self) -> dict[int, tuple[int, float]]:
        """Return the phase and the inclusion probability of each chosen answer."""
        draws = {unit: (1, len(self.first) / len(self.answers)) for unit in self.first}
        for unit, probability in zip(self.second or (), self.probabilities or (), strict=True):
            draws[unit] = (2, probability)
        return draws

    def positions(self, labels: pd.DataFrame) -> IntArray:
        """Return the position in the plan of each label; -1 for an answer that is not in it.

        Labels have the question_id of their plan, also if the question has another one today.
        """
        return np.array([self._place_of_key.get(key, -1) for key in _keys(labels)], dtype=np.intp)

    def places(self, answers: Answers) -> IntArray:
        """Return the position in the plan of each answer of today; -1 if it is not in the plan.

        The text of the question decides. If the plan does not have the text, the question_id
        decides.
        """
        found = [self._place_of_text.get(key, -1) for key in _text_keys(answers.table)]
        places = np.array(found, dtype=np.intp)
        by_id = self.positions(answers.table)
        # An answer that was found by its text is not also the answer to another question.
        by_id[np.isin(by_id, places)] = -1
        return np.where(places < 0, by_id, places)

    @cached_property
    def _place_of_key(self) -> dict[_Key, int]:
        return {key: place for place, key in enumerate(self.answers)}

    @cached_property
    def _place_of_text(self) -> dict[_Key | None, int]:
        table = pd.DataFrame(list(self.answers), columns=KEY).assign(question=self.questions or "")
        return {key: place for place, key in enumerate(_text_keys(table)) if key}

    @cached_property
    def _rows(self) -> dict[int, int]:
        """The row in the table of `today` of each position that exists."""
        return _row_of_place(self.places(self.today))

    def current_labels(self, labels: pd.DataFrame, answers: Answers | None = None) -> CurrentLabels:
        """Return the labels that count for the answers of today.

        Args:
            labels: from `read_label_file`, of this plan.
            answers: those of today; None for all that the plan has.
        """
        is_whole = answers is None or answers is self.today
        answers = self.today if answers is None else answers
        rows = self._rows if is_whole else _row_of_place(self.places(answers))
        units = self.positions(labels)
        places = np.array([rows.get(unit, -1) for unit in units.tolist()], dtype=np.intp)
        exists = places >= 0
        # The question of an answer that is gone may exist.
        by_id = [answers.row_of_question.get(name, -1) for name in labels["question_id"]]
        shown = answers.table.reindex(np.where(exists, places, by_id))
        question, references = shown[["question", "references"]].fillna("").to_numpy(object).T
        pairs = zip(labels["question"], question, strict=True)
        is_changed = np.array([_is_changed(*pair) for pair in pairs], dtype=bool)
        counts = exists & ~is_changed
        given = labels["references"].to_numpy(object)
        changes = {
            _CHANGED: is_changed,
            _GONE: ~exists & ~is_changed & (is_whole | (units < 0)),
            _WITHOUT_QUESTION: counts & (question != "") & (labels["question"] == "").to_numpy(),
            _OTHER_REFERENCES: counts & (given != "") & (references != "") & (references != given),
        }
        notes = tuple(f"{kind}: {is_so.sum():,}." for kind, is_so in changes.items() if is_so.any())
        is_current = (units >= 0) & ~(is_changed & exists)
        return CurrentLabels(labels.assign(unit=units, row=places)[is_current], notes)

    def advance(self, labels: pd.DataFrame, alphas: Mapping[str, float] | None = None) -> LabelPlan:
        """Draw the second phase as soon as all answers of the first phase have a label.

        Save the plan afterwards: the second phase must not be drawn again after a label of the
        first has changed.

        Args:
            labels: from `read_label_file`, of one or several labellers, or from `current_labels`.
            alphas: α of the scores that need one, as in `scores_at_alphas`.

        Returns:
            The plan with the second phase, or the same plan.
        """
        current = self._current(labels)
        if self.is_drawn or not self.is_first_complete(current):
            return self
        merged = merge_labels(current[current["row"] >= 0])
        answers = self.today
        units = np.array(list(self._rows))
        values = np.full(len(units), np.nan)
        values[merged["row"]] = merged["correct"].astype(float)
        scores = scores_at_alphas(answers.evaluation, alphas)
        probabilities = second_probabilities(
            Ranking.from_scores(scores, answers.units, len(units)),
            answers.features,
            values,
            np.isin(units, self.first),
            n_second=self.n_labels - len(self.first),
        )
        chosen = second_phase(probabilities, np.random.default_rng([self.seed, _STREAMS["second"]]))
        second = tuple(units[chosen].tolist())
        return self.model_copy(
            update={"second": second, "probabilities": tuple(probabilities[chosen].tolist())}
        )

    def is_first_complete(self, current: pd.DataFrame) -> bool:
        """Return whether all answers of the first phase that exist have a label.

        Args:
            current: from `current_labels`.
        """
        return self._rows.keys() & self.first <= set(current["unit"])

    def _current(self, labels: pd.DataFrame) -> pd.DataFrame:
        """Return the labels that count, unless they are those already."""
        if "unit" in labels:
            return labels
        self.check(labels)
        return self.current_labels(labels).labels

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about answers that were added or lost after the plan was made."""
        notes = []
        if self.n_outside:
            notes.append(
                "Answers that are outside the plan and its estimates, because they were added or "
                f"changed after it was made: {self.n_outside:,}."
            )
        n_gone = len(self.answers) - len(self._rows)
        if n_gone:
            notes.append(
                "Planned answers that are not shown, because they have changed or no longer "
                f"exist: {n_gone:,}."
            )
        return tuple(notes)

    @property
    def is_drawn(self) -> bool:
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
            labels: from `read_label_file` or `current_labels`; empty before the first label.
            labeller: name of the person.

        Returns:
            The answer, or None if this labeller has labelled all answers of the phases drawn so
            far. Call `advance` first, because it may draw further answers.
        """
        labelled = self._current(labels[labels["labeller"] == labeller])
        done = set(zip(labelled["unit"], labelled["repetition"], strict=True))
        for unit, is_repetition in self.requests():
            if unit in self._rows and (unit, is_repetition) not in done:
                return self.request(unit, is_repetition)
        return None

    def request(self, unit: int, is_repetition: bool) -> Request:
        """Return an answer of the plan that exists, to be shown."""
        row = self.today.table.iloc[self._rows[unit]]
        return Request(unit, is_repetition, *row[["question_id", "question", "references", "text"]])

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
        # The plan's own question_id, because labels and plan must agree if ids change.
        dataset, question_id, _ = self.answers[request.unit]
        phase, probability = self._draws()[request.unit]
        return Label(
            dataset=dataset,
            question_id=question_id,
            question=request.question,
            references=request.references,
            text=request.text,
            correct=correct,
            labeller=labeller,
            repetition=request.is_repetition,
            phase=phase,
            probability=probability,
            n_first=len(self.first),
            n_second=len(self.second or ()) if phase == 2 else 0,
            n_answers=len(self.answers),
            plan=self.digest,
            **values,
        )


def plan_path(path: str | Path) -> Path:
    """Return the file of the plan of a label file.

    It is in the same folder. The suffix `.plan.json` replaces `.jsonl` or `.json`, or follows
    another suffix.

    Example:
        >>> [plan_path(name).name for name in ("quiz.labels.jsonl", "a.json", "answers.1")]
        ['quiz.labels.plan.json', 'a.plan.json', 'answers.1.plan.json']
    """
    path = Path(path)
    name = path.stem if path.suffix in (".jsonl", ".json") else path.name
    return path.with_name(f"{name}.plan.json")


def _row_of_place(places: IntArray) -> dict[int, int]:
    """Return the row of each place."""
    return {place: row for row, place in enumerate(places.tolist())}


def _is_changed(stored: str, current: str) -> bool:
    """Return whether both texts of a question are known, and they differ."""
    if not stored or not current or stored == current:
        return False
    return normalized_question(stored) != normalized_question(current)


def _keys(table: pd.DataFrame) -> list[_Key]:
    """Return dataset, question_id and answer of each row."""
    return list(zip(*(table[name].tolist() for name in KEY), strict=True))


def _text_keys(table: pd.DataFrame) -> list[_Key | None]:
    """Return dataset, question and answer of each row; None if the question is unknown."""
    keys: list[_Key | None] = []
    for (dataset, _, answer), question in zip(_keys(table), table["question"], strict=True):
        keys.append((dataset, normalized_question(question), answer) if question else None)
    return keys
