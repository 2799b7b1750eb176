"""Which answers of a question are the same, by tokens, text or log-probability; knows tables, no run and no score."""

import numpy as np
import pandas as pd


def identities(table: pd.DataFrame, same_within: float = 0.0) -> list[object]:
    """What makes two answers of one question the same: token ids, else the text, else log-probability and length.

    The columns are those of `Run.ranked`, in its order; where `mean` is unknown, so is the length, and it is passed
    over. Above 0, `same_within` (nats) makes an answer without ids and text a repeat of the nearest one above it of
    its question and length that is no repeat itself, if that is more probable by at most so much. So answers that are
    one span no more than that; in a chain of near ones the third may be another again.
    """
    # What is missing is None or NaN, as pandas has it.
    ids, texts, values = (table[name].to_numpy(object) for name in ("token_ids", "text", "value"))
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.rint(values.astype(float) / table["mean"].to_numpy(float))
    lengths = np.nan_to_num(lengths, nan=-1)
    if same_within:
        values = _first_near(table["row"], lengths, values, same_within)
    return [
        tuple(ids) if isinstance(ids, (list, np.ndarray)) else text if isinstance(text, str) else (value, length)
        for ids, text, value, length in zip(ids, texts, values, lengths, strict=True)
    ]


def _first_near(rows: pd.Series, lengths: np.ndarray, values: np.ndarray, same_within: float) -> list[float]:
    """The log-probability of the answer that each one counts as."""
    first: dict[tuple[int, float], float] = {}
    counted = []
    for row, length, value in zip(rows, lengths, values, strict=True):
        if not first.get((row, length), np.inf) - value <= same_within:
            first[row, length] = value
        counted.append(first[row, length])
    return counted
