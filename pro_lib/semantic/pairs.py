"""Texts of answers and their pairs: checked once, each distinct pair asked once; knows no similarity and no score."""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Answers = Sequence[Sequence[str | None]]


def texts_of(answers: Answers, questions: pd.DataFrame | None = None) -> list[list[str | None]]:
    """The answers as lists of texts, None where one is missing. Raises `ValueError` for anything else, with its row."""
    if questions is not None and len(questions) != len(answers):
        raise ValueError(f"answers has {len(answers)} rows, but questions {len(questions)}")
    rows = [[None if text is None or text != text else text for text in row] for row in answers]
    for number, row in enumerate(rows):
        if isinstance(answers[number], str) or not all(text is None or isinstance(text, str) for text in row):
            raise ValueError(f"answers row {number} must hold texts, and None or NaN where one is missing")
    return rows


def distinct(answers: Answers) -> NDArray[np.bool_]:
    """(n, N): True at the first occurrence of each text of a question."""
    rows = texts_of(answers)
    first = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=bool)
    for marks, row in zip(first, rows, strict=True):
        marks[[row.index(text) for text in set(row) - {None}]] = True
    return first


def of_pairs(
    rows: Sequence[Sequence[Hashable]], ask: Callable[[list[tuple]], Sequence], *, symmetric: bool = False
) -> NDArray[np.float64]:
    """What `ask` says of the pairs of a row, each distinct one asked once: (n, N, N) or more, NaN where one is None."""
    numbers: dict[tuple, int] = {}
    places = [
        (q, i, j, numbers.setdefault((first, second), len(numbers)))
        for q, row in enumerate(rows)
        for i, first in enumerate(row)
        for j, second in enumerate(row)
        if first is not None and second is not None and (i <= j or not symmetric)
    ]
    said = np.asarray(ask(list(numbers)), dtype=np.float64)
    width = max(map(len, rows), default=0)
    result = np.full((len(rows), width, width, *said.shape[1:]), np.nan)
    q, i, j, pair = np.array(places, dtype=np.int64).reshape(-1, 4).T
    result[q, i, j] = said[pair]
    if symmetric:
        result[q, j, i] = said[pair]
    return result
