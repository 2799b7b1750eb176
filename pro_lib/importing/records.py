"""Answers with their log-probabilities as our own records, and labels of answers; knows no other response format."""

import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

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

from pro_lib.common.files import RunError, parse, without_spreadsheet_mark
from pro_lib.common.validation import Format, Probability, Text, not_empty, rule, sentence
from pro_lib.importing.left_out import NO_LOG_PROBS, UNREADABLE, LeftOut, Problem, collection_paused
from pro_lib.importing.token_alignment import AnswerTokens, Mismatch, align
from pro_lib.metrics.correctness import normalized_words
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
from pro_lib.questions.question_sets import QuestionSet, lend_validation, rename_reserved
from pro_lib.questions.repeats import warn_of_repeats
from pro_lib.questions.tables import decimal_points
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

# Log-probabilities of sums in float32 may come out a little above 0.
_ROUNDING = 1e-4
_GIVEN = "must be given, or token_log_probs instead of it"
_WORDS = "must be a log-probability, a finite number of at most 0"
_BELOW_ZERO = rule((int, float), lambda value: -sys.float_info.max <= value <= _ROUNDING, _WORDS)
TokenLogProb = Annotated[float, _BELOW_ZERO, AfterValidator(float)]
# Rounding above 0 is trimmed, so that no probability exceeds 1.
LogProb = Annotated[TokenLogProb, AfterValidator(lambda value: min(value, 0.0))]
# So many times the questions that α is chosen on are set apart to redraw them from, where nothing says the splits.
POOL = 5
# Files with a row per answer, and what their columns may be called instead.
TABLES = (".csv", ".tsv", ".parquet")
ANSWER_COLUMN_ALIASES = {
    "answer": "text",
    "response": "text",
    "completion": "text",
    "id": "question_id",
    "prompt": "question",
}
LOG_PROB = ("logprob", "log_probability", "cumulative_logprob")
ANSWER_COLUMN_ALIASES |= dict.fromkeys(LOG_PROB, "log_prob")
_NUMBERS = (
    "log_prob",
    "end_log_prob",
    "mean_log_prob",
    "rouge_l",
)  # columns of numbers in such files
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


class AnswerRecord(Format):
    """An answer of a record: log-probabilities in nats, that of the tokens as a sum or one by one."""

    text: Text | None = None
    tokens: list[Text] | None = None
    token_ids: list[int] | None = None
    token_log_probs: list[TokenLogProb] | None = None
    end_log_prob: LogProb | None = None
    log_prob: LogProb | None = Field(
        None, validate_default=True, validation_alias=AliasChoices("log_prob", *LOG_PROB)
    )
    finished: bool = True
    closed: bool = False
    correct: bool | None = None
    mean_log_prob: LogProb | None = None
    rouge_l: Probability | None = None

    @field_validator("log_prob", mode="before")
    @classmethod
    def _summed(cls, value: Any, others: ValidationInfo) -> Any:
        if value is not None:
            return value
        tokens, text, end = (
            others.data.get(name) for name in ("token_log_probs", "text", "end_log_prob")
        )
        if tokens is end is None and text is not None:  # a text alone, which `record_tables` counts
            return None
        # No tokens and no ending would make an answer of probability 1.
        if tokens is None or (not tokens and end is None):
            raise PydanticCustomError("rule", _GIVEN)
        return sum(tokens)


class Record(Format):
    """A line of a records file: a question and its answers, the most probable first or as they were drawn."""

    question_id: Identity
    question: Text | None = None
    references: TextList | None = None
    split: Text | None = None
    scores: dict[Text, float] | None = None
    answers: list[AnswerRecord]


class _Label(Format):
    """A row of a file of labels; an id may be a whole number, and `correct` 1 or 0."""

    question_id: Identity
    text: Text
    correct: Annotated[
        bool, BeforeValidator(lambda value: _TRUTH.get(str(value).strip().lower(), value))
    ]


def from_records(
    source: Source, *, questions: QuestionSet | pd.DataFrame | None = None, strict: bool = False
) -> Run:
    """Return a run of log-probabilities made elsewhere: a JSONL file with a line per question, or a table.

    A line is `{question_id, question?, references?, split?, scores?, answers: [...]}`; an answer is `{log_prob?,
    mean_log_prob?, token_log_probs?, end_log_prob?, text?, tokens?, token_ids?, finished?, closed?, rouge_l?,
    correct?}` with at least one of log_prob and token_log_probs, or a text alone, as samples of a black box. A warning
    says how many are texts alone if others are not. Without end_log_prob, `log_prob` is that of the complete answer; an
    ending that is given counts as a token. `closed` says that the last token is text and ending at once. `tokens` are
    the texts of the tokens. With them, only the tokens that spell `text` count, and an answer whose tokens do not
    spell it is left out. `scores` are made elsewhere, by method, higher = more uncertain. `model` and `dataset` of the
    first line name the run.

    In memory, `source` is a list of such objects, or a table, as a CSV or Parquet file: with a column `answers`, or a
    row per answer. `questions` as for `importing.from_openai`. A line or an answer that cannot be read is left out,
    and a warning counts and names it; with `strict`, it is an error. Raises `RunError` with file, line and field.
    """
    path, is_file = (
        source_path(not_empty(source, "source"), "records"),
        isinstance(source, (str, Path)),
    )
    if is_file and unzipped(path).suffix in TABLES:
        table = read_rows(path)
        ours = {name: ours for name, ours in ANSWER_COLUMN_ALIASES.items() if ours not in table}
        source = table.rename(columns=ours)
        check_names(source, path)
        if unzipped(path).suffix != ".parquet":
            has_semicolons = table.attrs.get("delimiter", ",") != ","
            read = {}
            for name, column in source.items():
                cells = (
                    decimal_points(list(column), has_semicolons=has_semicolons)
                    if name in _NUMBERS
                    else column
                )
                read[name] = [_of_text(name, cell) for cell in cells]
            source = pd.DataFrame(read, source.index, dtype=object)
    is_flat = isinstance(source, pd.DataFrame) and "answers" not in source
    left_out = LeftOut(path, strict)
    entries = json_lines(source, on_error=None if strict else left_out.add_error)
    with collection_paused():
        records = _by_question(entries) if is_flat else entries
        answers, table = record_tables(records, path, left_out, may_be_mixed=True)
    left_out.warn()
    if questions is not None:
        answers, table = paired(questions, answers, table, path, known={*table["question_id"]})
    if not isinstance(questions, QuestionSet):  # of a question set, `load_questions` has said it
        warn_of_repeats(table, f"records {path.name}")
    model, dataset = names_in(path) if is_file else ("records", path.stem)
    return Run(answers, table, RunInfo(dataset, model, "records"))


def split_records(run: Run, *, n_validation: int | None = 100, seed: int = 0) -> Run:
    """Return the run with every question in `validation` or `test`: as its records say, else drawn with `seed`.

    `POOL` times `n_validation` are drawn, so that α can be chosen anew on others, at most half of all (if None, half).
    Questions with the same text stay in one split and count as one.
    """
    splits = run.questions["split"]
    if splits.notna().all():
        return run
    if splits.notna().any():
        raise RunError(f"run {run.name} says the split of some questions only")
    if len(splits) < 2:
        raise RunError(
            f"run {run.name} has {len(splits)} questions, too few to draw some for validation"
        )
    table = lend_validation(
        run.questions.assign(split="test"), n_validation, seed, lender=f"run {run.name}", pool=POOL
    )
    return replace(run, questions=table)


def read_labels(path: str | Path) -> pd.DataFrame:
    """Return labels from outside, a row per question and answer, of a CSV, Parquet or JSONL file.

    Columns: question_id, text as it is written, correct (true or false, 1 or 0). The ``'`` that `pro score --output`
    puts before a text that a spreadsheet would take for a formula is removed. Raises `RunError` with file and row.
    """
    rows = read_rows(not_empty(path, "path"))
    labels = [dict(parse(_Label, row, where)) for where, row in json_lines(rows)]
    for label in labels:
        for name in ("question_id", "text"):
            label[name] = without_spreadsheet_mark(label[name])
    table = pd.DataFrame(labels, columns=list(_Label.model_fields)).drop_duplicates(
        ignore_index=True
    )
    if table.empty:
        raise RunError(f"{path} holds no labels")
    twice = table["text"][table.duplicated(["question_id", "text"])]
    if len(twice):
        raise RunError(f"{path} calls answer {twice.iloc[0]!r} both right and wrong")
    return table


def names_in(path: str | Path) -> tuple[str, str]:
    """Return the model and dataset that a file's first record names; `records` and the file's stem otherwise."""
    is_table = unzipped(path).suffix in TABLES
    _, first = ("", {}) if is_table else next(json_lines(path, on_error=lambda *_: None), ("", {}))
    ours = first if isinstance(first, dict) and "answers" in first else {}
    return str(ours.get("model") or "records"), str(ours.get("dataset") or unzipped(path).stem)


def _of_text(name: str, cell: str | None) -> object:
    """Return what the text of a CSV file says in a column, None where it is empty."""
    if cell and name == "references":
        return [text.strip() for text in cell.split(";")]
    if cell and name in AnswerRecord.model_fields and name != "text":
        with suppress(ValueError):
            return from_json(cell if name == "tokens" else cell.lower())
    return cell or None


def _by_question(rows: Iterable[tuple[str, dict]]) -> Iterable[tuple[str, dict]]:
    """Return rows of single answers as records, each with the place of its first row."""
    records: dict[str, tuple[str, dict]] = {}
    for where, row in rows:
        name = row.get("question_id", row.get("question"))
        record = {name: row.get(name) for name in Record.model_fields} | {
            "question_id": name,
            "answers": [],
        }
        first, record = records.setdefault(str(name), (where, record))
        if row.get("question", record["question"]) != record["question"]:
            raise RunError(
                f"{where}: question_id {name!r} was already used ({first}), by another question"
            )
        record["answers"].append(row)
    return records.values()


def record_tables(
    entries: Iterable[tuple[str, Mapping]],
    source: Path,
    left_out: LeftOut,
    *,
    may_be_mixed: bool = False,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers and the questions of records, given with their places.

    What cannot be read is added to `left_out`. If some answers have log-probabilities and others are texts alone, the
    texts are left out too; if it `may_be_mixed`, they are kept, and a warning says how many there are. Raises
    `RunError` where two records have one question_id, and where no answer is left.
    """
    answers, questions, places = [], [], []
    used: dict[str, str] = {}
    for where, record in _valid_records(entries, left_out):
        if record.question_id in used:
            first = used[record.question_id]
            raise RunError(
                f"{where}: question_id {record.question_id!r} was already used ({first})"
            )
        used[record.question_id] = where
        scores = {f"score_{name}": score for name, score in (record.scores or {}).items()}
        questions.append(record.model_dump(exclude={"answers", "scores"}) | scores)
        for rank, answer in enumerate(_spelled_answers(record, where, left_out)):
            values = dict(answer)
            del values["tokens"]
            answers.append({"question_id": record.question_id, "rank": rank, **values})
            places.append(where)
    if not may_be_mixed:
        answers = _of_one_kind(answers, places, left_out)
    if not answers:
        raise left_out.error(
            f"{source} holds no answers whose probability is known ({len(questions)} questions)"
        )
    table = pd.DataFrame(answers).astype(
        dict.fromkeys(("log_prob", "end_log_prob", "mean_log_prob", "rouge_l"), float)
    )
    alone = table["log_prob"].isna()
    if alone.any() and not alone.all():
        message = f"{source}: {alone.sum():,} of {len(alone):,} answers have no log-probability"
        first = f"first {places[alone.argmax()]}"
        warnings.warn(
            f"{message} ({first}); scores that need one are computed from the others", stacklevel=3
        )
    absent = [name for name in ("correct", "mean_log_prob", "rouge_l") if table[name].isna().all()]
    return table.drop(columns=absent), pd.DataFrame(questions)


def _valid_records(
    entries: Iterable[tuple[str, Mapping]], left_out: LeftOut
) -> Iterator[tuple[str, Record]]:
    """Yield the entries that are records, each without the answers that cannot be read."""
    for where, entry in entries:
        try:
            yield where, parse(Record, entry, where)
        except RunError as error:
            answers = entry.get("answers") if isinstance(entry, dict) else None
            if left_out.strict or not isinstance(answers, list):
                left_out.add_error(where, error)
                continue
            good = []
            for n, answer in enumerate(answers):
                try:
                    good.append(AnswerRecord.model_validate(answer))
                except ValidationError as wrong:
                    words = f"answers[{n}].{sentence(wrong)}"
                    left_out.add(where, Problem(UNREADABLE, words, is_detail=True))
            if len(good) < len(answers):
                yield from _valid_records([(where, {**entry, "answers": good})], left_out)
            else:
                left_out.add_error(where, error)


def _spelled_answers(record: Record, where: str, left_out: LeftOut) -> Iterator[AnswerRecord]:
    """Yield the answers of a record, each with the log-probabilities of the tokens that spell its text."""
    for n, answer in enumerate(record.answers):
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
        aligned = align(tokens)
        if isinstance(aligned, Mismatch):
            left_out.add(where, Problem(aligned.reason, f"answers[{n}] is one {aligned.reason}"))
        elif aligned.token_log_probs == answer.token_log_probs:
            yield answer.model_copy(update={"text": aligned.text})
        else:
            kept = slice(aligned.n_before, aligned.n_before + len(aligned.token_log_probs))
            update: dict[str, Any] = {
                "text": aligned.text,
                "token_log_probs": aligned.token_log_probs,
            }
            update |= {"log_prob": min(sum(aligned.token_log_probs), 0.0), "mean_log_prob": None}
            update["token_ids"] = None if answer.token_ids is None else answer.token_ids[kept]
            yield answer.model_copy(update=update)


def _of_one_kind(answers: list[dict], places: list[str], left_out: LeftOut) -> list[dict]:
    """Return the answers that have log-probabilities; all answers if none has, as samples of a black box."""
    scored = [answer for answer in answers if answer["log_prob"] is not None]
    if not scored or len(scored) == len(answers):
        return answers
    for answer, place in zip(answers, places, strict=True):
        if answer["log_prob"] is None:
            words = f"answers[{answer['rank']}].log_prob=None {_GIVEN}, as of others"
            left_out.add(place, Problem(NO_LOG_PROBS, words))
    ranks: Counter = Counter()
    for answer in scored:
        answer["rank"] = ranks[answer["question_id"]]
        ranks[answer["question_id"]] += 1
    return scored


def question_table(questions: QuestionSet | pd.DataFrame) -> pd.DataFrame:
    """Return the table of a question set, or the table that is given."""
    return questions.table if isinstance(questions, QuestionSet) else questions


def paired(
    prompted: QuestionSet | pd.DataFrame,
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    path: Path,
    *,
    known: Collection,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers and the questions asked, each with those of its id, else of its text, else in its place.

    `questions` are those read; `known` are the ids that came with them. That a place decides is said in a warning.
    Raises `RunError` for questions that were not asked, and where two texts of one disagree, with both.
    """
    if isinstance(prompted, QuestionSet):
        answers, questions = _without_left_out(prompted, answers, questions, path)
    has_own_ids = not isinstance(prompted, QuestionSet) or prompted.has_own_ids
    prompted = rename_reserved(question_table(prompted))
    if (
        not {"question_id", "question"} <= set(prompted)
        or prompted["question_id"].duplicated().any()
    ):
        raise RunError("questions= must have columns question_id and question, and each id once")
    theirs = dict(zip(prompted["question_id"], prompted["question"], strict=True))
    own = dict(zip(questions["question_id"], questions["question"], strict=True))
    targets = {name: name for name in own if name in theirs and name in known}
    texts = {name: text for name, text in own.items() if isinstance(text, str)}
    if not known and len(own) == len(theirs) and not texts:
        if {*own} == {*theirs} and [*own] != [*theirs]:
            raise RunError(
                f"{path}: the server's ids are those of questions=, in another order; give question_id"
            )
        targets = dict(zip(own, theirs, strict=True))
        order = f"{path} has neither ids nor texts of questions: its answers are to those of questions= in their order"
        warnings.warn(order, UserWarning, stacklevel=3)
    targets |= _by_text(
        {name: text for name, text in texts.items() if name not in targets}, theirs, path
    )
    for name in own:
        if name not in targets:
            why = (
                f"and neither is {texts[name]!r}"
                if name in texts
                else "and no text says which it is"
            )
            raise RunError(f"{path}: question_id {name!r} is not in questions=, {why}")
    _check_texts([(name, text, theirs[targets[name]]) for name, text in texts.items()], path)
    if not has_own_ids and {*targets} - {*texts}:
        numbers = f"{path} has no texts of questions, and the ids of questions= are row numbers"
        warnings.warn(
            f"{numbers}: rows that were moved since get other answers", UserWarning, stacklevel=3
        )
    if twice := [name for name, count in Counter(targets.values()).items() if count > 1]:
        raise RunError(f"{path}: several of its questions are {twice[0]!r} of questions=")
    given = (
        questions.filter(like="score_")
        .set_axis([targets[name] for name in own])
        .reindex([*theirs])
        .to_dict("list")
    )
    more = dict.fromkeys(name for name in questions if name not in prompted) | given
    return answers.assign(question_id=answers["question_id"].map(targets)), prompted.assign(
        **more
    ).reset_index(drop=True)


def _without_left_out(
    prompted: QuestionSet,
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    path: Path,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the answers and questions without those to questions that were left out of a file, with a warning."""
    texts = {text for text in prompted.left_out.values() if text}
    is_left_out = questions["question_id"].isin(prompted.left_out) | questions["question"].isin(
        texts
    )
    is_asked = questions["question_id"].isin(prompted.table["question_id"])
    is_left_out &= ~is_asked & ~questions["question"].isin(prompted.table["question"])
    if not is_left_out.any():
        return answers, questions
    names = questions.loc[is_left_out, "question_id"]
    words = "answers to questions that were left out of the question file are left out too"
    warnings.warn(f"{path}: {words}: {', '.join(map(str, names[:5]))}", UserWarning, stacklevel=4)
    is_kept = ~answers["question_id"].isin(names)
    return answers[is_kept].reset_index(drop=True), questions[~is_left_out].reset_index(drop=True)


def _check_texts(pairs: Sequence[tuple[str, str, str]], path: Path) -> None:
    """Check that answers belong to the questions they are paired with, as far as texts tell.

    A text that came with answers is the question, or a prompt that contains it. Where most prompts put the question
    between the same words, a prompt that does not is about another question: one that was edited afterwards.

    Args:
        pairs: the id, the text that came with the answers, and the text in `questions=`, of each question.
        path: the file of the answers, for the error.
    """
    contexts = [_context(own, prompted) for _, own, prompted in pairs]
    [(usual, count)] = Counter(contexts).most_common(1) or [(None, 0)]
    is_uniform = usual is not None and 2 * count > len(contexts)
    for (name, own, prompted), context in zip(pairs, contexts, strict=True):
        is_within = f" {normalized_words(prompted)} " in f" {normalized_words(own)} "
        if not is_within or (is_uniform and context != usual):
            raise RunError(
                f"{path}: question_id {name!r} is {own!r}, but in questions= {prompted!r}"
            )


def _context(prompt: str, question: str) -> tuple[str, str] | None:
    """Return the word before a question in a prompt and all text behind it; None where it does not contain it."""
    folded_prompt, folded_question = (
        " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        for text in (prompt, question)
    )
    before, found, after = folded_prompt.rpartition(folded_question)
    return (" ".join(before.split()[-1:]), after) if found else None


def _by_text(own: Mapping[str, str], prompted: Mapping[str, str], path: Path) -> dict[str, str]:
    """Return the id of the question asked that each text is; of a prompt, that of the last question in it.

    What stands right before the question and after it is the same in all prompts. Else the question of one may be none
    of those asked, but of its shots.
    """
    ids, targets, prompts = dict[str, list](), dict[str, str](), dict[tuple, str]()
    for name, text in prompted.items():
        ids.setdefault(normalized_words(text), []).append(name)
    for name, text in own.items():
        spaced = f" {normalized_words(text)} "
        within = (
            [spaced.strip()]
            if spaced.strip() in ids
            else [other for other in ids if f" {other} " in spaced]
        )
        if not within:
            continue
        other = max(within, key=lambda other: (spaced.rfind(f" {other} ") + len(other), len(other)))
        before, _, after = spaced.rpartition(f" {other} ")
        prompts.setdefault((*before.split()[-1:], after), name)
        fits = (
            ids[other]
            if len(ids[other]) == 1
            else [one for one in ids[other] if prompted[one] == text]
        )
        if len(fits) != 1:
            raise RunError(
                f"{path}: {text!r} is the text of several of questions=; only an id would tell which"
            )
        targets[name] = fits[0]
    if len(prompts) > 1:
        names = " and ".join(map(repr, [*prompts.values()][:2]))
        raise RunError(
            f"{path}: prompts differ around the questions of {names}: one may be a shot; give question_id"
        )
    return targets
