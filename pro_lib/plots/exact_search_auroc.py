"""The figure of AUROC of the scores that an exact search gives, beside PRO of beams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from pro_lib.plots.method_notes import method_note
from pro_lib.plots.style import (
    COLORS,
    checked_table,
    label_figure,
    name_rows,
    panels,
    title_at_right,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ANSWERS = {"threshold": "exact search", "diverse_beam": "beams"}
# The panels, by the column that they show.
_PANELS = {"auroc": "AUROC", "auroc_minus_pro": "minus the first row"}
# Names of scores that only this project has
_NAMES = {
    "α-floor": "lower bound of entropy: α-floor",
    "tree bound": "lower bound of entropy: tree bound",
    "probability not found": "probability of other answers",
}
_MOST_INTERVALS = 4  # between ticks of an x-axis, so that their labels do not touch
_NOTE = (
    "The exact search finds every answer with p ≥ α. Beams: diverse beam search. "
    "A score with an α has the one that is best on validation questions. "
    "α-floor: the smallest entropy that the found answers allow, because each other answer has "
    "p < α. "
    "Tree bound: the entropy of the next tokens, summed over all searched beginnings of answers. "
    "Probability of other answers: 1 minus the sum of p over the found answers. The first row is "
    "the reference of the differences. A point without a bar has an interval that is narrower than "
    "the point."
)


def exact_search_auroc(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "AUROC of PRO with answers of an exact search or of beams, and of other scores",
) -> Figure:
    """Draw AUROC of each score, and its paired difference to PRO of the exact search.

    Args:
        table: needs the columns method, strategy, alpha_choice, auroc and auroc_minus_pro, each
            with its interval (auroc_low, auroc_high, auroc_minus_pro_low, auroc_minus_pro_high). It
            may have alpha, which is written beside PRO, dataset, model, protocol and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        experiment = Experiment(strategy="threshold", search_alpha=0.02, limit=200)
        plots.exact_search_auroc(experiment.exact_search_auroc())
    """
    ends = [f"{quantity}_{end}" for quantity in _PANELS for end in ("low", "high")]
    needed = ["method", "strategy", "alpha_choice", *_PANELS, *ends]
    table = checked_table(table, needed, "exact_search_auroc")
    table = table.assign(score=_score_names(table))
    names = list(dict.fromkeys(table["score"]))
    names.sort(key=lambda name: not name.startswith("PRO"))
    parts = []
    for quantity, heading in _PANELS.items():
        values = {"value": table[quantity], "low": table[f"{quantity}_low"]}
        values |= {"high": table[f"{quantity}_high"], "quantity": quantity, "panel": heading}
        parts.append(table.assign(**values))
    grid = panels(
        pd.concat(parts),
        "dataset",
        "model",
        "protocol",
        "panel",
        figure_columns=figure_columns,
        per_line=figure_columns,
        height=0.19 * len(names) + 0.2,
        sharey=True,
    )
    with grid as (figure, axes):
        for ax, _, rows in axes:
            places = rows["score"].map(names.index)
            ax.hlines(places, rows["low"], rows["high"], color="black", lw=1)
            ax.plot(rows["value"], places, marker="o", ls="", color=COLORS[0])
            name_rows(ax, names, list(rows["score"]))
            title_at_right(ax)
            ax.locator_params(axis="x", nbins=_MOST_INTERVALS)
            if rows["quantity"].iloc[0] == "auroc_minus_pro":
                ax.axvline(0, color="black", lw=0.6)
            else:
                _name_alphas(ax, rows, places)
        label_figure(
            figure,
            title=title,
            x="AUROC, and paired difference to the AUROC of the first row, with 95 % intervals",
            y="score",
            note=f"{_NOTE} {method_note(table[table['method'].isin(['NLL', 'ALL'])])}",
        )
    return figure


def _name_alphas(ax: Axes, rows: pd.DataFrame, places: pd.Series) -> None:
    """Write the α of PRO above its points."""
    style: dict[str, Any] = {"fontsize": 6, "ha": "center", "va": "bottom"}
    for row, place in zip(rows.to_dict("records"), places, strict=True):
        if pd.notna(row.get("alpha")):
            ax.text(row["value"], place - 0.1, f"α = {row['alpha']:g}", **style)


def _score_names(table: pd.DataFrame) -> list[str]:
    """Return the name of the score of each row; that of PRO says which answers it uses."""
    names = []
    for row in table.to_dict("records"):
        name = _NAMES.get(row["method"], row["method"])
        if name == "PRO":
            name = f"PRO of {_ANSWERS.get(row['strategy'], row['strategy'])}"
        if row["alpha_choice"] == "exact search":
            name = f"{name}, α of exact search"
        names.append(name)
    return names
