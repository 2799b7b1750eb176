"""AUROC of PRO against α, and the α that validation questions choose (notebook 02)."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.evaluation.alpha_choice import chosen_alpha, select_alpha
from pro_lib.evaluation.evaluation import (
    DEFAULT_ALPHA,
    DRAWN_ALPHAS,
    Evaluation,
    Splits,
    alpha_grid,
)
from pro_lib.plots.captions import (
    by_protocol,
    comparison,
    has_enough,
    join_caption,
    signed_span,
    span,
)
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import SETTING_COLUMNS, aurocs, per_setting, with_setting
from pro_lib.plots.style import (
    ALPHA_LABELS,
    PRINTED,
    Figure,
    alpha_axis,
    distinct_values,
    draw_curves,
    line_style,
    matching_rows,
)

# Style and legend text of the marks of a choice of α.
_MARKS: dict[str, dict[str, Any]] = {
    "validation": {
        "marker": "o",
        "ms": 4,
        "zorder": 6,
        "label": "α chosen on validation questions",
    },
    "oracle": {
        "marker": "*",
        "ms": 12,
        "mfc": "white",
        "zorder": 5,
        "label": "best α on the questions shown",
    },
}
_DEFAULT: dict[str, Any] = {"color": "black", "lw": 0.8, "ls": ":", "label": "default α"}
_SHOWN = (
    "AUROC of PRO against α, with 95 % confidence intervals at each α by itself; PRO uses the "
    "answers with p ≥ α, and at α = 1 it is NLL. Circles mark the α that validation questions "
    "choose, stars the best one, on the questions shown, of the α that can be chosen, and the "
    "dotted line the default α."
)


@per_setting
def table(splits: Splits) -> list[pd.DataFrame]:
    """Return AUROC of PRO at each α, on the validation questions and on the reported ones.

    Columns: those of the setting; alpha; mean_k, the mean number of answers kept; auroc with its
    interval, and the difference to NLL (`settings.aurocs`).
    """
    return [rows_at(each) for each in (splits.validation, splits.reported)]


def rows_at(evaluation: Evaluation, alphas: ArrayLike | None = None) -> pd.DataFrame:
    """Return the rows of the table for one evaluation.

    Args:
        evaluation: the questions.
        alphas: the values of α, (A,); None for those that the figure draws.
    """
    if alphas is None:
        alphas = alpha_grid(evaluation.search_alpha, alphas=DRAWN_ALPHAS)
    grid = np.asarray(alphas, dtype=float)
    mean_k = scoring.adaptive_k(evaluation.log_probs, grid).mean(axis=0)
    columns = {"alpha": grid, "mean_k": mean_k, **aurocs(evaluation.pro(grid), evaluation)}
    return with_setting(columns, evaluation)


@per_setting
def choices(splits: Splits, *, default: float = DEFAULT_ALPHA) -> list[pd.DataFrame]:
    """Return AUROC of PRO on the reported questions for three choices of α.

    The column alpha_choice names the choice. `validation` is the α with the best AUROC on the
    validation questions. `default` is the α of the argument `default`. `oracle` is the α with the
    best AUROC on the reported questions themselves, which shows how much choosing on them would
    add. The other columns are those of `table`.
    """
    alphas = {
        "validation": chosen_alpha(splits),
        "default": default,
        "oracle": select_alpha(splits.reported, alphas=splits.alphas),
    }
    rows = rows_at(splits.reported, list(alphas.values()))
    rows.insert(len(SETTING_COLUMNS), "alpha_choice", list(alphas))
    return [rows]


def printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the α and AUROC that the paper printed for the settings of a table.

    Columns: dataset, model, alpha, auroc. There are no rows if the paper has no such settings.
    """
    values = catalog.paper("main_table", table).query("method == 'PRO'")
    return catalog.paper("alpha_per_setting", table).merge(values.drop(columns="method"))


def draw(
    table: pd.DataFrame,
    choices: pd.DataFrame,
    *,
    figure_columns: int = 2,
    alpha_scale: str = "log",
    title: str = "AUROC of PRO against α",
) -> Figure:
    """Draw AUROC of PRO against α: a panel for each dataset, a line for each model.

    Grey points are values that the paper printed for the same settings.

    Args:
        table: needs the columns alpha and auroc, of one split. It may have the interval of auroc,
            and dataset, model, protocol and n_questions.
        choices: points to mark, with the columns of `table` and alpha_choice.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        alpha_scale: `log`, or `linear` as in the paper.
        title: the title of the figure.
    """
    table = checked_table(table, ["alpha", "auroc"], "alpha_sweep")
    choices = checked_table(choices, ["alpha", "auroc", "alpha_choice"], "alpha_sweep")
    models = distinct_values(table, "model")
    paper = printed(table)
    with labelled_figure(
        table,
        *("dataset", "protocol"),
        title=title,
        x=ALPHA_LABELS[alpha_scale],
        y="AUROC",
        figure_columns=figure_columns,
        sharex=True,
    ) as (figure, panels):
        for ax, setting, rows in panels:
            draw_curves(ax, rows, "model", models, "alpha", marker="")
            values = paper[paper["dataset"] == setting["dataset"]]
            draw_curves(ax, values, "model", models, "alpha", **PRINTED)
            for row in matching_rows(choices, setting).itertuples():
                if row.alpha_choice in _MARKS:
                    style = {"ls": "", "clip_on": False, **_MARKS[row.alpha_choice]}
                    ax.plot(np.nan, np.nan, color="black", **style)  # for the legend
                    style |= {"color": line_style(models.index(row.model))["color"], "label": ""}
                    ax.plot(row.alpha, row.auroc, **style)
                else:
                    ax.axvline(row.alpha, **_DEFAULT)
            alpha_axis(ax, alpha_scale)
    return figure


def caption(table: pd.DataFrame, choices: pd.DataFrame) -> str:
    """Compare PRO, with the α that validation questions choose, with NLL and with the best α.

    Args:
        table: the table that is drawn, of one split.
        choices: the table of `choices` for the same settings.
    """
    findings = []
    for (words, rows), (_, swept) in zip(by_protocol(choices), by_protocol(table), strict=True):
        chosen = rows[rows["alpha_choice"] == "validation"]
        alphas = span(chosen["alpha"], "{:g}")
        findings.append(comparison(chosen, f"{words}PRO with the chosen α, {alphas},"))
        enough = rows[has_enough(rows)]
        smallest = swept[swept["alpha"] == swept["alpha"].min()]
        least = f"α = {smallest['alpha'].iloc[0]:g}"
        finding = f"At {least}, PRO minus NLL is {signed_span(smallest['auroc_minus_nll'])}"
        if len(enough):
            values = enough.pivot_table("auroc", ["dataset", "model"], "alpha_choice")
            gains = signed_span(values["oracle"] - values["validation"])
            finding += f"; the best α, which nobody knows beforehand, would add {gains}"
        findings.append(f"{finding}.")
    return join_caption(_SHOWN, table, *findings)
