"""The workbench's figures: each function takes a table and returns a Matplotlib figure.

It knows columns and styles; it does not know runs, models, files of answers or how a number was computed.
"""

import textwrap
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullLocator

# Okabe and Ito's palette in an order whose lightness differs from one to the next; line style and marker repeat
# what colour says, so that a figure survives greyscale.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
PANEL = (3.4, 2.6)
# The paper's printed numbers beside ours.
_PRINTED = {"color": "#777777", "mfc": "none", "ms": 5, "ls": "", "zorder": 1}
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
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
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.hashsalt": "pro",
    "svg.fonttype": "none",
    # An answer may hold dollar signs; nothing here is written in TeX.
    "text.parse_math": False,
}


@contextmanager
def style():
    """The look of all figures, for as long as the context lasts."""
    with sns.axes_style("ticks"), plt.rc_context(_STYLE):
        yield


def save(figure: Figure, table: pd.DataFrame, name: str, *, figures_dir: str | Path = "figures") -> Figure:
    """Write `<name>.png`, `<name>.svg` and the numbers behind them, `<name>.csv`; return the figure."""
    folder = Path(figures_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with style():
        figure.savefig(folder / f"{name}.png")
        # Without a date the same numbers give the same file.
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    plt.close(figure)
    return figure


def auroc_vs_alpha(sweep: pd.DataFrame, choices: pd.DataFrame, paper: pd.DataFrame | None = None) -> Figure:
    """AUROC of PRO against α: a row per split, a column per dataset, a line per model.

    `sweep` has columns dataset, model, split, alpha, auroc and, for bands, low and high; `choices` has dataset,
    model, split, alpha, auroc and kind (`selected`, `default` or `oracle`), drawn as markers. `paper`, what the
    paper chose and printed for the same settings (dataset, model, alpha, auroc), is drawn in grey.
    """
    splits, datasets, models = (list(dict.fromkeys(sweep[name])) for name in ("split", "dataset", "model"))
    marks = {"selected": ("o", "chosen on validation"), "default": ("s", "default"), "oracle": ("*", "oracle")}
    with style():
        figure, axes = _panels(len(splits), len(datasets), sharey=True)
        for (row, split), (column, dataset) in _grid(splits, datasets):
            ax = axes[row, column]
            panel = _where(sweep, dataset=dataset, split=split)
            for index, model in enumerate(models):
                line = panel[panel["model"] == model]
                _line(ax, line["alpha"], line, index, label=model, marker=None)
            for choice in _where(choices, dataset=dataset, split=split).itertuples():
                marker, _ = marks[choice.kind]
                color = COLORS[models.index(choice.model)]
                size = 9 if marker == "*" else 5
                ax.plot(choice.alpha, choice.auroc, marker, ms=size, mfc="white", mec=color, mew=1.3, zorder=5)
            if paper is not None:
                printed = _where(paper, dataset=dataset)
                ax.plot(printed["alpha"], printed["auroc"], "D", **_PRINTED)
            _title(ax, dataset, split, panel=panel)
            _alpha_axis(ax)
            if column == 0:
                ax.set_ylabel("AUROC, 95 % interval")
        handles = _model_handles(models) + [
            plt.Line2D(
                [], [], marker=marker, ms=8 if marker == "*" else 5, mfc="white", mec="black", ls="", label=label
            )
            for kind, (marker, label) in marks.items()
            if (choices["kind"] == kind).any()
        ]
        _legend(figure, handles + _printed_handle(paper))
    return figure


def k_vs_alpha(sweep: pd.DataFrame) -> Figure:
    """Mean number of answers kept against α: a panel per dataset, a line per model.

    `sweep` has columns dataset, model, alpha, mean_kept and, for bands, low and high (of mean_kept).
    """
    datasets, models = (list(dict.fromkeys(sweep[name])) for name in ("dataset", "model"))
    with style():
        figure, axes = _panels(1, len(datasets), sharey=True)
        for column, dataset in enumerate(datasets):
            ax = axes[0, column]
            panel = _where(sweep, dataset=dataset)
            for index, model in enumerate(models):
                line = panel[panel["model"] == model]
                _line(ax, line["alpha"], line, index, label=model, y="mean_kept", marker=None)
            ax.axhline(1, color="black", lw=0.6, ls=":")
            _title(ax, dataset, panel=panel)
            _alpha_axis(ax)
        axes[0, 0].set_ylabel("mean K, answers kept, 95 % interval")
        _legend(figure, _model_handles(models))
    return figure


def fixed_k(sweep: pd.DataFrame, adaptive: pd.DataFrame, paper: pd.DataFrame | None = None) -> Figure:
    """AUROC of PRO at fixed K beside adaptive PRO: a panel per dataset, a line per model.

    `sweep` has columns dataset, model, k, auroc, low, high; `adaptive` has dataset, model, alpha, auroc, low,
    high and is drawn at the right of each panel. `paper`, what the paper printed for the same settings (dataset,
    model, selection, k, auroc), is drawn in grey.
    """
    datasets, models = (list(dict.fromkeys(sweep[name])) for name in ("dataset", "model"))
    ks = sorted(sweep["k"].unique())
    with style():
        figure, axes = _panels(1, len(datasets), sharey=True)
        for column, dataset in enumerate(datasets):
            ax = axes[0, column]
            for index, model in enumerate(models):
                shift = 0.16 * (index - (len(models) - 1) / 2)
                line = _where(sweep, dataset=dataset, model=model)
                _line(ax, line["k"] + shift, line, index, label=model, bars=True)
                for point in _where(adaptive, dataset=dataset, model=model).itertuples():
                    at = ks[-1] + 1.6 + shift
                    _bar(ax, at, point.auroc, point.low, point.high, index)
                    ax.axhline(point.auroc, color=COLORS[index], lw=0.6, ls=":")
                if paper is not None:
                    printed = _where(paper, dataset=dataset, model=model)
                    at = printed["k"].astype(float).fillna(ks[-1] + 1.6)
                    ax.plot(at, printed["auroc"], MARKERS[index], **_PRINTED)
            ax.axvline(ks[-1] + 0.8, color="black", lw=0.6)
            ax.xaxis.set_major_locator(FixedLocator([*ks, ks[-1] + 1.6]))
            ax.xaxis.set_major_formatter(FixedFormatter([*map(str, ks), "adaptive"]))
            _title(ax, dataset, panel=_where(sweep, dataset=dataset))
            ax.set_xlabel("K, answers used")
        axes[0, 0].set_ylabel("AUROC, 95 % interval")
        _legend(figure, _model_handles(models, marker=True) + _printed_handle(paper))
    return figure


def rouge_thresholds(sweep: pd.DataFrame, paper: pd.DataFrame | None = None) -> Figure:
    """AUROC of every method against the ROUGE-L threshold: a row per model, a column per dataset.

    `sweep` has columns dataset, model, threshold, method, auroc, accuracy and, for bars, low and high; `paper`, what
    the paper printed for the same settings (dataset, model, method, threshold, auroc), is drawn in grey.
    """
    datasets, models, methods = (list(dict.fromkeys(sweep[name])) for name in ("dataset", "model", "method"))
    with style():
        figure, axes = _panels(len(models), len(datasets), sharey=True)
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax = axes[row, column]
            panel = _where(sweep, dataset=dataset, model=model)
            for index, method in enumerate(methods):
                shift = 0.006 * (index - (len(methods) - 1) / 2)
                line = panel[panel["method"] == method]
                _line(ax, line["threshold"] + shift, line, index, label=method, bars=True)
                if paper is not None:
                    printed = _where(paper, dataset=dataset, model=model, method=method.split(", ")[0])
                    ax.plot(printed["threshold"] + shift, printed["auroc"], MARKERS[index % len(MARKERS)], **_PRINTED)
            thresholds = panel.drop_duplicates("threshold")
            ax.xaxis.set_major_locator(FixedLocator(list(thresholds["threshold"])))
            labels = [f"{t:g}\n({a:.0%})" for t, a in zip(thresholds["threshold"], thresholds["accuracy"], strict=True)]
            ax.xaxis.set_major_formatter(FixedFormatter(labels))
            _title(ax, dataset, model, panel=panel)
            if row + 1 == len(models):
                ax.set_xlabel("right if ROUGE-L > threshold (share right)")
            if column == 0:
                ax.set_ylabel("AUROC, 95 % interval")
        _legend(figure, _model_handles(methods, marker=True) + _printed_handle(paper))
    return figure


def benchmark(table: pd.DataFrame) -> Figure:
    """AUROC of every method with its interval, a panel per setting (dataset × model).

    `table` has columns dataset, model, method, auroc, low, high and, to mark methods that differ from PRO, difference
    and significant; methods are drawn in the order they come in.
    """
    datasets, models, methods = (list(dict.fromkeys(table[name])) for name in ("dataset", "model", "method"))
    with style():
        height = 0.6 + 0.16 * max(len(methods), 6)
        figure, axes = _panels(len(models), len(datasets), height=height, sharex=True, sharey=True)
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax = axes[row, column]
            panel = _where(table, dataset=dataset, model=model)
            for point in panel.itertuples():
                at = methods.index(point.method)
                # The oracle is no method one could use, so it is greyed.
                color = 7 if "oracle" in point.method else 0 if point.method.startswith("PRO") else 6
                _bar(ax, point.auroc, at, point.low, point.high, color, horizontal=True)
                if getattr(point, "significant", False):
                    mark = "▲" if point.difference > 0 else "▼"
                    ax.text(1.01, at, mark, transform=ax.get_yaxis_transform(), va="center", fontsize=6)
            best = panel["auroc"].max()
            ax.axvline(best, color="black", lw=0.6, ls=":")
            ax.axvline(0.5, color="black", lw=0.6)
            ax.set_yticks(range(len(methods)), methods)
            ax.set_ylim(len(methods) - 0.5, -0.5)
            _title(ax, dataset, model, panel=panel)
            if row + 1 == len(models):
                marked = "\n▲ above PRO, ▼ below: DeLong, Holm-corrected" if "significant" in table else ""
                ax.set_xlabel(f"AUROC, 95 % interval{marked}")
    return figure


def beside_paper(table: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """AUROC minus PRO's, method by method: the settings of the paper above, ours below.

    Both have columns dataset, model, method, auroc; a method of ours may name its similarity, `SE, lexical`, and those
    that the paper does not have are left out.
    """
    methods = [name for name in dict.fromkeys(paper["method"]) if name != "PRO"]
    sources = {"the paper": paper, "here": table}
    with style():
        figure, axes = _panels(1, 1, height=0.5 + 0.32 * len(methods), width=5.2)
        ax = axes[0, 0]
        for (name, source), shift, color in zip(sources.items(), (-0.17, 0.17), (COLORS[6], COLORS[0]), strict=True):
            cells = source.assign(base=source["method"].str.split(", ").str[0])
            keys = ["dataset", "model"]
            pro = source[source["method"] == "PRO"].set_index(keys)["auroc"]
            cells = cells[cells["base"].isin(methods)]
            difference = cells["auroc"].to_numpy() - pro[pd.MultiIndex.from_frame(cells[keys])].to_numpy()
            at = np.array([methods.index(base) for base in cells["base"]]) + shift
            label = f"{name}, {len(pro)} settings"
            ax.plot(difference, at, "o", color=color, mfc="none" if name == "here" else color, alpha=0.5, label=label)
            means = pd.Series(difference).groupby(at).mean()
            ax.vlines(means, means.index - 0.15, means.index + 0.15, color=color, lw=1.8)
        ax.axvline(0, color="black", lw=0.6)
        ax.set_yticks(range(len(methods)), methods)
        ax.set_ylim(len(methods) - 0.5, -0.5)
        ax.set_xlabel("AUROC minus that of PRO (a point per setting, the bar is their mean)")
        _legend(figure, ax.get_legend_handles_labels()[0])
    return figure


def answered(table: pd.DataFrame) -> Figure:
    """Accuracy among the questions answered against their share: a row per model, a column per dataset.

    `table` has columns dataset, model, method, coverage, accuracy; the method `oracle` is drawn as a limit.
    """
    datasets, models, methods = (list(dict.fromkeys(table[name])) for name in ("dataset", "model", "method"))
    methods = [name for name in methods if name != "oracle"]
    with style():
        figure, axes = _panels(len(models), len(datasets), sharex=True, sharey=True)
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax = axes[row, column]
            panel = _where(table, dataset=dataset, model=model)
            limit = panel[panel["method"] == "oracle"]
            ax.plot(limit["coverage"], limit["accuracy"], color=COLORS[7], lw=1, ls=":")
            for index, method in enumerate(methods):
                line = panel[panel["method"] == method]
                _line(ax, line["coverage"], line, index, label=method, y="accuracy", marker=None)
            ax.set_ylim(0, 1.03)
            _title(ax, dataset, model, panel=panel)
            if row + 1 == len(models):
                ax.set_xlabel("share of questions answered")
            if column == 0:
                ax.set_ylabel("accuracy of the answers")
        limit = plt.Line2D([], [], color=COLORS[7], lw=1, ls=":", label="right answers first")
        _legend(figure, [*_model_handles(methods), limit])
    return figure


def reliability(table: pd.DataFrame) -> Figure:
    """Accuracy against confidence in bins of equal size: a row per model, a column per dataset.

    `table` has columns dataset, model, method, n, confidence, accuracy, accuracy_low, accuracy_high, ece; equal
    confidences share a bin, so bins differ in size, and so do their markers.
    """
    datasets, models, methods = (list(dict.fromkeys(table[name])) for name in ("dataset", "model", "method"))
    with style():
        figure, axes = _panels(len(models), len(datasets), sharex=True, sharey=True)
        for (row, model), (column, dataset) in _grid(models, datasets):
            ax = axes[row, column]
            panel = _where(table, dataset=dataset, model=model)
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            for index, method in enumerate(methods):
                line = panel[panel["method"] == method]
                x, color = line["confidence"], COLORS[index % len(COLORS)]
                label = f"{method}: ECE {line['ece'].iloc[0]:.3f}"
                ax.plot(x, line["accuracy"], color=color, ls=DASHES[index % len(DASHES)], lw=0.8, alpha=0.6)
                ax.vlines(x, line["accuracy_low"], line["accuracy_high"], color=color, lw=0.8)
                sizes = 90 * line["n"] / panel["n"].max()
                ax.scatter(x, line["accuracy"], s=sizes, marker=MARKERS[index], color=color, lw=0, label=label)
            ax.set_xlim(0, 1)
            ax.set_ylim(0, 1.03)
            ax.legend(loc="lower right", fontsize=6)
            _title(ax, dataset, model, panel=panel)
            if row + 1 == len(models):
                ax.set_xlabel("confidence, fitted on validation")
            if column == 0:
                ax.set_ylabel("accuracy, 95 % interval")
    return figure


def exact_search(searches: pd.DataFrame, recall: pd.DataFrame, bounds: pd.DataFrame) -> Figure:
    """What exact search does as its α falls: a row per setting; recall, status, bounds and cost from left to right.

    `searches` has a row per dataset, model and α with the columns of `explorer.search_table`, and greedy_forwards
    and beam_forwards, token-forwards per question of the other strategies. `recall` has columns dataset, model, alpha,
    recall, all_found; `bounds` dataset, model, alpha, n_questions, pro, alpha_floor, tree_bound, entropy,
    entropy_low, entropy_high.
    """
    settings = list(dict.fromkeys(zip(searches["dataset"], searches["model"], strict=True)))
    with style():
        figure, axes = _panels(len(settings), 4, width=2.9)
        for row, (dataset, model) in zip(axes, settings, strict=True):
            tables = [_where(table, dataset=dataset, model=model) for table in (recall, searches, bounds)]
            for ax, draw, table in zip(row, (_recall, _status, _bounds, _cost), (*tables, tables[1]), strict=True):
                draw(ax, table)
                ax.set_xscale("log")
                ax.set_xlabel("α")
                ticks = [tick for tick in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4) if tick >= table["alpha"].min()]
                ax.xaxis.set_major_locator(FixedLocator(ticks))
                ax.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
                ax.xaxis.set_minor_locator(NullLocator())
            n = f"n = {tables[1]['n_questions'].iloc[0]:,}"
            row[0].set_ylabel("\n".join([dataset, model, n]))
        for ax, title in zip(
            axes[0],
            ("found by ten beams", "status of the questions", "mean, nats", "token-forwards per question"),
            strict=True,
        ):
            ax.set_title(title)
    return figure


def _recall(ax: Axes, table: pd.DataFrame) -> None:
    names = {"recall": "answers with p ≥ α", "all_found": "questions, all of them"}
    for index, (name, label) in enumerate(names.items()):
        _line(ax, table["alpha"], table, index, label=label, y=name)
    ax.set_ylim(0, 1.03)
    ax.legend(loc="lower right")


def _status(ax: Axes, table: pd.DataFrame) -> None:
    names = ("certified", "fallback", "undecided")
    shades = (COLORS[0], COLORS[4], COLORS[6])
    ax.stackplot(table["alpha"], *(table[name] for name in names), colors=shades, labels=names, lw=0)
    ax.set_ylim(0, 1)
    ax.legend(loc="lower right", frameon=True)


def _bounds(ax: Axes, table: pd.DataFrame) -> None:
    ax.axhspan(table["entropy_low"].iloc[0], table["entropy_high"].iloc[0], color=COLORS[7], alpha=0.4, lw=0)
    n = f"H, estimate (n = {table['n_questions'].iloc[0]:,})"
    ax.axhline(table["entropy"].iloc[0], color=COLORS[6], lw=1, label=n)
    names = {"tree_bound": "tree bound", "alpha_floor": "α-floor", "pro": "PRO, or NLL"}
    for index, (name, label) in enumerate(names.items()):
        _line(ax, table["alpha"], table, index, label=label, y=name)
    ax.set_ylim(0, None)
    ax.legend(loc="lower left", fontsize=6)


def _cost(ax: Axes, table: pd.DataFrame) -> None:
    _line(ax, table["alpha"], table, 0, label="exact search", y="token_forwards")
    for index, (name, label) in enumerate({"beam_forwards": "ten beams", "greedy_forwards": "greedy"}.items(), start=1):
        ax.axhline(table[name].iloc[0], color=COLORS[index], ls=DASHES[index], label=label)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(loc="upper right")


def answers(table: pd.DataFrame, *, alpha: float, n_questions: int = 6) -> Figure:
    """The answers to some questions as bars, those kept at `alpha` filled, right ones marked.

    `table` has columns question, text, probability, kept, correct and uncertainty (of the question).
    """
    questions = list(dict.fromkeys(table["question"]))[:n_questions]
    with style():
        columns = min(2, len(questions))
        rows = -(-len(questions) // columns)
        figure, axes = _panels(rows, columns, height=2.0, width=3.9, sharex=True)
        for ax, question in zip(axes.flat, questions, strict=False):
            rows_of = table[table["question"] == question].head(10)
            colors = [COLORS[0] if kept else "white" for kept in rows_of["kept"]]
            ax.barh(range(len(rows_of)), rows_of["probability"], color=colors, edgecolor=COLORS[0], lw=0.8)
            labels = [
                f"{'✓ ' if right else ''}{_shortened(text)}"
                for text, right in zip(rows_of["text"], rows_of["correct"], strict=True)
            ]
            ax.set_yticks(range(len(rows_of)), labels)
            ax.set_ylim(9.5, -0.5)
            ax.axvline(alpha, color=COLORS[1], lw=1, ls="--")
            title = "\n".join(textwrap.wrap(question, 46, max_lines=2, placeholder=" …"))
            ax.set_title(f"{title}\nPRO = {rows_of['uncertainty'].iloc[0]:.2f} nats", fontsize=8)
        for ax in axes.flat[len(questions) :]:
            ax.set_visible(False)
        for ax in axes[-1]:
            ax.set_xlabel("probability of the complete answer")
            ax.set_xlim(0, 1)
    return figure


def answers_found(table: pd.DataFrame) -> Figure:
    """How many distinct answers runs found and how much probability they hold: a column per dataset.

    `table` has a row per question with columns dataset, model, distinct and mass.
    """
    datasets, models = (list(dict.fromkeys(table[name])) for name in ("dataset", "model"))
    with style():
        figure, axes = _panels(2, len(datasets), sharey="row", sharex="row")
        for column, dataset in enumerate(datasets):
            for index, model in enumerate(models):
                panel = _where(table, dataset=dataset, model=model)
                look = {"color": COLORS[index], "ls": DASHES[index], "label": model}
                counts = panel["distinct"].value_counts(normalize=True).reindex(range(table["distinct"].max() + 1))
                axes[0, column].step(counts.index, counts.fillna(0), where="mid", **look)
                axes[1, column].ecdf(panel["mass"], **look)
            axes[0, column].set_title(f"{dataset}, n = {len(panel):,}")
            axes[0, column].set_xlabel("distinct answers found")
            axes[1, column].set_xlabel("their probabilities together")
        axes[0, 0].set_ylabel("share of questions")
        axes[1, 0].set_ylabel("share of questions\nwith at most this")
        _legend(figure, _model_handles(models))
    return figure


def _panels(
    rows: int, columns: int, *, height: float = PANEL[1], width: float = PANEL[0], **shared
) -> tuple[Figure, np.ndarray]:
    return plt.subplots(
        rows, columns, figsize=(max(width * columns, 4.4), height * rows + 0.3), squeeze=False, **shared
    )


def _title(ax: Axes, *parts: str, panel: pd.DataFrame) -> None:
    """What the panel shows, with the number of questions, in as many lines as it takes."""
    n = f"n = {panel['n_questions'].iloc[0]:,}" if "n_questions" in panel and len(panel) else ""
    ax.set_title("\n".join(textwrap.wrap(", ".join(filter(None, (*parts, n))), 44)))


def _legend(figure: Figure, handles: list[plt.Line2D]) -> None:
    """One legend below all panels, as wide as they are."""
    columns = min(len(handles), int(figure.get_figwidth() / 1.1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _grid(rows: Sequence[str], columns: Sequence[str]) -> Iterable[tuple[tuple[int, str], tuple[int, str]]]:
    return (((r, row), (c, column)) for r, row in enumerate(rows) for c, column in enumerate(columns))


def _where(table: pd.DataFrame, **values: str) -> pd.DataFrame:
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def _line(
    ax: Axes,
    x: pd.Series,
    line: pd.DataFrame,
    index: int,
    *,
    label: str,
    y: str = "auroc",
    bars: bool = False,
    marker: str | None = "",
) -> None:
    """A line with its interval, as a band or as bars; colour, dashes and marker by `index`."""
    color, dashes = COLORS[index % len(COLORS)], DASHES[index % len(DASHES)]
    marker = MARKERS[index % len(MARKERS)] if marker == "" else marker
    ax.plot(x, line[y], color=color, ls=dashes, marker=marker, label=label)
    if "low" in line and bars:
        ax.vlines(x, line["low"], line["high"], color=color, lw=0.8)
    elif "low" in line:
        ax.fill_between(x, line["low"], line["high"], color=color, alpha=0.15, lw=0)


def _bar(ax: Axes, x: float, y: float, low: float, high: float, index: int, *, horizontal: bool = False) -> None:
    color, marker = COLORS[index], MARKERS[index % len(MARKERS)] if not horizontal else "o"
    (ax.hlines if horizontal else ax.vlines)(y if horizontal else x, low, high, color=color, lw=1.2)
    ax.plot(x, y, marker, color=color, mfc="white" if horizontal and index else color)


def _model_handles(names: Sequence[str], *, marker: bool = False) -> list[plt.Line2D]:
    return [
        plt.Line2D(
            [], [], color=COLORS[i % len(COLORS)], ls=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)] if marker else None, label=name,
        )
        for i, name in enumerate(names)
    ]  # fmt: skip


def _printed_handle(paper: pd.DataFrame | None) -> list[plt.Line2D]:
    return [] if paper is None or paper.empty else [plt.Line2D([], [], marker="D", **_PRINTED, label="the paper")]


def _alpha_axis(ax: Axes) -> None:
    """Linear below 0.001, where only α = 0 lies, logarithmic above it."""
    ax.set_xscale("symlog", linthresh=0.001, linscale=0.3)
    ticks = (0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 1)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0, 1)
    ax.set_xlabel("α (log scale above 0.001)")


def _shortened(text: str, length: int = 28) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# ---- The explorer's panels. Margins are set by hand: laying them out automatically takes longer than drawing them.


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
    with style(), plt.rc_context({"figure.constrained_layout.use": False}):
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
    ticks = (0, 0.01, 0.1, 0.4, 1)
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
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
    with style(), plt.rc_context({"figure.constrained_layout.use": False}):
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
    with style(), plt.rc_context({"figure.constrained_layout.use": False}):
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
