"""The figures of decisions by a score: accuracy of answered questions, and confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.common.validation import SentenceError
from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    COLORS,
    SHARE_TICKS,
    checked_table,
    difference_axis,
    distinct_values,
    draw_curves,
    handles,
    label_figure,
    line_style,
    minus_nll,
    panels,
    plt,
    set_ticks,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The shares of questions at which the accuracy of NLL is written.
_WRITTEN_SHARES = np.array([0.1, 0.4, 0.7, 1.0])
# The lines have a point at these shares; with smaller shares or more points they are tangled.
_DRAWN_SHARES = np.arange(1, 11) / 10
_LOWEST_SHARE = 0.09
_RELIABILITY_NOTE = (
    "A point is a bin of questions; its area is the share of the questions. "
    "ECE: expected calibration error."
)


def accuracy_by_coverage(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Accuracy minus that of NLL, if only the least uncertain questions are answered",
) -> Figure:
    """Draw accuracy minus that of NLL, against the share of questions that are answered.

    There is a panel for each setting. Differences up to ±0.05 are on a linear scale, larger ones on
    a logarithmic scale. The accuracy of NLL is written below the shares.

    Args:
        table: needs the columns method, coverage and accuracy, with rows of the method NLL at the
            same coverages as those of the others. It may have accuracy_low and accuracy_high, of
            which those of NLL are drawn as a band, similarity, dataset, model and n_questions. Rows
            of the method `oracle` are not drawn.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Raises:
        SentenceError: if the table has no rows of NLL, or lacks a column.

    Example:
        table = Experiment(model="facts-2m", limit=200).accuracy_by_coverage()
        plots.accuracy_by_coverage(table)
    """
    needed = ["method", "coverage", "accuracy"]
    table = checked_table(table, needed, "accuracy_by_coverage")
    if not (table["method"] == "NLL").any():
        raise SentenceError(
            "The table has no rows of the method 'NLL', whose accuracy is the reference"
        )
    table = table.assign(label=method_labels(table).to_numpy())
    labels = [label for label in distinct_values(table, "label") if label not in ("NLL", "oracle")]
    shape: dict[str, Any] = {"figure_columns": figure_columns, "height": 2.1, "sharey": True}
    with panels(table, "model", "dataset", **shape) as (figure, grid):
        for ax, _, rows in grid:
            differences = _at_drawn_shares(minus_nll(rows, "coverage", "accuracy"))
            style: dict[str, Any] = {"shift": 0.006, "bars": True}
            draw_curves(ax, differences, "label", labels, "coverage", "difference", **style)
            nll = rows[(rows["method"] == "NLL") & (rows["coverage"] >= _LOWEST_SHARE)]
            if "accuracy_low" in nll:
                ends = [nll[f"accuracy_{end}"] - nll["accuracy"] for end in ("low", "high")]
                ax.fill_between(nll["coverage"], *ends, color=COLORS[7], alpha=0.3, lw=0)
            difference_axis(ax)
            _write_accuracies(ax, nll)
        entries: list[Artist] = [*handles(labels)]
        if "accuracy_low" in table:
            entries.append(
                plt.Rectangle(
                    (0, 0), 1, 1, color=COLORS[7], alpha=0.3, lw=0, label="95 % interval of NLL"
                )
            )
        label_figure(
            figure,
            title=title,
            x="share of questions answered (in parentheses: accuracy of NLL)",
            y="accuracy minus that of NLL\n(log scale beyond ±0.05)",
            entries=entries,
            note=f"The line at 0 is NLL. {method_note(table[table['label'].isin(labels)])}",
        )
    return figure


def reliability(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Reliability: accuracy of the questions that have about the same confidence",
) -> Figure:
    """Draw accuracy against confidence: a point for each bin of questions.

    There is a panel for each setting. The area of a point is its share of the questions.

    Args:
        table: needs the columns method, confidence, accuracy and n_in_bin. It may have accuracy_low
            and accuracy_high, which are drawn as bars, ece, which is written into the panel,
            similarity, dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).reliability()
        plots.reliability(table)
    """
    needed = ["method", "confidence", "accuracy", "n_in_bin"]
    table = checked_table(table, needed, "reliability")
    table = table.assign(label=method_labels(table).to_numpy())
    labels = distinct_values(table, "label")
    shape: dict[str, Any] = {"figure_columns": figure_columns, "sharex": True, "sharey": True}
    with panels(table, "model", "dataset", **shape) as (figure, grid):
        for ax, _, rows in grid:
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            for index, label in enumerate(labels):
                _draw_bins(ax, rows[rows["label"] == label], line_style(index))
            if "ece" in rows:
                errors = [
                    f"{row.label} {row.ece:.3f}"
                    for row in rows.drop_duplicates("label").itertuples()
                ]
                ax.text(0.02, 0.97, "\n".join(["ECE", *errors]), va="top", fontsize=7)
            ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
            set_ticks(ax, SHARE_TICKS)
        diagonal = plt.Line2D([], [], color="black", lw=0.6, ls=":", label="perfect calibration")
        label_figure(
            figure,
            title=title,
            x="confidence: probability of a correct answer, fitted on validation questions",
            y="accuracy with 95 % interval",
            entries=[*handles(labels, ls="", mfc="none"), diagonal],
            note=f"{_RELIABILITY_NOTE} {method_note(table)}",
        )
    return figure


def _at_drawn_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at the shares that are drawn, or at those that are nearest to them."""
    coverages = np.sort(table["coverage"].unique())
    nearest = {coverages[np.abs(coverages - share).argmin()] for share in _DRAWN_SHARES}
    return table[table["coverage"].isin(nearest)]


def _write_accuracies(ax: Axes, nll: pd.DataFrame) -> None:
    """Label shares of questions, with the accuracy of NLL below them."""
    accuracies = np.interp(_WRITTEN_SHARES, nll["coverage"], nll["accuracy"])
    pairs = zip(_WRITTEN_SHARES, accuracies, strict=True)
    ax.set_xticks(_WRITTEN_SHARES, [f"{share:.0%}\n({accuracy:.2f})" for share, accuracy in pairs])


def _draw_bins(ax: Axes, bins: pd.DataFrame, style: dict[str, Any]) -> None:
    """Draw the bins of one method."""
    if "accuracy_low" in bins:
        ends = bins["accuracy_low"], bins["accuracy_high"]
        ax.vlines(bins["confidence"], *ends, color=style["color"], lw=0.6)
    sizes = 300 * bins["n_in_bin"] / bins["n_in_bin"].sum() + 4
    options = {
        "marker": style["marker"],
        "edgecolors": style["color"],
        "facecolors": "none",
        "lw": 1.1,
    }
    ax.scatter(bins["confidence"], bins["accuracy"], sizes, **options)
