"""A run as files: a folder of JSON and Parquet parts, each whole or absent, and which model folder it came from.

It knows schemas, checksums and plans; it does not know weights, decoding, or what the numbers mean.
"""

import csv
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
BUNDLED_DIR = ROOT / "data" / "models"
# The last part of a run folder's path; here, and not beside the code, so that a name is checked without loading torch.
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
FORMAT_VERSION = 1
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


class RunError(ValueError):
    """A run folder or a records file cannot be used as it is; the sentence says which and why."""


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

    `plans` holds a `(questions, questions per pack, questions per part)` for each time questions were added.
    """

    dataset: str
    model: str
    strategy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    plans: Sequence[tuple[int, int, int]] = ()
    cost: Cost = Cost()


class RunFolder:
    """A run being written: a plan of the questions asked for, and parts that are whole or absent.

    `run.json` says what decides the answers, `plan-*.parquet` which questions were asked for and in which order,
    and every part is two Parquet files and, written last, a JSON with their checksums and what they cost.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / "run.json").exists():
            self.info = _read_info(self.path)
            self._refuse_other_parameters(info)
        else:
            self._save(info)

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
        planned = self._planned()
        known = pd.Index(planned["question_id"]) if len(planned) else pd.Index([])
        stored = planned.set_index("question_id")["question"] if len(planned) else pd.Series(dtype=object)
        again = questions[questions["question_id"].isin(known)]
        changed = again[stored.reindex(again["question_id"]).to_numpy() != again["question"].to_numpy()]
        if len(changed):
            first = changed["question_id"].iloc[0]
            raise RunError(f"run folder {self.path} holds question {first!r} with another text")
        fresh = questions[~questions["question_id"].isin(known)]
        if len(fresh):
            table = pa.Table.from_pandas(fresh, preserve_index=False)
            _write_table(table, self.path / f"plan-{len(self.info.plans):03}.parquet")
            self._save(replace(self.info, plans=[*self.info.plans, (len(fresh), per_pack, per_part)]))

    def missing_parts(self) -> list[tuple[str, pd.DataFrame, int]]:
        """Name, questions and questions per pack of every planned part that is not there yet, in order."""
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
        checksums = {}
        for kind, table in (("questions", questions), ("answers", answers)):
            checksums[kind] = _write_table(table, self.path / f"{name}.{kind}.parquet")
        _write_json({"sha256": checksums, "cost": asdict(cost)}, self.path / f"{name}.json")

    def finish(self, provenance: Mapping[str, object]) -> None:
        """Sum up the cost of all parts and note where the run was made."""
        costs = [_read_marker(path)[1] for path in sorted(self.path.glob("part-*.json"))]
        self._save(replace(self.info, cost=sum(costs, Cost()), provenance=provenance))

    def _planned(self) -> pd.DataFrame:
        tables = [self._read_plan(number)[["question_id", "question"]] for number in range(len(self.info.plans))]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _read_plan(self, number: int) -> pd.DataFrame:
        path = self.path / f"plan-{number:03}.parquet"
        with _reading(path):
            return to_pandas(pq.read_table(path))

    def _save(self, info: RunInfo) -> None:
        _write_json({"format_version": FORMAT_VERSION, **asdict(info)}, self.path / "run.json")
        self.info = info


def read_tables(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """The answers, the questions and the info of the finished parts of a run folder.

    Raises:
        RunError: the folder is no run, was written by a newer format, or a part is damaged or missing.
    """
    info = _read_info(path)
    questions, answers = [], []
    for marker in sorted(path.glob("part-*.json")):
        checksums, _ = _read_marker(marker)
        questions.append(_read_part(marker.with_suffix(".questions.parquet"), checksums["questions"]))
        answers.append(_read_part(marker.with_suffix(".answers.parquet"), checksums["answers"]))
    if not questions:
        raise RunError(f"run folder {path} has no finished part yet; run the generation again to continue it")
    return _concatenated(answers), _concatenated(questions), info


def paper_models() -> dict[str, str]:
    """The paper's models by its names for them, each with its id on the hub."""
    with open(ROOT / "data" / "paper" / "settings.csv", encoding="utf-8", newline="") as file:
        return {row["name"]: row["id"] for row in csv.DictReader(file) if row["kind"] == "model"}


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


def _read_part(path: Path, checksum: str) -> pa.Table:
    if not path.exists():
        raise RunError(f"{path} is missing; delete {path.name.split('.')[0]}.json beside it to make the part again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != checksum:
        raise RunError(
            f"{path} was cut short or altered (its checksum differs); "
            f"delete {path.name.split('.')[0]}.json beside it to make the part again"
        )
    return pq.read_table(pa.BufferReader(data))


def _read_info(path: Path) -> RunInfo:
    if not (path / "run.json").is_file():
        raise RunError(f"{path} is not a run folder: it has no run.json")
    with _reading(path / "run.json"):
        content = json.loads((path / "run.json").read_text(encoding="utf-8"))
        version = content.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise RunError(f"{path} has format version {version}; this program reads version {FORMAT_VERSION}")
        content["cost"] = Cost(**content["cost"])
        content["plans"] = [tuple(plan) for plan in content["plans"]]
        return RunInfo(**content)


def _read_marker(path: Path) -> tuple[dict[str, str], Cost]:
    """Checksums of the part's two tables, and what the part cost."""
    with _reading(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        return {kind: content["sha256"][kind] for kind in ("questions", "answers")}, Cost(**content["cost"])


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What a damaged file of the run leads to becomes a sentence that names the file."""
    try:
        yield
    except RunError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OSError, pa.ArrowException) as error:
        raise RunError(f"{path} is missing or damaged: {type(error).__name__}: {error}") from error


def _write_json(content: Mapping, path: Path) -> None:
    _write_atomically((json.dumps(content, indent=1, sort_keys=True) + "\n").encode(), path)


def _write_table(table: pa.Table, path: Path) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    _write_atomically(data, path)
    return hashlib.sha256(data).hexdigest()


def _write_atomically(data: bytes, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
