"""The figure of AUROC against the ROUGE-L threshold above which an answer is correct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    PRINTED,
    checked_table,
    difference_axis,
    distinct_values,
    draw_curves,
    handles,
    label_figure,
    label_words,
    matching_rows,
    method_styles,
    panels,
    printed_entry,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NOTE = (
    "The points of one threshold are side by side, with the threshold below their middle. The line "
    "at 0 is NLL. A point without a bar has an interval that is narrower than the point."
)
_STEP = 0.1  # between two thresholds
_GROUP_WIDTH = 0.084  # of the points of a threshold


def rouge_thresholds(
    table: pd.DataFrame,
    *,
    printed: pd.DataFrame | None = None,
    figure_columns: int = 2,
    title: str = "AUROC minus that of NLL, by the ROUGE-L threshold of a correct answer",
) -> Figure:
    """Draw the difference in AUROC to NLL against the threshold: a panel for each setting.

    NLL is the line at 0. Differences up to ±0.05 are on a linear scale, larger ones on a
    logarithmic scale.

    Args:
        table: needs the columns rouge_threshold, method and auroc_minus_nll. Rows without a
            threshold, which are estimated from labels, are drawn at the right. It may have
            auroc_minus_nll_low and auroc_minus_nll_high, which are drawn as bars, accuracy, which
            stands below the thresholds, similarity, dataset, model, protocol and n_questions.
        printed: values that the paper printed, with dataset, model, rouge_threshold, method and
            auroc_minus_nll.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).rouge_thresholds()
        plots.rouge_thresholds(table)
    """
    needed = ["rouge_threshold", "method", "auroc_minus_nll"]
    table = checked_table(table, needed, "rouge_thresholds")
    table = table[table["method"] != "NLL"]
    table = table.assign(label=method_labels(table).to_numpy())
    note = f"{_NOTE} {method_note(table)}"
    by_labels = table[table["rouge_threshold"].isna()]
    if len(by_labels):
        note = f"{_NOTE} labels: {label_words(by_labels)}. {method_note(table)}"
    labels = distinct_values(table, "label")
    methods = table.drop_duplicates("label").set_index("label")["method"]
    grid = panels(table, "model", "dataset", "protocol", figure_columns=figure_columns, sharey=True)
    entries = handles(labels, styles=method_styles(labels), ls="")
    with grid as (figure, drawn):
        for ax, setting, rows in drawn:
            if printed is not None:
                names = {
                    str(name): setting[name] for name in ("model", "dataset") if name in setting
                }
                values = matching_rows(printed, names)
                bare = [methods[label] for label in labels]
                _draw(ax, values.assign(label=values["method"]), bare, **PRINTED)
            _draw(ax, rows, labels, interval="auroc_minus_nll_", bars=True, ls="")
            difference_axis(ax)
            _name_thresholds(ax, rows)
        if printed is not None and not printed.empty:
            entries.append(printed_entry())
        label_figure(
            figure,
            title=title,
            x="ROUGE-L above which an answer is correct (below it: share of correct answers)",
            y="AUROC minus that of NLL, 95 % interval\n(log scale beyond ±0.05)",
            entries=entries,
            note=note,
        )
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, labels: list, **style: Any) -> None:
    """Draw the points of each method, side by side so that bars do not overlap."""
    options: dict[str, Any] = {
        "shift": _GROUP_WIDTH / len(labels),
        "styles": method_styles(labels),
        **style,
    }
    placed = rows.assign(place=_places(rows))
    draw_curves(ax, placed, "label", labels, "place", "auroc_minus_nll", **options)


def _places(rows: pd.DataFrame) -> pd.Series:
    """Return the thresholds; rows by labels have the next place at the right."""
    thresholds = rows["rouge_threshold"]
    return thresholds.fillna(thresholds.max() + _STEP)


def _name_thresholds(ax: Axes, rows: pd.DataFrame) -> None:
    """Label the thresholds, and write the share of correct answers below them if it is known."""
    thresholds = rows.drop_duplicates("rouge_threshold").sort_values("rouge_threshold")
    labels = [
        "labels" if pd.isna(threshold) else f"{threshold:g}"
        for threshold in thresholds["rouge_threshold"]
    ]
    if "accuracy" in thresholds:
        shares = [f"{accuracy:.0%}" for accuracy in thresholds["accuracy"]]
        labels = [f"{label}\n{share}" for label, share in zip(labels, shares, strict=True)]
    ax.set_xticks(_places(thresholds), labels)
