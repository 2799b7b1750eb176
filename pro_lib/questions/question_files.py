"""Read questions from files and tables, and leave out unusable rows."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, Field, ValidationError

from pro_lib.common.files import RunError, parse
from pro_lib.common.validation import Format, Name, sentence
from pro_lib.questions.cell_values import is_missing, plain_name
from pro_lib.questions.file_readers import (
    Identity,
    Source,
    TextList,
    rows_of,
    source_path,
    unzipped,
    warn_of_notes,
)
from pro_lib.questions.json_values import LIST_NAMES
from pro_lib.questions.question_formats import (
    COLUMN_NAMES,
    FORMATS,
    ID_NAMES,
    KNOWN_NAMES,
    QUESTION_NAMES,
    QuestionFormat,
)
from pro_lib.questions.references import references_of
from pro_lib.questions.tables import BadRow, check_names, is_damaged

Rows = list[tuple[str, Any]]
_OneText = Annotated[TextList, Field(max_length=1)]
# The number of rows that a message about rejected rows shows.
_N_SHOWN = 5
# If this share of the references contains a semicolon, a message names `separator=`.
_MANY = 0.1


class _Columns(Format, extra="forbid"):
    """The names of a file's columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: TextList | None = None
    split: _OneText | None = None
    choices: TextList | None = None
    separator: _OneText | None = None


def _number_as_text(value: object) -> object:
    """Return a whole number as text. Pandas makes floats of a column with gaps."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or is_missing(value) or value % 1 != 0:  # type: ignore[operator]
        return value
    return str(int(value))  # type: ignore[call-overload]


_AsText = BeforeValidator(_number_as_text)


class _Question(Format):
    """A question, read from the columns of a row."""

    question_id: Annotated[Identity, _AsText]
    question: Name
    split: Annotated[Name, _AsText]


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
    notes: list[str] = []
    rows = _flattened(rows_of(source, notes, header=_header(chosen_names, row))[0])
    if row is not None:
        rows = [(where, _question_of(row, values)) for where, values in rows]
    if not rows:
        raise RunError(f"{file} holds no questions")
    objects = [values for _, values in rows if not isinstance(values, BadRow)]
    names = list(dict.fromkeys(name for values in objects for name in values))
    check_names(names, file)
    used = _UsedColumns({}, QuestionFormat("", ("",)))
    if objects:
        used = _used_columns(names, chosen_names, file)
        notes += used.notes(names)
    if separator is not None:
        used = replace(used, format=replace(used.format, separator=separator))
    collector = _Collector(file, used)
    for number, (where, values) in enumerate(rows):
        collector.add(number, where, values)
    collector.check_indexes(objects)
    notes += collector.notes()
    warn_of_notes(source if isinstance(source, (str, Path)) else file, notes)
    collector.report(len(rows), strict=strict)
    return QuestionRows(collector.table(names), used.columns)


def _header(chosen_names: Mapping[str, list[str]], row: object) -> set[str] | None:
    """Return the plain names that a header may have; None if columns are named by number.

    The set is empty if any header will do.
    """
    names = [name for columns in chosen_names.values() for name in columns]
    if names and all(name.isdecimal() for name in names):
        return None
    return set() if row is not None else {*KNOWN_NAMES, *map(plain_name, names)}


def _question_of(row: Callable[[dict], Mapping | None], values: object) -> object:
    """Return the question that a user's function makes of a row, or why there is none."""
    if isinstance(values, BadRow):
        return values
    try:
        question = row(dict(values))  # type: ignore[call-overload]
    except Exception as error:  # a function of the user
        return BadRow(f"row= raised {type(error).__name__}: {error}")
    if question is None:
        return BadRow("row= returned None")
    if not isinstance(question, Mapping):
        return BadRow(f"row= must return a dict, not {type(question).__name__}")
    return dict(question)


class _Collector:
    """Collects the questions of a file, and the rows that are left out."""

    def __init__(self, file: Path, used: "_UsedColumns") -> None:
        self.file = file
        self.used = used
        self._questions: list[dict[str, Any]] = []
        self._rows: list[Mapping] = []
        self._places: dict[str, str] = {}
        self._reasons: list[tuple[str, str]] = []

    def add(self, number: int, where: str, row: "Mapping | BadRow") -> None:
        """Add a row, or leave it out."""
        question = row if isinstance(row, BadRow) else self._question(number, row)
        if isinstance(row, BadRow) or isinstance(question, BadRow):
            self._reasons.append((where, question.reason))  # type: ignore[union-attr]
            return
        name = question["question_id"]
        first_place = self._places.setdefault(name, where)
        if first_place != where:
            self._reasons.append((where, f"question_id {name!r} was already used ({first_place})"))
            return
        self._questions.append(question)
        self._rows.append(row)

    def _question(self, number: int, row: Mapping) -> "dict[str, Any] | BadRow":
        """Return the question of a row, or why there is none."""
        values: dict[str, Any] = {
            "question_id": f"{unzipped(self.file).stem}-{number}",
            "split": "test",
        }
        for field in ("question_id", "question", "split"):
            if field in self.used.columns:
                values[field] = row.get(self.used.columns[field][0])
        try:
            question = _Question.model_validate(values)
        except ValidationError as error:
            return BadRow(sentence(error))
        if any(map(_has_damage, row.values())):
            return BadRow("a text has an unpaired surrogate, which is not valid Unicode")
        references = self.used.references_in(row)
        if isinstance(references, BadRow):
            return references
        return {**question.model_dump(), "references": references}

    def check_indexes(self, rows: Sequence[Mapping]) -> None:
        """Raise `RunError` if the indexes of right choices are counted from 1, but 0 is usual."""
        if not self.used.choices or self.used.format.first:
            return
        name = self.used.columns["references"][0]
        indexes = {row[name] for row in rows if type(row.get(name)) is int and row[name] >= 0}
        is_beyond = any("counted from 0" in reason for _, reason in self._reasons)
        if indexes and 0 not in indexes and is_beyond:
            raise RunError(
                f"{self.file}: column {name!r} counts the choices from 1, not from 0; use "
                "load_questions(path=…, row=function), where the function returns the right text"
            )

    def notes(self) -> list[str]:
        """Return a note if many references contain a semicolon, which no longer separates them."""
        cells = [row.get(name) for row in self._rows for name in self.used.columns["references"]]
        texts = [cell for cell in cells if isinstance(cell, str) and cell[:1] not in ("[", "{")]
        n_with = sum(";" in text for text in texts)
        if self.used.format.separator or n_with < _MANY * max(len(texts), 1):
            return []
        return [
            f"{n_with} of {len(texts)} references contain ';' and are one reference each; if ';' "
            "separates several, give separator=';' (--separator ';')"
        ]

    def report(self, n_rows: int, *, strict: bool) -> None:
        """Warn of the rows that are left out.

        Raise `RunError` with `strict`, or if no row is left.
        """
        n_left_out = len(self._reasons)
        if n_left_out == 0:
            return
        reasons = []
        for where, reason in self._reasons[:_N_SHOWN]:
            reasons.append(f"{where.removeprefix(f'{self.file}, ')}: {reason}")
        shown = "; ".join(reasons)
        if n_left_out > _N_SHOWN:
            shown += f" and {n_left_out - _N_SHOWN} more"
        message = f"{n_left_out:,} of {n_rows:,} rows cannot be used: {shown}"
        if not self._questions:
            raise RunError(f"{self.file} holds no questions with answers; {message}")
        if strict:
            raise RunError(f"{self.file}: {message} (strict)")
        warnings.warn(f"{self.file}: {message}; they are left out", UserWarning, stacklevel=3)

    def table(self, names: Sequence[str]) -> pd.DataFrame:
        """Return the questions, with the columns of the source that are not read."""
        columns = list(_Question.model_fields)
        columns.insert(2, "references")
        read_names = {*columns}.union(*self.used.columns.values())
        # Rows with a damaged name are left out, so their columns have no values.
        other_names = [name for name in names if name not in read_names and not _has_damage(name)]
        values = {name: [row.get(name) for row in self._rows] for name in other_names}
        others = pd.DataFrame(values, range(len(self._rows)), dtype=object)
        for name in other_names:
            # Whole numbers among which some are missing would become floats.
            if others[name].notna().all():
                others[name] = others[name].infer_objects()
        questions = pd.DataFrame(self._questions, columns=columns, dtype=object)
        return questions.infer_objects().join(others)


def _has_damage(value: object) -> bool:
    """Return whether a text within a value has an unpaired surrogate."""
    if isinstance(value, str):
        return not value.isascii() and is_damaged(value)
    if isinstance(value, Mapping):
        return any(_has_damage(inner) for pair in value.items() for inner in pair)
    return isinstance(value, (list, tuple)) and any(map(_has_damage, value))


# --- Columns ---


@dataclass(frozen=True)
class _UsedColumns:
    """The columns of a file that are read, by field, and the format that says how."""

    columns: dict[str, list[str]]
    format: QuestionFormat
    choices: tuple[str, ...] = ()

    def references_in(self, row: Mapping) -> "list[str] | BadRow":
        """Return the references of a row."""
        return references_of(
            row,
            self.columns["references"],
            choices=self.choices,
            first=self.format.first,
            separator=self.format.separator,
        )

    def notes(self, names: Sequence[str]) -> list[str]:
        """Return notes about choices, and about other columns that may hold references."""
        used = self.columns["references"]
        shown = " and ".join(map(repr, used))
        if self.choices:
            columns = ", ".join(map(repr, self.choices))
            return [f"references from column {shown}, which names the choices in column {columns}"]
        read_names = {*map(plain_name, used)}
        others = [
            repr(name)
            for name in names
            for each in FORMATS
            if not each.choices and plain_name(name) == each.references[0]
        ]
        others = [name for name in others if plain_name(name.strip("'\"")) not in read_names]
        if not others or not self.format.datasets or used == ["references"]:
            return []
        return [f"references from column {shown}, not {', '.join(others)}; see columns="]


def _used_columns(
    names: Sequence[str], chosen_names: Mapping[str, list[str]], file: Path
) -> _UsedColumns:
    """Return the columns of a file that are read: those that `columns=` names, or declared ones.

    Raises:
        RunError: there is no column for the question or the references, or two may be meant.
    """
    by_plain_name: dict[str, list[str]] = {}
    for name in names:
        by_plain_name.setdefault(plain_name(name), []).append(name)

    def columns_of(wanted: Sequence[str]) -> list[str]:
        present = [name for name in wanted if name in by_plain_name]
        return [_column(name, by_plain_name[name], file) for name in present]

    used = _chosen_columns(names, chosen_names, by_plain_name, file)
    choices = tuple(used.pop("choices", ()))
    layout = next((each for each in FORMATS if each.fits(by_plain_name)), None)
    if "references" in used or layout is None:
        layout = QuestionFormat("", ("",))
    else:
        used["references"] = columns_of(layout.references)
        choices = choices or tuple(columns_of(layout.choices))
    usual = {
        "question_id": ID_NAMES,
        "question": (*filter(None, [layout.question]), *QUESTION_NAMES),
        "split": ("split",),
    }
    for field, aliases in usual.items():
        columns = columns_of(aliases)
        if columns:
            used.setdefault(field, columns[:1])
    for field in ("question", "references"):
        if field not in used:
            raise _missing_column(field, names, file)
    ordered = {field: used[field] for field in COLUMN_NAMES if field in used}
    return _UsedColumns(ordered, layout, choices)


def _chosen_columns(
    names: Sequence[str],
    chosen_names: Mapping[str, list[str]],
    by_plain_name: Mapping[str, list[str]],
    file: Path,
) -> dict[str, list[str]]:
    """Return the columns that `columns=` names, by field."""
    used: dict[str, list[str]] = {}
    for field, chosen in chosen_names.items():
        for name in chosen:
            alike = [name] if name in names else by_plain_name.get(plain_name(name), [])
            if len(alike) != 1:
                raise _missing_column(name, names, file)
            used.setdefault(field, []).append(alike[0])
    return used


def _column(alias: str, columns: Sequence[str], file: Path) -> str:
    """Return the column with a plain name. A column with exactly this spelling comes first."""
    if alias in columns:
        return alias
    if len(columns) > 1:
        both = " and ".join(map(repr, columns[:2]))
        remedy = "choose one with columns= (--columns)"
        raise RunError(f"{file} has two columns for the {alias}, {both}; {remedy}")
    return columns[0]


def _missing_column(name: str, names: Sequence[str], file: Path) -> RunError:
    """Return the error for a column that the file does not have."""
    field = name if name in COLUMN_NAMES else "question"
    remedy = (
        f"say which column is meant with columns={{'{field}': …}} (--columns {field}=…), or make "
        "questions of the rows with load_questions(path=…, row=function)"
    )
    counts = Counter(map(str, names))
    existing = ", ".join(list(counts)[:20])
    return RunError(f"{file} has no column {name!r}, only {existing}; {remedy}")


def references_beside(row: Mapping[str, object]) -> list[str] | None:
    """Return the right answers in one row with the columns of a known format, if it has any."""
    names = {plain_name(name): name for name in row if isinstance(name, str)}
    layout = next((each for each in FORMATS if each.fits({*names, each.question})), None)
    if layout is None:
        return None
    references = references_of(
        row,
        [names[name] for name in layout.references if name in names],
        choices=[names[name] for name in layout.choices if name in names],
        first=layout.first,
        separator=layout.separator,
    )
    return None if isinstance(references, BadRow) else references


# --- Rows within rows ---


def _flattened(rows: Rows) -> Rows:
    """Return the rows and the rows nested in them, as in the files of SQuAD, TriviaQA and ARC."""
    if len(rows) == 1 and isinstance(rows[0][1], dict):
        rows = _rows_of_object(*rows[0])
    return [inner for where, row in rows for inner in _rows_within(where, row)]


def _rows_of_object(where: str, whole: dict) -> Rows:
    """Return the rows in the only object of a file: a list, a table by columns, or one row."""
    values = {plain_name(name): value for name, value in whole.items()}
    lists = [values[name] for name in LIST_NAMES if isinstance(values.get(name), list)]
    if lists and all(isinstance(row, dict) for row in lists[0]):
        return [(f"{where}, entry {number}", row) for number, row in enumerate(lists[0], start=1)]
    columns = list(whole.values())
    if len(columns) < 2 or not all(isinstance(column, dict) for column in columns):
        return [(where, whole)]
    keys = list(columns[0])
    if keys and all(list(column) == keys and key.isdigit() for column in columns for key in keys):
        return [
            (f"{where}, entry {n}", {name: column[key] for name, column in whole.items()})
            for n, key in enumerate(keys, start=1)
        ]
    if values.keys().isdisjoint(QUESTION_NAMES):
        first = next(iter(whole))
        raise RunError(
            f"{where} is one object with {len(whole):,} objects by name, such as {first!r}, not a "
            "list of rows; write a list of these objects, or pass them as load_questions(path=rows)"
        )
    return [(where, whole)]


def _rows_within(where: str, row: Any) -> Rows:
    """Return a row, or the rows in it, in the usual form."""
    if isinstance(row, BadRow):
        return [(where, row)]
    paragraphs = row.get("paragraphs")
    if paragraphs and isinstance(paragraphs, list) and "question" not in row:
        return _squad_rows(where, paragraphs)
    if isinstance(row.get("row"), dict) and "row_idx" in row:
        return [(where, row["row"])]  # the form of the viewer of the Hugging Face hub
    question = row.get("question")
    if isinstance(question, dict) and isinstance(question.get("stem"), str):
        other_values = {name: value for name, value in question.items() if name != "stem"}
        return [(where, {**other_values, **row, "question": question["stem"]})]
    return [(where, row)]


def _squad_rows(where: str, paragraphs: list) -> Rows:
    """Return the questions of an article in SQuAD's own file."""
    rows: Rows = []
    for paragraph in paragraphs:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        for question in questions or [BadRow("a paragraph has no questions (qas)")]:
            is_row = isinstance(question, (dict, BadRow))
            place = f"{where}, question {len(rows) + 1}"
            rows.append((place, question if is_row else BadRow("a question is not an object")))
    return rows
