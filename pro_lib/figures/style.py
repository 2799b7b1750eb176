"""The look of all figures, and how a figure and its numbers are written; knows no figure."""

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from pro_lib.store import write_whole, writing

# Okabe and Ito's palette in an order whose lightness differs from one to the next; line style and marker repeat
# what colour says, so that a figure survives greyscale.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
DASHES = (
    "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.3, 1, 1.3)),
    (0, (9, 1.6)), (0, (3, 1.2, 1, 1.2, 1, 1.2)), (0, (2, 1.2)), (0, (9, 1.3, 1, 1.3)),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# How wide a letter is, in its size: seldom more in the font below.
LETTER = 0.61
# Characters that a question may hold, and no XML: Matplotlib writes them as they are.
_NO_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_UNDATED = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE = {
    "font.size": 8,
    # Matplotlib's own font, so that widths are the same everywhere; Verdana is as wide where an SVG's reader lacks it.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "axes.titlesize": 8,
    # Where titles stand anyway; unsaid, Matplotlib looks for it among the ticks, at a third of the time of a layout.
    "axes.titley": 1.0,
    "axes.labelsize": 8,
    "figure.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "figure.constrained_layout.hspace": 0,
    "figure.constrained_layout.wspace": 0,
    "savefig.dpi": 200,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
    # TrueType outlines: conferences refuse files with Type 3 fonts.
    "pdf.fonttype": 42,
    # An answer may hold dollar signs; nothing here is written in TeX.
    "text.parse_math": False,
}


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, for as long as the context lasts."""
    with sns.axes_style("ticks"), plt.rc_context(_STYLE):
        yield


def look(index: int) -> dict[str, object]:
    """Colour, dashes and marker of the line with this index; beyond eight a colour comes again with other dashes."""
    n = len(COLORS)
    return {"color": COLORS[index % n], "ls": DASHES[(index + index // n) % n], "marker": MARKERS[index % n]}


def save(
    figure: Figure,
    table: pd.DataFrame,
    name: str,
    *,
    figures_dir: str | Path = "figures",
    formats: Sequence[str] = ("png", "svg"),
    note: str = "",
) -> Figure:
    """Write `<name>.png`, `<name>.svg` and the numbers behind them, `<name>.csv`; return the figure.

    `note` stands below it. `formats`: png (200 dpi), svg, pdf. The same numbers give the same bytes.
    """
    formats = [formats] if isinstance(formats, str) else list(formats)
    if unknown := [wanted for wanted in formats if wanted not in _UNDATED]:
        raise ValueError(f"formats has {unknown[0]!r}, which is none of {', '.join(_UNDATED)}")
    save_table(table, name, figures_dir=figures_dir)
    with style():
        if note:
            lines = textwrap.wrap(note, int(72 * figure.get_figwidth() / (8 * LETTER)))
            figure.supxlabel("\n".join([figure.get_supxlabel(), *lines]))
            figure.set_figheight(figure.get_figheight() + 8 * 1.2 / 72 * len(lines))
        for wanted in formats:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=wanted, metadata=_UNDATED[wanted])
            figure.set_layout_engine("none")  # laid out once: the same in every format, and half the time
            data = _NO_XML.sub("�".encode(), buffer.getvalue()) if wanted == "svg" else buffer.getvalue()
            write_whole(data, Path(figures_dir) / f"{name}.{wanted}")
    plt.close(figure)
    return figure


def save_table(table: pd.DataFrame, name: str, *, figures_dir: str | Path = "figures") -> pd.DataFrame:
    """Write `<name>.csv`; return the table."""
    folder = Path(figures_dir)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(table.to_csv(index=False, float_format="%.6g").encode(), folder / f"{name}.csv")
    return table
