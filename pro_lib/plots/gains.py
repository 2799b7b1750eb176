"""The gain of PRO over NLL for some α and K, which the figures of notebook 08 share."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.evaluation.judgement import Judgement
from pro_lib.metrics.roc import FloatArray

FIXED_KS = (2, 5, 10)
FIXED_K_WORDS = "with a fixed K, such as 2, PRO uses the K most probable answers, whatever their p"
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
    n_ks = len(FIXED_KS)
    return pd.DataFrame(
        {
            "nll_auroc": judgement.auroc(nll[:, None]).value.item(),
            "method": "PRO",
            "k_choice": ["adaptive"] * len(alphas) + ["fixed"] * n_ks,
            "k": pd.array([None] * len(alphas) + list(FIXED_KS), dtype="Int64"),
            "alpha": [*alphas, *[np.nan] * n_ks],
            **judgement.differences(scores, nll).columns("nll"),
        }
    )


def with_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the column score, the choice of K, such as "K = 2" or "α = 0.4"."""
    is_adaptive = table["k_choice"] == "adaptive"
    alphas = table["alpha"].map("α = {:g}".format)
    return table.assign(score=alphas.where(is_adaptive, table["k"].map("K = {}".format)))
