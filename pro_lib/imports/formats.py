"""The rows of a JSON-lines, CSV or Parquet file, and where each stands in it; knows no column by its name."""

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator, Field
from pydantic_core import from_json

from pro_lib.base.checks import Text
from pro_lib.storage import RunError

# A question_id, which may be written as a whole number.
Identity = Annotated[
    Text, Field(min_length=1), BeforeValidator(lambda value: str(value) if type(value) is int else value)
]
# One text or several.
Texts = Annotated[
    list[Text], Field(min_length=1), BeforeValidator(lambda value: [value] if type(value) is str else value)
]


def json_lines(path: str | Path, error: type[ValueError] = RunError) -> Iterator[tuple[str, dict]]:
    """The objects of a JSON-lines file, each with its place (`<path>, line <n>`); of a JSON list, `<path>, entry <n>`.

    Raises:
        error: the file cannot be read, or something in it is no JSON in UTF-8 (half a surrogate pair and what is
            nested too deeply among it) or not an object; the sentence names file and line.
    """
    yield from _objects(_content(path, error), path, error)


def read_rows(path: str | Path, error: type[ValueError] = RunError) -> pd.DataFrame:
    """The rows of a `.jsonl`, `.csv` or `.parquet` file as it has them, in CSV all text; the index has their places.

    Raises:
        error: the file cannot be read, is none of the three, or is damaged; the sentence names it, and the place.
    """
    suffix = Path(path).suffix
    if suffix not in _READERS:
        raise error(f"{path} is none of {', '.join(_READERS)}")
    try:
        table = _READERS[suffix](_content(path, error), path, error)
    except error:
        raise
    except (ValueError, OSError, pa.ArrowException, csv.Error) as problem:  # Arrow's own errors may be any of these
        raise error(f"{path} cannot be read: {problem}") from problem
    if twice := [name for name, again in zip(table, table.columns.duplicated(), strict=True) if again]:
        raise error(f"{path} has the column {twice[0]!r} twice")
    return table


def _content(path: str | Path, error: type[ValueError]) -> bytes:
    try:
        return Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from problem


def _jsonl(data: bytes, path: str | Path, error: type[ValueError]) -> pd.DataFrame:
    found = dict(_objects(data, path, error))
    return pd.DataFrame(found.values(), index=list(found), dtype=object)


def _csv(data: bytes, path: str | Path, error: type[ValueError]) -> pd.DataFrame:
    reader = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
    header = next(reader, [])
    found = {f"{path}, line {reader.line_num}": fields for fields in reader if fields}
    for where, fields in found.items():
        if len(fields) != len(header):
            raise error(f"{where}: {len(fields)} fields, but the header has {len(header)}; quote fields with commas")
    return pd.DataFrame(found.values(), index=list(found), columns=header, dtype=object)


def _parquet(data: bytes, path: str | Path, error: type[ValueError]) -> pd.DataFrame:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        table = file.read()
    table.validate(full=True)  # else text that is no UTF-8 surfaces only when somebody looks at it
    # What pandas wrote beside the columns is of no use here, and one more thing that may be damaged.
    frame = table.replace_schema_metadata(None).to_pandas(integer_object_nulls=True)
    return frame.set_axis([f"{path}, row {n}" for n in range(1, len(frame) + 1)])


_READERS = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}


def _objects(data: bytes, path: str | Path, error: type[ValueError]) -> Iterator[tuple[str, dict]]:
    for where, value in _entries(data, path, error):
        if not isinstance(value, dict):
            raise error(f"{where}: not an object but {type(value).__name__}")
        yield where, value


def _entries(data: bytes, path: str | Path, error: type[ValueError]) -> Iterator[tuple[str, object]]:
    where = str(path)
    try:
        if data.lstrip().startswith(b"["):
            yield from ((f"{path}, entry {n}", value) for n, value in enumerate(from_json(data), start=1))
            return
        for n, line in enumerate(data.split(b"\n"), start=1):
            where = f"{path}, line {n}"
            if line.strip():
                yield where, from_json(line)
    except ValueError as problem:
        raise error(f"{where}: not JSON in UTF-8 ({problem})") from None


def once(identity: str, where: str, places: dict[str, str], error: type[ValueError] = RunError) -> None:
    """Note the place of a question_id; an `error` if it has one already."""
    if identity in places:
        raise error(f"{where}: question_id {identity!r} was already used ({places[identity]})")
    places[identity] = where
