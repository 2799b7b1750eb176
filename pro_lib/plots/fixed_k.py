"""PRO with the same K for every question, beside PRO with an adaptive K (notebook 04)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.plots.captions import comparison, corrected, join_caption, span
from pro_lib.plots.figure import checked_table, draw_beside_nll, labelled_figure
from pro_lib.plots.settings import aurocs, per_setting
from pro_lib.plots.style import Figure, distinct_values

_SHOWN = (
    "AUROC of PRO with the K most probable answers of every question, whatever their p, and at the "
    "right with the answers that have p ≥ α (adaptive K); bars are 95 % confidence intervals of "
    "PRO minus NLL, drawn around PRO, so that the dotted line of NLL is their 0. "
    f"{corrected('settings, for fixed and adaptive K', has_symbols=False)}"
)


@per_setting
def table(splits: Splits, *, max_k: int = 10) -> dict[str, Any]:
    """Return AUROC of PRO for K = 1 … `max_k`, and for adaptive K with α chosen on validation.

    A question with fewer than K answers uses all that it has. The columns are those of the setting,
    and

    - k_choice: `fixed` or `adaptive`.
    - k: the K of a fixed row.
    - alpha, alpha_choice and mean_k: those of an adaptive row.
    - auroc with its interval, and the difference to NLL, which is PRO with K = 1
      (`settings.aurocs`).
    """
    reported = splits.reported
    alpha = splits.alpha()
    ks = np.arange(1, max_k + 1)
    nothing = [np.nan] * max_k
    scores = np.column_stack([reported.pro(k=ks), reported.pro(alpha)])
    return {
        "k_choice": ["fixed"] * max_k + ["adaptive"],
        "k": pd.array([*ks, None], dtype="Int64"),
        "alpha": [*nothing, alpha],
        "alpha_choice": [None] * max_k + ["validation"],
        "mean_k": [*nothing, scoring.adaptive_k(reported.log_probs, [alpha]).mean()],
        **aurocs(scores, reported, is_nll=[*(ks == 1), False]),
    }


def printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the AUROC at fixed and adaptive K that the paper printed for the settings of a table.

    Columns: dataset, model, k_choice, k, auroc.
    """
    values = catalog.paper("fixed_k", table).rename(columns={"selection": "k_choice"})
    return values[["dataset", "model", "k_choice", "k", "auroc"]]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw AUROC against K: a panel for each dataset, a line for each model; adaptive K apart.

    Grey symbols are values that the paper printed for the same settings.

    Args:
        table: needs the columns k_choice (`fixed` or `adaptive`), k (of fixed rows) and auroc. It
            may have auroc_minus_nll with its interval, which is drawn around auroc as bars, and
            dataset, model, protocol and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["k_choice", "k", "auroc"], "fixed_k")
    models = distinct_values(table, "model")
    largest = int(table["k"].max())
    end = largest + 2.0
    with labelled_figure(
        table.assign(place=table["k"].astype(float).fillna(end)),
        *("dataset", "protocol"),
        title="AUROC of PRO against the number of answers",
        x="K most probable answers that PRO uses, or all with p ≥ α",
        y="AUROC",
        figure_columns=figure_columns,
        sharex=True,
    ) as (figure, panels):
        for ax, rows in panels:
            paper = printed(rows)
            paper = paper.assign(place=paper["k"].astype(float).fillna(end))
            options: dict[str, Any] = {"bars": True, "shift": 0.16}
            for choice, some in rows.groupby("k_choice"):
                of_paper = paper[paper["k_choice"] == choice]
                draw_beside_nll(ax, some, models, "place", of_paper, **options)
            ax.axvline(largest + 0.8, color="black", lw=0.6)
            ax.set_xlim(0.4, end + 1.4)
            ax.set_xticks([*range(1, largest + 1), end], [*range(1, largest + 1), "p ≥ α"])
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare the largest K, and adaptive K, with NLL."""
    largest = table["k"].max()
    adaptive = table[table["k_choice"] == "adaptive"]
    alphas = f"α = {span(adaptive['alpha'], '{:g}')}, chosen on validation questions,"
    findings = [comparison(adaptive, f"Adaptive K, with {alphas}")]
    if largest > 1:
        findings.insert(0, comparison(table[table["k"] == largest], f"K = {largest}"))
    return join_caption(_SHOWN, table, *findings)
