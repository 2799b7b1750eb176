"""The figure of the benchmark: AUROC of all methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.style import COLORS, PAPER_METHODS, explain, name_rows, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def benchmark(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw AUROC of the paper's eight methods and at most four more, of `evaluation.benchmark`, in the order of means.

    The axis begins 0.2 below the best, or at chance where a panel's best is below 0.8; what lies below is at its edge.
    """
    table = table[table["method"].str.split(", ").str[0].isin(PAPER_METHODS) & (table["method"] != "PRO, default")]
    means = table.groupby("method", sort=False)["auroc"].mean()
    methods = list(means.sort_values(ascending=False, kind="stable").index[:12])
    table = table[table["method"].isin(methods)]
    bests = table.groupby(list(table.columns.intersection(["model", "dataset", "protocol"])))["auroc"].max()
    left = 0.5 if bests.min() < 0.8 else bests.max() - 0.2
    shape: dict[str, Any] = {
        "figure_columns": figure_columns,
        "height": 0.14 * max(len(methods), 5),
        "sharex": True,
        "sharey": True,
    }
    with panels(table, "model", "dataset", "protocol", **shape) as (figure, grid):
        for ax, _, panel in grid:
            for point in panel.itertuples():
                at = methods.index(point.method)
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, point.low, point.high, color=color, lw=1)
                marker = "o" if point.auroc >= left else 4  # 4: an arrow at the edge
                ax.plot(max(point.auroc, left), at, marker=marker, color=color, clip_on=False, zorder=3)
                mark = ("▲" if point.difference > 0 else "▼") if point.significant else ""
                value = f" {point.auroc:.3f}".replace("0.", ".") + mark
                ax.text(1, at, value, transform=ax.get_yaxis_transform(), fontsize=6, va="center")
            name_rows(ax, methods, panel["method"])
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.set_xlim(left, None)
        explain(figure, [], "AUROC, 95 % interval (dotted: the best)\n▲ above PRO, ▼ below: DeLong, Holm-corrected")
    return figure
