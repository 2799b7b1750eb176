"""The figure of the generated answers: how many are distinct, and how probable they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.plots.style import (
    checked_table,
    distinct_values,
    label_figure,
    line_style,
    model_entries,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The rows of panels: the column, what the titles call it, and what the x axes show.
_COUNTS = "distinct answers"
_SUMS = "sum of their probabilities"
_MEASURES = {"n_distinct": _COUNTS, "mass": _SUMS}
_X_LABELS = {
    _COUNTS: "number of distinct answers",
    _SUMS: "sum of the probabilities",
}
_NOTE = "Equal answers to a question are one distinct answer. Bars and bands: 95 % intervals."
_Y_LABELS = {
    _COUNTS: "share of questions\nwith this number",
    _SUMS: "share of questions\nwith at most this sum",
}


def generated_answers(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Number of distinct answers to a question, and the sum of their probabilities",
) -> Figure:
    """Draw the number of distinct answers of questions, and the sum of their probabilities.

    There are two panels for each dataset, with a line for each model. Intervals of the upper panels
    are Wilson's. Bands of the lower panels hold for the whole line (Dvoretzky, Kiefer, Wolfowitz).

    Args:
        table: has a row per question, and needs the columns n_distinct and mass. It may have
            dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).generated_answers()
        plots.generated_answers(table)
    """
    table = checked_table(table, list(_MEASURES), "generated_answers")
    models = distinct_values(table, "model")
    largest = int(table["n_distinct"].max())
    highest = max(1.0, float(table["mass"].max()))
    n_columns = 1 if figure_columns == 1 else max(1, len(distinct_values(table, "dataset")))
    measured = pd.concat([table.assign(measure=name) for name in _MEASURES.values()])
    with panels(measured, "measure", "dataset", figure_columns=figure_columns) as (figure, drawn):
        for place, (ax, setting, rows) in enumerate(drawn):
            for index, model in enumerate(models):
                some = rows[rows["model"] == model]
                if some.empty:
                    continue
                if setting["measure"] == _COUNTS:
                    shift = 0.12 * (index - (len(models) - 1) / 2)
                    _draw_counts(ax, some["n_distinct"], largest, index, shift)
                else:
                    _draw_distribution(ax, some["mass"].to_numpy(), highest, index)
            ax.set_xlabel(_X_LABELS[setting["measure"]])
            ax.set_ylim(bottom=0)
            if place % n_columns == 0:
                ax.set_ylabel(_Y_LABELS[setting["measure"]])
        label_figure(
            figure,
            title=title,
            x="",
            y="",
            entries=model_entries(models, marker=""),
            note=_NOTE,
        )
    return figure


def _draw_counts(ax: Axes, counts: pd.Series, largest: int, index: int, shift: float) -> None:
    """Draw the share of questions with each number of answers."""
    numbers = np.arange(largest + 1)
    shares = counts.value_counts(normalize=True).reindex(numbers, fill_value=0.0)
    style = line_style(index) | {"marker": ""}
    edges = [*(numbers - 0.5), largest + 0.5]
    ax.step(edges, [*shares, shares.iloc[-1]], where="post", **style)
    ax.vlines(numbers + shift, *metrics.wilson(shares, len(counts)), color=style["color"], lw=0.8)


def _draw_distribution(ax: Axes, masses: np.ndarray, highest: float, index: int) -> None:
    """Draw the share of questions whose answers have at most a probability together."""
    places = np.linspace(0, highest, 201)
    shares = np.searchsorted(np.sort(masses), places, side="right") / len(masses)
    half_width = np.sqrt(np.log(2 / 0.05) / (2 * len(masses)))
    style = line_style(index) | {"marker": ""}
    ax.plot(places, shares, **style)
    band = (shares - half_width).clip(0), (shares + half_width).clip(max=1)
    ax.fill_between(places, *band, color=style["color"], alpha=0.15, lw=0)
