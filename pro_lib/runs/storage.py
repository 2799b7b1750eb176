"""A run as a folder: parts that are whole or absent, one writer at a time; knows no weights and no meaning of numbers.

`run.json` has what decides the answers; `part-NNNNN-<digest>.parquet` the answers to some questions, a row each, with
their cost and a digest of the run's parameters in its footer. The digest in the name is of all the file's bytes.
`part-NNNNN.journal` holds the answers of a part that is still being made, question by question (see `Journal`).
A stored answer belongs to the text of its question, so a question whose text was edited is asked again.
"""

import itertools
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
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

from pro_lib.common.files import RunError, reading, regular, sha256, write_whole, writing
from pro_lib.common.validation import WholeNumber
from pro_lib.runs.certificate import Certificate

_PATIENCE = 3.0  # seconds that a lock is waited for: the kernel of a notebook that was killed lives on for one
_REMEDY = "restore it from a copy, or move it away and run the generation again"
# A record of a journal begins with the length and the SHA-256 of what follows, and a checksum of these two.
_RECORD_HEAD = struct.Struct("<Q32sI")
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
# A question's own columns, of whatever names and kinds, are JSON in one
_ANSWERS, _OWN = (
    "_answers",
    "_own",
)
QUESTION_COLUMNS = ("question_id", "question", "references", "split")
_PROMPTED = ["question_id", "question"]  # what a stored answer is found by
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ARROW |= {tuple[float, ...]: pa.list_(pa.float64()), tuple[bool, ...]: pa.list_(pa.bool_())}
_ARROW |= {tuple[int, ...]: pa.list_(pa.int32())}
_ANSWER_COLUMNS = {
    "text": str,
    "token_ids": tuple[int, ...],
    "token_log_probs": tuple[float, ...],
    "log_prob": float,
}
_ANSWER_COLUMNS |= {"end_log_prob": float, "finished": bool, "path_entropy": float}
_ANSWER = pa.struct({name: _ARROW[kind] for name, kind in _ANSWER_COLUMNS.items()})
_CERTIFICATE = pa.schema({name: _ARROW[hint] for name, hint in get_type_hints(Certificate).items()})
CERTIFICATE_COLUMNS = tuple(_CERTIFICATE.names)


@dataclass(frozen=True)
class Cost:
    """What a run or a part of one has cost; `halved_packs` says how often a batch was too large for the memory."""

    __pydantic_config__ = _STRICT
    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    halved_packs: int = 0  # batches; run folders store the name

    def __add__(self, other: "Cost") -> "Cost":
        sums = {
            column.name: getattr(self, column.name) + getattr(other, column.name)
            for column in fields(self)
        }
        return Cost(
            **sums | {"peak_memory_bytes": max(self.peak_memory_bytes, other.peak_memory_bytes)}
        )


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
    questions: pd.DataFrame,
    answers: Sequence[Sequence[Mapping]],
    certificates: Sequence[Certificate | None],
) -> pa.Table:
    """Return a part's table, a row per question with its answers by rank (`_ANSWER_COLUMNS`) and any certificate."""
    table = pa.Table.from_pandas(questions.filter(QUESTION_COLUMNS), preserve_index=False)
    own = questions.drop(columns=list(QUESTION_COLUMNS), errors="ignore").to_dict("records")
    table = table.append_column(
        _OWN, pa.array([json.dumps(row, default=plain) for row in own], pa.string())
    )
    table = table.append_column(_ANSWERS, pa.array(map(list, answers), pa.list_(_ANSWER)))
    if any(certificates):
        rows = pa.Table.from_pylist(
            [vars(certificate) for certificate in certificates], _CERTIFICATE
        )
        for column in _CERTIFICATE:
            table = table.append_column(column, rows[column.name])
    return table


def join_parts(part_tables: Sequence[pa.Table]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers and the questions of some parts, in their order."""
    whole = pa.concat_tables(part_tables, promote_options="permissive")
    nested = whole[_ANSWERS].combine_chunks()
    row = pc.list_parent_indices(nested)
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    columns = [
        whole["question_id"].take(row),
        pa.array(rank, pa.int32()),
        *pc.list_flatten(nested).flatten(),
    ]
    answers = pa.table(columns, names=["question_id", "rank", *_ANSWER_COLUMNS]).to_pandas()
    questions = whole.drop_columns([_ANSWERS]).to_pandas()
    if "references" in questions:
        questions["references"] = [
            None if names is None else list(names) for names in questions["references"]
        ]
    place, own = questions.columns.get_loc(_OWN), pd.DataFrame(map(json.loads, questions.pop(_OWN)))
    return answers, pd.concat([questions.iloc[:, :place], own, questions.iloc[:, place:]], axis=1)


def plain(value: object) -> object:
    """Return what JSON can hold of a value: None of a missing one, of an array its list, of others their text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    is_json = isinstance(value, (str, int, list)) or (
        isinstance(value, float) and np.isfinite(value)
    )
    return value if is_json else None if pd.isna(value) is True else str(value)


class RunFolder(AbstractContextManager):
    """A run being written by one process, which locks it until the `with` ends; a finished one is only read.

    Every method raises `RunError` if the run was made otherwise, is being written, is damaged, or cannot be written.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path, self.info = Path(path), info
        # Let go when the process ends, however it does
        self._lock = FileLock(self.path / ".lock", thread_local=False)

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def missing(self, questions: pd.DataFrame, *, per_part: int) -> dict[str, pd.DataFrame]:
        """Return the questions without a stored answer, in their order, under the names of the parts to make.

        The folder is then locked, and clear of what a writer that was killed has left: its temporary files are
        deleted, its journals become parts. A finished folder is not touched.
        """
        if self._unanswered(questions)[0].empty and self.info.provenance:
            return {}
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=_PATIENCE)
            except Timeout:
                other = "wait until that has ended, or choose another folder (out=, in notebooks generations_dir)"
                raise RunError(
                    f"run folder {self.path} is being written by another process; {other}"
                ) from None
            for file in (*self.path.glob(".run.json*"), *self.path.glob(".part-*")):
                file.unlink(missing_ok=True)
        # Another process may have written meanwhile.
        unanswered, stored_ids = self._unanswered(questions)
        for file in journals(self.path):
            fold_journal(file, self.info)
        self._save(replace(self.info, n_planned=len(stored_ids) + len(unanswered), provenance={}))
        starts = range(0, len(unanswered), per_part)
        # Of two answers to an edited question, `read_folder` takes the one in the later part.
        is_edited = bool(unanswered["question_id"].isin(stored_ids).any())
        names = _free_part_names(self.path, len(starts), behind=is_edited)
        return {
            name: unanswered.iloc[start : start + per_part]
            for name, start in zip(names, starts, strict=True)
        }

    def finish(self, provenance: Mapping[str, Any]) -> None:
        """Sum up the cost of all parts, and note where the run was made."""
        contents = _read_parts(self.path, self.info, ["question_id"])
        cost = sum((cost for _, cost in contents), Cost())
        n_answered = sum(len(table) for table, _ in contents)
        self._save(replace(self.info, cost=cost, n_planned=n_answered, provenance=provenance))

    def _unanswered(self, questions: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Check all files against `run.json`; return the questions without an answer, and the ids of those stored.

        Raises:
            RunError: the run was made with other parameters, or a file is damaged.
        """
        if (self.path / "run.json").exists():
            wanted, self.info = self.info.parameters, read_info(self.path)
            if differs := difference(self.info.parameters, wanted):
                other = "choose another folder (out=, in notebooks generations_dir), or move this one away"
                raise RunError(
                    f"run folder {self.path} was made with {differs} is asked for; {other}"
                )
        contents = _read_parts(self.path, self.info, _PROMPTED)
        stored = pd.concat(
            [pd.DataFrame(columns=_PROMPTED), *(table.to_pandas() for table, _ in contents)]
        )
        _check_stored_once(stored, self.path)
        return questions[stored_rows(questions, stored) < 0], stored["question_id"].tolist()

    def _save(self, info: RunInfo) -> None:
        content = asdict(info)
        text = json.dumps(
            content | {"checksum": _digest(content)}, indent=1, sort_keys=True, allow_nan=False
        )
        write_whole(f"{text}\n".encode(), self.path / "run.json")
        self.info = info


class UnansweredError(RunError):
    """A run folder has no answer to one of the questions."""


def read_folder(
    path: Path, questions: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """Return the answers, the questions and the info of a run folder.

    Args:
        path: the run folder.
        questions: the questions to read, with columns question_id and question; the tables then hold these
            questions alone, in this order and under these ids. None reads all questions; of questions that
            share an id because the text was edited, the one stored last.

    Raises:
        RunError: the folder is damaged or is not a run folder.
        UnansweredError: one of `questions` has no stored answer.
    """
    info = read_info(path)
    contents = _read_parts(path, info)
    if not contents:
        raise RunError(
            f"run folder {path} has no finished part yet; run the generation again to continue it"
        )
    whole = pa.concat_tables([table for table, _ in contents], promote_options="permissive")
    stored = whole.select(_PROMPTED).to_pandas()
    _check_stored_once(stored, path)
    n_planned = info.n_planned
    if questions is None:
        rows = np.flatnonzero(~stored["question_id"].duplicated(keep="last"))
        n_planned -= len(stored) - len(rows)
    else:
        rows = stored_rows(questions, stored)
        if (rows < 0).any():
            question_id, text = questions[_PROMPTED].iloc[int((rows < 0).argmax())]
            raise UnansweredError(
                f"run folder {path} has no answer to question {question_id!r}, {text!r:.200}"
            )
    chosen = whole if len(rows) == len(whole) and (np.diff(rows) == 1).all() else whole.take(rows)
    if questions is not None:
        place = chosen.schema.get_field_index("question_id")
        chosen = chosen.set_column(
            place, "question_id", pa.array(questions["question_id"], pa.string())
        )
    # A process that was killed summed up nothing
    cost = sum((cost for _, cost in contents), Cost())
    return *join_parts([chosen]), replace(info, cost=cost, n_planned=n_planned)


def _check_stored_once(stored: pd.DataFrame, path: Path) -> None:
    """Check that no question of a run folder is stored twice, as the copy of a part would have it."""
    is_repeated = stored.duplicated(_PROMPTED)
    if is_repeated.any():
        question_id, text = stored[_PROMPTED].iloc[int(is_repeated.argmax())]
        raise RunError(
            f"run folder {path} has two answers to question {question_id!r}, {text!r:.200}; "
            "one of its parts was copied into it: move that part away"
        )


def stored_rows(questions: pd.DataFrame, stored: pd.DataFrame) -> np.ndarray:
    """Return the row of `stored` that answers each question, -1 where there is none.

    A stored answer answers a question with the same text. Among several such rows, the one with the same
    question_id is taken, else the first that no other question takes; no row answers two questions.

    Args:
        questions: columns question_id and question.
        stored: the same columns, a row per stored question.

    Returns:
        Row numbers, `(n,)`.
    """
    rows = np.full(len(questions), -1)
    by_key: dict[tuple[str, str], int] = {}
    by_text: dict[str, list[int]] = {}
    for row, key in enumerate(stored[_PROMPTED].itertuples(index=False, name=None)):
        by_key[key] = row
        by_text.setdefault(key[1], []).append(row)
    keys = list(questions[_PROMPTED].itertuples(index=False, name=None))
    for place, key in enumerate(keys):
        rows[place] = by_key.get(key, -1)
    used = set(rows.tolist())
    for place, (_, text) in enumerate(keys):
        if rows[place] < 0:
            free = next((row for row in by_text.get(text, ()) if row not in used), -1)
            rows[place] = free
            used.add(free)
    return rows


def write_part(path: Path, name: str, info: RunInfo, table: pa.Table, cost: Cost) -> None:
    """Write a part, whole or not at all, into a run folder that is held; `info` is the folder's."""
    data = _part_bytes(info, table, cost)
    write_whole(data, path / f"{name}-{sha256(data)[:16]}.parquet")


def _part_bytes(info: RunInfo, table: pa.Table, cost: Cost) -> bytes:
    """Return a table as a Parquet file, with its cost and a digest of the run's parameters in the footer."""
    footer = {b"cost": json.dumps(asdict(cost)), b"identity": _digest(info.parameters)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **footer}), sink)
    return sink.getvalue().to_pybytes()


class Journal(AbstractContextManager):
    """The answers of a part that is being made, stored as soon as they are there.

    Records are appended to `<part>.journal` and flushed to the disk, so a process that dies loses only the
    questions it was working on. `fold` turns the journal into the part. Use it within a run folder that is held.

    Example:
        with Journal(folder.path, "part-00000", folder.info) as journal:
            journal.append(table, cost)
            journal.fold()
    """

    def __init__(self, path: Path, name: str, info: RunInfo):
        self._path = path / f"{name}.journal"
        self._info = info
        with writing(self._path):
            self._file = open(self._path, "xb")  # noqa: SIM115  # __exit__ closes it

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, table: pa.Table, cost: Cost) -> None:
        """Store the answers to some questions, a table as `part_table` makes it, and what they cost."""
        data = _part_bytes(self._info, table, cost)
        digest = bytes.fromhex(sha256(data))
        checksum = zlib.crc32(struct.pack("<Q32s", len(data), digest))
        with writing(self._path):
            self._file.write(_RECORD_HEAD.pack(len(data), digest, checksum) + data)
            self._file.flush()
            os.fsync(self._file.fileno())

    def fold(self) -> None:
        """Write what the journal holds as a part, and delete the journal."""
        self._file.close()
        fold_journal(self._path, self._info)


def fold_journal(file: Path, info: RunInfo) -> None:
    """Write the complete records of a journal as the part of its name, and delete the journal."""
    contents = list(_read_journal(file, info))
    if contents and not parts(file.parent, file.stem):
        table = pa.concat_tables([table for table, _ in contents], promote_options="permissive")
        cost = sum((cost for _, cost in contents), Cost())
        write_part(file.parent, file.stem, info, table, cost)
    file.unlink(missing_ok=True)


def parts(path: Path, name: str = "part") -> list[Path]:
    """Return the complete parts of a run folder, or of those the one whose name begins so."""
    return sorted(path.glob(f"{name}-*.parquet"))


def journals(path: Path) -> list[Path]:
    """Return the journals of a run folder."""
    return sorted(path.glob("part-*.journal"))


def has_answers(path: Path) -> bool:
    """Return whether a run folder holds the answer to any question."""
    return bool(parts(path) or journals(path))


def _free_part_names(path: Path, count: int, *, behind: bool) -> list[str]:
    """Return names for `count` new parts: the lowest numbers that no part has, or those `behind` all parts."""
    numbers = {int(file.name.split("-")[1]) for file in parts(path)}
    first = max(numbers, default=-1) + 1 if behind else 0
    free = [
        number for number in range(first, first + len(numbers) + count) if number not in numbers
    ]
    return [f"part-{number:05}" for number in free[:count]]


def _read_parts(
    path: Path, info: RunInfo, columns: Sequence[str] | None = None
) -> list[tuple[pa.Table, Cost]]:
    """Return the table, or some of its columns, and the cost of every part and journal of a run folder."""
    # Journals first: one that is folded meanwhile is then found as a part.
    open_parts = {file.stem: list(_read_journal(file, info, columns)) for file in journals(path)}
    files = parts(path)
    _check_no_copies(files)
    contents = [_read_part(file, info, columns) for file in files]
    for name, records in open_parts.items():
        if not any(file.name.startswith(f"{name}-") for file in files):
            contents += records
    return contents


def _check_no_copies(files: Sequence[Path]) -> None:
    """Check that no two parts have the same bytes, whose digest is in their names."""
    first_files: dict[str, Path] = {}
    for file in files:
        digest = file.stem.rpartition("-")[2]
        first = first_files.setdefault(digest, file)
        if first != file:
            raise RunError(f"{file} is a copy of {first.name}; move one of them away")


def _read_part(
    file: Path, info: RunInfo, columns: Sequence[str] | None = None
) -> tuple[pa.Table, Cost]:
    """Return a part's table, or some of its columns, and its cost, if it is whole and of this run."""
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        data = regular(file).read_bytes()
        if not re.fullmatch(rf"part-\d+-{sha256(data)[:16]}", file.stem):
            raise RunError(f"{file} was cut short or altered (its checksum differs); {_REMEDY}")
        return _parse_part(data, file, info, columns)


def _read_journal(
    file: Path, info: RunInfo, columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.Table, Cost]]:
    """Yield the table, or some of its columns, and the cost of every complete record of a journal.

    A last record that is incomplete was being written when its process died: its questions are asked again.
    """
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        try:
            data = regular(file).read_bytes()
        except FileNotFoundError:  # it has become a part
            return
        start = 0
        while start + _RECORD_HEAD.size <= len(data):
            length, digest, checksum = _RECORD_HEAD.unpack_from(data, start)
            start += _RECORD_HEAD.size
            is_head = checksum == zlib.crc32(struct.pack("<Q32s", length, digest))
            if is_head and start + length > len(data):
                return
            record = data[start : start + length]
            if not is_head or bytes.fromhex(sha256(record)) != digest:
                raise RunError(f"{file} was altered (its checksum differs); {_REMEDY}")
            yield _parse_part(record, file, info, columns)
            start += length


def _parse_part(
    data: bytes, file: Path, info: RunInfo, columns: Sequence[str] | None
) -> tuple[pa.Table, Cost]:
    """Return the table, or some of its columns, and the cost in the bytes of a part of this run."""
    with pq.ParquetFile(pa.BufferReader(data)) as part:
        footer = part.metadata.metadata or {}
        if footer.get(b"identity") != _digest(info.parameters).encode():
            raise RunError(f"{file} is a part of another run, with other parameters; move it away")
        if _OWN not in part.schema_arrow.names:
            raise RunError(
                f"{file} was written by an earlier version, which kept other columns; {_REMEDY}"
            )
        cost = TypeAdapter(Cost).validate_json(footer.get(b"cost", b""), strict=True)
        return part.read(columns), cost


def read_info(path: Path) -> RunInfo:
    """Return what `run.json` of a run folder says; `RunError` where it is missing, altered or of another kind."""
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
