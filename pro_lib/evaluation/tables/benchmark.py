"""The tables of all methods on the reported questions, and the values that the paper printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from pro_lib.common import catalog
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Splits
from pro_lib.evaluation.sweeps import chosen_alpha, select_alpha
from pro_lib.evaluation.tables.selective import calibration_errors
from pro_lib.evaluation.tables.settings import method_columns, with_setting

# The rows of PRO, by the name of their score, with how each chooses α.
_PRO_ROWS = {"PRO": "validation", "PRO, default": "default", "PRO, oracle": "oracle"}
_FURTHER_PRO_ROWS = ("PRO, default", "PRO, oracle")
_RENAMED = {
    "difference": "auroc_minus_pro",
    "difference_low": "auroc_minus_pro_low",
    "difference_high": "auroc_minus_pro_high",
}


def benchmark(splits: Sequence[Splits], *, default: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """Return AUROC, rejection and calibration of every method on the reported questions.

    PRO has three rows, with the α of `alpha_choices`. `default` and `oracle` are not methods of
    their own, so they are not corrected for and have no p_holm. Every other score that needs an α
    has its own, chosen on the validation questions.

    The columns are those of the setting, and

    - method, similarity, alpha and alpha_choice.
    - auroc with its interval.
    - The paired difference to PRO with α chosen on validation: n_differ, auroc_minus_pro with its
      interval, p_value, p_holm, significant and reading. `metrics.compare_aurocs`
      explains them. p_holm is corrected for the other methods of the setting.
    - prr and auarc, from `metrics.rejection`.
    - ece and brier of the probability of a correct answer that is fitted on validation, from
      `metrics.calibration`. They are NaN if nothing can be fitted.

    From labels of a sample, all are estimates (`labels.SampledVerdicts`), except ece, which
    is NaN.
    """
    return pd.concat([_benchmark_rows(setting, default) for setting in splits], ignore_index=True)


def printed_benchmark() -> pd.DataFrame:
    """Return the AUROCs of the paper's main table, with the difference to its PRO.

    Columns: dataset, model, method, auroc, auroc_minus_pro.
    """
    printed = catalog.paper("main_table")
    setting = ["dataset", "model"]
    pro = printed[printed["method"] == "PRO"].set_index(setting)["auroc"]
    pro_of_setting = printed[setting].join(pro, on=setting)["auroc"]
    return printed.assign(auroc_minus_pro=printed["auroc"] - pro_of_setting)


def beside_paper(table: pd.DataFrame) -> pd.DataFrame:
    """Return AUROCs of a benchmark beside those that the paper printed for the same settings.

    Args:
        table: the table of `benchmark`.

    Returns:
        The columns dataset, model, protocol, method, similarity, auroc and printed_auroc, of PRO
        with α chosen on validation and of the other methods that the paper has. There are no rows
        if the paper has none of the settings.
    """
    printed = catalog.paper("main_table", table).rename(columns={"auroc": "printed_auroc"})
    rows = table[~table["alpha_choice"].isin(["default", "oracle"])]
    columns = ["dataset", "model", "protocol", "method", "similarity", "auroc"]
    return rows[columns].merge(printed, on=["dataset", "model", "method"])


def _benchmark_rows(setting: Splits, default: float) -> pd.DataFrame:
    """Return the rows of one setting.

    PRO with α chosen on validation is the first.
    """
    reported = setting.reported
    alphas = {
        "PRO": chosen_alpha(setting),
        "PRO, default": default,
        "PRO, oracle": select_alpha(reported, alphas=setting.alphas),
    }
    for name in reported.alpha_scores:
        alphas[name] = chosen_alpha(setting, name=name)
    scores = reported.with_pro(alphas)
    columns = pd.DataFrame(_names_and_alphas(list(scores), alphas))
    errors = calibration_errors(setting, alphas)
    judgement = reported.judgement
    compared = judgement.compare(scores, uncorrected=_FURTHER_PRO_ROWS).rename(columns=_RENAMED)
    rejected = judgement.rejection(scores)
    tables = [table.drop(columns="method") for table in (compared, rejected)]
    parts = [columns, *tables, errors]
    return with_setting(pd.concat(parts, axis=1), reported)


def _names_and_alphas(names: Sequence[str], alphas: Mapping[str, float]) -> dict[str, list[Any]]:
    """Return the columns method, similarity, alpha and alpha_choice of scores with these names."""
    columns = method_columns(names, alphas=alphas)
    for place, name in enumerate(names):
        if name in _PRO_ROWS:
            columns["method"][place] = "PRO"
            columns["similarity"][place] = None
            columns["alpha_choice"][place] = _PRO_ROWS[name]
    return columns
