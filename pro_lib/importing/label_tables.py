"""Files of correctness labels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import AfterValidator, BeforeValidator

from pro_lib.common.files import RunError, parse, without_spreadsheet_mark
from pro_lib.common.validation import Format, Text, not_empty
from pro_lib.questions.csv_files import BadRow
from pro_lib.questions.file_readers import Identity, rows_of

_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
# Values of the column `status` of `pro judge` for answers that have no verdict
_WITHOUT_VERDICT = ("refused", "undecided", "unknown")


def _truth_value(value: object) -> object:
    """Return True or False for the usual words and numbers, and any other value as it is."""
    return _TRUTH.get(str(value).strip().lower(), value)


_Unmarked = AfterValidator(without_spreadsheet_mark)
_OptionalText = Annotated[
    str, BeforeValidator(lambda value: value if isinstance(value, str) else ""), _Unmarked
]


class _Label(Format):
    """A row of a file of labels.

    An id may be a whole number, and `correct` 1 or 0.
    """

    question_id: Annotated[Identity, _Unmarked]
    text: Annotated[Text, _Unmarked]
    correct: Annotated[bool, BeforeValidator(_truth_value)]
    question: _OptionalText = ""
    accepted_answers: _OptionalText = ""


def is_sampled(row: Mapping[str, object]) -> bool:
    """Return whether a label is of a sample that `pro label` chose with known probabilities."""
    return {"plan", "probability"} <= set(row)


def read_labels(path: str | Path) -> pd.DataFrame:
    r"""Return correctness labels of answers from a CSV, Parquet or JSONL file.

    `pro score --output` writes a ``'`` before a text that a spreadsheet would take for a formula;
    it is removed here.

    Args:
        path: a file with the columns question_id, text (exactly as in the run) and correct (true or
            false, 1 or 0). Spaces and line ends around a text do not count. The question and the
            references must be equal to those in columns question and accepted_answers, if there
            are any. `pro judge` writes them, and a column status; rows without a verdict are
            skipped.

    Returns:
        The columns question_id, text and correct, one row for each question and answer. If the file
        has one of them, also question, accepted_answers, and place, which names file and row.

    Raises:
        RunError: a row is damaged, the file has no labels, two labels of an answer differ, or the
            labels are of a sample that `pro label` chose; names file and row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "labels.csv")
        ...     _ = file.write_text("question_id,text,correct\nq1,Paris,true\n")
        ...     read_labels(file).values.tolist()
        [['q1', 'Paris', True]]
    """
    labels = []
    for where, row in rows_of(not_empty(path, "path")):
        if isinstance(row, BadRow):
            raise RunError(f"{where}: {row.reason}")
        if is_sampled(row):
            raise RunError(
                f"{where}: these labels are of a sample, whose answers were chosen with different "
                "probabilities; use them in a notebook, or in pro score with one file of responses"
            )
        if row.get("status") not in _WITHOUT_VERDICT:
            labels.append(dict(parse(_Label, row, where), place=where))
    columns = list(_Label.model_fields)
    table = pd.DataFrame(labels, columns=[*columns, "place"])
    table = table.drop_duplicates(columns, ignore_index=True)
    if table.empty:
        raise RunError(f"{path} contains no labels")
    words = table.assign(text=table["text"].str.strip())
    verdicts = words.groupby(["question_id", "text"])["correct"].transform("nunique")
    contradictory = table["text"][verdicts > 1]
    if len(contradictory):
        raise RunError(f"{path} calls answer {contradictory.iloc[0]!r} both right and wrong")
    if (table[["question", "accepted_answers"]] == "").all(axis=None):
        return table[["question_id", "text", "correct"]]
    return table
