"""The figures of single questions, and of the training texts of the bundled models."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.style import (
    COLORS,
    SHARE_TICKS,
    checked_table,
    draw_curves,
    handles,
    label_figure,
    panels,
    plt,
    set_ticks,
    title_at_right,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE_LENGTH = 46  # characters of a line above a panel
_LABEL_LENGTH = 24  # characters of an answer beside a panel
_KEPT_NOTE = (
    "PRO keeps the answers with p ≥ α; if there are none, it keeps the most probable one. "
    "K is the number of answers that it keeps."
)
_EXPOSURE_NOTE = (
    "The model was trained on documents about each fact. A false document states a wrong answer."
)
_EXAMPLE_COLUMNS = ["question", "text", "probability", "is_kept", "is_correct", "pro"]


def examples(
    table: pd.DataFrame,
    *,
    alpha: float | None = None,
    figure_columns: int = 2,
    title: str = "Probabilities of the answers to single questions, and which answers PRO keeps",
) -> Figure:
    """Draw the probabilities of the answers to some questions: a panel for each question.

    A panel has the ten most probable answers, or five if the figure spans one column.

    Args:
        table: has a row per answer, and needs the columns question, text, probability, is_kept,
            is_correct and pro. It may have reference, dataset and model.
        alpha: α, drawn as a line.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", dataset="world-facts").examples()
        plots.examples(table, alpha=0.4)
    """
    table = checked_table(table, _EXAMPLE_COLUMNS, "examples")
    shown = table.groupby("question", sort=False).head(10 if figure_columns == 2 else 5)
    most = max(3, int(shown["question"].value_counts().max()))
    largest = shown["probability"].max()
    # Answers of a large vocabulary may all be improbable. Then the axis ends at the largest.
    end = 1.0 if largest > 0.3 else 1.1 * largest
    shape: dict[str, Any] = {"figure_columns": figure_columns, "per_line": figure_columns}
    shape |= {"height": 0.15 * most + 0.15, "sharex": True}
    with panels(shown, "question", **shape) as (figure, drawn):
        for ax, _, rows in drawn:
            _draw_answers(ax, rows)
            if alpha is not None and alpha <= end:
                ax.axvline(alpha, color=COLORS[1], lw=1, ls="--")
            ax.set(xlim=(0, end), ylim=(most - 0.5, -0.5))
            if end == 1:
                set_ticks(ax, SHARE_TICKS)
        label_figure(
            figure,
            title=title,
            x="probability of the answer",
            y="answer (✓: correct)",
            entries=_answer_entries(alpha),
            note=_KEPT_NOTE,
        )
    return figure


def exposure(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Accuracy and uncertainty, by how often the asked fact was in the training data",
) -> Figure:
    """Draw accuracy, NLL and PRO against the number of training documents about a fact.

    There is a panel for each measure, and a line for each share of false documents.

    Args:
        table: needs the columns measure (`accuracy`, or a score in nats), exposure, conflict and
            mean. It may have mean_low and mean_high, which are drawn as bars, dataset and model.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", dataset="world-facts").exposure()
        plots.exposure(table)
    """
    table = checked_table(table, ["measure", "exposure", "conflict", "mean"], "exposure")
    levels = sorted(set(table["exposure"]))
    conflicts = sorted(set(table["conflict"]))
    names = {"PRO": "mean PRO", "NLL": "mean NLL"}
    shown = table.assign(
        place=table["exposure"].map(levels.index), measure=table["measure"].replace(names)
    )
    upper = "mean_high" if "mean_high" in table else "mean"
    highest = table.loc[table["measure"] != "accuracy", upper].max()
    with panels(shown, "measure", figure_columns=figure_columns, height=1.5) as (figure, drawn):
        for ax, setting, rows in drawn:
            style: dict[str, Any] = {"interval": "mean_", "shift": 0.14, "bars": True}
            draw_curves(ax, rows, "conflict", conflicts, "place", "mean", **style)
            is_accuracy = setting["measure"] == "accuracy"
            ax.set_ylim(0, 1.03 if is_accuracy else 1.05 * highest)
            ax.set_ylabel("share correct" if is_accuracy else "nats")
            ax.set_xticks(range(len(levels)), map(str, levels))
        label_figure(
            figure,
            title=title,
            x="number of training documents about the fact (bars: 95 % interval)",
            y="",
            entries=handles([_conflict_name(conflict) for conflict in conflicts]),
            note=_EXPOSURE_NOTE,
        )
    return figure


def _conflict_name(conflict: float) -> str:
    return f"{100 * conflict:g} % of the documents false" if conflict else "no false documents"


def _draw_answers(ax: Axes, rows: pd.DataFrame) -> None:
    colors = [COLORS[0] if is_kept else "white" for is_kept in rows["is_kept"]]
    ax.barh(range(len(rows)), rows["probability"], color=colors, edgecolor=COLORS[0], lw=0.8)
    names = []
    for text, is_correct in zip(rows["text"], rows["is_correct"], strict=True):
        mark = "✓ " if pd.notna(is_correct) and is_correct else ""
        names.append(mark + (_short(text, _LABEL_LENGTH) or "(empty)"))
    ax.set_yticks(range(len(rows)), names)
    first = rows.iloc[0]
    lines = [_short(first["question"], _TITLE_LENGTH)]
    lines.append(f"PRO = {first['pro']:.2f} nats, K = {rows['is_kept'].sum()}")
    reference = first.get("reference")
    if isinstance(reference, str):
        lines.append(_short(f"reference: {reference}", _TITLE_LENGTH))
    title_at_right(ax, "\n".join(lines), fontsize=7)


def _short(text: str, most: int) -> str:
    """Return a text that is cut after a whole word, so that it fits the figure.

    Only a first word that is too long by itself is cut inside.
    """
    words = textwrap.shorten(text, most, placeholder=" …")
    return words if words != "…" else f"{text.strip()[: most - 2]} …"


def _answer_entries(alpha: float | None) -> list:
    style: dict[str, Any] = {"edgecolor": COLORS[0], "lw": 0.8}
    entries: list = [
        plt.Rectangle((0, 0), 1, 1, facecolor=COLORS[0], label="kept by PRO", **style),
        plt.Rectangle((0, 0), 1, 1, facecolor="white", label="not kept", **style),
    ]
    if alpha is not None:
        entries.append(plt.Line2D([], [], color=COLORS[1], lw=1, ls="--", label=f"α = {alpha:g}"))
    return entries
