"""A figure as wide as a paper's columns: a panel per setting, with titles, legend and ticks that fit.

It knows texts and inches; it does not know what is drawn.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import ceil

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pro_lib.figures.style import LETTER, style

# Inches: a column and the text width of an AAAI page, and how much of its height a figure should take at most.
WIDTHS, _TALLEST = {1: 3.3, 2: 7.0}, {1: 6.5, 2: 8.2}
ALPHA_LABEL = "α (log scale above 0.001)"
# Ticks are given the most important first: those that find no room are left out.
ALPHA_TICKS, SHARE_TICKS = (0, 1, 0.1, 0.01, 0.4, 0.001, 0.05, 0.2), (0, 1, 0.5, 0.25, 0.75)

# Axes, the values they are of by column, and the rows with these.
Panel = tuple[Axes, dict[str, str], pd.DataFrame]


@contextmanager
def panels(
    table: pd.DataFrame, *by: str, columns: int, per_line: int | None = None, height: float | None = None, **sharing
) -> Iterator[tuple[Figure, list[Panel]]]:
    """A figure with a panel per combination there is of values of the columns `by`, those of the last side by side.

    Yields the figure and its panels; at the end titles are wrapped and ticks thinned to the panels' width, and the
    figure is made as high as panels of `height` inches want. What several panels share of dataset and model is said
    once, below. `sharing` goes to `Figure.subplots`.
    """
    if columns not in WIDTHS:
        raise ValueError(f"columns={columns!r} must be 1 or 2, the columns of a paper that the figure spans")
    combined = (dict(zip(by, each, strict=True)) for each in product(*(values(table, name) for name in by)))
    settings = [each for each in combined if not where(table, each).empty]
    below = [name for name in ("dataset", "model") if name in table and (name not in by or len(settings) > 1)]
    shared = {name: of[0] for name in below if len(of := values(table, name)) == 1}
    n, across = len(settings), len(values(table, by[-1])) if by else 1
    per_line = min(n, per_line or (min(across, 3 * columns) if 1 < across < n else {1: 1, 2: 3}[columns]))
    lines = ceil(n / per_line)
    height = height or min(0.5 + 0.4 * WIDTHS[columns] / per_line, max(0.55, _TALLEST[columns] / lines - 0.7))
    with style():
        figure = plt.figure(figsize=(WIDTHS[columns], lines * (height + 2)), layout="constrained")
        try:
            grid = figure.subplots(lines, per_line, squeeze=False, **sharing).ravel()
            for above, surplus in zip(grid[n - per_line :], grid[n:], strict=False):
                above.tick_params(labelbottom=True)
                surplus.remove()
            made = [(ax, each, where(table, each)) for ax, each in zip(grid, settings, strict=False)]
            for ax, each, rows in made:
                # Said here since Matplotlib decides by it how many ticks there are, whenever it draws.
                ax.tick_params(labelsize=7)
                numbers = rows.reindex(columns=["n_questions"]).dropna()["n_questions"][:1]
                counted = [f"n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{number:,.0f}" for number in numbers]
                size = 8 if per_line <= 2 * columns else 7
                told = [value for name, value in each.items() if name not in shared]
                ax.set_title(", ".join([*reversed(told), *counted]), fontsize=size, linespacing=1.1)
            yield figure, made
            named = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
            said = ", ".join(value for value in shared.values() if value not in named)
            figure.supxlabel("\n".join(filter(None, [figure.get_supxlabel(), said])))
            _settle(figure, grid[:n], lines * height)
        except BaseException:
            plt.close(figure)
            raise


def _settle(figure: Figure, axes: Sequence[Axes], height: float) -> None:
    """Fit texts to the panels' width, and the figure to panels that are `height` inches high together."""
    figure.get_layout_engine().execute(figure)
    for ax in axes:
        room = 72 * ax.bbox.width / figure.dpi
        for text in (ax.title, ax.xaxis.label):
            letters = max(4, int(room / (LETTER * text.get_fontsize())))
            text.set_text("\n".join(_wrapped(line, letters) for line in text.get_text().split("\n")))
        if isinstance(ax.xaxis.get_major_locator(), FixedLocator):
            ax.xaxis.set_major_locator(FixedLocator(_thinned(ax, ax.get_xticks())))
    figure.get_layout_engine().execute(figure)
    lines = axes[0].get_gridspec().nrows
    figure.set_figheight(figure.get_figheight() + height - lines * axes[0].bbox.height / figure.dpi)


def _wrapped(line: str, letters: int) -> str:
    """Broken between words, and at hyphens only where a word is too long for a line."""
    parts = " ".join(textwrap.fill(word, letters) for word in line.split(" ")).split("\n")
    return "\n".join(textwrap.fill(part, letters, break_on_hyphens=False) for part in parts)


def _thinned(ax: Axes, ticks: Sequence[float]) -> list[float]:
    """Those ticks whose labels keep a letter's distance from the ones before them."""
    kept: dict[float, tuple[float, float]] = {}
    for tick, label in zip(ticks, ax.xaxis.get_major_formatter().format_ticks(ticks), strict=True):
        at = 72 / ax.figure.dpi * ax.transData.transform((tick, 1))[0]
        half = 7 * LETTER * (max(map(len, label.split("\n"))) + 0.7) / 2
        if all(abs(at - other) >= half + its_half for other, its_half in kept.values()):
            kept[tick] = at, half
    return sorted(kept)


def need(table: pd.DataFrame, name: str, *columns: str) -> None:
    """Raise `ValueError` unless the table, called `name`, has these columns and rows."""
    if missing := [column for column in columns if column not in table]:
        raise ValueError(f"{name} has no column {missing[0]!r}; it needs {', '.join(columns)}")
    if table.empty:
        raise ValueError(f"{name} has no rows: there is nothing to draw")


def values(table: pd.DataFrame, column: str) -> list:
    """The different values of a column, in the order they come in; PRO, the figures' subject, before the others."""
    return sorted(dict.fromkeys(table[column]), key=lambda value: value != "PRO")


def where(table: pd.DataFrame, chosen: Mapping[str, str]) -> pd.DataFrame:
    """The rows with these values by column."""
    return table[(table[list(chosen)] == pd.Series(chosen, dtype=object)).all(axis=1)]


def by_protocol(table: pd.DataFrame) -> list[str]:
    """The column `protocol`, where a table has it and holds more than one."""
    return ["protocol"] if "protocol" in table and len(values(table, "protocol")) > 1 else []


def interval(label: str, table: pd.DataFrame) -> str:
    """The label of an axis, its interval named where the table has one."""
    return f"{label}, 95 % interval" if "low" in table else label


def set_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Ticks of the x axis, the most important first, labelled with plain numbers."""
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def alpha_axis(ax: Axes) -> None:
    """Linear below 0.001, where only α = 0 lies, logarithmic above it."""
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    ax.set_xlim(0, 1)
    set_ticks(ax, ALPHA_TICKS)


def note(ax: Axes, text: str, at: tuple[float, float], *, by: float = 2) -> None:
    """A small text in a row of a panel, `by` points to the right of a share of its width."""
    place = {"xycoords": ax.get_yaxis_transform(), "xytext": (by, 0), "textcoords": "offset points", "va": "center"}
    ax.annotate(text, at, fontsize=6, **place)


def name_rows(ax: Axes, names: Sequence[str], there: Iterable[str]) -> None:
    """Name the rows of a panel, from above, one each; n/a in those that are not there."""
    for row in sorted(map(names.index, {*names} - {*there})):
        note(ax, "n/a", (0, row))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
