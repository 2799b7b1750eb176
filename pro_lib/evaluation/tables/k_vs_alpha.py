"""The table of the number of answers that α keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluation import DRAWN_ALPHAS, Evaluation, alpha_grid
from pro_lib.evaluation.tables.settings import with_setting


def k_vs_alpha(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """Return the mean number of answers that PRO keeps at each α.

    Columns: those of the setting; alpha; mean_k with its 95 % interval over questions, mean_k_low
    and mean_k_high.
    """
    tables = []
    for evaluation in evaluations:
        alphas = alpha_grid(evaluation.search_alpha, alphas=DRAWN_ALPHAS)
        counts = scoring.adaptive_k(
            evaluation.log_probs, alphas, search_alpha=evaluation.search_alpha
        )
        mean = counts.mean(axis=0)
        low, high = metrics.normal(mean, counts.std(axis=0, ddof=1) / np.sqrt(len(counts)))
        columns = {"alpha": alphas, "mean_k": mean, "mean_k_low": low, "mean_k_high": high}
        tables.append(with_setting(pd.DataFrame(columns), evaluation))
    return pd.concat(tables, ignore_index=True)
