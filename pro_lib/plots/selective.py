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
    TOO_FEW_LABELS,
    checked_table,
    difference_axis,
    distinct_values,
    draw_curves,
    handles,
    label_figure,
    line_style,
    method_styles,
    minus_nll,
    panels,
    plt,
    set_ticks,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The shares of questions that are drawn. Lines through more of them are tangled.
_DRAWN_SHARES = (0.1, 0.25, 0.5, 0.75)
_GROUP_WIDTH = 0.8  # of the points of a share, which are side by side; a share has the width 1
_ACCURACY_NOTE = (
    "Each method answers the questions that it scores as least uncertain. The line at 0 is NLL. "
    "Above the line, more of the method's answers are correct. "
    "The grey boxes show how uncertain NLL's accuracy is; they do not test the differences."
)
_RELIABILITY_NOTE = (
    "Confidence is a function of the score: isotonic regression on validation questions. "
    "A point is one of at most ten bins of questions with similar confidence. "
    "Questions with equal confidence are in the same bin, so the bins differ in size, which the "
    "area of the point shows. "
    "Where two methods agree, their points are at the same place."
)
_ECE_NOTE = "ECE: expected calibration error, the mean distance from the dotted line."


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
    styles = method_styles(labels)
    shape: dict[str, Any] = {"figure_columns": figure_columns, "height": 2.1, "sharey": True}
    with panels(table, "model", "dataset", "protocol", **shape) as (figure, grid):
        for ax, _, rows in grid:
            differences = _at_drawn_shares(minus_nll(rows, "coverage", "accuracy"))
            shift = _GROUP_WIDTH / len(labels)
            style: dict[str, Any] = {"ls": "", "markevery": 1, "ms": 4.5}
            style |= {"shift": shift, "styles": styles}
            draw_curves(ax, differences, "label", labels, "place", "difference", **style)
            difference_axis(ax)
            _draw_nll(ax, differences[differences["method"] == "NLL"])
        entries: list[Artist] = [*handles(labels, styles=styles, ls="", ms=4.5)]
        if "accuracy_low" in table:
            entries.append(
                plt.Rectangle(
                    (0, 0), 1, 1, color=COLORS[7], alpha=0.3, lw=0, label="95 % interval of NLL"
                )
            )
        label_figure(
            figure,
            title=title,
            x="share of questions that are answered (in parentheses: accuracy of NLL)",
            y="accuracy minus that of NLL\n(log scale beyond ±0.05)",
            entries=entries,
            note=_with_remarks(_ACCURACY_NOTE, table, labels),
        )
    return figure


def reliability(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Reliability: do answers with a confidence of x have an accuracy of x?",
) -> Figure:
    """Draw accuracy against confidence: a point for each bin of questions.

    There is a panel for each setting. The area of a point is its share of the questions.

    Args:
        table: needs the columns method, confidence, accuracy and n_in_bin. It may have accuracy_low
            and accuracy_high, which are drawn as bars, ece, which is written into the panel unless
            it is missing, similarity, dataset, model and n_questions.
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
    styles = method_styles(labels)
    has_errors = "ece" in table and table["ece"].notna().all()
    shape: dict[str, Any] = {"figure_columns": figure_columns, "sharex": True, "sharey": True}
    with panels(table, "model", "dataset", "protocol", **shape) as (figure, grid):
        for ax, _, rows in grid:
            ax.plot([0, 1], [0, 1], color="black", lw=0.6, ls=":")
            for label, index in zip(labels, styles, strict=True):
                _draw_bins(ax, rows[rows["label"] == label], line_style(index))
            if has_errors:
                errors = [
                    f"{row.label} {row.ece:.3f}"
                    for row in rows.drop_duplicates("label").itertuples()
                ]
                place: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 7}
                ax.text(1.0, 0.0, "\n".join(["ECE", *errors]), **place)
            ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
            set_ticks(ax, SHARE_TICKS)
        diagonal = plt.Line2D([], [], color="black", lw=0.6, ls=":", label="perfect calibration")
        label_figure(
            figure,
            title=title,
            x="confidence: probability of a correct answer, fitted on validation questions",
            y="accuracy with 95 % interval",
            entries=[*handles(labels, styles=styles, ls="", mfc="none"), diagonal],
            note=_with_remarks(
                f"{_RELIABILITY_NOTE} {_ECE_NOTE}" if has_errors else _RELIABILITY_NOTE,
                table,
                labels,
            ),
        )
    return figure


def _with_remarks(note: str, table: pd.DataFrame, labels: list[str]) -> str:
    """Return a note with the meaning of the methods, and why points are missing."""
    remarks = [note]
    if table["accuracy"].isna().any():
        remarks.append(TOO_FEW_LABELS)
    return " ".join([*remarks, method_note(table[table["label"].isin(labels)])])


def _at_drawn_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at the shares that are drawn, or nearest to them, and their places."""
    coverages = np.sort(table["coverage"].unique())
    drawn = sorted({coverages[np.abs(coverages - share).argmin()] for share in _DRAWN_SHARES})
    rows = table[table["coverage"].isin(drawn)]
    return rows.assign(place=rows["coverage"].map(drawn.index))


def _draw_nll(ax: Axes, nll: pd.DataFrame) -> None:
    """Draw the interval of NLL at each share, and label the shares with the accuracy of NLL."""
    labels = []
    for row in nll.to_dict("records"):
        accuracy = "–" if pd.isna(row["accuracy"]) else f"{row['accuracy']:.2f}"
        labels.append(f"{row['coverage']:.0%}\n({accuracy})")
        if "accuracy_low" in row:
            sides = [row["place"] - 0.45, row["place"] + 0.45]
            ends = [row[f"accuracy_{end}"] - row["accuracy"] for end in ("low", "high")]
            ax.fill_between(sides, *ends, color=COLORS[7], alpha=0.3, lw=0)
    ax.set_xticks(nll["place"], labels)
    ax.set_xlim(-0.55, len(nll) - 0.45)
    ax.tick_params(axis="x", length=0)
    ax.xaxis.grid(visible=False)


def _draw_bins(ax: Axes, bins: pd.DataFrame, style: dict[str, Any]) -> None:
    """Draw the bins of one method."""
    if "accuracy_low" in bins:
        ends = bins["accuracy_low"], bins["accuracy_high"]
        ax.vlines(bins["confidence"], *ends, color=style["color"], lw=0.6)
    sizes = 130 * bins["n_in_bin"] / bins["n_in_bin"].sum() + 4
    options = {
        "marker": style["marker"],
        "edgecolors": style["color"],
        "facecolors": "none",
        "lw": 0.9,
    }
    ax.scatter(bins["confidence"], bins["accuracy"], sizes, **options)
