"""A file of questions as a table, one of ours or a user's; knows its columns, not what is asked of them."""

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pro_lib.bundled import DATA
from pro_lib.checks import Format, Name, SentenceError, fitted
from pro_lib.readers import Identity, Source, Texts, called, once, read_rows

SPLITS = ("train_shots", "validation", "test")
COLUMNS = ("question_id", "question", "references", "split")
# Name: file of the world facts, and its column of the questions.
BUNDLED = {
    "world-facts": ("facts.jsonl", "question"),
    "world-facts-reworded": ("facts.jsonl", "question_reworded"),
}
Used = dict[str, list[str]]


class QuestionsError(SentenceError):
    """A question file or a request for questions is wrong; the sentence names file, row or parameter."""


def _texts(values: Sequence[object]) -> list[str]:
    """The texts of all values, each once; a value may be missing, but not all of them."""
    found: list[str] = []
    for value in values:
        if value is None or value is pd.NA or (isinstance(value, float) and value != value):
            continue
        parts = value.split(";") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple, np.ndarray)) or not all(isinstance(part, str) for part in parts):
            raise PydanticCustomError("rule", "must be text or lists of texts")
        found += [part.strip() for part in parts if part.strip()]
    if not found:
        raise PydanticCustomError("rule", "must hold a text")
    return list(dict.fromkeys(found))


One = Annotated[Texts, Field(max_length=1)]


class Columns(Format, extra="forbid"):
    """A file's names for our columns."""

    question_id: One | None = None
    question: One | None = None
    references: Texts | None = None
    split: One | None = None


class Question(Format):
    """A row of a question file."""

    question_id: Identity
    question: Name
    split: Name
    references: Annotated[list[str], BeforeValidator(_texts)]


def question_table(table: pd.DataFrame, reference_columns: Sequence[str]) -> pd.DataFrame:
    """The table with all of `COLUMNS`, each question with an id of its own, text and at least one reference.

    The table's index says where its rows come from. Raises `QuestionsError` with that place and the column.
    """
    rows, places = [], {}
    answers = list(zip(*(table[name] for name in reference_columns), strict=True))
    asked = table[["question_id", "question", "split"]].assign(references=answers).to_dict("records")
    for where, row in zip(table.index, asked, strict=True):
        rows.append(fitted(Question, row, where, QuestionsError))
        once(rows[-1].question_id, where, places, QuestionsError)
    others = [name for name in table if name not in (*COLUMNS, *reference_columns)]
    checked = {name: [getattr(row, name) for row in rows] for name in ("question_id", "references")}
    # Whole numbers among which some are missing would become floats.
    told = {name: table[name].infer_objects() for name in others if table[name].notna().all()}
    return table.assign(**checked, **told)[[*COLUMNS, *others]].reset_index(drop=True)


def read_questions(path: Source, columns: Mapping[str, str | Sequence[str]]) -> tuple[pd.DataFrame, Used]:
    """The questions of a file or in memory, and its columns that ours were read from.

    `columns` are its names for ours, as `questions.load` has them. Raises `QuestionsError` with file and line or row.
    """
    asked = fitted(Columns, columns, "columns=", QuestionsError).model_dump(exclude_none=True)
    name, table = called(path, "questions"), read_rows(path, QuestionsError)
    if table.empty:
        raise QuestionsError(f"{name} holds no questions")
    used = asked | {name: [name] for name in COLUMNS if name not in asked and name in table}
    wanted = [name for ours in ("question", "references") for name in used.get(ours, [ours])]
    missing = [name for name in [*wanted, *itertools.chain(*used.values())] if name not in table]
    if missing:
        names = ", ".join(map(str, table.columns))
        raise QuestionsError(f"{name} has no column {missing[0]!r}, nor does columns= say its name; it has {names}")
    ours = {wanted: table[names[0]] for wanted, names in used.items() if wanted != "references"}
    ours = {"question_id": [f"{name.stem}-{n}" for n in range(len(table))], "split": "test"} | ours
    renamed = {name for names in used.values() for name in names} - {*COLUMNS, *used["references"]}
    return question_table(table.drop(columns=list(renamed)).assign(**ours), used["references"]), used


@cache
def bundled_questions(name: str) -> pd.DataFrame:
    """All questions of a bundled set, which callers share."""
    file, question = BUNDLED[name]
    ours = {"question_id": "fact_id", "question": question, "references": ["answer", "aliases"]}
    table, _ = read_questions(DATA / "world_facts" / file, ours)
    added = ("relation", "exposure", "conflict", "n_true", "sentence")
    return table[[*COLUMNS, *(column for column in added if column in table)]]
