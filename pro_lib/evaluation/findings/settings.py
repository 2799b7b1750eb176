"""Count the settings that differ significantly, corrected for the number of tests.

A setting is a dataset and a model. The protocols are two ways to count the answers to the same
questions, so they are not settings of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib.metrics.differences import holm

SETTING = ("dataset", "model")


@dataclass(frozen=True)
class SettingCounts:
    """How many settings differ beyond chance.

    Attributes:
        n_settings: the settings that were looked at.
        higher: those in which a difference is above 0.
        lower: those in which a difference is below 0.
    """

    n_settings: int
    higher: int
    lower: int


def beyond_chance(p_values: ArrayLike) -> NDArray[np.bool_]:
    """Return which tests are significant at 5 % after Holm's correction.

    If all hypotheses are true, the probability that any of the tests is significant is at most 5 %,
    however the tests depend on each other.

    Args:
        p_values: (n,); NaN is not a test, so that it does not count and is not significant.

    Returns:
        Truth values (n,).

    Example:
        >>> beyond_chance([0.01, 0.04, 0.5]).tolist()
        [True, False, False]
    """
    return np.asarray(holm(p_values) <= 0.05)


def count_beyond_chance(
    rows: pd.DataFrame,
    *,
    family: pd.DataFrame | None = None,
    difference: str = "difference",
    by: Sequence[str] = SETTING,
) -> SettingCounts:
    """Count the settings with a significant difference.

    Args:
        rows: a row per comparison that the statement is about, with the columns `difference`,
            `p_value` and those of `by`. A setting may have several rows (protocols, scores); each
            of them counts as a test.
        family: all comparisons that were made, if the statement is about some of them; a table that
            has `rows`, by its index. Holm's correction is over these.
        difference: the column of the differences.
        by: the columns that make a setting.

    Returns:
        The counts; a setting with several rows counts once.

    Example:
        >>> rows = pd.DataFrame({"dataset": "d", "model": ["a", "b"], "difference": [0.1, -0.1]})
        >>> count_beyond_chance(rows.assign(p_value=[0.01, 0.5]))
        SettingCounts(n_settings=2, higher=1, lower=0)
    """
    if family is None:
        is_significant = beyond_chance(rows["p_value"])
    else:
        in_family = pd.Series(beyond_chance(family["p_value"]), family.index)
        is_significant = in_family[rows.index].to_numpy()
    settings = rows[list(by)].apply(tuple, axis=1) if len(rows) else pd.Series(dtype=object)
    counts = []
    for sign in (1, -1):
        is_counted = is_significant & (sign * rows[difference].to_numpy() > 0)
        counts.append(settings[is_counted].nunique())
    return SettingCounts(settings.nunique(), *counts)


def count_settings(rows: pd.DataFrame, is_counted: ArrayLike) -> str:
    """Say in how many settings something holds, such as "3 of 4 settings".

    Args:
        rows: a row per setting and protocol, with the columns dataset, model and protocol.
        is_counted: whether it holds, (n,), a value per row.

    Returns:
        The count. With several protocols there is a count for each, because they are not settings
        of their own: "3 of 4 settings (paper) and 4 of 4 (workbench)".

    Example:
        >>> rows = pd.DataFrame({"dataset": "d", "model": ["a", "b"], "protocol": "paper"})
        >>> count_settings(rows, [True, False])
        '1 of 2 settings'
    """
    table = rows[["protocol"]].assign(is_counted=np.asarray(is_counted, dtype=bool))
    protocols = table["protocol"].unique()
    parts: list[str] = []
    for protocol, part in table.groupby("protocol", sort=False):
        settings = "" if parts else " settings"
        name = f" ({protocol})" if len(protocols) > 1 else ""
        parts.append(f"{part['is_counted'].sum()} of {len(part)}{settings}{name}")
    return " and ".join(parts) or "0 of 0 settings"
