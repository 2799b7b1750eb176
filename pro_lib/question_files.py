"""All questions of a set as a table: one of ours, of the Hugging Face hub, or of a user's file; knows no prompt."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from pro_lib.bundled import DATA
from pro_lib.checks import Format, Name, SentenceError, extra
from pro_lib.files import RunError, fitted, regular
from pro_lib.readers import Identity, Source, Texts, called, once_each, read_rows, stem, validated
from pro_lib.store import CERTIFICATE_COLUMNS
from pro_lib.store import QUESTION_COLUMNS as COLUMNS

SPLITS = ("train_shots", "validation", "test")
# Name: column of the world facts that has its questions.
BUNDLED = {"world-facts": "question", "world-facts-reworded": "question_reworded"}
# Name: repository on the hub, configuration, column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}
# What files call our columns, the first that is there; of several that go together, all.
NAMES = {
    "question_id": [["question_id"], ["id"], ["qid"]],
    "question": [["question"], ["query"], ["prompt"], ["input"], ["problem"]],
    "references": [
        ["references"], ["answer", "aliases"], ["answers"], ["best_answer", "correct_answers"], ["correct_answer"],
        ["reference"], ["target"], ["targets"], ["gold"], ["expected"],
    ],
    "split": [["split"]],
}  # fmt: skip
# Enough to choose α on; where validation questions come out of the hub's train split, this many do.
N_VALIDATION = 1000


class QuestionsError(SentenceError):
    """A question file or a request for questions is wrong; the sentence names file, row or parameter."""


def _texts(values: Sequence[object]) -> list[str]:
    """Return the texts of all values, each once; a value may be missing, but not all of them."""
    there = [value for value in values if not (is_scalar(value) and pd.isna(value))]
    parts = [part for value in there for part in (value.split(";") if isinstance(value, str) else _parts(value))]
    if not all(isinstance(part, str) for part in parts):
        raise PydanticCustomError("rule", "must be text or lists of texts")
    texts = dict.fromkeys(part.strip() for part in parts if part.strip())
    if not texts:
        raise PydanticCustomError("rule", "must hold a text")
    return list(texts)


def _parts(value: object) -> list:
    """Return what a list holds, a number as text, or the texts of an object: its value and aliases, or its text."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [text for inner in value for text in ([inner] if isinstance(inner, str) else _parts(inner))]
    if isinstance(value, Mapping):
        return _parts([value[name] for name in ("text", "value", "aliases") if value.get(name) is not None])
    return [str(value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else [None]


_OneText = Annotated[Texts, Field(max_length=1)]


class _Columns(Format, extra="forbid"):
    """A file's names for our columns."""

    question_id: _OneText | None = None
    question: _OneText | None = None
    references: Texts | None = None
    split: _OneText | None = None


def apart(table: pd.DataFrame) -> pd.DataFrame:
    """Return questions whose columns have no name that runs need (`engine.Certificate`, `score_`): these get `own_`.

    A warning says so. Raises `RunError` for two columns of one name.
    """
    ours = {name: f"own_{name}" for name in table if name in CERTIFICATE_COLUMNS or str(name).startswith("score_")}
    if ours:
        words = f"columns of the questions get own_ before names that runs need: {', '.join(ours)}"
        warnings.warn(words, UserWarning, stacklevel=3)
        table = table.rename(columns=ours)
    return once_each(table, "the table of questions")


class _Question(Format):
    """A row of a question file."""

    question_id: Identity
    question: Name
    split: Name
    references: Annotated[list[str], BeforeValidator(_texts)]


@contextmanager
def _of_questions() -> Iterator[None]:
    """Turn what readers say of a file into a `QuestionsError`."""
    try:
        yield
    except RunError as error:
        raise QuestionsError(error) from error.__cause__


@_of_questions()
def read_all(name: str | None, path: Source | None, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Return all questions of all splits, and which columns of a file of the user's they were read from."""
    saved = isinstance(path, Path) and (path / "dataset_dict.json").is_file()
    if path is not None and not saved:
        return read_questions(path, columns)
    if name in HUB:
        return _from_hub(name, path if isinstance(path, Path) else None), {}
    if saved:
        raise QuestionsError(f"folder {path} is a saved dataset; say which with name=, one of {', '.join(HUB)}")
    if name not in BUNDLED:
        names = ", ".join([*BUNDLED, *HUB])
        raise QuestionsError(f"dataset {name!r} is unknown; choose {names}, or give path= to a file")
    ours = {"question_id": "fact_id", "question": BUNDLED[name], "references": ["answer", "aliases"]}
    table, _ = read_questions(DATA / "world_facts" / "facts.jsonl", ours)
    return table[[*COLUMNS, "relation", "exposure", "conflict"]], {}


def read_questions(path: Source, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Return the questions of a file or in memory, and its columns that ours were read from; `columns` as in `load`."""
    names = fitted(_Columns, columns, "columns=").model_dump(exclude_none=True)
    file, table = called(path, "questions"), read_rows(path)
    if table.empty:
        raise QuestionsError(f"{file} holds no questions")
    groups = {name: [[column for column in group if column in table] for group in NAMES[name]] for name in COLUMNS}
    used = {name: next(filter(None, theirs)) for name, theirs in groups.items() if any(theirs)} | names
    needed = {"question": ["question"], "references": ["references"]} | used
    missing = [name for theirs in needed.values() for name in theirs if name not in table]
    if missing:
        has = ", ".join(map(str, table.columns))
        raise QuestionsError(f"{file} has no column {missing[0]!r}, nor does columns= say its name; it has {has}")
    ours = {column: table[theirs[0]] for column, theirs in used.items() if column != "references"}
    ours = {"question_id": [f"{stem(file)}-{n}" for n in range(len(table))], "split": "test"} | ours
    renamed = {name for theirs in used.values() for name in theirs} - {*COLUMNS, *used["references"]}
    return _checked(table.drop(columns=list(renamed)).assign(**ours), used["references"]), used


def _checked(table: pd.DataFrame, reference_columns: Sequence[str]) -> pd.DataFrame:
    """Return the table with all of `COLUMNS`, each question with an id of its own, text and at least one reference.

    The table's index says where its rows come from. Raises `QuestionsError` with that place and the column.
    """
    references = list(zip(*(table[name] for name in reference_columns), strict=True))
    records = table[["question_id", "question", "split"]].assign(references=references).to_dict("records")
    rows = [row for _, row in validated(_Question, zip(table.index, records, strict=True))]
    others = [name for name in table if name not in (*COLUMNS, *reference_columns)]
    ours = {name: [getattr(row, name) for row in rows] for name in ("question_id", "references")}
    # Whole numbers among which some are missing would become floats.
    whole = {name: table[name].infer_objects() for name in others if table[name].notna().all()}
    return table.assign(**ours, **whole)[[*COLUMNS, *others]].reset_index(drop=True)


def _from_hub(name: str, folder: Path | None) -> pd.DataFrame:
    """Return every question with an answer of a set of the hub, or of a folder that `save_to_disk` has made of it.

    Where the hub's test split is missing or has no answers, `test` is its validation split, and `validation` is part
    of its train split. The rest of that is `train_shots`, without the questions of the other two.
    """
    parts = _downloaded(name, folder)
    if not len(parts.get("test", ())):
        parts["test"] = parts.pop("validation", ())
    if not len(parts["test"]) or "train" not in parts:
        raise QuestionsError(f"dataset {name!r} has no split with answers to ask, or none to take shots from")
    train = parts.pop("train").drop_duplicates("question")
    for part in parts.values():
        train = train[~train["question_id"].isin(part["question_id"]) & ~train["question"].isin(part["question"])]
    if not len(parts.get("validation", ())):
        # Always the same draw, so that validation questions, and shots, are the same whatever else is asked for.
        order = np.random.default_rng(0).permutation(len(train))
        n_validation = min(N_VALIDATION, len(train) // 2)
        parts["validation"], train = (train.iloc[np.sort(o)] for o in (order[:n_validation], order[n_validation:]))
    parts["train_shots"] = train
    table = pd.concat([part.assign(split=split) for split, part in parts.items()], ignore_index=True)
    return _checked(table.set_axis([f"dataset {name!r}, question {n + 1}" for n in table.index]), ["references"])


def _downloaded(name: str, folder: Path | None) -> dict[str, pd.DataFrame]:
    """Return the splits of a set with question_id, question and references, without repeated ids and unanswered."""
    with extra("notebooks", f"dataset {name!r} of the hub"):
        import datasets  # it takes a second, and only sets from the hub need it

    repository, configuration, answer = HUB[name]
    parts = {}
    try:
        for path in folder.rglob("*") if folder else ():
            if not path.is_dir():
                regular(path)
        loaded = datasets.load_from_disk(folder) if folder else datasets.load_dataset(repository, configuration)
        for split in [split for split in loaded if split in ("test", "validation", "train")]:
            rows, ids = loaded[split], [f"{name}-{split}-{n}" for n in range(len(loaded[split]))]
            ids = rows["question_id"][:] if "question_id" in rows.column_names else ids
            # TriviaQA writes `<unk>` where it keeps the answer to itself.
            texts = [[text for text in _parts([value]) if text] for value in rows[answer][:]]
            references = [[text for text in some if text.strip() not in ("", "<unk>")] for some in texts]
            table = pd.DataFrame({"question_id": ids, "question": rows["question"][:], "references": references})
            parts[split] = table[table["references"].str.len() > 0].drop_duplicates("question_id")
    except Exception as problem:  # whatever the library's HTTP client, its cache or Arrow raised, or a lost column
        where = f"folder {folder}" if folder else f"the Hugging Face hub ({repository})"
        advice = "" if folder else "; without a network, give path= to a folder that save_to_disk() made elsewhere"
        reason = problem or repr(problem)
        raise QuestionsError(f"dataset {name!r} cannot be loaded from {where}: {reason}{advice}") from problem
    return parts
