"""Import answers of other programs: records, responses of servers, logs, and tables of answers."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic_core import from_json

from pro_lib.common.files import RunError
from pro_lib.common.nested import plain
from pro_lib.common.validation import not_empty
from pro_lib.importing import harness
from pro_lib.importing.collected_answers import CollectedAnswers, collect_answers
from pro_lib.importing.fields import field_run, load_right_values
from pro_lib.importing.log_verdicts import set_verdicts
from pro_lib.importing.messages import error_of, messages, warn_of
from pro_lib.importing.parsed_answers import NUMBER_COLUMNS, RUN_COLUMNS
from pro_lib.importing.response_questions import run_questions
from pro_lib.importing.responses import FOREIGN, Response, responses_in
from pro_lib.questions.csv_files import check_names, decimal_points
from pro_lib.questions.file_readers import (
    Source,
    json_lines,
    rows_of,
    source_path,
    suffix_of,
    unzipped,
)
from pro_lib.questions.question_files import read_questions
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.questions.references import is_missing, list_in_text
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

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


def import_answers(
    source: Source,
    *,
    questions: QuestionSet | pd.DataFrame | str | Path | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    separator: str | None = None,
    log_metric: str | None = None,
    strict: bool = False,
    fields: bool = False,
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
        log_metric: the metric or scorer of a log that says which answers are right, such as
            `exact_match`; by default the first one whose values are all 0 or 1.
        strict: whether a line or an answer that cannot be used, or a row of a file of `questions`,
            is an error. By default it is left out, and a warning counts and names it.
        fields: whether each field of answers that are JSON objects becomes a question. The
            references are then JSON objects. A file of `questions` may have a column for each
            field instead, and its questions need no text if they have ids.

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
        load = load_right_values if fields else load_questions
        questions = load(
            path=not_empty(questions, "questions"),
            columns=columns,
            separator=separator,
            split=None,
            n_shots=0,
            strict=strict,
        )
    path = source_path(source, "responses")
    collected = collect_answers(_entries(source, separator), strict=strict, fields=fields)
    notes: list[str] = []
    try:
        table = run_questions(collected.responses, questions, path, notes)
        harness.reject_other_filters(collected.responses)
        collected.leave_out_rejected()
        notes += set_verdicts(collected, log_metric, path)
        answers = _answer_table(collected, path, len(table))
    except RunError as error:
        if not _is_question_file(source):
            raise
        raise RunError(
            f"{path} is a question file: it has questions and right answers, but no answers of a "
            f"model. Generate answers with: pro generate MODEL STRATEGY --dataset {path}. Or give "
            "a file of answers, and this file with --questions."
        ) from error
    run = Run(answers, table, _run_info(collected.responses, source), collected.reasons())
    warn_of(collected.left_out, path)
    for message in (*notes, *messages(collected, run)):
        warnings.warn(f"{path}: {message}", UserWarning, stacklevel=2)
    if not isinstance(questions, QuestionSet):  # `load_questions` has warned of those of a set
        warn_of_repeats(run.questions, f"answers {path.name}")
    return field_run(run) if fields else run


def _answer_table(collected: CollectedAnswers, path: Path, n_questions: int) -> pd.DataFrame:
    """Return the table of the answers, or raise `RunError` if none can be used."""
    answers = collected.take_table()
    if answers.empty:
        raise error_of(
            collected.left_out,
            path,
            f"{path} contains no answers that can be used ({n_questions} questions)",
        )
    if collected.endings and not answers["finished"].any():
        endings = "; ".join(map(str, collected.endings))
        raise RunError(
            f"{path}: none of the {len(answers)} answers is finished; their finish reasons are "
            f"{endings}"
        )
    return answers


def _run_info(responses: Sequence[Response], source: Source) -> RunInfo:
    """Return where a run comes from. The first record of a file may name the run."""
    first = next(response for response in responses if response.response_format)
    is_file = isinstance(source, (str, Path))
    path = source_path(source, "records" if first.is_record else "responses")
    if first.is_record:
        model, dataset = _names_of(first if is_file else Response(""), path)
        return RunInfo(dataset, model, "records")
    name = first.response_format.name if first.response_format else ""
    return RunInfo(unzipped(path).stem, name, name)


def _names_of(response: Response, path: Path) -> tuple[str, str]:
    """Return the model and the dataset that the first record of a file names.

    They are `records` and the stem of the file's name if the record does not name them.
    """
    record = response if response.is_of("records") else Response("")
    return str(record.model or "records"), str(record.dataset or unzipped(path).stem)


# --- Entries ---


def _entries(source: Source, separator: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a source with their places."""
    if suffix_of(source) not in TABLES:
        yield from json_lines(source, all_objects=True)
        return
    rows = rows_of(source, _ANSWER_COLUMNS)
    objects = [row for _, row in rows if isinstance(row, dict)]
    names = list(objects[0]) if objects else []
    new_names = {name: _COLUMN_ALIASES.get(name, name) for name in names}
    new_names = {old: old if new in names else new for old, new in new_names.items()}
    check_names(new_names.values(), source)
    if suffix_of(source) != ".parquet":
        for old, new in new_names.items():
            cells = [row[old] for row in objects]
            if new in NUMBER_COLUMNS:
                cells = decimal_points(cells)
            for row, cell in zip(objects, cells, strict=True):
                row[old] = _cell_value(new, cell, separator)
    for where, row in rows:
        if isinstance(row, dict):
            row = {new_names[name]: cell for name, cell in row.items() if not is_missing(cell)}
        yield where, plain(row)


def _cell_value(name: str, cell: str | None, separator: str | None) -> object:
    """Return the value of a CSV cell in a column, or None for an empty cell."""
    if not cell:
        return None
    with suppress(ValueError):
        if name == "references":
            return list_in_text(cell) or [text.strip() for text in cell.split(separator or "\0")]
        if (name in RUN_COLUMNS and name != "text") or name == "tokens":
            return from_json(cell if name == "tokens" else cell.lower())
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
        where, first = next(_entries(file, None), ("", {}))
        response = next(iter(responses_in(where, first)), Response(where))
        model_and_dataset = _names_of(response, Path(file))
        first_file = files.setdefault(model_and_dataset, file)
        if first_file != file:
            raise ValueError(
                f"records={file!r} has the same name as {first_file!r}; give one of them at a time"
            )
    return files
