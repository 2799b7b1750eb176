"""Runs of answers made elsewhere: files of our records, of what servers returned, of texts and log-probabilities."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pro_lib.common.files import RunError
from pro_lib.common.validation import not_empty
from pro_lib.importing.records import (
    TABLES,
    from_records,
    names_in,
    paired,
    question_table,
    read_labels,
    record_tables,
    split_records,
)
from pro_lib.importing.response_formats import CUT, NATURAL, Response, record_of, responses, value_at
from pro_lib.questions.file_readers import Source, json_lines, source_path, unzipped
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

__all__ = ["from_openai", "from_records", "from_vllm", "import_answers", "read_labels", "record_files", "split_records"]


def from_openai(source: Source, *, questions: QuestionSet | pd.DataFrame | None = None) -> Run:
    """Return a run of what a server returned, in any response format of docs/own_data.md, with log-probabilities.

    The source is a file of JSON, or a list of dicts or of a client's objects. A response is bare, or in
    `{question_id?, question?, references?, split?, response}`, or a batch's line. `log_prob` (nats) is that of all
    tokens returned; without the one that ends an answer, answers may add up to more than 1, and no bound holds. What
    failed or was refused, or has a probability that the server keeps to itself, is left out; a warning counts it.

    `questions`, as `pro_lib.load_questions(...).table`, replace those of the file. A response belongs to the question
    of its
    id, else of its text, else in its place, which a warning says. Raises `RunError` with file, line and choice.
    """
    path = source_path(not_empty(source, "source"), "responses")
    read = [response for where, entry in json_lines(source) for response in responses(where, entry)]
    response_format = next(
        (response.response_format.name for response in read if response.response_format), "responses"
    )
    texts = [text if isinstance(text := response.question["question"], str) else "" for response in read]
    own = _ids(read, texts, set() if questions is None else set(question_table(questions)["question_id"]))
    left_out, records, filters = dict[str, list](), dict[str, tuple[str, dict]](), dict[str, Any]()
    endings: Counter = Counter()
    for name, known, response in zip(_names(read, texts, own, path), own, read, strict=True):
        place, fields = response.where.removeprefix(f"{path}, "), response.question | {"question_id": name}
        if filters.setdefault(str(name), str(fields["filter"])) != str(fields["filter"]):
            left_out.setdefault("that another filter judges again", []).append(place)
            continue
        if not response.answers:
            left_out.setdefault("that failed", []).append(place)
        if response.answers or known is None:
            _, record = records.setdefault(str(name), (response.where, fields | {"answers": []}))
        for n, completion in enumerate(response.answers):
            answer = record_of(completion, response.response_format, f"{response.where}, choice {n}")
            if isinstance(answer, str):
                left_out.setdefault(answer, []).append(f"{place}, choice {n}")
            else:
                record["answers"].append(answer)
                endings[completion.reason] += 1
    for reason, places in left_out.items():
        warnings.warn(f"{len(places)} answers {reason} are left out: {_some(places)}", UserWarning, stacklevel=2)
    if unknown := [f"{name} ({count})" for name, count in endings.items() if name not in NATURAL | CUT]:
        warnings.warn(f"endings {_some(unknown)} are unknown; such an answer counts as cut", UserWarning, stacklevel=2)
    answers, table = record_tables(records.values(), path)
    if not answers["finished"].any():
        raise RunError(f"{path}: none of {len(answers)} answers is finished; their endings are {_some(endings)}")
    if questions is not None:
        answers, table = paired(questions, answers, table, path, known={*own} - {None})
    return Run(answers, table, RunInfo(unzipped(path).stem, response_format, response_format))


# One function reads every response format, since each is told by what it holds.
from_vllm = from_openai


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
        strict: whether a row of that file that cannot be used is an error.

    Raises:
        RunError: an answer cannot be read, or belongs to no question; names file, line and field.
    """
    not_empty(path, "path")
    if isinstance(questions, str | Path):
        questions = load_questions(
            path=not_empty(questions, "questions"), columns=columns, split=None, n_shots=0, strict=strict
        )
    if unzipped(path).suffix in TABLES:
        is_ours = True
    else:
        _, first = next(json_lines(path), ("", None))
        # Questions of SQuAD have answers too, to which a response may have been added.
        is_ours = value_at(first, "answers") is not None and value_at(first, "response") is None
    return (from_records if is_ours else from_openai)(path, questions=questions)


def record_files(records: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return files of records by model and dataset; ValueError if one is missing or two have one name."""
    files: dict[tuple[str, str], str] = {}
    for file in records:
        if not os.path.isfile(file):
            raise ValueError(f"records={file!r} is not a file")
        name = names_in(file)
        if files.setdefault(name, file) != file:
            raise ValueError(f"records={file!r} has the name of {files[name]!r}: one of them at a time")
    return files


def _names(read: Sequence[Response], texts: Sequence[str], own: Sequence[str | None], path: Path) -> list[object]:
    """Return the question_id of each response; those to one question, by id or by text, share theirs."""
    names, by_text, places = list[Any](), dict[str, Any](), dict[str, Any]()
    for name, text, response in zip(own, texts, read, strict=True):
        if name is None:
            served = None if str(response.served_id) in places else response.served_id
            place = f"{unzipped(path).stem}-{response.where.rsplit(' ', 1)[1]}"
            name = by_text.setdefault(text or response.where, place if served is None else served)
        about = (text, response.question["references"], response.question["split"])
        where, first = places.setdefault(str(name), (response.where, about))
        if about != first:
            raise RunError(f"{response.where}: question_id {name!r} was already used ({where}), by another question")
        names.append(name)
    return names


def _ids(read: Sequence[Response], texts: Sequence[str], prompted: set[str]) -> list[Any]:
    """Return the ids that responses bring, `q0-0` and `q0-1` as `q0` where it was asked or where both have one text.

    Without texts they also do where each of several questions has the same numbers, which a warning says.
    """
    ids = [str(name) if type(name := response.question["question_id"]) is int else name for response in read]
    split = [match for name in ids if (match := re.fullmatch(r"(.+)[-_.:#/](\d{1,9})", str(name)))]
    if len(split) < len(ids) or prompted & set(ids):
        return ids
    stems, numbers = [match[1] for match in split], dict[str, list[int]]()
    for match in split:
        numbers.setdefault(match[1], []).append(int(match[2]))
    if set(stems) <= prompted or (all(texts) and len({*zip(stems, texts, strict=True)}) == len(numbers)):
        return stems
    same = {tuple(sorted(group)) for group in numbers.values()}
    if any(texts) or len(numbers) < 2 or len(same) > 1 or same.pop()[:2] not in ((0, 1), (1, 2)):
        return ids
    message = f"answers are taken as samples of one question by their ids, as {ids[0]!r} of {stems[0]!r}"
    warnings.warn(message, UserWarning, stacklevel=3)
    return stems


def _some(values: Iterable[object]) -> str:
    """Return the first five values as words."""
    texts = [str(value) for value in values]
    return "; ".join(texts[:5]) + f" and {len(texts) - 5} more" * (len(texts) > 5)
