"""The tables behind the figures of a report on scored answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.scored_answers import ScoredAnswers

# With fewer judged questions, or fewer right or wrong answers in a half, a fit says nothing.
_FEWEST_CALIBRATED = 40
_FEWEST_OF_A_CLASS = 5
_N_POINTS = 101


def auroc_table(scored: ScoredAnswers) -> pd.DataFrame:
    """Return AUROC of every method with its interval, for `plots.benchmark`.

    Raises:
        OneClassError: all judged answers are right, or all are wrong.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.evaluation import score_answers
        >>> from pro_lib.importing import import_answers
        >>> scored = score_answers(import_answers(catalog.EXAMPLE), methods=["PRO", "PE"])
        >>> auroc_table(scored)[["method", "auroc"]].round(3).values.tolist()
        [['PRO', 0.772], ['PE', 0.468]]
    """
    table = scored.comparison[["method", "auroc", "low", "high"]]
    return table.rename(columns={"low": "auroc_low", "high": "auroc_high"})


def risk_coverage(scored: ScoredAnswers, methods: Sequence[str]) -> pd.DataFrame:
    """Return the share of wrong answers against the share of questions that are answered.

    The most certain questions are answered first.

    Args:
        scored: scored answers that are judged.
        methods: the names of the methods.

    Returns:
        A table with the columns method, coverage, risk, and its 95 % Wilson interval, risk_low and
        risk_high. The method `oracle` answers all right answers first.

    Example:
        >>> from pro_lib.common import catalog
        >>> from pro_lib.evaluation import score_answers
        >>> from pro_lib.importing import import_answers
        >>> scored = score_answers(import_answers(catalog.EXAMPLE), methods=["NLL"])
        >>> table = risk_coverage(scored, ["NLL"])
        >>> table[["coverage", "risk"]].round(3).head(2).values.tolist()
        [[0.01, 0.0], [0.019, 0.0]]
    """
    scores = scored.judged_scores()
    correct = scored.judged().correct
    columns = {name: scores[name] for name in methods if name in scores}
    columns["oracle"] = pd.Series((~correct).astype(float))
    first = min(len(correct) - 1, 4)  # the risk of fewer than five answers is 0 or large
    places = np.unique(np.linspace(first, len(correct) - 1, _N_POINTS).round().astype(int))
    tables = []
    for name, values in columns.items():
        curve = metrics.accuracy_coverage(values, correct).iloc[places]
        low, high = metrics.wilson(curve["accuracy"], curve["n_answered"])
        rows = {
            "method": name,
            "coverage": curve["coverage"],
            "risk": 1 - curve["accuracy"],
            "risk_low": 1 - high,
            "risk_high": 1 - low,
        }
        tables.append(pd.DataFrame(rows))
    return pd.concat(tables, ignore_index=True)


def calibration_table(
    scored: ScoredAnswers, methods: Sequence[str], *, seed: int = 0
) -> pd.DataFrame:
    """Return how often answers are right, against a confidence fitted on other questions.

    Isotonic regression on a random half of the judged questions turns each score into a probability
    of a right answer. The other half is divided into bins by it. Questions of a cluster stay in one
    half.

    Args:
        scored: scored answers that are judged.
        methods: the names of the methods.
        seed: the seed of the halves.

    Returns:
        A table for `plots.reliability`, with the columns method, confidence, accuracy, n_in_bin,
        accuracy_low, accuracy_high and ece. It is empty if there are too few judged questions.
    """
    evaluation = scored.judged()
    correct = evaluation.correct
    groups = evaluation.answers.get("cluster", pd.Series(np.arange(len(correct))))
    codes = np.asarray(pd.factorize(groups)[0])
    n_groups = int(codes.max()) + 1
    is_fitted = (np.random.default_rng(seed).permutation(n_groups) < n_groups // 2)[codes]
    halves = (correct[is_fitted], correct[~is_fitted])
    n_rarer = min(min(half.sum(), (~half).sum()) for half in halves)
    if len(correct) < _FEWEST_CALIBRATED or n_rarer < _FEWEST_OF_A_CLASS:
        return pd.DataFrame()
    scores = scored.judged_scores()
    tables = []
    for name in methods:
        if name not in scores:
            continue
        values = scores[name].to_numpy()
        fitted = metrics.calibration(
            values[is_fitted], correct[is_fitted], values[~is_fitted], correct[~is_fitted]
        )
        bins = fitted.table.rename(columns={"n": "n_in_bin"}).drop(columns=["low", "high"])
        tables.append(bins.assign(method=name, ece=fitted.ece))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
