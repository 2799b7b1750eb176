"""Three question sets of the Hugging Face hub, with splits as we ask them; knows their columns, and no file of ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.checks import extra
from pro_lib.question_files import QuestionsError, question_table

# Name: repository on the hub, configuration, column of answers.
HUB = {
    "trivia_qa": ("mandarjoshi/trivia_qa", "rc.nocontext", "answer"),
    "sciq": ("allenai/sciq", None, "correct_answer"),
    "nq": ("google-research-datasets/nq_open", None, "answer"),
}
# Enough to choose α on; where validation questions come out of the hub's train split, this many do.
N_VALIDATION = 1000


def from_hub(name: str, folder: Path | None) -> pd.DataFrame:
    """A set of the hub, or a folder that `save_to_disk` has made of it: every question with an answer.

    Where the hub's test split is missing or has no answers, `test` is its validation split, and `validation` is part
    of its train split. The rest of that is `train_shots`, without the questions of the other two. Raises
    `QuestionsError` for a set that cannot be loaded, or is not as it is known.
    """
    parts = _fetched(name, folder)
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
    return question_table(table.set_axis([f"dataset {name!r}, question {n + 1}" for n in table.index]), ["references"])


def _fetched(name: str, folder: Path | None) -> dict[str, pd.DataFrame]:
    with extra("notebooks", f"dataset {name!r} of the hub"):
        import datasets  # it takes a second, and only sets from the hub need it

    repository, configuration, answer = HUB[name]
    try:
        found = datasets.load_from_disk(folder) if folder else datasets.load_dataset(repository, configuration)
        splits = [split for split in found if split in ("test", "validation", "train")]
        return {split: _split(found[split], answer, f"{name}-{split}") for split in splits}
    except Exception as error:  # whatever the library's HTTP client, its cache or Arrow raised, or a lost column
        where = f"folder {folder}" if folder else f"the Hugging Face hub ({repository})"
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = "" if folder else "; without a network, give path= to a folder that save_to_disk() made elsewhere"
        raise QuestionsError(f"dataset {name!r} cannot be loaded from {where}: {reason}{advice}") from error


def _split(rows: Any, answer: str, name: str) -> pd.DataFrame:
    """Question_id, question, references of a split; rows without an answer, and repeated ids, are left out."""
    named = "question_id" in rows.column_names
    ids = rows["question_id"][:] if named else [f"{name}-{n}" for n in range(len(rows))]
    references = [_references(value) for value in rows[answer][:]]
    table = pd.DataFrame({"question_id": ids, "question": rows["question"][:], "references": references})
    return table[table["references"].str.len() > 0].drop_duplicates("question_id")


def _references(answer: Any) -> list[str]:
    """The answer and its aliases, each once; TriviaQA writes `<unk>` where it keeps the answer to itself."""
    if isinstance(answer, dict):
        answer = [answer.get("value"), *(answer.get("aliases") or [])]
    texts = answer if isinstance(answer, list) else [answer]
    cleaned = [text.strip() for text in texts if isinstance(text, str)]
    return [text for text in dict.fromkeys(cleaned) if text not in ("", "<unk>")]
