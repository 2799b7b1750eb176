"""A run as files: a folder of JSON and Parquet parts, each whole or absent; knows schemas, checksums and who is writing, not weights, decoding or what the numbers mean."""

import csv
import errno
import hashlib
import json
import os
import socket
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

try:
    import fcntl
except ImportError:  # Windows has no flock; runs can still be read there
    fcntl = None

# The last part of a run folder's path; here, and not beside the code, so that a name is checked without loading torch.
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
# Likewise where runs are made, and how weights may be shrunk.
ENGINES = ("local", "ray")
QUANTIZATIONS = ("8bit", "4bit")
FORMAT_VERSION = 1
MOVE_AWAY = "restore it from a copy, or move the folder away and start again"
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, FileNotFoundError, pa.ArrowException)
ANSWER_SCHEMA = pa.schema(
    {
        "question_id": pa.string(),
        "rank": pa.int32(),
        "text": pa.string(),
        "token_ids": pa.list_(pa.int32()),
        "token_log_probs": pa.list_(pa.float64()),
        "log_prob": pa.float64(),
        "end_log_prob": pa.float64(),
        "finished": pa.bool_(),
    }
)
_MASSES = ("found_mass", "small_endings_mass", "pruned_mass", "length_cut_mass", "budget_cut_mass")
_COUNTS = ("expanded_prefixes", "depth", "live_width", "prompt_tokens", "token_forwards")
# What an exact search leaves beside each question; `certificate.Ledger` says what the columns mean.
LEDGER_SCHEMA = pa.schema(
    dict.fromkeys(("status", "why"), pa.string())
    | dict.fromkeys(("search_alpha", "epsilon", *_MASSES), pa.float64())
    | dict.fromkeys(_COUNTS, pa.int64())
    | dict.fromkeys(("alpha_floor", "tree_bound", "upper_bound"), pa.float64())
    | dict.fromkeys(("tree_parents", "tree_tokens"), pa.list_(pa.int32()))
    | dict.fromkeys(("tree_log_probs", "tree_entropies"), pa.list_(pa.float64()))
    | {"tree_greedy": pa.list_(pa.bool_())}
)


class RunError(ValueError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


@dataclass(frozen=True)
class Cost:
    """What a run or a part of one has cost; `halved_packs` says how often a pack was too large for the memory."""

    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    halved_packs: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Cost(**sums | {"peak_memory_bytes": max(self.peak_memory_bytes, other.peak_memory_bytes)})


@dataclass(frozen=True)
class RunInfo:
    """Where a run comes from. `parameters` decide its answers; the rest is told, not compared.

    `plans` holds a `(questions, questions per pack, questions per part)` for each time questions were added, and
    `plan_checksums` the SHA-256 of each plan's file.
    """

    dataset: str
    model: str
    strategy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    plans: Sequence[tuple[int, int, int]] = ()
    plan_checksums: Sequence[str] = ()
    cost: Cost = Cost()


class RunFolder:
    """A run being written: a plan of the questions asked for, and parts that are whole or absent.

    `run.json` says what decides the answers, `plan-*.parquet` which questions were asked for and in which order,
    and every part is two Parquet files and, written last, a JSON with their checksums and what they cost.

    One process writes at a time: the first thing to be written locks the folder until `close`, the end of a `with`,
    or the end of the process, however it ends. A folder in which nothing is missing is only read: it needs no lock
    and may be read-only.

    Raises:
        RunError: from any method, if the run was made with other parameters or by a newer format, is written by
            another process, is damaged, or cannot be written. What was complete stays as it is.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self._asked = Path(path), info
        self._release: weakref.finalize | None = None
        self.info = info
        self._take_over()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process write."""
        if self._release is not None:
            self._release()
            self._release = None

    def _hold(self) -> bool:
        """Become the only writer; True if that is new, so that what was read before has to be read again."""
        if self._release is not None:
            return False
        with _writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._release = weakref.finalize(self, os.close, _lock(self.path))
        try:
            self._clear_away()
            if not self._take_over():
                self._save(self._asked)
        except BaseException:
            self.close()
            raise
        return True

    def _clear_away(self) -> None:
        """Delete what a process left that was killed while it wrote."""
        for kind in ("run.json", "plan-", "part-"):
            for stray in self.path.glob(f".{kind}*"):
                with _writing(stray):
                    stray.unlink(missing_ok=True)

    def _take_over(self) -> bool:
        """Go by what the folder says of its run; False if it is a new one."""
        file = self.path / "run.json"
        with _reading(file, remedy=MOVE_AWAY):
            # In this order: another process may just be making the folder, and writes run.json first.
            names = os.listdir(self.path) if self.path.is_dir() else []
            new = not file.exists()
        if new and any(name.startswith(("plan-", "part-")) for name in names):
            raise RunError(f"{file} is missing, but plans or parts are there; {MOVE_AWAY}")
        if new:
            return False
        self.info = _read_info(self.path)
        stored, asked = self.info.parameters, self._asked.parameters
        for key in sorted({*stored, *asked}):
            before, now = stored.get(key), asked.get(key)
            if before != now:
                raise RunError(
                    f"run folder {self.path} was made with {key}={_short(before)}, now {key}={_short(now)} is asked "
                    "for; choose another folder (out=, in notebooks generations_dir), or move this one away"
                )
        return True

    def plan(self, questions: pd.DataFrame, *, per_pack: int, per_part: int) -> None:
        """Plan those of the questions that the run has not planned yet, after those it has."""
        fresh = self._fresh(questions)
        if len(fresh) and self._hold():
            fresh = self._fresh(questions)
        if len(fresh):
            table = pa.Table.from_pandas(fresh, preserve_index=False)
            checksum = _write_table(table, self.path / f"plan-{len(self.info.plans):03}.parquet")
            plans = [*self.info.plans, (len(fresh), per_pack, per_part)]
            checksums = [*self.info.plan_checksums, checksum]
            # Without provenance the run counts as unfinished, so that its cost is summed up again.
            self._save(replace(self.info, plans=plans, plan_checksums=checksums, provenance={}))

    def _fresh(self, questions: pd.DataFrame) -> pd.DataFrame:
        """Those of the questions that are not planned."""
        planned: dict[str, str] = {}
        for number in range(len(self.info.plans)):
            table = self._read_plan(number)
            planned.update(zip(table["question_id"], table["question"], strict=True))
        for question_id, text in zip(questions["question_id"], questions["question"], strict=True):
            if planned.get(question_id, text) != text:
                raise RunError(f"run folder {self.path} holds question {question_id!r} with another text")
        return questions[~questions["question_id"].isin(list(planned))]

    def missing_parts(self) -> list[tuple[str, pd.DataFrame, int]]:
        """Name, questions and questions per pack of every planned part that is not there yet, in order.

        Where any is missing, those that are there are checked before work is put into the others.
        """
        missing = self._missing()
        if missing and self._hold():
            missing = self._missing()
        if missing:
            for marker in sorted(self.path.glob("part-*.json")):
                _read_part(marker)
        return missing

    def _missing(self) -> list[tuple[str, pd.DataFrame, int]]:
        missing = []
        for number, (_, per_pack, per_part) in enumerate(self.info.plans):
            questions = self._read_plan(number)
            for part, start in enumerate(range(0, len(questions), per_part)):
                name = f"part-{number:03}-{part:05}"
                if not has_part(self.path, name):
                    missing.append((name, questions.iloc[start : start + per_part], per_pack))
        return missing

    def write_part(self, name: str, questions: pa.Table, answers: pa.Table, cost: Cost) -> None:
        """Write a part so that it is there as a whole or not at all."""
        self._hold()
        write_part(self.path, name, questions, answers, cost)

    def finish(self, provenance: Mapping[str, object]) -> None:
        """Sum up the cost of all parts, and note where the run was made and how many packs were halved."""
        if not self._hold():
            self._clear_away()
        cost = sum((_read_marker(path)[1] for path in sorted(self.path.glob("part-*.json"))), Cost())
        self._save(replace(self.info, cost=cost, provenance={**provenance, "halved_packs": cost.halved_packs}))

    def _read_plan(self, number: int) -> pd.DataFrame:
        checksum = self.info.plan_checksums[number] if number < len(self.info.plan_checksums) else None
        return to_pandas(_read_table(self.path / f"plan-{number:03}.parquet", checksum, remedy=MOVE_AWAY))

    def _save(self, info: RunInfo) -> None:
        _write_json({"format_version": FORMAT_VERSION, **asdict(info)}, self.path / "run.json")
        self.info = info


def has_part(path: Path, name: str) -> bool:
    """Whether a part of a run folder is complete."""
    return (path / f"{name}.json").exists()


def begin_part(path: Path, name: str) -> int:
    """Note that a worker begins a part; how many workers have begun it and not completed it, this one included."""
    file = path / f".{name}.begun"
    with _writing(file), open(file, "ab") as begun:
        begun.write(b".")
        return begun.tell()


def write_part(path: Path, name: str, questions: pa.Table, answers: pa.Table, cost: Cost) -> None:
    """Write a part into a run folder that this process, or the one it works for, holds."""
    checksums = {}
    for kind, table in (("questions", questions), ("answers", answers)):
        checksums[kind] = _write_table(table, path / f"{name}.{kind}.parquet")
    _write_json({"sha256": checksums, "cost": asdict(cost)}, path / f"{name}.json")
    (path / f".{name}.begun").unlink(missing_ok=True)


def read_tables(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """The answers, the questions and the info of the finished parts of a run folder.

    Raises:
        RunError: the folder is no run, was written by a newer format, or a part is damaged or missing.
    """
    info = _read_info(path)
    questions, answers = [], []
    for marker in sorted(path.glob("part-*.json")):
        for tables, table in zip((questions, answers), _read_part(marker), strict=True):
            tables.append(table)
    if not questions:
        raise RunError(f"run folder {path} has no finished part yet; run the generation again to continue it")
    return _concatenated(answers), _concatenated(questions), info


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """A table as pandas, its references as lists."""
    frame = table.to_pandas()
    if "references" in frame:
        frame["references"] = [None if refs is None else list(refs) for refs in frame["references"]]
    return frame


def _concatenated(tables: list[pa.Table]) -> pd.DataFrame:
    return to_pandas(pa.concat_tables(tables, promote_options="permissive"))


def _read_part(marker: Path) -> tuple[pa.Table, pa.Table]:
    """The questions and the answers of a part, if they are what its marker says they are."""
    checksums, _ = _read_marker(marker)
    remedy = f"delete {marker.name} beside it to make the part again"
    questions, answers = (
        _read_table(marker.with_suffix(f".{kind}.parquet"), checksum, remedy=remedy)
        for kind, checksum in checksums.items()
    )
    return questions, answers


def _read_table(path: Path, checksum: str | None, *, remedy: str) -> pa.Table:
    """A Parquet file, if it is the one that its checksum was taken of."""
    with _reading(path, remedy=remedy):
        data = path.read_bytes()
        if checksum is not None and hashlib.sha256(data).hexdigest() != checksum:
            raise RunError(f"{path} was cut short or altered (its checksum differs); {remedy}")
        return pq.read_table(pa.BufferReader(data))


def _read_info(path: Path) -> RunInfo:
    with _reading(path / "run.json", remedy=MOVE_AWAY):
        if not (path / "run.json").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        content = json.loads((path / "run.json").read_text(encoding="utf-8"))
        version = content.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise RunError(f"{path} has format version {version}; this program reads version {FORMAT_VERSION}")
        content["plans"] = [(int(n), int(per_pack), int(per_part)) for n, per_pack, per_part in content["plans"]]
        if any(min(plan) < 1 for plan in content["plans"]):
            raise ValueError("a plan of nothing")
        content["plan_checksums"] = list(content.get("plan_checksums", ()))
        return RunInfo(**content | {"cost": _cost(content["cost"]), "parameters": dict(content["parameters"])})


def _read_marker(path: Path) -> tuple[dict[str, str], Cost]:
    """Checksums of the part's two tables, and what the part cost."""
    with _reading(path, remedy="delete it to make the part again"):
        content = json.loads(path.read_text(encoding="utf-8"))
        return {kind: content["sha256"][kind] for kind in ("questions", "answers")}, _cost(content["cost"])


def _cost(content: Mapping[str, float]) -> Cost:
    return Cost(**{name: value + 0 for name, value in content.items()})  # + 0: what is no number is an error here


def _write_json(content: Mapping, path: Path) -> None:
    write_whole((json.dumps(content, indent=1, sort_keys=True) + "\n").encode(), path)


def _write_table(table: pa.Table, path: Path) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    write_whole(data, path)
    return hashlib.sha256(data).hexdigest()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({hashlib.sha256(text.encode()).hexdigest()[:8]})"


@contextmanager
def _reading(path: Path, *, remedy: str) -> Iterator[None]:
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
def _writing(path: Path) -> Iterator[None]:
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


def _lock(folder: Path) -> int:
    """Lock a run folder (`flock`); the descriptor whose closing frees it, as the end of the process does.

    The file `.lock` stays and says who held the lock last. Where nothing can be locked, a warning says so.
    """
    path = folder / ".lock"
    with _writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 200).decode(errors="replace") or "another process"
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


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there as a whole, and to stay, or not at all."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    with _writing(path):
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
