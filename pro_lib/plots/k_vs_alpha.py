"""The number of answers that PRO keeps, against α (notebook 03)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, Evaluation, alpha_grid
from pro_lib.plots.captions import by_protocol, join_caption, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting
from pro_lib.plots.style import (
    ALPHA_LABELS,
    Figure,
    alpha_axis,
    distinct_values,
    draw_curves,
    set_ticks,
)

_SHOWN = (
    "Mean number K of answers to a question that PRO uses: those with p ≥ α, and at least one. "
    "The 95 % confidence intervals of the mean, which reach at most {most:.2f} from it, are not "
    "drawn."
)


@per_setting
def table(evaluation: Evaluation) -> dict[str, Any]:
    """Return the mean number of answers that PRO keeps at each α.

    Columns: those of the setting; alpha; mean_k with its 95 % interval over questions, mean_k_low
    and mean_k_high.
    """
    search_alpha = evaluation.search_alpha
    alphas = alpha_grid(search_alpha, alphas=DRAWN_ALPHAS)
    counts = scoring.adaptive_k(evaluation.log_probs, alphas, search_alpha=search_alpha)
    mean = counts.mean(axis=0)
    low, high = metrics.normal(mean, counts.std(axis=0, ddof=1) / np.sqrt(len(counts)))
    return {"alpha": alphas, "mean_k": mean, "mean_k_low": low, "mean_k_high": high}


def draw(table: pd.DataFrame, *, figure_columns: int = 2, alpha_scale: str = "log") -> Figure:
    """Draw the mean number of answers against α: a panel for each dataset, a line for each model.

    Args:
        table: needs the columns alpha and mean_k. It may have dataset, model, protocol and
            n_questions. Intervals are not drawn, because they are hardly wider than the lines.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        alpha_scale: `log`, or `linear` as in the paper.
    """
    table = checked_table(table, ["alpha", "mean_k"], "k_vs_alpha")
    table = table.drop(columns=["mean_k_low", "mean_k_high"], errors="ignore")
    models = distinct_values(table, "model")
    with labelled_figure(
        table,
        *("dataset", "protocol"),
        title="Number of answers that PRO uses",
        x=ALPHA_LABELS[alpha_scale],
        y="mean K",
        figure_columns=figure_columns,
        sharex=True,
    ) as (figure, panels):
        for ax, rows in panels:
            style: dict[str, Any] = {"marker": ".", "clip_on": False}
            draw_curves(ax, rows, "model", models, "alpha", "mean_k", **style)
            alpha_axis(ax, alpha_scale)
            set_ticks(ax.yaxis, range(2, int(np.ceil(table["mean_k"].max())) + 1, 2))
    return figure


def caption(table: pd.DataFrame, *, alpha: float = 0.4) -> str:
    """Say how many answers PRO keeps at the default α, or the nearest one, and at the smallest."""
    nearest = table.loc[(table["alpha"] - alpha).abs().idxmin(), "alpha"]
    smallest = table["alpha"].min()
    findings = []
    for words, rows in by_protocol(table):
        kept = [span(rows.loc[rows["alpha"] == a, "mean_k"], "{:.2f}") for a in (nearest, smallest)]
        findings.append(
            f"{words}PRO uses {kept[0]} answers to a question on average at α = {nearest:g}, "
            f"and {kept[1]} at α = {smallest:g}."
        )
    if "paper" in set(table.get("protocol", ())):
        findings.append("Answers that beam search repeats count, so that K can exceed 1/α.")
    shown = _SHOWN.format(most=(table["mean_k_high"] - table["mean_k"]).max())
    return join_caption(shown, table.drop(columns="correctness", errors="ignore"), *findings)
