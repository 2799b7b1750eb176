"""The gain of PRO over NLL for some α and K, which the figures of notebook 08 share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.scale import SymmetricalLogScale
from matplotlib.ticker import FixedLocator, NullLocator

from pro_lib import scoring
from pro_lib.evaluation.judgement import Judgement
from pro_lib.metrics.auroc import FloatArray
from pro_lib.plots.style import Axes, minus

FIXED_KS = (2, 5, 10)
GAIN = ("auroc_minus_nll", "auroc_minus_nll_low", "auroc_minus_nll_high")


def pro_minus_nll(
    log_probs: FloatArray,
    judgement: Judgement,
    *,
    alphas: Sequence[float],
    search_alpha: float | None = None,
) -> pd.DataFrame:
    """Return AUROC of PRO minus AUROC of NLL, for some α and for K = 2, 5 and 10.

    Args:
        log_probs: (n, N) log-probabilities of the answers.
        judgement: which answers are correct.
        alphas: the α of the rows with adaptive K.
        search_alpha: the α of an exact search, if the answers come from one.

    Returns:
        A row per α and K, with the columns

        - nll_auroc: the AUROC of NLL.
        - method (always PRO), k and alpha.
        - k_choice: `adaptive` (K by α) or `fixed`.
        - n_differ: the fewest questions that must move so that PRO and NLL have one order.
        - auroc_minus_nll with its interval and p_value (not corrected).
    """
    nll = scoring.nll(log_probs)
    # Answers that repeat, or sum to more than 1, are among those that are compared.
    with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
        options = {"search_alpha": search_alpha}
        by_alpha = scoring.pro(log_probs, alpha=alphas, **options)
        by_k = scoring.pro_at_k(log_probs, FIXED_KS, **options)
    scores = np.column_stack([by_alpha, by_k])
    n_alphas = len(alphas)
    n_ks = len(FIXED_KS)
    return pd.DataFrame(
        {
            "nll_auroc": judgement.auroc(nll[:, None]).value.item(),
            "method": "PRO",
            "k_choice": ["adaptive"] * n_alphas + ["fixed"] * n_ks,
            "k": pd.array([None] * n_alphas + list(FIXED_KS), dtype="Int64"),
            "alpha": [*alphas, *[np.nan] * n_ks],
            **judgement.differences(scores, nll).columns("nll"),
        }
    )


def score_names(rows: pd.DataFrame) -> list[str]:
    """Return the choice of K of each row, such as "K = 2" or "α = 0.4"."""
    names = []
    for k_choice, k, alpha in zip(rows["k_choice"], rows["k"], rows["alpha"], strict=True):
        names.append(f"α = {alpha:g}" if k_choice == "adaptive" else f"K = {k:g}")
    return names


def gain_axis(ax: Axes, name: str, *, linear: float = 0.02, far: float = 0.1) -> None:
    """Make the x or y axis one of differences, with a line at 0.

    Args:
        ax: the axes.
        name: x or y.
        linear: the axis is linear up to this difference, where it has a tick, and logarithmic
            beyond it.
        far: the other tick.
    """
    ax.set(**{f"{name}scale": SymmetricalLogScale(None, linthresh=linear)})
    (ax.axvline if name == "x" else ax.axhline)(0, color="black", lw=0.6)
    axis = ax.xaxis if name == "x" else ax.yaxis
    ticks = FixedLocator([-far, -linear, 0, linear, far])
    axis.set(major_locator=ticks, minor_locator=NullLocator())
    axis.set_major_formatter(lambda value, _: minus(f"{value:+g}") if value else "0")
