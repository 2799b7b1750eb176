"""The names of methods in figures and sentences."""

from __future__ import annotations

import numpy as np
import pandas as pd


def method_labels(table: pd.DataFrame) -> pd.Series:
    """Return the method of each row, with its similarity in parentheses if it has one."""
    methods = table["method"].astype(str)
    if "similarity" not in table:
        return methods
    with_similarity = methods + " (" + table["similarity"].astype(str) + ")"
    labels = np.where(table["similarity"].isna(), methods, with_similarity)
    return pd.Series(labels, index=table.index)
