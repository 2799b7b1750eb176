"""Read questions from files and tables, and leave out unusable rows."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, ValidationError

from pro_lib.common.files import RunError, parse
from pro_lib.common.validation import Format, Name, is_damaged, sentence
from pro_lib.questions.csv_files import BadRow, check_names
from pro_lib.questions.file_readers import (
    NUMBER_AS_TEXT,
    Identity,
    Source,
    TextList,
    rows_of,
    source_path,
    unzipped,
)
from pro_lib.questions.question_formats import (
    COLUMN_NAMES,
    FORMATS,
    ID_NAMES,
    KNOWN_NAMES,
    QUESTION_NAMES,
    QuestionFormat,
    plain_name,
)
from pro_lib.questions.references import references_of

_OneText = Annotated[TextList, Field(max_length=1)]
# The number of rows that a message about rejected rows shows.
_N_SHOWN = 5
# If this share of the references contains a semicolon, a message names `separator=`.
_MANY = 0.1
# The format of a file whose columns the user names.
_NAMED = QuestionFormat("", ("references",))


class _Columns(Format, extra="forbid"):
    """The names of a file's columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: TextList | None = None
    split: _OneText | None = None
    choices: TextList | None = None
    separator: _OneText | None = None


class _Question(Format):
    """A question, read from the columns of a row."""

    question_id: Identity
    question: Name
    split: Annotated[Name, NUMBER_AS_TEXT]


@dataclass(frozen=True)
class QuestionRows:
    """The questions of a source.

    Attributes:
        table: one row per question: question_id, question, references, split, and other columns.
        columns: the columns of the source that each of these was read from.
    """

    table: pd.DataFrame
    columns: dict[str, list[str]]


def read_questions(
    source: Source,
    columns: Mapping,
    *,
    row: Callable[[dict], Mapping | None] | None = None,
    separator: str | None = None,
    strict: bool = False,
) -> QuestionRows:
    """Return the questions of a file or in memory.

    Each question has an id that no other has, a text and a reference. A row without a text or a
    reference is left out, and a warning counts these rows and says why.

    Args:
        source: a file, or rows in memory.
        columns: the names of the source's columns, as in `pro_lib.load_questions`.
        row: a function from a row to a question, as in `pro_lib.load_questions`.
        separator: the text between several references in one text.
        strict: whether a row that cannot be used is an error.

    Raises:
        RunError: a column is missing, or no row can be used; names file and place.

    Example:
        >>> rows = [{"query": "Who wrote Emma?", "answer": "Jane Austen"}]
        >>> read_questions(rows, {}).columns
        {'question': ['query'], 'references': ['answer']}
    """
    chosen_names = parse(_Columns, columns, "columns=").model_dump(exclude_none=True)
    separator = chosen_names.pop("separator", [separator])[0]
    file = source_path(source, "questions")
    rows = list(_flattened(rows_of(source, _header(chosen_names, row))))
    if row is not None:
        rows = [(where, _question_of(row, values)) for where, values in rows]
    if not rows:
        raise RunError(f"{file} holds no questions")
    objects = [values for _, values in rows if not isinstance(values, BadRow)]
    names = list(dict.fromkeys(name for values in objects for name in values))
    check_names(names, file)
    used, file_format = _used_columns(names, chosen_names, file) if objects else ({}, _NAMED)
    choices = used.pop("choices", [])
    separator = separator or file_format.separator
    questions: list[dict[str, Any]] = []
    kept_rows: list[Mapping] = []
    places: dict[str, str] = {}
    reasons: list[tuple[str, str]] = []
    for number, (where, values) in enumerate(rows):
        try:
            question = _question(values, used, f"{unzipped(file).stem}-{number}")
            question["references"] = references_of(
                values,
                used["references"],
                choices=choices,
                first=file_format.first,
                separator=separator,
            )
            name = question["question_id"]
            if places.setdefault(name, where) != where:
                raise ValueError(f"question_id {name!r} was already used ({places[name]})")
        except ValueError as error:
            words = sentence(error) if isinstance(error, ValidationError) else str(error)
            reasons.append((where, words))
        else:
            questions.append(question)
            kept_rows.append(values)
    if choices and not file_format.first:
        _check_indexes(objects, used["references"][0], reasons, file)
    _warn_of_columns(names, used.get("references", []), choices, file_format, file)
    if not separator:
        _warn_of_semicolons(kept_rows, used.get("references", []), file)
    _report(reasons, len(rows), file, strict=strict)
    return QuestionRows(_table(questions, kept_rows, names, used), used)


def _header(chosen_names: Mapping[str, list[str]], row: object) -> set[str] | None:
    """Return the plain names that a header may have; None if columns are named by number.

    The set is empty if any header will do.
    """
    names = list(chain.from_iterable(chosen_names.values()))
    if names and all(name.isdecimal() for name in names):
        return None
    return set() if row is not None else {*KNOWN_NAMES, *map(plain_name, names)}


def _question_of(row: Callable[[dict], Mapping | None], values: Any) -> dict | BadRow:
    """Return the question that a user's function makes of a row, or why there is none."""
    if isinstance(values, BadRow):
        return values
    try:
        question = row(dict(values))
    except Exception as error:  # a function of the user
        return BadRow(f"row= raised {type(error).__name__}: {error}")
    if isinstance(question, Mapping):
        return dict(question)
    words = "returned None" if question is None else "must return a dict"
    return BadRow(f"row= {words}")


def _question(row: Any, used: Mapping[str, list[str]], default_id: str) -> dict[str, Any]:
    """Return the question of a row without its references, or raise `ValueError`."""
    if isinstance(row, BadRow):
        raise ValueError(row.reason)
    values: dict[str, Any] = {"question_id": default_id, "split": "test"}
    for field in ("question_id", "question", "split"):
        if field in used:
            values[field] = row.get(used[field][0])
    question = _Question.model_validate(values)
    if is_damaged(json.dumps(row, default=str, ensure_ascii=False, skipkeys=True)):
        raise ValueError("a text has an unpaired surrogate, which is not valid Unicode")
    return question.model_dump()


def _table(
    questions: list[dict], rows: Sequence[Mapping], names: Sequence[str], used: Mapping
) -> pd.DataFrame:
    """Return the questions, with the columns of the source that are not read."""
    columns = ["question_id", "question", "references", "split"]
    read_names = {*columns}.union(*used.values())
    # Rows with a damaged name are left out, so their columns have no values.
    other_names = [name for name in names if name not in read_names and not is_damaged(name)]
    values = {name: [row.get(name) for row in rows] for name in other_names}
    others = pd.DataFrame(values, range(len(rows)), dtype=object)
    for name in other_names:
        # Whole numbers among which some are missing would become floats.
        if others[name].notna().all():
            others[name] = others[name].infer_objects()
    table = pd.DataFrame(questions, columns=columns, dtype=object)
    return table.infer_objects().join(others)


# --- Messages ---


def _check_indexes(
    rows: Sequence[Mapping], name: str, reasons: Sequence[tuple[str, str]], file: Path
) -> None:
    """Raise `RunError` if the indexes of right choices are counted from 1, but 0 is usual."""
    indexes = {row[name] for row in rows if type(row.get(name)) is int and row[name] >= 0}
    is_beyond = any("counted from 0" in reason for _, reason in reasons)
    if indexes and 0 not in indexes and is_beyond:
        raise RunError(
            f"{file}: column {name!r} counts the choices from 1, not from 0; use "
            "load_questions(path=…, row=function), where the function returns the right text"
        )


def _warn_of_semicolons(rows: Sequence[Mapping], columns: Sequence[str], file: Path) -> None:
    """Warn if many references contain a semicolon, which does not separate them."""
    cells = [row.get(name) for row in rows for name in columns]
    texts = [cell for cell in cells if isinstance(cell, str) and cell[:1] not in ("[", "{")]
    n_with = sum(";" in text for text in texts)
    if n_with and n_with >= _MANY * len(texts):
        remedy = "if ';' separates several, give separator=';' (--separator ';')"
        words = f"{n_with} of {len(texts)} references contain ';' and are one reference each"
        warnings.warn(f"{file}: {words}; {remedy}", UserWarning, stacklevel=3)


def _warn_of_columns(
    names: Sequence[str],
    used: Sequence[str],
    choices: Sequence[str],
    file_format: QuestionFormat,
    file: Path,
) -> None:
    """Warn if columns have choices, and of other columns that may hold references."""
    shown = " and ".join(map(repr, used))
    usual_names = {each.references[0] for each in FORMATS if not each.choices}
    others = [repr(name) for name in names if name not in used and plain_name(name) in usual_names]
    message = ""
    if choices:
        message = f", which names the choices in column {', '.join(map(repr, choices))}"
    elif others and file_format is not _NAMED and used != ["references"]:
        message = f", not {', '.join(others)}; see columns="
    if message:
        warnings.warn(f"{file}: references from column {shown}{message}", stacklevel=3)


def _report(reasons: Sequence[tuple[str, str]], n_rows: int, file: Path, *, strict: bool) -> None:
    """Warn of the rows that are left out, or raise `RunError`."""
    if not reasons:
        return
    parts = [f"{where.removeprefix(f'{file}, ')}: {words}" for where, words in reasons[:_N_SHOWN]]
    shown = "; ".join(parts)
    if len(reasons) > _N_SHOWN:
        shown += f" and {len(reasons) - _N_SHOWN} more"
    message = f"{len(reasons):,} of {n_rows:,} rows cannot be used: {shown}"
    if len(reasons) == n_rows:
        raise RunError(f"{file} holds no questions with answers; {message}")
    if strict:
        raise RunError(f"{file}: {message} (strict)")
    warnings.warn(f"{file}: {message}; they are left out", UserWarning, stacklevel=3)


# --- Columns ---


def _used_columns(
    names: Sequence[str], chosen_names: Mapping[str, list[str]], file: Path
) -> tuple[dict[str, list[str]], QuestionFormat]:
    """Return the columns that are read, by field, and the format that declares them.

    They are the columns that `columns=` names, or else declared ones.

    Raises:
        RunError: there is no column for the question or the references, or two may be meant.
    """
    for name in chain.from_iterable(chosen_names.values()):
        if not _existing([name], names, file):
            raise _missing_column(name, names, file)
    plain_names = {"", *map(plain_name, names)}
    file_format = _NAMED
    for each in [] if "references" in chosen_names else FORMATS:
        if plain_names >= {each.references[0], *each.choices[:1], each.question}:
            file_format = each
            break
    used: dict[str, list[str]] = {}
    for field, aliases in {
        "question_id": ID_NAMES,
        "question": (*filter(None, [file_format.question]), *QUESTION_NAMES),
        "references": file_format.references,
        "split": ("split",),
        "choices": file_format.choices,
    }.items():
        columns = _existing(chosen_names.get(field, aliases), names, file)
        is_one = field in ("question_id", "question", "split")
        if columns:
            used[field] = columns[:1] if is_one else columns
        elif field in ("question", "references"):
            raise _missing_column(field, names, file)
    return used, file_format


def _existing(aliases: Sequence[str], names: Sequence[str], file: Path) -> list[str]:
    """Return the columns with these names. A column with exactly this spelling comes first."""
    columns = []
    for name in aliases:
        alike = [name] if name in names else []
        alike = alike or [other for other in names if plain_name(other) == plain_name(name)]
        if len(alike) > 1:
            both = " and ".join(map(repr, alike[:2]))
            remedy = "choose one with columns= (--columns)"
            raise RunError(f"{file} has two columns for the {name}, {both}; {remedy}")
        columns += alike
    return columns


def _missing_column(name: str, names: Sequence[str], file: Path) -> RunError:
    """Return the error for a column that the file does not have."""
    field = name if name in COLUMN_NAMES else "question"
    remedy = (
        f"name the column with --columns {field}=NAME (in Python, the dict columns), or make "
        "questions of the rows with load_questions(path=…, row=function)"
    )
    existing = ", ".join(names[:20])
    return RunError(f"{file} has no column {name!r}, only {existing}; {remedy}")


def references_beside(row: Mapping[str, object]) -> list[str] | None:
    """Return the right answers in one row with the columns of a known format, if it has any."""
    names = [name for name in row if isinstance(name, str)]
    try:
        used, file_format = _used_columns(
            [*dict.fromkeys([*names, *QUESTION_NAMES[:1]])], {}, Path()
        )
        return references_of(
            row,
            used["references"],
            choices=used.get("choices", []),
            first=file_format.first,
            separator=file_format.separator,
        )
    except ValueError:
        return None


# --- Rows within rows ---


def _flattened(rows: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the rows and the rows nested in them, as in the files of SQuAD, TriviaQA and ARC."""
    for where, row in rows:
        fields: dict = {} if isinstance(row, BadRow) else row
        question = fields.get("question")
        is_whole_file = len(rows) == 1 and len(fields) > 1
        paragraphs = fields.get("paragraphs")
        if paragraphs and isinstance(paragraphs, list) and "question" not in fields:
            yield from _squad_rows(where, paragraphs)
        elif isinstance(fields.get("row"), dict) and "row_idx" in fields:
            yield where, fields["row"]  # the form of the viewer of the Hugging Face hub
        elif isinstance(question, dict) and isinstance(question.get("stem"), str):
            yield where, {**question, **fields, "question": question["stem"]}
        elif is_whole_file and all(isinstance(value, dict) for value in fields.values()):
            yield from _rows_of_columns(where, fields)
        else:
            yield where, row


def _rows_of_columns(where: str, whole: dict[str, dict]) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a table by columns, as pandas writes it."""
    columns = list(whole.values())
    keys = list(columns[0])
    if keys and all(list(column) == keys and key.isdigit() for column in columns for key in keys):
        for n, key in enumerate(keys, start=1):
            yield f"{where}, entry {n}", {name: column[key] for name, column in whole.items()}
        return
    if set(map(plain_name, whole)).isdisjoint(QUESTION_NAMES):
        first = next(iter(whole))
        raise RunError(
            f"{where} is one object with {len(whole):,} objects by name, such as {first!r}, not a "
            "list of rows; write a list of these objects, or pass them as load_questions(path=rows)"
        )
    yield where, whole


def _squad_rows(where: str, paragraphs: list) -> Iterator[tuple[str, Any]]:
    """Yield the questions of an article in SQuAD's own file."""
    n_questions = 0
    for paragraph in paragraphs:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        for question in questions or [BadRow("a paragraph has no questions (qas)")]:
            n_questions += 1
            is_row = isinstance(question, (dict, BadRow))
            row = question if is_row else BadRow("a question is not an object")
            yield f"{where}, question {n_questions}", row
