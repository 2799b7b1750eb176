"""What may be promised: coverage at equal promise, what sets of answers miss, and how often samples surely agree."""

import pandas as pd
from matplotlib.figure import Figure

from pro_lib.figures.lines import curve, explain, handle
from pro_lib.figures.panels import SHARE_TICKS, by_protocol, name_rows, need, note, panels, set_ticks
from pro_lib.figures.style import COLORS

_SET_LINES = {"limit": "missed, upper limit", "missed": "missed", "empty": "empty", "auroc": "AUROC of PRO"}


def coverage_promised(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """What each method may answer, and how much of it was right: a panel per setting and target.

    `table` is that of `tables.promises_table`; methods stand in the order of their mean coverage.
    """
    need(table, "table", "dataset", "model", "method", "target", "coverage", "accuracy", "low", "high")
    methods = list(table.groupby("method", sort=False)["coverage"].mean().sort_values(ascending=False).index)
    table = table.assign(promised=[f"{target:.0%} right" for target in table["target"]])
    shape = {"per_line": 3, "height": 0.12 * max(len(methods), 5), "sharex": True, "sharey": True}
    with panels(table, *by_protocol(table), "dataset", "model", "promised", columns=columns, **shape) as (figure, grid):
        for ax, _, panel in grid:
            at = panel["method"].map(methods.index)
            ax.barh(at, panel["coverage"], 0.7, color=COLORS[4])
            ax.axvline(panel["target"].iloc[0], color="black", lw=0.8, ls="--")
            ax.hlines(at, panel["low"], panel["high"], color=COLORS[1], lw=1)
            ax.plot(panel["accuracy"], at, "o", color=COLORS[1], ms=2.5)
            for row in at[panel["coverage"] == 0]:
                note(ax, "nothing", (0, row))
            name_rows(ax, methods, panel["method"])
            ax.set_xlim(0, 1.02)
            set_ticks(ax, SHARE_TICKS)
        right = handle("right of them, 95 % interval", c=COLORS[1], marker="o", lw=1, ms=2.5)
        answered = handle("questions answered", c=COLORS[4], lw=5, solid_capstyle="butt")
        explain(figure, [answered, right, handle("promised", c="k", lw=0.8, ls="--")], "share")
    return figure


def sets_missed(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """How often sets {p >= α} miss and are empty as α rises, and the AUROC of PRO there: a panel per setting.

    `table` is that of `tables.sets_table`; diamonds stand at the τ of each δ, the band is of what is missed.
    """
    need(table, "table", "dataset", "model", "delta", "alpha", "limit", "missed", "size", "empty", "auroc")
    with panels(table, "model", "dataset", columns=columns, height=1.9) as (figure, grid):
        for ax, _, panel in grid:
            fixed, promised = panel[panel["delta"].isna()], panel[panel["delta"].notna()].dropna(subset="alpha")
            for index, (name, label) in enumerate(_SET_LINES.items()):
                curve(ax, fixed["alpha"], fixed, index, y=name, of="" if name == "missed" else "-", label=label)
            ax.plot(promised["alpha"], promised["delta"], "D", c="black", mfc="white", ms=5, label="δ promised, at τ")
            ax.set_xscale("log")
            sizes = fixed["size"].map("{:.1f}".format)
            ax.set_xticks(fixed["alpha"], [f"{a:g}\n({size})" for a, size in zip(fixed["alpha"], sizes, strict=True)])
            ax.minorticks_off()
            ax.set_ylim(0, 1)
        entries, _ = ax.get_legend_handles_labels()
        explain(figure, entries, "α (mean number of answers in a set)", "share of questions, AUROC")
    return figure


def agreements(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Between what limits agreement surely lies as the search's α falls, and what samples estimate of it.

    `table` is that of `tables.agreement_table`: means over questions, a panel per setting, similarity and kind.
    """
    need(table, "table", "dataset", "model", "similarity", "of", "alpha", "low", "high", "estimate", "outside")
    kinds = {"answer": "with the answer", "two": "of two samples"}
    table = table.assign(shown=table["of"].map(kinds) + ", " + table["similarity"])
    with panels(table, "dataset", "model", "shown", columns=columns, sharey=True) as (figure, grid):
        for ax, _, panel in grid:
            curve(ax, panel["alpha"], panel, 0, y="low", label="surely between")
            for index, (name, label) in enumerate({"estimate": "ten draws", "outside": "draws outside"}.items(), 1):
                curve(ax, panel["alpha"], panel, index, y=name, of="-", label=f"{label}{', share' * (index - 1)}")
            ax.set_xscale("log")
            set_ticks(ax, sorted(panel["alpha"]))
            ax.set_ylim(0, 1)
        explain(figure, ax.get_legend_handles_labels()[0], "search α", "probability of agreement")
    return figure
