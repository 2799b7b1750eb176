"""Append-only files of JSON objects, one per line, that a killed process cannot damage."""

import json
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from filelock import lock_descriptor

from pro_lib.common.files import RunError, reading, regular, writing

_POLL_INTERVAL = 0.005  # seconds between attempts to lock a file that another process appends to


def append_lines(path: str | Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Append JSON objects to a file, and write them to the disk before returning.

    The file is locked meanwhile, so that several processes may append to it. A line that a killed
    process left unfinished is removed first, so that it cannot damage a new one. A complete last
    object without a line end is kept.

    Args:
        path: the file; it is created if it does not exist.
        values: the objects, one per line.

    Raises:
        RunError: the file cannot be written, or its last line is not of such a file.
    """
    path = regular(path)
    data = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)
    with writing(path), open(path, "a+b") as file:
        lock_descriptor(file.fileno(), poll_interval=_POLL_INTERVAL)  # until the file is closed
        start, end = _last_line(file)
        if _is_object(end, str(path)):
            data = b"\n" + data
        else:
            file.truncate(start)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """Read the JSON objects of a file.

    A last line that a killed process left unfinished is not an object yet.

    Args:
        path: the file; a file that does not exist has no objects.

    Raises:
        RunError: the file cannot be read, or another line is not a JSON object.
    """
    path = regular(path)
    with reading(path):
        if not path.exists():
            return []
        *finished, end = path.read_bytes().split(b"\n")
    if _is_object(end, f"{path}, line {len(finished) + 1}"):
        finished.append(end)
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


def _is_object(end: bytes, where: str) -> bool:
    """Return whether the text after the last line end is a complete object."""
    # Otherwise it is empty, or the unfinished beginning of an object.
    if not end:
        return False
    try:
        _parsed(end, where)
    except RunError:
        if b'{"'.startswith(end[:2]):
            return False
        raise
    return True


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """Return where the text after the last line end begins, and this text."""
    if not file.seek(0, os.SEEK_END):
        return 0, b""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.rfind(b"\n") + 1
        return start, content[start:]
