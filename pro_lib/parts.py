"""What a run is made of: its info, its cost, and a part as one table, a row per question; knows no file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike
from pydantic import ConfigDict

from pro_lib.checks import WholeNumber
from pro_lib.engine import Certificate

FORMAT_VERSION = 3
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
# With an underscore in front, since a question set may bring a column of any other name.
_ANSWERS = "_answers"
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), float | None: pa.float64(), bool: pa.bool_()}
_ARROW |= {tuple[int, ...]: pa.list_(pa.int32()), tuple[float, ...]: pa.list_(pa.float64())}
_ARROW |= {tuple[bool, ...]: pa.list_(pa.bool_())}
_ANSWER = pa.struct(
    {"text": pa.string(), "token_ids": _ARROW[tuple[int, ...]], "token_log_probs": _ARROW[tuple[float, ...]]}
    | dict.fromkeys(("log_prob", "end_log_prob"), pa.float64())
    | {"finished": pa.bool_(), "path_entropy": pa.float64()}
)
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
    """Where a run comes from. `parameters` decide its answers; the rest is told, not compared.

    `n_planned` says how many questions the run was asked, answered or not.
    """

    __pydantic_config__ = _STRICT
    dataset: str
    model: str
    strategy: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    n_planned: WholeNumber = 0
    cost: Cost = Cost()
    format_version: int = FORMAT_VERSION

    def labels(self) -> dict[str, str]:
        """Return the columns that tell the tables of this run's setting from others': dataset, model."""
        return {"dataset": self.dataset, "model": self.model}


class Part(NamedTuple):
    """Questions that are answered and written together, under a name that begins so."""

    name: str
    questions: pd.DataFrame


def complete_log_prob(log_prob: ArrayLike, end_log_prob: ArrayLike) -> ArrayLike:
    """Log-probability of answers, endings included, in nats, of one shape; a missing ending is in the last token."""
    ending = np.asarray(end_log_prob, dtype=float)
    return log_prob + np.where(np.isnan(ending), 0.0, ending)


def part_table(
    questions: pd.DataFrame, answers: Sequence[Sequence[Mapping]], certificates: Sequence[Certificate | None]
) -> pa.Table:
    """A part's table, a row per question in their order: the question, its answers by rank, its certificate if any.

    An answer has text, token_ids, token_log_probs, log_prob (sum over its tokens), end_log_prob, finished.
    """
    table = pa.Table.from_pandas(questions, preserve_index=False)
    table = table.append_column(_ANSWERS, pa.array(map(list, answers), pa.list_(_ANSWER)))
    if any(certificates):
        rows = pa.Table.from_pylist([vars(certificate) for certificate in certificates], _CERTIFICATE)
        for column in _CERTIFICATE:
            table = table.append_column(column, rows[column.name])
    return table


def tables(parts: Sequence[pa.Table]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of answers and the table of questions of some parts, in their order."""
    return to_pandas(map(_answers, parts)), to_pandas(part.drop_columns([_ANSWERS]) for part in parts)


def to_pandas(parts: Iterable[pa.Table]) -> pd.DataFrame:
    """Tables, one below the other, as pandas, their references as lists."""
    frame = pa.concat_tables(parts, promote_options="permissive").to_pandas()
    if "references" in frame:
        frame["references"] = [None if refs is None else list(refs) for refs in frame["references"]]
    return frame


def _answers(part: pa.Table) -> pa.Table:
    nested = part[_ANSWERS].combine_chunks()
    row = pc.list_parent_indices(nested)
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    columns = [part["question_id"].take(row), pa.array(rank, pa.int32()), *pc.list_flatten(nested).flatten()]
    return pa.table(columns, names=["question_id", "rank", *(answer.name for answer in _ANSWER)])
