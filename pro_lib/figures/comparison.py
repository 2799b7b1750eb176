"""Methods side by side: AUROC, differences to PRO, accuracy when the unsure are left out, calibration."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pro_lib.figures.lines import BEYOND, curves, difference_axis, explain, handle, handles, minus_nll
from pro_lib.figures.panels import SHARE_TICKS, by_protocol, interval, name_rows, need, note, panels, set_ticks, values
from pro_lib.figures.style import COLORS, MARKERS, look


def benchmark(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC of every method with interval and value, a panel per setting (dataset × model), a marker per protocol.

    `table` has columns dataset, model, method, auroc and, for bars, low and high and, to mark methods that differ from
    PRO, difference and significant. Methods stand in the order of their means; the axis begins 0.2 below the best, and
    what lies below it stands at its edge, so that it does not press the others together.
    """
    need(table, "table", "dataset", "model", "method", "auroc")
    means = table.groupby("method", sort=False)["auroc"].mean()
    methods = list(means.sort_values(ascending=False, kind="stable").index)
    protocols, left = values(table, "protocol") if by_protocol(table) else [""], table["auroc"].max() - 0.2
    apart, shape = 0.8 / len(protocols) * (len(protocols) > 1), {"sharex": True, "sharey": True}
    roomy = columns > 1 or len(protocols) == 1  # values of two protocols leave panels of one column no room
    # At most so high that two lines of panels fit on a page.
    height = min((0.12 + 0.01 * len(protocols)) * max(len(methods), 5), 3.2 if columns == 1 else 3.6)
    with panels(table, "model", "dataset", columns=columns, height=height, **shape) as (figure, grid):
        for ax, _, panel in grid:
            for point in panel.itertuples():
                number = protocols.index(point.protocol) if len(protocols) > 1 else 0
                at = methods.index(point.method) + apart * (number - (len(protocols) - 1) / 2)
                # The oracle is no method one could use, so it is greyed.
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, getattr(point, "low", np.nan), getattr(point, "high", np.nan), color=color, lw=1)
                drawn = {"color": color, "mfc": "white" if number else color, "clip_on": False, "zorder": 3}
                marker = MARKERS[number] if point.auroc >= left else 4
                ax.plot(max(point.auroc, left), at, marker=marker, ms=3.5, **drawn)
                mark = ("▲" if point.difference > 0 else "▼") if getattr(point, "significant", False) else ""
                text = f"{point.auroc:.3f}".lstrip("0") * roomy + mark
                note(ax, text, (1, methods.index(point.method)), by=2 + (26 if roomy else 7) * number)
            name_rows(ax, methods, panel["method"])
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.axvline(0.5, color="black", lw=0.6)
            ax.set_xlim(left, None)
        marks = "\n▲ above PRO, ▼ below: DeLong, Holm-corrected" if "significant" in table else ""
        marks += f"\nfrom left: {', '.join(protocols)}" if len(protocols) > 1 else ""
        looks = ({"marker": marker, "mfc": "white" if number else "k"} for number, marker in enumerate(MARKERS))
        entries = [handle(name, ls="", c="k", **look) for name, look in zip(protocols, looks, strict=False) if name]
        explain(figure, entries, interval("AUROC", table) + " (dotted: the best)" + marks)
    return figure


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
        name_rows(ax, methods, methods)
        label = f"AUROC minus PRO's\n(point: a setting, {'line: 95 %, ' * ('difference_low' in table)}bar: mean)"
        explain(figure, ax.get_legend_handles_labels()[0], label)
    return figure


def accuracy_coverage(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy among the questions answered, minus NLL's, against their share: a row per model, a column per dataset.

    `table` has columns dataset, model, method, coverage, accuracy and, for a band, low and high; NLL is one of the
    methods, and its accuracy stands below the shares. The band is NLL's own interval, what its accuracy is known to: it
    tests no difference, since methods answer the same questions. The method `oracle` is left out.
    """
    need(table, "table", "dataset", "model", "method", "coverage", "accuracy")
    methods = [name for name in values(table, "method") if name not in ("oracle", "NLL")]
    grey = {"color": COLORS[7], "alpha": 0.3, "lw": 0}
    with panels(table, "model", "dataset", columns=columns, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            lines = minus_nll(panel, "coverage", "accuracy")
            curves(ax, lines, "method", methods, "coverage", "difference", of="difference_")
            nll, at = panel[panel["method"] == "NLL"], (0.02, 0.25, 0.5, 0.75, 1)
            if "low" in nll:
                ax.fill_between(nll["coverage"], *(nll[end] - nll["accuracy"] for end in ("low", "high")), **grey)
            difference_axis(ax)
            shares = np.interp(at, nll["coverage"], nll["accuracy"]) if len(nll) else [np.nan] * len(at)
            ax.set_xticks(at, [f"{of:.0%}\n({share:.2f})" for of, share in zip(at, shares, strict=True)])
        band = [Patch(**grey, label="NLL, 95 % interval")] * ("low" in table)
        label = "questions answered (NLL's accuracy)"
        explain(figure, [*handles(methods), *band], label, "accuracy minus NLL's" + BEYOND)
    return figure


def reliability(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy against confidence in bins: a row per model, a column per dataset.

    `table` has columns dataset, model, method, n, confidence, accuracy, accuracy_low, accuracy_high, ece. Equal
    confidences share a bin, so bins differ in size; a point's area is its share of the questions.
    """
    need(table, "table", "dataset", "model", "method", "n", "confidence", "accuracy", "ece")
    methods = values(table, "method")
    with panels(table, "model", "dataset", columns=columns, sharex=True, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            for index, method in enumerate(methods):
                bins, color = panel[panel["method"] == method], look(index)["color"]
                ax.vlines(bins["confidence"], bins["accuracy_low"], bins["accuracy_high"], color=color, lw=0.6)
                sizes = 300 * bins["n"] / bins["n"].sum() + 4
                # Not filled, so that one upon another is seen.
                drawn = {"marker": MARKERS[index], "edgecolors": color, "facecolors": "none", "lw": 1.1}
                ax.scatter("confidence", "accuracy", sizes, data=bins, **drawn)
            errors = panel.drop_duplicates("method")
            named = [f"{row.method}\N{NO-BREAK SPACE}{row.ece:.3f}" for row in errors.itertuples()]
            ax.set_title(f"{ax.get_title()}\nECE: {', '.join(named)}")
            ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
            set_ticks(ax, SHARE_TICKS)
        label = "accuracy, 95 % interval (area: questions)"
        explain(figure, handles(methods, ls="", mfc="none"), "confidence, fitted on validation", label)
    return figure
