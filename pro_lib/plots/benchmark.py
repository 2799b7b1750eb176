"""The figures of the benchmark: AUROC of all methods, and their differences to PRO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from pro_lib.common.judges import is_by_labels
from pro_lib.common.method_labels import method_labels
from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    COLORS,
    checked_table,
    distinct_values,
    label_figure,
    label_words,
    line_style,
    name_rows,
    panels,
    plt,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PRO_COLOR = COLORS[0]
_ORACLE_COLOR = COLORS[7]
_OTHER_COLOR = COLORS[6]
_CUT_MARKER: Literal[4] = 4  # an arrow to the left
_MARKS = {"▲": "^", "▼": "v"}
_DIFFERENCE_LABEL = (
    "AUROC minus that of PRO (thin line: 95 % interval; vertical bar: mean of the settings)"
)


def benchmark(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "AUROC of each method, and which differ significantly from PRO",
) -> Figure:
    """Draw AUROC of each method: a panel for each setting, a row for each method.

    The methods are in the order of their mean AUROC. The axis begins 0.2 below the highest AUROC,
    or at 0.5 if the highest AUROC of a panel is below 0.8. An arrow at the edge stands for an AUROC
    below that; its value is at the right.

    Args:
        table: needs the columns method and auroc. auroc_low and auroc_high are drawn as bars, if
            the table has them. With auroc_minus_pro and significant, ▲ and ▼ mark methods that are
            significantly better or worse than PRO. Further columns may be similarity, dataset,
            model, protocol, n_questions and alpha_choice. A row of PRO with `oracle` is grey.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).benchmark()
        plots.benchmark(table[plots.drawn_methods(table)])
    """
    table = checked_table(table, ["method", "auroc"], "benchmark")
    table = table.assign(label=_labels(table))
    means = table.groupby("label", sort=False)["auroc"].mean()
    labels = list(means.sort_values(ascending=False, kind="stable").index)
    left = _left_end(table)
    shape: dict[str, Any] = {"figure_columns": figure_columns, "sharex": True, "sharey": True}
    shape["height"] = 0.165 * max(len(labels), 5)
    with panels(table, "model", "dataset", "protocol", **shape) as (figure, grid):
        for ax, _, rows in grid:
            for row in rows.to_dict("records"):
                _draw_method(ax, row, labels.index(row["label"]), left)
            name_rows(ax, labels, list(rows["label"]))
            ax.axvline(rows["auroc"].max(), color="black", lw=0.6, ls=":")
            ax.set_xlim(left, None)
        label_figure(
            figure,
            title=title,
            x=_axis_label(table),
            y="method",
            entries=_entries(table, left),
            note=_benchmark_note(table),
        )
    return figure


def beside_paper(
    table: pd.DataFrame,
    printed: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "AUROC of each method minus that of PRO, in the paper and in this project",
) -> Figure:
    """Draw differences in AUROC to PRO: a row for each method, a point for each setting.

    The rows are the methods of the paper. Methods that compare meanings are drawn once for each
    similarity. A thick bar is the mean of the settings.

    Args:
        table: needs the columns method and auroc_minus_pro. It may have auroc_minus_pro_low and
            auroc_minus_pro_high, which are drawn as thin lines, and similarity. A row whose
            alpha_choice is `default` or `oracle` is left out.
        printed: the same differences in the paper, with method and auroc_minus_pro.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).benchmark()
        plots.beside_paper(table, evaluation.tables.printed_benchmark())
    """
    table = checked_table(table, ["method", "auroc_minus_pro"], "beside_paper")
    names = [name for name in dict.fromkeys(printed["method"]) if name != "PRO"]
    sources = {"the paper": printed, **_sources_here(table)}
    columns = ["method", "auroc_minus_pro", "auroc_minus_pro_low", "auroc_minus_pro_high"]
    all_rows = pd.concat(
        [rows.reindex(columns=columns).assign(source=name) for name, rows in sources.items()]
    )
    all_rows = all_rows[all_rows["method"].isin(names)]
    shape: dict[str, Any] = {"figure_columns": figure_columns, "height": 0.5 * len(names)}
    with panels(all_rows, **shape) as (figure, [(ax, _, _)]):
        for place, name in enumerate(names):
            rows = all_rows[all_rows["method"] == name]
            present = [source for source in sources if (rows["source"] == source).any()]
            for index, source in enumerate(present):
                middle = place + 0.85 * ((index + 0.5) / len(present) - 0.5)
                style = _source_style(list(sources).index(source))
                _draw_differences(
                    ax, rows[rows["source"] == source], middle, 0.5 / len(present), style
                )
        ax.axvline(0, color="black", lw=0.6)
        for line in np.arange(len(names) - 1) + 0.5:
            ax.axhline(line, color=COLORS[7], lw=0.6)
        ax.yaxis.grid(visible=False)
        name_rows(ax, names, names)
        entries = _source_entries(sources)
        label_figure(
            figure,
            title=title,
            x=_DIFFERENCE_LABEL,
            y="method",
            entries=entries,
            note=" ".join([_setting_note(table), method_note(all_rows), _sources_note(table)]),
        )
    return figure


def _labels(table: pd.DataFrame) -> pd.Series:
    """Return the name of each row: the method, its similarity, and how α of PRO is chosen."""
    labels = method_labels(table)
    if "alpha_choice" not in table:
        return labels
    names = {"oracle": "PRO (oracle α)", "default": "PRO (default α)"}
    is_pro = table["method"] == "PRO"
    return labels.where(~is_pro, table["alpha_choice"].map(names).fillna("PRO"))


def _axis_label(table: pd.DataFrame) -> str:
    interval = " with 95 % interval" if "auroc_low" in table else ""
    label = f"AUROC{interval} (dotted line: the highest AUROC of the panel)"
    if "significant" in table:
        test = "Student's test of estimates" if is_by_labels(table) else "DeLong's test"
        label = f"{label}. Significance: {test}, Holm-corrected over the methods of a panel"
    return label


def _benchmark_note(table: pd.DataFrame) -> str:
    """Return the meaning of the methods, and of an oracle if there is one."""
    has_oracle = "alpha_choice" in table and (table["alpha_choice"] == "oracle").any()
    oracle = " Oracle α: the best α on these questions." if has_oracle else ""
    return method_note(table) + oracle


def _setting_note(table: pd.DataFrame) -> str:
    """Say what a setting is, and which models this project asked."""
    note = "A setting is a model with a dataset."
    models = [str(name) for name in distinct_values(table, "model") if name]
    if models:
        note = f"{note} Models of this project: {', '.join(models)}."
    if is_by_labels(table):
        note = f"{note} In this project, {label_words(table)}."
    return note


def _sources_note(table: pd.DataFrame) -> str:
    """Return the meaning of the similarities in the names of sources."""
    if "similarity" not in table:
        return ""
    return method_note(table[["similarity"]].assign(method="PRO"))


def _left_end(table: pd.DataFrame) -> float:
    settings = list(table.columns.intersection(["model", "dataset", "protocol"]))
    highest = table.groupby(settings)["auroc"].max()
    return highest.max() - 0.2 if highest.min() >= 0.8 else 0.5


def _draw_method(ax: Axes, row: dict[str, Any], place: int, left: float) -> None:
    """Draw the AUROC of one method, its interval, its value and its mark."""
    color = _OTHER_COLOR
    if row["method"] == "PRO":
        color = _ORACLE_COLOR if row.get("alpha_choice") == "oracle" else _PRO_COLOR
    if "auroc_low" in row:
        ax.hlines(place, row["auroc_low"], row["auroc_high"], color=color, lw=1)
    marker = _CUT_MARKER if row["auroc"] < left else "o"
    ax.plot(max(row["auroc"], left), place, marker=marker, color=color, clip_on=False, zorder=3)
    mark = ""
    if row.get("significant"):
        mark = "▲" if row["auroc_minus_pro"] > 0 else "▼"
    value = " –" if pd.isna(row["auroc"]) else f" {row['auroc']:.3f}".replace("0.", ".")
    value += mark
    ax.text(1, place, value, transform=ax.get_yaxis_transform(), fontsize=7, va="center")


def _entries(table: pd.DataFrame, left: float) -> list[plt.Line2D]:
    """Return the legend: the marks of significance, and the arrow, if they are in the figure."""
    texts = {}
    if "significant" in table:
        significant = table["auroc_minus_pro"][table["significant"] == True]  # noqa: E712
        if (significant > 0).any():
            texts["▲"] = "significantly better than PRO"
        if (significant < 0).any():
            texts["▼"] = "significantly worse than PRO"
    entries = [
        plt.Line2D([], [], label=text, marker=_MARKS[mark], ls="", color="black")
        for mark, text in texts.items()
    ]
    if (table["auroc"] < left).any():
        label = f"AUROC below {left:.2f}"
        entries.append(plt.Line2D([], [], label=label, marker=_CUT_MARKER, ls="", color="black"))
    return entries


def _sources_here(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of methods without a similarity, and those of each similarity, by name."""
    if "alpha_choice" in table:
        table = table[~table["alpha_choice"].isin(["default", "oracle"])]
    if "similarity" not in table:
        return {"this project": table}
    parts = {"this project": table[table["similarity"].isna()]}
    for similarity in distinct_values(table.dropna(subset="similarity"), "similarity"):
        parts[f"this project, {similarity}"] = table[table["similarity"] == similarity]
    return parts


def _source_entries(sources: dict[str, pd.DataFrame]) -> list[plt.Line2D]:
    """Return the legend: each source with the number of its settings."""
    entries = []
    for index, (source, rows) in enumerate(sources.items()):
        n_settings = rows.groupby("method").size().max()
        label = f"{source} ({n_settings} setting{'s' if n_settings > 1 else ''})"
        entries.append(plt.Line2D([], [], ls="", label=label, **_source_style(index)))
    return entries


def _source_style(index: int) -> dict[str, Any]:
    """Return colour and marker of a source; the first one is the paper."""
    style = line_style(index - 1)
    return {
        "color": style["color"],
        "marker": style["marker"],
        "mfc": "none" if index else style["color"],
    }


def _draw_differences(
    ax: Axes, rows: pd.DataFrame, middle: float, height: float, style: dict[str, Any]
) -> None:
    """Draw the differences of one source to one method, one above the other, and their mean."""
    differences = rows["auroc_minus_pro"].to_numpy()
    ends = rows["auroc_minus_pro_low"].to_numpy(), rows["auroc_minus_pro_high"].to_numpy()
    spread = height if np.isfinite(ends[0]).any() else 0.0
    places = middle + spread * (np.arange(len(rows)) / max(1, len(rows) - 1) - 0.5)
    ax.hlines(places, *ends, color=style["color"], lw=0.6)
    ax.plot(differences, places, ls="", ms=3, alpha=0.7, **style)
    ends_of_bar = (middle - 0.7 * height, middle + 0.7 * height)
    ax.vlines(differences.mean(), *ends_of_bar, color=style["color"], lw=1.8)
