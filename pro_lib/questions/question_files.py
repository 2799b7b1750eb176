"""Read the questions of files and tables: find their columns, and leave out rows that cannot be used."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, Field, ValidationError

from pro_lib.common.files import RunError, parse
from pro_lib.common.validation import Format, Name, sentence
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
from pro_lib.questions.references import choices_of, is_missing, plain_name, read_references
from pro_lib.questions.tables import BadRow, check_names, is_damaged

_OneText = Annotated[TextList, Field(max_length=1)]
# Usual names of the columns, in order of preference. The columns of a group are read together.
QUESTION_COLUMN_ALIASES = {
    "question_id": [["question_id"], ["id"], ["qid"], ["_id"], ["q_id"]],
    "question": [
        ["question"], ["query"], ["prompt"], ["input"], ["problem"], ["question_text"], ["question_stem"],
        ["utterance"],
    ],
    "references": [
        ["references"], ["answer", "aliases"], ["answers"], ["best_answer", "correct_answers"], ["correct_answer"],
        ["reference"], ["target"], ["targets"], ["gold"], ["expected"], ["possible_answers"], ["golden_answers"],
        ["gold_answers"], ["gold_answer"], ["ground_truths"], ["ground_truth"], ["reference_answer"],
        ["expected_answer"], ["ideal"], ["answers_spans"], ["mc1_targets"], ["target_value"],
    ],
    "split": [["split"]],
}  # fmt: skip
COLUMN_NAMES = tuple(QUESTION_COLUMN_ALIASES)
# Columns that name the right choice. They are used only if the file has choices.
_CHOICE_ALIASES = (
    *("answer_key", "correct", "correct_choice", "correct_option", "correct_index", "label", "cop"),
    *("answer_index", "answer_idx"),
)
_FIRST = 5  # the rows that a message names, of those that are left out


class _Columns(Format, extra="forbid"):
    """The names of a file's columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: TextList | None = None
    split: _OneText | None = None


def _id_text(value: object) -> object:
    """Return a whole number as an id; pandas makes floats of a column with gaps."""
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
        table: a row per question: question_id, question, references, split, and other columns.
        columns: the source's columns that each of these was read from.
        left_out: the ids and texts of the questions that are left out.
    """

    table: pd.DataFrame
    columns: dict[str, list[str]]
    left_out: dict[str, str]


def read_questions(
    source: Source,
    columns: Mapping,
    *,
    strict: bool = False,
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Return the questions of a file or in memory, and the columns of the source that they were read from.

    The arguments and errors are those of `read_question_rows`.
    """
    rows = read_question_rows(source, columns, strict=strict)
    return rows.table, rows.columns


def read_question_rows(source: Source, columns: Mapping, *, strict: bool = False) -> QuestionRows:
    """Return the questions of a file or in memory.

    Each has an id of its own, a text and a reference. A row without a text or a reference is left
    out, and a warning counts these rows and says why. The columns of `QUESTION_COLUMN_ALIASES` come first.

    Args:
        source: a file, or rows in memory.
        columns: names for our columns, as in `pro_lib.load_questions`.
        strict: whether a row that cannot be used is an error.

    Raises:
        RunError: if a column is missing, an id is used twice, or no row can be used; names file and
            place.
    """
    names = parse(_Columns, columns, "columns=").model_dump(exclude_none=True)
    file = source_path(source, "questions")
    notes: list[str] = []
    rows, _ = rows_of(source, notes)
    rows = _flattened(rows)
    if not rows:
        raise RunError(f"{file} holds no questions")
    objects = [row for _, row in rows if not isinstance(row, BadRow)]
    theirs = list(dict.fromkeys(name for row in objects for name in row))
    check_names(theirs, file)
    used = _used_columns(theirs, objects, names, file) if objects else {}
    references = iter(_references(file, used, theirs, objects, notes))
    notes[:0] = _name_notes(used, names, notes)
    found = _Found(file, used)
    for number, (where, row) in enumerate(rows):
        found.add(number, where, row, row if isinstance(row, BadRow) else next(references))
    warn_of_notes(source if isinstance(source, (str, Path)) else file, notes)
    found.report(len(rows), strict=strict)
    return QuestionRows(found.table(theirs), used, found.left_out)


def _references(
    file: Path,
    used: Mapping[str, list[str]],
    theirs: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    notes: list[str],
) -> "list[list[str] | BadRow]":
    if not rows:
        return []
    try:
        return read_references(used["references"], theirs, rows, notes)
    except RunError as error:
        raise RunError(f"{file}: {error}") from None


def references_beside(row: Mapping[str, object]) -> list[str] | None:
    """Return the right answers in one row, from columns with usual names; None if there are none.

    A letter or an index that names a choice is not resolved, because one row does not tell which.
    """
    plain = {plain_name(name): name for name in row if isinstance(name, str)}
    groups = QUESTION_COLUMN_ALIASES["references"]
    there = [[plain[alias] for alias in group if alias in plain] for group in groups]
    used = next(filter(None, there), [])
    if not used:
        return None
    _, [choices] = choices_of(list(plain.values()), [row])
    [references] = read_references(used, [], [row], [])
    if isinstance(references, BadRow):
        return None
    return references if choices is None or set(references) <= set(choices.texts) else None


class _Found:
    """The questions of a file so far, and the rows that are left out."""

    def __init__(self, file: Path, used: Mapping[str, list[str]]) -> None:
        self.file = file
        self.stem = unzipped(file).stem
        self.used = used
        self.questions: list[dict[str, Any]] = []
        self.others: list[Mapping] = []
        self.left_out: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._reasons: list[tuple[str, str]] = []

    def add(self, number: int, where: str, row: Any, references: "list[str] | BadRow") -> None:
        """Add a row, or keep the reason why it is left out; `RunError` if its id was used before."""
        if isinstance(row, BadRow):
            self._reasons.append((where, row.reason))
            return
        values = {"question_id": f"{self.stem}-{number}", "split": "test"}
        for ours in ("question_id", "question", "split"):
            if ours in self.used:
                values[ours] = row.get(self.used[ours][0])
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
            self._leave_out(
                where, values, "a text has an unpaired surrogate, which is not valid Unicode"
            )
        else:
            self.questions.append({**question.model_dump(), "references": references})
            self.others.append(row)

    def _leave_out(self, where: str, values: Mapping[str, Any], reason: str) -> None:
        self._reasons.append((where, reason))
        name, text = values["question_id"], values.get("question")
        if isinstance(name, (str, int)):
            self.left_out[str(name)] = text if isinstance(text, str) else ""

    def report(self, n_rows: int, *, strict: bool) -> None:
        """Warn about the rows that are left out; `RunError` with `strict`, or if no row is left."""
        if not self._reasons:
            return
        first = [
            f"{where.removeprefix(f'{self.file}, ')}: {reason}"
            for where, reason in self._reasons[:_FIRST]
        ]
        more = f" and {len(self._reasons) - _FIRST} more" if len(self._reasons) > _FIRST else ""
        counted = (
            f"{len(self._reasons):,} of {n_rows:,} rows cannot be used: {'; '.join(first)}{more}"
        )
        if not self.questions:
            raise RunError(f"{self.file} holds no questions with answers; {counted}")
        if strict:
            raise RunError(f"{self.file}: {counted} (strict)")
        warnings.warn(f"{self.file}: {counted}; they are left out", UserWarning, stacklevel=3)

    def table(self, theirs: Sequence[str]) -> pd.DataFrame:
        """Return the questions, with the other columns of the source."""
        taken = {*QUESTION_COLUMN_ALIASES}.union(*self.used.values())
        others = [name for name in theirs if name not in taken]
        table = pd.DataFrame(self.questions, columns=list(QUESTION_COLUMN_ALIASES), dtype=object)
        more = pd.DataFrame(
            [[row.get(name) for name in others] for row in self.others],
            columns=others,
            dtype=object,
        )
        for name in others:
            # Whole numbers among which some are missing would become floats.
            if more[name].notna().all():
                more[name] = more[name].infer_objects()
        return table.infer_objects().join(more)


def _has_damage(value: object) -> bool:
    """Return whether a text within a value has an unpaired surrogate."""
    if isinstance(value, str):
        return not value.isascii() and is_damaged(value)
    if isinstance(value, Mapping):
        return any(_has_damage(inner) for pair in value.items() for inner in pair)
    return isinstance(value, (list, tuple)) and any(map(_has_damage, value))


# --- Columns ---


def _used_columns(
    theirs: Sequence[str],
    rows: Sequence[Mapping[str, object]],
    names: Mapping[str, list[str]],
    file: Path,
) -> dict[str, list[str]]:
    """Return the columns that the questions are read from: those named by the user, else those with usual names.

    Case, spaces and underscores do not matter in usual names.

    Raises:
        RunError: if there is no column for the question or the references, or if two may be meant.
    """
    plain: dict[str, list[str]] = {}
    for name in theirs:
        plain.setdefault(plain_name(name), []).append(name)
    used: dict[str, list[str]] = {}
    for ours, groups in QUESTION_COLUMN_ALIASES.items():
        if ours in names:
            used[ours] = [_named_column(name, theirs, plain, file) for name in names[ours]]
            continue
        for group in groups:
            there = [_known_column(alias, plain, file) for alias in group if alias in plain]
            if there:
                used[ours] = there
                break
    if "references" not in names:
        _prefer_choices(used, theirs, plain, rows)
    for ours in ("question", "references"):
        if ours not in used:
            raise _missing_column(ours, theirs, file)
    return used


def _prefer_choices(
    used: dict[str, list[str]],
    theirs: Sequence[str],
    plain: Mapping[str, list[str]],
    rows: Sequence[Mapping[str, object]],
) -> None:
    """Read the references of multiple-choice questions from the column that names the right choice."""
    if "references" in used or not any(alias in plain for alias in _CHOICE_ALIASES):
        return
    columns, _ = choices_of(theirs, rows[:1])
    if columns:
        alias = next(alias for alias in _CHOICE_ALIASES if alias in plain)
        used["references"] = [plain[alias][0]]


def _known_column(alias: str, plain: Mapping[str, list[str]], file: Path) -> str:
    """Return the column with a usual name; a column that is spelled exactly so comes first."""
    columns = plain[alias]
    if alias in columns:
        return alias
    if len(columns) > 1:
        both = " and ".join(map(repr, columns[:2]))
        raise RunError(
            f"{file} has the columns {both}, and either may be the {alias}; say which with columns="
        )
    return columns[0]


def _named_column(
    name: str, theirs: Sequence[str], plain: Mapping[str, list[str]], file: Path
) -> str:
    """Return the column that `columns=` names."""
    if name in theirs:
        return name
    alike = plain.get(plain_name(name), [])
    if len(alike) == 1:
        return alike[0]
    raise _missing_column(name, theirs, file)


def _missing_column(name: str, theirs: Sequence[str], file: Path) -> RunError:
    has = ", ".join(map(str, theirs))
    example = f"columns={{'{name if name in QUESTION_COLUMN_ALIASES else 'question'}': …}}"
    return RunError(
        f"{file} has no column {name!r}, nor does columns= say its name ({example}, or --columns in the command); "
        f"it has {has}"
    )


def _name_notes(
    used: Mapping[str, list[str]],
    names: Mapping[str, list[str]],
    others: Sequence[str],
) -> list[str]:
    """Return notes about columns whose names differ from usual names in case or spaces.

    Columns that another note already names are left out.
    """
    notes = []
    for ours, columns in used.items():
        known = {alias for group in QUESTION_COLUMN_ALIASES[ours] for alias in group}
        guessed = [column for column in columns if column not in known and ours not in names]
        note = f"{ours} from column {' and '.join(map(repr, guessed))}"
        if guessed and not any(other.startswith(note) for other in others):
            notes.append(note)
    return notes


# --- Rows within rows ---


def _flattened(rows: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the rows and the rows nested in them, as in the files of SQuAD, TriviaQA and ARC."""
    if len(rows) == 1 and isinstance(rows[0][1], dict):
        where, whole = rows[0]
        plain = {plain_name(name): value for name, value in whole.items()}
        inner = next(
            (plain[name] for name in LIST_NAMES if isinstance(plain.get(name), list)), None
        )
        if inner is not None and all(isinstance(row, dict) for row in inner):
            rows = [(f"{where}, entry {number}", row) for number, row in enumerate(inner, start=1)]
        else:
            rows = _rows_of_columns(where, whole)
    return [pair for where, row in rows for pair in _rows_within(where, row)]


def _rows_of_columns(where: str, whole: dict) -> list[tuple[str, Any]]:
    """Return the rows of a table that pandas wrote column by column; any other object is one row."""
    columns = list(whole.values())
    if len(columns) < 2 or not all(isinstance(column, dict) for column in columns):
        return [(where, whole)]
    index = list(columns[0])
    is_table = all(list(column) == index for column in columns) and all(
        name.isdigit() for name in index
    )
    if not is_table or not index:
        return [(where, whole)]
    return [
        (f"{where}, entry {number}", {name: column[key] for name, column in whole.items()})
        for number, key in enumerate(index, start=1)
    ]


def _rows_within(where: str, row: Any) -> list[tuple[str, Any]]:
    if isinstance(row, BadRow):
        return [(where, row)]
    if isinstance(row.get("paragraphs"), list):
        return _squad_rows(where, row)
    if isinstance(row.get("row"), dict) and "row_idx" in row:
        return [(where, row["row"])]  # as the viewer of the Hugging Face hub gives them
    question = row.get("question")
    if isinstance(question, dict) and isinstance(question.get("stem"), str):
        others = {name: value for name, value in question.items() if name != "stem"}
        return [(where, {**others, **row, "question": question["stem"]})]
    return [(where, row)]


def _squad_rows(where: str, article: dict) -> list[tuple[str, Any]]:
    """Return the questions of an article in SQuAD's own file."""
    rows: list[tuple[str, Any]] = []
    for paragraph in article["paragraphs"]:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        for question in questions if isinstance(questions, list) else ():
            place = f"{where}, question {len(rows) + 1}"
            is_object = isinstance(question, dict)
            rows.append(
                (
                    place,
                    question
                    if is_object
                    else BadRow(f"not an object but {type(question).__name__}"),
                )
            )
    return rows
