"""Question sets: questions, references, splits and the few-shot prompt they are asked with.

It knows files of questions and the layout of three sets on the Hugging Face hub; it does not know models, tokens or
answers that were generated.
"""

import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pro_lib.bundled import ROOT

WORLD_FACTS_DIR = ROOT / "data" / "world_facts"
BUNDLED = {"world-facts": "question", "world-facts-reworded": "question_reworded"}
# Name: repository on the hub, configuration, column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}
OTHER_NAMES = {"nq_open": "nq"}
NAMES = (*BUNDLED, *HUB, *OTHER_NAMES)
# Enough to choose α on; where validation questions come out of the hub's train split, this many do.
N_VALIDATION = 1000
SPLITS = ("train_shots", "validation", "test")
SPLIT_OF_FILE = {"train": "train_shots", "dev": "validation", **{split: split for split in SPLITS}}
COLUMNS = ("question_id", "question", "references", "split")
# Usual names of columns, the first that a file has; a column of aliases is added to that of answers.
USUAL_NAMES = {
    "question": ("question", "query", "prompt", "question_text", "input"),
    "references": ("references", "reference", "answers", "targets", "target", "correct_answer", "answer", "gold"),
}
ALIASES = ("aliases", "answer_aliases")
TEMPLATE = "Question: {question}\nAnswer:"


class QuestionsError(ValueError):
    """A question file or a request for questions is wrong; the sentence names file, row or parameter."""


@dataclass(frozen=True)
class QuestionSet:
    """Questions to ask and how to ask them.

    `table` has a row per question: question_id, question, references (a list), split, and what the dataset adds
    (world facts: relation, exposure, conflict). A prompt is the header, the shots, and the question in the template.
    `source` tells where the questions come from and how they were drawn, as JSON can hold it: dataset or path, split,
    limit, fraction, seed, n_shots, and the columns that were read.
    """

    name: str
    table: pd.DataFrame
    shots: tuple[tuple[str, str], ...] = ()
    header: str = ""
    template: str = TEMPLATE
    source: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self):
        # Run folders are called after it, and must stay where they belong.
        bad = not self.name.strip() or self.name in (".", "..") or any(c in "/\\" or ord(c) < 32 for c in self.name)
        if bad:
            raise QuestionsError(f"name={self.name!r} of a question set must do as the name of a folder")

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
        turns = [(self._ask(question), answer) for question, answer in self.shots]
        return [_turns(self.header, turns, self._ask(question)) for question in self.table["question"]]

    def with_questions(self, questions: Sequence[str]) -> "QuestionSet":
        """Other questions, asked in the same way; they have no references."""
        rows = {"question_id": [f"asked-{n}" for n in range(len(questions))], "question": list(questions)}
        return replace(self, table=pd.DataFrame({**rows, "references": None, "split": None}))

    def _ask(self, question: str) -> str:
        return self.template.replace("{question}", question)


def _turns(header: str, shots: Sequence[tuple[str, str]], question: str) -> list[dict[str, str]]:
    messages = [
        {"role": role, "content": text}
        for shot in shots
        for role, text in zip(("user", "assistant"), shot, strict=True)
    ]
    messages.append({"role": "user", "content": question})
    return [messages[0] | {"content": header + messages[0]["content"]}, *messages[1:]]


def load(
    name: str | None = None,
    *,
    path: str | Path | None = None,
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
        name: `world-facts` or `world-facts-reworded` (bundled), `trivia_qa`, `sciq` or `nq` (from the hub); with
            `path`, a name for the set (the file's stem if None).
        path: a `.jsonl`, `.csv` or `.parquet` file with columns question and references (a list, or a text separated
            by `;`), and optionally question_id and split; further columns are kept. Or a `.txt` file with a question
            on one line, answers separated by `;` on the next, and a blank line. Or a folder of files named after
            splits (train, validation, test). Or, with the name of a hub set, a folder that `save_to_disk` has made.
        columns: what the columns are called, as `{"question": "query", "references": ["answer", "aliases"]}`.
            Without it usual names are tried, and a warning says which were taken.
        split: a split or several, None for all there are; a file without a split column is one `test` split. Of a hub
            set whose test split is missing or has no answers, `test` is its validation split, and `validation` is
            1,000 of its train split.
        limit: at most this many questions of each split, drawn with `seed` and kept in order.
        fraction: at most this part of each split, in (0, 1], drawn likewise.
        seed: of that draw; the shots do not depend on it.
        n_shots: number of shots (0 for files, else 10). They come from `train_shots` where there is such a split, else
            so many questions of the file, always the same ones, are set apart and never asked.
        n_validation: of files without a validation split, this many of the questions become one, always the same ones,
            if there are twice as many; None takes the splits as they are.
        header: text before the shots.
        template: how a question is put; `{question}` stands for it.

    Raises:
        QuestionsError: an unknown name, split or column, a set that cannot be fetched, or a file that is empty,
            malformed or not UTF-8.
    """
    if "{question}" not in template:
        raise QuestionsError(f"template={template!r} must contain {{question}}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise QuestionsError(f"limit={limit!r} must be a positive whole number or None")
    if fraction is not None and not (type(fraction) in (int, float) and 0 < fraction <= 1):
        raise QuestionsError(f"fraction={fraction!r} must lie in (0, 1], or be None")
    name = OTHER_NAMES.get(name, name)
    everything, used = _everything(name, None if path is None else Path(path), columns or {})
    found = list(everything["split"]) if split is None else [split] if isinstance(split, str) else split
    splits = list(dict.fromkeys(found))
    wanted_shots = (0 if used else 10) if n_shots is None else n_shots
    set_apart = None
    if wanted_shots > 0 and not (everything["split"] == "train_shots").any():
        everything, set_apart = _set_apart(everything, wanted_shots, name or str(path))
    if n_validation is not None:
        everything = _with_validation(everything, n_validation, wanted="validation" in splits, name=name or str(path))
    guessed = {wanted: names for wanted, names in used.items() if names != [wanted] and wanted not in (columns or {})}
    if guessed:
        said = ", ".join(f"{' and '.join(map(repr, names))} as {wanted}" for wanted, names in guessed.items())
        warnings.warn(f"{path}: read {said}; columns= says so, or otherwise", UserWarning, stacklevel=2)
    if path is not None and name is None:
        name = Path(path).name if Path(path).is_dir() else Path(path).stem
    if not splits:
        raise QuestionsError(f"split={split!r} names no split")
    asked = pd.concat([_drawn(_of_split(everything, part, name), limit, fraction, seed) for part in splits])
    shots = _shots(everything, asked, wanted_shots, name) if set_apart is None else set_apart
    source = {"dataset": name, "path": None if path is None else str(path), "columns": used, "split": splits}
    source |= {"n_validation": n_validation, "limit": limit, "fraction": fraction, "seed": seed, "n_shots": len(shots)}
    return QuestionSet(name, asked.reset_index(drop=True), shots, header, template, source)


def _everything(
    name: str | None, path: Path | None, columns: Mapping[str, str | Sequence[str]]
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """All questions of all splits, and which columns of a file they were read from."""
    saved = path is not None and (path / "dataset_dict.json").is_file()
    if saved and name not in HUB:
        raise QuestionsError(f"folder {path} is a saved dataset; say which with name=, one of {', '.join(HUB)}")
    if saved or (path is None and name in HUB):
        return _from_hub(name, path), {}
    if path is None and name in BUNDLED:
        return _world_facts(BUNDLED[name]), {}
    if path is None:
        known = ", ".join([*BUNDLED, *HUB])
        raise QuestionsError(f"dataset {name!r} is unknown; choose {known}, or give path= to a file")
    for key, value in columns.items():
        several = isinstance(value, (list, tuple)) and value and key == "references"
        if key not in COLUMNS or not (isinstance(value, str) or several):
            known = f"keys {', '.join(COLUMNS)}, each with the name of a column (references with one or a list)"
            raise QuestionsError(f"columns={columns!r}: {key!r} is wrong; it takes {known}")
    return _read_folder(path, columns) if path.is_dir() else _read_file(path, columns)


def _with_validation(table: pd.DataFrame, n_validation: int, *, wanted: bool, name: str) -> pd.DataFrame:
    """The table with a validation split of its own, or else `n_validation` of its test questions as one."""
    test = np.flatnonzero(table["split"] == "test")
    if (table["split"] == "validation").any() or (len(test) < 2 * n_validation and not wanted):
        return table
    if len(test) < 2 * n_validation:
        raise QuestionsError(
            f"dataset {name!r} has no validation split and {len(test)} test questions, too few to take {n_validation} "
            "of them for one; name a split column, or lower n_validation"
        )
    # Always the same draw, so that other parameters do not move questions between the splits.
    drawn = test[np.random.default_rng(0).choice(len(test), size=n_validation, replace=False)]
    return table.assign(split=np.where(np.isin(np.arange(len(table)), drawn), "validation", table["split"]))


def _of_split(table: pd.DataFrame, split: str, name: str) -> pd.DataFrame:
    chosen = table[table["split"] == split]
    if chosen.empty:
        raise QuestionsError(
            f"split={split!r} is not in dataset {name!r}; it has {', '.join(sorted(table['split'].unique()))}"
        )
    return chosen


def _drawn(table: pd.DataFrame, limit: int | None, fraction: float | None, seed: int) -> pd.DataFrame:
    part = len(table) if fraction is None else max(1, round(fraction * len(table)))
    size = part if limit is None else min(limit, part)
    if size >= len(table):
        return table
    chosen = np.random.default_rng(seed).choice(len(table), size=size, replace=False)
    return table.iloc[np.sort(chosen)]


def _set_apart(table: pd.DataFrame, n_shots: int, name: str) -> tuple[pd.DataFrame, tuple[tuple[str, str], ...]]:
    """The table without the questions that become shots, and those.

    Whatever split, limit or seed is asked for, the prompt stays the same, so that runs of one set go together.
    """
    chosen = table.iloc[np.random.default_rng(0).permutation(len(table))[:n_shots]]
    rest = table[~table["question"].isin(chosen["question"])]
    if rest.empty:
        raise QuestionsError(f"n_shots={n_shots}: dataset {name!r} has {len(table)} rows, so nothing is left to ask")
    return rest.reset_index(drop=True), tuple((row.question, row.references[0]) for row in chosen.itertuples())


def _shots(everything: pd.DataFrame, asked: pd.DataFrame, n_shots: int, name: str) -> tuple[tuple[str, str], ...]:
    """Questions and first references for the prompt, never among those asked."""
    rest = everything[~everything["question"].isin(asked["question"])]
    pool = rest[rest["split"] == "train_shots"]
    if n_shots < 0 or n_shots > len(pool):
        raise QuestionsError(f"n_shots={n_shots}: dataset {name!r} has {len(pool)} questions for shots")
    # Always the same draw: another seed asks other questions, or draws other samples, with the same prompt.
    chosen = pool.iloc[np.random.default_rng(0).permutation(len(pool))[:n_shots]]
    return tuple((row.question, row.references[0]) for row in chosen.itertuples())


def _world_facts(wording: str) -> pd.DataFrame:
    path = WORLD_FACTS_DIR / "facts.jsonl"
    if not path.is_file():
        raise QuestionsError(f"{path} is missing: pro_lib must be installed from its repository (pip install -e .)")
    facts = pd.read_json(path, lines=True, dtype=False)
    references = [[answer, *aliases] for answer, aliases in zip(facts["answer"], facts["aliases"], strict=True)]
    table = facts.rename(columns={"fact_id": "question_id"}).assign(question=facts[wording], references=references)
    return table[[*COLUMNS, "relation", "exposure", "conflict"]]


def _from_hub(name: str, folder: Path | None) -> pd.DataFrame:
    """A set with the splits as we have them: every question with an answer, and none that is asked among the shots."""
    dataset = _fetched(name, folder)
    parts = {
        split: _hub_split(dataset[split], name, split) for split in dataset if split in ("test", "validation", "train")
    }
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
    return _checked(table, f"dataset {name!r}", ["references"])


def _fetched(name: str, folder: Path | None) -> Mapping[str, Any]:
    import datasets  # it takes a second, and only sets from the hub need it

    repository, configuration, _ = HUB[name]
    try:
        return datasets.load_from_disk(folder) if folder else datasets.load_dataset(repository, configuration)
    except Exception as error:  # whatever the library's HTTP client, its cache or Arrow raised
        where = f"folder {folder}" if folder else f"the Hugging Face hub ({repository})"
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "" if folder else "; without a network, give path= to a folder that save_to_disk() made elsewhere"
        raise QuestionsError(f"dataset {name!r} cannot be loaded from {where}: {reason}{advice}") from error


def _hub_split(rows: Any, name: str, split: str) -> pd.DataFrame:
    """Question_id, question, references of a split; rows without an answer, and repeated ids, are left out."""
    needed = ("question", HUB[name][2])
    missing = [column for column in needed if column not in rows.column_names]
    if missing:
        has = ", ".join(rows.column_names)
        raise QuestionsError(f"dataset {name!r}, split {split!r}, has no column {missing[0]!r}; it has {has}")
    ids = {"question_id"} & set(rows.column_names)
    table = pd.DataFrame(rows.select_columns([*ids, *needed]).to_list(), columns=[*ids, *needed])
    if not ids:
        table["question_id"] = [f"{name}-{split}-{n}" for n in range(len(table))]
    table["references"] = [_hub_references(value) for value in table.pop(needed[1])]
    return table[table["references"].str.len() > 0].drop_duplicates("question_id")


def _hub_references(answer: Any) -> list[str]:
    """The answer and its aliases, each once; TriviaQA writes `<unk>` where it keeps the answer to itself."""
    if isinstance(answer, dict):
        answer = [answer.get("value"), *(answer.get("aliases") or [])]
    texts = answer if isinstance(answer, list) else [answer]
    cleaned = [text.strip() for text in texts if isinstance(text, str)]
    return [text for text in dict.fromkeys(cleaned) if text not in ("", "<unk>")]


def _read_folder(path: Path, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """The files of a folder that are named after splits, as one table."""
    files = [file for file in sorted(path.iterdir()) if file.stem in SPLIT_OF_FILE and file.suffix in READERS]
    splits = [SPLIT_OF_FILE[file.stem] for file in files]
    if not files or len(set(splits)) < len(splits):
        what = "two files for one split" if files else f"no file named {', '.join(SPLIT_OF_FILE)}"
        raise QuestionsError(f"question folder {path} has {what} ({', '.join(READERS)})")
    tables, used = zip(*(_read_file(file, columns) for file in files), strict=True)
    table = pd.concat([part.assign(split=split) for part, split in zip(tables, splits, strict=True)], ignore_index=True)
    again = table["question_id"][table["question_id"].duplicated()]
    if len(again):
        raise QuestionsError(f"question folder {path}: question_id {again.iloc[0]!r} is used in two files")
    return table, {wanted: names for part in used for wanted, names in part.items()}


def _read_file(path: Path, columns: Mapping) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    if not path.is_file():
        raise QuestionsError(f"question file {path} does not exist")
    if path.suffix not in READERS:
        raise QuestionsError(f"question file {path} is none of {', '.join(READERS)}")
    try:
        table = READERS[path.suffix](path)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise QuestionsError(f"question file {path} cannot be read: {str(error).strip()}") from error
    if table.empty:
        raise QuestionsError(f"question file {path} holds no questions")
    source = f"question file {path}"
    used = _columns(table, columns, source)
    values = {wanted: table[names[0]] for wanted, names in used.items() if wanted != "references"}
    values |= {"question_id": [f"{path.stem}-{n}" for n in range(len(table))]} if "question_id" not in used else {}
    values |= {"split": "test"} if "split" not in used else {}
    renamed = {name for wanted, names in used.items() for name in names} - {*COLUMNS, *used["references"]}
    return _checked(table.drop(columns=list(renamed)).assign(**values), source, used["references"]), used


def _columns(table: pd.DataFrame, asked: Mapping[str, str | Sequence[str]], source: str) -> dict[str, list[str]]:
    """The file's columns for each of ours: those asked for, else those of the same name, else a usual name's."""
    has = f"; it has {', '.join(map(str, table.columns))}"
    used = {wanted: [names] if isinstance(names, str) else list(names) for wanted, names in asked.items()}
    for name in (name for names in used.values() for name in names):
        if name not in table:
            raise QuestionsError(f"{source} has no column {name!r}{has}")
    used |= {name: [name] for name in COLUMNS if name not in used and name in table}
    folded = {str(name).casefold(): name for name in reversed(table.columns)}
    for wanted, usual in USUAL_NAMES.items():
        if wanted in used:
            continue
        found = [folded[name] for name in usual if name in folded][:1]
        found += [folded[name] for name in ALIASES if name in folded and wanted == "references"]
        if not found:
            raise QuestionsError(f"{source} has no column {wanted!r}{has}")
        used[wanted] = found
    return used


def _read_text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise QuestionsError(f"question file {path}, line {line}: not UTF-8 text ({error.reason})") from error


def _read_csv(path: Path) -> pd.DataFrame:
    table = pd.read_csv(io.StringIO(_read_text(path)), dtype=str, keep_default_na=False)
    # pandas takes the first fields of rows that are longer than the header for an index.
    if not isinstance(table.index, pd.RangeIndex):
        raise QuestionsError(f"question file {path}, line 2: more fields than the header; quote fields with commas")
    return table


def _read_jsonl(path: Path) -> pd.DataFrame:
    rows = []
    # Not splitlines(), which also breaks lines at separators that JSON allows within a text.
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "\\u" in line:
                json.dumps(row, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is JSON, but no text
        except (ValueError, RecursionError) as error:
            raise QuestionsError(f"question file {path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise QuestionsError(f"question file {path}, line {number}: not an object")
        rows.append(row)
    return pd.DataFrame(rows)


def _read_parquet(path: Path) -> pd.DataFrame:
    with pq.ParquetFile(path) as file:
        table = file.read()
    table.validate(full=True)  # else text that is no UTF-8 surfaces only when somebody looks at it
    # What pandas wrote beside the columns is of no use here, and one more thing that may be damaged.
    return table.replace_schema_metadata(None).to_pandas()


def _read_question_answer_lines(path: Path) -> pd.DataFrame:
    rows, block = [], []
    for number, line in enumerate([*_read_text(path).split("\n"), ""], start=1):
        if line.strip():
            block.append(line.strip())
        elif len(block) not in (0, 2):
            what = "a question without a line of answers" if len(block) == 1 else f"{len(block)} lines, not two"
            raise QuestionsError(f"question file {path}, line {number - len(block)}: {what}, before a blank line")
        elif block:
            rows.append(block)
            block = []
    return pd.DataFrame(rows, columns=["question", "references"])


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".txt": _read_question_answer_lines,
}


def _checked(table: pd.DataFrame, source: str, reference_columns: Sequence[str]) -> pd.DataFrame:
    """The table with all of `COLUMNS`, each question with an id of its own, text and at least one reference."""
    references: list[list[str]] = []
    numbers: dict[str, int] = {}
    answers = zip(*(table[name] for name in reference_columns), strict=True)
    rows = zip(table["question_id"], table["question"], table["split"], answers, strict=True)
    for number, (question_id, question, split, values) in enumerate(rows, start=1):
        where = f"{source}, question {number}"
        for name, value in (("question", question), ("split", split)):
            if not isinstance(value, str) or not value.strip():
                raise QuestionsError(f"{where}: the {name} is empty or not text")
        if isinstance(question_id, bool) or not isinstance(question_id, (str, int)) or question_id == "":
            raise QuestionsError(f"{where}: the question_id is empty, or neither text nor a whole number")
        identity = str(question_id)
        if identity in numbers:
            raise QuestionsError(f"{where}: question_id {identity!r} was already used by question {numbers[identity]}")
        numbers[identity] = number
        references.append(_references(values, where))
    others = [name for name in table if name not in (*COLUMNS, *reference_columns)]
    return table.assign(question_id=list(numbers), references=references)[[*COLUMNS, *others]]


def _references(values: Iterable[object], where: str) -> list[str]:
    """The texts of all values, each once; a value may be missing, but not all of them."""
    found: list[str] = []
    for value in values:
        if value is None or isinstance(value, float):
            continue
        parts = value.split(";") if isinstance(value, str) else value
        if not isinstance(parts, (list, np.ndarray)) or not all(isinstance(part, str) for part in parts):
            raise QuestionsError(f"{where}: its references are neither text nor a list of texts")
        found += [part.strip() for part in parts if part.strip()]
    if not found:
        raise QuestionsError(f"{where}: it has no references")
    return list(dict.fromkeys(found))
