"""Import answers from elsewhere: records, responses of servers, logs, and tables of answers."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic_core import from_json

from pro_lib.common.files import RunError
from pro_lib.common.nested import plain
from pro_lib.common.validation import not_empty
from pro_lib.importing.answers import RUN_COLUMNS
from pro_lib.importing.left_out import LeftOut, collection_paused
from pro_lib.importing.reading import Reading, names_in
from pro_lib.importing.responses import FOREIGN, responses_in
from pro_lib.questions.cell_values import is_missing, list_in_text
from pro_lib.questions.file_readers import (
    Source,
    check_names,
    json_lines,
    rows_of,
    source_path,
    unzipped,
    warn_of_notes,
)
from pro_lib.questions.json_values import decoded
from pro_lib.questions.question_files import read_questions
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.questions.tables import decimal_points
from pro_lib.runs.run import Run

# Endings of files with one row per answer.
TABLES = (".csv", ".tsv", ".parquet")
# Other names that the columns of such files may have.
_COLUMN_ALIASES = {
    "answer": "text",
    "response": "text",
    "completion": "text",
    "id": "question_id",
    "prompt": "question",
    **dict.fromkeys(("logprob", "log_probability", "cumulative_logprob"), "log_prob"),
}
_ANSWER_COLUMNS = frozenset(
    (*RUN_COLUMNS, *_COLUMN_ALIASES, *FOREIGN, "question_id", "question", "answers")
)
_NUMBER_COLUMNS = ("log_prob", "end_log_prob", "mean_log_prob", "rouge_l")


def import_answers(
    source: Source,
    *,
    questions: QuestionSet | pd.DataFrame | str | Path | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    separator: str | None = None,
    verdict: str | None = None,
    strict: bool = False,
) -> Run:
    """Import answers: records, responses of a server, a log, or a table with a row per answer.

    docs/reference/response_formats.md lists the formats. A line of records is one question with
    its answers::

        {question_id, question?, references?, split?, relation?, scores?, answers: [...]}

    All log-probabilities are in nats. An answer has these fields::

        {log_prob?, token_log_probs?, end_log_prob?, mean_log_prob?, text?, tokens?, token_ids?,
         finished?, closed?, rouge_l?, correct?}

    An answer needs `log_prob`, `token_log_probs` or a text. The column `log_prob` of the run is the
    sum over the tokens that spell the answer and those that end it.

    Args:
        source: a file, a list of dictionaries or of a client's objects, or a DataFrame.
        questions: the questions that were answered, which replace those in the file: a file, a
            question set or a table. All splits of a file are used, and no question becomes a shot.
            A response is paired with the question that has its id, otherwise its text. If it has
            neither, the order decides, and a warning says so.
        columns: names of the columns of a file of `questions`, as in `pro_lib.load_questions`.
        separator: the text between several references in one text, as in `load_questions`.
        verdict: the name of the verdict that is read from a log, such as `exact_match`; by default
            the first one whose values are all 0 or 1.
        strict: whether a line or an answer that cannot be used, or a row of a file of `questions`,
            is an error. By default it is left out, and a warning counts and names it.

    Returns:
        The run, with one row per answer and one row per question.

    Raises:
        RunError: no answer can be used; names file, line and field.

    Example:
        >>> answers = [{"text": "Paris", "log_prob": -0.1}, {"text": "Lyon", "log_prob": -2.5}]
        >>> run = import_answers([{"question_id": "q1", "answers": answers}])
        >>> run.answers[["text", "log_prob"]].values.tolist()
        [['Paris', -0.1], ['Lyon', -2.5]]
    """
    not_empty(source, "source")
    if isinstance(questions, str | Path):
        questions = load_questions(
            path=not_empty(questions, "questions"),
            columns=columns,
            separator=separator,
            split=None,
            n_shots=0,
            strict=strict,
        )
    path = source_path(source, "responses")
    reading = Reading(LeftOut(path, strict), verdict=verdict)
    with collection_paused():
        for where, entry in _entries(source, separator):
            for response in responses_in(where, entry):
                reading.add(response)
        try:
            run = reading.run(questions, is_file=isinstance(source, (str, Path)))
        except RunError as error:
            if not _is_question_file(source):
                raise
            words = "is a question file: it has questions and right answers, but no answers"
            remedy = f"Generate answers with: pro generate MODEL STRATEGY --dataset {path}"
            raise RunError(
                f"{path} {words} of a model. {remedy}. Or give a file of answers, and this file "
                "with --questions."
            ) from error
    reading.left_out.warn()
    for message in reading.messages(run):
        warnings.warn(f"{path}: {message}", UserWarning, stacklevel=2)
    if not isinstance(questions, QuestionSet):  # `load_questions` has warned of those of a set
        warn_of_repeats(run.questions, f"answers {path.name}")
    return run


# One function reads every format, because each can be recognized by its fields.
from_openai = from_vllm = from_records = import_answers


# --- Entries ---


def _entries(source: Source, separator: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a source with their places."""
    is_file = isinstance(source, (str, Path))
    if is_file and unzipped(source).suffix.lower() in TABLES:  # type: ignore[arg-type]
        yield from _rows_of_table(Path(source), separator)  # type: ignore[arg-type]
        return
    entries = json_lines(source)
    first = next(entries, None)
    second = next(entries, None)
    if first is not None and second is None:
        where, entry = first
        whole = decoded(entry)
        samples = whole.get("samples") if isinstance(whole, dict) and "eval" in whole else whole
        if isinstance(samples, list) and (isinstance(entry, (str, dict))):
            name = where.rpartition(", ")[0]
            yield from ((f"{name}, entry {n}", value) for n, value in enumerate(samples, 1))
            return
    for pair_of_entry in (first, second):
        if pair_of_entry is not None:
            where, entry = pair_of_entry
            yield where, entry if is_file else plain(entry, all_objects=True)
    for where, entry in entries:
        yield where, entry if is_file else plain(entry, all_objects=True)


def _rows_of_table(path: Path, separator: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a table of answers, with the column names and the types of records."""
    notes: list[str] = []
    rows, delimiter = rows_of(path, notes, _ANSWER_COLUMNS)
    warn_of_notes(path, notes)
    objects = [row for _, row in rows if isinstance(row, dict)]
    names = list(objects[0]) if objects else []
    new_names = {
        name: alias
        for name in names
        if (alias := _COLUMN_ALIASES.get(name)) is not None and alias not in names
    }
    check_names([new_names.get(name, name) for name in names], path)
    is_text = path.suffix != ".parquet"
    for name in _NUMBER_COLUMNS if is_text else ():
        written = next((old for old, new in new_names.items() if new == name), name)
        if written in names:
            cells = [row[written] for row in objects]
            points = decimal_points(cells, has_semicolons=delimiter != ",")
            for values, cell in zip(objects, points, strict=True):
                values[written] = cell
    for where, row in rows:
        if not isinstance(row, dict):
            yield where, row
            continue
        values = {new_names.get(name, name): cell for name, cell in row.items()}
        if is_text:
            values = {name: _cell_value(name, cell, separator) for name, cell in values.items()}
        yield where, plain({name: value for name, value in values.items() if not is_missing(value)})


def _cell_value(name: str, cell: str | None, separator: str | None) -> object:
    """Return the value of a CSV cell in a column, or None for an empty cell."""
    if not cell:
        return None
    if name == "references":
        try:
            return list_in_text(cell) or [text.strip() for text in cell.split(separator or "\0")]
        except ValueError:
            return cell
    if (name in RUN_COLUMNS and name != "text") or name == "tokens":
        try:
            return from_json(cell if name == "tokens" else cell.lower())
        except ValueError:
            return cell
    return cell


# --- Files ---


def _is_question_file(source: Source) -> bool:
    """Return whether a file has questions with right answers, and no answers of a model."""
    if not isinstance(source, (str, Path)):
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            names = {*read_questions(source, {}).table}
    except RunError:
        return False
    return names.isdisjoint(("response", "text", "log_prob", "token_log_probs", "answers"))


def record_files(records: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return files of records by the model and the dataset that they name.

    Raises:
        ValueError: a file does not exist, or two files have the same model and dataset.

    Example:
        >>> from pro_lib.common import catalog
        >>> [*record_files([str(catalog.EXAMPLE)])]
        [('smollm2-135m', 'world-facts')]
    """
    files: dict[tuple[str, str], str] = {}
    for file in records:
        if not os.path.isfile(file):
            raise ValueError(f"records={file!r} is not a file")
        _, first = next(iter(_entries(file, None)), ("", {}))
        model_and_dataset = names_in(first, Path(file))
        first_file = files.setdefault(model_and_dataset, file)
        if first_file != file:
            words = f"has the same name as {first_file!r}; give one of them at a time"
            raise ValueError(f"records={file!r} {words}")
    return files
