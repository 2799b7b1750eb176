"""The table of all settings from a function for one setting, and the columns that tables share."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import scoring
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import Evaluation, with_columns_in_front
from pro_lib.evaluation.methods import split_name
from pro_lib.labels.sampled_verdicts import BY_LABELS
from pro_lib.metrics.roc import FloatArray
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
Columns: TypeAlias = Mapping[str, Any] | pd.DataFrame | list[pd.DataFrame]


def per_setting(columns: Callable[..., Columns]) -> Callable[..., pd.DataFrame]:
    """Turn a function of one setting into the function of all settings.

    The new function takes a list of settings, which are `Splits` or `Evaluation`, and passes its
    other arguments on. It puts the columns of each setting in front of the rows.

    Args:
        columns: a function that returns the columns of one setting, which are about its reported
            questions; or a list of tables that have the columns of the setting (`with_setting`).

    Example:
        >>> @per_setting
        ... def table(evaluation):
        ...     return {"mean_nll": [evaluation.baselines["NLL"].mean()]}
        >>> from pro_lib import evaluation
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> judged = evaluation.evaluate(import_answers(catalog.EXAMPLE))
        >>> table([judged])["mean_nll"].round(2).item()
        2.16
    """

    @wraps(columns)
    def table_of_all(settings: Iterable[Splits | Evaluation], **options: Any) -> pd.DataFrame:
        tables: list[pd.DataFrame] = []
        for setting in settings:
            rows = columns(setting, **options)
            if isinstance(rows, list):
                tables += rows
                continue
            reported = setting.reported if isinstance(setting, Splits) else setting
            tables.append(with_setting(rows, reported))
        return pd.concat(tables, ignore_index=True)

    return table_of_all


def with_setting(rows: Any, evaluation: Evaluation) -> pd.DataFrame:
    """Return the table of some rows or columns, with the columns of the setting in front.

    If the evaluation has labels of a sample, there are two further columns, unless the table has a
    column judge already: judge, with the value `labels`, and n_labels.
    """
    setting = {
        **evaluation.setting,
        "n_correct": evaluation.n_correct,
        "n_unlabelled": evaluation.n_unlabelled,
        "correctness": evaluation.judgement.rule,
    }
    table = pd.DataFrame(rows)
    columns = {} if "judge" in table else evaluation.judgement.columns()
    return with_columns_in_front(table, setting | columns)


def with_run(rows: Any, run: Run, split: str) -> pd.DataFrame:
    """Return a table about the answers of a run, whatever the protocol, with the setting in front.

    Columns: dataset, model, strategy, split and n_questions, then those of the rows or columns.
    """
    setting: dict[str, str | int] = {
        "dataset": run.info.dataset,
        "model": run.info.model,
        "strategy": run.info.strategy,
        "split": split,
        "n_questions": len(run.questions),
    }
    return with_columns_in_front(pd.DataFrame(rows), setting)


def aurocs(
    scores: FloatArray, evaluation: Evaluation, *, is_nll: ArrayLike = False
) -> dict[str, ArrayLike]:
    """Return AUROC of each column of `scores`, and its paired difference to NLL.

    Args:
        scores: uncertainties of shape (n, A), higher = more uncertain.
        evaluation: the n questions, whether their answers are correct, and their NLL.
        is_nll: (A,), whether a column is NLL by definition, such as PRO with K = 1.

    Returns:
        auroc with its 95 % interval, auroc_low and auroc_high; interval, `Judgement.interval`;
        n_differ, the fewest questions that must move so that both scores have one order;
        auroc_minus_nll with its 95 % interval; p_value of the hypothesis of equal AUROCs (not
        corrected). Differences are NaN if there are fewer than five correct or five wrong answers,
        or fewer than five clusters. If all answers are correct, or all are wrong, AUROC is NaN and
        a warning says so.
    """
    one_class = evaluation.one_class()
    if one_class:
        warnings.warn(f"{one_class}, so that AUROC is NaN", stacklevel=2)
    judgement = evaluation.judgement
    columns = judgement.auroc(scores).columns("auroc") | {"interval": judgement.interval}
    nll = evaluation.baselines["NLL"].to_numpy()
    return columns | judgement.differences(scores, nll, is_reference=is_nll).columns("nll")


def method_aurocs(
    scores: pd.DataFrame, evaluation: Evaluation, *, alphas: Mapping[str, float]
) -> dict[str, ArrayLike]:
    """Return the columns of `method_columns` and of `aurocs` for scores with these names."""
    methods = method_columns(list(scores), alphas=alphas)
    return methods | aurocs(scores.to_numpy(), evaluation, is_nll=scores.columns == "NLL")


def difference_to(method: str, table: pd.DataFrame, setting: list[str]) -> pd.Series:
    """Return AUROC minus that of a method, whose rows have the same values of `setting`."""
    reference = table[table["method"] == method].set_index(setting)["auroc"]
    return table["auroc"] - table[setting].join(reference, on=setting)["auroc"]


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
    parts = list(map(split_name, names))
    columns: dict[str, list[Any]] = {
        "method": [method for method, _ in parts],
        "similarity": [similarity or None for _, similarity in parts],
    }
    if alphas is not None:
        columns["alpha"] = [alphas.get(name, np.nan) for name in names]
        columns["alpha_choice"] = [alpha_choice if name in alphas else None for name in names]
    return columns


@per_setting
def overview(setting: Splits | Evaluation) -> list[pd.DataFrame]:
    """Return a row per setting: how many answers are correct, and which questions are left out.

    `Splits` have two rows: the questions that α is chosen on, and the reported ones. The columns
    are those of the setting, and

    - judge and n_labels: `labels`, and their number, if correct answers are estimated from labels
      of a sample. There are no such columns without them.
    - accuracy: the share of correct answers.
    - n_above_one: the number of questions whose answers have probabilities that sum to more than 1.
      PRO is not a lower bound of the entropy for them.
    - note: the questions and methods that are left out, and the restrictions of the result.
    """
    known = [setting.validation, setting.reported] if isinstance(setting, Splits) else [setting]
    tables = []
    for evaluation in known:
        row = {
            "accuracy": evaluation.accuracy,
            "n_above_one": int(scoring.above_one(evaluation.log_probs).sum()),
            "note": " ".join([evaluation.exclusions, *evaluation.remarks()]),
        }
        tables.append(with_setting([row], evaluation))
    return tables


# --- Columns that several tables have ---


def method_labels(table: pd.DataFrame) -> pd.Series:
    """Return the method of each row, with its similarity in parentheses if it has one."""
    methods = table["method"].astype(str)
    if "similarity" not in table:
        return methods
    with_similarity = methods + " (" + table["similarity"].astype(str) + ")"
    labels = np.where(table["similarity"].isna(), methods, with_similarity)
    return pd.Series(labels, index=table.index)


def counted_methods(table: pd.DataFrame) -> list[str]:
    """Return the methods of a table, each with its number of rows, the most frequent first.

    Example:
        >>> counted_methods(pd.DataFrame({"method": ["SE", "PE", "PE"]}))
        ['PE (2)', 'SE (1)']
    """
    counts = method_labels(table).value_counts()
    return [f"{name} ({n})" for name, n in counts.items()]


def is_by_labels(table: pd.DataFrame) -> bool:
    """Return whether labels of a sample estimate the values of all rows.

    Example:
        >>> is_by_labels(pd.DataFrame({"judge": ["labels", "rouge_l"]}))
        False
    """
    return "judge" in table and bool((table["judge"] == BY_LABELS).all())
