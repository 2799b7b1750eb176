"""The table of all methods against the ROUGE-L threshold above which an answer is correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import (
    auroc_columns,
    method_columns,
    nll_comparison_columns,
    with_setting,
)

ROUGE_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)


def rouge_thresholds(
    splits: Sequence[Splits], *, thresholds: Sequence[float] = ROUGE_THRESHOLDS
) -> pd.DataFrame:
    """Return AUROC of every method with answers judged at several ROUGE-L thresholds.

    The α of PRO is chosen once, on the validation questions as they are judged there.

    The columns are those of the setting, and

    - rouge_threshold: an answer is correct if its ROUGE-L F1 is above this value. If the reported
      questions have labels of a sample, there are further rows that are estimated from them, in
      which it is NaN and the column judge is `labels`.
    - accuracy: the share of correct answers.
    - method, similarity, and alpha and alpha_choice of PRO.
    - auroc with its interval.
    - The difference to NLL (`settings.nll_comparison_columns`).

    Raises:
        SentenceError: if the ROUGE-L of some answers is not known.
    """
    tables = []
    for setting in splits:
        reported = setting.reported
        rouge_l = reported.answers["rouge_l"]
        if rouge_l.isna().any():
            raise SentenceError(
                f"{reported.dataset}, {reported.model}: ROUGE-L is not known for "
                f"{rouge_l.isna().sum()} of {len(rouge_l)} answers. It needs texts and references, "
                "or a column rouge_l in the records."
            )
        alpha = chosen_alpha(setting)
        scores = reported.with_pro({"PRO": alpha})
        evaluations = {
            threshold: replace(
                reported.without_labels(),
                answers=reported.answers.assign(correct=rouge_l > threshold),
                rule=f"ROUGE-L > {threshold:g}",
            )
            for threshold in thresholds
        }
        if reported.judgement.columns():
            evaluations[np.nan] = reported
        for threshold, judged in evaluations.items():
            columns = {
                "rouge_threshold": threshold,
                "accuracy": judged.accuracy,
                **method_columns(list(scores), alphas={"PRO": alpha}),
                **auroc_columns(scores.to_numpy(), judged),
                **nll_comparison_columns(scores.to_numpy(), judged, is_nll=scores.columns == "NLL"),
            }
            tables.append(with_setting(pd.DataFrame(columns), judged))
    return pd.concat(tables, ignore_index=True)


def printed_rouge_thresholds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the differences in AUROC to NLL that the paper printed for the settings of a table.

    Columns: dataset, model, rouge_threshold, method, auroc, auroc_minus_nll.
    """
    printed = catalog.paper("rouge_thresholds", table)
    printed = printed.rename(columns={"threshold": "rouge_threshold"})
    setting = ["dataset", "model", "rouge_threshold"]
    nll = printed[printed["method"] == "NLL"].set_index(setting)["auroc"]
    of_nll = printed[setting].join(nll, on=setting)["auroc"]
    return printed.assign(auroc_minus_nll=printed["auroc"] - of_nll)
