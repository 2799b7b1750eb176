"""The objects of a JSON file and where they stand in it; knows JSON and UTF-8, no format by its name."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

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
    try:
        data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from problem
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
