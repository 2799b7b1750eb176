"""What any score of the answers' probabilities could reach at most: one learned from the labels; knows no formula."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib import metrics, scores, sweeps
from pro_lib.evaluation import Evaluation, Splits

ENOUGH = 100  # right answers, and wrong ones: from fewer nothing is learned


def learned(log_probs: ArrayLike, correct: ArrayLike, *, seed: int = 0) -> NDArray[np.float64]:
    """Probability (n,) that an answer is wrong, learned from the labels of the other four fifths of the questions.

    Gradient boosting (60 trees of 8 leaves) reads the ten highest of the log-probabilities (n, N), their mass and
    their number; NaN where a question has fewer. Folds are stratified and drawn with `seed`.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import, and needed here only
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    ordered = -np.sort(-np.asarray(log_probs, np.float64), axis=1)
    read = [ordered[:, :10], scores.premise(ordered).mass, np.isfinite(ordered).sum(axis=1)]
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=60, max_leaf_nodes=8, min_samples_leaf=40, random_state=seed
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    said = cross_val_predict(model, np.column_stack(read), ~np.asarray(correct), cv=folds, method="predict_proba")
    return said[:, 1]


def ceiling_table(splits: Iterable[Splits], *, seed: int = 0) -> pd.DataFrame:
    """AUROC on the reported questions of NLL and of the score `learned` from their labels: two rows per setting.

    No method may know the labels; where NLL comes near the ceiling, the setting cannot tell apart scores that read
    these probabilities alone. A better learner may find more. AUROC is NaN where fewer than 100 answers are right, or
    wrong. Columns: dataset, model, split, n_questions, and those of `metrics.bootstrap_auroc`, differences to NLL; the
    intervals leave out what learning varies by.
    """
    return pd.concat([sweeps.labelled(_ceiling(each.reported, seed), each) for each in splits], ignore_index=True)


def _ceiling(reported: Evaluation, seed: int) -> pd.DataFrame:
    correct = reported.correct
    if min(correct.sum(), (~correct).sum()) < ENOUGH:
        return pd.DataFrame({"method": ["NLL", "ceiling"], "auroc": np.nan})
    ceiling = learned(reported.log_probs, correct, seed=seed)
    methods = pd.DataFrame({"NLL": scores.nll(reported.log_probs), "ceiling": ceiling})
    return metrics.bootstrap_auroc(methods, correct, seed=seed, reference="NLL")
