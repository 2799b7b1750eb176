"""The figure of PRO with a fixed K beside PRO with an adaptive K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.style import (
    PRINTED,
    checked_table,
    distinct_values,
    draw_curves,
    label_figure,
    model_entries,
    panels,
    printed_entry,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NOTE = "Adaptive: PRO uses the answers with p ≥ α. Validation questions chose α."


def fixed_k(
    table: pd.DataFrame,
    *,
    printed: pd.DataFrame | None = None,
    figure_columns: int = 2,
    title: str = "AUROC of PRO with the same K for every question, and with adaptive K",
) -> Figure:
    """Draw AUROC of PRO against K: a panel for each dataset and protocol, a line for each model.

    Adaptive K is drawn at the right, apart from the fixed K.

    Args:
        table: needs the columns k_choice (`fixed` or `adaptive`), k (of fixed rows) and auroc. It
            may have auroc_low and auroc_high, which are drawn as bars, and dataset, model, protocol
            and n_questions.
        printed: values that the paper printed, with dataset, model, k_choice, k and auroc.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        table = Experiment(model="facts-2m", limit=200).fixed_k()
        plots.fixed_k(table)
    """
    table = checked_table(table, ["k_choice", "k", "auroc"], "fixed_k")
    models = distinct_values(table, "model")
    largest = int(table["k"].max())
    adaptive_place = largest + 2.0
    grid = panels(
        table, "dataset", "protocol", figure_columns=figure_columns, sharex=True, sharey=True
    )
    entries = model_entries(models)
    with grid as (figure, drawn):
        for ax, setting, rows in drawn:
            fixed = rows["k_choice"] == "fixed"
            _draw(ax, rows[fixed], models, adaptive_place)
            _draw(ax, rows[~fixed], models, adaptive_place, ls="")
            if printed is not None:
                values = printed[printed["dataset"] == setting.get("dataset")]
                _draw(ax, values, models, adaptive_place, **PRINTED)
            ax.axvline(largest + 0.8, color="black", lw=0.6)
            ax.set_xlim(0.4, adaptive_place + 1.2)
            ticks = [*range(1, largest + 1), adaptive_place]
            ax.set_xticks(ticks, [*map(str, range(1, largest + 1)), "adaptive"])
        if printed is not None and not printed.empty:
            entries.append(printed_entry())
        label_figure(
            figure,
            title=title,
            x="K, the number of answers that PRO uses (K = 1 is NLL)",
            y="AUROC with 95 % interval",
            entries=entries,
            note=_NOTE,
        )
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, models: list, adaptive_place: float, **style: Any) -> None:
    """Draw a line for each model, moved a little to the side so that bars do not overlap."""
    placed = rows.assign(place=rows["k"].astype(float).fillna(adaptive_place))
    options = {"interval": "auroc_", "bars": True, "shift": 0.16, **style}
    draw_curves(ax, placed, "model", models, "place", **options)
