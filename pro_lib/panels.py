"""How all figures look: panels, lines with intervals, legends, and how a figure is written; knows no figure.

`columns` are the columns of a paper that a figure spans: 1 is 3.3 inches wide, 2 (the default) is 7.0.
"""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import ceil
from pathlib import Path

import pandas as pd

from pro_lib.checks import extra
from pro_lib.files import write_whole, writing

with extra("notebooks", "drawing"):
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

# Okabe and Ito's palette; line style and marker repeat what colour says, so that a figure survives greyscale.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.3, 1, 1.3)), (0, (9, 1.6)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTHS = {1: 3.3, 2: 7.0}  # inches: a column and the text width of an AAAI page
LETTER = 0.61  # how wide a letter of the font is, in its size; seldom more
ALPHA_LABEL, SHARE_TICKS = "α (log scale above 0.001)", (0, 0.25, 0.5, 0.75, 1)
# The paper's printed numbers beside ours: the marker says which line they belong to.
PRINTED = {"color": "#777777", "mfc": "none", "ms": 5, "ls": "", "zorder": 1}
# Characters that a question may hold, and no XML: Matplotlib writes them as they are.
_NO_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_STYLE = {
    "font.size": 8,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "figure.labelsize"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    "axes.titley": 1.0,  # unsaid, Matplotlib looks for it among the ticks, at a third of the time of a layout
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
    "text.parse_math": False,  # an answer may hold dollar signs; nothing here is written in TeX
}
Panel = tuple[Axes, dict[str, str], pd.DataFrame]


@contextmanager
def style() -> Iterator[None]:
    """Give all figures made within the context the same look."""
    with sns.axes_style("ticks"), plt.rc_context(_STYLE):
        yield


def look(index: int) -> dict[str, object]:
    """Return colour, dashes and marker of the line with this index."""
    return {"color": COLORS[index % 8], "ls": DASHES[index % 6], "marker": MARKERS[index % 8]}


def save(figure: Figure, table: pd.DataFrame, name: str, *, figures_dir: str | Path = "figures") -> Figure:
    """Write `<name>.png`, `<name>.svg` and the numbers behind them, `<name>.csv`; return the figure.

    The same numbers give the same bytes.
    """
    save_table(table, name, figures_dir=figures_dir)
    with style():
        for kind, metadata in (("png", None), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            figure.set_layout_engine("none")  # laid out once: the same in both formats, and half the time
            data = _NO_XML.sub("�".encode(), buffer.getvalue()) if kind == "svg" else buffer.getvalue()
            write_whole(data, Path(figures_dir) / f"{name}.{kind}")
    plt.close(figure)
    return figure


def save_table(table: pd.DataFrame, name: str, *, figures_dir: str | Path = "figures") -> pd.DataFrame:
    """Write `<name>.csv`; return the table."""
    folder = Path(figures_dir)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(table.to_csv(index=False, float_format="%.6g").encode(), folder / f"{name}.csv")
    return table


@contextmanager
def panels(
    table: pd.DataFrame, *by: str, columns: int = 2, per_line: int | None = None, height: float = 1.6, **sharing: object
) -> Iterator[tuple[Figure, list[Panel]]]:
    """Make a figure with a panel, `height` inches high, per combination of values of the columns `by`.

    At one column panels stand one below the other, unless `per_line` says how many stand side by side.
    Yields the figure and, per panel, its axes, its values by column and its rows. A dataset or model that all panels
    share is said once, below the figure. `sharing` goes to `Figure.subplots`. Raises `ValueError` for other `columns`
    than 1 or 2, and for a table without rows.
    """
    if columns not in WIDTHS or table.empty:
        raise ValueError(f"columns={columns!r} must be 1 or 2" if len(table) else "there are no rows to draw")
    combinations = (dict(zip(by, names, strict=True)) for names in product(*(values(table, name) for name in by)))
    settings = [setting for setting in combinations if len(where(table, setting))]
    shared = [name for name in ("dataset", "model") if name in table and len(values(table, name)) == 1]
    across = len(values(table, by[-1])) if by else 1
    per_line = min(len(settings), per_line or (1 if columns == 1 else across if 1 < across <= 6 else 3))
    lines, letters = ceil(len(settings) / per_line), int(72 * (WIDTHS[columns] / per_line - 0.3) / (8 * LETTER))
    with style():
        figure = plt.figure(figsize=(WIDTHS[columns], lines * (height + 0.4) + 0.7), layout="constrained")
        try:
            grid = figure.subplots(lines, per_line, squeeze=False, **sharing).ravel()
            for surplus in grid[len(settings) :]:
                surplus.remove()
            made = [(ax, setting, where(table, setting)) for ax, setting in zip(grid, settings, strict=False)]
            for ax, setting, rows in made:
                names = [value for name, value in reversed(setting.items()) if name not in shared]
                ax.set_title(_title(names, rows.get("n_questions"), letters), linespacing=1.1)
            yield figure, made
            said = ", ".join(str(table[name].iloc[0]) for name in shared)
            figure.supxlabel("\n".join(filter(None, [figure.get_supxlabel(), said])))
        except BaseException:
            plt.close(figure)
            raise


def _title(names: Sequence[str], n_questions: pd.Series | None, letters: int) -> str:
    """Return a title of at most two lines."""
    counted = (
        "" if n_questions is None or n_questions.isna().all() else f"n\xa0=\xa0{n_questions.dropna().iloc[0]:,.0f}"
    )
    whole = ", ".join(filter(None, [*names, counted]))
    if len(whole) <= letters:
        return whole
    lines = textwrap.wrap(", ".join(names), letters) if names else []
    return "\n".join([*lines, counted][:2] if len(lines) < 2 else lines[:2])


def values(table: pd.DataFrame, column: str) -> list:
    """Return the different values of a column in their order; PRO, the figures' subject, before the others."""
    return sorted(dict.fromkeys(table[column]), key=lambda value: value != "PRO")


def where(table: pd.DataFrame, chosen: dict[str, str]) -> pd.DataFrame:
    """Return the rows with these values by column."""
    return table[(table[list(chosen)] == pd.Series(chosen, dtype=object)).all(axis=1)]


def by_protocol(table: pd.DataFrame) -> list[str]:
    """Return the column `protocol`, where a table has it and holds more than one."""
    return ["protocol"] if "protocol" in table and len(values(table, "protocol")) > 1 else []


def set_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Set the ticks of the x axis, labelled with plain numbers."""
    ax.xaxis.set_major_locator(FixedLocator(sorted(ticks)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def alpha_axis(ax: Axes) -> None:
    """Make the x axis linear below 0.001, where only α = 0 lies, and logarithmic above it."""
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    ax.set_xlim(0, 1)
    set_ticks(ax, (0, 0.01, 0.1, 0.4, 1))


def difference_axis(ax: Axes) -> None:
    """Make the y axis one of differences: linear up to 0.05, logarithmic beyond, a line at 0."""
    ax.axhline(0, color="black", lw=0.6)
    ax.set_yscale("symlog", linthresh=0.05)
    ax.yaxis.set_major_locator(FixedLocator([-0.5, -0.1, -0.05, 0, 0.05, 0.1, 0.5]))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    ax.yaxis.set_minor_locator(NullLocator())


def name_rows(ax: Axes, names: Sequence[str], present: Sequence[str]) -> None:
    """Name the rows of a panel, from above; say n/a in those that are not `present`."""
    for row in (row for row, name in enumerate(names) if name not in set(present)):
        note(ax, "n/a", (0, row))
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)


def note(ax: Axes, text: str, at: tuple[float, float], *, by: float = 2) -> None:
    """Write a small text in a row of a panel, `by` points to the right of a share of its width."""
    place = {"xycoords": ax.get_yaxis_transform(), "xytext": (by, 0), "textcoords": "offset points", "va": "center"}
    ax.annotate(text, at, fontsize=6, **place)


def curve(
    ax: Axes, x: pd.Series, line: pd.DataFrame, index: int, *, y: str, of: str = "", bars: bool = False, **other
) -> None:
    """Draw a line with its interval, columns `<of>low` and `<of>high` where the table has them: a band, or bars."""
    step = 1 if bars else max(1, len(line) // 4)
    drawn = {**look(index), "markevery": (2 * index % step, step), **other}
    ax.plot(x, line[y], **drawn)
    low, high = line.get(f"{of}low"), line.get(f"{of}high")
    if low is not None and bars:
        ax.vlines(x, low, high, color=drawn["color"], lw=0.8)
    elif low is not None:
        band = {"fc": (drawn["color"], 0.12), "ec": (drawn["color"], 0.6), "lw": 0.6, "ls": drawn["ls"]}
        ax.fill_between(x, low.astype(float), high.astype(float), **band)


def curves(
    ax: Axes, table: pd.DataFrame, by: str, names: Sequence, x: str, y: str = "auroc", *, apart: float = 0.0, **other
) -> None:
    """Draw a `curve` over the column `x` for each of the names in column `by`, one moved `apart` from the next."""
    for index, name in enumerate(names):
        if len(line := table[table[by] == name]):
            at = line[x].astype(float) + apart * (index - (len(names) - 1) / 2)
            curve(ax, at, line, index, y=y, label=name, **other)


def minus_nll(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return the table with a column difference: `y` minus NLL's at the same `x`."""
    nll = table[table["method"] == "NLL"].set_index(x)[y]
    return table.assign(difference=table[y] - table[x].map(nll))


def handles(names: Sequence[object], paper: pd.DataFrame | None = None, **other) -> list[plt.Line2D]:
    """Return a legend's entries for the lines with these names, and for what the paper printed, if it did."""
    lines = [plt.Line2D([], [], label=name, **{**look(index), **other}) for index, name in enumerate(names)]
    printed = plt.Line2D([], [], label="the paper", marker="D", **PRINTED)
    return lines if paper is None or paper.empty else [*lines, printed]


def explain(figure: Figure, entries: Sequence[plt.Artist], x: str = "", y: str = "") -> None:
    """Put a legend above all panels, and say what their axes show."""
    figure.supxlabel(x)
    figure.supylabel(y)
    if entries:
        widest = 7 * (LETTER * max(len(entry.get_label()) for entry in entries) + 4.6)
        rows = ceil(len(entries) / max(1, int(72 * figure.get_figwidth() / widest)))
        shape = {"ncols": ceil(len(entries) / rows), "handlelength": 2.6, "columnspacing": 1.2, "borderpad": 0}
        figure.legend(handles=entries, loc="outside upper center", **shape)
