"""Read questions from files and tables: find the columns, and leave out unusable rows."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, Field, ValidationError

from pro_lib.common.files import RunError, parse
from pro_lib.common.validation import Format, Name, sentence
from pro_lib.questions.cell_values import is_missing, plain_name
from pro_lib.questions.choices import choices_of
from pro_lib.questions.file_readers import (
    Identity,
    Source,
    TextList,
    object_or_bad_row,
    rows_of,
    source_path,
    unzipped,
    warn_of_notes,
)
from pro_lib.questions.json_values import LIST_NAMES
from pro_lib.questions.references import read_references
from pro_lib.questions.tables import BadRow, check_names, is_damaged

_OneText = Annotated[TextList, Field(max_length=1)]
# Usual names of the columns, in order of preference. The columns of a group are read together.
QUESTION_COLUMN_ALIASES = {
    "question_id": [["question_id"], ["id"], ["qid"], ["_id"], ["q_id"]],
    "question": [
        ["question"],
        ["query"],
        ["prompt"],
        ["input"],
        ["problem"],
        ["question_text"],
        ["question_stem"],
        ["utterance"],
    ],
    "references": [
        ["references"],
        ["answer", "aliases"],
        ["answers"],
        ["best_answer", "correct_answers"],
        ["correct_answer"],
        ["reference"],
        ["target"],
        ["targets"],
        ["gold"],
        ["expected"],
        ["possible_answers"],
        ["golden_answers"],
        ["gold_answers"],
        ["gold_answer"],
        ["ground_truths"],
        ["ground_truth"],
        ["reference_answer"],
        ["expected_answer"],
        ["ideal"],
        ["answers_spans"],
        ["mc1_targets"],
        ["target_value"],
    ],
    "split": [["split"]],
}
COLUMN_NAMES = tuple(QUESTION_COLUMN_ALIASES)
# Columns that name the right choice. They are used only if the file has choices.
_CHOICE_ALIASES = (
    "answer_key",
    "correct",
    "correct_choice",
    "correct_option",
    "correct_index",
    "label",
    "cop",
    "answer_index",
    "answer_idx",
)
# The number of rows that a message about rejected rows shows.
_N_SHOWN = 5


class _Columns(Format, extra="forbid"):
    """The names of a file's columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: TextList | None = None
    split: _OneText | None = None


def _id_text(value: object) -> object:
    """Return a whole number as an id.

    Pandas makes floats of a column with gaps.
    """
    is_whole = isinstance(value, float) and not is_missing(value) and value.is_integer()
    return str(int(value)) if is_whole else value  # type: ignore[call-overload]


class _Question(Format):
    """A question, read from the columns of a row."""

    question_id: Annotated[Identity, BeforeValidator(_id_text)]
    question: Name
    split: Name


@dataclass(frozen=True)
class QuestionRows:
    """The questions of a source.

    Attributes:
        table: one row per question: question_id, question, references, split, and other columns.
        columns: the columns of the source that each of these was read from.
        left_out: the texts of the questions that are left out, by their ids.
    """

    table: pd.DataFrame
    columns: dict[str, list[str]]
    left_out: dict[str, str]


def read_questions(
    source: Source, columns: Mapping, *, strict: bool = False
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Return the questions of a source, and the columns of the source that were read.

    The arguments and errors are those of `read_question_rows`.

    Example:
        >>> rows = [{"query": "Who wrote Emma?", "answer": "Jane Austen"}]
        >>> table, columns = read_questions(rows, {})
        >>> columns
        {'question': ['query'], 'references': ['answer']}
    """
    rows = read_question_rows(source, columns, strict=strict)
    return rows.table, rows.columns


def read_question_rows(source: Source, columns: Mapping, *, strict: bool = False) -> QuestionRows:
    """Return the questions of a file or in memory.

    Each question has an id that no other has, a text and a reference. A row without a text or a
    reference is left out, and a warning counts these rows and says why.

    Args:
        source: a file, or rows in memory.
        columns: the names of the source's columns, as in `pro_lib.load_questions`.
        strict: whether a row that cannot be used is an error.

    Returns:
        The questions. The columns of `QUESTION_COLUMN_ALIASES` come first in their table.

    Raises:
        RunError: a column is missing, an id is used twice, or no row can be used; names file and
            place.
    """
    chosen_names = parse(_Columns, columns, "columns=").model_dump(exclude_none=True)
    file = source_path(source, "questions")
    notes: list[str] = []
    rows, _ = rows_of(source, notes)
    rows = _flattened(rows)
    if not rows:
        raise RunError(f"{file} holds no questions")
    objects = [row for _, row in rows if not isinstance(row, BadRow)]
    names = list(dict.fromkeys(name for row in objects for name in row))
    check_names(names, file)
    used_columns = _used_columns(names, objects, chosen_names, file) if objects else {}
    references = iter(_references(file, used_columns, names, objects, notes))
    notes[:0] = _name_notes(used_columns, chosen_names, notes)
    collector = _Collector(file, used_columns)
    for number, (where, row) in enumerate(rows):
        if isinstance(row, BadRow):
            collector.add_bad_row(where, row)
        else:
            collector.add(number, where, row, next(references))
    warn_of_notes(source if isinstance(source, (str, Path)) else file, notes)
    collector.report(len(rows), strict=strict)
    return QuestionRows(collector.table(names), used_columns, collector.left_out)


def _references(
    file: Path,
    used_columns: Mapping[str, list[str]],
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    notes: list[str],
) -> "list[list[str] | BadRow]":
    """Return the references of each row.

    An error names the file.
    """
    if not rows:
        return []
    try:
        return read_references(used_columns["references"], names, rows, notes)
    except RunError as error:
        raise RunError(f"{file}: {error}") from None


def references_beside(row: Mapping[str, object]) -> list[str] | None:
    """Return the right answers in one row, from columns with usual names, if there are any.

    A letter or an index that names a choice is not used, because one row does not show which choice
    it is.
    """
    names = {plain_name(name): name for name in row if isinstance(name, str)}
    columns: list[str] = []
    for aliases in QUESTION_COLUMN_ALIASES["references"]:
        columns = [names[alias] for alias in aliases if alias in names]
        if columns:
            break
    if not columns:
        return None
    _, [choices] = choices_of(list(names.values()), [row])
    [references] = read_references(columns, [], [row], [])
    if isinstance(references, BadRow):
        return None
    if choices is not None and not set(references) <= set(choices.texts):
        return None
    return references


class _Collector:
    """Collects the questions of a file, and the rows that are left out.

    Attributes:
        file: the file, for messages.
        used_columns: the columns of the file that are read.
        left_out: the texts of questions that are left out, by their ids.
    """

    def __init__(self, file: Path, used_columns: Mapping[str, list[str]]) -> None:
        self.file = file
        self.used_columns = used_columns
        self.left_out: dict[str, str] = {}
        self._stem = unzipped(file).stem
        self._questions: list[dict[str, Any]] = []
        self._rows: list[Mapping] = []
        self._places: dict[str, str] = {}
        self._reasons: list[tuple[str, str]] = []

    def add_bad_row(self, where: str, row: BadRow) -> None:
        """Leave out a row that could not be read."""
        self._reasons.append((where, row.reason))

    def add(self, number: int, where: str, row: Mapping, references: "list[str] | BadRow") -> None:
        """Add a row, or leave it out, or raise `RunError` if its id was used before."""
        values: dict[str, Any] = {"question_id": f"{self._stem}-{number}", "split": "test"}
        for field in ("question_id", "question", "split"):
            if field in self.used_columns:
                values[field] = row.get(self.used_columns[field][0])
        try:
            question = _Question.model_validate(values)
        except ValidationError as error:
            self._leave_out(where, values, sentence(error))
            return
        name = question.question_id
        if name in self._places:
            raise RunError(f"{where}: question_id {name!r} was already used ({self._places[name]})")
        self._places[name] = where
        if isinstance(references, BadRow):
            self._leave_out(where, {**values, "question_id": name}, references.reason)
        elif any(map(_has_damage, row.values())):
            reason = "a text has an unpaired surrogate, which is not valid Unicode"
            self._leave_out(where, values, reason)
        else:
            self._questions.append({**question.model_dump(), "references": references})
            self._rows.append(row)

    def _leave_out(self, where: str, values: Mapping[str, Any], reason: str) -> None:
        """Leave out a row, and keep its id and its text."""
        self._reasons.append((where, reason))
        name = values["question_id"]
        text = values.get("question")
        if isinstance(name, (str, int)):
            self.left_out[str(name)] = text if isinstance(text, str) else ""

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
        read_names = {*COLUMN_NAMES}.union(*self.used_columns.values())
        other_names = [name for name in names if name not in read_names]
        other_values = []
        for row in self._rows:
            other_values.append([row.get(name) for name in other_names])
        others = pd.DataFrame(other_values, columns=other_names, dtype=object)
        for name in other_names:
            # Whole numbers among which some are missing would become floats.
            if others[name].notna().all():
                others[name] = others[name].infer_objects()
        questions = pd.DataFrame(self._questions, columns=list(COLUMN_NAMES), dtype=object)
        return questions.infer_objects().join(others)


def _has_damage(value: object) -> bool:
    """Return whether a text within a value has an unpaired surrogate."""
    if isinstance(value, str):
        return not value.isascii() and is_damaged(value)
    if isinstance(value, Mapping):
        return any(_has_damage(inner) for pair in value.items() for inner in pair)
    return isinstance(value, (list, tuple)) and any(map(_has_damage, value))


# --- Columns ---


def _used_columns(
    names: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    chosen_names: Mapping[str, list[str]],
    file: Path,
) -> dict[str, list[str]]:
    """Return the columns that each field of the questions is read from.

    They are the columns that `columns=` names, or those with usual names. Case, spaces and
    underscores do not matter in usual names.

    Args:
        names: the columns of the file.
        rows: the rows of the file.
        chosen_names: the names in `columns=`, by field.
        file: the file, for errors.

    Raises:
        RunError: there is no column for the question or the references, or two may be meant.
    """
    by_plain_name: dict[str, list[str]] = {}
    for name in names:
        by_plain_name.setdefault(plain_name(name), []).append(name)
    used_columns: dict[str, list[str]] = {}
    for field in COLUMN_NAMES:
        if field in chosen_names:
            used_columns[field] = [
                _chosen_column(name, names, by_plain_name, file) for name in chosen_names[field]
            ]
        else:
            columns = _usual_columns(field, by_plain_name, file)
            if columns:
                used_columns[field] = columns
    if "references" not in used_columns:
        columns = _choice_columns(names, by_plain_name, rows)
        if columns:
            used_columns["references"] = columns
    for field in ("question", "references"):
        if field not in used_columns:
            raise _missing_column(field, names, file)
    return used_columns


def _usual_columns(field: str, by_plain_name: Mapping[str, list[str]], file: Path) -> list[str]:
    """Return the columns of the first group of usual names that the file has."""
    for aliases in QUESTION_COLUMN_ALIASES[field]:
        present_aliases = [alias for alias in aliases if alias in by_plain_name]
        if present_aliases:
            return [_usual_column(alias, by_plain_name, file) for alias in present_aliases]
    return []


def _usual_column(alias: str, by_plain_name: Mapping[str, list[str]], file: Path) -> str:
    """Return the column with a usual name.

    A column with exactly this spelling comes first.
    """
    columns = by_plain_name[alias]
    if alias in columns:
        return alias
    if len(columns) > 1:
        both = " and ".join(map(repr, columns[:2]))
        remedy = "choose one with columns= (--columns)"
        raise RunError(f"{file} has two columns for the {alias}, {both}; {remedy}")
    return columns[0]


def _choice_columns(
    names: Sequence[str],
    by_plain_name: Mapping[str, list[str]],
    rows: Sequence[Mapping[str, object]],
) -> list[str]:
    """Return the column that names the right choice, if the file has choices."""
    aliases = [alias for alias in _CHOICE_ALIASES if alias in by_plain_name]
    if not aliases:
        return []
    columns, _ = choices_of(names, rows[:1])
    return by_plain_name[aliases[0]][:1] if columns else []


def _chosen_column(
    name: str, names: Sequence[str], by_plain_name: Mapping[str, list[str]], file: Path
) -> str:
    """Return the column that `columns=` names."""
    if name in names:
        return name
    alike = by_plain_name.get(plain_name(name), [])
    if len(alike) == 1:
        return alike[0]
    raise _missing_column(name, names, file)


def _missing_column(name: str, names: Sequence[str], file: Path) -> RunError:
    """Return the error for a column that the file does not have."""
    field = name if name in QUESTION_COLUMN_ALIASES else "question"
    example = f"{{'{field}': …}}"
    remedy = f"say which column is meant with columns={example} (--columns)"
    existing = ", ".join(map(str, names))
    return RunError(f"{file} has no column {name!r}, only {existing}; {remedy}")


def _name_notes(
    used_columns: Mapping[str, list[str]],
    chosen_names: Mapping[str, list[str]],
    other_notes: Sequence[str],
) -> list[str]:
    """Return notes about columns whose names differ from usual names in case or spaces.

    Columns that another note already names are left out.
    """
    notes = []
    for field, columns in used_columns.items():
        if field in chosen_names:
            continue
        usual_names = {alias for aliases in QUESTION_COLUMN_ALIASES[field] for alias in aliases}
        guessed_columns = [column for column in columns if column not in usual_names]
        note = f"{field} from column {' and '.join(map(repr, guessed_columns))}"
        if guessed_columns and not any(other.startswith(note) for other in other_notes):
            notes.append(note)
    return notes


# --- Rows within rows ---


def _flattened(rows: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the rows and the rows nested in them, as in the files of SQuAD, TriviaQA and ARC."""
    if len(rows) == 1 and isinstance(rows[0][1], dict):
        rows = _rows_of_object(*rows[0])
    flat_rows = []
    for where, row in rows:
        flat_rows += _rows_within(where, row)
    return flat_rows


def _rows_of_object(where: str, whole: dict) -> list[tuple[str, Any]]:
    """Return the rows in the only object of a file: a list, a table by columns, or one row."""
    values = {plain_name(name): value for name, value in whole.items()}
    lists = [values[name] for name in LIST_NAMES if isinstance(values.get(name), list)]
    if lists and all(isinstance(row, dict) for row in lists[0]):
        return [(f"{where}, entry {number}", row) for number, row in enumerate(lists[0], start=1)]
    return _rows_of_columns(where, whole)


def _rows_of_columns(where: str, whole: dict) -> list[tuple[str, Any]]:
    """Return the rows of a table that was written by columns.

    Another object is one row.
    """
    columns = list(whole.values())
    if len(columns) < 2 or not all(isinstance(column, dict) for column in columns):
        return [(where, whole)]
    keys = list(columns[0])
    have_same_keys = all(list(column) == keys for column in columns)
    if not keys or not have_same_keys or not all(key.isdigit() for key in keys):
        return [(where, whole)]
    rows = []
    for number, key in enumerate(keys, start=1):
        row = {name: column[key] for name, column in whole.items()}
        rows.append((f"{where}, entry {number}", row))
    return rows


def _rows_within(where: str, row: Any) -> list[tuple[str, Any]]:
    """Return a row, or the rows in it, in the usual form."""
    if isinstance(row, BadRow):
        return [(where, row)]
    if isinstance(row.get("paragraphs"), list):
        return _squad_rows(where, row)
    if isinstance(row.get("row"), dict) and "row_idx" in row:
        return [(where, row["row"])]  # the form of the viewer of the Hugging Face hub
    question = row.get("question")
    if isinstance(question, dict) and isinstance(question.get("stem"), str):
        other_values = {name: value for name, value in question.items() if name != "stem"}
        return [(where, {**other_values, **row, "question": question["stem"]})]
    return [(where, row)]


def _squad_rows(where: str, article: dict) -> list[tuple[str, Any]]:
    """Return the questions of an article in SQuAD's own file."""
    rows: list[tuple[str, Any]] = []
    for paragraph in article["paragraphs"]:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        if not isinstance(questions, list):
            continue
        for question in questions:
            place = f"{where}, question {len(rows) + 1}"
            rows.append((place, object_or_bad_row(question)))
    return rows
