"""Read answers and log-probabilities in the project's own record format, and correctness labels."""

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError, from_json

from pro_lib.common import reasons
from pro_lib.common.files import RunError, parse, without_spreadsheet_mark
from pro_lib.common.validation import Format, Probability, Text, not_empty, rule, sentence
from pro_lib.importing.left_out import LeftOut, Problem, collection_paused
from pro_lib.importing.pairing import paired
from pro_lib.importing.token_alignment import Alignment, AnswerTokens, Mismatch, align
from pro_lib.questions.file_readers import (
    Identity,
    Source,
    TextList,
    check_names,
    json_lines,
    read_rows,
    source_path,
    unzipped,
)
from pro_lib.questions.question_sets import QuestionSet, lend_validation
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.questions.tables import decimal_points
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

# A sum of log-probabilities in float32 may be a little above 0.
_ROUNDING = 1e-4
_LOG_PROB_MISSING = "must be given, or token_log_probs instead of it"
_LOG_PROB_RULE = "must be a log-probability, a finite number of at most 0"
_AT_MOST_ZERO = rule(
    (int, float),
    lambda value: -sys.float_info.max <= value <= _ROUNDING,
    _LOG_PROB_RULE,
)
TokenLogProb = Annotated[float, _AT_MOST_ZERO, AfterValidator(float)]
# Values above 0 are rounding errors; they become 0, so that no probability exceeds 1.
LogProb = Annotated[TokenLogProb, AfterValidator(lambda value: min(value, 0.0))]
# `split_records` draws this many times `n_validation` questions, so that α can be chosen again on
# others.
POOL = 5
# Endings of files with one row per answer.
TABLES = (".csv", ".tsv", ".parquet")
_LOG_PROB_ALIASES = ("logprob", "log_probability", "cumulative_logprob")
# Other names that the columns of such files may have.
_ANSWER_COLUMN_ALIASES = {
    "answer": "text",
    "response": "text",
    "completion": "text",
    "id": "question_id",
    "prompt": "question",
    **dict.fromkeys(_LOG_PROB_ALIASES, "log_prob"),
}
_NUMBER_COLUMNS = ("log_prob", "end_log_prob", "mean_log_prob", "rouge_l")
# Columns that are dropped from a run if they are empty.
_OPTIONAL_COLUMNS = ("correct", "mean_log_prob", "rouge_l")
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


class AnswerRecord(Format):
    """An answer of a record, with log-probabilities in nats: one for each token, or their sum."""

    text: Text | None = None
    tokens: list[Text] | None = None
    token_ids: list[int] | None = None
    token_log_probs: list[TokenLogProb] | None = None
    end_log_prob: LogProb | None = None
    log_prob: LogProb | None = Field(
        None,
        validate_default=True,
        validation_alias=AliasChoices("log_prob", *_LOG_PROB_ALIASES),
    )
    finished: bool = True
    closed: bool = False
    correct: bool | None = None
    mean_log_prob: LogProb | None = None
    rouge_l: Probability | None = None

    @field_validator("log_prob", mode="before")
    @classmethod
    def _summed(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the given log-probability, or the sum over the tokens if there is none."""
        if value is not None:
            return value
        text = info.data.get("text")
        token_log_probs = info.data.get("token_log_probs")
        end_log_prob = info.data.get("end_log_prob")
        if token_log_probs is None and end_log_prob is None and text is not None:
            return None  # a text without a probability; `run_of_records` counts these
        # Without tokens and without an ending, the sum would be 0: a probability of 1.
        if token_log_probs is None or (not token_log_probs and end_log_prob is None):
            raise PydanticCustomError("rule", _LOG_PROB_MISSING)
        return sum(token_log_probs)


class CheckedAnswer(NamedTuple):
    """The values of an `AnswerRecord`. It takes a third of the memory of the record.

    `tokens` is first, because the tables of a run do not have this column.
    """

    tokens: list[str] | None
    text: str | None
    token_ids: list[int] | None
    token_log_probs: list[float] | None
    end_log_prob: float | None
    log_prob: float | None
    finished: bool
    closed: bool
    correct: bool | None
    mean_log_prob: float | None
    rouge_l: float | None


def checked_answer(answer: object) -> CheckedAnswer:
    """Check the fields of an answer, or raise pydantic's `ValidationError` if one is wrong."""
    return CheckedAnswer(**vars(AnswerRecord.model_validate(answer)))


class Record(Format):
    """A line of a records file: a question and its answers.

    The answers are in order of probability, the most probable first, or in the order in which they
    were sampled.
    """

    question_id: Identity
    question: Text | None = None
    references: TextList | None = None
    split: Text | None = None
    relation: Text | None = None
    scores: dict[Text, float] | None = None
    answers: list[AnswerRecord]


def _truth_value(value: object) -> object:
    """Return True or False for the usual words and numbers, and any other value as it is."""
    return _TRUTH.get(str(value).strip().lower(), value)


# Values of the column `status` of `pro judge` for answers that have no verdict
_WITHOUT_VERDICT = ("refused", "undecided", "unknown")


class _Label(Format):
    """A row of a file of labels.

    An id may be a whole number, and `correct` 1 or 0.
    """

    question_id: Identity
    text: Text
    correct: Annotated[bool, BeforeValidator(_truth_value)]


# --- Runs from records ---


def from_records(
    source: Source, *, questions: QuestionSet | pd.DataFrame | None = None, strict: bool = False
) -> Run:
    """Return a run of answers whose log-probabilities were computed elsewhere.

    A line of a JSONL file is one question with its answers::

        {question_id, question?, references?, split?, relation?, scores?, answers: [...]}

    All log-probabilities are in nats. An answer has these fields::

        {log_prob?, token_log_probs?, end_log_prob?, mean_log_prob?, text?, tokens?, token_ids?,
         finished?, closed?, rouge_l?, correct?}

    - An answer needs `log_prob` or `token_log_probs`. An answer with a text alone is a sample of a
      black box. If only some answers have log-probabilities, a warning counts the others.
    - Without `end_log_prob`, `log_prob` is the log-probability of the complete answer. With it, the
      ending counts as a token.
    - `closed` says that the last token contains text and also ends the answer.
    - `tokens` are the texts of the tokens. If they are given, only the tokens that spell `text`
      count, and an answer whose tokens do not spell it is left out.
    - `scores` are uncertainty scores computed elsewhere, by method; higher = more uncertain.
    - Questions with the same `relation` form a cluster: intervals treat them as dependent.
    - `model` and `dataset` in the first line name the run.

    Args:
        source: a JSONL, CSV, TSV or Parquet file; a list of such objects; or a DataFrame. A table
            has a column `answers`, or one row per answer.
        questions: questions that replace those of the records, as for `importing.from_openai`.
        strict: whether a line or an answer that cannot be read is an error. By default it is left
            out, and a warning counts and names it.

    Returns:
        The run, with one row per answer and one row per question.

    Raises:
        RunError: no answer can be used, or an answer belongs to no question; names file, line and
            field.

    Example:
        >>> answers = [{"text": "Paris", "log_prob": -0.1}, {"text": "Lyon", "log_prob": -2.5}]
        >>> run = from_records([{"question_id": "q1", "answers": answers}])
        >>> run.answers[["text", "log_prob"]].values.tolist()
        [['Paris', -0.1], ['Lyon', -2.5]]
    """
    path = source_path(not_empty(source, "source"), "records")
    is_file = isinstance(source, (str, Path))
    if is_file and unzipped(path).suffix in TABLES:
        source = _answer_rows(path)
    has_row_per_answer = isinstance(source, pd.DataFrame) and "answers" not in source
    left_out = LeftOut(path, strict)
    entries = json_lines(source, on_error=None if strict else left_out.add_error)
    model, dataset = names_in(path) if is_file else ("records", path.stem)
    info = RunInfo(dataset, model, "records")
    with collection_paused():
        records = _by_question(entries) if has_row_per_answer else entries
        run = run_of_records(records, path, left_out, info, may_be_mixed=True)
    left_out.warn()
    if questions is not None:
        run = paired(questions, run, path, known_ids={*run.questions["question_id"]})
    if not isinstance(questions, QuestionSet):  # `load_questions` has warned of those of a set
        warn_of_repeats(run.questions, f"records {path.name}")
    return run


def _answer_rows(path: Path) -> pd.DataFrame:
    """Return the rows of a table of answers, with the column names and the types of records."""
    table = read_rows(path)
    aliases = {alias: name for alias, name in _ANSWER_COLUMN_ALIASES.items() if name not in table}
    renamed = table.rename(columns=aliases)
    check_names(renamed, path)
    if unzipped(path).suffix == ".parquet":
        return renamed
    has_semicolons = table.attrs.get("delimiter", ",") != ","
    values = {}
    for name, column in renamed.items():
        cells = list(column)
        if name in _NUMBER_COLUMNS:
            cells = decimal_points(cells, has_semicolons=has_semicolons)
        values[name] = [_cell_value(name, cell) for cell in cells]
    return pd.DataFrame(values, renamed.index, dtype=object)


def _cell_value(name: str, cell: str | None) -> object:
    """Return the value of a CSV cell in a column, or None for an empty cell."""
    if not cell:
        return None
    if name == "references":
        return [text.strip() for text in cell.split(";")]
    if name in AnswerRecord.model_fields and name != "text":
        with suppress(ValueError):
            return from_json(cell if name == "tokens" else cell.lower())
    return cell


def _by_question(rows: Iterable[tuple[str, dict]]) -> Iterable[tuple[str, dict]]:
    """Return rows of single answers as records, each with the place of its first row."""
    records: dict[str, tuple[str, dict]] = {}
    for where, row in rows:
        question_id = row.get("question_id", row.get("question"))
        new_record = {name: row.get(name) for name in Record.model_fields}
        new_record |= {"question_id": question_id, "answers": []}
        first_place, record = records.setdefault(str(question_id), (where, new_record))
        if row.get("question", record["question"]) != record["question"]:
            words = f"was already used ({first_place}), by another question"
            raise RunError(f"{where}: question_id {question_id!r} {words}")
        record["answers"].append(row)
    return records.values()


def names_in(path: str | Path) -> tuple[str, str]:
    """Return the model and the dataset that the first record of a file names.

    They are `records` and the stem of the file's name if the record does not name them.
    """
    record = _first_record(path)
    model = record.get("model") or "records"
    dataset = record.get("dataset") or unzipped(path).stem
    return str(model), str(dataset)


def _first_record(path: str | Path) -> dict:
    """Return the first record of a file of JSON, or an empty one for a table or another entry."""
    if unzipped(path).suffix in TABLES:
        return {}
    entries = json_lines(path, on_error=lambda *_: None)
    _, entry = next(entries, ("", {}))
    return entry if isinstance(entry, dict) and "answers" in entry else {}


# --- The run of records ---


def run_of_records(
    entries: Iterable[tuple[str, Mapping]],
    source: Path,
    left_out: LeftOut,
    info: RunInfo,
    *,
    may_be_mixed: bool = False,
) -> Run:
    """Return the run of records.

    Args:
        entries: the records, each with its place.
        source: the name of the file, for messages.
        left_out: collects what cannot be read.
        info: where the run comes from.
        may_be_mixed: what to do if some answers have log-probabilities and others are texts alone.
            True keeps the texts, and a warning counts them; False leaves them out.

    Raises:
        RunError: two records have the same question_id, or no answer is left.
    """
    answers = _Answers()
    questions: list[dict] = []
    first_places: dict[str, str] = {}
    for where, record, checked_answers in _valid_records(entries, left_out):
        question_id = record.question_id
        if question_id in first_places:
            words = f"was already used ({first_places[question_id]})"
            raise RunError(f"{where}: question_id {question_id!r} {words}")
        first_places[question_id] = where
        scores = {f"score_{method}": score for method, score in (record.scores or {}).items()}
        questions.append(record.model_dump(exclude={"answers", "scores"}) | scores)
        for answer in _spelled_answers(checked_answers, record, where, left_out):
            answers.add(question_id, where, answer)
    if not may_be_mixed:
        answers = _of_one_kind(answers, left_out)
    if not answers.checked:
        words = f"contains no answers with a known probability ({len(questions)} questions)"
        raise left_out.error(f"{source} {words}")
    table = answers.table()
    _warn_of_texts_alone(table, answers.places, source)
    empty_columns = [name for name in _OPTIONAL_COLUMNS if table[name].isna().all()]
    question_table = pd.DataFrame(questions)
    if question_table["relation"].isna().all():
        question_table = question_table.drop(columns="relation")
    table = table.drop(columns=empty_columns)
    return Run(table, question_table, info, left_out.table())


@dataclass
class _Answers:
    """Answers with the ids of their questions and their places, one of each per answer."""

    question_ids: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    checked: list[CheckedAnswer] = field(default_factory=list)

    def add(self, question_id: str, place: str, answer: CheckedAnswer) -> None:
        """Add an answer."""
        self.question_ids.append(question_id)
        self.places.append(place)
        self.checked.append(answer)

    def ranks(self) -> list[int]:
        """Return the position of each answer among those to the same question."""
        n_answers: Counter[str] = Counter()
        ranks = []
        for question_id in self.question_ids:
            ranks.append(n_answers[question_id])
            n_answers[question_id] += 1
        return ranks

    def table(self) -> pd.DataFrame:
        """Return the answers as a table with question_id and rank."""
        columns = dict(zip(CheckedAnswer._fields, zip(*self.checked, strict=True), strict=True))
        del columns["tokens"]
        table = pd.DataFrame({"question_id": self.question_ids, "rank": self.ranks(), **columns})
        return table.astype(dict.fromkeys(_NUMBER_COLUMNS, float))


def _warn_of_texts_alone(table: pd.DataFrame, places: list[str], source: Path) -> None:
    """Warn of answers without a log-probability if other answers have one."""
    is_text_alone = table["log_prob"].isna()
    if is_text_alone.all() or not is_text_alone.any():
        return
    counts = f"{is_text_alone.sum():,} of {len(is_text_alone):,} answers have no log-probability"
    first_place = places[is_text_alone.argmax()]
    words = f"(first {first_place}); scores that need one are computed from the others"
    warnings.warn(f"{source}: {counts} {words}", stacklevel=4)


def _valid_records(
    entries: Iterable[tuple[str, Mapping]], left_out: LeftOut
) -> Iterator[tuple[str, Record, list[CheckedAnswer]]]:
    """Yield the entries that are records, each with its answers that can be read."""
    for where, entry in entries:
        answers = _checked_answers(entry)
        fields = entry if answers is None else {**entry, "answers": []}
        try:
            record = parse(Record, fields, where)
        except RunError as error:
            readable_entry = _without_bad_answers(where, fields, left_out)
            if readable_entry is None:
                left_out.add_error(where, error, _question_id(fields))
            else:
                yield from _valid_records([(where, readable_entry)], left_out)
            continue
        if answers is None:
            answers = [CheckedAnswer(**vars(answer)) for answer in record.answers]
        yield where, record, answers


def _checked_answers(entry: object) -> list[CheckedAnswer] | None:
    """Return the answers of an entry if they were checked when they were read, else None."""
    answers = entry.get("answers") if isinstance(entry, dict) else None
    if isinstance(answers, list) and answers and isinstance(answers[0], CheckedAnswer):
        return answers
    return None


def _question_id(entry: object) -> str | None:
    """Return the id of the question of an entry that cannot be read, or None."""
    question_id = entry.get("question_id") if isinstance(entry, dict) else None
    return None if question_id is None else str(question_id)


def _without_bad_answers(where: str, entry: object, left_out: LeftOut) -> dict | None:
    """Return an entry without its unreadable answers, or None if these are not the problem."""
    answers = entry.get("answers") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(answers, list) or left_out.strict:
        return None
    good_answers = []
    for n, answer in enumerate(answers):
        try:
            good_answers.append(checked_answer(answer))
        except ValidationError as error:
            words = f"answers[{n}].{sentence(error)}"
            problem = Problem(reasons.UNREADABLE, words, is_detail=True)
            left_out.add(where, problem, _question_id(entry))
    return {**entry, "answers": good_answers} if len(good_answers) < len(answers) else None


def _spelled_answers(
    answers: Iterable[CheckedAnswer], record: Record, where: str, left_out: LeftOut
) -> Iterator[CheckedAnswer]:
    """Yield the answers of a record, each with only the tokens that spell its text."""
    for n, answer in enumerate(answers):
        if not answer.finished:
            left_out.check_cut(f"{where}, answers[{n}]")
        if answer.tokens is None or answer.text is None or answer.token_log_probs is None:
            yield answer
            continue
        tokens = AnswerTokens(
            answer.text,
            answer.tokens,
            answer.token_log_probs,
            finished=answer.finished,
            prompt=record.question,
        )
        alignment = align(tokens)
        if isinstance(alignment, Mismatch):
            message = f"answers[{n}] is one {alignment.reason}"
            problem = Problem(reasons.CONTRADICTORY, message, words=alignment.reason)
            left_out.add(where, problem, record.question_id)
        else:
            yield _with_aligned_tokens(answer, alignment)


def _with_aligned_tokens(answer: CheckedAnswer, alignment: Alignment) -> CheckedAnswer:
    """Return an answer with only the tokens that spell its text."""
    token_log_probs = alignment.token_log_probs
    if token_log_probs == answer.token_log_probs:
        return answer._replace(text=alignment.text)
    token_ids = answer.token_ids
    if token_ids is not None:
        token_ids = token_ids[alignment.n_before : alignment.n_before + len(token_log_probs)]
    return answer._replace(
        text=alignment.text,
        token_ids=token_ids,
        token_log_probs=token_log_probs,
        log_prob=min(sum(token_log_probs), 0.0),
        mean_log_prob=None,
    )


def _of_one_kind(answers: _Answers, left_out: LeftOut) -> _Answers:
    """Return the answers that have log-probabilities.

    If none has any, all answers are returned.
    """
    n_known = sum(answer.log_prob is not None for answer in answers.checked)
    if n_known in (0, len(answers.checked)):
        return answers
    kept = _Answers()
    columns = zip(
        answers.question_ids, answers.places, answers.checked, answers.ranks(), strict=True
    )
    for question_id, place, answer, rank in columns:
        if answer.log_prob is None:
            words = f"answers[{rank}].log_prob=None {_LOG_PROB_MISSING}, as of others"
            left_out.add(place, Problem(reasons.NO_LOG_PROBS, words), question_id)
        else:
            kept.add(question_id, place, answer)
    return kept


# --- Splits and labels ---


def split_records(run: Run, *, n_validation: int | None = 100, seed: int = 0) -> Run:
    """Return the run with every question in the split `validation` or `test`.

    The splits are those of the records if these have any. Otherwise `POOL` times `n_validation`
    questions are drawn for validation, so that α can be chosen again on other questions, but at
    most half of all questions. Questions with the same text stay in one split and count as one.

    Args:
        run: the run, with one row per question in `run.questions`.
        n_validation: the number of questions that α is chosen on; None for half of all questions.
        seed: the seed of the draw.

    Raises:
        RunError: only some questions have a split, or there are fewer than two questions.

    Example:
        >>> records = [{"question_id": name, "answers": [{"log_prob": -1.0}]} for name in "abcd"]
        >>> run = split_records(from_records(records), n_validation=None)
        >>> run.questions["split"].value_counts().to_dict()
        {'validation': 2, 'test': 2}
    """
    splits = run.questions["split"]
    if splits.notna().all():
        return run
    if splits.notna().any():
        raise RunError(
            f"run {run.name} has a split for some of its questions only; give one to all or to none"
        )
    if len(splits) < 2:
        words = f"has {len(splits)} questions, too few to draw some for validation"
        raise RunError(f"run {run.name} {words}")
    table = run.questions.assign(split="test")
    table = lend_validation(table, n_validation, seed, lender=f"run {run.name}", pool=POOL)
    return replace(run, questions=table)


def read_labels(path: str | Path) -> pd.DataFrame:
    r"""Return correctness labels of answers from a CSV, Parquet or JSONL file.

    `pro score --output` writes a ``'`` before a text that a spreadsheet would take for a formula;
    it is removed here.

    Args:
        path: a file with the columns question_id, text (exactly as in the run) and correct (true or
            false, 1 or 0). Spaces and line ends around a text do not count. The question and the
            references must be equal to those in columns question and accepted_answers, if there
            are any. `pro judge` writes them, and a column status; rows without a verdict are
            skipped.

    Returns:
        The columns question_id, text and correct, one row for each question and answer. If the file
        has one of them, also question, accepted_answers, and place, which names file and row.

    Raises:
        RunError: a row is damaged, the file has no labels, two labels of an answer differ, or the
            labels are of a sample that `pro label` chose; names file and row.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "labels.csv")
        ...     _ = file.write_text("question_id,text,correct\nq1,Paris,true\n")
        ...     read_labels(file).values.tolist()
        [['q1', 'Paris', True]]
    """
    rows = read_rows(not_empty(path, "path"))
    labels = []
    for where, row in json_lines(rows):
        if {"plan", "probability"} <= set(row):
            raise RunError(
                f"{where}: these labels are of a sample, whose answers were chosen with different "
                "probabilities; use them in a notebook, or in pro score with one file of responses"
            )
        if row.get("status") not in _WITHOUT_VERDICT:
            label = dict(parse(_Label, row, where), place=where)
            for name in ("question", "accepted_answers"):
                label[name] = row[name] if isinstance(row.get(name), str) else ""
            labels.append(label)
    for label in labels:
        for name in ("question_id", "text", "question", "accepted_answers"):
            label[name] = without_spreadsheet_mark(label[name])
    columns = ["question_id", "text", "correct", "question", "accepted_answers"]
    table = pd.DataFrame(labels, columns=[*columns, "place"])
    table = table.drop_duplicates(columns, ignore_index=True)
    if table.empty:
        raise RunError(f"{path} contains no labels")
    words = table.assign(text=table["text"].str.strip())
    verdicts = words.groupby(["question_id", "text"])["correct"].transform("nunique")
    contradictory = table["text"][verdicts > 1]
    if len(contradictory):
        raise RunError(f"{path} calls answer {contradictory.iloc[0]!r} both right and wrong")
    if (table[["question", "accepted_answers"]] == "").all(axis=None):
        return table[["question_id", "text", "correct"]]
    return table
