"""Rows of JSON-lines, CSV or Parquet files or of lists, with their places, and the questions that such rows hold."""

import codecs
import csv
import gzip
import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_scalar
from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import PydanticCustomError, from_json

from pro_lib.common.files import RunError, parse, reading, regular
from pro_lib.common.validation import Format, Name, Text
from pro_lib.questions.json_values import json_values

# A question_id, which may be written as a whole number.
_AsText = BeforeValidator(lambda value: str(value) if type(value) is int else value)
Identity = Annotated[Text, Field(min_length=1), _AsText]
# One text or several.
_AsList = BeforeValidator(lambda value: [value] if type(value) is str else value)
TextList = Annotated[list[Text], Field(min_length=1), _AsList]
_OneText = Annotated[TextList, Field(max_length=1)]
# A file, or in memory what it would hold: objects, or a table with a row for each.
Source: TypeAlias = str | Path | Iterable[object] | pd.DataFrame
# What files call the columns of questions, the first that is there; of several that go together, all.
QUESTION_COLUMN_ALIASES = {
    "question_id": [["question_id"], ["id"], ["qid"]],
    "question": [["question"], ["query"], ["prompt"], ["input"], ["problem"]],
    "references": [
        ["references"], ["answer", "aliases"], ["answers"], ["best_answer", "correct_answers"], ["correct_answer"],
        ["reference"], ["target"], ["targets"], ["gold"], ["expected"],
    ],
    "split": [["split"]],
}  # fmt: skip


def source_path(source: Source, otherwise: str) -> Path:
    """Return what a source is called: its path, or this where it has none."""
    return Path(source if isinstance(source, (str, Path)) else otherwise)


def unzipped(path: str | Path) -> Path:
    """Return a path without `.gz` at its end."""
    return Path(str(path).removesuffix(".gz"))


def json_lines(source: Source, *, on_error: Callable[[str, RunError], None] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield what a file of JSON lines holds with its places (`<path>, line <n>`), or a list (`entry <n>`) or a table.

    A file may be gzipped, or a log of inspect_ai; one or several objects may also go over several lines each. Rows of
    a table come without what is missing in them; an index of texts has their places.

    Args:
        source: a file, a list or a table.
        on_error: called with the place and the error of a line that is not JSON, which is then passed over.

    Raises:
        RunError: names file and line; a file of server-sent events is refused.
    """
    if isinstance(source, (str, Path)):
        yield from _entries(_content(source), source, on_error)
    elif isinstance(source, pd.DataFrame):
        check_names(source, "the table")
        for n, (place, row) in enumerate(zip(source.index, source.to_dict("records"), strict=True), start=1):
            values = {name: value for name, value in row.items() if not (is_scalar(value) and pd.isna(value))}
            yield place if isinstance(place, str) else f"row {n}", _plain(values)
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        yield from ((f"entry {n}", _plain(value)) for n, value in enumerate(source, start=1))
    else:
        raise RunError(f"{type(source).__name__} is neither a file nor a list of objects, nor a table")


def _plain(value: Any) -> Any:
    """Return what pydantic (as of a client's response) and NumPy make of objects for JSON, within containers too."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    plain = getattr(value, "model_dump", getattr(value, "tolist", None))
    return plain() if plain else value


def read_rows(source: Source) -> pd.DataFrame:
    """Return the rows of a `.jsonl`, `.csv`, `.tsv` or `.parquet` file, in CSV all text; the index has their places.

    Of a `.txt` file each block of lines is a row: its question, then its references. Rows in memory are as `json_lines`
    has them. Raises `RunError`, with file and place, for a file that is of another kind or damaged.
    """
    read = _READERS.get(unzipped(source).suffix) if isinstance(source, (str, Path)) else json_lines
    if read is None:
        raise RunError(f"{source} is none of {', '.join(_READERS)}")
    with reading(source_path(source, "the rows")):
        entries = list(read(source))
    for where, row in entries:
        if not isinstance(row, dict):
            raise RunError(f"{where}: not an object but {type(row).__name__}")
    table = pd.DataFrame([row for _, row in entries], [where for where, _ in entries], dtype=object)
    check_names(table, source_path(source, "the rows"))
    return table


def check_names(columns: Iterable[object], source: object) -> None:
    """Refuse columns that have not each a name of their own; the `RunError` says of the source which has not."""
    for name, count in Counter(columns).items():
        if count > 1 or not isinstance(name, str):
            raise RunError(f"{source} has the column {name!r}{' twice' if count > 1 else ', whose name is no text'}")


def _content(path: str | Path) -> bytes:
    with reading(path):
        data = regular(path).read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return data.removeprefix(codecs.BOM_UTF8)


def _csv(path: str | Path) -> Iterator[tuple[str, dict]]:
    delimiter = "\t" if str(path).removesuffix(".gz").endswith(".tsv") else ","
    rows = csv.DictReader(io.StringIO(_content(path).decode(), newline=""), strict=True, delimiter=delimiter)
    check_names(rows.fieldnames or (), path)
    for row in rows:
        where = f"{path}, line {rows.line_num}"
        if None in row or None in row.values():
            raise RunError(f"{where}: not as many fields as the header has; quote fields with commas")
        yield where, row


def _parquet(path: str | Path) -> Iterator[tuple[str, dict]]:
    table = pq.read_table(pa.BufferReader(_content(path)))
    table.validate(full=True)  # else text that is no UTF-8 surfaces only when somebody looks at it
    check_names(table.column_names, path)
    # What pandas wrote beside the columns is of no use here, and one more thing that may be damaged.
    rows = table.replace_schema_metadata(None).to_pandas(integer_object_nulls=True).to_dict("records")
    yield from ((f"{path}, row {n}", row) for n, row in enumerate(rows, start=1))


def _blocks(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield questions and references of blocks of lines, as LitCab has them (`make figures-smollm2 LITCAB=`)."""
    lines = enumerate(map(str.strip, _content(path).decode().splitlines()), start=1)
    for is_text, block in groupby(lines, key=lambda line: line[1] != ""):
        if is_text:
            (n, question), *others = block
            yield f"{path}, line {n}", {"question": question, "references": [text for _, text in others]}


_READERS: dict[str, Callable] = {".jsonl": json_lines, ".json": json_lines, ".csv": _csv, ".tsv": _csv}
_READERS |= {".parquet": _parquet, ".txt": _blocks}


def _entries(
    data: bytes, path: str | Path, on_error: Callable[[str, RunError], None] | None = None
) -> Iterator[tuple[str, object]]:
    """Yield the values of a log of inspect_ai, or of JSON, with their places."""
    if data.startswith(b"PK\x03\x04"):
        yield from _samples(data, path)
    else:
        yield from json_values(data, path, on_error)


def _samples(data: bytes, path: str | Path) -> Iterator[tuple[str, object]]:
    """Yield the values of JSON in a zip's folder `samples`, with their places; all that the zip holds is checked."""
    with reading(path):
        log = zipfile.ZipFile(io.BytesIO(data))
    for member in log.infolist():
        with reading(where := f"{path}, {member.filename[:80]!r}"):
            if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                content = log.read(member)
            else:  # Zstandard, which zipfile itself reads from Python 3.14 on
                start = member.header_offset + 30 + sum(struct.unpack_from("<HH", data, member.header_offset + 26))
                packed = pa.BufferReader(data[start : start + member.compress_size])
                content, header = pa.CompressedInputStream(packed, "zstd").read(), data[member.header_offset : start]
                if zlib.crc32(content) != member.CRC or member.filename.encode() not in header:
                    raise zipfile.BadZipFile("it has another checksum or name")
            if member.filename.startswith("samples/"):
                yield where, from_json(content)


def validated(declared: type[BaseModel], entries: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Any]]:
    """Yield entries as the class `declared`, with their places; `RunError` where two have one question_id."""
    places: dict[str, str] = {}
    for where, entry in entries:
        row: Any = parse(declared, entry, where)
        if row.question_id in places:
            raise RunError(f"{where}: question_id {row.question_id!r} was already used ({places[row.question_id]})")
        places[row.question_id] = where
        yield where, row


def texts_in(value: object) -> list:
    """Return the texts within lists and objects (their value and aliases, or text), numbers as text; else None."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [text for inner in value for text in texts_in(inner)]
    if isinstance(value, Mapping):
        return texts_in([value[name] for name in ("text", "value", "aliases") if value.get(name) is not None])
    is_text = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return [str(value) if is_text else None]


def _references(cells: Sequence[object]) -> list[str]:
    """Return the texts of the cells of a row, each once; a cell may be missing, but not all of them."""
    there = [cell for cell in cells if not (is_scalar(cell) and pd.isna(cell))]
    texts = [text for cell in there for text in (cell.split(";") if isinstance(cell, str) else texts_in(cell))]
    if None in texts:
        raise PydanticCustomError("rule", "must be text or lists of texts")
    references = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not references:
        raise PydanticCustomError("rule", "must hold a text")
    return references


class _Columns(Format, extra="forbid"):
    """A file's names for our columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: TextList | None = None
    split: _OneText | None = None


class _Question(Format):
    """A question, out of the columns of a row."""

    question_id: Identity
    question: Name
    references: Annotated[list[str], BeforeValidator(_references)]
    split: Name


def read_questions(source: Source, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Return the questions of a file or in memory, and the source's columns that ours were read from.

    The columns of `QUESTION_COLUMN_ALIASES` come first.

    Each has an id of its own, text and a reference. `columns` are names for ours, as in `pro_lib.load_questions`.
    Raises
    `RunError`, with file, place and column.
    """
    names = parse(_Columns, columns, "columns=").model_dump(exclude_none=True)
    file, table = source_path(source, "questions"), read_rows(source)
    if table.empty:
        raise RunError(f"{file} holds no questions")
    groups = {
        name: [[column for column in group if column in table] for group in QUESTION_COLUMN_ALIASES[name]]
        for name in QUESTION_COLUMN_ALIASES
    }
    used = {name: next(filter(None, theirs)) for name, theirs in groups.items() if any(theirs)} | names
    needed = {"question": ["question"], "references": ["references"]} | used
    for name in [name for theirs in needed.values() for name in theirs]:
        if name not in table:
            has = ", ".join(map(str, table.columns))
            raise RunError(f"{file} has no column {name!r}, nor does columns= say its name; it has {has}")
    ours = {column: table[theirs[0]] for column, theirs in used.items() if column != "references"}
    ours = {"question_id": [f"{unzipped(file).stem}-{n}" for n in range(len(table))], "split": "test"} | ours
    ours["references"] = list(zip(*(table[name] for name in used["references"]), strict=True))
    records = table[[]].assign(**ours).to_dict("records")
    rows = [row for _, row in validated(_Question, zip(table.index, records, strict=True))]
    ours |= {name: [getattr(row, name) for row in rows] for name in ("question_id", "references")}
    others = [name for name in table if name not in {*QUESTION_COLUMN_ALIASES}.union(*used.values())]
    # Whole numbers among which some are missing would become floats.
    whole = {name: table[name].infer_objects() for name in others if table[name].notna().all()}
    return table.assign(**ours, **whole)[[*QUESTION_COLUMN_ALIASES, *others]].reset_index(drop=True), used
