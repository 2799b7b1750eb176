"""The style that all figures share: colours, panels, axes, titles and legends."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, product
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common.judges import is_by_labels
from pro_lib.common.validation import SentenceError, extra
from pro_lib.evaluation.methods import METHODS, kinds_of_figures

with extra("notebooks", "drawing"):
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.ticker import FixedLocator, NullLocator

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
    "zorder": 1,
}
_LINE_HEIGHT = 0.14  # inches, of a line of 8 points
# Letters in an inch of a title, by its font size in points
_TITLE_SIZES = {8: 14.8, 7: 16.9}
_PROTOCOL_TITLES = {"paper": "repeats counted", "workbench": "each answer once"}
# The same below a figure, where there is more space
_PROTOCOL_WORDS = {
    "paper": "an answer that is found several times counts several times",
    "workbench": "an answer that is found several times counts once",
}
_WHOLE_SENTENCE = 60  # letters; a shorter sentence of a note is not divided between lines
# Characters that a question may hold, and no XML: Matplotlib writes them as they are.
NOT_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
STYLE = sns.axes_style("ticks", {"axes.grid": True, "grid.color": "#e6e6e6"}) | {
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    **dict.fromkeys(("axes.titlesize", "axes.labelsize", "figure.labelsize"), 8),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    # Without it, Matplotlib searches the ticks for the place, in a third of the layout's time.
    "axes.titley": 1.0,
    "text.parse_math": False,  # an answer may contain dollar signs
}
STYLE |= {
    "font.size": 8,
    "lines.markersize": MARKER_SIZE,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
}
TOO_FEW_LABELS = "Where there is no point, the labels do not suffice for an estimate."


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


@contextmanager
def panels(
    table: pd.DataFrame,
    *by: str,
    figure_columns: int = 2,
    per_line: int | None = None,
    height: float = 1.6,
    **sharing: Any,
) -> Iterator[tuple[Figure, list[tuple[Axes, dict[str, str], pd.DataFrame]]]]:
    """Make a figure with a panel for each combination of values of the columns `by`.

    A panel has those values as its title. Values that all panels share are written below the figure
    instead.

    Args:
        table: the numbers of all panels.
        *by: the columns; those that the table does not have are ignored.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        per_line: the panels in a row of the figure; None for a number that suits the last column.
        height: the height of a panel in inches, without its title.
        **sharing: `sharex` and `sharey` of Matplotlib's `subplots`.

    Yields:
        The figure and, for each panel, its axes, its values by column and its rows.
    """
    by = tuple(name for name in by if name in table)
    shared = [
        name
        for name in dict.fromkeys(("dataset", "model", *by))
        if len(distinct_values(table, name)) == 1
    ]
    title_columns = [name for name in reversed(by) if name not in shared]
    settings = _panel_settings(table, by)
    if per_line is None:
        n_values = len(distinct_values(table, title_columns[0])) if title_columns else 1
        per_line = _panels_per_line(n_values, figure_columns)
    per_line = min(len(settings), per_line)
    n_lines = ceil(len(settings) / per_line)
    width = WIDTHS[figure_columns]
    parts = [matching_rows(table, setting) for setting in settings]
    all_titles = [_panel_title(rows, title_columns) for rows in parts]
    titles, title_size = _wrapped_titles(all_titles, width / per_line)
    # The height of 0.4 suffices for titles of two lines.
    n_extra = max(0, _most_lines(titles) - 2)
    line_height = height + 0.4 + n_extra * 1.1 * title_size / 72
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(width, n_lines * line_height + 0.7), layout="constrained")
        grid = figure.subplots(n_lines, per_line, squeeze=False, **sharing).ravel()
        for surplus in grid[len(settings) :]:
            surplus.remove()
        axes = grid[: len(settings)]
        for ax in axes[-per_line:]:  # also where a surplus panel would be below
            ax.tick_params(labelbottom=True)
        for ax, title in zip(axes, titles, strict=True):
            ax.set_title(title, linespacing=1.1, fontsize=title_size)
        yield figure, list(zip(axes, settings, parts, strict=True))
        _write_below(figure, table, shared, n_panels=len(settings))


def _panel_settings(table: pd.DataFrame, by: Sequence[str]) -> list[dict[str, str]]:
    """Return the combinations of values of the columns `by` that the table has rows of."""
    settings = []
    for values in product(*(distinct_values(table, name) for name in by)):
        setting = dict(zip(by, values, strict=True))
        if len(matching_rows(table, setting)):
            settings.append(setting)
    return settings


def _panels_per_line(n_values: int, figure_columns: int) -> int:
    """Return how many panels lie side by side if titles have this many values of one column."""
    if figure_columns == 1:
        return 1
    return n_values if 1 < n_values <= 6 else 3


def _panel_title(rows: pd.DataFrame, columns: Sequence[str]) -> str:
    """Return the title of a panel: its values in these columns, and the number of questions."""
    names = [_spoken(name, rows[name].iloc[0]) for name in columns]
    if "n_questions" in rows:
        names.append(question_count(rows))
    return ", ".join(names)


def _wrapped_titles(titles: Sequence[str], panel_width: float) -> tuple[list[str], int]:
    """Return the titles, wrapped to the width of a panel (inches), and their font size.

    The size is the largest at which no title takes more than two lines, or the smallest one.
    """
    for size, letters_per_inch in _TITLE_SIZES.items():
        letters = int(letters_per_inch * (panel_width - 0.3))
        wrapped = [
            "\n".join(textwrap.wrap(title, letters, break_on_hyphens=False)) for title in titles
        ]
        if _most_lines(wrapped) <= 2:
            return wrapped, size
    return wrapped, size


def _most_lines(texts: Sequence[str]) -> int:
    return max(text.count("\n") + 1 for text in texts)


def _write_below(figure: Figure, table: pd.DataFrame, shared: list[str], *, n_panels: int) -> None:
    """Write the values that all panels share below the label of the x axes."""
    parts = [_named(name, table[name].iloc[0]) for name in shared]
    parts += [label_words(table), _rule_words(table)]
    text = ", ".join(filter(None, parts))
    if text and n_panels > 1:
        text = f"all panels: {text}"
    lines = [figure.get_supxlabel(), *textwrap.wrap(text, int(14 * figure.get_figwidth()))]
    figure.supxlabel("\n".join(filter(None, lines)))


def label_words(table: pd.DataFrame) -> str:
    """Say that labels of a sample estimate all rows, and how many; empty if they do not."""
    if not is_by_labels(table):
        return ""
    labels = "labels of a sample"
    numbers = sorted(distinct_values(table, "n_labels"))
    if numbers:
        count = f"{numbers[0]:,.0f}"
        if len(numbers) > 1:
            count = f"{count} to {numbers[-1]:,.0f}"
        labels = f"labels of {count} answers"
    return f"correct answers are estimated from {labels}; ROUGE-L judges the validation questions"


def _rule_words(table: pd.DataFrame) -> str:
    """Say by which rule answers are correct; empty if labels or several rules decide."""
    rules = distinct_values(table, "correctness")
    if len(rules) != 1 or is_by_labels(table):
        return ""
    return f"an answer is correct by {rules[0]}"


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


def _named(column: str, value: object) -> str:
    """Return a value of a column as the line below a figure shows it; empty without a value."""
    text = str(value)
    if column in ("dataset", "model"):
        return text and f"{column} {text}"
    if column == "protocol" and text in _PROTOCOL_WORDS:
        return _PROTOCOL_WORDS[text]
    return _spoken(column, value)


def distinct_values(table: pd.DataFrame, column: str) -> list:
    """Return the different values of a column in their order, PRO first; [] without the column."""
    return sorted(dict.fromkeys(table.get(column, ())), key=lambda value: value != "PRO")


def matching_rows(table: pd.DataFrame, chosen: dict[str, str]) -> pd.DataFrame:
    """Return the rows with these values by column."""
    return table[(table[list(chosen)] == pd.Series(chosen, dtype=object)).all(axis=1)]


def set_ticks(ax: Axes, ticks: Sequence[float]) -> None:
    """Set the ticks of the x axis, labelled with plain numbers."""
    ax.xaxis.set(
        major_locator=FixedLocator(sorted(ticks)),
        major_formatter=lambda value, _: minus(f"{value:g}"),
        minor_locator=NullLocator(),
    )


def minus(text: str) -> str:
    """Return a number with the sign for minus in place of a hyphen."""
    return text.replace("-", "−")


def alpha_axis(ax: Axes, scale: str = "log") -> None:
    """Set the scale and the ticks of an x axis of α.

    Args:
        ax: the axes.
        scale: `log` is linear below 0.001, where only α = 0 lies, and logarithmic above it.
            `linear` is the scale of the paper.
    """
    ax.set_xlim(0, 1)
    if scale == "linear":
        set_ticks(ax, (0, 0.2, 0.4, 0.6, 0.8, 1))
        return
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    set_ticks(ax, (0, 0.01, 0.1, 0.4, 1))


def difference_axis(ax: Axes) -> None:
    """Make the y axis one of differences: linear up to 0.05, logarithmic beyond, a line at 0."""
    ax.axhline(0, color="black", lw=0.6)
    ax.set_yscale("symlog", linthresh=0.05)
    ax.yaxis.set(
        major_locator=FixedLocator([-0.5, -0.1, -0.05, 0, 0.05, 0.1, 0.5]),
        minor_locator=NullLocator(),
    )
    ax.yaxis.set_major_formatter(lambda value, _: minus(f"{value:+g}") if value else "0")


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
    interval: str = "",
    bars: bool = False,
    **other,
) -> None:
    """Draw a line with its interval, as a band or as bars.

    The ends of the interval are in the columns `<interval>low` and `<interval>high`, if the table
    has them.
    """
    step = 1 if bars else max(1, len(line) // 4)
    drawn = {**line_style(index), "markevery": (2 * index % step, step), **other}
    ax.plot(x, line[y], **drawn)
    if f"{interval}low" not in line:
        return
    color = drawn["color"]
    low = line[f"{interval}low"].astype(float)
    high = line[f"{interval}high"].astype(float)
    if bars:
        ax.vlines(x, low, high, color=color, lw=0.8)
    else:
        ax.fill_between(x, low, high, fc=(color, 0.12), ec=(color, 0.6), lw=0.6, ls=drawn["ls"])


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
    **other,
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
        draw_curve(ax, places, line, style, y=y, label=name, **other)


def minus_nll(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return the table with a column difference: `y` minus NLL's at the same `x`."""
    return table.assign(
        difference=table[y] - table[x].map(table[table["method"] == "NLL"].set_index(x)[y])
    )


def handles(
    names: Sequence[object], *, styles: Sequence[int] | None = None, **other: Any
) -> list[plt.Line2D]:
    """Return a legend entry for the line of each name; `styles` as in `draw_curves`."""
    styles = range(len(names)) if styles is None else styles
    return [
        plt.Line2D([], [], label=name, **{**line_style(style), **other})
        for name, style in zip(names, styles, strict=True)
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

ALPHA_LABELS = {
    "log": "α, the least probability of an answer that is kept (log scale above 0.001)",
    "linear": "α, the least probability of an answer that is kept",
}
ALPHA_AXIS = "α, the least probability of an answer that is kept (log scale above 0.001)"


def checked_table(table: pd.DataFrame, columns: Sequence[str], figure: str) -> pd.DataFrame:
    """Return a table that a figure can be drawn from.

    A table without the column `model` gets an empty one, so that it is drawn as one line.

    Args:
        table: the table of a user.
        columns: the columns that the figure needs.
        figure: the name of the function that draws it, for the message.

    Raises:
        SentenceError: if a column is missing, or if the table has no rows.
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
    size = ax.title.get_fontsize()
    ax.set_title("")
    ax.set_title(shown, loc="right", **{"fontsize": size, **style})


def model_entries(models: Sequence[str], **style: Any) -> list[plt.Line2D]:
    """Return a legend entry for the line of each model."""
    return [entry for entry in handles(models, **style) if entry.get_label()]


def printed_entry(**style: Any) -> plt.Line2D:
    """Return the legend entry of the values that the paper printed."""
    return plt.Line2D([], [], label="printed in the paper", **{**PRINTED, "marker": "D", **style})


def label_figure(
    figure: Figure,
    *,
    title: str,
    x: str,
    y: str,
    entries: Sequence[plt.Artist] = (),
    note: str = "",
) -> None:
    """Put the title and one legend above all panels, name the two axes, and add a note below.

    The figure becomes higher by the lines of the note.
    """
    letters = int(14 * figure.get_figwidth())
    label_lines = textwrap.wrap(x, letters)
    note_lines = _note_lines(note, letters)
    if label_lines and note_lines:
        note_lines.insert(0, "")
    figure.set_figheight(figure.get_figheight() + _LINE_HEIGHT * len(note_lines))
    explain(figure, entries, "\n".join([*label_lines, *note_lines]), y)
    heading = "\n".join(textwrap.wrap(title, int(13.5 * figure.get_figwidth()), max_lines=2))
    if figure.legends:  # the legend lies where a title would
        figure.legends[0].set_title(heading, FontProperties(size=8.5, weight="bold"))
    else:
        figure.suptitle(heading, fontsize=8.5, fontweight="bold")


def _note_lines(note: str, letters: int) -> list[str]:
    """Return the lines of a note. A short sentence is on one line, if the line is long enough."""
    most = min(_WHOLE_SENTENCE, letters)
    sentences = []
    for sentence in re.split(r"(?<=\.) ", note):
        sentences.append(sentence.replace(" ", "\xa0") if len(sentence) <= most else sentence)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(" ".join(sentences), letters)]
