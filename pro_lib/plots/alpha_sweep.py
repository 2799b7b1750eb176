"""The figure of AUROC against α."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.style import (
    ALPHA_AXIS,
    PRINTED,
    alpha_axis,
    checked_table,
    distinct_values,
    draw_curves,
    label_figure,
    line_style,
    matching_rows,
    model_entries,
    panels,
    plt,
    printed_entry,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Marker, size and legend text of each choice of α. A smaller marker lies on top of a larger one.
_CHOICES = {
    "validation": ("o", 3, "α chosen on validation questions"),
    "default": ("s", 6, "default α"),
    "oracle": ("*", 11, "best α on the questions shown"),
}
_NOTE = "At α = 0, PRO uses all answers to a question. At α = 1, it uses one, and PRO is NLL."
_MARKER: dict[str, Any] = {"mfc": "white", "mew": 1.1, "ls": "", "clip_on": False}


def alpha_sweep(
    table: pd.DataFrame,
    choices: pd.DataFrame | None = None,
    *,
    printed: pd.DataFrame | None = None,
    figure_columns: int = 2,
    title: str = "AUROC of PRO against α",
) -> Figure:
    """Draw AUROC of PRO against α: a panel for each dataset and protocol, a line for each model.

    Args:
        table: needs the columns alpha and auroc. It may have auroc_low and auroc_high, which are
            drawn as a band, and dataset, model, protocol and n_questions.
        choices: points to mark, with the columns of `table` and alpha_choice, which is
            `validation`, `default` or `oracle`.
        printed: values that the paper printed, with dataset, model, alpha and auroc.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).alpha_sweep()
        plots.alpha_sweep(table[table["split"] == "test"])
    """
    table = checked_table(table, ["alpha", "auroc"], "alpha_sweep")
    models = distinct_values(table, "model")
    grid = panels(
        table, "dataset", "protocol", figure_columns=figure_columns, sharex=True, sharey=True
    )
    entries = model_entries(models, marker="")
    with grid as (figure, drawn):
        for ax, setting, rows in drawn:
            draw_curves(ax, rows, "model", models, "alpha", interval="auroc_", marker="")
            if printed is not None:
                _draw_printed(ax, printed, setting, models)
            if choices is not None:
                _mark_choices(ax, matching_rows(choices, setting), models)
            alpha_axis(ax)
        if printed is not None and not printed.empty:
            entries.append(printed_entry(marker="o", mfc=PRINTED["color"]))
        if choices is not None:
            entries += _choice_entries(choices)
        label_figure(
            figure,
            title=title,
            x=ALPHA_AXIS,
            y="AUROC with 95 % interval",
            entries=entries,
            note=_NOTE,
        )
    return figure


def _mark_choices(ax: Axes, choices: pd.DataFrame, models: list) -> None:
    for row in choices.itertuples():
        marker, size, _ = _CHOICES[row.alpha_choice]
        color = line_style(models.index(getattr(row, "model", "")))["color"]
        style = {"ms": size, "mec": color, "zorder": 16 - size}
        ax.plot(row.alpha, row.auroc, marker, **style, **_MARKER)


def _draw_printed(ax: Axes, printed: pd.DataFrame, setting: dict, models: list) -> None:
    rows = printed[printed["dataset"] == setting.get("dataset")]
    style = {"marker": "o", "mfc": PRINTED["color"], "ms": 5, "ls": ""}
    draw_curves(ax, rows, "model", models, "alpha", **style)


def _choice_entries(choices: pd.DataFrame) -> list[plt.Line2D]:
    entries = []
    for choice in distinct_values(choices, "alpha_choice"):
        marker, size, name = _CHOICES[choice]
        style: dict[str, Any] = {"marker": marker, "ms": size, "mec": "black"}
        entries.append(plt.Line2D([], [], label=name, **style, **_MARKER))
    return entries
