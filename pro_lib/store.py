"""A run as a folder: parts that are whole or absent, one writer at a time; knows no weights and no meaning of numbers.

`run.json` has what decides the answers; `part-NNNNN-<digest>.parquet` the answers to some questions, a row each, with
their cost and a digest of the run's parameters in its footer. The digest in the name is of all the file's bytes.
"""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike
from pydantic import ConfigDict, TypeAdapter

from pro_lib.checks import WholeNumber
from pro_lib.engine import Certificate
from pro_lib.files import RunError, reading, regular, sha256, write_whole, writing

_PATIENCE = 3.0  # seconds that a lock is waited for: the kernel of a notebook that was killed lives on for one
_REMEDY = "restore it from a copy, or move it away and run the generation again"
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_ANSWERS, _OWN = "_answers", "_own"  # a question's own columns, of whatever names and kinds, are JSON in one
QUESTION_COLUMNS = ("question_id", "question", "references", "split")
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ARROW |= {tuple[float, ...]: pa.list_(pa.float64()), tuple[bool, ...]: pa.list_(pa.bool_())}
_ARROW |= {tuple[int, ...]: pa.list_(pa.int32())}
_ANSWER_COLUMNS = {"text": str, "token_ids": tuple[int, ...], "token_log_probs": tuple[float, ...], "log_prob": float}
_ANSWER_COLUMNS |= {"end_log_prob": float, "finished": bool, "path_entropy": float}
_ANSWER = pa.struct({name: _ARROW[kind] for name, kind in _ANSWER_COLUMNS.items()})
_CERTIFICATE = pa.schema({name: _ARROW[hint] for name, hint in get_type_hints(Certificate).items()})
CERTIFICATE_COLUMNS = tuple(_CERTIFICATE.names)


@dataclass(frozen=True)
class Cost:
    """What a run or a part of one has cost; `halved_packs` says how often a pack was too large for the memory."""

    __pydantic_config__ = _STRICT
    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    halved_packs: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        sums = {column.name: getattr(self, column.name) + getattr(other, column.name) for column in fields(self)}
        return Cost(**sums | {"peak_memory_bytes": max(self.peak_memory_bytes, other.peak_memory_bytes)})


@dataclass(frozen=True)
class RunInfo:
    """Where a run comes from: `parameters` decide its answers; `n_planned` questions were asked, answered or not."""

    __pydantic_config__ = _STRICT
    dataset: str
    model: str
    strategy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    n_planned: WholeNumber = 0
    cost: Cost = Cost()
    format_version: Literal[3] = 3

    def labels(self) -> dict[str, str]:
        """Return the columns that tell the tables of this run's setting from others': dataset, model."""
        return {"dataset": self.dataset, "model": self.model}


def complete_log_prob(log_prob: ArrayLike, end_log_prob: ArrayLike) -> ArrayLike:
    """Return log-probabilities of answers, endings included (nats; one shape); a missing one is in the last token."""
    ending = np.asarray(end_log_prob, dtype=float)
    return log_prob + np.where(np.isnan(ending), 0.0, ending)


def part_table(
    questions: pd.DataFrame, answers: Sequence[Sequence[Mapping]], certificates: Sequence[Certificate | None]
) -> pa.Table:
    """Return a part's table, a row per question with its answers by rank (`_ANSWER_COLUMNS`) and any certificate."""
    table = pa.Table.from_pandas(questions.filter(QUESTION_COLUMNS), preserve_index=False)
    own = questions.drop(columns=list(QUESTION_COLUMNS), errors="ignore").to_dict("records")
    table = table.append_column(_OWN, pa.array([json.dumps(row, default=plain) for row in own], pa.string()))
    table = table.append_column(_ANSWERS, pa.array(map(list, answers), pa.list_(_ANSWER)))
    if any(certificates):
        rows = pa.Table.from_pylist([vars(certificate) for certificate in certificates], _CERTIFICATE)
        for column in _CERTIFICATE:
            table = table.append_column(column, rows[column.name])
    return table


def tables(part_tables: Sequence[pa.Table]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers and the questions of some parts, in their order."""
    whole = pa.concat_tables(part_tables, promote_options="permissive")
    nested = whole[_ANSWERS].combine_chunks()
    row = pc.list_parent_indices(nested)
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    columns = [whole["question_id"].take(row), pa.array(rank, pa.int32()), *pc.list_flatten(nested).flatten()]
    answers = pa.table(columns, names=["question_id", "rank", *_ANSWER_COLUMNS]).to_pandas()
    questions = whole.drop_columns([_ANSWERS]).to_pandas()
    if "references" in questions:
        questions["references"] = [None if names is None else list(names) for names in questions["references"]]
    place, own = questions.columns.get_loc(_OWN), pd.DataFrame(map(json.loads, questions.pop(_OWN)))
    return answers, pd.concat([questions.iloc[:, :place], own, questions.iloc[:, place:]], axis=1)


def plain(value: object) -> object:
    """Return what JSON can hold of a value: None of a missing one, of an array its list, of others their text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    is_json = isinstance(value, (str, int, list)) or (isinstance(value, float) and np.isfinite(value))
    return value if is_json else None if pd.isna(value) is True else str(value)


class RunFolder(AbstractContextManager):
    """A run being written by one process, which locks it until the `with` ends; a finished one is only read.

    Every method raises `RunError` if the run was made otherwise, is being written, is damaged, or cannot be written.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self.info = Path(path), info
        self._lock = FileLock(self.path / ".lock", thread_local=False)  # let go when the process ends, however it does

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def missing(self, questions: pd.DataFrame, *, per_part: int) -> dict[str, pd.DataFrame]:
        """Return the questions that no part holds, in their order, under the names of the parts they are to make.

        The folder is then locked, and clear of what a writer that was killed has left; a finished one is not touched.
        """
        if self._unanswered(questions)[0].empty and self.info.provenance:
            return {}
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=_PATIENCE)
            except Timeout:
                other = "wait until that has ended, or choose another folder (out=, in notebooks generations_dir)"
                raise RunError(f"run folder {self.path} is being written by another process; {other}") from None
            for file in (*self.path.glob(".run.json*"), *self.path.glob(".part-*")):
                file.unlink(missing_ok=True)
        unanswered, n_answered = self._unanswered(questions)  # another process may have written meanwhile
        numbers = {int(file.name.split("-")[1]) for file in parts(self.path)}
        free = (number for number in itertools.count() if number not in numbers)
        self._save(replace(self.info, n_planned=n_answered + len(unanswered), provenance={}))
        starts = range(0, len(unanswered), per_part)
        return {f"part-{next(free):05}": unanswered.iloc[start : start + per_part] for start in starts}

    def finish(self, provenance: Mapping[str, Any]) -> None:
        """Sum up the cost of all parts, and note where the run was made."""
        contents = [_read_part(file, self.info, ["question_id"]) for file in parts(self.path)]
        cost, n_answered = sum((cost for _, cost in contents), Cost()), sum(len(table) for table, _ in contents)
        self._save(replace(self.info, cost=cost, n_planned=n_answered, provenance=provenance))

    def _unanswered(self, questions: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Check all files, go by `run.json`; return the questions that no part holds, and how many the parts hold."""
        if (self.path / "run.json").exists():
            wanted, self.info = self.info.parameters, _read_info(self.path)
            if differs := difference(self.info.parameters, wanted):
                other = "choose another folder (out=, in notebooks generations_dir), or move this one away"
                raise RunError(f"run folder {self.path} was made with {differs} is asked for; {other}")
        columns, texts = ["question_id", "question"], dict[str, str]()
        for file in parts(self.path):
            table, _ = _read_part(file, self.info, columns)
            texts |= dict(zip(*(table[name].to_pylist() for name in columns), strict=True))
        for name, text in questions[columns].itertuples(index=False):
            if texts.get(name, text) != text:
                raise RunError(f"run folder {self.path} holds question {name!r} with another text")
        return questions[~questions["question_id"].isin(list(texts))], len(texts)

    def _save(self, info: RunInfo) -> None:
        content = asdict(info)
        text = json.dumps(content | {"checksum": _digest(content)}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(f"{text}\n".encode(), self.path / "run.json")
        self.info = info


def read(path: Path) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """Return answers, questions and info of a run folder's finished parts; `RunError` where it is damaged or none."""
    files, info = parts(path), _read_info(path)
    if not files:
        raise RunError(f"run folder {path} has no finished part yet; run the generation again to continue it")
    part_tables, costs = zip(*(_read_part(file, info) for file in files), strict=True)
    return *tables(part_tables), replace(info, cost=sum(costs, Cost()))  # a process that was killed summed up nothing


def write_part(path: Path, name: str, info: RunInfo, table: pa.Table, cost: Cost) -> None:
    """Write a part, whole or not at all, into a run folder that is held; `info` is the folder's."""
    footer = {"cost": json.dumps(asdict(cost)), "identity": _digest(info.parameters)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **footer}), sink)
    data = sink.getvalue().to_pybytes()
    write_whole(data, path / f"{name}-{sha256(data)[:16]}.parquet")


def parts(path: Path, name: str = "part") -> list[Path]:
    """Return the complete parts of a run folder, or of those the one whose name begins so."""
    return sorted(path.glob(f"{name}-*.parquet"))


def _read_part(file: Path, info: RunInfo, columns: Sequence[str] | None = None) -> tuple[pa.Table, Cost]:
    """Return a part's table, or some of its columns, and its cost, if it is whole and of this run."""
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        data = regular(file).read_bytes()
        if not re.fullmatch(rf"part-\d+-{sha256(data)[:16]}", file.stem):
            raise RunError(f"{file} was cut short or altered (its checksum differs); {_REMEDY}")
        with pq.ParquetFile(pa.BufferReader(data)) as part:
            footer = part.metadata.metadata or {}
            if footer.get(b"identity") != _digest(info.parameters).encode():
                raise RunError(f"{file} is a part of another run, with other parameters; move it away")
            if _OWN not in part.schema_arrow.names:
                raise RunError(f"{file} was written by an earlier version, which kept other columns; {_REMEDY}")
            return part.read(columns), TypeAdapter(Cost).validate_json(footer.get(b"cost", b""), strict=True)


def _read_info(path: Path) -> RunInfo:
    file = path / "run.json"
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        if not file.is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        content = TypeAdapter(dict).validate_json(file.read_bytes())
        checksum = content.pop("checksum", None)
        info = TypeAdapter(RunInfo).validate_json(json.dumps(content), strict=True)
        if checksum != _digest(content):
            raise RunError(f"{file} was altered (its checksum differs); {_REMEDY}")
        return info


def difference(stored: Mapping, wanted: Mapping) -> str | None:
    """Return the first parameter that differs, as `key=before, now key=after`; a missing one is None.

    Inside mappings and lists the key is a path, such as `server.host` or `shots[3]`. Log-probabilities
    of a server's probe may be as many nats apart as its `within` says.
    """
    for key in sorted({*stored, *wanted}):
        found = _first_difference(key, stored.get(key), wanted.get(key))
        if found:
            path, *texts = found
            before, after = _excerpts(*texts)
            is_unrecorded = path == "server" and before == "None"
            note = " (which server answered was not recorded)" if is_unrecorded else ""
            return f"{path}={before}{note}, now {path}={after}"
    return None


def _first_difference(path: str, before: Any, after: Any) -> tuple[str, str, str] | None:
    """Return the path of the first difference inside two values, with the texts of both values there."""
    if before == after:
        return None
    if path == "server.probe" and _n_probes(before) == _n_probes(after) > 0:
        pairs = enumerate(zip(before["log_probs"], after["log_probs"], strict=True))
        found = (_probe_difference(f"{path}[{n}]", *pair, after["within"]) for n, pair in pairs)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = sorted({*before, *after})
        found = (_first_difference(f"{path}.{k}", before.get(k), after.get(k)) for k in keys)
    elif _holds_containers(before) and _holds_containers(after):
        pairs = enumerate(zip(before, after, strict=False))
        found = (_first_difference(f"{path}[{n}]", *pair) for n, pair in pairs)
        if len(before) != len(after):
            lengths = (path, f"{len(before)} items", f"{len(after)} items")
            return next(filter(None, found), lengths)
    else:
        return path, repr(before), repr(after)
    return next(filter(None, found), None)


def _n_probes(value: Any) -> int:
    """Return how many prompts a probe has log-probabilities of."""
    return len(value.get("log_probs", ())) if isinstance(value, Mapping) else 0


def _holds_containers(value: Any) -> bool:
    """Return whether a value is a list with lists or mappings in it; a flat list is shown whole."""
    return isinstance(value, list) and any(isinstance(item, (list, Mapping)) for item in value)


def _probe_difference(
    path: str, before: Mapping[str, float], after: Mapping[str, float], within: float
) -> tuple[str, str, str] | None:
    """Return the first token whose log-probabilities are too far apart, with both of them.

    Of a longer list only as many of the likeliest tokens count as the shorter list has. A token that
    is missing from a list is at most as likely as the last one of that list.
    """
    length = min(len(before), len(after))
    likeliest_before = sorted(before, key=lambda token: -before[token])[:length]
    likeliest_after = sorted(after, key=lambda token: -after[token])[:length]
    for token in dict.fromkeys(likeliest_before + likeliest_after):
        value_before = before.get(token, before[likeliest_before[-1]])
        value_after = after.get(token, after[likeliest_after[-1]])
        if abs(value_before - value_after) > within:
            return f"{path}.{token}", repr(value_before), repr(value_after)
    return None


def _excerpts(before: str, after: str, *, length: int = 60) -> tuple[str, str]:
    """Return the part of two texts where they begin to differ, each in at most `length` characters."""
    pairs = enumerate(itertools.zip_longest(before, after))
    place = next((n for n, (left, right) in pairs if left != right), 0)
    if max(len(before), len(after)) <= length or place < length - 20:
        return before[:length], after[:length]
    start = place - 20
    return f"…{before[start : start + length - 1]}", f"…{after[start : start + length - 1]}"


def _digest(content: object) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
