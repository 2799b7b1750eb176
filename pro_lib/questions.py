"""Question sets by name or from files, their splits, and the few-shot prompt; knows no model and no answer."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.checks import PositiveInt, PositiveShare, checked, rule
from pro_lib.hub import HUB, from_hub
from pro_lib.question_files import BUNDLED, COLUMNS, SPLITS, QuestionsError, bundled_questions, read_questions
from pro_lib.readers import Source, called
from pro_lib.shown import shown

__all__ = ["BUNDLED", "COLUMNS", "HUB", "NAMES", "SPLITS", "QuestionSet", "QuestionsError", "load"]
NAMES = (*BUNDLED, *HUB)
TEMPLATE = "Question: {question}\nAnswer:"

# Run folders are called after it, and must stay where they belong.
FolderName = rule(
    str,
    lambda name: name.strip() not in ("", ".", "..") and not any(c in "/\\" or ord(c) < 32 for c in name),
    "of a question set must do as the name of a folder",
)
Template = rule(str, lambda template: "{question}" in template, "must contain {question}")


@shown(lambda asked: f"{asked.name}: {len(asked):,} questions, {len(asked.shots)} shots")
@checked
class QuestionSet:
    """Questions to ask and how to ask them.

    `table` has a row per question: question_id, question, references (a list), split, and what the dataset adds
    (world facts: relation, exposure, conflict). A prompt is the header, the shots, and the question in the template;
    a shot answers with its first reference.
    `source` tells where the questions come from and how they were drawn, as JSON can hold it: dataset or path, split,
    limit, fraction, seed, n_shots, and the columns that were read.
    """

    name: FolderName
    table: pd.DataFrame
    shots: tuple[tuple[str, str], ...] = ()
    header: str = ""
    template: Template = TEMPLATE
    source: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.table)

    def prefix(self) -> str:
        """What all prompts begin with: header and shots."""
        return self.header + "".join(f"{self._ask(question)} {answer}\n\n" for question, answer in self.shots)

    def prompts(self) -> list[str]:
        """The prompts, in the order of the table."""
        prefix = self.prefix()
        return [prefix + self._ask(question) for question in self.table["question"]]

    def chats(self) -> list[list[dict[str, str]]]:
        """The prompts as conversations, in the order of the table: the shots as earlier turns, the header in front.

        The header opens the first message and is no system message, which some chat templates refuse.
        """
        earlier = [text for question, answer in self.shots for text in (self._ask(question), answer)]
        chats = []
        for question in self.table["question"]:
            first, *rest = [*earlier, self._ask(question)]
            chats.append([{"role": "user", "content": self.header + first}])
            chats[-1] += [{"role": ("assistant", "user")[n % 2], "content": text} for n, text in enumerate(rest)]
        return chats

    def parameters(self, *, chat: bool | Mapping = False) -> dict[str, object]:
        """What of the prompt decides the answers of a run, as JSON can hold it; `chat` only where it is true."""
        shots = [list(shot) for shot in self.shots]
        return {"header": self.header, "template": self.template, "shots": shots} | ({"chat": chat} if chat else {})

    def apart(self, *, chat: bool | Mapping = False) -> dict[str, object]:
        """What is not by default in how the questions of this set are asked; it goes into the name of a run folder."""
        default = {"n_shots": self.source.get("usual_shots", len(self.shots)), "header": "", "template": TEMPLATE}
        asked = {"n_shots": len(self.shots), "header": self.header, "template": self.template, "chat": chat}
        return {name: value for name, value in asked.items() if value != default.get(name, False)}

    def with_questions(self, questions: str | Iterable[str]) -> "QuestionSet":
        """Another question, or others, asked in the same way; they have no references."""
        several = isinstance(questions, Iterable) and not isinstance(questions, str)
        questions = list(questions) if several else [questions]
        for n, text in enumerate(questions, start=1):
            if not isinstance(text, str) or not text.strip():
                raise QuestionsError(f"question {n} of {len(questions)} is empty" if several else "question is empty")
        ids, texts = [f"asked-{n}" for n in range(len(questions))], [text.strip() for text in questions]
        rows = {"question_id": ids, "question": texts}
        return replace(self, table=pd.DataFrame({**rows, "references": None, "split": None}))

    def _ask(self, question: str) -> str:
        return self.template.replace("{question}", question)


def asked(questions: QuestionSet | str | Source) -> QuestionSet:
    """A question set as it is; one of texts, or of rows as `load` takes them, asked without shots."""
    if isinstance(questions, QuestionSet):
        return questions
    rows = isinstance(questions, Sequence) and any(isinstance(each, Mapping) for each in questions)
    if rows or isinstance(questions, pd.DataFrame):
        return load("asked", path=questions, split=None)
    return QuestionSet("asked", pd.DataFrame()).with_questions(questions)


def like(parameters: Mapping[str, Any], *, name: str = "asked") -> QuestionSet:
    """A set without questions of its own, which asks as a run with these parameters did."""
    shots = tuple((question, answer) for question, answer in parameters["shots"])
    return QuestionSet(name, pd.DataFrame(), shots, parameters["header"], parameters["template"])


@checked
class _Draw:
    """At most so many questions, and at most this part, of each split, kept in order."""

    limit: PositiveInt | None
    fraction: PositiveShare | None
    seed: Any

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        part = len(table) if self.fraction is None else max(1, round(self.fraction * len(table)))
        size = part if self.limit is None else min(self.limit, part)
        return table if size >= len(table) else table.iloc[np.sort(_drawn(len(table), size, self.seed))]


def load(
    name: str | None = None,
    *,
    path: Source | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    split: str | Sequence[str] | None = "test",
    limit: int | None = None,
    fraction: float | None = None,
    seed: int = 0,
    n_shots: int | None = None,
    n_validation: int | None = None,
    header: str = "",
    template: str = TEMPLATE,
) -> QuestionSet:
    """Load a bundled question set, one from the Hugging Face hub, or questions from files.

    Args:
        name: `world-facts` or `world-facts-reworded` (bundled), `trivia_qa`, `sciq` or `nq` (from
            the hub); with `path`, a name for the set (the file's stem if None).
        path: a `.jsonl`, `.csv` or `.parquet` file with columns question and references (a list, or a text separated
            by `;`), and optionally question_id and split; further columns are kept. Or such rows in memory, a list of
            dicts or a DataFrame. Or, with the name of a hub set, a folder that `save_to_disk` has made.
        columns: what the columns are called, as `{"question": "query", "references": ["answer", "aliases"]}`.
        split: a split or several, None for all; a file without a split column is one `test` split. `imports.hub` says
            what the splits of a hub set are.
        limit: at most this many questions of each split, drawn with `seed` and kept in order.
        fraction: at most this part of each split, in (0, 1], drawn likewise.
        seed: of that draw; the shots do not depend on it.
        n_shots: number of shots (0 for files, else 10), out of `train_shots`; a file without that split has so many
            questions, always the same ones, set apart and never asked.
        n_validation: of files without a validation split, this many of the questions become one, always the same ones,
            at most half; None takes the splits as they are.
        header: text before the shots.
        template: how a question is put; `{question}` stands for it.

    Raises:
        QuestionsError: an unknown name, split or column, a set that cannot be fetched, or a file that is malformed.
        ValueError: a parameter out of its range.
    """
    draw = _Draw(limit, fraction, seed)
    path = Path(path) if isinstance(path, str) else path
    table, used = _everything(name, path, columns or {})
    if name is None:
        name = called(path, "questions").stem
    splits = list(dict.fromkeys(table["split"] if split is None else [split] if isinstance(split, str) else split))
    usual_shots = 0 if used else 10
    n_shots = usual_shots if n_shots is None else n_shots
    shots = None
    if n_shots > 0 and "train_shots" not in set(table["split"]):
        shots = _first(table, n_shots)
        table = table[~table["question"].isin(shots["question"])].reset_index(drop=True)
    if n_validation is not None:
        table = _with_validation(table, n_validation, wanted="validation" in splits, name=name)
    missing = [part for part in splits if part not in set(table["split"])]
    if missing or not splits:
        has = ", ".join(sorted(set(table["split"]))) or f"nothing left beside {n_shots} shots"
        raise QuestionsError(f"split={(missing or [split])[0]!r} is not in dataset {name!r}; it has {has}")
    asked = pd.concat([draw.of(table[table["split"] == part]) for part in splits], ignore_index=True)
    if shots is None:
        pool = table[(table["split"] == "train_shots") & ~table["question"].isin(asked["question"])]
        if not 0 <= n_shots <= len(pool):
            raise QuestionsError(f"n_shots={n_shots}: dataset {name!r} has {len(pool)} questions for shots")
        shots = _first(pool, n_shots)
    source = {"dataset": name, "path": str(path) if isinstance(path, Path) else None, "columns": used, "split": splits}
    source |= {"n_validation": n_validation, "limit": limit, "fraction": fraction, "seed": seed, "n_shots": len(shots)}
    source |= {"usual_shots": usual_shots}
    said = shots["references"].str[0]
    pairs = tuple(zip(shots["question"], said, strict=True))
    return QuestionSet(name, asked, pairs, header, template, source)


def _everything(name: str | None, path: Source | None, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """All questions of all splits, and which columns of a file of the user's they were read from."""
    saved = isinstance(path, Path) and (path / "dataset_dict.json").is_file()
    if path is not None and not saved:
        return read_questions(path, columns)
    if name in HUB:
        return from_hub(name, path), {}
    if saved:
        raise QuestionsError(f"folder {path} is a saved dataset; say which with name=, one of {', '.join(HUB)}")
    if name not in BUNDLED:
        known = ", ".join([*BUNDLED, *HUB])
        raise QuestionsError(f"dataset {name!r} is unknown; choose {known}, or give path= to a file")
    return bundled_questions(name).copy(), {}


def _with_validation(table: pd.DataFrame, n_validation: int, *, wanted: bool, name: str) -> pd.DataFrame:
    """The table with a validation split of its own, or else `n_validation` of its test questions as one.

    Where it is wanted, at most half of them are taken, with a warning; elsewhere none, if there are too few.
    """
    test = np.flatnonzero(table["split"] == "test")
    size = min(n_validation, len(test) // 2)
    if (table["split"] == "validation").any() or (size < n_validation and not wanted) or not size:
        return table
    if size < n_validation:
        message = f"dataset {name!r} has no validation split: {size} of its {len(test)} questions are taken for one"
        warnings.warn(f"{message}, not {n_validation}", UserWarning, stacklevel=3)
    drawn = np.isin(np.arange(len(table)), test[_drawn(len(test), size)])
    return table.assign(split=np.where(drawn, "validation", table["split"]))


def _drawn(n_rows: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(n_rows, size=size, replace=False)


def _first(table: pd.DataFrame, n_shots: int) -> pd.DataFrame:
    """Always the same draw: whatever else is asked, the prompt stays the same, so that runs of a set go together."""
    return table.iloc[np.random.default_rng(0).permutation(len(table))[:n_shots]]
