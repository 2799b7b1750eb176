"""The gain of PRO over NLL by spellings and calibration, in simulated worlds (notebook 08)."""

import numpy as np
import pandas as pd

from pro_lib.plots.captions import join_caption, listed, signed_span, significant_signs
from pro_lib.plots.figure import checked_table
from pro_lib.plots.gains import GAIN
from pro_lib.plots.style import Figure
from pro_lib.plots.worlds import (
    BASE_WORDS,
    BOTH_VARIED,
    SPELLINGS,
    draw_gains,
    drawn_scores,
    fixed_k_words,
)

_ERRORS = {-1: "(overconfident)", 0: "(calibrated)", 1: "(underconfident)"}
_SHOWN = (
    "AUROC of PRO minus that of NLL, with 95 % confidence intervals, against the number of "
    "spellings between which the probability of each meaning is divided, for simulated questions "
    f"with {BASE_WORDS}. The true answer is drawn with the probabilities of the model to the power "
    "γ, so that the model is overconfident with γ below 1"
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
    names = table["calibration"].map("exponent\xa0γ\xa0=\xa0{:g} ".format) + errors
    return draw_gains(
        table.assign(panel=names),
        title="PRO minus NLL by spellings and calibration",
        x="spellings of each meaning",
        figure_columns=figure_columns,
        per_line=5 if figure_columns == 2 else 2,
    )


def caption(table: pd.DataFrame) -> str:
    """Say how the gain changes with the spellings, and count the signs of its tests."""
    shown = f"{_SHOWN}; {fixed_k_words(table)}"
    table = drawn_scores(table)
    signs = significant_signs(table)
    many = table["n_spellings"].max()
    changes = []
    for choice, words in (("fixed", "a fixed K"), ("adaptive", "α")):
        rows = table[table["k_choice"] == choice]
        gains = rows.pivot_table("auroc_minus_nll", ["calibration", "score"], "n_spellings")
        changes.append(f"{signed_span(gains[many] - gains[1])} with {words}")
    counts = []
    for words, rows in (
        ("one spelling", table[table["n_spellings"] == 1]),
        ("several spellings", table[table["n_spellings"] > 1]),
    ):
        n_better = (signs[rows.index] > 0).sum()
        n_worse = (signs[rows.index] < 0).sum()
        counts.append(f"{n_better} of {len(rows)} points with {words} and worse at {n_worse}")
    findings = [
        f"From 1 to {many} spellings, PRO minus NLL changes by {listed(changes)}.",
        f"PRO is significantly better than NLL at {', and better at '.join(counts)}.",
    ]
    return join_caption(shown, table, *findings)
