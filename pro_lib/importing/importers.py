"""Import answers made elsewhere: records, responses of servers, and tables of texts and log-probabilities."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.common.nested import plain
from pro_lib.common.validation import not_empty
from pro_lib.importing.answer_records import record_of
from pro_lib.importing.asked import question_texts
from pro_lib.importing.formats import ParsedAnswer, ResponseFormat
from pro_lib.importing.left_out import (
    FAILED,
    NO_FINISH_REASON,
    OTHER_FILTER,
    LeftOut,
    Problem,
    collection_paused,
)
from pro_lib.importing.pairing import paired, question_table
from pro_lib.importing.records import (
    TABLES,
    AnswerRecord,
    from_records,
    names_in,
    read_labels,
    record_tables,
    split_records,
)
from pro_lib.importing.response_formats import CUT, NATURAL, response_format_of
from pro_lib.importing.responses import Response, StreamError, responses_in
from pro_lib.questions.file_readers import Source, json_lines, source_path, unzipped
from pro_lib.questions.json_values import decoded
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

__all__ = [
    "from_openai",
    "from_records",
    "from_vllm",
    "import_answers",
    "read_labels",
    "record_files",
    "split_records",
]

_PEEKED = 10  # the first entries of a file, which tell whether it has records or responses


@dataclass
class _ReadResponse:
    """A response after its answers were read: the fields that tell its question, and the records of its answers."""

    response: Response
    question: Any
    own_id: Any = None
    records: list[AnswerRecord] = field(default_factory=list)


@dataclass
class _Reading:
    """The content of a file of responses, as far as it was read."""

    left_out: LeftOut
    responses: list[_ReadResponse] = field(default_factory=list)
    format_name: str = "responses"
    endings: Counter = field(default_factory=Counter)
    n_with_thoughts: int = 0
    n_without_log_probs: int = 0  # answers of an API that returns no log-probabilities
    notes: Counter[str] = field(
        default_factory=Counter
    )  # of answers that are scored on some of their tokens
    unfinished: dict[str, str] = field(
        default_factory=dict
    )  # places of answers without a finish reason
    has_masked_tokens: bool = False  # whether the texts of tokens are ignored
    texts: set[str] = field(default_factory=set)  # the first two different texts of answers
    token_texts: set[Any] = field(default_factory=set)  # the first two different texts of tokens

    def note_texts(self, answer: ParsedAnswer) -> None:
        """Keep the texts of an answer and of its tokens until there are two different ones of each."""
        if len(self.token_texts) < 2:
            self.token_texts.update(
                text for text in (answer.token_texts or [])[:2] if text is not None
            )
        if len(self.texts) < 2 and isinstance(answer.text, str):
            self.texts.add(answer.text)

    def seems_masked(self) -> bool:
        """Return whether all tokens have one text that spells no answer, as in a log with masked tokens."""
        have_one_text = len(self.token_texts) == 1 and len(self.texts) > 1
        return have_one_text and not any(read.records for read in self.responses)


def from_openai(
    source: Source, *, questions: QuestionSet | pd.DataFrame | None = None, strict: bool = False
) -> Run:
    """Return a run of the answers in responses of a server, in any response format of docs/own_data.md.

    The source is a file of JSON, or a list of dicts or of a client's objects. A response is bare, or in
    `{question_id?, question?, references?, split?, response}`, or a batch's line. `log_prob` (nats) is that of the
    tokens that spell the answer and end it; without the ending, answers may add up to more than 1, and no bound holds.

    Args:
        source: the file or the list.
        questions: replace those of the file, as `pro_lib.load_questions(...).table`. A response belongs to the
            question of its id, else of its text, else in its place, which a warning says.
        strict: whether a line or an answer that cannot be used is an error. By default it is left out (for example a
            failed response, a refusal, or an answer whose probability the server does not return), and a warning
            counts and names it.

    Raises:
        RunError: names file, line and answer.
    """
    path = source_path(not_empty(source, "source"), "responses")
    with collection_paused():
        reading = _read_responses(source, path, strict)
        if reading.seems_masked() and isinstance(source, (str, Path, list, tuple, pd.DataFrame)):
            reading = _read_responses(source, path, strict, has_masked_tokens=True)
        known_ids = set() if questions is None else set(question_table(questions)["question_id"])
        _set_question_texts(reading.responses)
        _set_ids(reading.responses, known_ids)
        records = _records(reading, path)
        _check_stream(reading)
        answers, table = record_tables(records.values(), path, reading.left_out)
    reading.left_out.warn()
    _warn_of_answers(reading, path)
    if not answers["finished"].any():
        endings = _some(reading.endings)
        raise RunError(
            f"{path}: none of {len(answers)} answers is finished; their endings are {endings}"
        )
    if questions is not None:
        known = {read.own_id for read in reading.responses} - {None}
        answers, table = paired(questions, answers, table, path, known_ids=known)
    if not isinstance(questions, QuestionSet):  # of a question set, `load_questions` has said it
        warn_of_repeats(table, f"responses {path.name}")
    return Run(
        answers, table, RunInfo(unzipped(path).stem, reading.format_name, reading.format_name)
    )


# One function reads every response format, since each is told by what it holds.
from_vllm = from_openai


def _read_responses(
    source: Source, path: Path, strict: bool, *, has_masked_tokens: bool = False
) -> _Reading:
    """Read the responses of a file entry by entry, and keep the records of their answers."""
    left_out = LeftOut(path, strict)
    reading = _Reading(left_out, has_masked_tokens=has_masked_tokens)
    is_file = isinstance(source, (str, Path))
    has_format = False
    entries = json_lines(source, on_error=None if strict else left_out.add_error)
    for where, entry in _without_outer_list(entries):
        try:
            found = list(responses_in(where, entry if is_file else plain(entry, all_objects=True)))
        except StreamError:
            raise
        except RunError as error:
            left_out.add_error(where, error)
            continue
        for response in found:
            if response.response_format is not None and not has_format:
                reading.format_name, has_format = response.response_format.name, True
            read = _ReadResponse(replace(response, answers=[]), response.question)
            reading.responses.append(read)
            if response.failure is not None:
                words = (
                    f"the response failed ({response.failure})"
                    if response.failure
                    else "the response failed"
                )
                left_out.add(response.where, Problem(FAILED, words))
            elif response.response_format is not None:
                _read_answers(response, response.response_format, read, reading)
    return reading


def _without_outer_list(entries: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a file; if its only entry is a text of JSON with a list, yield the entries of the list."""
    first, second = next(entries, None), next(entries, None)
    if first is not None and second is None and isinstance(first[1], str):
        values = decoded(first[1])
        if isinstance(values, list):
            place = first[0].rpartition(", ")[0]
            yield from ((f"{place}, entry {n}", value) for n, value in enumerate(values, start=1))
            return
    yield from (entry for entry in (first, second) if entry is not None)
    yield from entries


def _read_answers(
    response: Response, response_format: ResponseFormat, read: _ReadResponse, reading: _Reading
) -> None:
    prompt = _prompt_text(response)
    for n, answer in enumerate(response.answers):
        place = f"{response.where}, choice {n}"
        if reading.has_masked_tokens:
            answer = replace(answer, token_texts=None)
        else:
            reading.note_texts(answer)
        record = record_of(answer, response_format, reading.notes, prompt)
        reading.n_with_thoughts += answer.has_thoughts
        if isinstance(record, Problem):
            reading.left_out.add(place, record)
            if record.kind == NO_FINISH_REASON:
                reading.unfinished[place] = str(response.served_id)
            continue
        read.records.append(record)
        reading.n_without_log_probs += answer.lacks_log_probs
        reading.endings[answer.reason] += 1


def _prompt_text(response: Response) -> str | None:
    """Return the text of a response's prompt or question, or None if the file does not have it."""
    if response.conversation is not None and len(response.conversation) == 1:
        return response.conversation[0].text or None
    return response.question if isinstance(response.question, str) else None


def _check_stream(reading: _Reading) -> None:
    """Raise `RunError` for the pieces of a stream, which share an id; only the last one has a finish reason."""
    counts = Counter(
        str(read.response.served_id) for read in reading.responses if read.response.part is None
    )
    for place, served_id in reading.unfinished.items():
        if counts[served_id] > 1:
            words = "has no finish reason, as the pieces of a stream; save the whole response that the client joins"
            raise RunError(f"{place}: the answer {words}")


def _set_question_texts(responses: Sequence[_ReadResponse]) -> None:
    """Set the text of each question: the entry's own, else that of the request."""
    texts = question_texts([read.response.conversation for read in responses])
    for read, text in zip(responses, texts, strict=True):
        if read.question is None:
            read.question = text


def _records(reading: _Reading, path: Path) -> dict[str, tuple[str, dict]]:
    """Return the records of the questions by id, each with the answers of all responses to its question."""
    records: dict[str, tuple[str, dict]] = {}
    filters: dict[str, Any] = {}
    for name, read in zip(_names(reading.responses, path), reading.responses, strict=True):
        response = read.response
        judged_by = str(response.filter)
        if filters.setdefault(str(name), judged_by) != judged_by:
            reading.left_out.add(response.where, Problem(OTHER_FILTER))
            continue
        if response.failure is not None and read.own_id is not None:
            continue
        fields = {
            "question_id": name,
            "question": read.question,
            "references": response.references,
            "split": response.split,
            "answers": [],
        }
        _, record = records.setdefault(str(name), (response.where, fields))
        record["answers"] += read.records
    return records


def _warn_of_answers(reading: _Reading, path: Path) -> None:
    """Warn of unknown finish reasons, of thoughts, and of an API without log-probabilities."""
    unknown = [
        f"{name} ({count})" for name, count in reading.endings.items() if name not in NATURAL | CUT
    ]
    if unknown:
        message = f"endings {_some(unknown)} are unknown; such an answer counts as cut"
        warnings.warn(message, UserWarning, stacklevel=3)
    if reading.has_masked_tokens:
        message = f"{path}: all tokens have the same text, which spells no answer; it is not compared with the answers"
        warnings.warn(message, UserWarning, stacklevel=3)
    if reading.n_with_thoughts:
        message = f"{path}: {reading.n_with_thoughts} answers had thoughts (reasoning) before them, which are neither "
        message += (
            "scored nor judged; their values are conditional on the reasoning that was sampled"
        )
        warnings.warn(message, UserWarning, stacklevel=3)
    for note, count in reading.notes.items():
        warnings.warn(f"{path}: {count} answers {note}", UserWarning, stacklevel=3)
    if reading.n_without_log_probs:
        message = f"{path}: the API ({reading.format_name}) gives no log-probabilities of "
        message += f"{reading.n_without_log_probs} answers; their texts are read for SC, Deg and SE by counts"
        warnings.warn(message, UserWarning, stacklevel=3)


def import_answers(
    path: str | Path,
    *,
    questions: QuestionSet | pd.DataFrame | str | Path | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    strict: bool = False,
) -> Run:
    """Import a file of answers: records, responses of a server, or a CSV or Parquet file with a row per answer.

    Args:
        path: the file, in any response format of docs/own_data.md.
        questions: the questions that were answered, in place of those in the file: a file, a question set or a
            table. Of a file all splits are used, and no question is taken as a shot.
        columns: names of the columns of a file of `questions`, as in `pro_lib.load_questions`.
        strict: whether a line or an answer that cannot be used, or a row of a file of `questions`, is an error. By
            default it is left out, and a warning counts and names it.

    Raises:
        RunError: no answer can be used, or one belongs to no question; names file, line and field.
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
    reader = from_records if unzipped(path).suffix in TABLES or _has_records(path) else from_openai
    return reader(path, questions=questions, strict=strict)


def _has_records(path: str | Path) -> bool:
    """Return whether a file of JSON contains records: one of its first entries has answers but no response."""
    for _, entry in islice(json_lines(path, on_error=lambda *_: None), _PEEKED):
        if (
            isinstance(entry, dict)
            and entry.get("answers") is not None
            and entry.get("response") is None
        ):
            return True
        if isinstance(entry, (dict, list, str)):
            body = decoded(entry)
            if (
                not isinstance(body, dict)
                or "response" in body
                or response_format_of(body) is not None
            ):
                return False
    return False


def record_files(records: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return files of records by model and dataset; ValueError if one is missing or two have one name."""
    files: dict[tuple[str, str], str] = {}
    for file in records:
        if not os.path.isfile(file):
            raise ValueError(f"records={file!r} is not a file")
        name = names_in(file)
        if files.setdefault(name, file) != file:
            raise ValueError(
                f"records={file!r} has the name of {files[name]!r}: one of them at a time"
            )
    return files


def _names(responses: Sequence[_ReadResponse], path: Path) -> list[object]:
    """Return the question_id of each response; responses with one id or one request have the same question."""
    names = list[Any]()
    by_question = dict[object, Any]()
    places = dict[str, tuple[str, tuple]]()
    for read in responses:
        response, name = read.response, read.own_id
        text = read.question if isinstance(read.question, str) else ""
        if name is None:
            served = None if str(response.served_id) in places else response.served_id
            place = f"{unzipped(path).stem}-{response.where.partition(', prompt ')[0].rsplit(' ', 1)[1]}"
            if response.part is not None:
                place = f"{place}-{response.part}"
            # The same words may be another question in another conversation.
            identity = response.conversation or text or response.where
            name = by_question.setdefault(identity, place if served is None else served)
        about = (text, response.references, response.split)
        where, first = places.setdefault(str(name), (response.where, about))
        if about != first:
            raise RunError(
                f"{response.where}: question_id {name!r} was already used ({where}), by another question"
            )
        names.append(name)
    return names


def _set_ids(responses: Sequence[_ReadResponse], known_ids: set[str]) -> None:
    """Set the ids of the responses; `q0-0` and `q0-1` become `q0` if both are answers to one question.

    A warning says so, unless the ids without numbers are those of the given questions.
    """
    ids = [read.response.question_id for read in responses]
    ids = [str(name) if type(name) is int else name for name in ids]
    for read, name in zip(responses, ids, strict=True):
        read.own_id = name
    split = [match for name in ids if (match := re.fullmatch(r"(.+)[-_.:#/](\d{1,9})", str(name)))]
    if len(split) < len(ids) or not ids or known_ids & set(ids):
        return
    stems = [match[1] for match in split]
    numbers = dict[str, list[int]]()
    for match in split:
        numbers.setdefault(match[1], []).append(int(match[2]))
    questions = [read.response.conversation or read.question or "" for read in responses]
    if not set(stems) <= known_ids and not _are_samples(stems, numbers, questions):
        return
    for read, stem in zip(responses, stems, strict=True):
        read.own_id = stem
    if not set(stems) <= known_ids:
        shown = next(n for n, stem in enumerate(stems) if len(set(numbers[stem])) > 1)
        message = f"answers are taken as samples of one question by their ids, as {ids[shown]!r} of {stems[shown]!r}"
        warnings.warn(message, UserWarning, stacklevel=3)


def _are_samples(
    stems: Sequence[str], numbers: Mapping[str, Sequence[int]], questions: Sequence[object]
) -> bool:
    """Return whether ids such as `q0-0` and `q0-1` are those of samples of one question `q0`.

    Some ids must share a stem. If all questions are known, each stem must have one question. If none is known, several
    stems must have the same numbers, which begin with 0 and 1, or with 1 and 2.

    Args:
        stems: the id of each response without its number.
        numbers: the numbers of each stem.
        questions: the conversation or the question of each response, "" if unknown.
    """
    if not any(len(set(group)) > 1 for group in numbers.values()):
        return False
    if all(questions):
        return len({*zip(stems, questions, strict=True)}) == len(numbers)
    different = {tuple(sorted(group)) for group in numbers.values()}
    if any(questions) or len(numbers) < 2 or len(different) > 1:
        return False
    if all(stem.isdecimal() for stem in stems):  # 2021-01 may be a month, and 1.2 a section
        return False
    return different.pop()[:2] in ((0, 1), (1, 2))


def _some(values: Iterable[object]) -> str:
    """Return the first five values as text."""
    texts = [str(value) for value in values]
    return "; ".join(texts[:5]) + f" and {len(texts) - 5} more" * (len(texts) > 5)
