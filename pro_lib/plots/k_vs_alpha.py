"""The figure of the number of answers that α keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.style import (
    ALPHA_AXIS,
    alpha_axis,
    checked_table,
    distinct_values,
    draw_curves,
    label_figure,
    model_entries,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOTE = "If no answer has p ≥ α, PRO keeps the most probable answer."
_REPEATS_NOTE = (
    "An answer that is found several times is also kept several times, so K can exceed 1/α."
)


def k_vs_alpha(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Number of answers that PRO keeps, against α",
) -> Figure:
    """Draw the mean number of answers kept against α: a panel for each dataset and protocol.

    Args:
        table: needs the columns alpha and mean_k. It may have mean_k_low and mean_k_high, which are
            drawn as a band, and dataset, model, protocol and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).k_vs_alpha()
        plots.k_vs_alpha(table)
    """
    table = checked_table(table, ["alpha", "mean_k"], "k_vs_alpha")
    models = distinct_values(table, "model")
    has_repeats = "paper" in distinct_values(table, "protocol")
    grid = panels(
        table, "dataset", "protocol", figure_columns=figure_columns, sharex=True, sharey=True
    )
    with grid as (figure, drawn):
        for ax, _, rows in drawn:
            style: dict[str, Any] = {"lw": 1, "marker": "", "clip_on": False}
            draw_curves(ax, rows, "model", models, "alpha", "mean_k", interval="mean_k_", **style)
            alpha_axis(ax)
        label_figure(
            figure,
            title=title,
            x=ALPHA_AXIS,
            y="answers kept, mean with 95 % interval",
            entries=model_entries(models, lw=1, marker=""),
            note=f"{_NOTE} {_REPEATS_NOTE}" if has_repeats else _NOTE,
        )
    return figure
