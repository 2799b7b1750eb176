"""Questions with the same text: which they are, how many splits share them, and one question of each text.

Case, spaces and the question mark or full stop at the end do not matter. Other signs do: "What is -5?" is not "What is
5?". A question without a text is like no other question.
"""

import unicodedata
import warnings

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

SHOTS = "train_shots"


def normalized_question(text: str) -> str:
    """Return a question in lower case, with single spaces and without a question mark or full stop at its end."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return folded.rstrip("?.\u3002 ") or folded


def text_groups(texts: ArrayLike | pd.Series) -> NDArray[np.intp]:
    """Number the different texts from 0, in the order of their first occurrence.

    Args:
        texts: the text of each question, (n,), or a number that stands for it; None or NaN if it is not known.

    Returns:
        The number of each question's text, (n,).

    Example:
        >>> text_groups(["Who wrote Emma?", "Who?", "who wrote Emma", None]).tolist()
        [0, 1, 0, 2]
    """
    keys: list[object] = []
    for row, text in enumerate(pd.Series(texts, dtype=object)):
        if isinstance(text, str):
            keys.append(normalized_question(text))
        else:
            keys.append(("row", row) if pd.isna(text) else text)
    return pd.Index(keys, tupleize_cols=False).factorize()[0]


def question_groups(questions: pd.DataFrame) -> NDArray[np.intp]:
    """Number the texts of a table of questions as `text_groups`; without a column of texts none is repeated."""
    if "question" not in questions:
        return np.arange(len(questions))
    return text_groups(questions["question"])


def one_per_text(texts: ArrayLike | pd.Series, *, seed: int = 0) -> NDArray[np.intp]:
    """Draw one question of each text, without looking at anything else.

    Args:
        texts: the text of each question, (n,).
        seed: seed of the draw.

    Returns:
        The rows drawn, in ascending order; all rows if no text is repeated.
    """
    groups = text_groups(texts)
    order = np.random.default_rng(seed).permutation(len(groups))
    _, first = np.unique(groups[order], return_index=True)
    return np.sort(order[first])


def count_repeats(questions: pd.DataFrame) -> int:
    """Count the questions whose text an earlier question has."""
    groups = question_groups(questions)
    return len(groups) - len(np.unique(groups))


def count_shared_texts(questions: pd.DataFrame) -> int:
    """Count the texts that occur in more than one split; examples of the prompt (`train_shots`) are left out."""
    asked = questions[questions["split"].notna() & (questions["split"] != SHOTS)]
    if asked["split"].nunique() < 2:
        return 0
    n_splits = asked.groupby(question_groups(asked))["split"].nunique()
    return int((n_splits > 1).sum())


def warn_of_repeats(questions: pd.DataFrame, source: str) -> None:
    """Warn if questions have the same text, or if splits share texts.

    Args:
        questions: columns question and split.
        source: what the warning calls the questions, such as "dataset 'mine'".
    """
    n_repeats = count_repeats(questions)
    if n_repeats == 0:
        return
    message = f"{source}: {n_repeats} of its {len(questions)} questions repeat the text of an earlier question"
    n_shared = count_shared_texts(questions)
    if n_shared:
        message += f", and {n_shared} texts are in more than one split, so validation and test are not independent"
    message += (
        "; intervals treat equal texts as one cluster, and guarantees use one question of each text"
    )
    warnings.warn(message, UserWarning, stacklevel=3)
