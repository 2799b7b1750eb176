"""Which answers to label, in which order: a plan of two phases that is stored as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import model_validator

from pro_lib.common.files import RunError, json_digest, reading, regular, write_whole
from pro_lib.common.validation import (
    Format,
    Name,
    PositiveInt,
    Probability,
    Text,
    WholeNumber,
)
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.labels.answer_units import AnswerUnits, answer_units
from pro_lib.labels.file import KEY
from pro_lib.labels.sampling import first_phase, first_size, second_phase
from pro_lib.metrics.roc import FloatArray, IntArray
from pro_lib.questions.repeats import normalized_question

FEWEST_PLANNED = 20
REPEAT_EVERY = 10  # after so many answers, an earlier one is shown again
_N_REMEMBERED = 8  # but none of the last answers, which the labeller still remembers
_STREAMS = {"first": 1, "second": 2, "repetitions": 3}
_Key = tuple[Text, Text, Text]
_Positions = tuple[WholeNumber, ...]


class LabelPlan(Format):
    """Which of the answers of an evaluation to label, in which order.

    The first phase is drawn when the plan is created. The second phase is drawn from the labels of
    the first (`PlannedAnswers.advance`), and is fixed from then on. Both depend on the evaluation,
    α, the seed and these labels only. All labellers of a plan use one label file.

    Attributes:
        version: of the file format.
        digest: a hash of the planned answers, in hexadecimal.
        answers: dataset, question_id and `answer_key` of each planned answer.
        questions: the texts of their questions; empty if unknown. Old files do not have them.
        n_labels: the planned number of different answers to label.
        seed: of all random choices.
        first: positions in `answers` of the first phase, in their order.
        second: positions of the second phase, in their order; None before it is drawn.
        probabilities: their inclusion probabilities.
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
        answers = answer_units(evaluation)
        rng = np.random.default_rng([seed, _STREAMS["first"]])
        first = first_phase(answers.strata, first_size(n_labels, len(answers)), rng)
        return cls(
            digest=json_digest(answers.table[KEY].to_numpy().tolist())[:16],
            answers=tuple(_keys(answers.table)),
            questions=tuple(answers.table["question"]),
            n_labels=min(n_labels, len(answers)),
            seed=seed,
            first=tuple(first.tolist()),
        )

    @classmethod
    def read(cls, path: str | Path) -> LabelPlan:
        """Return a plan that `save` wrote.

        Raises:
            RunError: if the file cannot be read.
        """
        with reading(path, hint="restore the plan of the labels, or use another label file"):
            return cls.model_validate_json(regular(path).read_bytes())

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, completely or not at all."""
        write_whole(f"{self.model_dump_json()}\n".encode(), Path(path))

    def check(self, labels: pd.DataFrame) -> IntArray:
        """Check that labels belong to this plan, and return the positions of their answers.

        Args:
            labels: from `read_label_file`.

        Raises:
            RunError: if a label belongs to another plan, or to another draw of this plan.
        """
        draws = self.draws()
        position_of = {self.answers[position]: position for position in draws}
        positions = [position_of.get(key, -1) for key in _keys(labels)]
        given = zip(labels["phase"], labels["probability"], strict=True)
        drawn = map(draws.get, positions)
        is_drawn = [pair == draw for pair, draw in zip(given, drawn, strict=True)]
        other = labels[~np.array(is_drawn, dtype=bool) | (labels["plan"] != self.digest)]
        if len(other):
            raise RunError(
                f"{len(other)} labels do not belong to this plan, the first of them that of "
                f"question {other['question_id'].iloc[0]!r}; restore the plan of these labels, or "
                "use another label file"
            )
        return np.array(positions, dtype=np.intp)

    def draws(self) -> dict[int, tuple[int, float]]:
        """Return the phase and the inclusion probability of each chosen position."""
        draws = {position: (1, len(self.first) / len(self.answers)) for position in self.first}
        for position, probability in zip(self.second or (), self.probabilities or (), strict=True):
            draws[position] = (2, probability)
        return draws

    def positions_of_answers(self, answers: AnswerUnits) -> IntArray:
        """Return the position of each different answer (G,) of today; -1 if it is not planned.

        The text of the question decides. If the plan does not have the text, the question_id
        decides.
        """
        planned = pd.DataFrame(list(self.answers), columns=KEY)
        keys = _text_keys(planned.assign(question=self.questions or ""))
        position_of = {key: position for position, key in enumerate(keys) if key}
        by_text = [position_of.get(key, -1) for key in _text_keys(answers.table)]
        positions = np.array(by_text, dtype=np.intp)
        position_of = {key: position for position, key in enumerate(self.answers)}
        by_id = np.array([position_of.get(key, -1) for key in _keys(answers.table)], dtype=np.intp)
        # An answer that was found by its text is not also the answer to another question.
        by_id[np.isin(by_id, positions)] = -1
        return np.where(positions < 0, by_id, positions)

    @property
    def is_drawn(self) -> bool:
        """Whether all phases are drawn."""
        return self.second is not None or self.n_labels == len(self.first)

    def with_second_phase(self, positions: IntArray, probabilities: FloatArray) -> LabelPlan:
        """Return the plan with a second phase, drawn from positions with these probabilities."""
        chosen = second_phase(probabilities, np.random.default_rng([self.seed, _STREAMS["second"]]))
        second = tuple(positions[chosen].tolist())
        return self.model_copy(
            update={"second": second, "probabilities": tuple(probabilities[chosen].tolist())}
        )

    def requests(self) -> list[tuple[int, bool]]:
        """Return the positions in the order in which they are shown, and which are repetitions.

        After every tenth answer, one earlier answer is shown again. No answer is repeated twice.
        The repetitions of the first phase do not change when the second phase is drawn.
        """
        order = [*self.first, *(self.second or ())]
        shown: list[tuple[int, bool]] = []
        repeated: set[int] = set()
        for number, position in enumerate(order, start=1):
            shown.append((position, False))
            if number % REPEAT_EVERY == 0:
                earlier = order[: number - _N_REMEMBERED]
                candidates = [each for each in earlier if each not in repeated]
                rng = np.random.default_rng([self.seed, _STREAMS["repetitions"], number])
                repetition = candidates[rng.integers(len(candidates))]
                repeated.add(repetition)
                shown.append((repetition, True))
        return shown


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


def _keys(table: pd.DataFrame) -> list[_Key]:
    """Return dataset, question_id and answer of each row."""
    return list(zip(*(table[name].tolist() for name in KEY), strict=True))


def _text_keys(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return dataset, question and answer of each row; () if the question is unknown."""
    keys: list[tuple[str, ...]] = []
    for (dataset, _, answer), question in zip(_keys(table), table["question"], strict=True):
        keys.append((dataset, normalized_question(question), answer) if question else ())
    return keys
