"""A labelled figure with panels, and the rows that several figures draw."""

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.text import Text
from matplotlib.transforms import Bbox, ScaledTranslation, Transform

from pro_lib.common.validation import SentenceError
from pro_lib.plots.captions import span
from pro_lib.plots.style import (
    PRINTED,
    PROTOCOL_WORDS,
    SHARE_TICKS,
    STYLE,
    WIDTHS,
    Axes,
    Figure,
    distinct_values,
    draw_curve,
    draw_curves,
    labelled_styles,
    line_style,
    plt,
    set_ticks,
)

_TALLEST = 4.5  # inches, of a figure of one column, as far as its panels allow
_ENDS = ("low", "high")  # of an interval, in the names of columns
_ARROW: dict[str, Any] = {"marker": 4, "ls": "", "ms": 4, "zorder": 4}  # to the left
# How significant differences are marked, by sign: the marker, and the word of the legend.
_SIGNIFICANT = {1: ("+", "better"), -1: ("x", "worse")}
_NLL: dict[str, Any] = {"ls": (0, (1, 1.5)), "lw": 0.9}


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
    untitled: Sequence[str] = (),
    figure_columns: int = 2,
    per_line: int | None = None,
    height: float = 1.6,
    least_height: float = 0.55,
    sharex: bool | Literal["col"] = False,
    sharey: bool = True,
) -> Iterator[tuple[Figure, list[tuple[Axes, pd.DataFrame]]]]:
    """Make a figure with a panel for each combination of values of the columns `by`.

    A panel has those values and the number of questions as its title. Dataset, model and protocol
    follow the title of the figure if several panels share them. The legend has what panels draw
    with a label.

    Args:
        table: the numbers of all panels.
        *by: the columns; those that the table does not have are ignored.
        title: the title, above the legend.
        x: the label below all panels, with the better side of a difference; empty if each panel
            has its own.
        y: the label beside all panels.
        untitled: those of the columns `by` that the axes show, so that titles do not.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        per_line: the panels in a row of the figure; None for a number that suits the last column.
        height: the height of a panel in inches, without its title.
        least_height: the height of a panel in a figure of one column, if the figure would be
            higher than 4.5 inches with higher panels.
        sharex: whether panels have the same x axis, or those below each other (`col`).
        sharey: whether panels have the same y axis.

    Yields:
        The figure, and the axes and the rows of each panel.

    Raises:
        SentenceError: if the rows of a panel are about two splits.
    """
    by = tuple(name for name in by if name in table)
    keys = [table[name].map(distinct_values(table, name).index) for name in by]
    parts = [rows for _, rows in table.groupby(keys or np.zeros(len(table)))]
    n_panels = len(parts)
    varied = [name for name in by if len(distinct_values(table, name)) > 1]
    titled = [name for name in reversed(varied) if name not in untitled]
    names = [_panel_title(rows, titled) for rows in parts]
    n_values = len(distinct_values(table, titled[0])) if titled else 1
    if figure_columns == 1:
        usual = 1 if n_panels <= 3 and n_panels * (least_height + 0.45) <= 4 else 2
    else:
        usual = n_values if 1 < n_values <= 6 else 3
    per_line = min(n_panels, per_line or usual)
    n_lines = ceil(n_panels / per_line)
    width = WIDTHS[figure_columns]
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(width, 2 + n_lines * (height + 1)), layout="constrained")
        grid = figure.subplots(n_lines, per_line, squeeze=False, sharex=sharex, sharey=sharey)
        places: list[Axes] = list(grid.flat)
        axes = places[:n_panels]
        for ax, name in zip(axes, names, strict=True):
            ax.set_title(name, linespacing=1.1, fontsize=6 + figure_columns)
        for ax in axes[-per_line:]:  # also where a panel would be missing below
            ax.tick_params(labelbottom=True)
        yield figure, list(zip(axes, parts, strict=True))
        legend: dict[str, Any] = {}
        for ax in axes:
            for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
                legend.setdefault(label, handle)
        shared = _shared_setting(table, legend)
        if n_panels == 1:
            shared = ", ".join(filter(None, [shared, *names]))
            axes[0].set_title("")
        if shared:
            title = f"{title} ({shared})"
        _write_title(figure, title, legend)
        for ax in places[n_panels:]:
            ax.axis("off")
        x_lines = textwrap.wrap(x, int(14 * width))
        if " minus " in x:
            x_lines.append("← worse      better →")
        axis_labels = figure.supxlabel("\n".join(x_lines)), figure.supylabel(y)
        tallest = _TALLEST if figure_columns == 1 else np.inf
        _fit(figure, axes, axis_labels, grid.shape, (least_height, height), tallest)


def _panel_title(rows: pd.DataFrame, columns: Sequence[str]) -> str:
    """Return the title of a panel: its values in these columns, and the number of questions."""
    splits = distinct_values(rows, "split")
    if len(splits) > 1:
        raise SentenceError(
            f"A panel would join rows of the splits {' and '.join(map(str, splits))}; draw one of "
            f"them, as in table[table['split'] == {splits[-1]!r}]"
        )
    names = []
    for column in columns:
        value = str(rows[column].iloc[0])
        names.append(PROTOCOL_WORDS.get(value, value) if column == "protocol" else value)
    if "n_questions" in rows:
        names.append(f"n\xa0=\xa0{span(rows['n_questions'], '{:,.0f}')}")
    return ", ".join(names)


def _shared_setting(table: pd.DataFrame, in_legend: Collection[str]) -> str:
    """Return what all panels share of the setting, without what the legend names."""
    names = []
    for column in ("dataset", "model", "protocol"):
        values = distinct_values(table, column)
        if len(values) == 1 and values[0] not in ("", *in_legend):
            names.append(PROTOCOL_WORDS.get(values[0], values[0]))
    return ", ".join(names)


def _write_title(figure: Figure, title: str, entries: Mapping[str, Any]) -> None:
    """Write the title, and the legend below it."""
    widths = [4.3 * len(label) + 32 for label in entries]  # points
    n_columns = max(len(widths), 1)
    for n_rows in range(1, len(widths) + 1):
        n_columns = ceil(len(widths) / n_rows)
        if sum(map(max, np.array_split(widths, n_columns))) <= 72 * figure.get_figwidth():
            break
    shape: dict[str, Any] = {"handlelength": 2.6, "columnspacing": 1.2, "borderpad": 0}
    shape["ncols"] = n_columns
    # A title of the figure itself would lie over the legend.
    width = int(13.5 * figure.get_figwidth())
    shape["title"] = textwrap.fill(title, width, break_on_hyphens=False)
    shape |= {"title_fontproperties": {"size": 8.5, "weight": "bold"}}
    legend = figure.legend(entries.values(), entries, loc="outside upper center", **shape)
    legend.get_title().set_multialignment("center")


def _fit(
    figure: Figure,
    axes: Sequence[Axes],
    labels: tuple[Text, Text],
    shape: tuple[int, int],
    heights: tuple[float, float],
    tallest: float,
) -> None:
    """Wrap the titles of panels, set the figure's height, and centre its labels on the panels.

    Panels have the second of two heights, or a smaller one if the figure would be too high.
    """
    figure.draw_without_rendering()
    n_lines, per_line = shape
    boxes = [ax.get_position() for ax in axes[:per_line]]
    room = 2 - boxes[-1].x0 - boxes[-1].x1  # up to the right edge, on both sides of a title
    if per_line > 1:
        room = min(room, boxes[1].x0 - boxes[0].x0)
    for ax in axes:
        letters = int(118 / float(ax.title.get_fontsize()) * (room * figure.get_figwidth() - 0.1))
        options: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
        ax.title.set_text(textwrap.fill(ax.get_title(), letters, **options))
    figure.draw_without_rendering()
    outside = figure.get_figheight() * (1 - n_lines * axes[0].get_position().height)
    least, most = (outside + n_lines * height for height in heights)
    figure.set_figheight(max(least, min(most, tallest)))
    figure.draw_without_rendering()
    box = Bbox.union([ax.get_position() for ax in axes])
    x_label, y_label = labels
    half = x_label.get_window_extent().width / figure.bbox.width / 2
    x_label.set_x(min((box.x0 + box.x1) / 2, 0.99 - half))
    y_label.set_y((box.y0 + box.y1) / 2)


def draw_rows(  # noqa: PLR0913 - the parts of a row
    ax: Axes,
    rows: pd.DataFrame,
    value: str,
    names: Sequence[str],
    *,
    by: str = "",
    styles: Mapping[Any, dict[str, Any]] | None = None,
    least: float = -np.inf,
    missing: str = "n/a",
    heading: str = "",
) -> None:
    """Draw a value with its interval for each row, from above; several groups side by side.

    Differences have a line at 0, and no interval if both scores order all questions alike.

    Args:
        ax: the axes.
        rows: the table, with the columns row, which names the row, `value`, and `<value>_low` and
            `<value>_high` if there are intervals. The column text is written at the right. The
            column sign is 1 or -1 for significant differences, which are marked before the text.
        value: the column of the values.
        names: the names of the rows, in their order.
        by: the column of the groups, whose markers lie below each other in a row; empty for none.
        styles: the style of each group, by its value in this column; the first style by default.
        least: the smallest value that is drawn; smaller ones are arrows at the left edge.
        missing: what is written in a row without a value.
        heading: the words above the text at the right.
    """
    names = list(names)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    for row in range(0, len(names), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#f3f3f3", lw=0, zorder=0)
    beside: dict[str, Any] = {
        "transform": ax.get_yaxis_transform(),
        **{"fontsize": 7, "va": "center"},
    }
    for row in np.flatnonzero(~np.isin(names, rows["row"])).tolist():
        ax.text(0.02, row, missing, **beside)
    is_difference = "_minus_" in value
    if is_difference:
        ax.axvline(0, color="black", lw=0.6)
    groups = styles or {"": line_style(0)}
    number = rows[by].map(list(groups).index) if by else pd.Series(0, rows.index)
    rows = rows.iloc[np.argsort(number, kind="stable")]
    in_row = rows.groupby("row")["row"]
    shift = (in_row.cumcount() + 0.5) / in_row.transform("size") - 0.5
    rows = rows.assign(place=rows["row"].map(names.index) + 0.7 * shift, sign=rows.get("sign", 0))
    for group, some in rows.groupby(by, sort=False) if by else [("", rows)]:
        style = groups[group]
        is_cut = some[value] < least
        inside = some[~is_cut]
        if f"{value}_low" in some:
            is_alike = is_difference & (inside.get("n_differ", pd.Series(1, inside.index)) == 0)
            drawn = inside[~is_alike]
            low, high = (drawn[f"{value}_{end}"].astype(float) for end in _ENDS)
            ax.hlines(drawn["place"], low, high, style["color"], lw=1)
        ax.plot(inside[value], inside["place"], **{**style, "ls": ""})
        edge = some.loc[is_cut, "place"]
        ax.plot(0 * edge, edge, color=style["color"], transform=_beside(ax, 1.5), **_ARROW)
        _draw_signs(ax, some, color=style["color"])
        for place in inside.loc[inside[value].isna(), "place"]:
            ax.text(0.02, place, missing, **beside)
    indent = "     " if rows["sign"].any() else " "
    if heading:
        ax.text(1, -0.55, indent + heading, **{**beside, "va": "bottom"})
        ax.title.set_y(1 + 0.8 / len(names))
    if "text" in rows:
        for name, text in rows.groupby("row")["text"].first().items():
            ax.text(1, names.index(str(name)), indent + text, **beside)
    n_intervals = np.clip(2.5 * ax.bbox.width / ax.figure.dpi - 1, 2, 5)
    ax.locator_params(axis="x", nbins=round(n_intervals))


def _draw_signs(ax: Axes, rows: pd.DataFrame, **look: Any) -> None:
    """Mark the rows with the sign 1 or -1 at the right of the axes."""
    look |= {"transform": _beside(ax, 6), "clip_on": False, "ls": "", "ms": 3}
    for sign, (marker, _) in _SIGNIFICANT.items():
        places = rows.loc[rows["sign"] == sign, "place"]
        if len(places):
            ax.plot(np.ones(len(places)), places, marker=marker, **look)


def _beside(ax: Axes, points: float) -> Transform:
    """Return the transform of places so many points to the right of a share of the axes' width."""
    shift = ScaledTranslation(points / 72, 0, ax.figure.dpi_scale_trans)
    return ax.get_yaxis_transform() + shift


@contextmanager
def row_figure(  # noqa: PLR0913 - the parts of a figure
    table: pd.DataFrame,
    *by: str,
    value: str | Mapping[str, str],
    row_height: float,
    least_row_height: float = 0.1,
    group: str = "",
    styles: Mapping[Any, dict[str, Any]] | None = None,
    least: float = -np.inf,
    missing: str = "n/a",
    heading: str = "",
    names: Sequence[str] = (),
    reference: str = "NLL",
    **options: Any,
) -> Iterator[tuple[Figure, list[tuple[Axes, pd.DataFrame]]]]:
    """Make a labelled figure in which each panel has the same rows, and draw their values.

    Args:
        table: the numbers of all panels, with the column row.
        *by: the columns that divide the panels.
        value: the column of the values; or columns by the words of a panel each.
        row_height: the height of a row in inches.
        least_row_height: the same in a figure of one column that would be too high.
        group: the column of the groups, whose markers lie below each other in a row.
        styles: the style of each group; those of lines by default.
        least: the smallest value that is drawn; the legend has the methods of smaller ones.
        missing: what is written in a row without a value.
        heading: the words above the text at the right of the rows.
        names: the names of the rows; those of the table by default.
        reference: the method from which values with a sign differ significantly.
        **options: those of `labelled_figure`.

    Yields:
        The figure, and the axes and the rows of each panel.
    """
    names = names or distinct_values(table, "row")
    options |= {"height": row_height * len(names), "least_height": least_row_height * len(names)}
    if group and styles is None:
        styles = labelled_styles(table[group])
    values = {"": value} if isinstance(value, str) else value
    off = [
        f"{name}, {span(some, '{:.2f}')}"
        for column in values.values()
        for name, some in table[table[column] < least].groupby("row", sort=False)[column]
    ]
    least = least if off else -np.inf
    table = pd.concat([table.assign(quantity=words) for words in values])
    with labelled_figure(table, *by, "quantity", **{"sharex": True} | options) as (figure, panels):
        for ax, rows in panels:
            column = values[rows["quantity"].iloc[0]]
            shape: dict[str, Any] = {"by": group, "styles": styles, "least": least}
            draw_rows(ax, rows, column, names, missing=missing, heading=heading, **shape)
        for sign, (marker, word) in _SIGNIFICANT.items():
            if "sign" in table and (table["sign"] == sign).any():
                label = f"significantly {word} than {reference}"
                panels[0][0].plot(np.nan, np.nan, marker, color="black", ms=4, label=label)
        if off:
            label = f"off the axis: {'; '.join(off)}"
            panels[0][0].plot(np.nan, np.nan, color="black", label=label, **_ARROW)
        yield figure, panels
        if off:
            ax = panels[0][0]  # whose limits are those of all panels
            ax.set_xlim(left=least - 0.1 * (ax.get_xlim()[1] - least))  # with room for arrows


def draw_against_alpha(
    panels: Sequence[tuple[Axes, pd.DataFrame]], lines: Mapping[str, str]
) -> None:
    """Draw columns, which are shares, against α, with the words of the column noted below α.

    Args:
        panels: the axes, and the rows of each.
        lines: the names of the lines, by column.
    """
    styles = labelled_styles(lines.values())
    for ax, rows in panels:
        for column, label in lines.items():
            draw_curve(ax, rows, "alpha", column, **styles[label], clip_on=False)
        ax.set(xscale="log", ylim=(0, 1.03))
        set_ticks(ax.yaxis, SHARE_TICKS)
        named = rows if 0.5 * len(rows) < ax.bbox.width / ax.figure.dpi else rows[::2]
        notes = named["noted"].map("\n({})".format)
        ax.set_xticks(named["alpha"], named["alpha"].map("{:g}".format) + notes)
        ax.minorticks_off()


def draw_beside_nll(
    ax: Axes,
    rows: pd.DataFrame,
    models: Sequence[str],
    x: str,
    paper: pd.DataFrame,
    **style: Any,
) -> None:
    """Draw AUROC of each model against the column `x`, and AUROC of NLL as a dotted line.

    The interval of the difference to NLL is drawn around AUROC, so that it contains the dotted
    line if the difference may be 0. There is none where both order all questions alike.

    Args:
        ax: the axes.
        rows: has the columns x, model and auroc. It may have auroc_minus_nll with its interval.
        models: the models of all panels.
        x: a column.
        paper: the values that the paper printed, with the same columns.
        **style: the style of the lines, and options of `draw_curves`.
    """
    rows = rows.drop(columns=["auroc_low", "auroc_high"], errors="ignore")
    if "auroc_minus_nll_low" in rows:
        nll = rows["auroc"] - rows["auroc_minus_nll"]
        differs = rows.get("n_differ", pd.Series(1, rows.index)) > 0
        ends = {
            f"auroc_{end}": (nll + rows[f"auroc_minus_nll_{end}"]).where(differs) for end in _ENDS
        }
        rows = rows.assign(**ends)
        for model, value in nll.groupby(rows["model"]).first().items():
            ax.axhline(value, color=line_style(models.index(model))["color"], **_NLL)
    draw_curves(ax, rows, "model", models, x, **style)
    if "auroc_minus_nll_low" in rows:
        several = len(models) > 1
        label = "NLL (colour of its model)" if several else "NLL"
        color = "black" if several else line_style(0)["color"]
        ax.plot(np.nan, np.nan, color=color, label=label, **_NLL)
    draw_curves(ax, paper, "model", models, x, **{**style, **PRINTED})
