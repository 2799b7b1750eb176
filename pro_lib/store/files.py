"""Files that are whole or absent, one writer at a time, and a sentence for what goes wrong; knows no run."""

import errno
import hashlib
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from pro_lib.checks import SentenceError, sentence

# Stands in the place of a file's checksum while the checksum is taken.
_NO_CHECKSUM = b"0" * 64
# File systems without locks say one of these; the run is written all the same.
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class RunError(SentenceError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@contextmanager
def reading(path: Path, *, remedy: str) -> Iterator[None]:
    """What a damaged or unreadable file leads to becomes a sentence that names the file and the remedy."""
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
    """A full disk or a folder that refuses becomes a sentence that names the path and the reason."""
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
    """JSON as a dataclass, by its declared types and no other; Infinity and NaN, which are no JSON, are refused."""
    from_json(data, allow_inf_nan=False)
    return TypeAdapter(kind).validate_json(data, strict=True)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there as a whole, and to stay, or not at all."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    with writing(path):
        try:
            with open(temporary, "wb", opener=no_link) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            with suppress(OSError):  # a disk that refuses this has said why above
                temporary.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def parquet(table: pa.Table, footer: Mapping[str, str]) -> bytes:
    """A table as a Parquet file with these texts in its footer."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(footer)
    return sink.getvalue().to_pybytes()


def write_sealed(table: pa.Table, path: Path, footer: Mapping[str, str]) -> None:
    """Write a table as a whole or not at all, a digest of all its bytes in its footer."""
    data = parquet(table, footer | {"checksum": _NO_CHECKSUM.decode()})
    write_whole(_with_checksum(data, _NO_CHECKSUM, sha256(data).encode()), path)


def read_sealed(path: Path, *, remedy: str) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """A table that was sealed, and its footer. Raises `RunError`, with the remedy, if a bit of it is not as written."""
    with reading(path, remedy=remedy):
        data = path.read_bytes()
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            footer = file.metadata.metadata or {}
            checksum = footer.get(b"checksum", b"missing")
            if sha256(_with_checksum(data, checksum, _NO_CHECKSUM)).encode() != checksum:
                raise RunError(f"{path} was cut short or altered (its checksum differs); {remedy}")
            return file.read(), footer


def _with_checksum(data: bytes, old: bytes, new: bytes) -> bytes:
    """A file's bytes with another checksum, which is the last such text in them: it stands in the footer."""
    return new.join(data.rpartition(old)[::2])


def no_link(name: str, flags: int) -> int:
    """The opener of files of our own: what a link points to is somebody else's, and an error."""
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _sync_folder(path: Path) -> None:
    """Make the names in a folder outlast a power cut, where the system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without such a thing
            raise
    finally:
        os.close(descriptor)


def locked(folder: Path) -> FileLock:
    """The lock of a folder, held until its release, or the end of the process, however it ends.

    The file `.holder` says who held it last. Where nothing can be locked, a warning says so.
    """
    lock, holder = FileLock(folder / ".lock", thread_local=False, blocking=False), folder / ".holder"
    with writing(folder / ".lock"):
        try:
            lock.acquire()
        except Timeout:
            name = holder.read_text(errors="replace") if holder.is_file() else ""
            raise RunError(
                f"run folder {folder} is being written by {name or 'another process'}; wait until that has ended, "
                "or choose another folder (out=, in notebooks generations_dir)"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            message = f"run folder {folder} cannot be locked: {_reason(error)}; let no other process write there"
            warnings.warn(message, UserWarning, stacklevel=2)
    # The name is a courtesy; a full disk will be told of where it matters.
    with suppress(OSError), open(holder, "w", opener=no_link) as file:
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
    return lock
