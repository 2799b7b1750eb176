"""The tables of selective answering: accuracy by coverage, and calibrated confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.evaluate import Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import method_columns, with_setting

_METHODS = ("NLL", "PRO", "ALL", "PE")
_MEANING_METHODS = ("SE", "SD", "Deg")
_MOST_MEANING_METHODS = 3  # more lines could not be told apart in a figure
_RELIABLE_METHODS = ("PRO", "NLL", "PE")
_LEAST_COVERAGE = 0.02
_RENAMED_BINS = {"n": "n_in_bin", "low": "confidence_min", "high": "confidence_max"}


def accuracy_by_coverage(splits: Sequence[Splits], *, n_points: int = 101) -> pd.DataFrame:
    """Return the accuracy among the least uncertain questions, against the share of them.

    A model that answers only the questions with the smallest scores answers more of them correctly.
    The table has NLL, PRO with α chosen on validation, ALL, PE and the first three methods that
    compare meanings (SE, SD and Deg). The method `oracle` answers all correct answers first.

    Args:
        splits: the settings.
        n_points: number of shares for each method, from 2 % of the questions to all.

    Returns:
        A table with the columns of the setting; method and similarity; alpha and alpha_choice of
        PRO; n_answered, the number of questions answered; coverage, their share; threshold, the
        largest score among them; accuracy on them, with its 95 % Wilson interval (not of `oracle`).
    """
    names = _selected_methods(splits)
    tables = []
    for setting in splits:
        reported = setting.reported
        alpha = chosen_alpha(setting)
        scores = reported.with_pro({"PRO": alpha}).filter(items=names)
        scores["oracle"] = (~reported.correct).astype(float)
        last = len(reported.correct) - 1
        first = np.ceil(_LEAST_COVERAGE * len(reported.correct)) - 1
        places = np.unique(np.linspace(first, last, n_points).round().astype(int))
        for name, values in scores.items():
            curve = metrics.accuracy_coverage(values, reported.correct).iloc[places]
            low, high = metrics.wilson(curve["accuracy"], curve["n_answered"])
            curve = curve.assign(accuracy_low=low, accuracy_high=high)
            if name == "oracle":
                curve[["accuracy_low", "accuracy_high"]] = np.nan
            tables.append(with_setting(_with_method(curve, str(name), alpha), reported))
    return pd.concat(tables, ignore_index=True)


def reliability(
    splits: Sequence[Splits],
    *,
    methods: Sequence[str] = _RELIABLE_METHODS,
) -> pd.DataFrame:
    """Return how often answers are correct, against the confidence that is fitted on validation.

    Isotonic regression on the validation questions turns each score into a probability of a correct
    answer (`metrics.calibration`). The reported questions are divided into ten bins by it.

    Args:
        splits: the settings.
        methods: the names of the scores; PRO has the α chosen on validation.

    Returns:
        A row for each bin that has questions: the columns of the setting; method and similarity;
        alpha and alpha_choice of PRO; ece and brier, of the method; n_in_bin, the number of
        questions; confidence_min, confidence_max and confidence, the smallest, largest and mean
        probability in the bin; accuracy, with its 95 % Wilson interval. A setting has no rows if
        its validation answers are all correct or all wrong, because nothing can be fitted.
    """
    tables = []
    for setting in splits:
        alpha = chosen_alpha(setting)
        for name, fitted in _calibrations(setting, {"PRO": alpha}, methods).items():
            bins = fitted.table.rename(columns=_RENAMED_BINS)
            bins.insert(0, "ece", fitted.ece)
            bins.insert(1, "brier", fitted.brier)
            tables.append(with_setting(_with_method(bins, name, alpha), setting.reported))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def calibration_errors(setting: Splits, alphas: Mapping[str, float]) -> pd.DataFrame:
    """Return ece and brier of every score, in the order of `Evaluation.with_pro(alphas)`.

    Both are NaN if the validation answers are all correct or all wrong.
    """
    names = list(setting.reported.with_pro(alphas))
    fitted = _calibrations(setting, alphas, names)
    errors = [
        (fitted[name].ece, fitted[name].brier) if name in fitted else (np.nan, np.nan)
        for name in names
    ]
    return pd.DataFrame(errors, columns=["ece", "brier"])


def _calibrations(
    setting: Splits,
    alphas: Mapping[str, float],
    methods: Sequence[str],
) -> dict[str, metrics.Calibration]:
    """Return the calibration of scores, by name; none if validation has one class."""
    validation = setting.validation
    reported = setting.reported
    if validation.one_class():
        return {}
    fitted_on = validation.with_pro(alphas)
    scores = reported.with_pro(alphas)
    correct = (validation.correct, reported.correct)
    return {
        name: metrics.calibration(fitted_on[name], correct[0], scores[name], correct[1])
        for name in methods
    }


def _selected_methods(splits: Sequence[Splits]) -> list[str]:
    """Return the names of the scores of `accuracy_by_coverage`."""
    names = dict.fromkeys(name for setting in splits for name in setting.reported.baselines)
    meanings = [name for name in names if method_columns([name])["method"][0] in _MEANING_METHODS]
    return [*_METHODS, *meanings[:_MOST_MEANING_METHODS]]


def _with_method(table: pd.DataFrame, name: str, alpha: float) -> pd.DataFrame:
    """Return the table with the columns method, similarity, alpha and alpha_choice in front."""
    columns = method_columns([name] * len(table), alphas={"PRO": alpha})
    return pd.DataFrame(columns, index=table.index).join(table)
