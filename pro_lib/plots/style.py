"""The style that all figures share: colours, axes, lines and legends."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt  # noqa: F401 - for the modules of figures
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pro_lib.evaluation.methods import is_drawn

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
    "figure.constrained_layout.wspace": 0.05,
    "text.parse_math": False,  # an answer may contain dollar signs
    "font.size": 8,
    "lines.markersize": MARKER_SIZE,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
}
_ALPHA_LABEL = "α: PRO uses the answers with p ≥ α"
ALPHA_LABELS = {"log": f"{_ALPHA_LABEL} (logarithmic above 0.001)", "linear": _ALPHA_LABEL}
PROTOCOL_WORDS = {"paper": "repeats counted", "workbench": "each answer once"}


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line."""
    style = {"color": COLORS[index % 8], "ls": DASHES[index % 6], "marker": MARKERS[index % 8]}
    return style | {"ms": MARKER_SIZE}  # legends are made where the style does not apply


def labelled_styles(names: Iterable) -> dict[Any, dict[str, Any]]:
    """Return the style of each name, with the name as its label in the legend."""
    different = dict.fromkeys(names)
    return {name: line_style(index) | {"label": name} for index, name in enumerate(different)}


def drawn_methods(table: pd.DataFrame) -> pd.Series:
    """Return for each row of a table whether figures of AUROC draw its method."""
    return table["method"].map(lambda name: is_drawn(name, "auroc")).astype(bool)


def distinct_values(table: pd.DataFrame, column: str) -> list:
    """Return the different values of a column in their order, PRO first; [] without the column."""
    return sorted(dict.fromkeys(table.get(column, ())), key=lambda value: value != "PRO")


def minus(text: str) -> str:
    """Return a number with the sign for minus in place of a hyphen."""
    return text.replace("-", "−")


def set_ticks(axis: Axis, ticks: Sequence[float]) -> None:
    """Set the ticks of an axis, labelled with plain numbers."""
    axis.set(
        major_locator=FixedLocator(ticks),
        major_formatter=lambda value, _: f"{value:g}",
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


def draw_curve(
    ax: Axes,
    line: pd.DataFrame,
    x: str,
    y: str,
    *,
    bars: bool = False,
    **style: Any,
) -> None:
    """Draw a line with its interval, `<y>_low` to `<y>_high`, as a band or as bars."""
    ax.plot(line[x], line[y], **style)
    if f"{y}_low" not in line:
        return
    color = style["color"]
    ends = line[f"{y}_low"].astype(float), line[f"{y}_high"].astype(float)
    if bars:
        ax.vlines(line[x], *ends, color=color, lw=0.8)
    else:
        drawstyle = style.get("drawstyle")
        step: Literal["post"] | None = "post" if drawstyle == "steps-post" else None
        ax.fill_between(line[x], *ends, step=step, fc=(color, 0.12), lw=0)
        for end in ends:
            look: dict[str, Any] = {"color": (color, 0.8), "ls": style["ls"], "lw": 0.5}
            ax.plot(line[x], end, drawstyle=drawstyle, **look)


def draw_curves(
    ax: Axes,
    table: pd.DataFrame,
    by: str,
    names: Sequence,
    x: str,
    y: str = "auroc",
    *,
    shift: float = 0.0,
    **other: Any,
) -> None:
    """Draw a curve over the column `x` for each name in the column `by`, `shift` apart."""
    for place, (name, style) in enumerate(labelled_styles(names).items()):
        line = table[table[by] == name]
        if len(line):
            moved = line[x].astype(float) + shift * (place - (len(names) - 1) / 2)
            draw_curve(ax, line.assign(**{x: moved}), x, y, **style | other)
