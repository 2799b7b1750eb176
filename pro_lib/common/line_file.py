"""Append-only files of JSON objects, one per line, that a killed process cannot damage."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pro_lib.common.files import RunError, regular, writing

_BLOCK = 4096  # bytes read at a time to find the last line end


def append_lines(path: str | Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON objects to a file, and write them to the disk before returning.

    A line that a killed process left unfinished is removed first, so that it cannot damage a new
    one.

    Args:
        path: the file; it is created if it does not exist.
        values: the objects, one per line.

    Raises:
        RunError: the file cannot be written.
    """
    path = regular(path)
    data = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    with writing(path), open(path, "a+b") as file:
        _drop_unfinished_line(file)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """Read the JSON objects of a file.

    An unfinished last line is not an object yet.

    Args:
        path: the file; a file that does not exist has no objects.

    Raises:
        RunError: a finished line is not a JSON object.
    """
    path = regular(path)
    if not path.exists():
        return []
    finished = path.read_bytes().split(b"\n")[:-1]
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(finished, 1)]


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    """Return the object of a line."""
    try:
        value = json.loads(line)
    except ValueError as error:  # of JSON and of UTF-8
        raise RunError(f"{where} is not JSON; remove the line, or use another file") from error
    if not isinstance(value, dict):
        raise RunError(f"{where} is not a JSON object; remove the line, or use another file")
    return value


def _drop_unfinished_line(file: BinaryIO) -> None:
    """Cut a file after its last line end."""
    position = file.seek(0, os.SEEK_END)
    while position:
        start = max(0, position - _BLOCK)
        file.seek(start)
        place = file.read(position - start).rfind(b"\n")
        if place >= 0:
            file.truncate(start + place + 1)
            return
        position = start
    file.truncate(0)
