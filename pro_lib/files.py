"""Files that are whole or absent, how folders are named, and a sentence for what goes wrong; knows no run."""

import errno
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pro_lib.checks import SentenceError, sentence


class RunError(SentenceError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@contextmanager
def reading(where: str | Path, *, hint: str = "") -> Iterator[None]:
    """Turn what a damaged or unreadable file leads to into a sentence that names the place, the reason and a hint."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # whatever Arrow, pydantic and the standard library make of damaged files
        reason = sentence(error) if isinstance(error, ValidationError) else getattr(error, "strerror", None)
        reason = reason or (str(error) if isinstance(error, ValueError) else "") or repr(error)
        raise RunError(f"{where} cannot be read: {reason}{hint and f'; {hint}'}") from error


def regular(path: str | Path) -> Path:
    """Return the path of a file, or of none yet; `RunError` for a pipe or a device, which may never end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise RunError(f"{path} is no regular file")
    return Path(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a folder that refuses into a sentence that names the path and the reason."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, type(error).__name__)})"
        raise RunError(f"{path} cannot be written: {reason}; what was complete is kept") from error


def parse(declared: type[BaseModel], value: object, where: str) -> Any:
    """Return a mapping or an object as the class `declared`; else `RunError`, `<where>: <field>=<value> <words>`."""
    try:
        return declared.model_validate(value)
    except ValidationError as wrong:
        raise RunError(f"{where}: {sentence(wrong)}") from None


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there as a whole, and to stay, or not at all."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    with writing(regular(path)):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def folder_name(*words: str, **settings: Any) -> str:
    """Return a folder's name, as `multinomial,n_answers=20`; what is long or no word is digits of its SHA-256."""
    name = ",".join([*words, *(f"{key}={_in_a_name(value)}" for key, value in settings.items())])
    return name if len(name) <= 200 else f"{name[:190]}-{sha256(name.encode())[:8]}"


def _in_a_name(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()  # 2.0 is what 2 is
    text = json.dumps(int(value) if whole else value, sort_keys=True, default=str).strip('"')
    if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII):
        return text
    parts = "+".join(str(part).rpartition("/")[2] for part in (value if isinstance(value, list | tuple) else [value]))
    digits = sha256(text.encode())[:8]
    return f"{parts}-{digits}" if re.fullmatch(r"[\w.+-]{1,40}", parts, re.ASCII) else digits
