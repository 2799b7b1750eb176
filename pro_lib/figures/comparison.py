"""Methods side by side: AUROC, differences to PRO, accuracy when the unsure are left out, calibration."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pro_lib.figures.lines import curves, explain, handle, handles
from pro_lib.figures.panels import SHARE_TICKS, by_protocol, interval, need, panels, set_ticks, values
from pro_lib.figures.style import COLORS, MARKERS, look


def benchmark(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC of every method with its interval, a panel per setting (dataset × model), a marker per protocol.

    `table` has columns dataset, model, method, auroc and, for bars, low and high and, to mark methods that differ from
    PRO, difference and significant; PRO is drawn first, the other methods in the order they come in.
    """
    need(table, "table", "dataset", "model", "method", "auroc")
    methods, protocols = values(table, "method"), values(table, "protocol") if by_protocol(table) else [""]
    apart, shape = 0.4 / len(protocols), {"sharex": True, "sharey": True}
    height = (0.095 + 0.035 * len(protocols)) * max(len(methods), 5) + 0.05
    with panels(table, "model", "dataset", columns=columns, height=height, **shape) as (figure, grid):
        for ax, _, panel in grid:
            for point in panel.itertuples():
                number = protocols.index(point.protocol) if len(protocols) > 1 else 0
                at = methods.index(point.method) + apart * (number - (len(protocols) - 1) / 2)
                # The oracle is no method one could use, so it is greyed.
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, getattr(point, "low", np.nan), getattr(point, "high", np.nan), color=color, lw=1)
                ax.plot(point.auroc, at, MARKERS[number], ms=3, color=color, mfc="white" if number else color)
                if getattr(point, "significant", False):
                    mark, row = "▲" if point.difference > 0 else "▼", methods.index(point.method)
                    place = {"xytext": (2 + 7 * number, 0), "textcoords": "offset points"}
                    ax.annotate(mark, (1, row), xycoords=ax.get_yaxis_transform(), fontsize=6, va="center", **place)
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.axvline(0.5, color="black", lw=0.6)
            _named_rows(ax, methods)
        marks = "\n▲ above PRO, ▼ below: DeLong, Holm-corrected" if "significant" in table else ""
        marks += f"\nfrom left: {', '.join(protocols)}" if marks and len(protocols) > 1 else ""
        looks = ({"marker": marker, "mfc": "white" if number else "k"} for number, marker in enumerate(MARKERS))
        entries = [handle(name, ls="", c="k", **look) for name, look in zip(protocols, looks, strict=False) if name]
        explain(figure, entries, interval("AUROC", table) + marks)
    return figure


def _named_rows(ax: Axes, names: list[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)


def beside_paper(table: pd.DataFrame, paper: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC minus PRO's, method by method: the paper's settings above, ours below, by protocol and similarity.

    Both have columns dataset, model, method, auroc; a method of ours may name its similarity, `SE, lexical`, and those
    that the paper does not have are left out. Intervals of a difference, difference_low and difference_high, are drawn
    where a table has them.
    """
    for name, source in {"table": table, "paper": paper}.items():
        need(source, name, "dataset", "model", "method", "auroc")
    methods = [name for name in dict.fromkeys(paper["method"]) if name != "PRO"]
    table = table.assign(protocol=table["protocol"] if by_protocol(table) else "")
    named = table["method"].str.extract(r"^(?:SE|SD|Deg), (.+)$")[0].fillna("")
    names, sources = [name for name in named.unique() if name], [("the paper", paper, 0)]
    for number, protocol in enumerate(values(table, "protocol")):
        for place, name in [(0, ""), *enumerate(names)]:
            rows = table[(table["protocol"] == protocol) & ((named == name) | (table["method"] == "PRO"))]
            label = ", ".join(filter(None, ("here", protocol, name)))
            sources.append((label, rows, 1 + place + number * max(len(names), 1)))
    step = 0.75 / sources[-1][-1]
    with panels(paper, columns=columns, height=0.3 * len(methods) + 0.1) as (figure, [(ax, *_)]):
        for number, (name, source, place) in enumerate(sources):
            shift, drawn = step * place - 0.375, look(number - 1) | {"ls": "", "alpha": 0.5, "ms": 3}
            color = drawn["color"]
            pro = source[source["method"] == "PRO"].set_index(["dataset", "model"])["auroc"].rename("pro")
            cells = source.assign(base=source["method"].str.split(", ").str[0])
            cells = cells[cells["base"].isin(methods)].join(pro, on=["dataset", "model"])
            difference, at = cells["auroc"] - cells["pro"], cells["base"].map(methods.index) + shift
            if "difference_low" in cells:
                ax.hlines(at, cells["difference_low"], cells["difference_high"], color=color, lw=0.6, alpha=0.5)
            ax.plot(difference, at, label=f"{name}, {len(pro)} settings", mfc="none" if number else None, **drawn)
            means = difference.groupby(at).mean()
            ax.vlines(means, means.index - step / 2, means.index + step / 2, color=color, lw=1.8)
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
