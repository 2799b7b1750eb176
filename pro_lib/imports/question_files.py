"""Files and folders of questions as one table; knows their layouts and columns, not what is asked of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pro_lib.base.checks import Format, Name, SentenceError, fitted
from pro_lib.imports.formats import Identity, Texts, json_lines, once

SPLITS = ("train_shots", "validation", "test")
SPLIT_OF_FILE = {"train": "train_shots", "dev": "validation", **{split: split for split in SPLITS}}
COLUMNS = ("question_id", "question", "references", "split")
# Usual names of columns, the first that a file has; a column of aliases is added to that of answers.
USUAL_NAMES = {
    "question": ("question", "query", "prompt", "question_text", "input"),
    "references": ("references", "reference", "answers", "targets", "target", "correct_answer", "answer", "gold"),
}
ALIASES = ("aliases", "answer_aliases")
Used = dict[str, list[str]]


class QuestionsError(SentenceError):
    """A question file or a request for questions is wrong; the sentence names file, row or parameter."""


def _texts(values: Sequence[object]) -> list[str]:
    """The texts of all values, each once; a value may be missing, but not all of them."""
    found: list[str] = []
    for value in values:
        if value is None or isinstance(value, float):
            continue
        parts = value.split(";") if isinstance(value, str) else value
        if not isinstance(parts, (list, np.ndarray)) or not all(isinstance(part, str) for part in parts):
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


def question_table(
    table: pd.DataFrame, source: str, reference_columns: Sequence[str], places: dict[str, str] | None = None
) -> pd.DataFrame:
    """The table with all of `COLUMNS`, each question with an id of its own, text and at least one reference.

    `places` has the questions that other tables brought, and gets those of this one.

    Raises:
        QuestionsError: what is wrong, with the question's number and the column.
    """
    rows: list[Question] = []
    places = {} if places is None else places
    answers = zip(*(table[name] for name in reference_columns), strict=True)
    for values in zip(table["question_id"], table["question"], table["split"], answers, strict=True):
        where = f"{source}, question {len(rows) + 1}"
        rows.append(fitted(Question, dict(zip(Question.model_fields, values, strict=True)), where, QuestionsError))
        once(rows[-1].question_id, where, places, QuestionsError)
    others = [name for name in table if name not in (*COLUMNS, *reference_columns)]
    checked = {name: [getattr(row, name) for row in rows] for name in ("question_id", "references")}
    return table.assign(**checked)[[*COLUMNS, *others]]


def read_questions(path: Path, columns: Mapping[str, str | Sequence[str]]) -> tuple[pd.DataFrame, Used]:
    """The questions of a file, or of a folder of files named after splits, and the columns that they were read from.

    Args:
        columns: the file's names for ours, as `questions.load` has them; what is missing is looked for.

    Raises:
        QuestionsError: what is wrong, with the file and the line or the question's number.
    """
    asked = fitted(Columns, columns, "columns=", QuestionsError).model_dump(exclude_none=True)
    places: dict[str, str] = {}
    if not path.is_dir():
        return _read_file(path, asked, places)
    files = {file: SPLIT_OF_FILE.get(file.stem) for file in sorted(path.iterdir()) if file.suffix in READERS}
    files = {file: split for file, split in files.items() if split is not None}
    if not files or len(set(files.values())) < len(files):
        what = "two files for one split" if files else f"no file named {', '.join(SPLIT_OF_FILE)}"
        raise QuestionsError(f"question folder {path} has {what} ({', '.join(READERS)})")
    parts, used = zip(*(_read_file(file, asked, places) for file in files), strict=True)
    parts = [part.assign(split=split) for part, split in zip(parts, files.values(), strict=True)]
    return pd.concat(parts, ignore_index=True), {ours: names for part in used for ours, names in part.items()}


def _read_file(path: Path, asked: Used, places: dict[str, str]) -> tuple[pd.DataFrame, Used]:
    source = f"question file {path}"
    if path.suffix not in READERS:
        raise QuestionsError(f"{source} is none of {', '.join(READERS)}")
    try:
        table = READERS[path.suffix](path)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, pa.ArrowException, OSError, UnicodeError) as error:
        raise QuestionsError(f"{source} cannot be read: {str(error).strip()}") from error
    if table.empty:
        raise QuestionsError(f"{source} holds no questions")
    used = _columns(table, asked, source)
    ours = {wanted: table[names[0]] for wanted, names in used.items() if wanted != "references"}
    ours = {"question_id": [f"{path.stem}-{n}" for n in range(len(table))], "split": "test"} | ours
    renamed = {name for names in used.values() for name in names} - {*COLUMNS, *used["references"]}
    table = table.drop(columns=list(renamed)).assign(**ours)
    return question_table(table, source, used["references"], places), used


def _columns(table: pd.DataFrame, asked: Used, source: str) -> Used:
    """The file's columns for each of ours: those asked for, else those of the same name, else a usual name's."""
    used = asked | {name: [name] for name in COLUMNS if name not in asked and name in table}
    folded = {str(name).casefold(): name for name in reversed(table.columns)}
    for wanted, usual in USUAL_NAMES.items():
        aliases = [folded[name] for name in ALIASES if name in folded and wanted == "references"]
        used.setdefault(wanted, [folded[name] for name in usual if name in folded][:1] + aliases)
    missing = [name for wanted, names in used.items() for name in names or [wanted] if name not in table]
    if missing:
        raise QuestionsError(f"{source} has no column {missing[0]!r}; it has {', '.join(map(str, table.columns))}")
    return used


def _read_csv(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    # pandas takes the first fields of rows that are longer than the header for an index.
    if not isinstance(table.index, pd.RangeIndex):
        raise QuestionsError(f"question file {path}, line 2: more fields than the header; quote fields with commas")
    return table


def _read_parquet(path: Path) -> pd.DataFrame:
    with pq.ParquetFile(path) as file:
        table = file.read()
    table.validate(full=True)  # else text that is no UTF-8 surfaces only when somebody looks at it
    # What pandas wrote beside the columns is of no use here, and one more thing that may be damaged.
    return table.replace_schema_metadata(None).to_pandas()


def _read_question_answer_lines(path: Path) -> pd.DataFrame:
    text = path.read_text(encoding="utf-8-sig").strip()
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", text) if block]
    for number, block in enumerate(blocks, start=1):
        if len(block) != 2:
            what = f"{len(block)} lines before a blank one, not a question and a line of answers"
            raise QuestionsError(f"question file {path}, question {number} ({block[0]!r}): {what}")
    return pd.DataFrame([map(str.strip, block) for block in blocks], columns=["question", "references"])


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".jsonl": lambda path: pd.DataFrame([row for _, row in json_lines(path, QuestionsError)]),
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_question_answer_lines,
}
