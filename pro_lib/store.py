"""A run as a folder: parts that are whole or absent, one writer at a time; knows no weights and no meaning of numbers.

`run.json` has what decides the answers; `part-NNNNN-<digest>.parquet` the answers to some questions, a row each, with
their cost and a digest of the run's parameters in its footer. The digest in the name is of all the file's bytes.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from pro_lib.files import RunError, locked, parsed, reading, sha256, write_whole, writing
from pro_lib.parts import FORMAT_VERSION, Cost, Part, RunInfo, tables

_MOVE_AWAY = "restore it from a copy, or move the folder away and start again"
_MAKE_AGAIN = "delete it to make the part again"


class RunFolder(AbstractContextManager):
    """A run being written, part by part, by one process at a time.

    Writing locks the folder until the end of the `with`, or of the process, however it ends. A folder in which nothing
    is missing is only read. Every method raises `RunError` if the run was made with other parameters or in another
    format, is written by another process, is damaged, or cannot be written. What was complete stays as it is.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self._given, self.info = Path(path), info, info
        self._lock: FileLock | None = None
        self._take_over()

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def missing(self, questions: pd.DataFrame, *, per_part: int) -> list[Part]:
        """Return the questions that no part holds, in their order, `per_part` to a part.

        Parts are cut in the order of the questions, so that a run that was stopped goes on as it would have.
        """
        if not len(self._unanswered(questions)[0]):
            return []
        self._hold()
        unanswered, n_answered = self._unanswered(questions)  # another process may have written meanwhile
        numbers = {int(file.name.split("-")[1]) for file in _parts(self.path)}
        free = (number for number in range(len(numbers) + len(unanswered)) if number not in numbers)
        starts = range(0, len(unanswered), per_part)
        self._save(replace(self.info, n_planned=n_answered + len(unanswered), provenance={}))
        return [Part(f"part-{next(free):05}", unanswered.iloc[start : start + per_part]) for start in starts]

    def write(self, part: Part, table: pa.Table, cost: Cost) -> None:
        """Write a part so that it is there as a whole or not at all; `table` as of `part_table`."""
        self._hold()
        write_part(self.path, part, self.info, table, cost)

    def finish(self, provenance: Mapping[str, object]) -> None:
        """Sum up the cost of all parts, and note where the run was made and how many packs were halved."""
        self._hold()
        parts = self._read_all(["question_id"])
        cost, n_answered = sum((cost for _, cost in parts), Cost()), sum(len(table) for table, _ in parts)
        provenance = {**provenance, "halved_packs": cost.halved_packs}
        self._save(replace(self.info, cost=cost, n_planned=n_answered, provenance=provenance))

    def _hold(self) -> None:
        """Become the only writer."""
        if self._lock is not None:
            return
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = locked(self.path)
        try:
            with writing(self.path):
                for name in os.listdir(self.path):  # what a process left that was killed while it wrote
                    if name.startswith((".run.json", ".part-")):
                        (self.path / name).unlink(missing_ok=True)
            if not self._take_over():
                self._save(self._given)
        except BaseException:
            self.__exit__()
            raise

    def _take_over(self) -> bool:
        """Go by what the folder says of its run; False if it is a new one."""
        file = self.path / "run.json"
        if not file.exists():
            if _parts(self.path):
                raise RunError(f"{file} is missing, but parts are there; {_MOVE_AWAY}")
            return False
        self.info = _read_info(self.path)
        if differs := difference(self.info.parameters, self._given.parameters):
            raise RunError(
                f"run folder {self.path} was made with {differs} is asked for; "
                "choose another folder (out=, in notebooks generations_dir), or move this one away"
            )
        return True

    def _unanswered(self, questions: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Return the questions that no part holds, and how many questions the parts hold; every part is checked.

        Raises `RunError` where a question is held with another text.
        """
        texts = {}
        for table, _ in self._read_all(["question_id", "question"]):
            texts |= dict(zip(*(table[name].to_pylist() for name in ("question_id", "question")), strict=True))
        for name, text in questions[["question_id", "question"]].itertuples(index=False):
            if texts.get(name, text) != text:
                raise RunError(f"run folder {self.path} holds question {name!r} with another text")
        return questions[~questions["question_id"].isin(list(texts))], len(texts)

    def _read_all(self, columns: Sequence[str]) -> list[tuple[pa.Table, Cost]]:
        return [_read_part(file, self.info, columns) for file in _parts(self.path)]

    def _save(self, info: RunInfo) -> None:
        content = asdict(info)
        text = json.dumps(content | {"checksum": _digest(content)}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(f"{text}\n".encode(), self.path / "run.json")
        self.info = info


def read(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """Return the answers, the questions and the info of the finished parts of a run folder.

    Raises:
        RunError: the folder is no run or in another format, or holds a part that is damaged or not of this run.
    """
    files, info = _parts(path), _read_info(path)
    if not files:
        raise RunError(f"run folder {path} has no finished part yet; run the generation again to continue it")
    answers, questions = tables([_read_part(file, info)[0] for file in files])
    if (repeated := questions["question_id"].duplicated()).any():
        name = questions.loc[repeated, "question_id"].iloc[0]
        raise RunError(f"run folder {path} holds question {name!r} in two parts; {_MOVE_AWAY}")
    return answers, questions, info


def write_part(path: Path, part: Part, info: RunInfo, table: pa.Table, cost: Cost) -> None:
    """Write a part into a run folder that this process, or the one it works for, holds; `info` is the folder's."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"cost": json.dumps(asdict(cost)), "identity": _digest(info.parameters)})
    data = sink.getvalue().to_pybytes()
    write_whole(data, path / f"{part.name}-{sha256(data)[:16]}.parquet")


def has_part(path: Path, part: Part) -> bool:
    """Say whether a part of a run folder is complete."""
    return any(path.glob(f"{part.name}-*.parquet"))


def has_parts(path: Path) -> bool:
    """Say whether any part of a run folder is complete; one that was killed before has none, and can be continued."""
    return bool(_parts(path))


def _parts(path: Path) -> list[Path]:
    with reading(path, remedy=_MOVE_AWAY):
        return sorted(path.glob("part-*.parquet"))


def _read_part(file: Path, info: RunInfo, columns: Sequence[str] | None = None) -> tuple[pa.Table, Cost]:
    """Return a part's table, or some of its columns, and its cost, if it is whole and of this run."""
    with reading(file, remedy=_MAKE_AGAIN):
        if not file.is_file():
            raise RunError(f"{file} is no file; move it away")
        data = file.read_bytes()
        if not re.fullmatch(rf"part-\d+-{sha256(data)[:16]}", file.stem):
            raise RunError(f"{file} was cut short or altered (its checksum differs); {_MAKE_AGAIN}")
        with pq.ParquetFile(pa.BufferReader(data)) as part:
            footer = part.metadata.metadata or {}
            if footer.get(b"identity") != _digest(info.parameters).encode():
                raise RunError(f"{file} is a part of another run, with other parameters; move it away")
            return part.read(columns), parsed(footer.get(b"cost", b""), Cost)


def _read_info(path: Path) -> RunInfo:
    file = path / "run.json"
    with reading(file, remedy=_MOVE_AWAY):
        if not file.is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        content = parsed(file.read_bytes(), dict)
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise RunError(f"{file} has format version {version}; this program reads {FORMAT_VERSION}; {_MOVE_AWAY}")
        if content.pop("checksum", None) != _digest(content):
            raise RunError(f"{file} was altered (its checksum differs); {_MOVE_AWAY}")
        return parsed(json.dumps(content).encode(), RunInfo)


def named(strategy: str, apart: Mapping[str, object]) -> str:
    """Return the name of a run folder: the strategy, and the settings that are not by default.

    As `<strategy>,n_answers=20`. A value that is no number and no short word is eight digits of its SHA-256.
    """
    return ",".join([strategy, *(f"{name}={_in_a_name(value)}" for name, value in apart.items())])


def _in_a_name(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()  # 2.0 is what 2 is
    text = json.dumps(int(value) if whole else value, sort_keys=True).strip('"')
    return text if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII) else sha256(text.encode())[:8]


def difference(stored: Mapping, wanted: Mapping, *, only_known: bool = False) -> str | None:
    """Return the first parameter that differs, `key=before, now key=after`; None if none does.

    With `only_known`, parameters that `wanted` does not speak of are passed over.
    """
    for key in sorted(wanted if only_known else {*stored, *wanted}):
        before, now = stored.get(key), wanted.get(key)
        if before != now:
            return f"{key}={_short(before)}, now {key}={_short(now)}"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({sha256(text.encode())[:8]})"


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
