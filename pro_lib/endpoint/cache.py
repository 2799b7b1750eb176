"""Finished questions as JSON lines, each whole; knows what a cache was made with and who writes it, no server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout
from pydantic import BaseModel

from pro_lib.base.checks import fitted
from pro_lib.decoding import Certificate
from pro_lib.endpoint.search import Answer
from pro_lib.imports import json_lines
from pro_lib.storage import Cost, RunError, difference

_BEGINNING = b'{"question_id":'
_ELSEWHERE = "choose another file (cache=), or move this one away"


class _Header(BaseModel):
    endpoint: dict[str, Any]


class Searched(BaseModel, frozen=True):
    """A question that was searched; `prompt` is a digest."""

    question_id: str
    question: str | None
    references: list[str] | None
    split: str | None
    prompt: str
    answers: list[Answer]
    certificate: Certificate
    cost: Cost


class Cache(dict[str, Searched]):
    """The questions searched so far, by id; with a file, each is forced to disk as it is added."""

    file: BinaryIO | None = None

    def add(self, searched: Searched) -> None:
        """Keep a question."""
        if self.file is not None:
            _write(self.file, searched)
        self[searched.question_id] = searched


@contextmanager
def opened(path: str | Path | None, parameters: dict[str, Any]) -> Iterator[Cache]:
    """The cache in a file, or one that is forgotten, for the only process that writes it.

    Raises:
        RunError: the file was made with other parameters, is none of ours or damaged, is being written by another
            process, or cannot be written. Nothing is cut off but a last line of its own that was cut short.
    """
    if path is None:
        yield Cache()
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", blocking=False), open(path, "a+b") as file:
            _prepare(file, path, _Header(endpoint=parameters))
            cache = read_cache(path)[1]
            cache.file = file
            yield cache
    except Timeout:
        raise RunError(f"cache {path} is being written by another process; wait, or choose another file") from None
    except OSError as error:
        raise RunError(f"cache {path} cannot be written: {error.strerror}; what it holds is kept") from error


def read_cache(path: str | Path) -> tuple[dict[str, Any], Cache]:
    """What a cache was made with, and its questions by id. Raises `RunError`, naming file and line."""
    header, *found = _lines(path)
    return header.endpoint, Cache((searched.question_id, searched) for searched in found)


def _lines(path: str | Path) -> Iterator[_Header | Searched]:
    lines = json_lines(path)
    where, header = next(lines, (f"{path}, line 1", {}))
    yield fitted(_Header, header, where, RunError)
    for where, searched in lines:
        yield fitted(Searched, searched, where, RunError)


def _prepare(file: BinaryIO, path: str | Path, header: _Header) -> None:
    """Make sure that the file is of this run and its lines are whole; one that a kill cut is asked for again."""
    file.seek(0)
    content = file.read()
    n_whole = content.rfind(b"\n") + 1
    cut, own = content[n_whole:], _BEGINNING if n_whole else header.model_dump_json().encode()
    if not (own.startswith(cut) or cut.startswith(own)):
        raise RunError(f"{path} ends in a line that is none of a cache's; {_ELSEWHERE}")
    if n_whole and (differs := difference(next(_lines(path)).endpoint, header.endpoint)):
        raise RunError(f"cache {path} was made with {differs} is asked for; {_ELSEWHERE}")
    file.truncate(n_whole)
    if not n_whole:
        _write(file, header)


def _write(file: BinaryIO, line: BaseModel) -> None:
    file.write(line.model_dump_json().encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())
