"""The answers that a plan chose from, and which labels belong to the questions of today."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.common.files import RunError, parse, reading, regular
from pro_lib.common.validation import Format, Name, PositiveInt, Probability, Text, WholeNumber
from pro_lib.evaluation.labels.label_file import KEY
from pro_lib.questions.repeats import normalized_question

_Key = tuple[str, str, str]


class SavedPlan(Format):
    """The file of a plan.

    `answers` has dataset, question_id and `answer_key` of each answer, `questions` the texts of
    their questions, and `digest` identifies them. `first` and `second` are positions among them.
    Old files have no `questions`.
    """

    version: Literal[1]
    digest: Name
    answers: list[list[Text]]
    questions: list[Text] | None = None
    n_labels: PositiveInt
    seed: WholeNumber
    first: list[WholeNumber]
    second: list[WholeNumber] | None
    probabilities: list[Probability] | None


@dataclass(frozen=True)
class CurrentLabels:
    """The labels that count for the answers of today, and what has changed since they were given.

    A label belongs to the text of its question and to the words of its answer.

    Attributes:
        labels: the labels that count, and those of answers that the evaluations do not have.
        notes: a sentence about each kind of change.
    """

    labels: pd.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PlanAnswers:
    """The G answers that a plan chose from, as its file has them.

    Attributes:
        table: a row per answer, in the order of the plan: dataset, question_id, answer and
            question, the text of the question; empty if it is unknown.
        digest: a hash of these answers, in hexadecimal.
        first: positions of the answers of the first phase; None if only the labels know them.
        second: positions of the answers of the second phase; None before it is drawn.
    """

    table: pd.DataFrame
    digest: str
    first: tuple[int, ...] | None = None
    second: tuple[int, ...] | None = None

    @classmethod
    def read(cls, path: str | Path) -> PlanAnswers:
        """Return the answers of a saved plan.

        Args:
            path: a file that `LabelPlan.save` wrote.

        Raises:
            RunError: if the file cannot be read.
        """
        return cls.from_saved(read_saved_plan(path))

    @classmethod
    def from_saved(cls, saved: SavedPlan) -> PlanAnswers:
        """Return the answers of the content of a file."""
        table = pd.DataFrame(saved.answers, columns=KEY)
        table["question"] = saved.questions or ""
        second = None if saved.second is None else tuple(saved.second)
        return cls(table, saved.digest, tuple(saved.first), second)

    def check(self, labels: pd.DataFrame) -> None:
        """Raise `RunError` if a label belongs to another plan.

        Args:
            labels: from `read_label_file`.
        """
        positions = self.positions(labels)
        is_second = (labels["phase"] == 2).to_numpy()
        is_planned = np.where(
            is_second,
            np.isin(positions, self.second or ()),
            np.isin(positions, self.first or ()),
        )
        is_other = ~is_planned | (labels["plan"] != self.digest).to_numpy()
        if is_other.any():
            question_id = labels["question_id"].to_numpy()[is_other][0]
            raise RunError(
                f"{is_other.sum()} labels do not belong to this plan, the first of them that of "
                f"question {question_id!r}; restore the plan of these labels, or use another "
                "label file"
            )

    def positions(self, labels: pd.DataFrame) -> NDArray[np.intp]:
        """Return the position in the plan of each label; -1 for an answer that is not in it.

        Labels have the question_id of their plan, also if the question has another one today.
        """
        positions = [self._place_of_key.get(key, -1) for key in _keys(labels)]
        return np.array(positions, dtype=np.intp)

    def places(self, answers: pd.DataFrame) -> NDArray[np.intp]:
        """Return the position in the plan of each answer of today; -1 if it is not in the plan.

        The text of the question decides. If the plan does not have the text, the question_id
        decides.

        Args:
            answers: the table of `Answers`.
        """
        found = [self._place_of_text.get(key, -1) for key in _text_keys(answers)]
        places = np.array(found, dtype=np.intp)
        by_id = self.positions(answers)
        # An answer that was found by its text is not also the answer to another question.
        by_id[np.isin(by_id, places)] = -1
        return np.where(places < 0, by_id, places)

    @cached_property
    def _place_of_key(self) -> dict[_Key, int]:
        return {key: place for place, key in enumerate(_keys(self.table))}

    @cached_property
    def _place_of_text(self) -> dict[_Key | None, int]:
        return {key: place for place, key in enumerate(_text_keys(self.table)) if key}

    def part(self, kept: NDArray[np.intp]) -> PlanAnswers:
        """Return the plan of some of the answers.

        Args:
            kept: their positions (k,), in ascending order.
        """
        return replace(
            self,
            table=self.table.iloc[kept].reset_index(drop=True),
            first=_new_positions(self.first, kept),
            second=_new_positions(self.second, kept),
        )

    def current_labels(self, labels: pd.DataFrame, answers: pd.DataFrame) -> CurrentLabels:
        """Return the labels that count for the answers of today.

        Args:
            labels: from `read_label_file`, of this plan.
            answers: the table of `Answers`.
        """
        rows = answers.to_dict("records")
        row_of_place = dict(zip(self.places(answers).tolist(), rows, strict=True))
        row_of_id = {(row["dataset"], row["question_id"]): row for row in rows}
        is_current = []
        kinds: Counter[str] = Counter()
        positions = self.positions(labels).tolist()
        for label, position in zip(labels.to_dict("records"), positions, strict=True):
            row = row_of_place.get(position) if position >= 0 else None
            question_row = row or row_of_id.get((label["dataset"], label["question_id"]), {})
            is_changed = _is_changed(label["question"], question_row.get("question", ""))
            # A label of an answer that the evaluations do not have counts for the weights only.
            is_current.append(position >= 0 and not (row and is_changed))
            if is_changed:
                kinds[_CHANGED] += 1
            elif position < 0:
                kinds[_GONE] += 1
            elif row:
                kinds.update(_notes_of_current(label, row))
        notes = tuple(f"{kind}: {count:,}." for kind, count in kinds.items())
        return CurrentLabels(labels[np.array(is_current, dtype=bool)], notes)


_CHANGED = "Labels that do not count, because the text of their question has changed"
_GONE = "Labels that do not count, because their answer has changed or no longer exists"
_WITHOUT_QUESTION = (
    "Labels from before label files contained the question, so that a changed question is not "
    "noticed"
)
_OTHER_REFERENCES = "Labels that count, although the references have changed since"


def _notes_of_current(label: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Return the kinds of notes about a label that counts for an answer."""
    notes = []
    if row["question"] and not label["question"]:
        notes.append(_WITHOUT_QUESTION)
    if label["references"] and row["references"] not in ("", label["references"]):
        notes.append(_OTHER_REFERENCES)
    return notes


def _is_changed(stored: str, current: str) -> bool:
    """Return whether both texts of a question are known, and they differ."""
    if not stored or not current:
        return False
    return normalized_question(stored) != normalized_question(current)


def _keys(table: pd.DataFrame) -> list[_Key]:
    """Return dataset, question_id and answer of each row."""
    return list(zip(*(table[name] for name in KEY), strict=True))


def _text_keys(table: pd.DataFrame) -> list[_Key | None]:
    """Return dataset, question and answer of each row; None if the question is unknown."""
    keys: list[_Key | None] = []
    for (dataset, _, answer), question in zip(_keys(table), table["question"], strict=True):
        keys.append((dataset, normalized_question(question), answer) if question else None)
    return keys


def _new_positions(
    positions: tuple[int, ...] | None, kept: NDArray[np.intp]
) -> tuple[int, ...] | None:
    """Return positions among the kept ones, without those that are not kept."""
    if positions is None:
        return None
    is_kept = np.isin(positions, kept)
    return tuple(np.searchsorted(kept, np.array(positions, dtype=np.intp)[is_kept]).tolist())


def read_saved_plan(path: str | Path) -> SavedPlan:
    """Return the content of the file of a plan.

    Raises:
        RunError: if the file cannot be read, or its values contradict each other.
    """
    with reading(path):
        values = json.loads(regular(path).read_text(encoding="utf-8"))
    saved: SavedPlan = parse(SavedPlan, values, str(path))
    if any(len(answer) != len(KEY) for answer in saved.answers):
        raise RunError(f"{path}: each of the answers must be a list of {', '.join(KEY)}")
    if len(set(map(tuple, saved.answers))) < len(saved.answers):
        raise RunError(f"{path}: an answer is listed twice")
    if saved.questions is not None and len(saved.questions) != len(saved.answers):
        raise RunError(f"{path}: questions and answers must have the same length")
    positions = [*saved.first, *(saved.second or [])]
    if len(set(positions)) < len(positions) or max(positions, default=0) >= len(saved.answers):
        raise RunError(
            f"{path}: first and second must be different positions below {len(saved.answers)}"
        )
    if len(saved.second or []) != len(saved.probabilities or []):
        raise RunError(f"{path}: second and probabilities must have the same length")
    return saved
