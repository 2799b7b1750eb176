"""Find questions with the same text, count them, and draw questions by their texts.

Case, spaces and the question mark or full stop at the end do not matter. Other signs matter: "What
is -5?" is not "What is 5?". A question without a text is different from all others.
"""

import unicodedata
import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib.common.files import sha256

SHOTS = "train_shots"


def folded(text: str) -> str:
    """Return a text in lower case and compatible letters (NFKC), with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def normalized_question(text: str) -> str:
    """Return a question in lower case, with single spaces and without its final `?` or `.`.

    Example:
        >>> normalized_question("Who  wrote Emma?")
        'who wrote emma'
    """
    words = folded(text)
    return words.rstrip("?.\u3002 ") or words


def text_groups(texts: ArrayLike | pd.Series) -> NDArray[np.intp]:
    """Number the different texts from 0, in the order of their first occurrence.

    Args:
        texts: the text of each question, (n,), or a number for the text; None or NaN if unknown.

    Returns:
        The number of each question's text, (n,).

    Example:
        >>> text_groups(["Who wrote Emma?", "Who?", "who wrote Emma", None]).tolist()
        [0, 1, 0, 2]
    """
    series = pd.Series(texts, dtype=object)
    keys: list[object] = []
    for row, (text, is_missing) in enumerate(zip(series, series.isna(), strict=True)):
        if isinstance(text, str):
            keys.append(normalized_question(text))
        else:
            keys.append(("row", row) if is_missing else text)
    return pd.Index(keys, tupleize_cols=False).factorize()[0]


def question_groups(questions: pd.DataFrame) -> NDArray[np.intp]:
    """Number the texts of a table of questions as `text_groups` does.

    Without a column of texts, all questions are different.
    """
    if "question" not in questions:
        return np.arange(len(questions))
    return text_groups(questions["question"])


def hash_order(questions: pd.DataFrame, seed: int = 0) -> NDArray[np.intp]:
    """Return the rows of questions in a random order that each text decides for itself.

    They are ordered by a hash of seed and text, so the order of two questions does not change if
    others are added or deleted. The second question with the same text has another hash, and so on.
    A question without a text counts by its question_id.

    Args:
        questions: one row per question, with the columns question_id and question.
        seed: the seed of the order.

    Example:
        >>> texts = ["Who?", "When?", "Why?"]
        >>> table = pd.DataFrame({"question_id": [0, 1, 2], "question": texts})
        >>> hash_order(table).tolist(), hash_order(table.iloc[:2]).tolist()
        ([0, 2, 1], [0, 1])
    """
    texts = questions["question_id"].astype(str)
    if "question" in questions:
        texts = questions["question"].map(normalized_question, na_action="ignore").fillna(texts)
    n_before = texts.groupby(texts.to_numpy()).cumcount()
    digests = [
        sha256(f"{seed} {number} {text}".encode("utf-8", "surrogatepass"))
        for number, text in zip(n_before, texts, strict=True)
    ]
    return np.argsort(np.array(digests, dtype=str), kind="stable")


def one_per_text(texts: ArrayLike | pd.Series, *, seed: int = 0) -> NDArray[np.intp]:
    """Draw one question of each text at random.

    Args:
        texts: the text of each question, (n,).
        seed: the seed of the draw.

    Returns:
        The drawn rows, in ascending order; all rows if no text is repeated.
    """
    groups = text_groups(texts)
    order = np.random.default_rng(seed).permutation(len(groups))
    _, first_places = np.unique(groups[order], return_index=True)
    return np.sort(order[first_places])


def count_shared_texts(questions: pd.DataFrame) -> int:
    """Count the texts that are in more than one split.

    The split `train_shots` does not count.
    """
    has_split = questions["split"].notna() & (questions["split"] != SHOTS)
    prompted = questions[has_split]
    if prompted["split"].nunique() < 2:
        return 0
    n_splits = prompted.groupby(question_groups(prompted))["split"].nunique()
    return int((n_splits > 1).sum())


def without_texts(questions: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the questions whose text is not the text of one of the others."""
    groups = text_groups(pd.concat([questions["question"], others["question"]]))
    return questions[~np.isin(groups[: len(questions)], groups[len(questions) :])]


def warn_of_repeats(questions: pd.DataFrame, source: str) -> None:
    """Warn if questions have the same text, or if splits share texts.

    Args:
        questions: columns question and split.
        source: the name of the questions in the warning, such as "dataset 'mine'".
    """
    groups = question_groups(questions)
    n_repeats = len(groups) - len(np.unique(groups))
    if n_repeats == 0:
        return
    counts = f"{n_repeats} of its {len(questions)} questions repeat the text of an earlier question"
    n_shared = count_shared_texts(questions)
    if n_shared:
        counts += (
            f", and {n_shared} texts are in more than one split, "
            "so validation and test are not independent"
        )
    warnings.warn(
        f"{source}: {counts}; intervals treat equal texts as one cluster, and guarantees use one "
        "question of each text",
        UserWarning,
        stacklevel=3,
    )
