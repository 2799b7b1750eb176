"""The columns that tables share: the setting, AUROC with its interval, and differences."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import scoring
from pro_lib.evaluation.evaluation import Evaluation
from pro_lib.metrics.auroc import FloatArray
from pro_lib.runs.run import Run

# The first columns of every table: which questions and answers its rows are about.
SETTING_COLUMNS = (
    "dataset",
    "model",
    "strategy",
    "protocol",
    "split",
    "n_questions",
    "n_correct",
    "n_unlabelled",
    "correctness",
)


def with_setting(table: pd.DataFrame, evaluation: Evaluation) -> pd.DataFrame:
    """Return the table with the columns of the setting in front.

    If the evaluation has labels of a sample, there are two further columns, unless the table has a
    column judge already: judge, with the value `labels`, and n_labels.
    """
    setting = {
        "dataset": evaluation.dataset,
        "model": evaluation.model,
        "strategy": evaluation.strategy,
        "protocol": evaluation.protocol,
        "split": evaluation.split,
        "n_questions": len(evaluation.answers),
        "n_correct": evaluation.n_correct,
        "n_unlabelled": evaluation.n_unlabelled,
        "correctness": evaluation.judgement.rule,
    }
    columns = evaluation.judgement.columns()
    if "judge" not in table:
        table = table.assign(**columns)[[*columns, *table.columns]]
    return table.assign(**setting)[[*SETTING_COLUMNS, *table.columns]]


def with_run(table: pd.DataFrame, run: Run, split: str) -> pd.DataFrame:
    """Return a table about the answers of a run, whatever the protocol, with the setting in front.

    Columns: dataset, model, strategy, split and n_questions, then those of the table.

    Args:
        table: the table.
        run: the run of the questions that the table is about.
        split: the name of their split.
    """
    setting: dict[str, str | int] = {
        **run.info.labels(),
        "strategy": run.info.strategy,
        "split": split,
        "n_questions": len(run.questions),
    }
    return table.assign(**setting)[[*setting, *table.columns]]


def auroc_columns(uncertainty: FloatArray, evaluation: Evaluation) -> dict[str, ArrayLike]:
    """Return AUROC of each column of `uncertainty` with its 95 % interval.

    Args:
        uncertainty: scores of shape (n, A), higher = more uncertain.
        evaluation: the n questions and whether their answers are correct.

    Returns:
        auroc, auroc_low and auroc_high, (A,) each, and interval, `Judgement.interval`. If all
        answers are correct, or all are wrong, the values are NaN and a warning says so.
    """
    one_class = evaluation.one_class()
    if one_class:
        warnings.warn(f"{one_class}, so that AUROC is NaN", stacklevel=2)
    judgement = evaluation.judgement
    return judgement.auroc(uncertainty).columns("auroc") | {"interval": judgement.interval}


def method_columns(
    names: Sequence[str],
    *,
    alphas: Mapping[str, float] | None = None,
    alpha_choice: str = "validation",
) -> dict[str, list[Any]]:
    """Return the columns method and similarity of scores that are named "SE, lexical" or "PRO".

    The similarity, which decides what answers mean the same, is None for methods without one. A
    score that was given with the records keeps its name, such as "SE, given".

    Args:
        names: the names of the scores.
        alphas: α by the name of the score; if it is given, there are two further columns, alpha
            (NaN for scores without α) and alpha_choice (None for these).
        alpha_choice: how these α were chosen.
    """
    parts = [(name, "", "") if name.endswith(", given") else name.partition(", ") for name in names]
    columns: dict[str, list[Any]] = {
        "method": [method for method, _, _ in parts],
        "similarity": [similarity or None for _, _, similarity in parts],
    }
    if alphas is not None:
        columns["alpha"] = [alphas.get(name, np.nan) for name in names]
        columns["alpha_choice"] = [alpha_choice if name in alphas else None for name in names]
    return columns


def nll_comparison_columns(
    uncertainty: FloatArray, evaluation: Evaluation, *, is_nll: ArrayLike = False
) -> dict[str, FloatArray]:
    """Return the paired difference in AUROC between each column of `uncertainty` and NLL.

    Args:
        uncertainty: scores of shape (n, A), higher = more uncertain.
        evaluation: the n questions, whether their answers are correct, and their NLL.
        is_nll: (A,), whether a column is NLL by definition, such as PRO with K = 1.

    Returns:
        n_differ, the fewest questions that must move so that both scores have one order;
        auroc_minus_nll with its 95 % interval, auroc_minus_nll_low and _high; p_value of the
        hypothesis of equal AUROCs (not corrected). Each is (A,), NaN if there are fewer than five
        correct or five wrong answers, or fewer than five clusters.
    """
    nll = evaluation.baselines["NLL"].to_numpy()
    return evaluation.judgement.differences(uncertainty, nll, is_reference=is_nll).columns("nll")


def overview(evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """Return a row per setting: how many answers are correct, and which questions are left out.

    The columns are those of the setting, and

    - judge and n_labels: `labels`, and their number, if correct answers are estimated from labels
      of a sample. There are no such columns without them.
    - accuracy: the share of correct answers.
    - n_above_one: the number of questions whose answers have probabilities that sum to more than 1.
      PRO is not a lower bound of the entropy for them.
    - note: the questions and methods that are left out, and the restrictions of the result.
    """
    tables = []
    for evaluation in evaluations:
        absent = ", ".join(evaluation.unavailable)
        notes = [evaluation.exclusions]
        if absent:
            notes.append(f"Not available: {absent}.")
        notes += [text for text in (evaluation.cautions(), evaluation.note) if text]
        row = {
            "accuracy": evaluation.accuracy,
            "n_above_one": int(scoring.above_one(evaluation.log_probs).sum()),
            "note": " ".join(notes),
        }
        tables.append(with_setting(pd.DataFrame([row]), evaluation))
    return pd.concat(tables, ignore_index=True)
