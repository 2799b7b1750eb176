"""The figure of AUROC by labels of a sample beside AUROC by ROUGE-L."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.metrics.correctness import ROUGE_THRESHOLD
from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    checked_table,
    distinct_values,
    handles,
    label_figure,
    line_style,
    name_rows,
    panels,
    set_ticks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINEAR = 0.05  # the axis of differences is linear up to this value, and logarithmic beyond
_QUANTITIES = {"AUROC minus that of NLL": "auroc_minus_nll", "AUROC": "auroc"}
_JUDGE_NAMES = {
    "labels": "by labels of a sample, with predictions for the others",
    "rouge_l": "by ROUGE-L of all answers",
}


def label_estimates(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    labellers: Sequence[str] = (),
    title: str = "AUROC of each method, by labels and by ROUGE-L",
) -> Figure:
    """Draw AUROC of each method and its difference to NLL, by labels and by ROUGE-L.

    Every setting has two panels: the differences to NLL, and the AUROCs. A method without an
    estimate from labels has the words `not shown`.

    Args:
        table: needs the columns judge (`labels` or `rouge_l`), method, auroc and auroc_minus_nll,
            both with the ends of their intervals. It may have similarity, dataset, model, protocol
            and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        labellers: the names of those who gave the labels.
        title: the title of the figure.

    Example:
        table = Experiment().label_estimates()
        plots.label_estimates(table[table["protocol"] == "paper"])
    """
    needed = ["judge", "method"]
    for name in _QUANTITIES.values():
        needed += [name, f"{name}_low", f"{name}_high"]
    table = checked_table(table, needed, "label_estimates")
    table = table.assign(row=method_labels(table).to_numpy())
    parts = [table.assign(quantity=name) for name in _QUANTITIES]
    drawn = pd.concat(parts, ignore_index=True)
    methods = distinct_values(table, "row")
    methods.sort(key=lambda name: name != "NLL")
    grid = panels(
        drawn,
        *("model", "dataset", "protocol", "quantity"),
        figure_columns=figure_columns,
        per_line=figure_columns,
        height=0.24 * len(methods) + 0.3,
    )
    judges = distinct_values(table, "judge")
    with grid as (figure, axes):
        for ax, _, rows in axes:
            quantity = rows["quantity"].iloc[0]
            for index, judge in enumerate(judges):
                _draw_judge(
                    ax,
                    rows[rows["judge"] == judge],
                    methods,
                    _QUANTITIES[quantity],
                    (index, len(judges)),
                )
            name_rows(ax, methods, methods)
            if _QUANTITIES[quantity] == "auroc_minus_nll":
                _format_differences(ax, methods)
        names = [_JUDGE_NAMES.get(judge, judge) for judge in judges]
        label_figure(
            figure,
            title=title,
            x=f"value with 95 % interval (differences: log scale beyond ±{_LINEAR:g})",
            y="method",
            entries=handles(names, ls=""),
            note=f"{_note(table, labellers)} {method_note(table)}",
        )
    return figure


def _note(table: pd.DataFrame, labellers: Sequence[str]) -> str:
    """Say what was labelled by whom, if the table says how many labels there are."""
    counts = table.get("n_labels", pd.Series(dtype=float)).dropna()
    if counts.empty:
        return "ROUGE-L judges all answers."
    number = f"{counts.max():,.0f}"
    if counts.min() < counts.max():
        number = f"{counts.min():,.0f} to {number}"
    by_whom = f", given by {' and '.join(labellers)}" if len(labellers) else ""
    return (
        f"ROUGE-L > {ROUGE_THRESHOLD:g} judges all n answers. "
        f"{number} of them have a label{by_whom}. "
        "A model predicts the labels of all answers from ROUGE-L, NLL and ALL, and the given "
        "labels correct the errors of its predictions (prediction-powered inference). The "
        "intervals by labels include the error that is left. They are narrow if the model predicts "
        "well; in simulations with 60 to 200 labels they contain the truth as often as they should."
    )


def _draw_judge(
    ax: Axes, rows: pd.DataFrame, methods: list[str], quantity: str, order: tuple[int, int]
) -> None:
    """Draw the values by one judge; `order` is its number and the number of judges."""
    index, n_judges = order
    if quantity == "auroc_minus_nll":
        rows = rows[rows["method"] != "NLL"]
    shift = 0.6 * ((index + 0.5) / n_judges - 0.5)
    places = rows["row"].map(methods.index) + shift
    style = {**line_style(index), "ls": "", "ms": 3}
    is_shown = rows[quantity].notna()
    for place in places[rows[quantity].isna()].to_numpy(float):
        ax.text(
            0.02, place, "not shown", transform=ax.get_yaxis_transform(), fontsize=7, va="center"
        )
    shown = rows[is_shown]
    low = shown[f"{quantity}_low"]
    high = shown[f"{quantity}_high"]
    ax.hlines(places[is_shown], low, high, color=style["color"], lw=0.9)
    ax.plot(shown[quantity], places[is_shown], **style)


def _format_differences(ax: Axes, methods: list[str]) -> None:
    """Draw the line at 0 and name the reference."""
    ax.axvline(0, color="black", lw=0.6)
    ax.set_xscale("symlog", linthresh=_LINEAR)
    set_ticks(ax, [-0.5, -0.1, -_LINEAR, 0, _LINEAR, 0.1, 0.5])
    if "NLL" in methods:
        ax.text(0, methods.index("NLL"), " reference", fontsize=7, va="center")
