"""The figure of selective answering: the share of wrong answers against the share answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.plots.style import (
    COLORS,
    SHARE_TICKS,
    checked_table,
    distinct_values,
    draw_curves,
    handles,
    label_figure,
    method_styles,
    panels,
    plt,
    set_ticks,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure


def risk_coverage(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Wrong answers, if only the most certain questions are answered",
) -> Figure:
    """Draw the share of wrong answers against the share of questions that are answered.

    There is a panel for each setting. The interval of the first method is a band.

    Args:
        table: needs the columns method, coverage and risk. It may have risk_low and risk_high,
            similarity, dataset, model and n_questions. The method `oracle` is a dotted line.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Raises:
        SentenceError: if the table lacks a column, or has no rows.

    Example:
        scored = evaluation.score_answers(run)
        plots.risk_coverage(evaluation.risk_coverage(scored, ["PRO", "NLL"]))
    """
    table = checked_table(table, ["method", "coverage", "risk"], "risk_coverage")
    table = table.assign(label=method_labels(table).to_numpy())
    labels = [name for name in distinct_values(table, "label") if name != "oracle"]
    styles = method_styles(labels)
    shape: dict[str, Any] = {"figure_columns": figure_columns, "height": 2.1, "sharey": True}
    with panels(table, "model", "dataset", "protocol", **shape) as (figure, grid):
        for ax, _, rows in grid:
            draw_curves(ax, rows, "label", labels, "coverage", "risk", styles=styles)
            first = rows[rows["label"] == labels[0]]
            if "risk_low" in first:
                ends = first["risk_low"], first["risk_high"]
                ax.fill_between(first["coverage"], *ends, color=COLORS[0], alpha=0.15, lw=0)
            best = rows[rows["label"] == "oracle"]
            ax.plot(best["coverage"], best["risk"], color="black", lw=0.8, ls=":")
            set_ticks(ax, SHARE_TICKS)
            ax.set_ylim(0, None)
        entries: list[Artist] = [*handles(labels, styles=styles)]
        if "risk_low" in table:
            style: dict[str, Any] = {"color": COLORS[0], "alpha": 0.15, "lw": 0}
            label = f"95 % interval of {labels[0]}"
            entries.append(plt.Rectangle((0, 0), 1, 1, label=label, **style))
        if (table["label"] == "oracle").any():
            style = {"color": "black", "lw": 0.8, "ls": ":"}
            entries.append(plt.Line2D([], [], label="best possible order", **style))
        label_figure(
            figure,
            title=title,
            x="share of questions answered, the most certain first",
            y="share of wrong answers",
            entries=entries,
        )
    return figure
