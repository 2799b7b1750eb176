"""Write files completely or not at all, protect existing files, and name folders; errors are sentences."""

import errno
import hashlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pro_lib.common.validation import SentenceError, sentence


class RunError(SentenceError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@contextmanager
def reading(where: str | Path, *, hint: str = "") -> Iterator[None]:
    """Turn what a damaged or unreadable file leads to into a sentence that names the place, the reason and a hint."""
    try:
        yield
    except RunError:
        raise
    except (
        Exception
    ) as error:  # whatever Arrow, pydantic and the standard library make of damaged files
        reason = (
            sentence(error)
            if isinstance(error, ValidationError)
            else getattr(error, "strerror", None)
        )
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
    """Write a file completely and durably, or not at all.

    The data go to a temporary file beside the target, which then takes the target's place. A symbolic link is
    followed: its target is written, and the link stays. Temporary files that killed processes of this package left
    in the folder are removed.
    """
    with writing(path):
        target = regular(link_target(path))
        temporary = temporary_file(target)
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def link_target(path: str | Path) -> Path:
    """Return the file that a symbolic link leads to, else the path; `RunError` for a link that leads nowhere."""
    if not os.path.islink(path):
        return Path(path)
    if not os.path.exists(path):
        raise RunError(f"{path} is a symbolic link to {os.readlink(path)}, which does not exist")
    return Path(os.path.realpath(path))


def temporary_file(target: Path, suffix: str = "") -> Path:
    """Return the path of this process's temporary file beside a target; remove those of processes that have ended."""
    for file in target.parent.glob(f".*.{_process_space()}.*.tmp*"):
        process = re.search(r"\.(\d{1,9})\.tmp(\.\w+)?\Z", file.name)
        if process and not _is_running(int(process[1])):
            file.unlink(missing_ok=True)
    name = (
        target.name
        if len(os.fsencode(target.name)) <= 150
        else sha256(os.fsencode(target.name))[:16]
    )
    return target.with_name(f".{name}.{_process_space()}.{os.getpid()}.tmp{suffix}")


def _process_space() -> str:
    """Return a name for the machine, or the container in it, whose process numbers this process sees."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    machine = re.sub(r"[^\w-]", "-", socket.gethostname(), flags=re.ASCII)
    return f"{machine[:60]}-{namespace}"


def _is_running(process: int) -> bool:
    """Return whether a process of this machine may be running; on Windows always, where asking would end it."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def check_output(
    path: str | Path,
    *,
    option: str,
    inputs: Iterable[str | Path] = (),
    force: bool = False,
    is_ours: Callable[[Path], bool] | None = None,
) -> None:
    """Raise `RunError` if writing a file would lose another one.

    Args:
        path: the file that will be written; a symbolic link stands for its target.
        option: the option or parameter that names it, for the message.
        inputs: files that the command reads, and folders whose files it reads. None of them may be the output, not
            even with `force`; a symbolic or a hard link to an input is that input. What does not exist is ignored.
        force: whether any other existing file may be replaced.
        is_ours: tells whether an existing file was written by the same command, so that it may be replaced. None
            allows every file that is not an input. An empty file has nothing to lose.
    """
    target = link_target(path)
    if os.path.isdir(target):
        raise RunError(f"{option}: {path} is a folder; give the name of a file")
    regular(target)
    if not os.path.isdir(target.parent):
        raise RunError(f"{option}: the folder {target.parent} does not exist")
    if not os.path.exists(target):
        return
    for file in _files_in(inputs):
        if os.path.samefile(file, target):
            raise RunError(f"{option}: {path} is an input of the same command; give another output")
    if force or is_ours is None or os.path.getsize(target) == 0:
        return
    try:
        known = is_ours(target)
    except OSError as error:
        raise RunError(f"{option}: {path} exists and cannot be read: {error.strerror}") from error
    except Exception:  # whatever readers make of a file of another kind
        known = False
    if not known:
        words = "exists and was not written by this command; give another output, or --force to replace it"
        raise RunError(f"{option}: {path} {words}")


def _files_in(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files among the paths, and the files that lie in the folders among them."""
    for path in map(Path, paths):
        if os.path.isdir(path):
            yield from (file for file in path.iterdir() if file.is_file())
        elif os.path.exists(path):
            yield path


# How a text begins that a spreadsheet would take for a formula, and such a text after it was marked as text.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_MARKED = re.compile(r"'+[=+\-@\t\r]")


def spreadsheet_text(text: str) -> str:
    """Return a text with a leading ``'`` where a spreadsheet would read it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def without_spreadsheet_mark(text: str) -> str:
    """Return the text that `spreadsheet_text` was given."""
    return text[1:] if _MARKED.match(text) else text


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


# What a name must be to become one folder of a path, as run folders have them.
FOLDER_NAME = "the name of a folder: without / or \\ and at most 255 bytes long"


def is_folder_name(name: str) -> bool:
    """Return whether a text can name one folder: no path, no `..`, and no longer than file systems allow."""
    is_short = len(name.encode("utf-8", "surrogatepass")) <= 255
    return is_short and re.fullmatch(r"(?!\s*\.{0,2}\s*\Z)[^/\\\x00-\x1f]+", name) is not None


def check_folder_name(name: str, what: str) -> None:
    """Raise `RunError` where a name cannot be that of one folder."""
    if not is_folder_name(name):
        raise RunError(f"{what}, {name!r:.80}, must be usable as {FOLDER_NAME}")


def folder_name(*words: str, **settings: Any) -> str:
    """Return a folder's name, as `multinomial,n_answers=20`; what is long or no word is digits of its SHA-256."""
    name = ",".join([*words, *(f"{key}={_in_a_name(value)}" for key, value in settings.items())])
    return name if len(name) <= 200 else f"{name[:190]}-{sha256(name.encode())[:8]}"


def _in_a_name(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()  # 2.0 is what 2 is
    text = json.dumps(int(value) if whole else value, sort_keys=True, default=str).strip('"')
    if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII):
        return text
    parts = "+".join(
        str(part).rpartition("/")[2]
        for part in (value if isinstance(value, list | tuple) else [value])
    )
    digits = sha256(text.encode())[:8]
    return f"{parts}-{digits}" if re.fullmatch(r"[\w.+-]{1,40}", parts, re.ASCII) else digits
