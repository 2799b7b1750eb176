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
    width, numbers = max(map(len, rows), default=0), {}
    number = np.full((len(rows), width), -1)
    for places, row in zip(number, rows, strict=True):
        places[: len(row)] = [-1 if each is None else numbers.setdefault(each, len(numbers)) for each in row]
    first, second = np.triu_indices(width) if symmetric else np.indices((width, width)).reshape(2, -1)
    a, b = number[:, first], number[:, second]
    known = (a >= 0) & (b >= 0)
    pairs, begins, which = np.unique(a[known] * len(numbers) + b[known], return_index=True, return_inverse=True)
    asked = np.argsort(begins)  # in the order in which they come
    values = list(numbers)
    named = ([values[each] for each in side.tolist()] for side in divmod(pairs[asked], max(1, len(values))))
    said = np.asarray(ask(list(zip(*named, strict=True))), dtype=np.float64)
    q, place = known.nonzero()
    result = np.full((len(rows), width, width, *said.shape[1:]), np.nan)
    result[q, first[place], second[place]] = found = said[np.argsort(asked)[which]]
    if symmetric:
        result[q, second[place], first[place]] = found
    return result
