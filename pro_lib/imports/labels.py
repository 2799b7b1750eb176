"""Labels of answers, of people or of a judge model, read from a file; knows no run and no score."""

from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import BeforeValidator

from pro_lib.checks import Format, Text, fitted
from pro_lib.files import RunError
from pro_lib.readers import Identity, read_rows

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


class _Label(Format):
    """A row of a file of labels; an id may be a whole number, and `correct` 1 or 0."""

    question_id: Identity
    text: Text
    correct: Annotated[bool, BeforeValidator(lambda value: _TRUTH.get(str(value).strip().lower(), value))]


def read_labels(path: str | Path) -> pd.DataFrame:
    """Labels from outside, a row per question and answer: a CSV, Parquet or JSONL file of question_id, text, correct.

    Texts are taken as they are written; `correct` is true or false (1 or 0). Raises `RunError`, naming file and row,
    for anything else, and for two labels of one answer that differ.
    """
    found = read_rows(path)
    entries = zip(found.index, found.to_dict("records"), strict=True)
    rows = [dict(fitted(_Label, row, where, RunError)) for where, row in entries]
    table = pd.DataFrame(rows, columns=list(_Label.model_fields)).drop_duplicates(ignore_index=True)
    if table.empty:
        raise RunError(f"{path} holds no labels")
    twice = table["text"][table.duplicated(["question_id", "text"])]
    if len(twice):
        raise RunError(f"{path} calls answer {twice.iloc[0]!r} both right and wrong")
    return table
