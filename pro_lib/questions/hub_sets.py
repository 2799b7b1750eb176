"""Question sets of the Hugging Face hub, or of folders that `save_to_disk` has made of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pro_lib.common.catalog import HUB
from pro_lib.common.files import RunError, reading, regular
from pro_lib.common.validation import extra, refusing
from pro_lib.questions.question_files import read_questions
from pro_lib.questions.references import NO_ANSWER, texts_in
from pro_lib.questions.repeats import without_texts

# The number of questions of a lent validation split, enough to choose α on.
_N_VALIDATION = 1000


def questions_from_hub(name: str, folder: Path | None) -> pd.DataFrame:
    """Return the questions of a hub set that have an answer.

    If the hub's test split is missing or has no answers, its validation split becomes `test`, and
    `validation` is a part of its train split. The rest of the train split is `train_shots`, without
    the questions of the other two splits.

    Args:
        name: the name of the set, a key of `HUB`.
        folder: a folder that `save_to_disk` has made of the set; None to download it.

    Raises:
        RunError: the set cannot be loaded, or has no questions to ask or no train split.
    """
    table = _downloaded(name, folder)
    if "test" not in set(table["split"]):
        table["split"] = table["split"].replace("validation", "test")
    if not {"test", "train"} <= set(table["split"]):
        raise RunError(
            f"dataset {name!r} needs a train split for shots, and a test or validation split "
            "with answers"
        )
    is_train = table["split"] == "train"
    others = table[~is_train]
    train = table[is_train].drop_duplicates("question")
    has_other_id = train["question_id"].isin(others["question_id"])
    has_other_text = train["question"].isin(others["question"])
    train = train[~has_other_id & ~has_other_text]
    has_validation = "validation" in set(others["split"])
    n_lent = 0 if has_validation else min(_N_VALIDATION, len(train) // 2)
    # The seed is fixed, so that validation questions and shots do not depend on other parameters.
    lent_rows = np.random.default_rng(0).permutation(len(train))[:n_lent]
    is_lent = np.isin(np.arange(len(train)), lent_rows)
    parts = [
        others,
        without_texts(train[is_lent], others).assign(split="validation"),
        train[~is_lent].assign(split="train_shots"),
    ]
    combined = pd.concat(parts, ignore_index=True)
    places = [f"dataset {name!r}, question {n + 1}" for n in combined.index]
    return read_questions(combined.set_axis(places), {}).table


def _downloaded(name: str, folder: Path | None) -> pd.DataFrame:
    """Return the questions of a set that have an answer, with their ids, references and splits."""
    with extra("notebooks", f"dataset {name!r} of the hub"):
        import datasets  # it takes a second, and only sets from the hub need it

    repository, configuration, answer_column = HUB[name]
    hub = (
        f"the Hugging Face hub ({repository}); without a network, path= takes a folder that "
        "save_to_disk() made"
    )
    with refusing(RunError, f"dataset {name!r} cannot be loaded from {folder or hub}"):
        if folder:
            _check_folder(folder)
            loaded = datasets.load_from_disk(folder)
        else:
            loaded = datasets.load_dataset(repository, configuration)
        splits = [split for split in loaded if split in ("test", "validation", "train")]
        parts = [_questions_of(name, split, loaded[split], answer_column) for split in splits]
        return pd.concat(parts)


def _questions_of(name: str, split: str, rows: Any, answer_column: str) -> pd.DataFrame:
    """Return the questions of a split that have an answer, without repeated ids."""
    ids: Any = [f"{name}-{split}-{n}" for n in range(len(rows))]
    if "question_id" in rows.column_names:
        ids = rows["question_id"][:]
    answers = [texts_in(value) for value in rows[answer_column][:]]
    references = [
        [text for text in texts if text and text.strip() not in NO_ANSWER] for texts in answers
    ]
    columns = {
        "question_id": ids,
        "question": rows["question"][:],
        "references": references,
        "split": split,
    }
    has_answer = [bool(texts) for texts in references]
    return pd.DataFrame(columns)[has_answer].drop_duplicates("question_id")


def _check_folder(folder: Path) -> None:
    """Raise an error for special files and damaged Arrow files in a folder."""
    for path in folder.rglob("*"):
        if not path.is_dir():
            regular(path)
        if path.suffix == ".arrow":
            # The datasets library does not check offsets, and following them may end the process.
            with reading(path, hint="save the dataset again"), pa.OSFile(str(path)) as file:
                for batch in pa.ipc.open_stream(file):
                    batch.validate(full=True)
