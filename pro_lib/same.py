"""Which answers of a question are the same, by tokens, text or log-probability; knows tables, no run and no score."""

import numpy as np
import pandas as pd


def identities(table: pd.DataFrame) -> list[object]:
    """What makes two answers of one question the same: token ids, else the text, else log-probability and length.

    Rows and columns are those of `Run.ranked`; where `mean` is unknown, so is the length and the length is passed over.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.nan_to_num(np.rint(table["value"].to_numpy(float) / table["mean"].to_numpy(float)), nan=-1)
    names = "token_ids", "text", "value"
    keys: list[object] = []
    # What is missing is None or NaN, as pandas has it.
    for ids, text, value, length in zip(*(table[name].to_numpy(object) for name in names), lengths, strict=True):
        if isinstance(ids, (list, np.ndarray)):
            keys.append(tuple(ids))
        elif isinstance(text, str):
            keys.append(text)
        else:
            keys.append((value, length))
    return keys
