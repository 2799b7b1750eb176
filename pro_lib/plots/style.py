"""The style that all figures share: colours, panels, axes, titles and legends."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common.validation import SentenceError, extra

with extra("notebooks", "drawing"):
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.ticker import FixedLocator, NullLocator

PAPER_METHODS = ("PRO", "NLL", "ALL", "PE", "NE", "SE", "SD", "Deg")
# Okabe and Ito's palette; line style and marker repeat what colour says, so that a figure survives greyscale.
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
WIDTHS = {1: 3.3, 2: 7.0}  # inches, by the columns of an AAAI page that a figure spans
SHARE_TICKS = (0, 0.25, 0.5, 0.75, 1)
# The paper's numbers
PRINTED: dict[str, Any] = {
    "color": "#777777",
    "mfc": "none",
    "ms": 5,
    "ls": "",
    "zorder": 1,
}
_PROTOCOL_TITLES = {"paper": "repeats counted", "workbench": "each answer once"}
# Characters that a question may hold, and no XML: Matplotlib writes them as they are.
NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
STYLE = (
    sns.axes_style("ticks", {"axes.grid": True, "grid.color": "#e6e6e6"})
    | {
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
        **dict.fromkeys(("axes.titlesize", "axes.labelsize", "figure.labelsize"), 8),
        **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
        "axes.titley": 1.0,  # unsaid, Matplotlib looks for it among the ticks, at a third of the time of a layout
        "text.parse_math": False,  # an answer may hold dollar signs; nothing here is written in TeX
    }
)
STYLE |= {"font.size": 8, "lines.markersize": 3.5, "svg.hashsalt": "pro", "svg.fonttype": "none"}


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line."""
    return {"color": COLORS[index % 8], "ls": DASHES[index % 6], "marker": MARKERS[index % 8]}


@contextmanager
def panels(
    table: pd.DataFrame,
    *by: str,
    figure_columns: int = 2,
    per_line: int | None = None,
    height: float = 1.6,
    **sharing: Any,
) -> Iterator[tuple[Figure, list[tuple[Axes, dict[str, str], pd.DataFrame]]]]:
    """Make a figure with a panel per combination of values of the columns `by`; what all share is said below.

    Yields the figure and, per panel, its axes, its values by column and its rows.
    """
    by = tuple(name for name in by if name in table)
    shared = [
        name
        for name in dict.fromkeys(("dataset", "model", *by))
        if len(distinct_values(table, name)) == 1
    ]
    apart = [name for name in by if name not in shared]
    combinations = (
        dict(zip(by, names, strict=True))
        for names in product(*(distinct_values(table, name) for name in by))
    )
    settings = [setting for setting in combinations if len(matching_rows(table, setting))]
    across = len(distinct_values(table, apart[-1])) if apart else 1
    per_line = min(
        len(settings), per_line or (1 if figure_columns == 1 else across if 1 < across <= 6 else 3)
    )
    n_lines, letters = (
        ceil(len(settings) / per_line),
        int(14.8 * (WIDTHS[figure_columns] / per_line - 0.3)),
    )
    with plt.rc_context(STYLE):
        figure = plt.figure(
            figsize=(WIDTHS[figure_columns], n_lines * (height + 0.4) + 0.7), layout="constrained"
        )
        grid = figure.subplots(n_lines, per_line, squeeze=False, **sharing).ravel()
        for surplus in grid[len(settings) :]:
            surplus.remove()
        drawn = [
            (ax, setting, matching_rows(table, setting))
            for ax, setting in zip(grid, settings, strict=False)
        ]
        for ax, setting, rows in drawn:
            names = [_spoken(name, setting[name]) for name in reversed(apart)]
            names += [question_count(rows)] if "n_questions" in rows else []
            lines = textwrap.wrap(", ".join(names), letters, max_lines=2, break_on_hyphens=False)
            ax.set_title("\n".join(lines), linespacing=1.1)
        yield figure, drawn
        in_all = ", ".join(_spoken(name, table[name].iloc[0]) for name in shared)
        in_all = f"all panels: {in_all}" if in_all and len(settings) > 1 else in_all
        below = textwrap.wrap(in_all, int(14 * WIDTHS[figure_columns]))
        figure.supxlabel("\n".join(filter(None, [figure.get_supxlabel(), *below])))


def question_count(rows: pd.DataFrame) -> str:
    """Say how many questions a panel is about, and of how many if labels cover these only."""
    n = rows["n_questions"].max()
    count = f"n\xa0=\xa0{n:,.0f}"
    n_unlabelled = rows["n_unlabelled"].max() if "n_unlabelled" in rows else 0
    if n_unlabelled > 0:
        count += f" labelled of\xa0{n + n_unlabelled:,.0f}"
    return count


def _spoken(column: str, value: object) -> str:
    """Return a value of a column as titles show it; only protocols have other names there."""
    protocol, separator, rest = str(value).partition(", ")
    if column == "protocol" and protocol in _PROTOCOL_TITLES:
        return f"{_PROTOCOL_TITLES[protocol]}{separator}{rest}"
    return str(value)


def distinct_values(table: pd.DataFrame, column: str) -> list:
    """Return the different values of a column, if there is one, in their order; PRO before the others."""
    return sorted(dict.fromkeys(table.get(column, ())), key=lambda value: value != "PRO")


def matching_rows(table: pd.DataFrame, chosen: dict[str, str]) -> pd.DataFrame:
    """Return the rows with these values by column."""
    return table[(table[list(chosen)] == pd.Series(chosen, dtype=object)).all(axis=1)]


def set_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Set the ticks of the x axis, labelled with plain numbers."""
    ax.xaxis.set(
        major_locator=FixedLocator(sorted(ticks)),
        major_formatter="{x:g}",
        minor_locator=NullLocator(),
    )


def alpha_axis(ax: Axes) -> None:
    """Make the x axis linear below 0.001, where only α = 0 lies, and logarithmic above it."""
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    ax.set_xlim(0, 1)
    set_ticks(ax, (0, 0.01, 0.1, 0.4, 1))


def difference_axis(ax: Axes) -> None:
    """Make the y axis one of differences: linear up to 0.05, logarithmic beyond, a line at 0."""
    ax.axhline(0, color="black", lw=0.6)
    ax.set_yscale("symlog", linthresh=0.05)
    ax.yaxis.set(
        major_locator=FixedLocator([-0.5, -0.1, -0.05, 0, 0.05, 0.1, 0.5]),
        minor_locator=NullLocator(),
    )
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")


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
    of: str = "",
    bars: bool = False,
    **other,
) -> None:
    """Draw a line with its interval, columns `<of>low` and `<of>high` where the table has them: a band, or bars."""
    step = 1 if bars else max(1, len(line) // 4)
    drawn = {**line_style(index), "markevery": (2 * index % step, step), **other}
    ax.plot(x, line[y], **drawn)
    if f"{of}low" in line:
        ends = line[f"{of}low"].astype(float), line[f"{of}high"].astype(float)
        band = {
            "fc": (drawn["color"], 0.12),
            "ec": (drawn["color"], 0.6),
            "lw": 0.6,
            "ls": drawn["ls"],
        }
        ax.vlines(x, *ends, color=drawn["color"], lw=0.8) if bars else ax.fill_between(
            x, *ends, **band
        )


def draw_curves(
    ax: Axes,
    table: pd.DataFrame,
    by: str,
    names: Sequence,
    x: str,
    y: str = "auroc",
    *,
    shift: float = 0.0,
    **other,
) -> None:
    """Draw a curve over the column `x` for each name in the column `by`, each moved by `shift` from the last."""
    for index, name in enumerate(names):
        if len(line := table[table[by] == name]):
            at = line[x].astype(float) + shift * (index - (len(names) - 1) / 2)
            draw_curve(ax, at, line, index, y=y, label=name, **other)


def minus_nll(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return the table with a column difference: `y` minus NLL's at the same `x`."""
    return table.assign(
        difference=table[y] - table[x].map(table[table["method"] == "NLL"].set_index(x)[y])
    )


def handles(names: Sequence[object], **other: Any) -> list[plt.Line2D]:
    """Return a legend entry for the line of each name."""
    return [
        plt.Line2D([], [], label=name, **{**line_style(index), **other})
        for index, name in enumerate(names)
    ]


def explain(figure: Figure, entries: Sequence[plt.Artist], x: str = "", y: str = "") -> None:
    """Put a legend above all panels, and say what their axes show."""
    figure.supxlabel(x)
    figure.supylabel(y)
    if entries:
        widest = 4.3 * max(len(str(entry.get_label())) for entry in entries) + 32  # points
        rows = ceil(len(entries) / max(1, int(72 * figure.get_figwidth() / widest)))
        shape = {
            "ncols": ceil(len(entries) / rows),
            "handlelength": 2.6,
            "columnspacing": 1.2,
            "borderpad": 0,
        }
        figure.legend(handles=entries, loc="outside upper center", **shape)


# --- Parts of the figures on tidy tables ---

ALPHA_AXIS = "α, the least probability of an answer that is kept (log scale above 0.001)"


def checked_table(table: pd.DataFrame, columns: Sequence[str], figure: str) -> pd.DataFrame:
    """Return a table that a figure can be drawn from; raise a `SentenceError` if a column is missing.

    A table without the column `model` gets an empty one, so that it is drawn as one line.

    Args:
        table: the table of a user.
        columns: the columns that the figure needs.
        figure: the name of the function that draws it, for the message.
    """
    missing = [name for name in columns if name not in table]
    if missing:
        needs = f"plots.{figure} needs the columns {', '.join(columns)}"
        raise SentenceError(f"The table has no column {missing[0]!r}; {needs}")
    if table.empty:
        raise SentenceError(f"The table has no rows, so plots.{figure} cannot draw it")
    return table if "model" in table else table.assign(model="")


def title_at_right(ax: Axes, text: str | None = None, **style: Any) -> None:
    """Set the title of a panel at the right, or move it there if no text is given.

    There a long title lies above the names at the left of the panel and not beyond the figure.
    """
    shown = ax.get_title() if text is None else text
    ax.set_title("")
    ax.set_title(shown, loc="right", **style)


def model_entries(models: Sequence[str], **style: Any) -> list[plt.Line2D]:
    """Return a legend entry for the line of each model."""
    return [entry for entry in handles(models, **style) if entry.get_label()]


def printed_entry(**style: Any) -> plt.Line2D:
    """Return the legend entry of the values that the paper printed."""
    return plt.Line2D([], [], label="printed in the paper", **{**PRINTED, "marker": "D", **style})


def label_figure(
    figure: Figure, *, title: str, x: str, y: str, entries: Sequence[plt.Artist] = ()
) -> None:
    """Put the title and one legend above all panels, and name the two axes."""
    letters = int(14 * figure.get_figwidth())
    explain(figure, entries, "\n".join(textwrap.wrap(x, letters)), y)
    heading = "\n".join(textwrap.wrap(title, int(13.5 * figure.get_figwidth()), max_lines=2))
    if figure.legends:  # the legend lies where a title would
        figure.legends[0].set_title(heading, FontProperties(size=8.5, weight="bold"))
    else:
        figure.suptitle(heading, fontsize=8.5, fontweight="bold")
