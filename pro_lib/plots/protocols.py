"""PRO minus NLL by both ways to count repeated answers (notebook 12)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.metrics.differences import signed
from pro_lib.plots.captions import (
    corrected,
    join_caption,
    listed,
    with_signs,
)
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.gains import FIXED_K_WORDS, FIXED_KS
from pro_lib.plots.settings import aurocs, per_setting
from pro_lib.plots.style import PROTOCOL_WORDS, Figure

_SHOWN = (
    "AUROC of PRO minus that of NLL with 95 % confidence intervals, if an answer that beam search "
    "finds several times counts each time, and if it counts once; “α chosen” is the best on "
    f"validation questions; {FIXED_K_WORDS}. "
    f"{corrected('settings, for each choice of K and way to count')}"
)
_FAMILY = ("protocol", "choice")


@per_setting
def table(splits: Splits, *, alpha: float = 0.4) -> dict[str, Any]:
    """Return AUROC of PRO with some choices of K, in one protocol.

    Columns: those of the setting; choice, the words for how K is chosen; alpha; k; auroc with its
    interval, and the difference to NLL (`settings.aurocs`).
    """
    reported = splits.reported
    chosen = splits.alpha()
    scores = np.column_stack([reported.pro(np.array([chosen, alpha])), reported.pro(k=FIXED_KS)])
    return {
        "choice": ["α chosen", f"α = {alpha:g}", *[f"K = {k}" for k in FIXED_KS]],
        "alpha": pd.array([chosen, alpha, *[None] * len(FIXED_KS)], dtype="Float64"),
        "k": pd.array([None, None, *FIXED_KS], dtype="Int64"),
        **aurocs(scores, reported),
    }


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the difference to NLL: a panel for each setting, a row for each choice of K.

    Args:
        table: needs the columns protocol, choice and auroc_minus_nll. It may have the interval of
            the difference, dataset, model and n_questions, and with p_value significant
            differences are marked.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["protocol", "choice", "auroc_minus_nll"], "protocols")
    table = table.assign(row=table["choice"], counted=table["protocol"].replace(PROTOCOL_WORDS))
    table = with_signs(table, *_FAMILY)
    with row_figure(
        table,
        *("model", "dataset"),
        value="auroc_minus_nll",
        group="counted",
        title="PRO minus NLL, with and without repeated answers",
        x="AUROC of PRO minus that of NLL",
        figure_columns=figure_columns,
        row_height=0.26,
    ) as (figure, _):
        return figure


def caption(table: pd.DataFrame) -> str:
    """Say how far PRO is from NLL with the chosen α and with a fixed K, in each protocol."""
    table = with_signs(table, *_FAMILY)
    findings = []
    for choices, words in (
        (["α chosen"], "With the chosen α"),
        ([f"K = {k}" for k in FIXED_KS], "With a fixed K"),
    ):
        rows = table[table["choice"].isin(choices)]
        means = [
            f"{signed(some['auroc_minus_nll'].mean())} with {name}"
            for name, some in rows.groupby(rows["protocol"].replace(PROTOCOL_WORDS), sort=False)
        ]
        n_better = (rows["sign"] == 1).sum()
        n_worse = (rows["sign"] == -1).sum()
        findings.append(
            f"{words}, PRO is significantly better than NLL in {n_better} of {len(rows)} cases "
            f"and worse in {n_worse} (mean difference: {listed(means)})."
        )
    return join_caption(_SHOWN, table, *findings)
