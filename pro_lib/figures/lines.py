"""Lines with their intervals, what the paper printed beside them, and legends; knows no figure."""

from collections.abc import Sequence
from math import ceil

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pro_lib.figures.style import LETTER, look

# What the label of an axis of differences says of it.
BEYOND = "\n(log scale beyond ±0.05)"
# The paper's printed numbers beside ours: the marker says which line they belong to.
PRINTED = {"color": "#777777", "mfc": "none", "ms": 5, "ls": "", "zorder": 1}


def curve(
    ax: Axes, x: pd.Series, line: pd.DataFrame, index: int, *, y: str, of: str = "", bars: bool = False, **other
) -> None:
    """A line with its interval, columns `<of>low` and `<of>high` where the table has them, as a band or as bars.

    Bands are edged as the line is dashed, so that those that lie over each other are told apart without colour too,
    unless `edged` is False.
    """
    edged = other.pop("edged", True)
    step = 1 if bars else max(1, len(line) // 4)
    drawn = {**look(index), "markevery": (2 * index % step, step), **other}
    ax.plot(x, line[y], **drawn)
    low, high = line.get(f"{of}low"), line.get(f"{of}high")
    if low is not None and bars:
        ax.vlines(x, low, high, color=drawn["color"], lw=0.8)
    elif low is not None:
        look_of = {"fc": (drawn["color"], 0.12), "ec": (drawn["color"], 0.9 * edged), "lw": 0.6, "ls": drawn["ls"]}
        ax.fill_between(x, low.astype(float), high.astype(float), **look_of)


def curves(
    ax: Axes, table: pd.DataFrame, by: str, names: list[str], x: str, y: str = "auroc", *, apart: float = 0.0, **other
) -> None:
    """A `curve` over the column `x` for each of the names in column `by`, one moved `apart` from the next."""
    for index, name in enumerate(names):
        if len(line := table[table[by] == name]):
            at = line[x].astype(float) + apart * (index - (len(names) - 1) / 2)
            curve(ax, at, line, index, y=y, label=name, **other)


def minus_nll(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The table with a column difference: of `y` to NLL's at the same `x`."""
    nll = table[table["method"] == "NLL"].set_index(x)[y]
    return table.assign(difference=table[y] - table[x].map(nll))


def difference_axis(ax: Axes) -> None:
    """Differences upwards: linear up to 0.05, where most of them lie, logarithmic beyond (`BEYOND`); a line at 0."""
    ax.axhline(0, color="black", lw=0.6)
    ax.set_yscale("symlog", linthresh=0.05)
    lines = ax.get_gridspec().nrows
    room = 2 if lines > 4 else 3 if lines > 2 or ax.figure.get_figwidth() < 4 else 5
    ticks = (0.5, 0.05, 0.02, 0.1, 0.2)[:room]  # the most important first
    ax.yaxis.set_major_locator(FixedLocator([0, *ticks, *(-tick for tick in ticks)]))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    ax.yaxis.set_minor_locator(NullLocator())


def handle(label: str, **drawn) -> plt.Line2D:
    """An entry of a legend."""
    return plt.Line2D([], [], label=label, **drawn)


def handles(names: Sequence[str], paper: pd.DataFrame | None = None, **other) -> list[plt.Line2D]:
    """A legend's entries for the lines with these names, and for what the paper printed, if it did."""
    lines = [handle(name, **{**look(index), **other}) for index, name in enumerate(names)]
    return lines if paper is None or paper.empty else [*lines, handle("the paper", marker="D", **PRINTED)]


def explain(figure: Figure, entries: Sequence[plt.Artist], x: str = "", y: str = "") -> None:
    """A legend above all panels, if there is something to explain, and what their axes show."""
    figure.supxlabel(x)
    figure.supylabel(y)
    if not entries:
        return
    widest = 7 * (LETTER * max(len(entry.get_label()) for entry in entries) + 4.6)
    rows = ceil(len(entries) / max(1, int(72 * figure.get_figwidth() / widest)))
    spacing = {"ncols": ceil(len(entries) / rows), "handlelength": 2.6, "columnspacing": 1.2, "borderpad": 0}
    figure.legend(handles=entries, loc="outside upper center", **spacing)
