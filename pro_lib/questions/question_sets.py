"""Question sets: bundled, from the Hugging Face hub or from files, with their splits and few-shot prompts."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import AfterValidator

from pro_lib.common.catalog import BUNDLED, DATA, HUB
from pro_lib.common.files import FOLDER_NAME, RunError, is_folder_name, reading, regular
from pro_lib.common.validation import checked, extra, not_empty, refusing, rule
from pro_lib.questions.file_readers import Source, check_names, source_path, unzipped
from pro_lib.questions.prompts import (
    TEMPLATE,
    Template,
    chat_messages,
    few_shot_prefix,
    filled_template,
)
from pro_lib.questions.question_files import QuestionRows, read_question_rows, read_questions
from pro_lib.questions.references import texts_in
from pro_lib.questions.repeats import question_groups, text_groups, warn_of_repeats
from pro_lib.runs.storage import CERTIFICATE_COLUMNS, QUESTION_COLUMNS

SPLITS = ("train_shots", "validation", "test")
NAMES = (*BUNDLED, *HUB)

# Run folders are named after the question set.
FolderName = Annotated[str, rule(str, is_folder_name, f"must be usable as {FOLDER_NAME}")]


def rename_reserved(table: pd.DataFrame) -> pd.DataFrame:
    """Return questions whose columns have no name that runs need (`runs.Certificate`, `score_`): these get `own_`.

    A warning says so. Raises `RunError` for two columns of one name.
    """
    ours = {
        name: f"own_{name}"
        for name in table
        if name in CERTIFICATE_COLUMNS or str(name).startswith("score_")
    }
    if ours:
        warnings.warn(
            f"columns of the questions get own_ before names that runs need: {', '.join(ours)}",
            stacklevel=3,
        )
    table = table.rename(columns=ours)
    check_names(table, "the table of questions")
    return table


@checked
class QuestionSet:
    """Questions to ask and how to ask them.

    `table` has a row per question: question_id, question, references (a list), split, and what the dataset adds
    (world facts: relation, exposure, conflict). A prompt is the header, the shots, and the question in the template;
    a shot answers with its first reference. `source` tells, as JSON can hold it, where the questions come from and how
    they were drawn: dataset or path, split, limit, seed, n_shots, and the columns that were read. `left_out` has the
    ids and texts of questions in the file that cannot be used, so that answers to them can be left out too.
    """

    name: FolderName
    table: Annotated[pd.DataFrame, AfterValidator(rename_reserved)]
    shots: tuple[tuple[str, str], ...] = ()
    header: str = ""
    template: Template = TEMPLATE
    source: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"QuestionSet({self.name}: {len(self):,} questions, {len(self.shots)} shots)"

    @property
    def has_own_ids(self) -> bool:
        """Whether question_id came with the questions; else it is made of the row's number."""
        return self.source.get("path") is None or "question_id" in self.source.get("columns", {})

    def prefix(self) -> str:
        """Return what all prompts begin with: header and shots."""
        return few_shot_prefix(self.shots, header=self.header, template=self.template)

    def prompts(self) -> list[str]:
        """Return the prompts, in the order of the table."""
        prefix = self.prefix()
        return [
            prefix + filled_template(self.template, question) for question in self.table["question"]
        ]

    def chats(self) -> list[list[dict[str, str]]]:
        """Return the prompts as conversations, in the order of the table: the shots as earlier turns."""
        settings = {"header": self.header, "template": self.template}
        return [
            chat_messages(question, self.shots, **settings) for question in self.table["question"]
        ]

    def parameters(self, *, chat: bool | Mapping = False) -> dict[str, Any]:
        """Return what of the prompt decides the answers of a run, as JSON can hold it; `chat` only where it is true."""
        shots = [list(shot) for shot in self.shots]
        return {"header": self.header, "template": self.template, "shots": shots} | (
            {"chat": chat} if chat else {}
        )

    def changes(self, *, chat: bool | Mapping = False) -> dict[str, Any]:
        """Return what is not by default in how the questions are asked; it goes into the name of a run folder."""
        default = {
            "n_shots": self.source.get("usual_shots", len(self.shots)),
            "header": "",
            "template": TEMPLATE,
        }
        settings = {
            "n_shots": len(self.shots),
            "header": self.header,
            "template": self.template,
            "chat": chat,
        }
        return {
            name: value for name, value in settings.items() if value != default.get(name, False)
        }

    def with_questions(self, questions: Any) -> "QuestionSet":
        """Return another question, a text, or several texts, asked in the same way; they have no references."""
        several = isinstance(questions, Iterable) and not isinstance(questions, str)
        given = list(questions) if several else [questions]
        for n, text in enumerate(given, start=1):
            if not isinstance(text, str) or not text.strip():
                raise RunError(
                    f"question {n} of {len(given)} is empty" if several else "question is empty"
                )
        rows = {
            "question_id": [f"asked-{n}" for n in range(len(given))],
            "question": map(str.strip, given),
        }
        return replace(self, table=pd.DataFrame({**rows, "references": None, "split": None}))


def as_set(questions: QuestionSet | str | Source) -> QuestionSet:
    """Return a question set as it is; one of texts, or of rows as `load_questions` takes them, asked without shots."""
    if isinstance(questions, QuestionSet):
        return questions
    rows = isinstance(questions, Sequence) and any(isinstance(row, Mapping) for row in questions)
    if rows or isinstance(questions, pd.DataFrame):
        return load_questions("asked", path=questions, split=None, n_shots=0)
    return QuestionSet("asked", pd.DataFrame()).with_questions(questions)


def empty_question_set(parameters: Mapping[str, Any]) -> QuestionSet:
    """Return a set without questions of its own, which asks as a run with these parameters did."""
    shots = tuple((question, answer) for question, answer in parameters["shots"])
    return QuestionSet("asked", pd.DataFrame(), shots, parameters["header"], parameters["template"])


def load_questions(
    name: str | None = None,
    *,
    path: Source | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    split: str | Sequence[str] | None = "test",
    limit: int | None = None,
    seed: int = 0,
    n_shots: int | None = None,
    n_validation: int | None = None,
    header: str = "",
    template: str = TEMPLATE,
    strict: bool = False,
) -> QuestionSet:
    """Load a bundled question set, one from the Hugging Face hub, or questions from files.

    Args:
        name: a name in `NAMES`; with `path`, a name for the set (the file's stem if None).
        path: a `.jsonl`, `.csv` or `.parquet` file with columns question and references (a list, or a text separated
            by `;`), and optionally question_id, split and others. Or such rows in memory, a list of dicts or a
            DataFrame. Or, with the name of a hub set, a folder that `save_to_disk` has made.
        columns: what the columns of a file are called, as `{"question": "query", "references": ["answer", "aliases"]}`.
        split: a split or several, None for all; a file without a split column is one `test` split.
        limit: at most this many questions of each split, drawn with `seed` and kept in order.
        seed: of that draw; the shots do not depend on it.
        n_shots: number of shots out of `train_shots`; None for 10. A file without that split has so many questions,
            always the same ones, set apart and never asked; with None, of a small file a quarter at most.
        n_validation: of files without a validation split, this many of the questions become one, always the same ones,
            at most half; None takes the splits as they are. Questions with the same text stay in one split and count
            as one.
        header: text before the shots.
        template: how a question is put; `{question}` stands for it.
        strict: whether a row of a file that cannot be used is an error. By default such rows, without a question or
            without an answer, are left out, and a warning counts them.

    Raises `ValueError`, which names file and row, or the parameter, for what is unknown, malformed or out of its range,
    and where a set cannot be fetched.
    """
    numbers = {
        "limit": (limit, 1),
        "n_shots": (n_shots, 0),
        "n_validation": (n_validation, 0),
        "seed": (seed, 0),
    }
    for number, (value, least) in numbers.items():
        if value is not None and (type(value) is not int or value < least):
            raise RunError(f"{number}={value!r} must be a whole number, at least {least}")
    path = Path(not_empty(path, "path")) if isinstance(path, str) else path
    not_empty(name, "name")
    read = _read(name, path, columns or {}, strict=strict)
    table, used = read.table, read.columns
    name = unzipped(source_path(path, "questions")).stem if name is None else name
    splits = list(
        dict.fromkeys(
            table["split"] if split is None else [split] if isinstance(split, str) else split
        )
    )
    usual_shots = int(min(10, (table["split"] == "train_shots").sum() or len(table) // 4))
    n_shots = usual_shots if n_shots is None else n_shots
    if split is None and n_shots > 0:
        splits = [part for part in splits if part != "train_shots"]  # they are not asked
    shots = None
    if n_shots > 0 and "train_shots" not in set(table["split"]):
        shots = _shots(table, n_shots)
        table = _without_texts(table, shots).reset_index(drop=True)
    if n_validation is not None and "validation" not in set(table["split"]):
        # A split that is not asked for is lent whole or not at all.
        lends = "validation" in splits or _n_texts(table, "test") // 2 >= n_validation
        table = lend_validation(table, n_validation, lender=f"dataset {name!r}") if lends else table
    missing = [part for part in splits if part not in set(table["split"])]
    if missing or not splits:
        has = ", ".join(sorted(set(table["split"]))) or f"nothing left beside {n_shots} shots"
        raise RunError(
            f"split={(missing or [split])[0]!r} is not in dataset {name!r}; it has {has}"
        )
    drawn: list[int] = []
    for rows in (np.flatnonzero(table["split"] == part) for part in splits):
        size = min(limit or len(rows), len(rows))
        drawn.extend(np.sort(np.random.default_rng(seed).choice(rows, size=size, replace=False)))
    chosen = table.iloc[drawn].reset_index(drop=True)
    warn_of_repeats(chosen, f"dataset {name!r}")
    if shots is None:
        pool = _without_texts(table[table["split"] == "train_shots"], chosen)
        if n_shots > len(pool):
            raise RunError(
                f"n_shots={n_shots}: dataset {name!r} has {len(pool)} questions for shots"
            )
        shots = _shots(pool, n_shots)
    file = str(path) if isinstance(path, Path) else None
    source: dict[str, Any] = {
        "dataset": name,
        "path": file,
        "columns": used,
        "split": splits,
        "limit": limit,
    }
    source |= {
        "n_validation": n_validation,
        "seed": seed,
        "n_shots": len(shots),
        "usual_shots": usual_shots,
    }
    pairs = tuple(zip(shots["question"], shots["references"].str[0], strict=True))
    return QuestionSet(name, chosen, pairs, header, template, source, read.left_out)


def lend_validation(
    table: pd.DataFrame, n: int | None, seed: int = 0, *, lender: str, pool: int = 1
) -> pd.DataFrame:
    """Return the table with `pool` times `n` of its test questions, drawn with `seed`, as a validation split.

    At most half of them are taken, with a warning that names the `lender` where that is less than `n`; half if `n` is
    None; none of a single question. Texts are drawn, so that questions with the same text stay in one split.
    """
    test = np.flatnonzero(table["split"] == "test")
    texts = question_groups(table.iloc[test])
    n_texts = len(np.unique(texts))
    half = n_texts // 2
    size = half if n is None else min(half, pool * n)
    if n is not None and 0 < size < n:
        message = f"{lender} has no validation split: {size} of its {n_texts} questions are taken for one, not {n}"
        warnings.warn(message, UserWarning, stacklevel=3)
    drawn = np.random.default_rng(seed).choice(n_texts, size=size, replace=False)
    validation = test[np.isin(texts, drawn)]
    return table.assign(
        split=np.where(np.isin(np.arange(len(table)), validation), "validation", table["split"])
    )


def _read(name: str | None, path: Source | None, columns: Mapping, *, strict: bool) -> QuestionRows:
    """Return all questions of all splits, and which columns of a file of the user's they were read from."""
    folder = path if isinstance(path, Path) and (path / "dataset_dict.json").is_file() else None
    if path is not None and folder is None:
        return read_question_rows(path, columns, strict=strict)
    if name in HUB:
        return QuestionRows(_from_hub(name, folder), {}, {})
    if folder:
        raise RunError(
            f"folder {folder} is a saved dataset; say which with name=, one of {', '.join(HUB)}"
        )
    if name not in BUNDLED:
        raise RunError(
            f"dataset {name!r} is unknown; choose {', '.join(NAMES)}, or give path= to a file"
        )
    ours = {
        "question_id": "fact_id",
        "question": BUNDLED[name],
        "references": ["answer", "aliases"],
    }
    table, _ = read_questions(DATA / "world_facts" / "facts.jsonl", ours)
    return QuestionRows(table[[*QUESTION_COLUMNS, "relation", "exposure", "conflict"]], {}, {})


def _from_hub(name: str, folder: Path | None) -> pd.DataFrame:
    """Return every question with an answer of a set of the hub, or of a folder that `save_to_disk` has made of it.

    Where the hub's test split is missing or has no answers, `test` is its validation split, and `validation` is part
    of its train split. The rest of that is `train_shots`, without the questions of the other two.
    """
    table = _downloaded(name, folder)
    if "test" not in set(table["split"]):
        table["split"] = table["split"].replace("validation", "test")
    if not {"test", "train"} <= set(table["split"]):
        raise RunError(
            f"dataset {name!r} has no split with answers to ask, or none to take shots from"
        )
    others, train = (
        table[table["split"] != "train"],
        table[table["split"] == "train"].drop_duplicates("question"),
    )
    train = train[
        ~train["question_id"].isin(others["question_id"])
        & ~train["question"].isin(others["question"])
    ]
    # Always the same draw, so that validation questions, and shots, are the same whatever else is asked for.
    n = (
        0 if "validation" in set(others["split"]) else min(1000, len(train) // 2)
    )  # enough to choose α on
    drawn = np.isin(np.arange(len(train)), np.random.default_rng(0).permutation(len(train))[:n])
    validation = _without_texts(train[drawn], others)
    ours = [
        others,
        validation.assign(split="validation"),
        train[~drawn].assign(split="train_shots"),
    ]
    table = pd.concat(ours, ignore_index=True)
    return read_questions(
        table.set_axis([f"dataset {name!r}, question {n + 1}" for n in table.index]), {}
    )[0]


def _downloaded(name: str, folder: Path | None) -> pd.DataFrame:
    """Return the questions of a set with their ids, references and splits, without repeated ids and unanswered."""
    with extra("notebooks", f"dataset {name!r} of the hub"):
        import datasets  # it takes a second, and only sets from the hub need it

    repository, configuration, answer = HUB[name]
    hub = f"the Hugging Face hub ({repository}); without a network, path= takes a folder that save_to_disk() made"
    parts = []
    with refusing(RunError, f"dataset {name!r} cannot be loaded from {folder or hub}"):
        for path in folder.rglob("*") if folder else ():
            if not path.is_dir():
                regular(path)
            if path.suffix == ".arrow":
                _check_arrow(path)
        loaded = (
            datasets.load_from_disk(folder)
            if folder
            else datasets.load_dataset(repository, configuration)
        )
        for split in [split for split in loaded if split in ("test", "validation", "train")]:
            rows, ids = loaded[split], [f"{name}-{split}-{n}" for n in range(len(loaded[split]))]
            ids = rows["question_id"][:] if "question_id" in rows.column_names else ids
            # TriviaQA writes `<unk>` where it keeps the answer to itself.
            texts = [texts_in(value) for value in rows[answer][:]]
            references = [
                [text for text in some if text and text.strip() not in ("", "<unk>")]
                for some in texts
            ]
            part = {
                "question_id": ids,
                "question": rows["question"][:],
                "references": references,
                "split": split,
            }
            parts.append(
                pd.DataFrame(part)[list(map(bool, references))].drop_duplicates("question_id")
            )
        return pd.concat(parts)


def _check_arrow(path: Path) -> None:
    """Raise `RunError` for a damaged Arrow file; its offsets are followed unchecked later and may end the process."""
    with reading(path, hint="save the dataset again"), pa.OSFile(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            batch.validate(full=True)


def _n_texts(table: pd.DataFrame, split: str) -> int:
    """Count the different texts of a split."""
    return len(np.unique(question_groups(table[table["split"] == split])))


def _without_texts(table: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the questions whose text is not the text of one of the others."""
    both = pd.concat([table["question"], others["question"]])
    groups = text_groups(both)
    return table[~np.isin(groups[: len(table)], groups[len(table) :])]


def _shots(table: pd.DataFrame, n_shots: int) -> pd.DataFrame:
    """Return always the same draw, whatever else is asked, so that runs of a set have one prompt and go together."""
    return table.iloc[np.random.default_rng(0).permutation(len(table))[:n_shots]]
