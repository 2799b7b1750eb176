"""Which answers of a question are the same, by tokens, text or log-probability; knows tables, no run and no score."""

import numpy as np
import pandas as pd


def identities(table: pd.DataFrame, same_within: float = 0.0) -> list[object]:
    """What makes two answers of one question the same: token ids, else the text, else log-probability and length.

    Rows and columns are those of `Run.ranked`; where `mean` is unknown, so is the length, and it is passed over. Of
    answers without ids and text, one repeats the last answer above it in its question that has its length and repeats
    none itself, if that is more probable by at most `same_within` nats. So answers that are one span no more than that.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.nan_to_num(np.rint(table["value"].to_numpy(float) / table["mean"].to_numpy(float)), nan=-1)
    names = "token_ids", "text", "value", "row"
    first: dict[tuple[int, float], float] = {}
    keys: list[object] = []
    # What is missing is None or NaN, as pandas has it.
    for ids, text, value, row, length in zip(*(table[name].to_numpy(object) for name in names), lengths, strict=True):
        if isinstance(ids, (list, np.ndarray)):
            keys.append(tuple(ids))
        elif isinstance(text, str):
            keys.append(text)
        else:
            if not 0 <= first.get((row, length), np.inf) - value <= same_within:
                first[row, length] = value
            keys.append((first[row, length], length))
    return keys
