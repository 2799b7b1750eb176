"""A labelled figure with panels, and the marks that several figures draw."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pro_lib.common.validation import SentenceError
from pro_lib.plots.style import (
    STYLE,
    WIDTHS,
    Axes,
    Figure,
    FontProperties,
    distinct_values,
    line_style,
    matching_rows,
    name_rows,
    plt,
)

_TALLEST = 4.5  # inches, of a figure of one column, as far as its panels allow
_LEAST_HEIGHT = 0.8  # inches, of a panel
_TITLE_SIZES = {8: 14.8, 7: 16.9}  # letters in an inch of a title, by its font size in points
_PROTOCOLS = {"paper": "repeats counted", "workbench": "each answer once"}


class Panel(NamedTuple):
    """A panel of a figure.

    Attributes:
        ax: its axes.
        setting: the values that its rows share, by column.
        rows: its rows of the table.
    """

    ax: Axes
    setting: dict[str, str]
    rows: pd.DataFrame


def checked_table(table: pd.DataFrame, columns: Sequence[str], figure: str) -> pd.DataFrame:
    """Return a table that a figure can be drawn from.

    A table without the columns dataset and model gets empty ones, so that it is drawn as one line.

    Args:
        table: the table of a user.
        columns: the columns that the figure needs.
        figure: the name of the module that draws it, for the message.

    Raises:
        SentenceError: if a column is missing, or if the table has no rows.
    """
    missing = [name for name in columns if name not in table]
    if missing:
        needs = f"plots.{figure} needs the columns {', '.join(columns)}"
        raise SentenceError(f"The table has no column {missing[0]!r}; {needs}")
    if table.empty:
        raise SentenceError(f"The table has no rows, so plots.{figure} cannot draw it")
    absent = [name for name in ("dataset", "model") if name not in table]
    return table.assign(**dict.fromkeys(absent, ""))


@contextmanager
def labelled_figure(  # noqa: PLR0913 - the parts of a figure
    table: pd.DataFrame,
    *by: str,
    title: str,
    x: str = "",
    y: str = "",
    entries: Sequence[Any] = (),
    untitled: Sequence[str] = (),
    figure_columns: int = 2,
    per_line: int | None = None,
    height: float = 1.6,
    **sharing: Any,
) -> Iterator[tuple[Figure, list[Panel]]]:
    """Make a figure with a panel for each combination of values of the columns `by`.

    A panel has those values and the number of questions as its title. Dataset and model stand in
    one line below the figure if several panels share them.

    Args:
        table: the numbers of all panels.
        *by: the columns; those that the table does not have are ignored.
        title: the title, above the legend.
        x: the label below all panels; empty if each panel has its own.
        y: the label beside all panels.
        entries: the entries of the legend.
        untitled: those of the columns `by` that the axes show, so that titles do not.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        per_line: the panels in a row of the figure; None for a number that suits the last column.
        height: the height of a panel in inches, without its title. In a figure of one column,
            panels are lower if the figure would be higher than 4.5 inches.
        **sharing: `sharex` and `sharey` of Matplotlib's `subplots`.

    Yields:
        The figure and its panels.

    Raises:
        SentenceError: if the rows of a panel are about two splits.
    """
    by = tuple(name for name in by if name in table)
    constant = [name for name in ("dataset", "model", *by) if name in table]
    constant = [name for name in constant if len(distinct_values(table, name)) == 1]
    settings = _panel_settings(table, by)
    parts = [matching_rows(table, setting) for setting in settings]
    for rows in parts:
        _check_split(rows)
    varied = [name for name in reversed(by) if name not in (*constant, *untitled)]
    known = [table[name].iloc[0] for name in ("dataset", "model") if name in constant]
    in_legend = [entry.get_label() for entry in entries]
    shared = ", ".join(name for name in known if name and name not in in_legend)
    per_line = per_line or _panels_per_line(table, varied, len(settings), figure_columns)
    per_line = min(len(settings), per_line)
    n_lines = ceil(len(settings) / per_line)
    width = WIDTHS[figure_columns]
    names = [_panel_title(rows, varied) for rows in parts]
    if len(settings) == 1 and shared:
        names = [", ".join(filter(None, [shared, names[0]]))]
        shared = ""
    titles, title_size = _wrapped_titles(names, width / per_line)
    title_height = 0.08 + 1.15 * title_size / 72 * _most_lines(titles)
    heading = "\n".join(textwrap.wrap(title, int(13.5 * width)))
    x_lines = [*textwrap.wrap(x, int(14 * width)), *([shared] if shared else [])]
    n_spare = n_lines * per_line - len(settings)
    legend_shape = _legend_shape(entries, width / per_line if n_spare else width)
    legend_rows = 0 if n_spare else legend_shape["rows"]
    outside = 0.16 * (heading.count("\n") + 1) + 0.15 * legend_rows + 0.14 * len(x_lines)
    tallest = (_TALLEST - outside - 0.2) / n_lines if figure_columns == 1 else np.inf
    panel_height = max(min(height + 0.2, tallest - title_height), _LEAST_HEIGHT) + title_height
    size = (width, n_lines * panel_height + outside + 0.2)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=size, layout="constrained")
        axes = _make_axes(figure, (n_lines, per_line), titles, title_size, **sharing)
        yield figure, [Panel(*each) for each in zip(axes, settings, parts, strict=True)]
        _label(figure, heading, "\n".join(x_lines), y, entries, legend_shape["columns"])
        if n_spare and entries:
            _move_legend(figure, axes[per_line - 1], axes[-1])


def _make_axes(
    figure: Figure, shape: tuple[int, int], titles: Sequence[str], size: int, **sharing: Any
) -> Sequence[Axes]:
    """Return the axes of panels with these titles, whose font has a size (points)."""
    grid = figure.subplots(*shape, squeeze=False, **sharing).ravel()
    for surplus in grid[len(titles) :]:
        surplus.remove()
    axes: Sequence[Axes] = grid[: len(titles)]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, linespacing=1.1, fontsize=size)
    for ax in axes[-shape[1] :]:  # also where a surplus panel would be below
        ax.tick_params(labelbottom=True)
    return axes


def _panel_settings(table: pd.DataFrame, by: Sequence[str]) -> list[dict[str, str]]:
    """Return the combinations of values of the columns `by` that the table has rows of."""
    settings = []
    for values in product(*(distinct_values(table, name) for name in by)):
        setting = dict(zip(by, values, strict=True))
        if len(matching_rows(table, setting)):
            settings.append(setting)
    return settings


def _check_split(rows: pd.DataFrame) -> None:
    splits = distinct_values(rows, "split")
    if len(splits) > 1:
        raise SentenceError(
            f"A panel would join rows of the splits {' and '.join(map(str, splits))}; draw one of "
            f"them, as in table[table['split'] == {splits[-1]!r}]"
        )


def _panels_per_line(
    table: pd.DataFrame, varied: Sequence[str], n_panels: int, figure_columns: int
) -> int:
    """Return how many panels lie side by side: one for each value of the last column, if few."""
    if figure_columns == 1:
        return 1 if n_panels <= 3 else 2
    n_values = len(distinct_values(table, varied[0])) if varied else 1
    return n_values if 1 < n_values <= 6 else 3


def _panel_title(rows: pd.DataFrame, columns: Sequence[str]) -> str:
    """Return the title of a panel: its values in these columns, and the number of questions."""
    names = []
    for column in columns:
        value = str(rows[column].iloc[0])
        names.append(_PROTOCOLS.get(value, value) if column == "protocol" else value)
    if "n_questions" in rows:
        names.append(f"n\xa0=\xa0{rows['n_questions'].max():,.0f}")
    return ", ".join(names)


def _wrapped_titles(titles: Sequence[str], panel_width: float) -> tuple[list[str], int]:
    """Return the titles, wrapped to the width of a panel (inches), and their font size.

    The size is the largest at which no title takes more than two lines, or the smallest one.
    """
    for size, letters_per_inch in _TITLE_SIZES.items():
        letters = int(letters_per_inch * (panel_width - 0.3))
        options: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
        wrapped = ["\n".join(textwrap.wrap(title, letters, **options)) for title in titles]
        if _most_lines(wrapped) <= 2:
            return wrapped, size
    return wrapped, size


def _most_lines(texts: Sequence[str]) -> int:
    return max(text.count("\n") + 1 if text else 0 for text in texts)


def _legend_shape(entries: Sequence[Any], width: float) -> dict[str, int]:
    """Return the rows and columns of a legend that fits a figure of this width (inches)."""
    if not entries:
        return {"rows": 0, "columns": 1}
    widest = 4.3 * max(len(str(entry.get_label())) for entry in entries) + 32  # points
    rows = ceil(len(entries) / max(1, int(72 * width / widest)))
    return {"rows": rows, "columns": ceil(len(entries) / rows)}


def _label(
    figure: Figure, title: str, x: str, y: str, entries: Sequence[Any], legend_columns: int
) -> None:
    """Write title, legend and the labels of the axes, which are centred on the panels."""
    if entries:
        shape: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.2, "borderpad": 0}
        shape |= {"ncols": legend_columns, "loc": "outside upper center"}
        legend = figure.legend(handles=list(entries), **shape)
        legend.set_title(title, FontProperties(size=8.5, weight="bold"))
        legend.get_title().set_multialignment("center")
    else:
        figure.suptitle(title, fontsize=8.5, fontweight="bold")
    x_label = figure.supxlabel(x)
    y_label = figure.supylabel(y)
    figure.draw_without_rendering()
    boxes = [ax.get_position() for ax in figure.axes]
    x_label.set_x((min(box.x0 for box in boxes) + max(box.x1 for box in boxes)) / 2)
    y_label.set_y((min(box.y0 for box in boxes) + max(box.y1 for box in boxes)) / 2)


def _move_legend(figure: Figure, above: Axes, beside: Axes) -> None:
    """Move the legend to the empty place below one panel and beside another."""
    legend = figure.legends[0]
    title = legend.get_title().get_text()
    legend.set_title("")
    legend.set_in_layout(False)
    figure.suptitle(title, fontsize=8.5, fontweight="bold")
    figure.draw_without_rendering()
    x, y = above.get_position(), beside.get_position()
    legend.set_loc("center")
    legend.set_bbox_to_anchor((x.x0, y.y0, x.width, y.height), figure.transFigure)


def draw_rows(
    ax: Axes,
    rows: pd.DataFrame,
    value: str,
    names: Sequence[str],
    *,
    by: str = "",
    styles: Mapping[Any, dict[str, Any]] | None = None,
    missing: str = "n/a",
) -> None:
    """Draw a value with its interval for each row, from above; several groups side by side.

    Args:
        ax: the axes.
        rows: the table, with the columns row, which names the row, `value`, and `<value>_low` and
            `<value>_high` if there are intervals.
        value: the column of the values.
        names: the names of the rows, in their order.
        by: the column of the groups, whose markers lie below each other in a row; empty for none.
        styles: the style of each group, by its value in this column; the first style by default.
        missing: what is written in a row without a value.
    """
    name_rows(ax, names, names)
    groups = styles or {"": line_style(0)}
    for index, (group, style) in enumerate(groups.items()):
        some = rows[rows[by] == group] if by else rows
        if some.empty:
            continue  # an empty line would spoil the layout
        shift = 0.7 * ((index + 0.5) / len(groups) - 0.5)
        places = some["row"].map(list(names).index).astype(float) + shift
        # Several values of a group in a row lie below each other, too.
        in_row = some.groupby("row")["row"]
        places += (0.6 / len(groups)) * ((in_row.cumcount() + 0.5) / in_row.transform("size") - 0.5)
        if f"{value}_low" in some:
            ends = some[f"{value}_low"].astype(float), some[f"{value}_high"].astype(float)
            ax.hlines(places, *ends, color=style["color"], lw=1)
        ax.plot(some[value], places, **{**style, "ls": ""})
        for place in places[some[value].isna() & bool(missing)].to_numpy(float):
            transform = ax.get_yaxis_transform()
            ax.text(0.02, place, missing, transform=transform, fontsize=7, va="center")
