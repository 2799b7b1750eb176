"""Methods side by side: AUROC, differences to PRO, accuracy when the unsure are left out, calibration."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pro_lib.figures.lines import curves, explain, handle, handles
from pro_lib.figures.panels import SHARE_TICKS, interval, need, panels, set_ticks, values
from pro_lib.figures.style import COLORS


def benchmark(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC of every method with its interval, a panel per setting (dataset × model).

    `table` has columns dataset, model, method, auroc and, for bars, low and high and, to mark methods that differ from
    PRO, difference and significant; PRO is drawn first, the other methods in the order they come in.
    """
    need(table, "table", "dataset", "model", "method", "auroc")
    methods, shape = values(table, "method"), {"sharex": True, "sharey": True}
    height = 0.13 * max(len(methods), 5) + 0.05
    with panels(table, "model", "dataset", columns=columns, height=height, **shape) as (figure, grid):
        for ax, _, panel in grid:
            for point in panel.itertuples():
                at = methods.index(point.method)
                # The oracle is no method one could use, so it is greyed.
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, getattr(point, "low", np.nan), getattr(point, "high", np.nan), color=color, lw=1.2)
                ax.plot(point.auroc, at, "o", ms=3, color=color, mfc=color if color == COLORS[0] else "white")
                if getattr(point, "significant", False):
                    mark = "▲" if point.difference > 0 else "▼"
                    ax.text(1.01, at, mark, transform=ax.get_yaxis_transform(), va="center", fontsize=6)
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.axvline(0.5, color="black", lw=0.6)
            _named_rows(ax, methods)
        marks = "\n▲ above PRO, ▼ below: DeLong, Holm-corrected" if "significant" in table else ""
        figure.supxlabel(interval("AUROC", table) + marks)
    return figure


def _named_rows(ax: Axes, names: list[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)


def beside_paper(table: pd.DataFrame, paper: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC minus PRO's, method by method: the settings of the paper above, ours below, each similarity by itself.

    Both have columns dataset, model, method, auroc; a method of ours may name its similarity, `SE, lexical`, and those
    that the paper does not have are left out. Intervals of a difference, difference_low and difference_high, are drawn
    where a table has them.
    """
    for name, source in {"table": table, "paper": paper}.items():
        need(source, name, "dataset", "model", "method", "auroc")
    methods = [name for name in dict.fromkeys(paper["method"]) if name != "PRO"]
    named = table["method"].str.extract(r"^(?:SE|SD|Deg), (.+)$")[0]
    sources = {"the paper": paper, "here": table[named.isna()]}
    sources |= {
        f"here, {name}": table[(table["method"] == "PRO") | (named == name)] for name in named.dropna().unique()
    }
    with panels(paper, columns=columns, height=0.24 * len(methods) + 0.1) as (figure, [(ax, *_)]):
        for number, (name, source) in enumerate(sources.items()):
            color, shift = COLORS[number - 1], 0.2 * max(number - 1.5, 0.5) if number else -0.25
            pro = source[source["method"] == "PRO"].set_index(["dataset", "model"])["auroc"].rename("pro")
            cells = source.assign(base=source["method"].str.split(", ").str[0])
            cells = cells[cells["base"].isin(methods)].join(pro, on=["dataset", "model"])
            difference, at = cells["auroc"] - cells["pro"], cells["base"].map(methods.index) + shift
            if "difference_low" in cells:
                ax.hlines(at, cells["difference_low"], cells["difference_high"], color=color, lw=0.6, alpha=0.5)
            label, fill = f"{name}, {len(pro)} settings", "none" if number else color
            ax.plot(difference, at, "o", color=color, mfc=fill, alpha=0.5, label=label)
            means = difference.groupby(at).mean()
            ax.vlines(means, means.index - 0.1, means.index + 0.1, color=color, lw=1.8)
        ax.axvline(0, color="black", lw=0.6)
        _named_rows(ax, methods)
        explain(figure, ax.get_legend_handles_labels()[0], "AUROC minus PRO's (a point a setting, bar: mean)")
    return figure


def accuracy_coverage(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy among the questions answered against their share: a row per model, a column per dataset.

    `table` has columns dataset, model, method, coverage, accuracy and, for bands, low and high; the method `oracle` is
    drawn as a limit. A band has the width of one curve's own uncertainty: methods answer the same questions, so that
    bands that overlap do not mean no difference.
    """
    need(table, "table", "dataset", "model", "method", "coverage", "accuracy")
    methods = [name for name in values(table, "method") if name != "oracle"]
    limit = {"color": COLORS[7], "lw": 1, "ls": ":"}
    with panels(table, "model", "dataset", columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            oracle = panel[panel["method"] == "oracle"]
            ax.plot(oracle["coverage"], oracle["accuracy"], **limit)
            curves(ax, panel, "method", methods, "coverage", "accuracy")
            _shares(ax)
        entries = [*handles(methods), handle("right answers first", **limit)]
        explain(figure, entries, "share of questions answered", interval("accuracy", table))
    return figure


def _shares(ax: Axes) -> None:
    ax.set(xlim=(0, 1), ylim=(0, 1.03))
    set_ticks(ax, SHARE_TICKS)


def reliability(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy against confidence in bins of equal size: a row per model, a column per dataset.

    `table` has columns dataset, model, method, confidence, accuracy, accuracy_low, accuracy_high, ece; equal
    confidences share a bin, so bins differ in size, and so do their intervals.
    """
    need(table, "table", "dataset", "model", "method", "confidence", "accuracy", "ece")
    methods = values(table, "method")
    with panels(table, "model", "dataset", columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            curves(ax, panel, "method", methods, "confidence", "accuracy", of="accuracy_", bars=True, lw=0.8)
            errors = panel.drop_duplicates("method")
            named = [f"{row.method}\N{NO-BREAK SPACE}{row.ece:.3f}" for row in errors.itertuples()]
            ax.set_title(f"{ax.get_title()}\nECE: {', '.join(named)}")
            _shares(ax)
        explain(figure, handles(methods), "confidence, fitted on validation", "accuracy, 95 % interval")
    return figure
