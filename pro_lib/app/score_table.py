"""The tables of `pro score`: a row per question or per answer, on the terminal and in files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro_lib.common.files import csv_text
from pro_lib.common.nested import json_value
from pro_lib.common.validation import SentenceError, printable

if TYPE_CHECKING:
    import pandas as pd

    from pro_lib.app.mistrust import Mistrust
    from pro_lib.app.scored_answers import ScoredAnswers

_SUFFIXES = (".csv", ".jsonl", ".parquet")
# The first columns of the files, by which the command recognizes its own.
_QUESTION_COLUMNS = ["question_id", "question", "text", "mistrust", "correct"]
_ANSWER_COLUMNS = ["question_id", "question", "text", "rank", "log_prob", "probability", "kept"]
_FILE_NAMES = {"PRO": "pro", "NLL": "nll"}  # the columns of methods that have other names in files
_MOST_KEPT = 3  # answers of a question that the terminal shows


def question_table(scored: ScoredAnswers, mistrust: Mistrust) -> pd.DataFrame:
    """Return a row per question, in the order of the run: verdict, scores, and kept answers.

    `reason` says why a question has no usable answer, and `likelier_cut` whether a cut answer is
    more probable than the judged one.
    """
    table = scored.questions.rename(columns=_FILE_NAMES).assign(mistrust=mistrust.is_mistrusted)
    if "n_kept" in table:
        table["kept"] = [
            "; ".join(f"{text} ({probability:.3g})" for text, probability in answers)
            for answers in scored.kept_answers
        ]
    table["reason"] = scored.run.reasons().to_numpy()
    table["likelier_cut"] = scored.run.has_likelier_cut()
    others = table.columns.difference(_QUESTION_COLUMNS, sort=False)
    return table[[*_QUESTION_COLUMNS, *others]]


def answer_table(scored: ScoredAnswers, order: Sequence[int]) -> pd.DataFrame:
    """Return a row per answer, the most probable first, question by question in an order."""
    import numpy as np

    ranked = scored.run.ranked_answers()
    places = np.argsort(order)
    ranked = ranked.iloc[np.argsort(places[ranked["row"]], kind="stable")].reset_index(drop=True)
    questions = scored.questions.iloc[ranked["row"].to_numpy()]
    n_kept = questions["n_kept"].to_numpy() if "n_kept" in questions else 0
    rank = ranked.groupby("row").cumcount() + 1
    table = questions[["question_id", "question"]].reset_index(drop=True)
    table["text"] = ranked["text"].to_numpy()
    table["rank"] = rank.to_numpy()
    table["log_prob"] = ranked["value"].to_numpy(float)
    table["probability"] = np.exp(table["log_prob"])
    table["kept"] = table["rank"].to_numpy() <= n_kept
    return table[_ANSWER_COLUMNS]


def printed_table(rows: pd.DataFrame, scored: ScoredAnswers, method: str) -> pd.DataFrame:
    """Return rows of `question_table` for the terminal, with the score of one method.

    The mark ! says that an answer is to be mistrusted, and … that a cut answer is more probable.
    The reason why a question has no answer stands in parentheses in its place.
    """
    import pandas as pd

    marks = rows["mistrust"].map({True: "!", False: ""})
    marks += rows["likelier_cut"].map({True: "…", False: ""})
    table = pd.DataFrame({"": marks})
    table["question"] = rows["question"].fillna(rows["question_id"].astype(str))
    if "field" in rows:
        table[["question", "field"]] = rows[["question_id", "field"]]
    reasons = ("(" + rows["reason"] + ")").replace("()", "")
    table["answer"] = rows["text"].fillna(reasons)
    if scored.n_judged:
        table["correct"] = rows["correct"].map({True: "yes", False: "no"}).fillna("")
    table[method] = rows[_FILE_NAMES.get(method, method)]
    if "n_kept" in rows:
        table["K"] = rows["n_kept"]
        table["kept answers"] = [_kept_in_words(scored.kept_answers[row]) for row in rows.index]
    return table


def _kept_in_words(answers: list[tuple[str, float]]) -> str:
    kept = [f"{_shortened(text)} {probability:.3f}" for text, probability in answers[:_MOST_KEPT]]
    n_more = len(answers) - _MOST_KEPT
    if n_more > 0:
        kept.append(f"and {n_more} more")
    return ", ".join(kept)


def _shortened(text: str, length: int = 24) -> str:
    text = printable(text.strip())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def check_suffix(path: Path) -> None:
    """Raise `SentenceError` if no format has the suffix of a path.

    Without a suffix it is CSV.
    """
    if path.suffix and path.suffix.lower() not in _SUFFIXES:
        raise SentenceError(
            f"--output {str(path)!r} has no known format. Give a name that ends in one of "
            f"{', '.join(_SUFFIXES)}."
        )


def file_bytes(table: pd.DataFrame, path: Path, *, raw_text: bool) -> bytes:
    """Return a table in the format of a path's suffix.

    Args:
        table: the table.
        path: the file.
        raw_text: whether CSV has texts as they are. Otherwise a text that a spreadsheet would read
            as a formula begins with ``'``.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        buffer = io.BytesIO()
        _encodable(table).to_parquet(buffer, index=False)
        return buffer.getvalue()
    if suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=True) for row in json_rows(table)]
        return "".join(f"{line}\n" for line in lines).encode()
    return csv_text(table, raw_text=raw_text).encode()


def _encodable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with ids as text, and unpaired surrogates of texts replaced."""

    def encodable(cell: object) -> object:
        return cell.encode(errors="replace").decode() if isinstance(cell, str) else cell

    return table.assign(question_id=table["question_id"].astype(str)).map(encodable)


def json_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as data of JSON.

    Missing values are None.
    """
    return [json_value(row) for row in table.to_dict("records")]


def is_score_table(path: Path) -> bool:
    """Return whether a file begins as the tables that `pro score` writes."""
    columns = _columns_of(path)
    starts = (_QUESTION_COLUMNS, _ANSWER_COLUMNS)
    return any(columns[: len(start)] == start for start in starts)


def _columns_of(path: Path) -> list[str]:
    """Return the names of the columns of a file, in the format of its suffix."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        return list(pq.read_schema(path).names)
    with open(path, encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            return list(json.loads(file.readline()))
        return next(csv.reader([file.readline(10_000)]), [])
