"""The gain of PRO over NLL by spellings and calibration, in simulated worlds (notebook 08)."""

import numpy as np
import pandas as pd

from pro_lib.plots.captions import signed_span
from pro_lib.plots.figure import checked_table
from pro_lib.plots.gains import GAIN
from pro_lib.plots.style import Figure
from pro_lib.plots.worlds import (
    BASE_WORLD,
    BOTH_VARIED,
    SPELLINGS,
    caption_of_gains,
    draw_gains,
    drawn_scores,
)

_ERRORS = {-1: "(overconfident)", 0: "(calibrated)", 1: "(underconfident)"}
_SHOWN = (
    "AUROC of PRO minus that of NLL, with 95 % confidence intervals, against the number of "
    "spellings between which the probability of each meaning is divided, for simulated questions "
    f"with {BASE_WORLD.n_meanings} meanings, of which the {BASE_WORLD.n_answers} most probable "
    "answers are found."
)


def table(worlds: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `worlds.table` that vary the spellings, for each calibration."""
    return worlds[worlds["varied"].isin([BOTH_VARIED, SPELLINGS])]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the gain of PRO over NLL against the number of spellings: a panel for each calibration.

    Args:
        table: needs the columns calibration, level, k_choice, k, alpha and auroc_minus_nll with its
            interval.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["calibration", "level", "k_choice", "k", "alpha", *GAIN]
    table = checked_table(table, needed, "spellings").sort_values("calibration", kind="stable")
    errors = np.sign(table["calibration"] - 1).map(_ERRORS)
    names = table["calibration"].map("calibration\xa0{:g} ".format) + errors
    return draw_gains(
        table.assign(panel=names),
        title="PRO minus NLL by spellings and calibration",
        x="spellings of each meaning",
        figure_columns=figure_columns,
        per_line=5 if figure_columns == 2 else 2,
    )


def caption(table: pd.DataFrame) -> str:
    """Say how the gain changes with the spellings, and at which points it is above 0."""
    many = table["n_spellings"].max()
    rows = drawn_scores(table[table["k_choice"] == "fixed"])
    gains = rows.pivot_table("auroc_minus_nll", ["calibration", "score"], "n_spellings")
    change = signed_span(gains[many] - gains[1])
    finding = f"from 1 to {many} spellings, PRO minus NLL with a fixed K changes by {change}"
    return caption_of_gains(_SHOWN, table, finding)
