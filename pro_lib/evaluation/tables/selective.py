"""The tables of selective answering: accuracy by coverage, and calibrated confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib import metrics
from pro_lib.evaluation.evaluation import Evaluation, Splits
from pro_lib.evaluation.judgement import Estimate
from pro_lib.evaluation.methods import base_name, kinds_of_figures
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.evaluation.tables.settings import method_columns, with_setting

_MOST_MEANING_METHODS = 3  # more lines could not be told apart in a figure
_LEAST_COVERAGE = 0.02
_RENAMED_BINS = {"n": "n_in_bin", "low": "confidence_min", "high": "confidence_max"}


def accuracy_by_coverage(
    splits: Sequence[Splits], *, methods: Sequence[str] | None = None, n_points: int = 101
) -> pd.DataFrame:
    """Return the accuracy among the least uncertain questions, against the share of them.

    A model that answers only the questions with the smallest scores answers more of them correctly.
    The table has NLL, PRO with α chosen on validation, ALL, PE and the first three methods that
    compare meanings (SE, SD and Deg). The method `oracle` answers all correct answers first.

    Args:
        splits: the settings.
        methods: the names of the scores; None for those above.
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
    names = _selected_methods(splits) if methods is None else methods
    tables = []
    for setting in splits:
        reported = setting.reported
        alpha = chosen_alpha(setting)
        scores = reported.with_pro({"PRO": alpha}).filter(items=names)
        places = _curve_places(len(scores), n_points)
        for name, curve in accuracy_curves(reported, scores, places + 1).items():
            tables.append(with_setting(_with_method(curve, name, alpha), reported))
    return pd.concat(tables, ignore_index=True)


def reliability(
    splits: Sequence[Splits],
    *,
    methods: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return how often answers are correct, against the confidence that is fitted on validation.

    Isotonic regression on the validation questions turns each score into a probability of a correct
    answer (`metrics.calibration`). The reported questions are divided into ten bins by it.

    Args:
        splits: the settings.
        methods: the names of the scores; None for those that figures of calibration draw. PRO has
            the α chosen on validation.

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
        names = methods
        if names is None:
            every = ["PRO", *setting.reported.baselines]
            names = [name for name in every if kinds_of_figures(name) == 3]
        for name, fitted in _calibrations(setting, {"PRO": alpha}, names).items():
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


def accuracy_curves(
    evaluation: Evaluation, scores: pd.DataFrame, n_answered: NDArray[np.intp]
) -> dict[str, pd.DataFrame]:
    """Return the accuracy among the k least uncertain questions, for some k.

    Args:
        evaluation: the judged questions.
        scores: a column per method, (n, M).
        n_answered: the values of k, (A,).

    Returns:
        By the name of the method a table with the columns n_answered, coverage, threshold, and
        accuracy with its interval. `oracle` answers all correct answers first; it has no interval.
    """
    judgement = evaluation.judgement
    oracle_scores, oracle_accuracies = judgement.oracle()
    unknown = np.full(len(n_answered), np.nan)
    oracle = Estimate(oracle_accuracies[n_answered - 1], unknown, unknown)
    accuracies = {
        str(name): (values, judgement.accuracy_at(values, n_answered))
        for name, values in scores.items()
    }
    tables = {}
    for name, (values, accuracy) in (accuracies | {"oracle": (oracle_scores, oracle)}).items():
        columns = {
            "n_answered": n_answered,
            "coverage": n_answered / len(scores),
            "threshold": np.sort(values)[n_answered - 1],
            **accuracy.columns("accuracy"),
        }
        tables[name] = pd.DataFrame(columns)
    return tables


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
    return {name: reported.judgement.check(values) for name, values in fitted.items()}


def _selected_methods(splits: Sequence[Splits]) -> list[str]:
    """Return the names of the scores of `accuracy_by_coverage`, NLL first."""
    names = ["PRO", *(name for setting in splits for name in setting.reported.baselines)]
    drawn = [name for name in dict.fromkeys(names) if kinds_of_figures(name) >= 2]
    with_meanings = [name for name in drawn if base_name(name) != name]
    left_out = with_meanings[_MOST_MEANING_METHODS:]
    return sorted([name for name in drawn if name not in left_out], key=lambda name: name != "NLL")


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
