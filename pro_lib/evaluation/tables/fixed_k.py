"""The table of PRO with the same K for every question, beside PRO with an adaptive K."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import (
    auroc_columns,
    nll_comparison_columns,
    with_setting,
)


def fixed_k(splits: Sequence[Splits], *, max_k: int = 10) -> pd.DataFrame:
    """Return AUROC of PRO for K = 1 … `max_k`, and for adaptive K with α chosen on validation.

    A question with fewer than K answers uses all that it has. The columns are those of the setting,
    and

    - k_choice: `fixed` or `adaptive`.
    - k: the K of a fixed row.
    - alpha, alpha_choice and mean_k: those of an adaptive row.
    - auroc with its interval.
    - The difference to NLL, which is PRO with K = 1 (`settings.nll_comparison_columns`).
    """
    ks = np.arange(1, max_k + 1)
    tables = []
    for setting in splits:
        reported = setting.reported
        alpha = chosen_alpha(setting)
        scores = np.column_stack([reported.pro(k=ks), reported.pro(alpha)])
        mean_k = scoring.adaptive_k(reported.log_probs, [alpha]).mean()
        columns = {
            "k_choice": ["fixed"] * max_k + ["adaptive"],
            "k": pd.array([*ks, None], dtype="Int64"),
            "alpha": [np.nan] * max_k + [alpha],
            "alpha_choice": [None] * max_k + ["validation"],
            "mean_k": [np.nan] * max_k + [mean_k],
            **auroc_columns(scores, reported),
            **nll_comparison_columns(scores, reported, is_nll=[*(ks == 1), False]),
        }
        tables.append(with_setting(pd.DataFrame(columns), reported))
    return pd.concat(tables, ignore_index=True)


def printed_fixed_k(table: pd.DataFrame) -> pd.DataFrame:
    """Return the AUROC at fixed and adaptive K that the paper printed for the settings of a table.

    Columns: dataset, model, k_choice, k, auroc.
    """
    printed = catalog.paper("fixed_k", table).rename(columns={"selection": "k_choice"})
    return printed[["dataset", "model", "k_choice", "k", "auroc"]]
