"""Question sets (bundled, from the Hugging Face hub or from files) with their prompts."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AfterValidator

from pro_lib.common.catalog import BUNDLED, DATA, HUB
from pro_lib.common.files import FOLDER_NAME, RunError, is_folder_name, reading, sha256
from pro_lib.common.validation import checked, not_empty, rule
from pro_lib.questions.csv_files import check_names
from pro_lib.questions.file_readers import Source, source_path, unzipped
from pro_lib.questions.hub_sets import questions_from_hub
from pro_lib.questions.question_files import QuestionRows, read_questions
from pro_lib.questions.repeats import (
    SHOTS,
    hash_order,
    question_groups,
    warn_of_repeats,
    without_texts,
)
from pro_lib.runs.question_table import QUESTION_COLUMNS
from pro_lib.runs.storage import CERTIFICATE_COLUMNS

SPLITS = (SHOTS, "validation", "test")
NAMES = (*BUNDLED, *HUB)
# The usual number of shots.
_N_SHOTS = 10
TEMPLATE = "Question: {question}\nAnswer:"

# Run folders are named after the question set.
FolderName = Annotated[str, rule(str, is_folder_name, f"must be usable as {FOLDER_NAME}")]
Template = Annotated[
    str, rule(str, lambda template: "{question}" in template, "must contain {question}")
]


def rename_reserved(table: pd.DataFrame) -> pd.DataFrame:
    """Return questions in which no column has a name that runs need.

    Such names are those of `runs.Certificate` and names that start with `score_`. They get the
    prefix `own_`, and a warning says so.

    Raises:
        RunError: two columns have the same name.
    """
    reserved_names = [
        name for name in table if name in CERTIFICATE_COLUMNS or str(name).startswith("score_")
    ]
    if reserved_names:
        names = ", ".join(reserved_names)
        warnings.warn(
            f"columns of the questions get own_ before names that runs need: {names}", stacklevel=3
        )
    renamed = table.rename(columns={name: f"own_{name}" for name in reserved_names})
    check_names(renamed, "the table of questions")
    return renamed


@checked
class QuestionSet:
    """Questions, and the prompts that ask them.

    A prompt is the header, the shots, and the question in the template. A shot is a question with
    its first reference as the answer.

    Attributes:
        name: the name of the set, which run folders have.
        table: one row per question: question_id, question, references (a list), split, and the
            other columns of the dataset (in the world facts: relation, exposure, conflict).
        shots: the questions and answers of the shots.
        header: the text before the shots.
        template: the form of a question in the prompt; `{question}` stands for the question.
        source: where the questions come from and how they were drawn, as JSON values: dataset or
            path, split, limit, seed, n_shots, and the columns that were read.
    """

    name: FolderName
    table: Annotated[pd.DataFrame, AfterValidator(rename_reserved)]
    shots: tuple[tuple[str, str], ...] = ()
    header: str = ""
    template: Template = TEMPLATE
    source: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"QuestionSet({self.name}: {len(self):,} questions, {len(self.shots)} shots)"

    @property
    def has_own_ids(self) -> bool:
        """Whether the source has the question ids.

        Otherwise they are made of row numbers.
        """
        return self.source.get("path") is None or "question_id" in self.source.get("columns", {})

    def prefix(self) -> str:
        """Return the beginning of all prompts: the header and the shots."""
        shots = [f"{self._filled(question)} {answer}\n\n" for question, answer in self.shots]
        return self.header + "".join(shots)

    def prompts(self) -> list[str]:
        """Return the prompts, in the order of the table."""
        prefix = self.prefix()
        return [prefix + self._filled(question) for question in self.table["question"]]

    def chats(self) -> list[list[dict[str, str]]]:
        """Return the prompts as conversations with the shots as earlier turns.

        The header is at the start of the first message. It is not a system message, because some
        chat templates do not allow one.
        """
        chats = []
        for question in self.table["question"]:
            turns = []
            for shot, answer in (*self.shots, (question, "")):
                turns.append({"role": "user", "content": self._filled(shot)})
                turns.append({"role": "assistant", "content": answer})
            turns[0]["content"] = self.header + turns[0]["content"]
            chats.append(turns[:-1])
        return chats

    def _filled(self, question: str) -> str:
        """Return the template with a question in it."""
        return self.template.replace("{question}", question)

    def parameters(self, *, chat: bool | Mapping = False) -> dict[str, Any]:
        """Return the settings of the prompt that affect the answers of a run, as JSON values.

        Args:
            chat: whether the prompts are conversations, or options of the chat template. The
                parameter is returned only if it is true.
        """
        shots = [list(shot) for shot in self.shots]
        parameters = {"header": self.header, "template": self.template, "shots": shots}
        return {**parameters, "chat": chat} if chat else parameters

    def changes(self, *, chat: bool | Mapping = False) -> dict[str, Any]:
        """Return the settings of the prompt that differ from their defaults.

        They become a part of the name of a run folder.
        """
        settings = {
            "n_shots": (len(self.shots), self.source.get("usual_shots", len(self.shots))),
            "header": (self.header, ""),
            "template": (self.template, TEMPLATE),
            "chat": (chat, False),
        }
        return {name: value for name, (value, usual) in settings.items() if value != usual}

    def with_questions(self, questions: Any) -> "QuestionSet":
        """Return a set with the same prompts for other questions, which have no references.

        Args:
            questions: a text, or several texts.

        Raises:
            RunError: a text is empty.
        """
        is_one = isinstance(questions, str) or not isinstance(questions, Iterable)
        texts = [questions] if is_one else list(questions)
        for n, text in enumerate(texts, start=1):
            if not isinstance(text, str) or not text.strip():
                place = "question" if is_one else f"question {n} of {len(texts)}"
                raise RunError(f"{place} is empty or is not a text; give the question's text")
        columns = {
            "question_id": [f"asked-{n}" for n in range(len(texts))],
            "question": [text.strip() for text in texts],
            "references": None,
            "split": None,
        }
        return replace(self, table=pd.DataFrame(columns))


def as_set(questions: QuestionSet | str | Source) -> QuestionSet:
    """Return questions as a question set.

    Args:
        questions: a question set, which is returned as it is; a text or several; or rows as for
            `load_questions`. Texts and rows become a set without shots.

    Example:
        >>> as_set(["Who wrote Emma?", "Who wrote Dune?"]).table["question"].tolist()
        ['Who wrote Emma?', 'Who wrote Dune?']
    """
    if isinstance(questions, QuestionSet):
        return questions
    has_rows = isinstance(questions, Sequence) and any(
        isinstance(row, Mapping) for row in questions
    )
    if has_rows or isinstance(questions, pd.DataFrame):
        return load_questions("asked", path=questions, split=None, n_shots=0)
    return QuestionSet("asked", pd.DataFrame()).with_questions(questions)


def empty_question_set(parameters: Mapping[str, Any]) -> QuestionSet:
    """Return a set without questions that has the prompts of a run with these parameters.

    Example:
        >>> shots = [["Who wrote Emma?", "Austen"]]
        >>> parameters = {"shots": shots, "header": "", "template": TEMPLATE}
        >>> empty_question_set(parameters).shots
        (('Who wrote Emma?', 'Austen'),)
    """
    shots = tuple((question, answer) for question, answer in parameters["shots"])
    return QuestionSet("asked", pd.DataFrame(), shots, parameters["header"], parameters["template"])


# --- Load a question set ---


# This is the public function for questions of all sources. All of its options are keyword-only.
def load_questions(  # noqa: PLR0913
    name: str | None = None,
    *,
    path: Source | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    row: Callable[[dict], Mapping | None] | None = None,
    separator: str | None = None,
    split: str | Sequence[str] | None = "test",
    limit: int | None = None,
    seed: int = 0,
    n_shots: int | None = None,
    n_validation: int | None = None,
    header: str = "",
    template: str = TEMPLATE,
    strict: bool = False,
) -> QuestionSet:
    r"""Load a bundled question set, one from the Hugging Face hub, or questions from files.

    Args:
        name: a name in `NAMES`; with `path`, a name for the set (the file's stem if None).
        path: a `.jsonl`, `.csv` or `.parquet` file with columns question and references (a text or
            a list), and optionally question_id, split and others, or with the columns of a known
            dataset. It may also be such rows in memory, a list of dicts or a DataFrame. With the
            name of a hub set, it may be a folder that `save_to_disk` has made.
        columns: the names of the file's columns, for example
            `{"question": "query", "references": ["answer", "aliases"]}`. The columns of a CSV file
            without a header are named by number. Its key `separator` stands for the parameter.
        row: a function that makes a question of each row: a dict with question, references and
            optionally question_id, split and others; None leaves the row out.
        separator: the text between several references in one text, such as ";"; by default a text
            is one reference.
        split: a split or several, None for all; a file without a split column is one `test` split.
        limit: the largest number of questions of each split, drawn with `seed` and kept in order.
            They are the first ones by a hash of seed and text. So the questions of a smaller limit
            are among those of a larger one, and an added or deleted row changes one at most.
        seed: the seed of that draw; the shots do not depend on it.
        n_shots: the number of shots from `train_shots`; None for 10. If a file does not have that
            split, this many questions are set apart, always the same ones, and are never asked.
            None then sets apart a quarter of a small file at most.
        n_validation: the number of questions that become the validation split of a file without
            one, always the same ones, and at most half. None does not change the splits. Questions
            with the same text stay in one split and count as one.
        header: the text before the shots.
        template: the form of a question in the prompt; `{question}` stands for the question.
        strict: whether a row of a file that cannot be used is an error. By default rows without a
            question or without an answer are left out, and a warning counts them.

    Returns:
        The questions of the splits, with the shots of their prompts.

    Raises:
        ValueError: a parameter is unknown, malformed or out of its range, a file cannot be read, or
            a set cannot be fetched; names the parameter, or file and row.

    Example:
        >>> rows = [{"question": "What is the capital of France?", "references": "Paris"}]
        >>> questions = load_questions("capitals", path=rows, n_shots=0)
        >>> questions.prompts()
        ['Question: What is the capital of France?\nAnswer:']
    """
    for parameter, value, least in (
        ("limit", limit, 1),
        ("n_shots", n_shots, 0),
        ("n_validation", n_validation, 0),
        ("seed", seed, 0),
    ):
        if value is not None and (type(value) is not int or value < least):
            raise RunError(f"{parameter}={value!r} must be a whole number, at least {least}")
    path = Path(not_empty(path, "path")) if isinstance(path, str) else path
    digest = None
    if isinstance(path, Path) and path.is_file():
        with reading(path):  # before its questions are read, so that a later change is seen
            digest = sha256(path.read_bytes())
    options = {"row": row, "separator": separator, "strict": strict}
    rows = _all_questions(not_empty(name, "name"), path, columns or {}, options)
    table = rows.table
    name = unzipped(source_path(path, "questions")).stem if name is None else name  # type: ignore[arg-type]
    existing_splits = list(dict.fromkeys(table["split"]))
    # The usual number of shots is smaller if there are fewer, or if the file is small.
    n_for_shots = (table["split"] == SHOTS).sum() or len(table) // 4
    usual_shots = int(min(_N_SHOTS, n_for_shots))
    n_shots = usual_shots if n_shots is None else n_shots
    splits = [split] if isinstance(split, str) else list(dict.fromkeys(split or ()))
    if split is None:
        splits = [each for each in existing_splits if each != SHOTS or n_shots == 0]
    shots = None
    if n_shots > 0 and SHOTS not in existing_splits:
        shots = table.iloc[hash_order(table)[:n_shots]]
        table = without_texts(table, shots).reset_index(drop=True)
    if n_validation is not None and "validation" not in existing_splits:
        # A validation split that was not requested must have all `n_validation` questions.
        n_texts = len(np.unique(question_groups(table[table["split"] == "test"])))
        if "validation" in splits or n_texts // 2 >= n_validation:
            table = lend_validation(table, n_validation, lender=f"dataset {name!r}")
    _check_splits(splits or [split], set(table["split"]), name, n_shots)
    selected = table.iloc[limited_rows(table, splits, limit, seed)].reset_index(drop=True)
    warn_of_repeats(selected, f"dataset {name!r}")
    if shots is None:  # from `train_shots`, without the texts of the questions to ask
        candidates = without_texts(table[table["split"] == SHOTS], selected)
        if n_shots > len(candidates):
            words = f"dataset {name!r} has only {len(candidates)} questions for shots"
            raise RunError(f"n_shots={n_shots} is too large: {words}")
        # Always the same draw, so that all runs of a set have the same prompt.
        shots = candidates.iloc[np.random.default_rng(0).permutation(len(candidates))[:n_shots]]
    source = {
        "dataset": name,
        "path": str(path) if isinstance(path, Path) else None,
        "digest": digest,
        "columns": rows.columns,
        "split": splits,
        "limit": limit,
        "n_validation": n_validation,
        "seed": seed,
        "n_shots": len(shots),
        "usual_shots": usual_shots,
    }
    pairs = tuple(zip(shots["question"], shots["references"].str[0], strict=True))
    return QuestionSet(name, selected, pairs, header, template, source)


def _all_questions(
    name: str | None, path: Source | None, columns: Mapping, options: dict[str, Any]
) -> QuestionRows:
    """Return the questions of all splits, and the columns of a user's file that were read."""
    folder = path if isinstance(path, Path) and (path / "dataset_dict.json").is_file() else None
    if path is not None and folder is None:
        return read_questions(path, columns, **options)
    if name in HUB:
        return QuestionRows(questions_from_hub(name, folder), {})
    if folder:
        words = f"is a saved dataset; say which with name=, one of {', '.join(HUB)}"
        raise RunError(f"folder {folder} {words}")
    if name not in BUNDLED:
        words = f"is unknown; choose {', '.join(NAMES)}, or give path= to a file"
        raise RunError(f"dataset {name!r} {words}")
    table = _bundled_questions(name)
    return QuestionRows(table.assign(references=table["references"].map(list)), {})


# An experiment loads its questions many times, and the bundled file does not change.
@lru_cache(len(BUNDLED))
def _bundled_questions(name: str) -> pd.DataFrame:
    """Return the questions of a bundled set.

    The caller must copy what it changes.
    """
    fact_columns = {
        "question_id": "fact_id",
        "question": BUNDLED[name],
        "references": ["answer", "aliases"],
    }
    rows = read_questions(DATA / "world_facts" / "facts.jsonl", fact_columns)
    return rows.table[[*QUESTION_COLUMNS, "relation", "exposure", "conflict"]]


# --- Splits ---


def _check_splits(splits: Sequence, existing: Set[str], dataset: str, n_shots: int) -> None:
    """Raise `RunError` if a requested split does not exist."""
    missing = [name for name in splits if name not in existing]
    if missing:
        reason = f"it has {', '.join(sorted(existing))}; None means all"
        if not existing:
            reason = f"the {n_shots} shots use all of its questions; lower n_shots"
        raise RunError(f"split={missing[0]!r} is not in dataset {dataset!r}; {reason}")


def lend_validation(
    table: pd.DataFrame, n: int | None, seed: int = 0, *, lender: str, pool: int = 1
) -> pd.DataFrame:
    """Return the table with some of its test questions as a validation split.

    Texts are drawn, so that questions with the same text stay in one split. At most half of the
    texts are drawn, with a warning if that is less than `n`.

    Args:
        table: one row per question, with the column split.
        n: the number of texts that are needed; None for half of the texts.
        seed: the seed of the draw.
        lender: the name of the source in the warning.
        pool: the number of texts to draw, as a multiple of `n`.
    """
    test_rows = np.flatnonzero(table["split"] == "test")
    groups = question_groups(table.iloc[test_rows])
    n_texts = len(np.unique(groups))
    half = n_texts // 2
    size = half if n is None else min(half, pool * n)
    if n is not None and 0 < size < n:
        words = f"only {size} of its {n_texts} questions are used for validation, not {n}"
        message = f"{lender} has no validation split, and {words}"
        warnings.warn(message, UserWarning, stacklevel=3)
    _, first_places = np.unique(groups, return_index=True)
    drawn_groups = hash_order(table.iloc[test_rows[first_places]], seed)[:size]
    validation_rows = test_rows[np.isin(groups, drawn_groups)]
    is_validation = np.isin(np.arange(len(table)), validation_rows)
    return table.assign(split=np.where(is_validation, "validation", table["split"]))


def limited_rows(
    table: pd.DataFrame, splits: Sequence[str], limit: int | None, seed: int
) -> list[int]:
    """Return the rows of at most `limit` questions of each split, in the order of the table.

    The arguments are those of `load_questions`.
    """
    rows: list[int] = []
    for split in splits:
        split_rows = np.flatnonzero(table["split"] == split)
        if limit is not None and limit < len(split_rows):
            first = hash_order(table.iloc[split_rows], seed)[:limit]
            split_rows = np.sort(split_rows[first])
        rows.extend(split_rows)
    return rows
