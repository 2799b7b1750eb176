"""Read the answers that a command is given: a file, standard input or a run folder."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.common.validation import SentenceError
from pro_lib.importing.answer_files import import_answers
from pro_lib.questions.file_readers import unpacked
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.runs.question_table import OldReferencesWarning, stored_rows
from pro_lib.runs.run import Run, read_run

STDIN = "-"  # the path of a file on standard input


@dataclass(frozen=True)
class Reading:
    """How the answers of a file or a run folder are read.

    Attributes:
        questions: a file of questions, whose references and splits replace those of the answers.
        columns, separator: the parameters of `import_answers` with these names.
        strict: whether a line, a row or an answer that cannot be used is an error.
        all_questions: whether all stored questions of a run folder are read, not only those of the
            last call of `generate`.
    """

    questions: str | None = None
    columns: Mapping[str, Sequence[str]] | None = None
    separator: str | None = None
    strict: bool = False
    all_questions: bool = False

    def read(self, path: str, *, fields: bool = False, log_metric: str | None = None) -> Run:
        """Return the answers of a run folder, or of a file in any supported format.

        Args:
            path: the run folder or the file, or "-" for a file on standard input.
            fields: whether each field of structured answers becomes a question; of files only.
            log_metric: the metric of a log that says which answers are right, as in
                `import_answers`.

        Raises:
            SentenceError: an option for files is given with a run folder.
        """
        options: dict[str, Any] = {"fields": fields, "log_metric": log_metric}
        if os.path.isdir(path):
            return self._read_folder(path, **options)
        options |= {"questions": self.questions, **self._table_options()}
        if path != STDIN:
            return import_answers(path, **options)
        with tempfile.TemporaryDirectory() as folder:
            content = unpacked(sys.stdin.buffer.read())
            copy = Path(folder, f"stdin{_suffix_of(content)}")
            copy.write_bytes(content)
            with _named_as(copy, "standard input"):
                return import_answers(copy, **options)

    def _read_folder(self, path: str, *, fields: bool, log_metric: str | None) -> Run:
        """Return the answers of a run folder."""
        if fields:
            raise SentenceError(f"{path} is a run folder; --fields needs a file of responses.")
        if log_metric:
            raise SentenceError(f"{path} is a run folder; log:{log_metric} needs a log.")
        if self.questions is None:
            if self.separator:
                raise SentenceError(f"{path} is a run folder; --separator needs --questions.")
            return read_run(path, all_questions=self.all_questions)
        options = self._table_options()
        question_set = load_questions(path=self.questions, split=None, n_shots=0, **options)
        with warnings.catch_warnings():
            # The references are replaced.
            warnings.simplefilter("ignore", OldReferencesWarning)
            run = read_run(path, all_questions=self.all_questions)
        table = _given_questions(run, question_set, self.questions, strict=self.strict)
        return read_run(path, questions=table)

    def _table_options(self) -> dict[str, Any]:
        """Return the options that a file of questions is read with."""
        return {"columns": self.columns, "separator": self.separator, "strict": self.strict}


def _suffix_of(content: bytes) -> str:
    """Return the suffix of a file without name: of JSON if it begins with a bracket, or of CSV."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    return ".jsonl" if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else ".csv"


@contextmanager
def _named_as(path: Path, name: str) -> Iterator[None]:
    """Give a file another name in the errors and warnings of a context."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            yield
        except RunError as error:
            raise RunError(str(error).replace(str(path), name)) from error
    for each in caught:
        warnings.warn(str(each.message).replace(str(path), name), each.category, stacklevel=4)


def _given_questions(
    run: Run, question_set: QuestionSet, path: str, *, strict: bool
) -> pd.DataFrame:
    """Return the questions of a run with the ids, references and splits of a file.

    A file without a column of splits leaves the splits of the run.
    """
    rows = stored_rows(run.questions, question_set.table)
    is_in_file = rows >= 0
    n_missing = int((~is_in_file).sum())
    if n_missing:
        first = run.questions["question"].iloc[int((~is_in_file).argmax())]
        message = (
            f"{n_missing:,} of the {len(rows):,} questions of run {run.name} are not in {path}, "
            f"such as {first!r:.200}"
        )
        if strict or n_missing == len(rows):
            raise RunError(f"{message}; give the question file of the run")
        warnings.warn(f"{message}; they are left out", stacklevel=3)
    questions = question_set.table.iloc[rows[is_in_file]]
    if "split" not in question_set.source["columns"]:
        questions = questions.assign(split=run.questions["split"].to_numpy()[is_in_file])
    return questions
