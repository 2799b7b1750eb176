"""The figures of the guarantees: accuracy on answered questions, answer sets, and the entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pro_lib.common.judges import is_by_labels
from pro_lib.common.method_labels import method_labels
from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    COLORS,
    SHARE_TICKS,
    TOO_FEW_LABELS,
    checked_table,
    distinct_values,
    draw_curve,
    label_figure,
    name_rows,
    panels,
    plt,
    set_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The lines of the figure of answer sets: column, whether its interval is drawn, and name.
_SET_LINES = (
    ("missed_limit", False, "upper limit, confidence 95 %"),
    ("missed", True, "measured, with empty sets, 95 % interval"),
    ("share_empty", False, "measured: the set is empty"),
)
_SETS_NOTE = (
    "The upper limit holds for an α that is fixed beforehand, and is computed from validation "
    "questions. A diamond is a target: its height is a share that is fixed beforehand. Conformal "
    "prediction chooses α with validation questions, so that this share is not exceeded on "
    "average: the measured share should not be above the diamond."
)
_GUARANTEE_NOTE = (
    "A method answers the questions whose score is below a threshold. The threshold comes from "
    "{n}validation questions, with a confidence of 95 % for each method and guarantee. With few "
    "validation questions the threshold is strict, so the accuracy is usually higher than "
    "guaranteed, or nothing can be guaranteed."
)
_LABELS_NOTE = (
    "The guarantee is about answers that ROUGE-L calls correct. The points are estimated from "
    "labels."
)
_ENTROPY_NOTE = (
    "Each dot is a question with its interval. At most 200 of the n questions are drawn, evenly "
    "spaced. The entropy is at least the lower bound, whatever the samples."
)
_MOST_QUESTIONS = 200  # of the figure of entropies
_ENTROPY_DOTS = (
    ("entropy", "estimate from samples, 95 % interval"),
    ("tree_bound", "lower bound from the exact search (tree bound)"),
)


def guarantees(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Share of questions that each method may answer with a guaranteed accuracy",
) -> Figure:
    """Draw the share of questions that each method may answer, and the accuracy on these.

    There is a panel for each target, dataset, model and protocol, and a row for each method.

    Args:
        table: needs the columns method, target, coverage and accuracy. It may have similarity,
            accuracy_low and accuracy_high, and dataset, model, protocol and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", dataset="world-facts").guarantees()
        plots.guarantees(table)
    """
    table = checked_table(table, ["method", "target", "coverage", "accuracy"], "guarantees")
    table = table.assign(row_name=method_labels(table).to_numpy())
    table["goal"] = [f"guarantee: {100 * target:g} % correct" for target in table["target"]]
    coverages = table.groupby("row_name", sort=False)["coverage"].mean()
    names = list(coverages.sort_values(ascending=False, kind="stable").index)
    shape: dict[str, Any] = {
        "per_line": 1 if figure_columns == 1 else 3,
        "height": 0.15 * len(names),
    }
    shape |= {"figure_columns": figure_columns, "sharex": True, "sharey": True}
    with panels(table, "protocol", "dataset", "model", "goal", **shape) as (figure, drawn):
        for ax, _, rows in drawn:
            _draw_guarantees(ax, rows, names)
        points, line, bars = drawn[0][0].get_legend_handles_labels()[0]
        label_figure(
            figure,
            title=title,
            x="share of all questions (bars), share of correct answers among the answered (points)",
            y="method",
            entries=[bars, points, line],
            note=_guarantee_note(table),
        )
    return figure


def _guarantee_note(table: pd.DataFrame) -> str:
    """Say where the thresholds come from, and what the methods are.

    The number of validation questions is named if it is known.
    """
    numbers = distinct_values(table, "n_validation")
    remarks = [_GUARANTEE_NOTE.format(n=f"{numbers[0]:,} " if len(numbers) == 1 else "")]
    if is_by_labels(table):
        remarks.append(_LABELS_NOTE)
    if table["accuracy"][table["coverage"] > 0].isna().any():
        remarks.append(TOO_FEW_LABELS)
    return " ".join([*remarks, method_note(table)])


def answer_sets(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "How often the set of all answers with p ≥ α has no correct answer",
) -> Figure:
    """Draw how often answer sets miss, against α: a panel for each model and dataset.

    Args:
        table: needs the columns alpha, delta (missing for an α that is fixed beforehand),
            missed_limit, missed, share_empty and set_size. It may have missed_low and
            missed_high, and dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", dataset="world-facts").answer_sets()
        plots.answer_sets(table)
    """
    needed = ["alpha", "delta", *(column for column, _, _ in _SET_LINES), "set_size"]
    table = checked_table(table, needed, "answer_sets")
    with panels(table, "model", "dataset", figure_columns=figure_columns, height=2.2) as (
        figure,
        drawn,
    ):
        for ax, _, rows in drawn:
            _draw_sets(ax, rows, every=2 if len(drawn) > 2 else 1)
        label_figure(
            figure,
            title=title,
            x="α, the least probability of an answer in a set (below it: mean number of answers)",
            y="share of questions without\na correct answer in their set",
            entries=drawn[0][0].get_legend_handles_labels()[0],
            note=_SETS_NOTE,
        )
    return figure


def entropies(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Entropy of the answers to each question, and a guaranteed lower bound of it",
) -> Figure:
    """Draw the entropy of each question in ascending order: a panel for each dataset and model.

    If there are more than 200 questions, 200 of them are drawn, in steps of equal size.

    Args:
        table: needs the columns entropy and tree_bound. It may have entropy_low and entropy_high,
            which are drawn as a band, and dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", dataset="world-facts").entropies()
        plots.entropies(table)
    """
    table = checked_table(table, ["entropy", "tree_bound"], "entropies")
    with panels(table, "model", "dataset", figure_columns=figure_columns, height=2.2) as (
        figure,
        drawn,
    ):
        for ax, _, rows in drawn:
            _draw_entropies(ax, rows.sort_values("entropy"))
        label_figure(
            figure,
            title=title,
            x="share of questions, from the smallest entropy to the largest",
            y="entropy, nats",
            entries=_entropy_entries(),
            note=_ENTROPY_NOTE,
        )
    return figure


def _draw_guarantees(ax: Axes, rows: pd.DataFrame, names: list[str]) -> None:
    places = rows["row_name"].map(names.index)
    ax.barh(places, rows["coverage"], 0.7, color=COLORS[4], label="share answered")
    style: dict[str, Any] = {
        "color": COLORS[1],
        "ms": 2.5,
        "label": "their accuracy, 95 % interval",
    }
    ax.plot(rows["accuracy"], places, "o", **style)
    if "accuracy_low" in rows:
        ax.hlines(places, rows["accuracy_low"], rows["accuracy_high"], color=COLORS[1], lw=1)
    target = rows["target"].iloc[0]
    ax.axvline(target, color="black", lw=0.8, ls="--", label="guaranteed accuracy")
    # The text is up to half a panel wide, and lies on the wider side of the line.
    left_end = 0.02 if target > 0.52 else target + 0.02
    for place in places[rows["coverage"] == 0]:
        ax.text(left_end, place, "not guaranteed", fontsize=7, va="center")
    name_rows(ax, names, list(rows["row_name"]))
    ax.set_xlim(0, 1.02)
    set_ticks(ax, SHARE_TICKS)


def _draw_sets(ax: Axes, rows: pd.DataFrame, *, every: int) -> None:
    """Draw the lines and diamonds of a panel, with a label for every second α if it is narrow."""
    fixed = rows[rows["delta"].isna()]
    for index, (column, has_interval, name) in enumerate(_SET_LINES):
        interval = f"{column}_" if has_interval else ""
        draw_curve(ax, fixed["alpha"], fixed, index, y=column, interval=interval, label=name)
    chosen = rows.dropna(subset=["delta", "alpha"])
    style: dict[str, Any] = {"color": "black", "mfc": "white", "ms": 5, "ls": ""}
    name = "target share, at the α chosen for it"
    ax.plot(chosen["alpha"], chosen["delta"], marker="D", label=name, **style)
    ax.set(xscale="log", ylim=(0, 1))
    labels = []
    for alpha, size in zip(fixed["alpha"], fixed["set_size"], strict=True):
        labels.append(f"{alpha:g}\n({size:.1f})")
    ax.set_xticks(fixed["alpha"][::every], labels[::every])
    ax.minorticks_off()


def _entropy_styles() -> list[dict[str, Any]]:
    """Return the style of the dots of each column."""
    shape = {"ls": "", "ms": 2.2}
    return [shape | {"color": COLORS[index], "marker": "os"[index]} for index in (0, 1)]


def _entropy_entries() -> list[plt.Line2D]:
    """Return the legend of the figure of entropies."""
    pairs = zip(_ENTROPY_DOTS, _entropy_styles(), strict=True)
    return [plt.Line2D([], [], label=name, **style) for (_, name), style in pairs]


def _draw_entropies(ax: Axes, rows: pd.DataFrame) -> None:
    places = np.linspace(0, len(rows) - 1, min(_MOST_QUESTIONS, len(rows))).astype(int)
    some = rows.iloc[places]
    shares = pd.Series((places + 1) / len(rows), some.index)
    if "entropy_low" in some:
        ends = some["entropy_low"].astype(float), some["entropy_high"].astype(float)
        ax.vlines(shares, *ends, color=COLORS[0], lw=0.5, alpha=0.5)
    for (column, _), style in zip(_ENTROPY_DOTS, _entropy_styles(), strict=True):
        ax.plot(shares, some[column], **style)
    ax.set_xlim(-0.01, 1.01)
    highest = some[[column for column, _ in _ENTROPY_DOTS]].max(axis=None)
    if "entropy_high" in some and some["entropy_high"].notna().any():
        highest = max(highest, some["entropy_high"].quantile(0.98))
    ax.set_ylim(0, 1.03 * highest)
