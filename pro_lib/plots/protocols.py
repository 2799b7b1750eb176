"""PRO minus NLL by both ways to count repeated answers (notebook 12)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.evaluation.alpha_choice import chosen_alpha
from pro_lib.evaluation.evaluation import Splits
from pro_lib.plots.captions import by_protocol, comparison, join_caption
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure
from pro_lib.plots.gains import FIXED_KS
from pro_lib.plots.settings import aurocs, per_setting
from pro_lib.plots.style import Figure, difference_axis, labelled_styles

_SHOWN = (
    "AUROC of PRO minus that of NLL with 95 % confidence intervals, if an answer that is found "
    "several times counts several times (protocol paper) or once (protocol workbench). The first "
    "row has the α that is best on validation questions. The axis is logarithmic beyond ±0.02."
)
_NAMES = {"paper": "repeats counted (paper)", "workbench": "each answer once (workbench)"}


@per_setting
def table(splits: Splits, *, alpha: float = 0.4) -> dict[str, Any]:
    """Return AUROC of PRO with some choices of K, in one protocol.

    Columns: those of the setting; choice, the words for how K is chosen; alpha; k; auroc with its
    interval, and the difference to NLL (`settings.aurocs`).
    """
    reported = splits.reported
    chosen = chosen_alpha(splits)
    scores = np.column_stack([reported.pro(np.array([chosen, alpha])), reported.pro(k=FIXED_KS)])
    return {
        "choice": ["α chosen", f"α = {alpha:g}", *[f"K = {k}" for k in FIXED_KS]],
        "alpha": pd.array([chosen, alpha, *[None] * len(FIXED_KS)], dtype="Float64"),
        "k": pd.array([None, None, *FIXED_KS], dtype="Int64"),
        **aurocs(scores, reported),
    }


def draw(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "PRO minus NLL, with and without repeats",
) -> Figure:
    """Draw the difference to NLL: a panel for each setting, a row for each choice of K.

    Args:
        table: needs the columns protocol, choice and auroc_minus_nll. It may have the interval of
            the difference, dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    table = checked_table(table, ["protocol", "choice", "auroc_minus_nll"], "protocols")
    names = list(table["choice"].unique())
    styles = labelled_styles({name: _NAMES.get(name, name) for name in table["protocol"]})
    with labelled_figure(
        table.assign(row=table["choice"]),
        *("model", "dataset"),
        title=title,
        x="AUROC of PRO minus that of NLL (log scale beyond ±0.02)",
        figure_columns=figure_columns,
        height=0.26 * len(names),
        sharex=True,
    ) as (figure, panels):
        for ax, _, rows in panels:
            draw_rows(ax, rows, "auroc_minus_nll", names, by="protocol", styles=styles)
            difference_axis(ax, "x", (0.1 if figure_columns == 2 else 0.3, 0.02))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with the α chosen on validation questions with NLL, in each protocol."""
    findings = []
    for words, rows in by_protocol(table):
        chosen = rows[rows["choice"] == "α chosen"]
        findings.append(comparison(chosen, f"{words}PRO"))
    return join_caption(_SHOWN, table, *findings)
