"""The fields of structured answers: each becomes a question with a part of the answer."""

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pandas as pd

from pro_lib.common import reasons
from pro_lib.common.files import RunError
from pro_lib.common.nested import as_items
from pro_lib.importing.parsed_answers import ParsedAnswer, Problem
from pro_lib.importing.token_spellings import encoded, possible_spellings
from pro_lib.questions.question_formats import ID_NAMES, QUESTION_NAMES, plain_name
from pro_lib.questions.question_sets import QuestionSet, load_questions
from pro_lib.questions.references import is_missing
from pro_lib.runs.run import Run

# The beginning of an object, which may be in a code fence.
_START = re.compile(r"\A\s*(?=\{)|```\w*\s*(?=\{)")
_INDEX = re.compile(r"\[\d+\]")
_DECODER = json.JSONDecoder()
_ANSWER_COLUMNS = ("question_id", "rank", "text", "token_log_probs", "log_prob")
_COLUMN_NAMES = {
    "question_id": ID_NAMES,
    "question": QUESTION_NAMES,
    "split": ("split",),
    "references": ("references",),
}


class Scalar(NamedTuple):
    """A text, a number, a boolean or null in the text of an object.

    Attributes:
        value: the text, or the other values as they are written.
        start, end: its place, without the opening quote of a text and with the closing one.
    """

    value: str
    start: int
    end: int


def scalars_in(text: str) -> dict[str, Scalar]:
    """Return the scalars of a JSON object by their paths.

    The object may be in a code fence. If a key is repeated, the last value counts.

    Raises:
        ValueError: the text is not a JSON object, or more text follows it.

    Example:
        >>> list(scalars_in('{"total": 7, "items": [{"price": 3}, {"price": 4}]}'))
        ['total', 'items[0].price', 'items[1].price']
    """
    start = _START.search(text)
    if start is None:
        raise ValueError("it does not begin with {")
    value, end = _located(text, start.end())
    rest = text[end:].strip()
    if rest and not rest.startswith("```"):
        raise ValueError(f"more text follows it: {rest[:20]!r}")
    return dict(_with_paths(value, ""))


def _located(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a place, whose scalars have their places, and its end."""
    if text.startswith("{", start):
        return JSONObject((text, start + 1), True, _located, None, None)
    if text.startswith("[", start):
        return JSONArray((text, start + 1), _located)
    value, end = _DECODER.raw_decode(text, start)
    if isinstance(value, str):
        return Scalar(value, start + 1, end), end
    return Scalar(text[start:end], start, end), end


def _with_paths(value: Any, path: str) -> Iterator[tuple[str, Scalar]]:
    """Yield the scalars within a value with their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _with_paths(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _with_paths(inner, f"{path}[{number}]")
    else:
        yield path, value


# --- Answers ---


def with_fields(answer: ParsedAnswer, values: Mapping[str, Any]) -> dict[str, Any] | Problem:
    """Return the values of an answer and those of its fields, or why it has none.

    A field has its text and the log-probabilities of the tokens that overlap its value.

    Args:
        answer: the answer with all of its tokens.
        values: the values of the answer by column of a run.
    """
    text = (values["text"] or "").strip()
    try:
        scalars = scalars_in(text)
    except (ValueError, RecursionError) as error:
        if not values["finished"]:
            return Problem(reasons.CUT)
        words = "that are not JSON objects"
        return Problem(reasons.UNREADABLE, f"{error}", is_detail=True, words=words)
    ends = _token_ends(answer, text)
    fields: dict[str, dict[str, Any]] = {}
    for path, scalar in scalars.items():
        fields[path] = {"text": scalar.value, "token_log_probs": None}
        if ends is not None:
            first = bisect_right(ends, len(encoded(text[: scalar.start])))
            last = bisect_left(ends, len(encoded(text[: scalar.end])))
            log_probs = answer.token_log_probs[first : last + 1]
            fields[path] |= {"token_log_probs": log_probs, "log_prob": min(sum(log_probs), 0.0)}
    return {**values, "fields": fields}


def _token_ends(answer: ParsedAnswer, text: str) -> list[int] | None:
    """Return where in the bytes of a text each token ends, or None if this is unknown."""
    if not answer.token_texts or not answer.token_log_probs:
        return None
    for spelling in possible_spellings(answer):
        position = spelling.joined.rfind(encoded(text))
        if position >= 0:
            return [end - position for end in spelling.ends]
    return None


def field_run(run: Run) -> Run:
    """Return the run whose questions are the fields of the answers and of the references.

    The question `inv-7` has the fields `inv-7/total` and so on. They have the text of the question,
    so that they form a cluster. The column `field` has the path without indices. A question without
    any field stays, with the field "".

    Args:
        run: a run whose answers have a column `fields` and whose references are JSON objects.

    Raises:
        RunError: a reference is not a JSON object.
    """
    answers = defaultdict(list)
    for answer in run.answers.itertuples():
        answers[answer.question_id].append(answer)
    question_rows = []
    answer_rows = []
    new_ids = {}
    for question in run.questions.to_dict("records"):
        question_id = question["question_id"]
        accepted = _accepted_values(question)
        paths = dict.fromkeys(path for answer in answers[question_id] for path in answer.fields)
        names = {path: f"{question_id}/{path}" for path in paths | accepted} or {"": question_id}
        new_ids[question_id] = list(names.values())
        for path, name in names.items():
            field = {
                "question_id": name,
                "question": question["question"] or question_id,
                "field": _INDEX.sub("[]", path),
                "references": accepted.get(path),
            }
            question_rows.append(question | field)
            answer_rows += [
                {"question_id": name, "rank": answer.rank, **answer.fields[path]}
                for answer in answers[question_id]
                if path in answer.fields
            ]
    table = pd.DataFrame(answer_rows, columns=_ANSWER_COLUMNS).astype({"log_prob": float})
    table = table.assign(token_ids=None, end_log_prob=float("nan"), finished=True)
    reason_ids = [new_ids.get(name, name) for name in run.left_out["question_id"]]
    left_out = run.left_out.assign(question_id=reason_ids).explode("question_id")
    return Run(table, pd.DataFrame(question_rows), run.info, left_out)


# --- Right values ---


def _accepted_values(question: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the right values of the fields of a question by their paths."""
    accepted: dict[str, list[str]] = {}
    for reference in as_items(question["references"]):
        try:
            scalars = scalars_in(reference)
        except ValueError as error:
            raise RunError(
                f"the reference {reference!r:.80} of question {question['question_id']!r} is "
                f"not a JSON object: {error}"
            ) from error
        for path, scalar in scalars.items():
            accepted.setdefault(path, []).append(scalar.value)
    return accepted


def load_right_values(
    *, columns: Mapping[str, str | Sequence[str]] | None, separator: str | None, **options: Any
) -> QuestionSet:
    """Load questions whose references are JSON objects with the right values of their fields.

    The column `references` has an object or several. Without it, each column that does not have the
    usual name of an id, a question or a split is a field, whose path is its name. An empty cell
    and null mean that the right value is unknown.

    Args:
        columns: other names of the columns, as in `load_questions`.
        separator: the text between several right values in a cell.
        **options: the other parameters of `load_questions`.
    """
    own_names = {name: as_items(own) for name, own in (columns or {}).items()}
    names = {
        plain_name(each): name
        for name, several in (_COLUMN_NAMES | own_names).items()
        for each in several
    }
    row = partial(_right_values, names=names, separator=separator)
    questions = load_questions(row=row, **options)
    # An id that stands for a missing text would be searched in the prompts.
    texts = questions.table["question"]
    questions.table["question"] = texts.mask(texts == questions.table["question_id"], "")
    return questions


def _right_values(
    row: Mapping[str, Any], *, names: Mapping[str, str], separator: str | None
) -> dict[str, Any]:
    """Return a row as a question whose references are JSON objects.

    Args:
        row: the row.
        names: what the columns mean that are not fields.
        separator: the text between several right values in a cell.
    """
    question: dict[str, Any] = {}
    objects: list[Any] = []
    for column, cell in row.items():
        name = names.get(plain_name(column))
        if name is not None:
            question[name] = cell
            continue
        cells = cell.split(separator) if separator and isinstance(cell, str) else [cell]
        objects += [{column: each} for each in cells if each != "" and not is_missing(each)]
    references = question.get("references")
    if references is not None:
        objects = as_items(json.loads(references) if isinstance(references, str) else references)
    question["references"] = [json.dumps(each, ensure_ascii=False) for each in objects]
    return {"question": question.get("question_id"), **question}
