"""What figures were made from: `made_from.json` in their folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from pro_lib.app.parameters import (
    Parameters,
    as_list,
    changed_values,
    changes_numbers,
    default_values,
)
from pro_lib.common.files import RunError, sha256, write_whole
from pro_lib.runs.run import Run

NAME = "made_from.json"
_FILES = ("dataset", "records", "correctness")


def run_name(run: Run) -> str:
    """Return dataset, model and strategy of a run, and the number of its questions."""
    folder = f"{run.info.dataset}/{run.info.model}/{run.info.strategy}"
    return f"{folder}, {len(run.questions)} questions"


def run_digest(run: Run) -> str:
    """Return a digest of what decides the answers of a run: its parameters and its questions.

    The answers are not part of it, because they differ by rounding on another processor.
    """
    questions = run.questions[["question_id", "question"]].to_json(orient="values")
    return _digest(json.dumps([run.info.parameters, questions], sort_keys=True).encode())


def named_paths(parameters: Parameters) -> list[Path]:
    """Return the files and folders that the parameters name."""
    values = [getattr(parameters, name) for name in _FILES]
    names = [name for value in values if not callable(value) for name in as_list(value)]
    return [path for path in map(Path, names) if path.exists()]


def file_digests(paths: Iterable[Path]) -> dict[str, str]:
    """Return digests of the contents of files by their names.

    A file with the name of another one has the name of its folder, too.
    """
    digests: dict[str, str] = {}
    for path in paths:
        name = path.name if path.name not in digests else f"{path.parent.name}/{path.name}"
        digests[name] = _digest(path.read_bytes())
    return digests


def note_figure(
    name: str, parameters: Parameters, inputs: Mapping[str, str], *, figures_dir: Path
) -> None:
    """Write the parameters and inputs of a figure to `made_from.json` in its folder.

    Args:
        name: the name of the figure.
        parameters: those that differ from their defaults are written, without those that do not
            change a number, such as the device. A path is written without its folder.
        inputs: digests by the names of runs and files.
        figures_dir: the folder.

    Raises:
        RunError: if the folder has another file of this name.
    """
    defaults = default_values()
    changed = changed_values({key: getattr(parameters, key) for key in defaults}, defaults)
    shown = {key: _without_folder(changed[key]) for key in changed if changes_numbers(key)}
    entry = {"parameters": shown, "inputs": dict(sorted(inputs.items()))}
    path = figures_dir / NAME
    with FileLock(path.with_name(f".{NAME}.lock")):  # several notebooks may run at a time
        entries = _read(path) if path.exists() else {}
        if entries.get(name) != entry:
            entries = dict(sorted({**entries, name: entry}.items()))
            text = json.dumps(entries, indent=1, ensure_ascii=False)
            write_whole(f"{text}\n".encode(), path)


def _read(path: Path) -> dict[str, Any]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        entries = None
    if not isinstance(entries, dict):
        raise RunError(f"{path} was not written by this package; move it, or choose another folder")
    return entries


def _without_folder(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_folder(each) for each in value]
    return Path(value).name if isinstance(value, str) and os.path.exists(value) else value


def _digest(data: bytes) -> str:
    return sha256(data)[:16]
