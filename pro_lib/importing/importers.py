"""Import answers from elsewhere: records, responses of servers, and tables of answers."""

import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.common.validation import not_empty
from pro_lib.importing.asked import question_texts
from pro_lib.importing.left_out import Problem, collection_paused
from pro_lib.importing.pairing import paired, question_table
from pro_lib.importing.question_ids import question_ids, set_own_ids
from pro_lib.importing.read_responses import (
    Reading,
    ReadResponse,
    check_stream,
    first_values,
    read_responses,
    warn_of_answers,
)
from pro_lib.importing.records import (
    TABLES,
    from_records,
    names_in,
    run_of_records,
)
from pro_lib.importing.response_formats import response_format_of
from pro_lib.questions.file_readers import Source, json_lines, source_path, unzipped
from pro_lib.questions.json_values import decoded
from pro_lib.questions.question_files import read_question_rows
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

# The number of entries that show whether a file contains records or responses.
_N_PEEKED = 10
# Columns of a table of answers, which a question file does not have.
_ANSWER_FIELDS = {"response", "text", "log_prob", "token_log_probs"}


def from_openai(
    source: Source, *, questions: QuestionSet | pd.DataFrame | None = None, strict: bool = False
) -> Run:
    """Return a run of the answers in a server's responses.

    docs/reference/response_formats.md lists the formats.

    The source is a file of JSON, or a list of dictionaries or of a client's objects. An entry is a
    response, a line of a batch, or `{question_id?, question?, references?, split?, response}`.

    The column `log_prob` of the answers is in nats. It is the sum over the tokens that spell the
    answer and those that end it. If a server does not return the ending, the probabilities of the
    answers may sum to more than 1, and no bound holds.

    Args:
        source: the file or the list.
        questions: questions that replace those of the file, as `pro_lib.load_questions(...).table`.
            A response is paired with the question that has its id, otherwise its text. If it has
            neither, the order decides, and a warning says so.
        strict: whether a line or an answer that cannot be used is an error. By default it is left
            out (for example a failed response, a refusal, or an answer whose probability the server
            does not return), and a warning counts and names it.

    Returns:
        The run, with one row per answer and one row per question.

    Raises:
        RunError: no answer can be used, or an answer belongs to no question; names file, line and
            answer.

    Example:
        >>> tokens = [{"token": "Paris", "logprob": -0.25}, {"token": "</s>", "logprob": -0.5}]
        >>> choice = {"text": "Paris", "finish_reason": "stop", "logprobs": {"content": tokens}}
        >>> run = from_openai([{"question_id": "q1", "response": {"choices": [choice]}}])
        >>> run.answers[["text", "log_prob"]].values.tolist()
        [['Paris', -0.75]]
    """
    path = source_path(not_empty(source, "source"), "responses")
    with collection_paused():
        reading = _reading(source, path, strict)
        known_ids = set() if questions is None else set(question_table(questions)["question_id"])
        _set_question_texts(reading.responses)
        set_own_ids(reading.responses, known_ids)
        records = _records(reading, path)
        check_stream(reading)
        format_name = reading.format_name or "responses"
        info = RunInfo(unzipped(path).stem, format_name, format_name)
        run = run_of_records(records.values(), path, reading.left_out, info)
    reading.left_out.warn()
    warn_of_answers(reading, path)
    if not run.answers["finished"].any():
        endings = first_values(reading.endings)
        n_answers = len(run.answers)
        words = f"none of the {n_answers} answers is finished; their finish reasons are {endings}"
        raise RunError(f"{path}: {words}")
    if questions is not None:
        file_ids = {read.own_id for read in reading.responses} - {None}
        run = paired(questions, run, path, known_ids=file_ids)
    if not isinstance(questions, QuestionSet):  # `load_questions` has warned of those of a set
        warn_of_repeats(run.questions, f"responses {path.name}")
    return run


# One function reads every response format, because each can be recognised by its fields.
from_vllm = from_openai


def _reading(source: Source, path: Path, strict: bool) -> Reading:
    """Return the responses of a source, without comparing token texts if these are masked."""
    reading = read_responses(source, path, strict=strict)
    can_be_read_again = isinstance(source, (str, Path, list, tuple, pd.DataFrame))
    if can_be_read_again and reading.seems_masked():
        return read_responses(source, path, strict=strict, has_masked_tokens=True)
    return reading


def _set_question_texts(responses: Sequence[ReadResponse]) -> None:
    """Set the text of each question to that in the entry, otherwise to that in the request."""
    texts = question_texts([read.response.conversation for read in responses])
    for read, text in zip(responses, texts, strict=True):
        if read.question is None:
            read.question = text


def _records(reading: Reading, path: Path) -> dict[str, tuple[str, dict]]:
    """Return the record of each question, with its place and the answers of all its responses."""
    records: dict[str, tuple[str, dict]] = {}
    filters: dict[str, str] = {}
    ids = question_ids(reading.responses, path)
    for question_id, read in zip(ids, reading.responses, strict=True):
        response = read.response
        key = str(question_id)
        first_filter = filters.setdefault(key, str(response.filter))
        if first_filter != str(response.filter):
            reading.left_out.add(response.where, Problem(""))
            continue
        new_record: dict[str, Any] = {
            "question_id": question_id,
            "question": read.question,
            "references": response.references,
            "split": response.split,
            "answers": [],
        }
        _, record = records.setdefault(key, (response.where, new_record))
        record["answers"] += read.records
        for answer in read.left_out:
            answer.question_id = key
    return records


def import_answers(
    path: str | Path,
    *,
    questions: QuestionSet | pd.DataFrame | str | Path | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    strict: bool = False,
) -> Run:
    """Import a file of answers: records, responses of a server, or a table with a row per answer.

    Args:
        path: the file, in any response format of docs/reference/response_formats.md.
        questions: the questions that were answered, which replace those in the file: a file, a
            question set or a table. All splits of a file are used, and no question becomes a shot.
        columns: names of the columns of a file of `questions`, as in `pro_lib.load_questions`.
        strict: whether a line or an answer that cannot be used, or a row of a file of `questions`,
            is an error. By default it is left out, and a warning counts and names it.

    Returns:
        The run, with one row per answer and one row per question.

    Raises:
        RunError: no answer can be used, or one belongs to no question; names file, line and field.

    Example:
        >>> from pro_lib.common import catalog
        >>> import_answers(catalog.EXAMPLE)
        Run(world-facts/smollm2-135m/records: 788 questions, 6,178 answers)
    """
    not_empty(path, "path")
    if isinstance(questions, str | Path):
        questions = load_questions(
            path=not_empty(questions, "questions"),
            columns=columns,
            split=None,
            n_shots=0,
            strict=strict,
        )
    is_of_records = unzipped(path).suffix in TABLES or _has_records(path)
    read = from_records if is_of_records else from_openai
    try:
        return read(path, questions=questions, strict=strict)
    except RunError as error:
        if not _is_question_file(path):
            raise
        words = "is a question file: it has questions and right answers, but no answers of a model"
        remedy = f"Generate answers with: pro generate MODEL STRATEGY --dataset {path}"
        raise RunError(
            f"{path} {words}. {remedy}. Or give a file of answers, and this file with --questions."
        ) from error


def _is_question_file(path: str | Path) -> bool:
    """Return whether a file has questions with right answers, and no answers of a model."""
    if unzipped(path).suffix not in TABLES:
        entries = list(islice(json_lines(path, on_error=lambda *_: None), _N_PEEKED))
        if not entries or any(_has_model_answers(entry) for _, entry in entries):
            return False
    try:
        with warnings.catch_warnings(action="ignore"):
            names = {*read_question_rows(path, {}).table}
    except RunError:
        return False
    return names.isdisjoint(_ANSWER_FIELDS)


def _has_model_answers(entry: object) -> bool:
    """Return whether an entry of JSON is a response or a record, whose answers are objects."""
    if not isinstance(entry, dict) or _is_from_server(entry):
        return True
    answers = entry.get("answers")
    return isinstance(answers, list) and any(isinstance(answer, dict) for answer in answers)


def _has_records(path: str | Path) -> bool:
    """Return whether a file of JSON contains records, which have answers but no response."""
    entries = json_lines(path, on_error=lambda *_: None)
    for _, entry in islice(entries, _N_PEEKED):
        fields = entry if isinstance(entry, dict) else {}
        if fields.get("answers") is not None and fields.get("response") is None:
            return True
        if isinstance(entry, (dict, list, str)) and _is_from_server(decoded(entry)):
            return False
    return False


def _is_from_server(body: object) -> bool:
    """Return whether an entry is a response or contains one.

    A list or a text counts as one.
    """
    if not isinstance(body, dict):
        return True
    return "response" in body or response_format_of(body) is not None


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
        model_and_dataset = names_in(file)
        first_file = files.setdefault(model_and_dataset, file)
        if first_file != file:
            words = f"has the same name as {first_file!r}; give one of them at a time"
            raise ValueError(f"records={file!r} {words}")
    return files
