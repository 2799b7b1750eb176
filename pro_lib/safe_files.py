"""Files that survive: written whole or not at all, by one process at a time, and every failure told in one sentence.

It knows paths, locks and what an operating system refuses; it does not know what a run is.
"""

import errno
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

try:
    import fcntl
except ImportError:  # Windows has no flock; runs can still be read there
    fcntl = None

DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, FileNotFoundError, pa.ArrowException)


class RunError(ValueError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@contextmanager
def reading(path: Path, *, remedy: str) -> Iterator[None]:
    """What a damaged or unreadable file leads to becomes a sentence that names the file and the remedy."""
    try:
        yield
    except RunError:
        raise
    except DAMAGE as error:
        raise RunError(f"{path} is missing or damaged ({type(error).__name__}: {error}); {remedy}") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read: {_reason(error)}") from error


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


def lock(folder: Path) -> int:
    """Lock a run folder; the descriptor whose closing frees it, which the system does when the process ends.

    The lock is advisory (`flock`) and lies on the folder's file `.lock`, which stays and says who held it last. On a
    network file system it reaches other machines where the mount supports `flock` (NFS does, Lustre with the option
    of that name); where a folder cannot be locked at all, a warning says so and nothing else happens.

    Raises:
        RunError: another process holds the lock, or its file cannot be written.
    """
    path = folder / ".lock"
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise RunError(
            f"run folder {folder} is being written by {holder}; wait until that has ended, "
            "or choose another folder (out=, in notebooks generations_dir)"
        ) from None
    except (OSError, AttributeError) as error:
        reason = _reason(error) if isinstance(error, OSError) else "this system has no flock"
        message = f"run folder {folder} cannot be locked: {reason}; let no other process write there"
        warnings.warn(message, UserWarning, stacklevel=2)
    with suppress(OSError):  # the name is a courtesy; a full disk will be told of where it matters
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return descriptor


def _holder(descriptor: int) -> str:
    """Who holds the lock; a moment is granted to a process that has just got it and not yet said its name."""
    for _ in range(20):
        os.lseek(descriptor, 0, os.SEEK_SET)
        if text := os.read(descriptor, 200).decode(errors="replace"):
            return text
        time.sleep(0.05)
    return "another process"


def make_folder(path: Path) -> None:
    """Make a folder and those above it, to stay."""
    with writing(path):
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in made:
            _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    """Make the names in a folder outlast a power cut, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without such a thing
            raise
    finally:
        os.close(descriptor)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there as a whole, and to stay, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            with suppress(OSError):  # a disk that refuses this has said why above
                temporary.unlink(missing_ok=True)
