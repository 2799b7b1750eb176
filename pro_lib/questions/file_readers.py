"""Values of files (JSON, CSV, Parquet, text blocks) or in memory, with their places."""

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BeforeValidator, Field
from pydantic_core import from_json

from pro_lib.common.catalog import LFS_POINTER
from pro_lib.common.files import RunError, reading, regular
from pro_lib.common.nested import plain
from pro_lib.common.validation import Text, is_damaged
from pro_lib.questions.csv_files import (
    BadRow,
    check_names,
    csv_rows,
    damaged_text,
    utf8_bytes,
)
from pro_lib.questions.references import is_missing


def _number_as_text(value: Any) -> Any:
    """Return a whole number as text. Pandas makes floats of a column with gaps."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(int(value)) if is_number and value % 1 == 0 else value


NUMBER_AS_TEXT = BeforeValidator(_number_as_text)
# A question_id, which may be written as a whole number.
Identity = Annotated[Text, Field(min_length=1), NUMBER_AS_TEXT]


def _as_list(value: Any) -> Any:
    """Return one text or several in a list, with objects as JSON."""
    items = [value] if isinstance(value, str | dict) else value
    if not isinstance(items, list):
        return items
    return [
        json.dumps(each, ensure_ascii=False) if isinstance(each, dict) else each for each in items
    ]


# One text or several.
TextList = Annotated[list[Text], Field(min_length=1), BeforeValidator(_as_list)]
# A file, or in memory what it would hold: objects, or a table with a row for each.
Source: TypeAlias = str | Path | Iterable[object] | pd.DataFrame
# Values with their places.
Places: TypeAlias = Iterator[tuple[str, Any]]

_COMPRESSIONS = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
}
_WRITE = "write its values as JSON lines or Parquet"
_PICKLE = f"a pickle, which may run code when it is read; {_WRITE}"
_LOG = (
    "a zipped log of inspect_ai; convert it: inspect log convert LOG --to json --output-dir FOLDER"
)
_EXCEL = "an Excel workbook or an archive, not CSV; save the sheet as CSV (in Excel: 'CSV UTF-8')"
# The beginnings of files that are not read, with bytes that such files have, and what they are.
_FOREIGN = (
    (b"\x28\xb5\x2f\xfd", b"", "compressed by Zstandard; decompress it with `unzstd`"),
    (b"\x93NUMPY", b"", f"a NumPy array; {_WRITE}"),
    (b"PK\x03\x04", b"samples/", _LOG),
    (b"PK\x03\x04", b".npy", f"an npz file of NumPy; {_WRITE}"),
    (b"PK\x03\x04", b"", _EXCEL),
    (b"\xd0\xcf\x11\xe0", b"", _EXCEL),
    (b"PAR1", b"", "a Parquet file; give it the ending .parquet"),
    *((b"\x80" + bytes([version]), b"", _PICKLE) for version in range(2, 6)),
)
_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
_SUFFIXES = (*_JSON_SUFFIXES, ".csv", ".tsv", ".parquet", ".txt")
# Keys of a file's only object that may contain the list of its rows.
LIST_NAMES = ("data", "questions", "examples", "rows", "samples")
_JSON_HINT = "it must be JSON in UTF-8"
# A line of server-sent events, as a client saves a stream that it does not join.
_EVENT = re.compile(rb"(data|event): ?[\[{\w]")
_NOT_SPACE = re.compile(r"\S")


def source_path(source: Source, otherwise: str) -> Path:
    """Return the path of a source, or `otherwise` if it is in memory."""
    return Path(source if isinstance(source, (str, Path)) else otherwise)


def unzipped(path: str | Path) -> Path:
    """Return a path without `.gz`, `.bz2` or `.xz` at its end."""
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".bz2", ".xz") else path


def suffix_of(source: Source) -> str:
    """Return the ending of a file without its compression, or `.json` for rows in memory."""
    is_file = isinstance(source, (str, Path))
    return unzipped(source).suffix.lower() if is_file else ".json"  # type: ignore[arg-type]


def rows_of(source: Source, header: Set[str] | None = frozenset()) -> list[tuple[str, Any]]:
    """Return the rows of a source, which are dictionaries, with their places.

    All cells of a CSV file are text. In a `.txt` file each block of lines is a row: a question,
    then its references. A row that cannot be read is a `BadRow`.

    Args:
        source: a file, or rows in memory.
        header: plain names of which the header of a CSV file must have one, none for any header;
            None if the file has no header.

    Raises:
        RunError: the file is of another kind or damaged; names file and place.
    """
    is_file = isinstance(source, (str, Path))
    suffix = suffix_of(source)
    if suffix not in _SUFFIXES:
        is_sheet = suffix in (".xlsx", ".xls", ".ods")
        advice = "; save the sheet as CSV (in Excel: 'CSV UTF-8')" if is_sheet else ""
        raise RunError(f"{source} has an unknown ending; choose {', '.join(_SUFFIXES)}{advice}")
    with reading(str(source) if is_file else "the rows"):
        if suffix in _JSON_SUFFIXES:
            return [(where, _object_or_bad_row(row)) for where, row in json_lines(source)]
        data = _content(source)  # type: ignore[arg-type]
        if suffix in (".csv", ".tsv"):
            return csv_rows(data, source, "\t" if suffix == ".tsv" else ",", header)  # type: ignore[arg-type]
        rows = _parquet(data, source) if suffix == ".parquet" else _blocks(data, source)
        return list(rows)


def _object_or_bad_row(row: object) -> "dict | BadRow":
    if isinstance(row, (dict, BadRow)):
        return row
    return BadRow(f"not an object but {type(row).__name__}")


def unpacked(data: bytes) -> bytes:
    """Return the bytes of a file, without the compression of gzip, bzip2 or xz."""
    for mark, decompress in _COMPRESSIONS.items():
        if data.startswith(mark):
            data = decompress(data)
    return data


def _content(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked, and in UTF-8 if it is text."""
    data = unpacked(regular(path).read_bytes())
    if suffix_of(path) == ".parquet" and not data.startswith(LFS_POINTER):
        return data
    for mark, part, words in _FOREIGN:
        if data.startswith(mark) and part in data:
            raise RunError(f"{path} is {words}")
    if data.startswith(LFS_POINTER):
        folder = Path(path).parent
        raise RunError(
            f"{path} is a Git LFS pointer, not the file itself; run `git lfs pull` in "
            f"{folder}, or download the file"
        )
    if re.match(rb"\s*<(!doctype html|html)\b", data[:200], re.IGNORECASE):
        raise RunError(f"{path} is a web page (HTML), not a data file; download the file itself")
    return utf8_bytes(data, path)


def _parquet(data: bytes, path: Any) -> Places:
    """Yield the rows of a Parquet file with their places."""
    table = pq.read_table(pa.BufferReader(data))
    table.validate(full=True)  # finds text that is not UTF-8 before it is used
    check_names(table.column_names, path)
    # The metadata of pandas are not needed here, and they may be damaged too.
    table = table.replace_schema_metadata(None)
    frame = table.to_pandas(integer_object_nulls=True, maps_as_pydicts="strict")
    rows = frame.to_dict("records")
    yield from ((f"{path}, row {n}", row) for n, row in enumerate(rows, start=1))


def _blocks(data: bytes, path: Any) -> Places:
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


def json_lines(source: Source, *, all_objects: bool = False) -> Places:
    """Yield the values of JSON in a file, or those of a list or a table, with their places.

    A place is `<path>, line <n>`, `<path>, entry <n>` or `entry <n>`; if a table has an index of
    texts, they are the places of its rows. A file may be compressed. Its values stand one on each
    line, over several lines each, or in one list. A line that is not JSON is a `BadRow`. Missing
    values of a table are left out of its rows.

    Args:
        source: a file, a list or a table.
        all_objects: whether any objects of a list become dictionaries.

    Raises:
        RunError: the file has server-sent events, or is a list that cannot be read.

    Example:
        >>> list(json_lines([{"question": "Who wrote Emma?"}]))
        [('entry 1', {'question': 'Who wrote Emma?'})]
    """
    if isinstance(source, (str, Path)):
        values = _values_of_file(source)
        first = list(islice(values, 2))
        yield from _listed(source, *first[0]) if len(first) == 1 else chain(first, values)
    elif isinstance(source, pd.DataFrame):
        check_names(source, "the table")
        rows = zip(source.index, source.to_dict("records"), strict=True)
        for n, (label, row) in enumerate(rows, start=1):
            values_of_row = {name: value for name, value in row.items() if not is_missing(value)}
            yield label if isinstance(label, str) else f"row {n}", plain(values_of_row)
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        for n, value in enumerate(source, start=1):
            yield f"entry {n}", plain(value, all_objects=all_objects)
    else:
        name = type(source).__name__
        raise RunError(
            f"a value of type {name} is unsupported; give a file, a list of dicts or a table"
        )


def _listed(path: str | Path, where: str, value: Any) -> Places:
    """Yield the only value of a file, or the entries of the list that it is or contains."""
    whole = decoded(value)
    if isinstance(whole, dict):
        names = [name for name in whole if str(name).lower() in LIST_NAMES]
        lists = [whole[name] for name in names if isinstance(whole[name], list)]
        has_rows = bool(lists) and any(isinstance(row, dict) for row in lists[0])
        whole = lists[0] if has_rows else None
    if isinstance(whole, list):
        yield from ((f"{path}, entry {n}", entry) for n, entry in enumerate(whole, start=1))
    else:
        yield where, value


def _values_of_file(path: str | Path) -> Places:
    """Yield the values of a file of JSON with their places.

    Lines in UTF-8 are read one after another, so that the file is not held in memory. The first
    other line may mean that the whole file has another encoding.
    """
    n_read = 0
    with reading(path), regular(path).open("rb") as file:
        first_line = next((line for line in file if line.strip()), b"")
        if first_line.lstrip()[:1] == b"{" and _is_json(first_line):
            file.seek(0)
            for line in file:
                if not line.isascii() and is_damaged(damaged_text(line)):
                    break
                n_read += 1
                yield from _values_of_line(line, f"{path}, line {n_read}")
            else:
                return
    with reading(path):
        data = _content(path)
    values: list[Any] = []
    first_line = next((line for line in data.split(b"\n") if line.strip()), b"").strip()
    if first_line[:1] in (b"{", b"[") and not _is_json(first_line):
        is_list = first_line[:1] == b"["
        with reading(path, hint=_JSON_HINT) if is_list else suppress(ValueError, RecursionError):
            values = _values_over_lines(damaged_text(data))
    if len(values) == 1 and isinstance(values[0], list):
        [values] = values
    for n, value in enumerate(values, start=1):
        yield f"{path}, entry {n}", value
    if not values:
        for n, line in enumerate(data.split(b"\n")[n_read:], start=n_read + 1):
            yield from _values_of_line(line, f"{path}, line {n}")


def _is_json(line: bytes) -> bool:
    with suppress(ValueError):
        from_json(line)
        return True
    return False


def _values_of_line(line: bytes, where: str) -> Places:
    """Yield the value of a line with its place, or nothing for a blank line."""
    text = line.strip()
    if not text:
        return
    if _EVENT.match(text):
        raise RunError(
            f"{where}: this is a stream of server-sent events, in which no answer is whole; "
            "save the whole response that the client joins"
        )
    value: object = None
    try:
        with suppress(ValueError):
            value = from_json(text)
        if value is None:  # texts may have unpaired surrogates, so that errors name their rows
            value = json.loads(damaged_text(text))
    except (ValueError, RecursionError) as error:
        value = BadRow(f"cannot be read: {error}; {_JSON_HINT}")
    yield where, value


def _values_over_lines(text: str) -> list[Any]:
    """Return values that extend over several lines each, as `jq` writes them."""
    values = []
    decoder = json.JSONDecoder()
    start = _NOT_SPACE.search(text)
    while start is not None:
        value, end = decoder.raw_decode(text, start.start())
        values.append(value)
        start = _NOT_SPACE.search(text, end)
    return values


def decoded(value: object) -> object:
    """Return the object or list in a text of JSON, and any other value as it is.

    Example:
        >>> decoded('{"text": "Paris"}')
        {'text': 'Paris'}
        >>> decoded("Paris")
        'Paris'
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            inner = from_json(value)
            return inner if isinstance(inner, (dict, list)) else value
    return value
