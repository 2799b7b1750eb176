"""Read the values in a file of JSON: one a line, a list, or values over several lines each."""

import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from pro_lib.common.files import RunError, reading
from pro_lib.questions.tables import BadRow, damaged_text

_HINT = "it must be JSON in UTF-8"
_NOT_SPACE = re.compile(r"\S")
# Keys that may contain the list of a file's rows.
LIST_NAMES = ("data", "questions", "examples", "rows", "samples")
_LIST_IN_OBJECT = re.compile(rf'\s*\{{\s*"({"|".join(LIST_NAMES)})"\s*:\s*\['.encode())
# A line of server-sent events, as a client saves a stream that it does not join.
_EVENT = re.compile(rb"(data|event): ?[\[{\w]")


def json_values(data: bytes, path: str | Path) -> Iterator[tuple[str, object]]:
    """Yield the values of a file with their places: `<path>, line <n>` or `<path>, entry <n>`.

    A line that is not JSON is a `BadRow`. Texts may have unpaired surrogates.

    Args:
        data: the bytes of the file.
        path: its name, for the places.

    Raises:
        RunError: the file has server-sent events, or is a list that cannot be read.
    """
    is_list = data.lstrip()[:1] == b"[" or _LIST_IN_OBJECT.match(data) is not None
    values: list[Any] = []
    is_one_value = False
    if _is_first_line_whole(data):
        is_one_value = is_list and b"\n" not in data.strip()
    else:
        values = _values_over_lines(data)
        is_one_value = is_list and not values
    if is_one_value:
        with reading(path, hint=_HINT):
            values = [_lenient_json(data)]
    if not values:
        yield from lines_of_json(io.BytesIO(data), path)
        return
    if len(values) == 1 and is_list:
        [whole] = values
        values = next(iter(whole.values())) if isinstance(whole, dict) else whole
    yield from ((f"{path}, entry {n}", value) for n, value in enumerate(values, start=1))


def decoded(value: object) -> object:
    """Return the object or list in a text of JSON, and any other value as it is.

    Example:
        >>> decoded('{"text": "Paris"}')
        {'text': 'Paris'}
        >>> decoded("Paris")
        'Paris'
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            inner = from_json(value)
        except ValueError:
            return value
        return inner if isinstance(inner, (dict, list)) else value
    return value


def _lenient_json(data: bytes) -> Any:
    """Return a value of JSON in which texts may have unpaired surrogates.

    The errors about such texts can then name their rows.
    """
    try:
        return from_json(data)
    except ValueError:
        return json.loads(damaged_text(data))


def lines_of_json(lines: Iterable[bytes], path: str | Path) -> Iterator[tuple[str, object]]:
    """Yield the value of each line of a file, with its place, as `json_values` does."""
    for n, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        where = f"{path}, line {n}"
        if _EVENT.match(text):
            words = "a stream of server-sent events, in which no answer is whole"
            remedy = "save the whole response that the client joins"
            raise RunError(f"{where}: this is {words}; {remedy}")
        try:
            value: object = _lenient_json(text)
        except (ValueError, RecursionError) as error:
            value = BadRow(f"cannot be read: {error}; {_HINT}")
        yield where, value


def begins_json_lines(first_line: bytes) -> bool:
    """Return whether a file has a JSON object on each line, by its first line with a text.

    It is False for a file that is one list, or one object that contains the list of rows.
    """
    if first_line.lstrip()[:1] != b"{" or _LIST_IN_OBJECT.match(first_line) is not None:
        return False
    return _is_first_line_whole(first_line)


def _is_first_line_whole(data: bytes) -> bool:
    """Return whether the first line with a text is a value of JSON.

    A line that does not begin a list or an object also counts.
    """
    first_line = next((line for line in io.BytesIO(data) if line.strip()), b"")
    if first_line.strip()[:1] not in (b"{", b"["):
        return True
    try:
        from_json(first_line)
    except ValueError:
        return False
    return True


def _values_over_lines(data: bytes) -> list:
    """Return values that extend over several lines each, as `jq` writes them.

    The list is empty if the file is of another kind.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return []
    values: list[Any] = []
    decoder = json.JSONDecoder()
    start = _NOT_SPACE.search(text)
    try:
        while start is not None:
            _, end = decoder.raw_decode(text, start.start())
            value_text = text[start.start() : end]
            if not values and "\n" not in value_text:
                return []
            values.append(from_json(value_text))
            start = _NOT_SPACE.search(text, end)
    except (ValueError, RecursionError):
        return []
    return values
