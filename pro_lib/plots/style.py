"""The style that all figures share: colours, axes, lines and legends."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import matplotlib.pyplot as plt  # noqa: F401 - for the modules of figures
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pro_lib.evaluation.methods import METHODS, kinds_of_figures

# The palette of Okabe and Ito. Line style and marker differ as the colours do, so that a figure can
# be read in greyscale.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
DASHES = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.3, 1, 1.3)),
    (0, (9, 1.6)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MARKER_SIZE = 3.5  # points
WIDTHS = {1: 3.3, 2: 7.0}  # inches, by the columns of an AAAI page that a figure spans
SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1)
# The paper's numbers
PRINTED: dict[str, Any] = {
    "color": "#777777",
    "mfc": "none",
    "ms": 5,
    "ls": "",
    "marker": "D",
    "zorder": 7,
    "label": "printed in the paper",
}
STYLE = sns.axes_style("ticks", {"axes.grid": True, "grid.color": "#e6e6e6"}) | {
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "figure.labelsize"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    # Without it, Matplotlib searches the ticks for the place, in a third of the layout's time.
    "axes.titley": 1.0,
    "text.parse_math": False,  # an answer may contain dollar signs
    "font.size": 8,
    "lines.markersize": MARKER_SIZE,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
}
ALPHA_LABELS = {
    "log": "α, the least probability of an answer that is kept (log scale above 0.001)",
    "linear": "α, the least probability of an answer that is kept",
}


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line."""
    style = {"color": COLORS[index % 8], "ls": DASHES[index % 6], "marker": MARKERS[index % 8]}
    return style | {"ms": MARKER_SIZE}  # legends are made where the style does not apply


def method_styles(labels: Sequence[str]) -> list[int]:
    """Return the index of the `line_style` of each method, by its label.

    A method with a style of its own has it in all figures, unless the figure has the method twice,
    with two comparisons of meanings. The other methods have the styles that are left.
    """
    methods = [label.split(" (")[0] for label in labels]
    chosen = {}
    for label, name in zip(labels, methods, strict=True):
        style = METHODS[name].style if name in METHODS else None
        if style is not None and methods.count(name) == 1:
            chosen[label] = style
    left = (index for index in count() if index not in chosen.values())
    return [chosen[label] if label in chosen else next(left) for label in labels]


def drawn_methods(table: pd.DataFrame) -> pd.Series:
    """Return for each row of a table whether figures of AUROC draw its method."""
    return table["method"].map(lambda name: kinds_of_figures(name) > 0).astype(bool)


def distinct_values(table: pd.DataFrame, column: str) -> list:
    """Return the different values of a column in their order, PRO first; [] without the column."""
    return sorted(dict.fromkeys(table.get(column, ())), key=lambda value: value != "PRO")


def matching_rows(table: pd.DataFrame, chosen: dict[str, str]) -> pd.DataFrame:
    """Return the rows with these values by column."""
    return table[(table[list(chosen)] == pd.Series(chosen, dtype=object)).all(axis=1)]


def minus(text: str) -> str:
    """Return a number with the sign for minus in place of a hyphen."""
    return text.replace("-", "−")


def set_ticks(axis: Axis, ticks: Sequence[float], form: str = "{:g}") -> None:
    """Set the ticks of an axis, labelled with plain numbers."""
    axis.set(
        major_locator=FixedLocator(ticks),
        major_formatter=lambda value, _: minus(form.format(value)) if value else "0",
        minor_locator=NullLocator(),
    )


def alpha_axis(ax: Axes, scale: str = "log") -> None:
    """Set the scale and the ticks of an x axis of α.

    Args:
        ax: the axes.
        scale: `log` is linear below 0.001, where only α = 0 lies, and logarithmic above it.
            `linear` is the scale of the paper.
    """
    ax.set_xlim(0, 1)
    if scale == "linear":
        set_ticks(ax.xaxis, (0, 0.2, 0.4, 0.6, 0.8, 1))
        return
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    set_ticks(ax.xaxis, (0, 0.01, 0.1, 0.4, 1))


def difference_axis(
    ax: Axes, name: str, ticks: Sequence[float] = (0.1, 0.02), *, linear: float = 0.02
) -> None:
    """Make the x or y axis one of differences, with a line at 0.

    Args:
        ax: the axes.
        name: x or y.
        ticks: the ticks above 0, from the largest; the same are below 0.
        linear: the axis is linear up to this difference, and logarithmic beyond it.
    """
    is_x = name == "x"
    (ax.set_xscale if is_x else ax.set_yscale)("symlog", linthresh=linear)
    (ax.axvline if is_x else ax.axhline)(0, color="black", lw=0.6)
    values = [*[-tick for tick in ticks], 0, *reversed(ticks)]
    set_ticks(ax.xaxis if is_x else ax.yaxis, values, "{:+g}")


def name_rows(ax: Axes, names: Sequence[str], present: Sequence[str]) -> None:
    """Name the rows of a panel, from above; say n/a in those that are not `present`."""
    for row in np.flatnonzero(~np.isin(names, list(present))).tolist():
        ax.text(0, row, " n/a", transform=ax.get_yaxis_transform(), fontsize=7, va="center")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)


def draw_curve(
    ax: Axes,
    x: pd.Series,
    line: pd.DataFrame,
    index: int,
    *,
    y: str,
    bars: bool = False,
    **other: Any,
) -> None:
    """Draw a line with its interval, `<y>_low` to `<y>_high`, as a band or as bars."""
    step = 1 if bars else max(1, len(line) // 4)
    drawn = {**line_style(index), "markevery": (2 * index % step, step), **other}
    ax.plot(x, line[y], **drawn)
    if f"{y}_low" not in line:
        return
    color = drawn["color"]
    ends = line[f"{y}_low"].astype(float), line[f"{y}_high"].astype(float)
    if bars:
        ax.vlines(x, *ends, color=color, lw=0.8)
    else:
        ax.fill_between(x, *ends, fc=(color, 0.12), ec=(color, 0.6), lw=0.6, ls=drawn["ls"])


def draw_curves(  # noqa: PLR0913 - the last two describe the whole set of curves
    ax: Axes,
    table: pd.DataFrame,
    by: str,
    names: Sequence,
    x: str,
    y: str = "auroc",
    *,
    shift: float = 0.0,
    styles: Sequence[int] | None = None,
    **other: Any,
) -> None:
    """Draw a curve over the column `x` for each name in the column `by`, `shift` apart.

    `styles` are the indices of the line styles; None for 0, 1, ….
    """
    styles = range(len(names)) if styles is None else styles
    for place, (name, style) in enumerate(zip(names, styles, strict=True)):
        line = table[table[by] == name]
        if line.empty:
            continue
        places = line[x].astype(float) + shift * (place - (len(names) - 1) / 2)
        draw_curve(ax, places, line, style, y=y, **{"label": name, **other})


def labelled_styles(labels: Mapping[Any, str]) -> dict[Any, dict[str, Any]]:
    """Return the style of each name, with its label in the legend."""
    return {
        name: line_style(index) | {"label": label}
        for index, (name, label) in enumerate(labels.items())
    }
