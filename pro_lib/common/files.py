"""Write files completely or not at all, protect existing files, and name folders."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from pro_lib.common.validation import SentenceError, sentence, system_reason

if TYPE_CHECKING:
    import pandas as pd


class RunError(SentenceError):
    """The error for an unusable file or run folder.

    Its message names the file and the reason.
    """


@contextmanager
def reading(where: str | Path, *, hint: str = "") -> Iterator[None]:
    """Turn the errors about a damaged or unreadable file into a `RunError`.

    Args:
        where: the file, or the place in it.
        hint: what to do, at the end of the sentence.
    """
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # Arrow, pydantic and the standard library raise many types
        advice = f"; {hint}" if hint else ""
        raise RunError(f"{where} cannot be read: {_reason(error)}{advice}") from error


def _reason(error: Exception) -> str:
    """Return the reason of an error about a file, without its number or type if possible."""
    if isinstance(error, ValidationError):
        return sentence(error)
    if isinstance(error, OSError) and error.strerror:
        return system_reason(error)
    return (isinstance(error, ValueError) and str(error)) or repr(error)


def regular(path: str | Path) -> Path:
    """Return a path unless it is a pipe, a device or a folder, which raise `RunError`.

    Reading a pipe or a device may never end. The path need not exist.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise RunError(f"{path} is not a regular file; give the path of a file")
    return Path(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the error of a full disk or a read-only folder into a `RunError`."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {system_reason(error)}; complete files are kept"
        ) from error


def parse(declared: type[BaseModel], value: object, where: str) -> Any:
    """Return a mapping or an object as an object of a declared class.

    Args:
        declared: the class.
        value: the mapping or the object.
        where: the place of the value, for the error.

    Raises:
        RunError: a field is wrong, as `<where>: <field>=<value> <words>`.
    """
    try:
        return declared.model_validate(value)
    except ValidationError as error:
        raise RunError(f"{where}: {sentence(error)}") from None


def write_whole(data: bytes, path: Path) -> None:
    """Write a file completely and durably, or not at all.

    The data go to a temporary file beside the target, which then takes the target's place. A
    symbolic link is followed: its target is written, and the link stays. Temporary files that
    killed processes of this package left in the folder are removed.
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
    """Return the file that a symbolic link leads to, or the path itself if it is not a link.

    Raises:
        RunError: the link leads to a file that does not exist.
    """
    if not os.path.islink(path):
        return Path(path)
    if not os.path.exists(path):
        raise RunError(
            f"{path} is a symbolic link to {os.readlink(path)}, which does not exist; remove "
            "the link"
        )
    return Path(os.path.realpath(path))


def temporary_file(target: Path, suffix: str = "") -> Path:
    """Return the path of this process's temporary file in the folder of a target.

    Temporary files of processes that have ended are removed.
    """
    for file in target.parent.glob(f".*.{_process_space()}.*.tmp*"):
        process = re.search(r"\.(\d{1,9})\.tmp(\.\w+)?\Z", file.name)
        if process and not _is_running(int(process[1])):
            file.unlink(missing_ok=True)
    name = target.name
    if len(os.fsencode(name)) > 150:
        name = sha256(os.fsencode(name))[:16]
    return target.with_name(f".{name}.{_process_space()}.{os.getpid()}.tmp{suffix}")


def _process_space() -> str:
    """Return a name for the machine or the container whose process numbers this process sees."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    machine = re.sub(r"[^\w-]", "-", socket.gethostname(), flags=re.ASCII)
    return f"{machine[:60]}-{namespace}"


def _is_running(process: int) -> bool:
    """Return whether a process of this machine may be running."""
    # The result is always True on Windows, where the question would end the process.
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
    inputs: Iterable[str | Path | None] = (),
    force: bool = False,
    is_ours: Callable[[Path], bool] | None = None,
    foreign: str = "was not written by this command",
) -> None:
    """Raise `RunError` if writing a file would lose another one.

    Args:
        path: the file that will be written; a symbolic link stands for its target.
        option: the option or parameter that names it, for the message.
        inputs: files that the command reads, and folders whose files it reads. None of them may be
            the output, not even with `force`; a symbolic or a hard link to an input is that input.
            Files that do not exist are ignored, and so is None.
        force: whether any other existing file may be replaced.
        is_ours: tells whether an existing file was written by the same command, so that it may be
            replaced. None allows every file that is not an input. An empty file may always be
            replaced.
        foreign: words about another existing file, for the message.
    """
    target = link_target(path)
    if os.path.isdir(target):
        raise RunError(f"{option}: {path} is a folder; give the name of a file")
    regular(target)
    with writing(Path(path)), suppress(FileNotFoundError):
        os.stat(target)  # raises if the name is too long, or its folder is not accessible
    if not os.path.isdir(target.parent):
        raise RunError(f"{option}: the folder {target.parent} does not exist; create it")
    if not os.path.exists(target):
        return
    for file in _files_in(filter(None, inputs)):
        if os.path.samefile(file, target):
            raise RunError(f"{option}: {path} is an input of the same command; give another output")
    if force or is_ours is None or os.path.getsize(target) == 0:
        return
    try:
        is_written_here = is_ours(target)
    except OSError as error:
        raise RunError(
            f"{option}: {path} exists and cannot be read: {system_reason(error)}; give another "
            "output"
        ) from error
    except Exception:  # the readers of files raise many types for a file of another kind
        is_written_here = False
    if not is_written_here:
        raise RunError(
            f"{option}: {path} exists and {foreign}; give another output, or --force to replace it"
        )


def _files_in(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the files among the paths, and the files in the folders among them."""
    for path in map(Path, paths):
        if os.path.isdir(path):
            yield from (file for file in path.iterdir() if file.is_file())
        elif os.path.exists(path):
            yield path


# The beginning of a text that a spreadsheet may read as a formula, also after spaces, line ends and
# separators of fields, and with the signs of a Japanese keyboard.
_FORMULA_START = r"(?:[\t\r]|[\s;,]*[=+\-@＝＋－＠])"
_FORMULA = re.compile(f"'*{_FORMULA_START}")
_MARKED = re.compile(f"'+{_FORMULA_START}")


def csv_text(
    table: pd.DataFrame,
    *,
    raw_text: bool = False,
    format_float: Callable[[float], str] | None = None,
) -> str:
    """Return a table as CSV.

    Args:
        table: the table.
        raw_text: whether texts and the names of columns are written as they are. Otherwise a text
            that a spreadsheet would read as a formula begins with ``'``.
        format_float: returns the text of a number that is not an integer; None for all its digits.
    """
    if not raw_text:
        table = table.rename(columns=_marked_cell).map(_marked_cell)
    text = table.to_csv(index=False, float_format=format_float)
    if "\r" in text:
        # Python's csv module does not quote a carriage return, which readers take for a row's end.
        quoting = csv.QUOTE_NONNUMERIC
        return table.to_csv(index=False, float_format=format_float, quoting=quoting)
    return text


def _marked_cell(cell: object) -> object:
    return spreadsheet_text(cell) if isinstance(cell, str) else cell


def spreadsheet_text(text: str) -> str:
    """Return a text with a leading ``'`` if a spreadsheet would read it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def without_spreadsheet_mark(text: str) -> str:
    """Return a text without the mark of `spreadsheet_text`."""
    return text[1:] if _MARKED.match(text) else text


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def json_digest(value: object) -> str:
    """Return the SHA-256 of a value as JSON, in hexadecimal."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode())


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The rule for a name that becomes one folder of a path.
FOLDER_NAME = "the name of a folder: without / or \\ and at most 255 bytes long"


def is_folder_name(name: str) -> bool:
    """Return whether a text can be the name of one folder, which is not a path and not too long."""
    is_short = len(name.encode("utf-8", "surrogatepass")) <= 255
    return is_short and re.fullmatch(r"(?!\s*\.{0,2}\s*\Z)[^/\\\x00-\x1f]+", name) is not None


def check_folder_name(name: str, what: str) -> None:
    """Raise `RunError` if a name cannot be that of one folder.

    `what` is the value's name.
    """
    if not is_folder_name(name):
        raise RunError(f"{what}, {name!r:.80}, must be usable as {FOLDER_NAME}")


def folder_name(*words: str, **settings: Any) -> str:
    """Return the name of a folder for words and settings.

    Values that are long or contain other characters are replaced by digits of their SHA-256.

    Example:
        >>> folder_name("multinomial", n_answers=20)
        'multinomial,n_answers=20'
    """
    parts = [f"{key}={_text_in_name(value)}" for key, value in settings.items()]
    name = ",".join([*words, *parts])
    return name if len(name) <= 200 else f"{name[:190]}-{sha256(name.encode())[:8]}"


def _text_in_name(value: Any) -> str:
    """Return a value as text that can be a part of a folder's name."""
    is_whole = isinstance(value, float) and value.is_integer()
    json_value = int(value) if is_whole else value  # 2.0 and 2 have the same name
    text = json.dumps(json_value, sort_keys=True, default=str).strip('"')
    if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII):
        return text
    values = value if isinstance(value, list | tuple) else [value]
    names = "+".join(str(part).rpartition("/")[2] for part in values)
    digits = sha256(text.encode())[:8]
    return f"{names}-{digits}" if re.fullmatch(r"[\w.+-]{1,40}", names, re.ASCII) else digits
