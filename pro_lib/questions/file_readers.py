"""Rows of JSON-lines, CSV or Parquet files or of lists, with their places."""

import bz2
import codecs
import gzip
import io
import lzma
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_scalar
from pydantic import BeforeValidator, Field
from pydantic_core import from_json

from pro_lib.common.catalog import LFS_POINTER
from pro_lib.common.files import RunError, reading, regular
from pro_lib.common.nested import plain
from pro_lib.common.validation import Text
from pro_lib.questions.json_values import begins_json_lines, json_values, lines_of_json
from pro_lib.questions.tables import BadRow, check_names, csv_rows, utf8_bytes

__all__ = ["BadRow", "check_names"]

# A question_id, which may be written as a whole number.
_AsText = BeforeValidator(lambda value: str(value) if type(value) is int else value)
Identity = Annotated[Text, Field(min_length=1), _AsText]
# One text or several.
_AsList = BeforeValidator(lambda value: [value] if type(value) is str else value)
TextList = Annotated[list[Text], Field(min_length=1), _AsList]
# A file, or in memory what it would hold: objects, or a table with a row for each.
Source: TypeAlias = str | Path | Iterable[object] | pd.DataFrame
# The number of bytes of a file that are checked at a time.
_PIECE_SIZE = 2**16
_COMPRESSIONS = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
}
_PICKLE = "a pickle, which may run code when it is read; write its values as JSON lines or Parquet"
# The beginnings of files that are not read, and what they are.
_FOREIGN = {
    b"\x28\xb5\x2f\xfd": "compressed by Zstandard; decompress it with `unzstd`",
    b"\x93NUMPY": "a NumPy array; write its values as JSON lines or Parquet",
    **{b"\x80" + bytes([version]): _PICKLE for version in range(2, 6)},
}
_ZIP = b"PK\x03\x04"
_CONVERT = "convert the log: inspect log convert LOG --to json --output-dir FOLDER"
_PARQUET = b"PAR1"
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"


def source_path(source: Source, otherwise: str) -> Path:
    """Return the path of a source, or `otherwise` if it is in memory."""
    return Path(source if isinstance(source, (str, Path)) else otherwise)


def unzipped(path: str | Path) -> Path:
    """Return a path without `.gz`, `.bz2` or `.xz` at its end."""
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".bz2", ".xz") else path


def json_lines(source: Source, notes: list[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file of JSON lines, a list or a table, with their places.

    A place is `<path>, line <n>` or `entry <n>`; if a table has an index of texts, they are the
    places of its rows. A file may be compressed, or be a log of inspect_ai, and objects may extend
    over several lines. A line that is not JSON is a `BadRow`. Missing values of a table are left
    out of its rows.

    Args:
        source: a file, a list or a table.
        notes: takes notes on what was detected in a file. By default a warning has them.

    Raises:
        RunError: the file has server-sent events; names file and line.

    Example:
        >>> list(json_lines([{"question": "Who wrote Emma?"}]))
        [('entry 1', {'question': 'Who wrote Emma?'})]
    """
    if isinstance(source, (str, Path)):
        if _is_utf8_lines(source):
            with reading(source), regular(source).open("rb") as file:
                yield from lines_of_json(file, source)
            return
        new_notes: list[str] = []
        data = _content(source, new_notes if notes is None else notes)
        warn_of_notes(source, new_notes)
        yield from _entries(data, source)
    elif isinstance(source, pd.DataFrame):
        yield from _table_rows(source)
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        yield from ((f"entry {n}", plain(value)) for n, value in enumerate(source, start=1))
    else:
        name = type(source).__name__
        raise RunError(
            f"a value of type {name} is unsupported; give a file, a list of dicts or a table"
        )


def _table_rows(table: pd.DataFrame) -> Iterator[tuple[str, dict]]:
    """Yield the rows of a table without their missing values, with their places."""
    check_names(table, "the table")
    rows = zip(table.index, table.to_dict("records"), strict=True)
    for n, (label, row) in enumerate(rows, start=1):
        values = {name: value for name, value in row.items() if not _is_missing(value)}
        yield label if isinstance(label, str) else f"row {n}", plain(values)


def _is_missing(value: object) -> bool:
    return is_scalar(value) and bool(pd.isna(value))


# --- Tables ---


def read_rows(source: Source) -> pd.DataFrame:
    """Return the rows of a `.jsonl`, `.csv`, `.tsv` or `.parquet` file.

    All cells of a CSV file are text. In a `.txt` file each block of lines is a row: a question,
    then its references. Rows in memory are those that `json_lines` yields.

    Returns:
        The rows, with their places as the index. `attrs["delimiter"]` has the delimiter of a CSV
        file if it is not a comma.

    Raises:
        RunError: the file is of another kind or damaged; names file and place.
    """
    notes: list[str] = []
    rows, delimiter = rows_of(source, notes)
    for where, row in rows:
        if isinstance(row, BadRow):
            raise RunError(f"{where}: {row.reason}")
    table = pd.DataFrame([row for _, row in rows], [where for where, _ in rows], dtype=object)
    check_names(table, source_path(source, "the rows"))
    if delimiter != ",":
        table.attrs["delimiter"] = delimiter
    warn_of_notes(source, notes)
    return table


def rows_of(
    source: Source, notes: list[str], header: Set[str] | None = frozenset()
) -> tuple[list[tuple[str, "dict | BadRow"]], str]:
    """Return the rows of a source with their places, and the delimiter of a CSV file.

    The delimiter of other sources is a comma. A row that cannot be read is a `BadRow`.

    Args:
        source: a file, or rows in memory.
        notes: takes notes on what was detected, such as the encoding of the file.
        header: plain names of which the header of a CSV file must have one; None if it has none.
    """
    if not isinstance(source, (str, Path)):
        with reading("the rows"):
            return [(where, _object_or_bad_row(row)) for where, row in json_lines(source)], ","
    suffix = unzipped(source).suffix.lower()
    if suffix not in SUFFIXES:
        is_sheet = suffix in (".xlsx", ".xls", ".ods")
        advice = "; save the sheet as CSV (in Excel: 'CSV UTF-8')" if is_sheet else ""
        raise RunError(f"{source} has an unknown ending; choose {', '.join(SUFFIXES)}{advice}")
    with reading(source):
        if suffix in _JSON_SUFFIXES:
            rows = json_lines(source, notes)
        else:
            data = _content(source, notes)
            if suffix in (".csv", ".tsv"):
                _check_text(data, source)
                usual_delimiter = "\t" if suffix == ".tsv" else ","
                return csv_rows(data, source, usual_delimiter, notes, header)
            rows = _parquet(data, source) if suffix == ".parquet" else _blocks(data, source)
        return [(where, _object_or_bad_row(row)) for where, row in rows], ","


def _object_or_bad_row(row: object) -> "dict | BadRow":
    """Return a row if it is an object of JSON, and a `BadRow` if not."""
    if isinstance(row, (dict, BadRow)):
        return row
    return BadRow(f"not an object but {type(row).__name__}")


def warn_of_notes(source: Source, notes: list[str]) -> None:
    """Warn once of the notes on what was detected in a file."""
    if notes:
        name = source_path(source, "the rows")
        warnings.warn(f"{name}: {'; '.join(notes)}", UserWarning, stacklevel=2)


def _is_utf8_lines(path: str | Path) -> bool:
    """Return whether a file has one JSON object a line, in UTF-8 without a byte-order mark.

    The lines of such a file are read one after another, so that the file is not held in memory. The
    whole file is checked first, because a damaged byte anywhere may mean another encoding.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with reading(path), regular(path).open("rb") as file:
        first_line = next((line for line in file if line.strip()), b"")
        if not begins_json_lines(first_line):
            return False
        file.seek(0)
        for piece in iter(lambda: file.read(_PIECE_SIZE), b""):
            if 0 in piece:  # perhaps UTF-16
                return False
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                return False
    # The last piece may end within a character.
    return decoder.getstate()[0] == b""


def _content(path: str | Path, notes: list[str]) -> bytes:
    """Return the bytes of a file, unpacked, and in UTF-8 if it is text."""
    with reading(path):
        data = regular(path).read_bytes()
        for mark, decompress in _COMPRESSIONS.items():
            if data.startswith(mark):
                data = decompress(data)
    for mark, words in _FOREIGN.items():
        if data.startswith(mark):
            raise RunError(f"{path} is {words}")
    if data.startswith((_ZIP, _PARQUET, _OLD_EXCEL)):
        return data
    if data.startswith(LFS_POINTER):
        folder = Path(path).parent
        words = "is a Git LFS pointer, not the file itself"
        raise RunError(f"{path} {words}; run `git lfs pull` in {folder}, or download the file")
    if re.match(rb"\s*<(!doctype html|html)\b", data[:200], re.IGNORECASE):
        raise RunError(f"{path} is a web page (HTML), not a data file; download the file itself")
    if unzipped(path).suffix.lower() == ".parquet":
        return data
    return utf8_bytes(data, path, notes)


def _check_text(data: bytes, path: str | Path) -> None:
    """Raise `RunError` for a workbook or an archive under the name of a CSV file."""
    if data.startswith((_ZIP, _OLD_EXCEL)):
        words = "is an Excel workbook or an archive, not CSV"
        raise RunError(f"{path} {words}; save the sheet as CSV (in Excel: 'CSV UTF-8')")
    if data.startswith(_PARQUET):
        raise RunError(f"{path} is a Parquet file; give it the ending .parquet")


def _parquet(data: bytes, path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield the rows of a Parquet file with their places."""
    table = pq.read_table(pa.BufferReader(data))
    table.validate(full=True)  # finds text that is not UTF-8 before it is used
    check_names(table.column_names, path)
    # The metadata of pandas are not needed here, and they may be damaged too.
    table = table.replace_schema_metadata(None)
    frame = table.to_pandas(integer_object_nulls=True, maps_as_pydicts="strict")
    rows = frame.to_dict("records")
    yield from ((f"{path}, row {n}", row) for n, row in enumerate(rows, start=1))


def _blocks(data: bytes, path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield the questions and references in blocks of lines, the format of LitCab's files.

    `make figures-smollm2 LITCAB=` reads such files.
    """
    lines = enumerate(map(str.strip, data.decode().splitlines()), start=1)
    for is_text, block in groupby(lines, key=lambda line: line[1] != ""):
        if is_text:
            (n, question), *reference_lines = block
            references = [text for _, text in reference_lines]
            yield f"{path}, line {n}", {"question": question, "references": references}


# --- JSON ---

_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
SUFFIXES = (*_JSON_SUFFIXES, ".csv", ".tsv", ".parquet", ".txt")


def _entries(data: bytes, path: str | Path) -> Iterator[tuple[str, object]]:
    """Yield the values of an inspect_ai log, or of JSON as in `json_values`, with their places."""
    if not data.startswith(_ZIP):
        yield from json_values(data, path)
        return
    with reading(path):
        log = zipfile.ZipFile(io.BytesIO(data))
    names = log.namelist()
    if not any(name.startswith("samples/") for name in names):
        kind = "an npz file of NumPy" if names[0].endswith(".npy") else "a zip file"
        raise RunError(f"{path} is {kind}; write its values as JSON lines or Parquet")
    for name in names:
        where = f"{path}, {name[:80]!r}"
        with reading(where, hint=_CONVERT):
            content = log.read(name)
            if name.startswith("samples/"):
                yield where, from_json(content)
