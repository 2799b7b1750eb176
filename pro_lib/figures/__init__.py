"""The workbench's figures: each function takes a table and returns a Matplotlib figure.

It knows columns and styles; it does not know runs, models, files of answers or how a number was computed. Every figure
that is saved takes `columns`, the columns of a paper that it spans: 1 is 3.3 inches wide, 2 (the default) is 7.0.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from pro_lib import metrics, tables

# Okabe and Ito's palette in an order whose lightness differs from one to the next; line style and marker repeat
# what colour says, so that a figure survives greyscale.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
DASHES = (
    "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.3, 1, 1.3)),
    (0, (9, 1.6)), (0, (3, 1.2, 1, 1.2, 1, 1.2)), (0, (2, 1.2)), (0, (9, 1.3, 1, 1.3)),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Inches: a column and the text width of an AAAI page, and how much of its height a figure should take at most.
WIDTHS, _TALLEST = {1: 3.3, 2: 7.0}, {1: 6.5, 2: 8.2}
FORMATS = ("png", "svg", "pdf")
ALPHA_LABEL = "α (log scale above 0.001)"
# Ticks of an axis, richest first: where panels are narrow, a poorer choice is taken.
_ALPHA_TICKS = (
    (0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 1),
    (0, 0.001, 0.01, 0.1, 0.4, 1),
    (0, 0.01, 0.1, 0.4, 1),
    (0, 0.01, 0.1, 1),
    (0, 0.1, 1),
)
_SHARE_TICKS = ((0, 0.2, 0.4, 0.6, 0.8, 1), (0, 0.5, 1), (0, 1))
# The paper's printed numbers beside ours.
_PRINTED = {"color": "#777777", "mfc": "none", "ms": 5, "ls": "", "zorder": 1}
_STYLE = {
    "font.size": 8,
    # Matplotlib's own font, so that widths are the same everywhere; Verdana is as wide where an SVG's reader lacks it.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "axes.titlesize": 8,
    # Where titles stand anyway; unsaid, Matplotlib looks for it among the ticks, at a third of the time of a layout.
    "axes.titley": 1.0,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.title_fontsize": 8,
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


def save(
    figure: Figure,
    table: pd.DataFrame,
    name: str,
    *,
    figures_dir: str | Path = "figures",
    formats: Sequence[str] = ("png", "svg"),
) -> Figure:
    """Write `<name>.png`, `<name>.svg` and the numbers behind them, `<name>.csv`; return the figure.

    `formats` names what is written: png (200 dpi), svg, pdf. The same numbers give the same bytes.
    """
    formats = [formats] if isinstance(formats, str) else list(formats)
    if unknown := [wanted for wanted in formats if wanted not in FORMATS]:
        raise ValueError(f"formats has {unknown[0]!r}, which is none of {', '.join(FORMATS)}")
    save_table(table, name, figures_dir=figures_dir)
    undated = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style():
        for wanted in formats:
            figure.savefig(Path(figures_dir) / f"{name}.{wanted}", metadata=undated[wanted])
    plt.close(figure)
    return figure


def save_table(table: pd.DataFrame, name: str, *, figures_dir: str | Path = "figures") -> pd.DataFrame:
    """Write `<name>.csv`; return the table."""
    folder = Path(figures_dir)
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    return table


def auroc_vs_alpha(
    sweep: pd.DataFrame, choices: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2
) -> Figure:
    """AUROC of PRO against α: a row per split, a column per dataset, a line per model.

    `sweep` has columns dataset, model, split, alpha, auroc and, for bands, low and high; `choices` has dataset,
    model, split, alpha, auroc and kind (`selected`, `default` or `oracle`), drawn as markers. `paper`, what the
    paper chose and printed for the same settings (dataset, model, alpha, auroc), is drawn in grey, with a line to
    the model's own curve at that α.
    """
    _need(sweep, "sweep", "dataset", "model", "split", "alpha", "auroc")
    marks = {"selected": ("o", "chosen on validation"), "default": ("s", "default"), "oracle": ("*", "oracle")}
    if odd := set(choices["kind"]) - set(marks):
        raise ValueError(f"choices: kind {sorted(odd)[0]!r} is none of {', '.join(marks)}")
    splits, datasets, models = _values(sweep, "split", "dataset", "model")
    labels = {"xlabel": ALPHA_LABEL, "ylabel": _interval("AUROC", sweep)}
    with _sheet(len(splits), len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for (row, split), (column, dataset) in _grid(splits, datasets):
            ax, panel = sheet.axes[row, column], _where(sweep, dataset=dataset, split=split)
            for index, model in enumerate(models):
                line = panel[panel["model"] == model]
                _line(ax, line["alpha"], line, index, name=model)
                sheet.name(ax, line["alpha"], line["auroc"], index, model)
                if paper is not None:
                    _printed_alpha(ax, _where(paper, dataset=dataset, model=model), line)
            for choice in _where(choices, dataset=dataset, split=split).itertuples():
                marker, _ = marks[choice.kind]
                color = _look(models.index(choice.model))["color"]
                size = 8 if marker == "*" else 5
                ax.plot(choice.alpha, choice.auroc, marker, ms=size, mfc="white", mec=color, mew=1.3, zorder=5)
            sheet.title(ax, dataset, split, panel=panel)
            _alpha_axis(ax)
            sheet.ticks(ax, *map(_plain, _ALPHA_TICKS))
        drawn = [(marker, label) for kind, (marker, label) in marks.items() if (choices["kind"] == kind).any()]
        handles = [_handle(label, marker, ms=7 if marker == "*" else 5, mfc="white", c="k") for marker, label in drawn]
        sheet.key(_handles(models), handles + _printed_handle(paper))
    return sheet.figure


def _printed_alpha(ax: Axes, printed: pd.DataFrame, line: pd.DataFrame) -> None:
    ax.plot(printed["alpha"], printed["auroc"], "D", **_PRINTED)
    if len(line):
        ours = np.interp(printed["alpha"], line["alpha"], line["auroc"])
        ax.vlines(printed["alpha"], ours, printed["auroc"], color=_PRINTED["color"], lw=0.6, zorder=1)


def k_vs_alpha(sweep: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Mean number of answers kept against α: a panel per dataset, a line per model.

    `sweep` has columns dataset, model, alpha, mean_kept and, for bands, low and high (of mean_kept).
    """
    _need(sweep, "sweep", "dataset", "model", "alpha", "mean_kept")
    datasets, models = _values(sweep, "dataset", "model")
    labels = {"xlabel": ALPHA_LABEL, "ylabel": _interval("mean K, answers kept", sweep)}
    with _sheet(1, len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for ax, dataset in zip(sheet.axes[0], datasets, strict=True):
            panel = _where(sweep, dataset=dataset)
            for index, model in enumerate(models):
                line = panel[panel["model"] == model]
                _line(ax, line["alpha"], line, index, name=model, y="mean_kept")
                sheet.name(ax, line["alpha"], line["mean_kept"], index, model)
            ax.axhline(1, color="black", lw=0.6, ls=":")
            sheet.title(ax, dataset, panel=panel)
            _alpha_axis(ax)
            sheet.ticks(ax, *map(_plain, _ALPHA_TICKS))
        sheet.key(_handles(models))
    return sheet.figure


def fixed_k(
    sweep: pd.DataFrame, adaptive: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2
) -> Figure:
    """AUROC of PRO at fixed K beside adaptive PRO: a panel per dataset, a line per model.

    `sweep` has columns dataset, model, k, auroc and, for bars, low and high; `adaptive` has dataset, model, auroc and
    low, high, and is drawn at the right of each panel. `paper`, what the paper printed for the same settings (dataset,
    model, selection, k, auroc), is drawn in grey.
    """
    _need(sweep, "sweep", "dataset", "model", "k", "auroc")
    _need(adaptive, "adaptive", "dataset", "model", "auroc")
    datasets, models = _values(sweep, "dataset", "model")
    ks = sorted(sweep["k"].unique())
    right = ks[-1] + 1.6
    labels = {"xlabel": "K, answers used", "ylabel": _interval("AUROC", sweep)}
    with _sheet(1, len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for ax, dataset in zip(sheet.axes[0], datasets, strict=True):
            for index, model in enumerate(models):
                shift = 0.16 * (index - (len(models) - 1) / 2)
                line, points = (_where(table, dataset=dataset, model=model) for table in (sweep, adaptive))
                _line(ax, line["k"] + shift, line, index, name=model, bars=True)
                _line(ax, right + shift + 0 * points["auroc"], points, index, name="", bars=True, ls="")
                sheet.name(ax, right + shift + 0 * points["auroc"], points["auroc"], index, model)
                for auroc in points["auroc"]:
                    ax.axhline(auroc, color=_look(index)["color"], lw=0.6, ls=":")
                if paper is not None:
                    printed = _where(paper, dataset=dataset, model=model)
                    at = printed["k"].astype(float).fillna(right)
                    ax.plot(at, printed["auroc"], _look(index)["marker"], **_PRINTED)
            ax.axvline(ks[-1] + 0.8, color="black", lw=0.6)
            sheet.ticks(ax, *({**choice, right: "adaptive"} for choice in _every(_plain(ks))))
            sheet.title(ax, dataset, panel=_where(sweep, dataset=dataset))
        sheet.key(_handles(models, marker=True), _printed_handle(paper))
    return sheet.figure


def rouge_thresholds(sweep: pd.DataFrame, paper: pd.DataFrame | None = None, *, columns: int = 2) -> Figure:
    """AUROC of every method against the ROUGE-L threshold: a row per model, a column per dataset.

    `sweep` has columns dataset, model, threshold, method, auroc and, for bars, low and high, and for the share of right
    answers accuracy; `paper`, what the paper printed for the same settings (dataset, model, method, threshold, auroc),
    is drawn in grey.
    """
    _need(sweep, "sweep", "dataset", "model", "threshold", "method", "auroc")
    datasets, models, methods = _values(sweep, "dataset", "model", "method")
    shares = " (share right)" if "accuracy" in sweep else ""
    labels = {"xlabel": f"right if ROUGE-L > threshold{shares}", "ylabel": _interval("AUROC", sweep), "around": 0.65}
    with _sheet(len(models), len(datasets), columns=columns, sharey=True, **labels) as sheet:
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax, panel = sheet.axes[row, column], _where(sweep, dataset=dataset, model=model)
            for index, method in enumerate(methods):
                shift = 0.006 * (index - (len(methods) - 1) / 2)
                line = panel[panel["method"] == method]
                _line(ax, line["threshold"] + shift, line, index, name=method, bars=True)
                sheet.name(ax, line["threshold"] + shift, line["auroc"], index, method)
                if paper is not None:
                    printed = _where(paper, dataset=dataset, model=model, method=method.split(", ")[0])
                    ax.plot(printed["threshold"] + shift, printed["auroc"], _look(index)["marker"], **_PRINTED)
            at = panel.drop_duplicates("threshold").sort_values("threshold")
            ticks = _plain(at["threshold"])
            if shares:
                ticks = {t: f"{ticks[t]}\n({a:.0%})" for t, a in zip(ticks, at["accuracy"], strict=True)}
            sheet.ticks(ax, *_every(ticks))
            sheet.title(ax, dataset, model, panel=panel)
        sheet.key(_handles(methods, marker=True), _printed_handle(paper))
    return sheet.figure


def benchmark(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC of every method with its interval, a panel per setting (dataset × model).

    `table` has columns dataset, model, method, auroc and, for bars, low and high and, to mark methods that differ from
    PRO, difference and significant; PRO is drawn first, the other methods in the order they come in.
    """
    _need(table, "table", "dataset", "model", "method", "auroc")
    datasets, models, methods = _values(table, "dataset", "model", "method")
    marked = "\n▲ above PRO, ▼ below: DeLong, Holm-corrected" if "significant" in table else ""
    labels = {"xlabel": _interval("AUROC", table) + marked, "height": 0.13 * max(len(methods), 5) + 0.05}
    with _sheet(len(models), len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax, panel = sheet.axes[row, column], _where(table, dataset=dataset, model=model)
            for point in panel.itertuples():
                at = methods.index(point.method)
                # The oracle is no method one could use, so it is greyed.
                color = COLORS[7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6]
                ax.hlines(at, getattr(point, "low", np.nan), getattr(point, "high", np.nan), color=color, lw=1.2)
                fill = color if color == COLORS[0] else "white"
                ax.plot(point.auroc, at, "o", ms=3.5 if sheet.slot > 2 else 2.5, color=color, mfc=fill)
                if getattr(point, "significant", False):
                    mark = "▲" if point.difference > 0 else "▼"
                    ax.text(1.01, at, mark, transform=ax.get_yaxis_transform(), va="center", fontsize=6)
            ax.axvline(panel["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.axvline(0.5, color="black", lw=0.6)
            ax.set_yticks(range(len(methods)), methods)
            ax.set_ylim(len(methods) - 0.5, -0.5)
            sheet.title(ax, dataset, model, panel=panel)
    return sheet.figure


def beside_paper(table: pd.DataFrame, paper: pd.DataFrame, *, columns: int = 2) -> Figure:
    """AUROC minus PRO's, method by method: the settings of the paper above, ours below.

    Both have columns dataset, model, method, auroc; a method of ours may name its similarity, `SE, lexical`, and those
    that the paper does not have are left out. Intervals of a difference, difference_low and difference_high, are drawn
    where a table has them.
    """
    for name, source in {"table": table, "paper": paper}.items():
        _need(source, name, "dataset", "model", "method", "auroc")
    methods = [name for name in dict.fromkeys(paper["method"]) if name != "PRO"]
    sources = {"the paper": (paper, -0.17, COLORS[6]), "here": (table, 0.17, COLORS[0])}
    xlabel = "AUROC minus that of PRO (a point per setting, the bar is their mean)"
    with _sheet(1, 1, columns=columns, height=0.24 * len(methods) + 0.1, xlabel=xlabel) as sheet:
        ax = sheet.axes[0, 0]
        for name, (source, shift, color) in sources.items():
            cells = source.assign(base=source["method"].str.split(", ").str[0])
            keys = ["dataset", "model"]
            pro = source[source["method"] == "PRO"].set_index(keys)["auroc"]
            cells = cells[cells["base"].isin(methods)]
            difference = cells["auroc"].to_numpy() - pro[pd.MultiIndex.from_frame(cells[keys])].to_numpy()
            at = np.array([methods.index(base) for base in cells["base"]]) + shift
            label = f"{name}, {len(pro)} settings"
            if "difference_low" in cells:
                ax.hlines(at, cells["difference_low"], cells["difference_high"], color=color, lw=0.6, alpha=0.5)
            ax.plot(difference, at, "o", color=color, mfc="none" if name == "here" else color, alpha=0.5, label=label)
            means = pd.Series(difference).groupby(at).mean()
            ax.vlines(means, means.index - 0.15, means.index + 0.15, color=color, lw=1.8)
        ax.axvline(0, color="black", lw=0.6)
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(len(methods) - 0.5, -0.5)
        sheet.key([], ax.get_legend_handles_labels()[0])
    return sheet.figure


def accuracy_coverage(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy among the questions answered against their share: a row per model, a column per dataset.

    `table` has columns dataset, model, method, coverage, accuracy and, for bands, low and high; the method `oracle` is
    drawn as a limit. A band has the width of one curve's own uncertainty: methods answer the same questions, so that
    bands that overlap do not mean no difference.
    """
    _need(table, "table", "dataset", "model", "method", "coverage", "accuracy")
    datasets, models, methods = _values(table, "dataset", "model", "method")
    methods = [name for name in methods if name != "oracle"]
    labels = {"xlabel": "share of questions answered", "ylabel": _interval("accuracy of the answers", table)}
    limit_look = {"color": COLORS[7], "lw": 1, "ls": ":"}
    with _sheet(len(models), len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax, panel = sheet.axes[row, column], _where(table, dataset=dataset, model=model)
            limit = panel[panel["method"] == "oracle"]
            ax.plot(limit["coverage"], limit["accuracy"], **limit_look)
            for index, method in enumerate(methods):
                line = panel[panel["method"] == method]
                _line(ax, line["coverage"], line, index, name=method, y="accuracy")
                sheet.name(ax, line["coverage"], line["accuracy"], index, method)
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1.03)
            sheet.ticks(ax, *map(_plain, _SHARE_TICKS))
            sheet.title(ax, dataset, model, panel=panel)
        sheet.key(_handles(methods), [plt.Line2D([], [], **limit_look, label="right answers first")])
    return sheet.figure


def reliability(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy against confidence in bins of equal size: a row per model, a column per dataset.

    `table` has columns dataset, model, method, n, confidence, accuracy, accuracy_low, accuracy_high, ece; equal
    confidences share a bin, so bins differ in size, and so do their markers.
    """
    _need(table, "table", "dataset", "model", "method", "n", "confidence", "accuracy", "ece")
    datasets, models, methods = _values(table, "dataset", "model", "method")
    labels = {"xlabel": "confidence, fitted on validation", "ylabel": "accuracy, 95 % interval", "around": 0.55}
    with _sheet(len(models), len(datasets), columns=columns, sharex=True, sharey=True, **labels) as sheet:
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax, panel = sheet.axes[row, column], _where(table, dataset=dataset, model=model)
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            errors = panel.drop_duplicates("method").set_index("method")["ece"]
            for index, method in enumerate(methods):
                line, look = panel[panel["method"] == method], _look(index)
                x, color, marker = line["confidence"], look["color"], look["marker"]
                ax.plot(x, line["accuracy"], color=color, ls=look["ls"], lw=0.8, alpha=0.6)
                ax.vlines(x, line["accuracy_low"], line["accuracy_high"], color=color, lw=0.8)
                sizes = 3 + 20 * sheet.slot**0.5 * line["n"] / panel["n"].max()
                ax.scatter(x, line["accuracy"], s=sizes, marker=marker, color=color, lw=0)
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1.03)
            sheet.ticks(ax, *map(_plain, _SHARE_TICKS))
            ece = ", ".join(_unbroken(f"{method} {error:.3f}") for method, error in errors.items())
            sheet.title(ax, dataset, model, panel=panel, below=f"ECE:\N{NO-BREAK SPACE}{ece}")
        sheet.key([], _handles(methods, marker=True))
    return sheet.figure


def exact_search(searches: pd.DataFrame, recall: pd.DataFrame, bounds: pd.DataFrame, *, columns: int = 2) -> Figure:
    """What exact search does as its α falls: recall, status, bounds and cost, four panels for each setting.

    `searches` has a row per dataset, model and α with the columns of `tables.search_table`, and greedy_forwards
    and beam_forwards, token-forwards per question of the other strategies. `recall` has columns dataset, model, alpha,
    recall, all_found and, for the latter's Wilson interval, questions (answers to one question go together, so that
    recall gets none); `bounds` dataset, model, alpha, n_questions, pro, alpha_floor, tree_bound, entropy, entropy_low,
    entropy_high. A mean with columns `<name>_low` and `<name>_high` gets a band.
    """
    _need(searches, "searches", "dataset", "model", "alpha", "n_questions", "token_forwards")
    _need(recall, "recall", "dataset", "model", "alpha", "recall", "all_found")
    _need(bounds, "bounds", "dataset", "model", "alpha", "n_questions", "entropy")
    settings = list(dict.fromkeys(zip(searches["dataset"], searches["model"], strict=True)))
    parts = {
        "share found by ten beams": (_recall, recall),
        "share of questions by status": (_status, searches),
        "mean, nats": (_bounds, bounds),
        "token-forwards per question": (_cost, searches),
    }
    labels = {"xlabel": "search α", "height": 1.05 if columns == 1 else 1.5, "around": 0.55}
    with _sheet(len(settings), 4, columns=columns, turn=False, **labels) as sheet:
        for (row, setting), (column, title) in _grid(settings, list(parts)):
            ax, (draw, source) = sheet.axes[row, column], parts[title]
            table = _where(source, dataset=setting[0], model=setting[1])
            draw(ax, table)
            ax.set_xscale("log")
            ax.xaxis.set_minor_locator(NullLocator())
            ticks = [tick for tick in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4) if tick >= table["alpha"].min()]
            sheet.ticks(ax, *_every(_plain(ticks)))
            sheet.title(ax, title, *(setting if len(settings) > 1 else ()), panel=table, key=row == 0)
    return sheet.figure


def _recall(ax: Axes, table: pd.DataFrame) -> None:
    if "questions" in table:
        low, high = metrics.wilson_interval(table["all_found"], table["questions"])
        table = table.assign(all_found_low=low, all_found_high=high)
    for index, (name, label) in enumerate({"recall": "answers with p ≥ α", "all_found": "all of a question's"}.items()):
        _line(ax, table["alpha"], table, index, name=label, y=name, low=f"{name}_low", high=f"{name}_high")
    ax.set_ylim(0, 1.03)


def _status(ax: Axes, table: pd.DataFrame) -> None:
    names = ("certified", "fallback", "undecided")
    shades = (COLORS[0], COLORS[4], COLORS[6])
    ax.stackplot(table["alpha"], *(table[name] for name in names), colors=shades, labels=names, lw=0)
    ax.set_ylim(0, 1)


def _bounds(ax: Axes, table: pd.DataFrame) -> None:
    ax.axhspan(table["entropy_low"].iloc[0], table["entropy_high"].iloc[0], color=COLORS[7], alpha=0.4, lw=0)
    ax.axhline(table["entropy"].iloc[0], color=COLORS[6], lw=1, label="H, estimate")
    names = {"tree_bound": "tree bound", "alpha_floor": "α-floor", "pro": "PRO, or NLL"}
    for index, (name, label) in enumerate(names.items()):
        _line(ax, table["alpha"], table, index, name=label, y=name, low=f"{name}_low", high=f"{name}_high")
    ax.set_ylim(0, None)


def _cost(ax: Axes, table: pd.DataFrame) -> None:
    name = "token_forwards"
    _line(ax, table["alpha"], table, 0, name="exact search", y=name, low=f"{name}_low", high=f"{name}_high")
    for index, (name, label) in enumerate({"beam_forwards": "ten beams", "greedy_forwards": "greedy"}.items(), start=1):
        ax.axhline(table[name].iloc[0], color=COLORS[index], ls=DASHES[index], label=label)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())


def answers(table: pd.DataFrame, *, alpha: float, n_questions: int = 6, columns: int = 2) -> Figure:
    """The likeliest answers to some questions as bars, ten or, at one column, five; those kept at `alpha` filled.

    Right answers are marked. `table` has columns question, text, probability, kept, correct and, of the question,
    uncertainty.
    """
    _need(table, "table", "question", "text", "probability", "kept", "correct", "uncertainty")
    shown = list(dict.fromkeys(table["question"]))[:n_questions]
    rows = {question: table[table["question"] == question].head(10 if columns == 2 else 5) for question in shown}
    most = max(map(len, rows.values()))
    labels = {"xlabel": "probability of the complete answer", "height": 0.135 * max(most, 3)}
    with _sheet(1, len(shown), columns=columns, sharex=True, narrowest=3.0, **labels) as sheet:
        for ax, (question, found) in zip(sheet.axes[0], rows.items(), strict=True):
            colors = [COLORS[0] if kept else "white" for kept in found["kept"]]
            ax.barh(range(len(found)), found["probability"], color=colors, edgecolor=COLORS[0], lw=0.8)
            marks = ["✓ " if right else "" for right in found["correct"]]
            ax.set_yticks(range(len(found)), [f"{m}{_shortened(t)}" for m, t in zip(marks, found["text"], strict=True)])
            ax.set_ylim(most - 0.5, -0.5)
            ax.axvline(alpha, color=COLORS[1], lw=1, ls="--")
            sheet.title(ax, question, below=f"PRO = {found['uncertainty'].iloc[0]:.2f} nats", most_lines=2)
            ax.set_xlim(0, 1)
            sheet.ticks(ax, *map(_plain, _SHARE_TICKS))
    return sheet.figure


def answers_found(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """How many distinct answers runs found and how much probability they hold: a column per dataset.

    `table` has a row per question with columns dataset, model, distinct and mass. Bars are 95 % Wilson intervals,
    bands the 95 % Dvoretzky-Kiefer-Wolfowitz band of the whole curve.
    """
    _need(table, "table", "dataset", "model", "distinct", "mass")
    datasets, models = _values(table, "dataset", "model")
    with _sheet(2, len(datasets), columns=columns, sharex="row", sharey="row") as sheet:
        for (top, bottom), dataset in zip(sheet.axes.T, datasets, strict=True):
            for index, model in enumerate(models):
                panel, look = _where(table, dataset=dataset, model=model), _look(index, marker=False)
                if panel.empty:
                    continue
                counts = panel["distinct"].value_counts(normalize=True)
                counts = counts.reindex(range(table["distinct"].max() + 1), fill_value=0.0)
                top.step(counts.index, counts, where="mid", **look)
                ends = metrics.wilson_interval(counts, len(panel))
                at = counts.index + 0.12 * (index - (len(models) - 1) / 2)
                top.vlines(at, *ends, color=look["color"], lw=0.8)
                mass = np.linspace(0, max(1, table["mass"].max()), 201)
                share = np.searchsorted(np.sort(panel["mass"]), mass, side="right") / len(panel)
                band = np.sqrt(np.log(2 / 0.05) / (2 * len(panel)))
                bottom.plot(mass, share, **look)
                low, high = (share - band).clip(0), (share + band).clip(max=1)
                bottom.fill_between(mass, low, high, color=look["color"], alpha=0.15, lw=0)
            counted = table[(table["dataset"] == dataset) & (table["model"] == models[0])]
            for ax, x in ((top, "distinct answers found"), (bottom, "their probabilities together")):
                sheet.title(ax, dataset, panel=counted.assign(n_questions=len(counted)))
                ax.set_xlabel(x)
        for ax, y in zip(
            sheet.axes[:, 0], ("share of questions", "share of questions\nwith at most this"), strict=True
        ):
            ax.set_ylabel(y)
        sheet.key([], _handles(models))
    return sheet.figure


# ---- What the figures above are made with.


class _Sheet:
    """A figure exactly as wide as the paper's columns that it spans, its panels in a grid wrapped to fit.

    `axes` (rows, across) are the panels; where they lie is decided here: in as few lines as the width allows, or turned
    (a row of the grid becomes a column) where that keeps the figure on a page. `slot` is a panel's width in inches with
    its labels, `height` that of the axes alone. Texts are wrapped, thinned and set by their measured size.
    """

    def __init__(
        self,
        rows: int,
        across: int,
        *,
        columns: int,
        height: float | None = None,
        around: float = 0.45,
        narrowest: float = 1.05,
        turn: bool = True,
        sharex: bool | str = False,
        sharey: bool | str = False,
        xlabel: str = "",
        ylabel: str = "",
    ):
        if columns not in WIDTHS:
            raise ValueError(f"columns={columns!r} must be 1 or 2, the columns of a paper that the figure spans")
        self.width = WIDTHS[columns]
        self.lines, self.per_line, turned, self.height = _arranged(
            rows, across, columns, height=height, around=around, narrowest=narrowest, turn=turn
        )
        self.slot = self.width / self.per_line
        self.figure = plt.figure(figsize=(self.width, self.lines * (self.height + around)))
        self.axes = np.full((rows, across), None, dtype=object)
        self._places: dict[tuple[int, int], Axes] = {}
        self._titles: list[tuple[Axes, str, str, int | None]] = []
        self._choices: list[tuple[Axes, list[dict[float, str]]]] = []
        self._ends: dict[Axes, list[tuple[float, float, int, str]]] = {}
        chunks = self.lines // (across if turned else rows)
        for row, column in np.ndindex(rows, across):
            major, minor = (column, row) if turned else (row, column)
            line, position = major * chunks + minor // self.per_line, minor % self.per_line
            first = {True: self.axes[0, 0], "row": self.axes[row, 0], False: None}
            size = (0.6 / self.per_line, self.height / self.figure.get_figheight())
            ax = self.figure.add_axes((0.2, 0.2, *size), sharex=first[sharex], sharey=first[sharey])
            self.axes[row, column] = self._places[line, position] = ax
        for (line, position), ax in self._places.items():
            below = sharex is not True or (line + 1, position) not in self._places
            # The size is said here since Matplotlib decides by it how many ticks there are, whenever it draws.
            ax.tick_params(labelsize=7, labelbottom=below, labelleft=not sharey or position == 0)
        self._xlabel = self.figure.supxlabel(_wrapped(xlabel, 72 * self.width - 8, 8), fontsize=8, va="bottom")
        self._ylabel = self.figure.supylabel(ylabel, fontsize=8, ha="left")

    def title(
        self,
        ax: Axes,
        *parts: str,
        panel: pd.DataFrame | None = None,
        below: str = "",
        most_lines: int | None = None,
        key: bool = False,
    ) -> None:
        """What the panel shows, with its number of questions; `key` puts the names of its lines below it."""
        if panel is not None and "n_questions" in panel and len(panel):
            parts = (*parts, _unbroken(f"n = {panel['n_questions'].iloc[0]:,}"))
        if not key:
            self._titles.append((ax, ", ".join(parts), below, most_lines))
            return
        handles, names = ax.get_legend_handles_labels()
        room = 72 * 0.8 * self.slot
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": 0.2}
        title = _wrapped(", ".join(parts), room, 8)
        ax.legend(handles, names, title=title, **place, **_legend_look(names, room))

    def ticks(self, ax: Axes, *choices: dict[float, str]) -> None:
        """Where the x axis gets ticks, and their labels: the first of `choices`, richest first, that has the room."""
        if choices:
            self._choices.append((ax, list(choices)))
            _set_ticks(ax, choices[0])

    def name(self, ax: Axes, x: pd.Series, y: pd.Series, index: int, text: str) -> None:
        """The line that goes through x and y is called `text`: written at its right end if all names find room."""
        shown = np.flatnonzero(np.isfinite(y))
        if shown.size:
            self._ends.setdefault(ax, []).append((x.iloc[shown[-1]], y.iloc[shown[-1]], index, text))

    def key(self, named: list[plt.Line2D], others: Sequence[plt.Line2D] = ()) -> None:
        """A legend above all panels: `named`, lines that may have been named at their ends, and others."""
        handles = list(others) if named and self._written(named) else [*named, *others]
        if handles:
            look = _legend_look([handle.get_label() for handle in handles], 72 * self.width - 8)
            self.figure.legend(handles=handles, loc="upper center", borderaxespad=0, **look)

    def _written(self, named: list[plt.Line2D]) -> bool:
        """Write the names at the ends of the lines, if every line can be named without doubt; whether that was done."""
        if {text for ends in self._ends.values() for *_, text in ends} != {handle.get_label() for handle in named}:
            return False
        size, tall = 7, 72 * self.height
        if 72 * 0.3 * self.slot < 10 + max(_points(handle.get_label(), size) for handle in named):
            return False
        places = {}
        for ax, ends in self._ends.items():
            ax.get_ylim()  # limits are settled when they are asked for
            ys = tall * ax.transAxes.inverted().transform(ax.transData.transform([end[:2] for end in ends]))[:, 1]
            places[ax] = _apart(ys, 1.15 * size, tall)
            if places[ax] is None:
                return False
        for ax, ends in self._ends.items():
            beside = ax.transAxes + ScaledTranslation(9 / 72, 0, self.figure.dpi_scale_trans)
            for (x, y, index, text), at in zip(ends, places[ax], strict=True):
                line = {"arrowstyle": "-", "color": _look(index)["color"], "lw": 0.7, "patchA": None, "shrinkA": 2}
                ax.annotate(
                    text, (x, y), (1, at / tall), textcoords=beside, va="center", fontsize=size,
                    arrowprops={**line, "shrinkB": 0, "relpos": (0, 0.5)}, annotation_clip=False,
                )  # fmt: skip
        return True

    def settle(self) -> None:
        """Give every text and panel its place: first as if there were room for all, then with what fits."""
        self._lay_out()
        room = 72 * min(right - left for left, right in map(self._reach, self.axes.flat)) - 6
        size = 8 if self.slot > 1.5 else 7
        for ax, text, below, most_lines in self._titles:
            lines = [_wrapped(text, room, size, most_lines=most_lines), *([_wrapped(below, room, size)] * bool(below))]
            ax.set_title("\n".join(lines), fontsize=size)
            ax.set_xlabel(_wrapped(ax.get_xlabel(), room, 8))
        for ax, choices in self._choices:
            _set_ticks(ax, next((choice for choice in choices if _has_room(ax, choice)), choices[-1]))
        self._lay_out()
        # A title stands above the middle of its axes, moved where it would reach into the neighbour's place.
        for ax, *_ in self._titles:
            half = ax.title.get_window_extent().width / self.figure.dpi / 2 + 0.03
            left, right = self._reach(ax)
            box = ax.get_position()
            middle = self.width * (box.x0 + box.x1) / 2
            middle = min(max(middle, left + half), right - half)
            ax.title.set_x((middle / self.width - box.x0) / box.width)

    def _lay_out(self) -> None:
        """Panels of equal size, as far apart as what is written around them needs; that sets the figure's height."""
        pad, gap = 0.04, 0.1
        scale = self.figure.dpi
        (left, right), (bottom, top) = np.zeros((2, self.per_line)), np.zeros((2, self.lines))
        for (line, position), ax in self._places.items():
            beside = [*ax.texts, *filter(None, [ax.get_legend()])]
            outer, inner = ax.get_tightbbox(bbox_extra_artists=beside, for_layout_only=True), ax.bbox
            left[position] = max(left[position], (inner.x0 - outer.x0) / scale)
            right[position] = max(right[position], (outer.x1 - inner.x1) / scale)
            bottom[line] = max(bottom[line], (inner.y0 - outer.y0) / scale)
            top[line] = max(top[line], (outer.y1 - inner.y1) / scale)
        texts = [*self.figure.legends, self._xlabel, self._ylabel]
        sizes = [text.get_window_extent() for text in texts]
        head = sum(box.height / scale + 0.05 for box in sizes[:-2])
        foot = sizes[-2].height / scale + 0.05 if self._xlabel.get_text() else 0
        side = sizes[-1].width / scale + 0.05 if self._ylabel.get_text() else 0
        width = (self.width - 2 * pad - side - sum(left + right) - gap * (self.per_line - 1)) / self.per_line
        if width < 0.3:
            raise ValueError(f"the names are too long for a figure {self.width} inches wide")
        tall = 2 * pad + head + foot + sum(top + bottom) + self.lines * self.height + gap * (self.lines - 1)
        self.figure.set_size_inches(self.width, tall)
        for (line, position), ax in self._places.items():
            x = pad + side + sum((left + right)[:position]) + left[position] + position * (width + gap)
            y = pad + head + sum((top + bottom)[: line + 1]) - bottom[line] + (line + 1) * self.height + line * gap
            ax.set_position((x / self.width, 1 - y / tall, width / self.width, self.height / tall))
        self._xlabel.set_position(((side + self.width) / 2 / self.width, pad / tall))
        self._ylabel.set(position=(pad / self.width, (foot + tall - head) / 2 / tall))
        self._ylabel.set_text(_wrapped(self._ylabel.get_text(), 72 * (tall - head - foot), 8))
        for legend in self.figure.legends:
            legend.set_bbox_to_anchor((0.5, 1 - pad / tall), transform=self.figure.transFigure)

    def _reach(self, ax: Axes) -> tuple[float, float]:
        """From where to where, in inches, the title of a panel may go: halfway to its neighbours."""
        boxes = {position: other.get_position() for (_, position), other in self._places.items()}
        here = ax.get_position()
        before = [box.x1 for box in boxes.values() if box.x1 < here.x0]
        after = [box.x0 for box in boxes.values() if box.x0 > here.x1]
        left = (max(before) + here.x0) / 2 if before else 0
        right = (min(after) + here.x1) / 2 if after else 1
        return left * self.width, right * self.width


@contextmanager
def _sheet(rows: int, across: int, **options) -> Iterator[_Sheet]:
    with style():
        sheet = _Sheet(rows, across, **options)
        try:
            yield sheet
            sheet.settle()
        except BaseException:
            plt.close(sheet.figure)
            raise


def _arranged(
    rows: int, across: int, columns: int, *, height: float | None, around: float, narrowest: float, turn: bool
) -> tuple[int, int, bool, float]:
    """Lines, panels in a line, whether the grid is turned, and height of the axes: the widest panels that fit a page.

    Rows of the grid that are too long for a line take several, equally filled; where nothing fits, the least height.
    `around` is what a line takes beside its axes, in inches.
    """
    at_most = max(1, int(WIDTHS[columns] / narrowest))
    options = []
    grids = [(rows, across, False), (across, rows, True)][: 1 + turn]
    # A single column of panels may as well be a line.
    for outer, inner, turned in grids if across > 1 else grids[::-1]:
        for most in range(1 if columns == 1 else min(3, at_most), at_most + 1):
            per_line = ceil(inner / ceil(inner / most))
            lines = outer * ceil(inner / per_line)
            slot = WIDTHS[columns] / per_line
            beside = around + (0.2 if slot < 1.5 else 0)
            wanted = height or max(0.85, min(0.55 * slot, 1.4 + 0.17 * slot))
            least = height or max(0.7, 0.7 * wanted)
            tall = max(least, min(wanted, _TALLEST[columns] / lines - beside))
            options.append((lines * (tall + beside), lines, per_line, turned, tall))
            if options[-1][0] <= _TALLEST[columns] + 1e-9:
                return options[-1][1:]
    return min(options)[1:]


def _apart(ys: np.ndarray, gap: float, tall: float) -> np.ndarray | None:
    """Where labels go that are wanted at heights `ys` and need `gap` each: least squares, within 0 and `tall`.

    None where names would be in doubt: more than six, no room, two ends nearly in one place, or moved too far.
    """
    order = np.argsort(ys, kind="stable")
    steps = gap * np.arange(len(ys))
    if len(ys) > 6 or steps[-1] + gap > tall or (len(ys) > 1 and np.diff(ys[order]).min() < 1):
        return None
    # The offsets that remain after the gaps must not decrease: that is isotonic regression.
    offsets = isotonic_regression(ys[order] - steps).x.clip(gap / 2, tall - gap / 2 - steps[-1])
    places = np.empty(len(ys))
    places[order] = offsets + steps
    return places if np.abs(places - ys).max() <= 3 * gap else None


@cache
def _points(text: str, size: float) -> float:
    """Width of the longest line of a text in points."""
    font = FontProperties(family="DejaVu Sans", size=size)
    return max(text_to_path.get_text_width_height_descent(line, font, False)[0] for line in text.split("\n"))


def _wrapped(text: str, room: float, size: float, *, most_lines: int | None = None) -> str:
    """`text` in lines of at most `room` points: between words if that is enough, else at hyphens and anywhere."""
    options = {"max_lines": most_lines, "placeholder": " …"} if most_lines else {}
    for anywhere in (False, True):
        for letters in range(len(text), 3, -1):
            look = {"break_on_hyphens": anywhere, "break_long_words": anywhere, **options}
            parts = [textwrap.fill(line, letters, **look) for line in text.split("\n")]
            if all(_points(part, size) <= room for part in parts):
                return "\n".join(parts)
    return text


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _legend_look(names: Sequence[str], room: float) -> dict[str, object]:
    """A legend of these names in `room` points: as few lines as that allows, and these filled evenly."""
    size, handle, apart = 7, 2.6, 1.2
    for columns in range(len(names), 0, -1):
        rows, longer = divmod(len(names), columns)
        starts = np.cumsum([0] + [rows + (column < longer) for column in range(columns)])
        widths = [max(_points(name, size) for name in names[a:b]) for a, b in pairwise(starts)]
        if sum(widths) + columns * size * (handle + 0.8) + (columns - 1) * size * apart + size <= room:
            break
    columns = ceil(len(names) / ceil(len(names) / columns))
    return {"ncols": columns, "handlelength": handle, "columnspacing": apart, "borderpad": 0.2}


def _plain(ticks: Iterable[float]) -> dict[float, str]:
    return {tick: f"{tick:g}" for tick in ticks}


def _every(ticks: dict[float, str]) -> list[dict[float, str]]:
    """All ticks, every second, every third, … of them, the first alone."""
    return [dict(list(ticks.items())[::n]) for n in range(1, len(ticks) + 1)]


def _set_ticks(ax: Axes, ticks: dict[float, str]) -> None:
    ax.xaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.xaxis.set_major_formatter(FixedFormatter(list(ticks.values())))


def _has_room(ax: Axes, ticks: dict[float, str]) -> bool:
    """Whether tick labels keep a letter's distance from each other."""
    at = 72 / ax.figure.dpi * ax.transData.transform([(tick, 1) for tick in ticks])[:, 0]
    halves = np.array([_points(label, 7) for label in ticks.values()]) / 2
    return bool((np.diff(at) >= halves[1:] + halves[:-1] + 2.5).all())


def _need(table: pd.DataFrame, name: str, *columns: str) -> None:
    if missing := [column for column in columns if column not in table]:
        raise ValueError(f"{name} has no column {missing[0]!r}; it needs {', '.join(columns)}")
    if table.empty:
        raise ValueError(f"{name} has no rows: there is nothing to draw")


def _values(table: pd.DataFrame, *columns: str) -> Iterator[list]:
    """The different values of each column, in the order they come in; PRO, the figures' subject, before the others."""
    return (sorted(dict.fromkeys(table[column]), key=lambda value: value != "PRO") for column in columns)


def _interval(label: str, table: pd.DataFrame) -> str:
    return f"{label}, 95 % interval" if "low" in table else label


def _grid(rows: Sequence, columns: Sequence) -> Iterable[tuple[tuple[int, str], tuple[int, str]]]:
    return ((row, column) for row in enumerate(rows) for column in enumerate(columns))


def _where(table: pd.DataFrame, **values: str) -> pd.DataFrame:
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def _look(index: int, *, marker: bool = True) -> dict[str, object]:
    """Colour, dashes and marker of the line with this index; beyond eight a colour comes again with other dashes."""
    n = len(COLORS)
    look = {"color": COLORS[index % n], "ls": DASHES[(index + index // n) % n]}
    return {**look, "marker": MARKERS[index % n]} if marker else look


def _line(
    ax: Axes,
    x: pd.Series,
    line: pd.DataFrame,
    index: int,
    *,
    name: str,
    y: str = "auroc",
    bars: bool = False,
    low: str = "low",
    high: str = "high",
    **look,
) -> None:
    """A line with its interval, as a band or as bars, by `index`; with a band, markers stand here and there."""
    look = {**_look(index), **look}
    if not bars and len(line) > 12:
        step = len(line) // 4
        look |= {"markevery": ((index * step) // 5 % step, step), "ms": 3}
    ax.plot(x, line[y], label=name, **look)
    if low not in line:
        return
    if bars:
        ax.vlines(x, line[low], line[high], color=look["color"], lw=0.8)
    else:
        ax.fill_between(x, line[low].astype(float), line[high].astype(float), color=look["color"], alpha=0.15, lw=0)


def _handle(label: str, marker: str, **look) -> plt.Line2D:
    return plt.Line2D([], [], marker=marker, ls="", label=label, **look)


def _handles(names: Sequence[str], *, marker: bool = True) -> list[plt.Line2D]:
    return [plt.Line2D([], [], label=name, **_look(index, marker=marker)) for index, name in enumerate(names)]


def _printed_handle(paper: pd.DataFrame | None) -> list[plt.Line2D]:
    return [] if paper is None or paper.empty else [plt.Line2D([], [], marker="D", **_PRINTED, label="the paper")]


def _alpha_axis(ax: Axes) -> None:
    """Linear below 0.001, where only α = 0 lies, logarithmic above it."""
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0, 1)


def _shortened(text: str, length: int = 28) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# ---- The explorer's panels. Margins are set by hand: measuring texts takes longer than drawing them.

_EXPLORER = {"axes.titlesize": 9}


def looked_at(
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    sweep: pd.DataFrame,
    *,
    alpha: float,
    bounds: dict[str, float] | None = None,
) -> Figure:
    """One question at `alpha`, and the run it belongs to: running PRO, its place among the scores, AUROC, mean K.

    `answers` has a row per answer of the question, most probable first, columns running_pro and kept; `questions` a row
    per question, columns uncertainty, correct (None where it is not known) and shown (whether it is the one
    looked at); `sweep` a row per α, columns alpha, auroc, mean_kept. `bounds`, names and nats, are drawn as lines.
    """
    with style(), plt.rc_context(_EXPLORER):
        figure, axes = plt.subplots(1, 4, figsize=(10.4, 2.5))
        figure.subplots_adjust(left=0.04, right=0.985, bottom=0.19, top=0.87, wspace=0.27)
        _running_pro(axes[0], answers, bounds or {})
        _standing(axes[1], questions)
        for ax, column, title in zip(axes[2:], ("auroc", "mean_kept"), ("AUROC", "mean K"), strict=True):
            _at_alpha(ax, sweep, column, title, alpha)
    return figure


def _running_pro(ax: Axes, answers: pd.DataFrame, bounds: dict[str, float]) -> None:
    pro, kept = answers["running_pro"].to_numpy(float), answers["kept"].to_numpy(bool)
    k = np.arange(1, len(pro) + 1)
    ax.plot(k, pro, color=COLORS[0], marker="o", ms=5, mfc="white", zorder=2)
    ax.plot(k[kept], pro[kept], "o", color=COLORS[0], ms=5, zorder=3)
    top = max([*pro, *bounds.values(), 0.1])
    ax.axvline(kept.sum(), color=COLORS[1], lw=1, ls="--", zorder=1)
    paper = {"fc": "white", "ec": "none", "alpha": 0.8, "pad": 0.5}
    for (name, value), dashes in zip(bounds.items(), ("-.", ":"), strict=False):
        ax.axhline(value, color="black", lw=0.9, ls=dashes)
        ax.text(
            1, value, f"{name} {value:.2f}", ha="right", va="bottom", bbox=paper, transform=ax.get_yaxis_transform()
        )
    ax.set_xlim(0.5, max(len(pro), 3) + 0.5)
    ax.set_ylim(0, 1.12 * top)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.set_xlabel("K, answers used (filled: kept)")
    ax.set_title(f"PRO at K = {kept.sum()}: {pro[kept.sum() - 1]:.3f} nats" if kept.any() else "PRO")


def _standing(ax: Axes, questions: pd.DataFrame) -> None:
    """Scores of right answers upwards, of wrong ones downwards, and where the question looked at stands."""
    values, correct = questions["uncertainty"].to_numpy(float), questions["correct"].to_numpy(object)
    edges = np.linspace(0, max(np.nanmax(values, initial=0.0), 0.1), 31)
    tallest = 1
    for label, is_right, sign, look in (
        ("right", True, 1, {"fc": COLORS[0]}),
        ("wrong", False, -1, {"fc": "white", "ec": COLORS[1], "hatch": "////"}),
    ):
        chosen = values[correct == is_right]
        counts, _ = np.histogram(chosen[~np.isnan(chosen)], bins=edges)
        tallest = max(tallest, counts.max())
        ax.stairs(sign * counts, edges, fill=True, lw=0.6, **look)
        at = {"x": 0.98, "y": 0.96 if sign > 0 else 0.04, "va": "top" if sign > 0 else "bottom"}
        ax.text(**at, s=f"{label}, n = {len(chosen):,}", ha="right", transform=ax.transAxes)
    for value in values[questions["shown"].to_numpy(bool)]:
        ax.axvline(value, color="black", lw=1.4)
    ax.axhline(0, color="black", lw=0.6)
    ax.set_ylim(-1.25 * tallest, 1.25 * tallest)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_formatter(lambda count, _: f"{abs(count):g}")
    ax.set_xlim(0, edges[-1])
    ax.set_xlabel("PRO, nats (line: this question)")
    ax.set_title("questions by score")


def _at_alpha(ax: Axes, sweep: pd.DataFrame, column: str, title: str, alpha: float) -> None:
    """A curve over α and the point on it that is looked at."""
    ax.plot(sweep["alpha"], sweep[column], color=COLORS[0])
    _alpha_axis(ax)
    _set_ticks(ax, _plain((0, 0.01, 0.1, 0.4, 1)))
    ax.set_xlabel(ALPHA_LABEL)
    here = np.interp(alpha, sweep["alpha"], sweep[column])
    ax.axvline(alpha, color=COLORS[1], lw=1, ls="--", zorder=1)
    if np.isnan(here):
        ax.text(0.5, 0.5, "needs right and\nwrong answers", ha="center", va="center", transform=ax.transAxes)
    else:
        ax.plot(alpha, here, "o", ms=6, color=COLORS[1], zorder=3)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.set_title(f"{title} at α = {alpha:g}" + ("" if np.isnan(here) else f": {here:.3f}"))


def prefix_tree(table: pd.DataFrame, *, alpha: float) -> Figure:
    """A searched prefix tree from left to right: thicker is likelier, grey dots lead to what was cut.

    `table` has a row per node, parents first: node, parent (-1: none), kind (`prefix`, `answer`, `open`, `cut`), text
    (what it adds to its parent), probability, greedy. The greedy path is black; answers with p ≥ `alpha` are filled.
    What was cut is drawn from a probability of 0.005 on.
    """
    table = table[(table["kind"] != "cut") | (table["probability"] >= 0.005)]
    texts = {row.node: _shortened(row.text.strip(), 34) for row in table.itertuples()}
    x, y, width = _tree_places(table, texts)
    height = max(y.values()) + 1
    with style(), plt.rc_context(_EXPLORER):
        figure, ax = plt.subplots(figsize=(min(max(0.085 * width, 5), 12), 0.3 + 0.26 * max(height, 2)))
        figure.subplots_adjust(0.01, 0.01, 0.99, 0.99)
        for row in table[table["parent"] >= 0].itertuples():
            start, stop, up, at = x[row.parent], x[row.node], y[row.parent], y[row.node]
            is_end, is_cut = row.kind != "prefix", row.kind in ("cut", "open")
            color = "#767676" if is_cut else "black" if row.greedy else COLORS[0]
            ax.plot([start, start], [up, at], color="#b0b0b0", lw=0.7, zorder=1)
            thickness = 0.7 if is_cut else 0.8 + 4 * row.probability
            ax.plot([start, stop], [at, at], color=color, lw=thickness, ls=":" if is_cut else "-", zorder=2)
            is_kept = row.kind == "answer" and row.probability >= alpha
            if row.kind == "answer":
                ax.plot(stop, at, "o", ms=5, mfc=color if is_kept else "white", mec=color, zorder=3)
            place = {"x": stop + 0.9, "y": at, "va": "center"} if is_end else {"x": start + 0.5, "y": at - 0.16}
            weight = "bold" if is_kept else "normal"
            ax.text(**place, s=f"{texts[row.node]} {row.probability:.3f}", color=color, weight=weight)
        ax.set_xlim(-1, width)
        ax.set_ylim(height - 0.4, -0.8)
        ax.axis("off")
    return figure


def _tree_places(table: pd.DataFrame, texts: dict[int, str]) -> tuple[dict[int, float], dict[int, float], float]:
    """Where the nodes go, and how wide that is in letters: a line per leaf, a prefix in the line of its first child.

    The likeliest child comes first, what was cut last; a column is as wide as its longest prefix.
    """
    ordered = table.assign(last=table["kind"] == "cut").sort_values(["last", "probability"], ascending=[False, True])
    children = {parent: list(nodes["node"]) for parent, nodes in ordered.groupby("parent")}
    y: dict[int, float] = {}
    depth, waiting, leaves = {-1: -1}, children[-1].copy(), 0
    parent_of, kinds = (dict(zip(table["node"], table[name], strict=True)) for name in ("parent", "kind"))
    while waiting:
        node = waiting.pop()
        depth[node], y[node] = depth[parent_of[node]] + 1, leaves
        leaves += node not in children
        waiting += children.get(node, [])
    widths = dict.fromkeys(range(max(depth.values()) + 1), 3.0)
    for node in y:
        if kinds[node] == "prefix" and depth[node]:
            widths[depth[node]] = max(widths[depth[node]], len(texts[node]) + 8.0)
    ends = np.cumsum([0.0, *(widths[level] for level in range(1, len(widths)))])
    starts = {node: ends[depth[node] - 1] if depth[node] else 0.0 for node in y}
    x = {node: ends[depth[node]] if kinds[node] == "prefix" else starts[node] + 3 for node in y}
    return x, y, max(x[node] + (len(texts[node]) + 9 if kinds[node] != "prefix" else 0) for node in y)


def disagreement(table: pd.DataFrame, *, names: tuple[str, str], n_marked: int = 10) -> Figure:
    """Two methods' ranks of the same questions, the first `n_marked` rows numbered as they stand in the table.

    `table` has columns first and second (ranks in percent, higher = more uncertain) and correct.
    """
    with style(), plt.rc_context(_EXPLORER):
        figure, ax = plt.subplots(figsize=(4.6, 4.4))
        figure.subplots_adjust(left=0.12, right=0.97, bottom=0.11, top=0.9)
        ax.plot([0, 100], [0, 100], color="black", lw=0.6, ls=":")
        looks = (("right", True, "o", COLORS[0]), ("wrong", False, "x", COLORS[1]))
        for label, is_right, marker, color in looks:
            chosen = table[table["correct"] == is_right]
            look = {"ms": 3, "mfc": "none", "alpha": 0.5 if len(table) > 500 else 0.9, "mew": 0.7}
            ax.plot(
                chosen["first"], chosen["second"], marker, color=color, label=f"{label}, n = {len(chosen):,}", **look
            )
        for number, row in enumerate(table.head(n_marked).itertuples(), start=1):
            ax.annotate(str(number), (row.first, row.second), (3, 3), textcoords="offset points", weight="bold")
        ax.set_xlim(-2, 102)
        ax.set_ylim(-2, 102)
        ax.set_xlabel(f"rank by {names[0]}, % (100 = most uncertain)")
        ax.set_ylabel(f"rank by {names[1]}, %")
        figure.legend(loc="upper center", ncols=2)
    return figure
