"""The tables of selective answering: accuracy by coverage, and calibrated confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.evaluation import Evaluation, Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import method_columns, with_setting
from pro_lib.metrics.selective import answered_weights

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
        A table with the columns of the setting, and

        - method, similarity, and alpha and alpha_choice of PRO.
        - n_answered: the number of questions answered.
        - coverage: their share.
        - threshold: the largest score among them.
        - accuracy: that of these questions, with its 95 % Wilson interval (not of `oracle`). From
          labels of a sample, it is an estimate, and NaN if fewer than 20 of the answers have a
          label.
    """
    names = _selected_methods(splits)
    tables = []
    for setting in splits:
        reported = setting.reported
        alpha = chosen_alpha(setting)
        scores = reported.with_pro({"PRO": alpha}).filter(items=names)
        scores["oracle"] = (~reported.correct).astype(float)
        places = _curve_places(len(reported.correct), n_points)
        for name, values in scores.items():
            curve = metrics.accuracy_coverage(values, reported.correct).iloc[places]
            if name == "oracle":
                curve = _oracle_curve(curve, reported)
            else:
                curve = _with_accuracy(curve, values, reported)
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
        A row for each bin that has questions, with the columns of the setting, and

        - method, similarity, and alpha and alpha_choice of PRO.
        - ece and brier: those of the method.
        - n_in_bin: the number of questions in the bin.
        - confidence_min, confidence_max and confidence: the smallest, largest and mean probability
          in the bin.
        - accuracy: that of the bin, with its 95 % Wilson interval.

        From labels of a sample, ece is NaN, and accuracy and brier are estimates. There is then a
        bin for every 30 labels, and a bin with fewer than 20 labels has no accuracy.

        A setting has no rows if its validation answers are all correct or all wrong, because
        nothing can be fitted.
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


def _with_accuracy(curve: pd.DataFrame, values: pd.Series, reported: Evaluation) -> pd.DataFrame:
    """Return the curve of a score (n,) with the accuracy and its interval."""
    if reported.sampled_labels is None:
        low, high = metrics.wilson(curve["accuracy"], curve["n_answered"])
        return curve.assign(accuracy_low=low, accuracy_high=high)
    weights = answered_weights(values, curve["n_answered"])
    return curve.assign(**reported.sampled_labels.accuracy_columns(weights))


def _oracle_curve(curve: pd.DataFrame, reported: Evaluation) -> pd.DataFrame:
    """Return the curve of the oracle, which has no intervals.

    Labels of a sample do not say which answers it answers first, only how many are right.
    """
    curve = curve.assign(accuracy_low=np.nan, accuracy_high=np.nan)
    if reported.sampled_labels is None:
        return curve
    accuracy = reported.sampled_labels.oracle_accuracy()[curve.index]
    return curve.assign(threshold=np.nan, accuracy=accuracy)


def _calibrations(
    setting: Splits,
    alphas: Mapping[str, float],
    methods: Sequence[str],
) -> dict[str, metrics.Calibration]:
    """Return the calibration of scores, by name, or none if validation has one class."""
    validation = setting.validation
    reported = setting.reported
    if validation.one_class():
        return {}
    validation_scores = validation.with_pro(alphas)
    scores = reported.with_pro(alphas)
    fitted = {
        name: metrics.calibration(
            validation_scores[name], validation.correct, scores[name], reported.correct
        )
        for name in methods
    }
    labels = reported.sampled_labels
    if labels is None:
        return fitted
    return {name: labels.calibration(values) for name, values in fitted.items()}


def _selected_methods(splits: Sequence[Splits]) -> list[str]:
    """Return the names of the scores of `accuracy_by_coverage`."""
    names = list(dict.fromkeys(name for setting in splits for name in setting.reported.baselines))
    methods = method_columns(names)["method"]  # such as SE, where the name is `SE, lexical`
    with_meanings = [
        name for name, method in zip(names, methods, strict=True) if method in _MEANING_METHODS
    ]
    return [*_METHODS, *with_meanings[:_MOST_MEANING_METHODS]]


def _curve_places(n_questions: int, n_points: int) -> np.ndarray:
    """Return the rows of `metrics.accuracy_coverage` that are drawn, evenly spaced.

    They begin at the least coverage, because the accuracy on very few questions varies much.
    """
    first = np.ceil(_LEAST_COVERAGE * n_questions) - 1
    places = np.linspace(first, n_questions - 1, n_points)
    return np.unique(places.round().astype(int))


def _with_method(table: pd.DataFrame, name: str, alpha: float) -> pd.DataFrame:
    """Return the table with the columns method, similarity, alpha and alpha_choice in front."""
    columns = method_columns([name] * len(table), alphas={"PRO": alpha})
    return pd.DataFrame(columns, index=table.index).join(table)
