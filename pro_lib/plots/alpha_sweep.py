"""AUROC of PRO against α, and the α that validation questions choose (notebook 02)."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.evaluation.alpha_choice import Splits, select_alpha
from pro_lib.evaluation.evaluation import (
    DEFAULT_ALPHA,
    DRAWN_ALPHAS,
    Evaluation,
    alpha_grid,
)
from pro_lib.plots.captions import comparison, corrected, join_caption, signed_span, span
from pro_lib.plots.figure import checked_table, draw_beside_nll, labelled_figure
from pro_lib.plots.settings import SETTING_COLUMNS, aurocs, per_setting, with_setting
from pro_lib.plots.style import ALPHA_LABELS, Figure, alpha_axis, distinct_values, draw_curves

_SHOWN = (
    "AUROC of PRO against α (lines) and of NLL (dotted lines); bands are 95 % confidence intervals "
    "of PRO minus NLL, drawn around PRO, which end where both order all questions alike, and are "
    "wide where they order only a few questions differently. "
    f"{corrected('settings', has_symbols=False)}"
)
_CHOSEN: dict[str, Any] = {
    "mec": "black",
    "mew": 0.7,
    "ms": 4.5,
    "marker": "o",
    "ls": "",
    "zorder": 6,
    "clip_on": False,
}


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
        "validation": splits.alpha(),
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
) -> Figure:
    """Draw AUROC of PRO against α: a panel for each dataset, a line for each model.

    Grey points are values that the paper printed for the same settings.

    Args:
        table: needs the columns alpha and auroc, of one split. It may have auroc_minus_nll with its
            interval, which is drawn around auroc, and dataset, model, protocol and n_questions.
        choices: has the columns of `table` and alpha_choice. The rows `validation` are marked.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        alpha_scale: `log`, or `linear` as in the paper.
    """
    table = checked_table(table, ["alpha", "auroc"], "alpha_sweep")
    choices = checked_table(choices, ["alpha", "auroc", "alpha_choice"], "alpha_sweep")
    chosen = choices[choices["alpha_choice"] == "validation"]
    models = distinct_values(table, "model")
    with labelled_figure(
        pd.concat([table, chosen]),
        *("dataset", "protocol"),
        title="AUROC of PRO against α",
        x=ALPHA_LABELS[alpha_scale],
        y="AUROC",
        figure_columns=figure_columns,
        sharex=True,
    ) as (figure, panels):
        for ax, rows in panels:
            is_choice = rows["alpha_choice"].notna()
            draw_beside_nll(ax, rows[~is_choice], models, "alpha", printed(rows), marker=".")
            points = rows.loc[is_choice, ["model", "alpha", "auroc"]]
            draw_curves(ax, points, "model", models, "alpha", **_CHOSEN, label=None)
            words = "α chosen on validation questions"
            ax.plot(np.nan, np.nan, mfc="white", label=words, **_CHOSEN)  # for the legend
            alpha_axis(ax, alpha_scale)
    return figure


def caption(table: pd.DataFrame, choices: pd.DataFrame) -> str:
    """Compare PRO, with the α that validation questions choose, with NLL.

    Args:
        table: the table that is drawn, of one split.
        choices: the table of `choices` for the same settings.
    """
    chosen = choices[choices["alpha_choice"] == "validation"]
    subject = f"PRO with the α chosen on validation questions, {span(chosen['alpha'], '{:g}')},"
    smallest = table[table["alpha"] == table["alpha"].min()]
    least = signed_span(smallest["auroc_minus_nll"])
    finding = f"At α = {smallest['alpha'].iloc[0]:g}, PRO minus NLL is {least}."
    return join_caption(_SHOWN, table, comparison(chosen, subject), finding)
