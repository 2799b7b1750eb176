"""The run folder: which questions are planned, which parts are there, and whether they are this run's.

`run.json` has what decides the answers, and the plans; `plan-NNN.parquet` the questions of a plan in their order;
`part-NNN-NNNNN.parquet` the answers to some of them. A part's footer says what it cost, and has two digests: of what
makes it this run's and no other's, and of all its bytes.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from pro_lib.store import files
from pro_lib.store.files import RunError
from pro_lib.store.tables import FORMAT_VERSION, Cost, Part, Plan, RunInfo, tables, to_pandas

_MOVE_AWAY = "restore it from a copy, or move the folder away and start again"
_MAKE_AGAIN = "delete it to make the part again"


class RunFolder(AbstractContextManager):
    """A run being written: a plan of the questions asked for, and parts that are whole or absent.

    One process writes at a time: the first thing to be written locks the folder until `close`, the end of a `with`,
    or the end of the process, however it ends. A folder in which nothing is missing is only read: it needs no lock
    and may be read-only.

    Raises:
        RunError: from any method, if the run was made with other parameters or in another format, is written by
            another process, is damaged, or cannot be written. What was complete stays as it is.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self._asked, self.info = Path(path), info, info
        self._lock: FileLock | None = None
        self._take_over()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def plan(self, questions: pd.DataFrame, *, per_pack: int, per_part: int) -> None:
        """Plan those of the questions that the run has not planned yet, after those it has."""
        fresh = self._fresh(questions)
        if len(fresh) and self._hold():
            fresh = self._fresh(questions)
        if len(fresh):
            data = files.parquet(pa.Table.from_pandas(fresh, preserve_index=False), {})
            files.write_whole(data, self.path / f"plan-{len(self.info.plans):03}.parquet")
            plan = Plan(len(fresh), per_pack, per_part, files.sha256(data))
            # Without provenance the run counts as unfinished, so that its cost is summed up again.
            self._save(replace(self.info, plans=(*self.info.plans, plan), provenance={}))

    def missing_parts(self) -> list[Part]:
        """Every planned part that is not there yet, in order."""
        missing = self._missing()
        return self._missing() if missing and self._hold() else missing

    def write_part(self, part: Part, table: pa.Table, cost: Cost) -> None:
        """Write a part so that it is there as a whole or not at all; `table` as of `part_table`."""
        self._hold()
        write_part(self.path, part, self.info, table, cost)

    def finish(self, provenance: Mapping[str, object]) -> None:
        """Sum up the cost of all parts, and note where the run was made and how many packs were halved."""
        self._hold()
        self._clear_away()
        cost = self._cost()
        self._save(replace(self.info, cost=cost, provenance={**provenance, "halved_packs": cost.halved_packs}))

    def _hold(self) -> bool:
        """Become the only writer; True if that is new, so that what was read before has to be read again.

        What is there is checked before work is put into more.
        """
        if self._lock is not None:
            return False
        with files.writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = files.locked(self.path)
        try:
            self._clear_away()
            if not self._take_over():
                self._save(self._asked)
            self._cost()
        except BaseException:
            self.close()
            raise
        return True

    def _clear_away(self) -> None:
        """Delete what a process left that was killed while it wrote."""
        with files.writing(self.path):
            for stray in os.listdir(self.path):
                if stray.startswith((".run.json", ".plan-", ".part-")):
                    (self.path / stray).unlink(missing_ok=True)

    def _take_over(self) -> bool:
        """Go by what the folder says of its run; False if it is a new one."""
        file = self.path / "run.json"
        with files.reading(file, remedy=_MOVE_AWAY):
            # In this order: another process may just be making the folder, and writes run.json first.
            names = os.listdir(self.path) if self.path.is_dir() else []
            if not file.exists():
                if any(name.startswith(("plan-", "part-")) for name in names):
                    raise RunError(f"{file} is missing, but plans or parts are there; {_MOVE_AWAY}")
                return False
        self.info = _read_info(self.path)
        differs = difference(self.info.parameters, self._asked.parameters)
        if differs:
            raise RunError(
                f"run folder {self.path} was made with {differs} is asked for; "
                "choose another folder (out=, in notebooks generations_dir), or move this one away"
            )
        return True

    def _fresh(self, questions: pd.DataFrame) -> pd.DataFrame:
        """Those of the questions that are not planned."""
        plans = [self._read_plan(number) for number in range(len(self.info.plans))]
        planned = {name: text for plan in plans for name, text in plan[["question_id", "question"]].to_numpy()}
        for name, text in questions[["question_id", "question"]].to_numpy():
            if planned.get(name, text) != text:
                raise RunError(f"run folder {self.path} holds question {name!r} with another text")
        return questions[~questions["question_id"].isin(list(planned))]

    def _missing(self) -> list[Part]:
        parts = []
        for number, plan in enumerate(self.info.plans):
            questions = self._read_plan(number)
            for place, start in enumerate(range(0, len(questions), plan.per_part)):
                of_part = questions.iloc[start : start + plan.per_part]
                parts.append(Part(f"part-{number:03}-{place:05}", of_part, plan.per_pack))
        return [part for part in parts if not has_part(self.path, part)]

    def _read_plan(self, number: int) -> pd.DataFrame:
        file = self.path / f"plan-{number:03}.parquet"
        with files.reading(file, remedy=_MOVE_AWAY):
            data = file.read_bytes()
            if files.sha256(data) != self.info.plans[number].checksum:
                raise RunError(f"{file} was cut short or altered (its checksum differs); {_MOVE_AWAY}")
            return to_pandas([pq.read_table(pa.BufferReader(data))])

    def _cost(self) -> Cost:
        """What the parts that are there have cost, each of which is checked."""
        return sum((_read_part(file, self.info)[1] for file in _parts(self.path)), Cost())

    def _save(self, info: RunInfo) -> None:
        content = asdict(info)
        text = json.dumps(content | {"checksum": _digest(content)}, indent=1, sort_keys=True, allow_nan=False)
        files.write_whole(f"{text}\n".encode(), self.path / "run.json")
        self.info = info


def named(strategy: str, apart: Mapping[str, object]) -> str:
    """The name of a run folder: the strategy, and the settings that are not by default, `<strategy>,n_answers=20`.

    A value that is no number and no short word is eight digits of its SHA-256.
    """
    return ",".join([strategy, *(f"{name}={_in_a_name(value)}" for name, value in apart.items())])


def _in_a_name(value: object) -> str:
    whole = isinstance(value, float) and value.is_integer()  # 2.0 is what 2 is
    text = json.dumps(int(value) if whole else value, sort_keys=True).strip('"')
    return text if re.fullmatch(r"[\w.+-]{1,20}", text, re.ASCII) else files.sha256(text.encode())[:8]


def has_part(path: Path, part: Part) -> bool:
    """Whether a part of a run folder is complete."""
    return (path / f"{part.name}.parquet").exists()


def has_parts(path: Path) -> bool:
    """Whether any part of a run folder is complete; one that was killed before has none, and can be continued."""
    return bool(_parts(path))


def begin_part(path: Path, part: Part) -> int:
    """Note that a worker begins a part; how many workers have begun it and not completed it, this one included."""
    file = path / f".{part.name}.begun"
    with files.writing(file), open(file, "ab", opener=files.no_link) as begun:
        begun.write(b".")
        return begun.tell()


def write_part(path: Path, part: Part, info: RunInfo, table: pa.Table, cost: Cost) -> None:
    """Write a part into a run folder that this process, or the one it works for, holds; `info` is the folder's."""
    footer = {"cost": json.dumps(asdict(cost)), "identity": _identity(info, part.name)}
    files.write_sealed(table, path / f"{part.name}.parquet", footer)
    (path / f".{part.name}.begun").unlink(missing_ok=True)


def read(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """The answers, the questions and the info of the finished parts of a run folder.

    Raises:
        RunError: the folder is no run or in another format, or holds a part that is damaged or not of this run.
    """
    found = _parts(path)  # before run.json: who writes meanwhile plans parts before they are there
    info = _read_info(path)
    if not found:
        raise RunError(f"run folder {path} has no finished part yet; run the generation again to continue it")
    return *tables([_read_part(file, info)[0] for file in found]), info


def _parts(path: Path) -> list[Path]:
    with files.reading(path, remedy=_MOVE_AWAY):
        return sorted(path.glob("part-*.parquet"))


def difference(stored: Mapping, asked: Mapping, *, only_known: bool = False) -> str | None:
    """The first parameter that differs, `key=before, now key=after`; None if none does.

    With `only_known`, parameters that `asked` does not speak of are passed over.
    """
    for key in sorted(asked if only_known else {*stored, *asked}):
        before, now = stored.get(key), asked.get(key)
        if before != now:
            return f"{key}={_short(before)}, now {key}={_short(now)}"
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({files.sha256(text.encode())[:8]})"


def _read_info(path: Path) -> RunInfo:
    file = path / "run.json"
    with files.reading(file, remedy=_MOVE_AWAY):
        if not file.is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        data = file.read_bytes()
        content = files.parsed(data, dict)
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise RunError(
                f"{file} has format version {version}; this program reads version {FORMAT_VERSION}; {_MOVE_AWAY}"
            )
        if content.pop("checksum", None) != _digest(content):
            raise RunError(f"{file} was altered (its checksum differs); {_MOVE_AWAY}")
        return files.parsed(json.dumps(content).encode(), RunInfo)


def _identity(info: RunInfo, name: str) -> str:
    """What makes a part this run's and no other's: the run's parameters, the part's name and the plan it belongs to."""
    number = name.split("-")[1]
    plan = info.plans[int(number)] if number.isdecimal() and int(number) < len(info.plans) else None
    return _digest([info.parameters, name, plan and asdict(plan)])


def _digest(content: object) -> str:
    return files.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())


def _read_part(file: Path, info: RunInfo) -> tuple[pa.Table, Cost]:
    """A part's table and cost, if it is whole and the part that the run planned under this name."""
    table, footer = files.read_sealed(file, remedy=_MAKE_AGAIN)
    if footer.get(b"identity") != _identity(info, file.stem).encode():
        raise RunError(
            f"{file} is not the part that run.json plans under this name (it is another's, or run.json was "
            f"altered); restore run.json from a copy, or {_MAKE_AGAIN}"
        )
    with files.reading(file, remedy=_MAKE_AGAIN):
        return table, files.parsed(footer.get(b"cost", b""), Cost)
