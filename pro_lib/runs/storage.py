"""Store a run as a folder, with whole parts and one writer at a time.

`run.json` has the parameters that decide the answers. `part-NNNNN-<digest>.parquet` has the answers
to some questions, a row per question, and in its footer their cost and a digest of the parameters
of the run. The digest in the name is that of the bytes of the file. A part of a server's answers is
several files, `part-NNNNN.NNNNN-<digest>.parquet`, one for each batch. A stored answer belongs to
the text of its question, so a question whose text was edited is asked again.
References, splits and further columns belong to the question file:
`questions-NNNNN-<digest>.parquet` has those of the last call that finished (see `question_table`).
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike, NDArray
from pydantic import ConfigDict, TypeAdapter

from pro_lib.common.files import (
    RunError,
    json_digest,
    reading,
    regular,
    sha256,
    write_whole,
    writing,
)
from pro_lib.common.validation import WholeNumber
from pro_lib.runs.certificate import Certificate
from pro_lib.runs.parameters import difference
from pro_lib.runs.question_table import (
    IS_LAST,
    OWN,
    PROMPTED,
    QUESTION_COLUMNS,
    OldReferencesWarning,
    call_table,
    old_references,
    question_columns,
    question_frame,
    stored_rows,
    with_others,
)

_Numbers = TypeVar("_Numbers", NDArray[np.float64], pd.Series)

# Seconds to wait for a lock. The kernel of a notebook that was killed lives on for a second.
_PATIENCE = 3.0
_REMEDY = "restore it from a copy, or move it away and run the generation again"
_OTHER_FOLDER = "choose another folder (out=, in notebooks generations_dir)"
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_ANSWERS = "_answers"
_NO_QUESTIONS = pa.table({name: pa.array([], pa.string()) for name in PROMPTED})
_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    tuple[float, ...]: pa.list_(pa.float64()),
    tuple[bool, ...]: pa.list_(pa.bool_()),
    tuple[int, ...]: pa.list_(pa.int32()),
}
_ANSWER_COLUMNS = {
    "text": str,
    "token_ids": tuple[int, ...],
    "token_log_probs": tuple[float, ...],
    "log_prob": float,
    "end_log_prob": float,
    "finished": bool,
    "path_entropy": float,
}
_ANSWER = pa.struct({name: _ARROW[kind] for name, kind in _ANSWER_COLUMNS.items()})
_CERTIFICATE = pa.schema({name: _ARROW[hint] for name, hint in get_type_hints(Certificate).items()})
CERTIFICATE_COLUMNS = tuple(_CERTIFICATE.names)


@dataclass(frozen=True)
class Cost:
    """The cost of a run, or of a part of a run.

    Attributes:
        prompt_tokens: tokens of the prompts.
        token_forwards: tokens that the model read after the prompts.
        model_calls: forward passes of the model.
        seconds: time in seconds.
        peak_memory_bytes: the largest memory in use.
        halved_packs: how often a batch was halved because it was too large for the memory. Stored
            run folders have this name.

    Example:
        >>> cost = Cost(seconds=1.5, peak_memory_bytes=5) + Cost(seconds=2, peak_memory_bytes=7)
        >>> cost.seconds, cost.peak_memory_bytes
        (3.5, 7)
    """

    __pydantic_config__ = _STRICT
    prompt_tokens: int = 0
    token_forwards: int = 0
    model_calls: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    halved_packs: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        sums = {
            column.name: getattr(self, column.name) + getattr(other, column.name)
            for column in fields(self)
        }
        sums["peak_memory_bytes"] = max(self.peak_memory_bytes, other.peak_memory_bytes)
        return Cost(**sums)


@dataclass(frozen=True)
class RunInfo:
    """Where a run comes from.

    Attributes:
        dataset: the name of the question set.
        model: the name of the model.
        strategy: the name of the decoding strategy.
        parameters: the parameters that decide the answers.
        provenance: commit, versions and device; empty for an unfinished run.
        n_planned: the number of questions of the run, answered or not.
        cost: the cost of all answers.
        format_version: the version of the file format.
    """

    __pydantic_config__ = _STRICT
    dataset: str
    model: str
    strategy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    n_planned: WholeNumber = 0
    cost: Cost = Cost()
    format_version: Literal[3] = 3


def complete_log_prob(log_prob: _Numbers, end_log_prob: ArrayLike) -> _Numbers:
    """Return the log-probabilities of answers with their endings.

    Args:
        log_prob: log-probabilities of the tokens of each answer, in nats, of any shape.
        end_log_prob: those of the endings; a missing one is part of the last token.
    """
    ending = np.asarray(end_log_prob, dtype=float)
    return log_prob + np.where(np.isnan(ending), 0.0, ending)


def part_table(
    questions: pd.DataFrame,
    answers: Sequence[Sequence[Mapping[str, Any]]],
    certificates: Sequence[Certificate | None],
) -> pa.Table:
    """Return the table of a part.

    Args:
        questions: the questions of the part, a row each.
        answers: the answers to each question by rank, with the keys of `_ANSWER_COLUMNS`.
        certificates: the certificate of each question, None for other strategies.

    Returns:
        A row per question, with its answers as a nested column.
    """
    table = question_columns(questions)
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
    rows = pc.list_parent_indices(nested)
    ranks = np.arange(len(rows)) - np.searchsorted(rows, rows)
    columns = [
        whole["question_id"].take(rows),
        pa.array(ranks, pa.int32()),
        *pc.list_flatten(nested).flatten(),
    ]
    answers = pa.table(columns, names=["question_id", "rank", *_ANSWER_COLUMNS]).to_pandas()
    return answers, question_frame(whole.drop_columns([_ANSWERS]))


class RunFolder(AbstractContextManager[Any]):
    """A run folder that one process writes.

    The folder is locked until the `with` block ends. A finished run is only read. Every method
    raises `RunError` if the run has other parameters, is being written by another process, is
    damaged, or cannot be written.
    """

    def __init__(self, path: str | Path, info: RunInfo):
        self.path = Path(path)
        self.info = info
        # The operating system releases the lock if the process dies.
        self._lock = FileLock(self.path / ".lock", thread_local=False)

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def missing(self, questions: pd.DataFrame, *, per_part: int) -> dict[str, pd.DataFrame]:
        """Return the questions without a stored answer, under the names of the parts to write.

        The folder is then locked. A finished folder is not changed.

        Args:
            questions: the questions of the run.
            per_part: the number of questions in a part.
        """
        if self._unanswered(questions)[0].empty and self.info.provenance:
            return {}
        self._lock_folder()
        # Another process may have written before the lock was acquired.
        unanswered, n_stored = self._unanswered(questions)
        self._save(replace(self.info, n_planned=n_stored + len(unanswered), provenance={}))
        # If an edited question has two answers, `read_folder` takes that in the later part.
        first = _next_number(parts(self.path))
        return {
            f"part-{number:05}": unanswered.iloc[start : start + per_part]
            for number, start in enumerate(range(0, len(unanswered), per_part), first)
        }

    def _lock_folder(self) -> None:
        """Create and lock the folder."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=_PATIENCE)
            except Timeout:
                raise RunError(
                    f"run folder {self.path} is being written by another process; "
                    f"wait until that has ended, or {_OTHER_FOLDER}"
                ) from None

    def finish(
        self,
        provenance: Mapping[str, Any],
        questions: pd.DataFrame,
        source: Mapping[str, Any],
    ) -> None:
        """Store the questions of the call, and the cost and the provenance of an unfinished run.

        Args:
            provenance: commit, versions and device.
            questions: the questions of the call, all of them answered.
            source: where they come from, with the `path` and the `digest` of their file.
        """
        self.store_questions(questions, source)
        if self.info.provenance:
            return
        _, cost = _read_parts(self.path, self.info, PROMPTED)
        self._save(replace(self.info, cost=cost, provenance=provenance))

    def store_questions(self, questions: pd.DataFrame, source: Mapping[str, Any]) -> None:
        """Store the questions of a finished call, which decide the references of the run.

        If nothing was generated, a warning says that they cannot be stored, instead of an error.

        Args:
            questions: the questions of the call, all of them answered.
            source: where they come from, with the `path` and the `digest` of their file.
        """
        is_writer = self._lock.is_locked
        try:
            self._write_questions(questions, source)
        except RunError as error:
            if is_writer:
                raise
            warnings.warn(
                "the questions of this call are not stored, so `pro score` and other commands use "
                f"the references of an earlier call: {error}",
                OldReferencesWarning,
                stacklevel=3,
            )

    def _write_questions(self, questions: pd.DataFrame, source: Mapping[str, Any]) -> None:
        """Write the table of the questions of a finished call, unless it is stored already."""
        table = self._question_table(questions, source)
        if table is not None and not self._lock.is_locked:
            self._lock_folder()
            # Another process may have written before the lock was acquired.
            table = self._question_table(questions, source)
        if table is None:
            return
        earlier_files = parts(self.path, "questions")
        name = f"questions-{_next_number(earlier_files):05}"
        write_part(self.path, name, self.info, table, Cost())
        for file in earlier_files:
            file.unlink(missing_ok=True)

    def _question_table(
        self, questions: pd.DataFrame, source: Mapping[str, Any]
    ) -> pa.Table | None:
        """Return the table of the questions of a finished call, None if it is stored already."""
        stored, _ = _read_parts(self.path, self.info, [*QUESTION_COLUMNS, OWN])
        table, known = _known_questions(self.path, self.info, stored)
        new_table = call_table(questions, source, known)
        return None if table is not None and new_table.equals(table) else new_table

    def _unanswered(self, questions: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Return the questions without an answer, and the number of the stored ones."""
        # All files are checked against `run.json`.
        if (self.path / "run.json").exists():
            requested = self.info.parameters
            self.info = read_info(self.path)
            other_parameter = difference(self.info.parameters, requested)
            if other_parameter:
                raise RunError(
                    f"run folder {self.path} has other parameters than requested: "
                    f"{other_parameter}; {_OTHER_FOLDER}, or move this one away"
                )
        table, _ = _read_parts(self.path, self.info, PROMPTED)
        return questions[stored_rows(questions, table.to_pandas()) < 0], len(table)

    def _save(self, info: RunInfo) -> None:
        """Write `run.json` with a checksum."""
        content = asdict(info)
        checked_content = content | {"checksum": json_digest(content)}
        text = json.dumps(checked_content, indent=1, sort_keys=True, allow_nan=False)
        write_whole(f"{text}\n".encode(), self.path / "run.json")
        self.info = info


class UnansweredError(RunError):
    """A run folder has no answer to one of the questions."""


def read_folder(
    path: Path, questions: pd.DataFrame | None = None, *, all_questions: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame, RunInfo]:
    """Return the answers, the questions and the info of a run folder.

    Args:
        path: the run folder.
        questions: the questions to read, with columns question_id and question. The tables then
            have these questions alone, in this order and under these ids. None reads those of the
            last call that finished, with the references and splits that they had in it.
        all_questions: whether None reads all stored questions. If the text of a question was
            edited, only the answer to the later text is read.

    Raises:
        RunError: the folder is damaged or is not a run folder.
        UnansweredError: one of `questions` has no stored answer.
    """
    info = read_info(path)
    whole, cost = _read_parts(path, info)
    if not len(whole):
        raise RunError(
            f"run folder {path} has no finished part yet; run the generation again to continue it"
        )
    stored = whole.select(PROMPTED).to_pandas()
    # A process that was killed did not store the total cost.
    info = replace(info, cost=cost)
    if questions is None:
        chosen = _chosen_questions(path, info, whole, all_questions=all_questions)
        is_answered = stored_rows(chosen.select(PROMPTED).to_pandas(), stored) >= 0
        questions = question_frame(chosen.filter(pa.array(is_answered)))
        n_unanswered = info.n_planned - len(stored)
        if IS_LAST in chosen.column_names and not all_questions:
            n_unanswered = len(chosen) - len(questions)
        info = replace(info, n_planned=len(questions) + n_unanswered)
    rows = stored_rows(questions, stored)
    is_missing = rows < 0
    if is_missing.any():
        first = questions.iloc[int(is_missing.argmax())]
        raise UnansweredError(
            f"run folder {path} has no answer to question {first['question_id']!r}, "
            f"{first['question']!r:.200}"
        )
    selected = whole.take(rows)
    new_ids = pa.array(questions["question_id"], pa.string())
    place = selected.schema.get_field_index("question_id")
    selected = selected.set_column(place, "question_id", new_ids)
    answers, stored_questions = join_parts([selected])
    certificates = stored_questions.filter(items=CERTIFICATE_COLUMNS)
    return answers, questions.reset_index(drop=True).join(certificates), info


def _chosen_questions(
    path: Path, info: RunInfo, stored: pa.Table, *, all_questions: bool
) -> pa.Table:
    """Return the questions that are read, and warn if there are others or newer references."""
    table, known = _known_questions(path, info, stored)
    chosen = known if table is None or all_questions else table.filter(table[IS_LAST])
    if len(chosen) < len(known):
        warnings.warn(
            f"run folder {path}: {len(chosen):,} of {len(known):,} stored questions are used, "
            "those of the last call; --all (in Python, all_questions=True) uses all",
            UserWarning,
            stacklevel=4,
        )
    # The references of an unfinished first call are those of the call that will continue it.
    if table is not None or info.provenance:
        for sentence in old_references(chosen):
            warnings.warn(f"run folder {path}: {sentence}", OldReferencesWarning, stacklevel=4)
    return chosen


def _known_questions(
    path: Path, info: RunInfo, stored: pa.Table
) -> tuple[pa.Table | None, pa.Table]:
    """Return the table of the last finished call (None before it), and all questions of a run."""
    # If the text of a question was edited, these have the later text.
    columns = [name for name in (*QUESTION_COLUMNS, OWN) if name in stored.column_names]
    is_latest = ~stored["question_id"].to_pandas().duplicated(keep="last")
    latest = stored.select(columns).filter(pa.array(is_latest))
    files = parts(path, "questions")
    if not files:
        return None, latest
    table, _ = _read_part(files[-1], info)
    return table, with_others(table, latest)


def write_part(path: Path, name: str, info: RunInfo, table: pa.Table, cost: Cost) -> None:
    """Write a part into a locked run folder, whole or not at all.

    Args:
        path: the run folder.
        name: the name of the part, such as part-00000.
        info: the info of the folder.
        table: the answers, from `part_table`.
        cost: their cost.
    """
    footer = {b"cost": json.dumps(asdict(cost)), b"identity": json_digest(info.parameters)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **footer}), sink)
    data = bytes(sink.getvalue())
    write_whole(data, path / f"{name}-{sha256(data)[:16]}.parquet")


def parts(path: Path, name: str = "part") -> list[Path]:
    """Return the parts of a run folder whose names begin with `name`, in their order."""
    return sorted(path.glob(f"{name}-*.parquet"))


def _next_number(files: Sequence[Path]) -> int:
    """Return the number after that of the last of some parts."""
    return int(re.split(r"[-.]", files[-1].name)[1]) + 1 if files else 0


def _read_parts(
    path: Path, info: RunInfo, columns: Sequence[str] | None = None
) -> tuple[pa.Table, Cost]:
    """Return the table of all parts of a run folder, or some of its columns, and their cost."""
    contents = [_read_part(file, info, columns) for file in parts(path)]
    tables = [table for table, _ in contents]
    whole = pa.concat_tables([_NO_QUESTIONS, *tables], promote_options="permissive")
    is_repeated = whole.select(PROMPTED).to_pandas().duplicated()
    if is_repeated.any():
        row = whole.slice(int(is_repeated.argmax()), 1).to_pylist()[0]
        raise RunError(
            f"run folder {path} has two answers to question {row['question_id']!r}, "
            f"{row['question']!r:.200}; one of its parts was copied into it: move that part away"
        )
    return whole, sum((cost for _, cost in contents), Cost())


def _read_part(
    file: Path, info: RunInfo, columns: Sequence[str] | None = None
) -> tuple[pa.Table, Cost]:
    """Return the table, or some of its columns, and the cost of a part, after checking it."""
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        data = regular(file).read_bytes()
        if not re.fullmatch(rf"(part|questions)-\d+(\.\d+)?-{sha256(data)[:16]}", file.stem):
            raise RunError(f"{file} was cut short or altered (its checksum differs); {_REMEDY}")
        with pq.ParquetFile(pa.BufferReader(data)) as part:
            footer = part.metadata.metadata or {}
            if footer.get(b"identity") != json_digest(info.parameters).encode():
                raise RunError(
                    f"{file} is a part of another run, with other parameters; move it away"
                )
            cost = TypeAdapter(Cost).validate_json(footer.get(b"cost", b""), strict=True)
            return part.read(columns), cost


def read_info(path: Path) -> RunInfo:
    """Return the info in the file `run.json` of a run folder.

    Raises:
        RunError: the file is missing, was altered, or has another format.
    """
    file = path / "run.json"
    with reading(file, hint=f"if damaged, {_REMEDY}"):
        if not file.is_file():
            raise RunError(f"{path} is not a run folder: it has no run.json")
        content = TypeAdapter(dict).validate_json(file.read_bytes())
        checksum = content.pop("checksum", None)
        info = TypeAdapter(RunInfo).validate_json(json.dumps(content), strict=True)
        if checksum != json_digest(content):
            raise RunError(f"{file} was altered (its checksum differs); {_REMEDY}")
        return info
