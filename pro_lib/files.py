"""Files that are whole or absent, how folders are named, and a sentence for what goes wrong; knows no run."""

import errno
import hashlib
import json
import os
import re
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from pro_lib.checks import SentenceError, sentence

# File systems without locks say one of these; the run is written all the same.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class RunError(SentenceError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@contextmanager
def reading(path: Path, *, remedy: str) -> Iterator[None]:
    """Turn what a damaged or unreadable file leads to into a sentence that names the file and the remedy."""
    try:
        yield
    except RunError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # None: by Arrow, of what it read
            raise RunError(f"{path} cannot be read: {_reason(error)}") from error
        reason = sentence(error) if isinstance(error, ValidationError) else error
        raise RunError(f"{path} is missing or damaged ({type(error).__name__}: {reason}); {remedy}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a folder that refuses into a sentence that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {_reason(error)}; what was complete is kept, "
            "and the same command goes on from there once the reason is gone"
        ) from error


def _reason(error: OSError) -> str:
    return f"{error.strerror or error} ({errno.errorcode.get(error.errno, type(error).__name__)})"


def parsed(data: bytes, kind: type) -> Any:
    """Return JSON as a dataclass, by its declared types; Infinity and NaN, which are no JSON, are refused."""
    from_json(data, allow_inf_nan=False)
    return TypeAdapter(kind).validate_json(data, strict=True)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there as a whole, and to stay, or not at all."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(OSError):  # a disk that refuses this has said why above
                temporary.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def locked(folder: Path) -> FileLock:
    """Return the lock of a folder, held until its release, or the end of the process, however it ends."""
    lock = FileLock(folder / ".lock", thread_local=False, blocking=False)
    with writing(folder / ".lock"):
        try:
            lock.acquire()
        except Timeout:
            raise RunError(
                f"run folder {folder} is being written by another process; wait until that has ended, "
                "or choose another folder (out=, in notebooks generations_dir)"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            message = f"run folder {folder} cannot be locked: {_reason(error)}; let no other process write there"
            warnings.warn(message, UserWarning, stacklevel=2)
    return lock


def named(strategy: str, apart: Mapping[str, object]) -> str:
    """Return the name of a run folder: the strategy, and the settings that are not by default.

    As `<strategy>,n_answers=20`. A value that is no number and no short word is eight digits of its SHA-256.
    """
    return ",".join([strategy, *(f"{name}={_in_a_name(value)}" for name, value in apart.items())])


def _in_a_name(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()  # 2.0 is what 2 is
    text = json.dumps(int(value) if whole else value, sort_keys=True).strip('"')
    return text if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII) else sha256(text.encode())[:8]


def trial_name(changed: Mapping[str, Any]) -> str:
    """Return a folder's name, `alpha=0.3,limit=200`; a checksum stands for paths, what is long or has other letters."""
    text = ",".join(f"{name}={value}" for name, value in changed.items())
    short = ",".join(f"{name}={_last_parts(value)}" for name, value in changed.items())
    name = re.sub(r"[^\w.,=+-]+", "_", short, flags=re.ASCII)[:60]
    return name if name == text else f"{name}-{sha256(repr(changed).encode())[:6]}"


def _last_parts(value: object) -> str:
    """Return a value as text, of paths the last part only."""
    parts = value if isinstance(value, list | tuple) else [value]
    return "+".join(str(part).rsplit("/", 1)[-1] for part in parts)
