"""Finished questions as JSON lines, each whole and sealed; knows what a cache was made with, no server."""

import itertools
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
from pro_lib.storage import Cost, RunError, difference, sha256, write_whole

_BEGINNING = b'{"question_id":'
_ELSEWHERE = "choose another file (cache=), or move this one away"


class _Header(BaseModel):
    endpoint: dict[str, Any]

    def seal(self, searched: "Searched") -> str:
        """What tells a question of this cache, as it was written, from any other."""
        written = f"{self.model_dump_json()}\n{searched.model_dump_json(exclude={'seal'})}"
        return sha256(written.encode())


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
    seal: str = ""


class Cache(dict[str, Searched]):
    """The questions searched so far, by id; with a file, each is forced to disk as it is added."""

    file: BinaryIO | None = None
    header: _Header

    def add(self, searched: Searched) -> None:
        """Keep a question."""
        if self.file is not None:
            sealed = searched.model_copy(update={"seal": self.header.seal(searched)})
            self.file.write(_line(sealed))
            self.file.flush()
            os.fsync(self.file.fileno())
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
    path, header = Path(path), _Header(endpoint=parameters)
    if path.exists() and not path.is_file():
        raise RunError(f"cache {path} cannot be written: it is no file; {_ELSEWHERE}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", blocking=False):
            if not path.exists() or not path.stat().st_size:
                write_whole(_line(header), path)
            with open(path, "r+b") as file:
                cache = _whole(file, path, header)
                cache.file, cache.header = file, header
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
    where, first = next(lines, (f"{path}, line 1", {}))
    yield (header := fitted(_Header, first, where, RunError))
    for where, line in lines:
        searched = fitted(Searched, line, where, RunError)
        if searched.seal != header.seal(searched):
            raise RunError(f"{where}: not as it was written; remove the line, and the question is asked again")
        yield searched


def _whole(file: BinaryIO, path: Path, header: _Header) -> Cache:
    """What the file of this run holds; only then a last line that a kill left without its end is cut off."""
    *whole, rest = file.read().split(b"\n")
    lines = _lines(path)
    if differs := difference(next(lines).endpoint, header.endpoint):
        raise RunError(f"cache {path} was made with {differs} is asked for; {_ELSEWHERE}")
    if not whole or not (_BEGINNING.startswith(rest) or rest.startswith(_BEGINNING)):
        raise RunError(f"{path} ends in a line that is none of a cache's; {_ELSEWHERE}")
    found = list(itertools.islice(lines, sum(bool(line.strip()) for line in whole) - 1))
    file.seek(-len(rest), os.SEEK_END)
    file.truncate()
    return Cache((searched.question_id, searched) for searched in found)


def _line(model: BaseModel) -> bytes:
    return model.model_dump_json().encode() + b"\n"
