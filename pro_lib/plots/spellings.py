"""The gain of PRO over NLL by spellings and calibration, in simulated worlds (notebook 08)."""

import numpy as np
import pandas as pd

from pro_lib.plots.captions import join_caption, signed_span, significant_signs
from pro_lib.plots.figure import checked_table
from pro_lib.plots.gains import GAIN
from pro_lib.plots.style import Figure
from pro_lib.plots.worlds import BASE_WORDS, BOTH_VARIED, SPELLINGS, draw_gains

_ERRORS = {-1: "(overconfident)", 0: "(calibrated)", 1: "(underconfident)"}
_SHOWN = (
    "AUROC of PRO minus that of NLL, with 95 % confidence intervals, against the number of "
    "spellings between which the probability of each meaning is divided, for simulated questions "
    f"with {BASE_WORDS}. The true answer is drawn with the probabilities of the model to the power "
    "“calibration”, so that the model is overconfident below 1."
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
        per_line=figure_columns + 1,
    )


def caption(table: pd.DataFrame) -> str:
    """Say how large the gain is with one spelling and with several, by the sign of its tests."""
    signs = significant_signs(table)
    findings = []
    for words, rows in (
        ("With one spelling", table[table["n_spellings"] == 1]),
        ("With several spellings", table[table["n_spellings"] > 1]),
    ):
        n_better = (signs[rows.index] > 0).sum()
        n_worse = (signs[rows.index] < 0).sum()
        findings.append(
            f"{words}, PRO is significantly better than NLL at {n_better} of {len(rows)} "
            f"points and worse at {n_worse} ({signed_span(rows['auroc_minus_nll'])})."
        )
    return join_caption(_SHOWN, table, *findings)
