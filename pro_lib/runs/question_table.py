"""The questions of a run folder, with the references and splits of the last call that finished."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from pro_lib.common.files import sha256

QUESTION_COLUMNS = ("question_id", "question", "references", "split")
PROMPTED = ["question_id", "question"]  # the columns by which a stored answer is found
OWN = "_own"  # the further columns of the dataset, of any name and type, as one JSON text
# Whether the last finished call asked a question (None if it did not), and the path and the SHA-256
# of the file with its references. An unknown digest is None; without a file, the text is empty.
IS_LAST = "_is_last"
_CALL = pa.schema({IS_LAST: pa.bool_(), "_path": pa.string(), "_digest": pa.string()})


class OldReferencesWarning(UserWarning):
    """References and splits of a run may be older than those of its question file."""


def json_cell(value: object) -> object:
    """Return a value of a table as JSON can hold it.

    An array becomes a list, a missing value None, and a value of another type its text.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, int, list)):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if pd.isna(value) is True:
        return None
    return str(value)


def question_columns(questions: pd.DataFrame) -> pa.Table:
    """Return questions as they are stored, with their further columns as one JSON text."""
    table = pa.Table.from_pandas(questions.filter(QUESTION_COLUMNS), preserve_index=False)
    further = questions.drop(columns=list(QUESTION_COLUMNS), errors="ignore")
    # Some versions of pandas have no record of a row without columns.
    records = further.to_dict("records") or [{}] * len(questions)
    further_json = [json.dumps(row, default=json_cell) for row in records]
    return table.append_column(OWN, pa.array(further_json, pa.string()))


def question_frame(table: pa.Table) -> pd.DataFrame:
    """Return stored questions as a table with their further columns."""
    stored_columns = [name for name in table.column_names if name not in _CALL.names]
    questions = table.select(stored_columns).to_pandas()
    if "references" in questions:
        questions["references"] = [
            None if names is None else list(names) for names in questions["references"]
        ]
    place = questions.columns.get_loc(OWN)
    further = pd.DataFrame(map(json.loads, questions.pop(OWN)))
    before = questions.iloc[:, :place]
    after = questions.iloc[:, place:]
    return pd.concat([before, further, after], axis=1)


def stored_rows(questions: pd.DataFrame, stored: pd.DataFrame) -> NDArray[np.intp]:
    """Return the row of `stored` that answers each question, -1 if there is none.

    A stored answer answers a question with the same text. If several rows have the text, the row
    with the same question_id is taken, else the first one that no other question takes. A row never
    answers two questions.

    Args:
        questions: columns question_id and question.
        stored: the same columns, a row per stored question.

    Returns:
        Row numbers (n,).
    """
    row_by_key: dict[tuple[str, str], int] = {}
    rows_by_text: dict[str, list[int]] = {}
    for row, key in enumerate(zip(stored["question_id"], stored["question"], strict=True)):
        row_by_key[key] = row
        rows_by_text.setdefault(key[1], []).append(row)
    keys = list(zip(questions["question_id"], questions["question"], strict=True))
    rows = np.array([row_by_key.get(key, -1) for key in keys], dtype=np.intp)
    used_rows = set(rows.tolist())
    for place, (_, text) in enumerate(keys):
        if rows[place] < 0:
            free_rows = (row for row in rows_by_text.get(text, ()) if row not in used_rows)
            rows[place] = next(free_rows, -1)
            used_rows.add(int(rows[place]))
    return rows


def call_table(questions: pd.DataFrame, source: Mapping[str, Any], earlier: pa.Table) -> pa.Table:
    """Return the table of a finished call: its questions, then those that it did not ask.

    Args:
        questions: the questions of the call.
        source: where they come from, with the `path` and the `digest` of their file.
        earlier: the other questions with a stored answer, and their latest references.
    """
    path = source.get("path")
    call = (True, os.path.abspath(path) if path else None, source.get("digest") or "")
    table = question_columns(questions)
    for field, value in zip(_CALL, call, strict=True):
        table = table.append_column(field, pa.array([value] * len(questions), field.type))
    if IS_LAST in earlier.column_names:
        earlier = earlier.drop_columns([IS_LAST])
    return with_others(table, earlier)


def with_others(table: pa.Table, others: pa.Table) -> pa.Table:
    """Return stored questions, then others that they do not have.

    A question with the id of one in `table` is left out, because it is an earlier text of it.
    """
    keys = table.select(PROMPTED).to_pandas()
    other_keys = others.select(PROMPTED).to_pandas()
    is_new = stored_rows(other_keys, keys) < 0
    is_new &= ~other_keys["question_id"].isin(keys["question_id"]).to_numpy()
    return pa.concat_tables([table, others.filter(pa.array(is_new))], promote_options="permissive")


def old_references(table: pa.Table) -> list[str]:
    """Return a sentence for each reason why references and splits may be out of date."""
    sources = table.to_pandas().reindex(columns=["_path", "_digest"])
    sentences = []
    n_unknown = int(sources["_digest"].isna().sum())
    if n_unknown:
        sentences.append(
            f"{n_unknown:,} of its {len(table):,} questions have the references and splits with "
            "which their answers were generated; repeat `pro generate` to store those of today"
        )
    for path, digests in sources.dropna().groupby("_path")["_digest"]:
        is_file = os.path.isfile(path)
        n_old = (digests != sha256(Path(path).read_bytes())).sum() if is_file else 0
        if n_old:
            sentences.append(
                f"the question file {path} has changed since, so {n_old:,} of {len(table):,} "
                "questions have earlier references and splits; repeat `pro generate`, or give the "
                "file with --questions"
            )
    return sentences
