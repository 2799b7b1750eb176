"""A run as files: a folder of JSON and Parquet parts, each whole or absent, and which model folder it came from.

It knows schemas, checksums, plans and who is writing; it does not know weights, decoding, or what the numbers mean.
"""

import hashlib
import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pro_lib.safe_files import RunError, lock, make_folder, reading, write_whole, writing

ROOT = Path(__file__).resolve().parent.parent
BUNDLED_DIR = ROOT / "data" / "models"
# The last part of a run folder's path; here, and not beside the code, so that a name is checked without loading torch.
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
FORMAT_VERSION = 1
MOVE_AWAY = "restore it from a copy, or move the folder away and start again"
ANSWER_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("rank", pa.int32()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("token_log_probs", pa.list_(pa.float64())),
        ("log_prob", pa.float64()),
        ("end_log_prob", pa.float64()),
        ("finished", pa.bool_()),
    ]
)
# What an exact search leaves beside each question; `strategies.Ledger` says what the columns mean.
LEDGER_SCHEMA = pa.schema(
    [
        ("status", pa.string()),
        ("why", pa.string()),
        ("search_alpha", pa.float64()),
        ("epsilon", pa.float64()),
        ("found_mass", pa.float64()),
        ("small_endings_mass", pa.float64()),
        ("pruned_mass", pa.float64()),
        ("length_cut_mass", pa.float64()),
        ("budget_cut_mass", pa.float64()),
        ("expanded_prefixes", pa.int64()),
        ("depth", pa.int64()),
        ("live_width", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("token_forwards", pa.int64()),
        ("alpha_floor", pa.float64()),
        ("tree_bound", pa.float64()),
        ("upper_bound", pa.float64()),
        ("tree_parents", pa.list_(pa.int32())),
        ("tree_tokens", pa.list_(pa.int32())),
        ("tree_log_probs", pa.list_(pa.float64())),
        ("tree_entropies", pa.list_(pa.float64())),
        ("tree_greedy", pa.list_(pa.bool_())),
    ]
)


@dataclass(frozen=True)
class Cost:
    """What a run or a part of one has cost."""

    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0

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

    One process writes at a time: the first thing to be written locks the folder (`safe_files.lock`) until `close`,
    the end of a `with`, or the end of the process, however it ends. A folder in which nothing is missing is only
    read: it needs no lock and may be read-only.

    Raises:
        RunError: from any method, if the run was made with other parameters or by a newer format, is written by
            another process, is damaged, or cannot be written. What was complete stays as it is.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self._asked = Path(path), info
        self._release: weakref.finalize | None = None
        self.info = info
        self._stored()

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
        make_folder(self.path)
        self._release = weakref.finalize(self, os.close, lock(self.path))
        try:
            for kind in ("run.json", "plan-", "part-"):
                for stray in self.path.glob(f".{kind}*"):  # of a process that was killed while it wrote
                    with writing(stray):
                        stray.unlink()
            if self._stored() is None:
                self._save(self._asked)
        except BaseException:
            self.close()
            raise
        return True

    def _stored(self) -> RunInfo | None:
        """Take over what the folder says of its run; None for a new one."""
        file = self.path / "run.json"
        with reading(file, remedy=MOVE_AWAY):
            # In this order: another process may just be making the folder, and writes run.json first.
            names = os.listdir(self.path) if self.path.is_dir() else []
            new = not file.exists()
        if new and any(name.startswith(("plan-", "part-")) for name in names):
            raise RunError(f"{file} is missing, but plans or parts are there; {MOVE_AWAY}")
        if new:
            return None
        self.info = _read_info(self.path)
        self._refuse_other_parameters(self._asked)
        return self.info

    def _refuse_other_parameters(self, asked: RunInfo) -> None:
        stored = dict(self.info.parameters)
        for key in sorted({*stored, *asked.parameters}):
            before, now = stored.get(key), asked.parameters.get(key)
            if before != now:
                raise RunError(
                    f"run folder {self.path} was made with {key}={_short(before)}, now {key}={_short(now)} is asked "
                    "for; choose another folder (out=, in notebooks generations_dir), or move this one away"
                )

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
        planned = self._planned()
        known = pd.Index(planned["question_id"]) if len(planned) else pd.Index([])
        stored = planned.set_index("question_id")["question"] if len(planned) else pd.Series(dtype=object)
        again = questions[questions["question_id"].isin(known)]
        changed = again[stored.reindex(again["question_id"]).to_numpy() != again["question"].to_numpy()]
        if len(changed):
            first = changed["question_id"].iloc[0]
            raise RunError(f"run folder {self.path} holds question {first!r} with another text")
        return questions[~questions["question_id"].isin(known)]

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
                if not (self.path / f"{name}.json").exists():
                    missing.append((name, questions.iloc[start : start + per_part], per_pack))
        return missing

    def write_part(self, name: str, questions: pa.Table, answers: pa.Table, cost: Cost) -> None:
        """Write a part so that it is there as a whole or not at all."""
        self._hold()
        write_part(self.path, name, questions, answers, cost)

    def finish(self, provenance: Mapping[str, object]) -> None:
        """Sum up the cost of all parts and note where the run was made."""
        self._hold()
        costs = [_read_marker(path)[1] for path in sorted(self.path.glob("part-*.json"))]
        self._save(replace(self.info, cost=sum(costs, Cost()), provenance=provenance))

    def _planned(self) -> pd.DataFrame:
        tables = [self._read_plan(number)[["question_id", "question"]] for number in range(len(self.info.plans))]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _read_plan(self, number: int) -> pd.DataFrame:
        path = self.path / f"plan-{number:03}.parquet"
        with reading(path, remedy=MOVE_AWAY):
            data, expected = path.read_bytes(), self.info.plan_checksums[number : number + 1]
            if expected and hashlib.sha256(data).hexdigest() != expected[0]:
                raise RunError(f"{path} was cut short or altered (its checksum differs); {MOVE_AWAY}")
            return to_pandas(pq.read_table(pa.BufferReader(data)))

    def _save(self, info: RunInfo) -> None:
        _write_json({"format_version": FORMAT_VERSION, **asdict(info)}, self.path / "run.json")
        self.info = info


def write_part(path: Path, name: str, questions: pa.Table, answers: pa.Table, cost: Cost) -> None:
    """Write a part into a run folder that this process, or the one it works for, holds."""
    checksums = {}
    for kind, table in (("questions", questions), ("answers", answers)):
        checksums[kind] = _write_table(table, path / f"{name}.{kind}.parquet")
    _write_json({"sha256": checksums, "cost": asdict(cost)}, path / f"{name}.json")


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


def bundled_models() -> dict[str, Path]:
    """Folder of every model that lies in the repository, by name."""
    return {path.parent.name: path.parent for path in sorted(BUNDLED_DIR.glob("*/config.json"))}


def fingerprint(folder: Path) -> str:
    """What tells the files of one model folder from those of another: names, sizes and how each file begins."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.glob("*") if path.suffix in (".json", ".safetensors", ".bin", ".model")):
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
        with open(path, "rb") as file:
            digest.update(file.read(2**20))
    return digest.hexdigest()[:16]


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
    tables = []
    for kind, checksum in checksums.items():
        path = marker.with_suffix(f".{kind}.parquet")
        with reading(path, remedy=remedy):
            data = path.read_bytes()
            if hashlib.sha256(data).hexdigest() != checksum:
                raise RunError(f"{path} was cut short or altered (its checksum differs); {remedy}")
            tables.append(pq.read_table(pa.BufferReader(data)))
    return tables[0], tables[1]


def _read_info(path: Path) -> RunInfo:
    with reading(path / "run.json", remedy=MOVE_AWAY):
        if not (path / "run.json").is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        content = json.loads((path / "run.json").read_text(encoding="utf-8"))
        version = content.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise RunError(f"{path} has format version {version}; this program reads version {FORMAT_VERSION}")
        content["plans"] = [(int(n), int(per_pack), int(per_part)) for n, per_pack, per_part in content["plans"]]
        if any(min(plan) < 1 for plan in content["plans"]):
            raise ValueError("a plan of nothing")
        return RunInfo(**content | {"cost": _cost(content["cost"]), "parameters": dict(content["parameters"])})


def _read_marker(path: Path) -> tuple[dict[str, str], Cost]:
    """Checksums of the part's two tables, and what the part cost."""
    with reading(path, remedy="delete it to make the part again"):
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
