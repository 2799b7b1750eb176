"""AUROC as α varies, the α chosen on validation questions, and redraws of that choice.

Every table is of one setting. Its rows begin with the setting's labels: dataset, model, protocol, split, n_questions.
What needs an α takes `Splits`, chooses it on their validation questions and reports on the others. `low` and `high` are
pointwise 95 % intervals. Where all answers are right, or all wrong, AUROC and interval are NaN, and a warning says so.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import metrics, scoring
from pro_lib.evaluation.evaluate import DRAWN_ALPHAS, Evaluation, Splits, alpha_grid

Alphas = Sequence[float] | None
DEFAULT_ALPHA = 0.4  # what the paper recommends without validation data


def alpha_sweep(evaluation: Evaluation, *, alphas: Alphas = None) -> pd.DataFrame:
    """Return AUROC of PRO and mean K at each α, by default `DRAWN_ALPHAS`: alpha, auroc, mean_kept, low, high."""
    grid = (
        alpha_grid(evaluation.search_alpha, of=DRAWN_ALPHAS) if alphas is None else np.array(alphas)
    )
    mean_kept = scoring.adaptive_k(evaluation.log_probs, grid).mean(axis=0)
    table = pd.DataFrame({"alpha": grid, "auroc": np.nan, "mean_kept": mean_kept})
    return with_aurocs(table, evaluation.pro(grid), evaluation)


def chosen_alpha(splits: Splits, *, name: str = "PRO") -> float:
    """Return the α of PRO, or of another score, that is chosen on the validation questions (`select_alpha`)."""
    return select_alpha(splits.validation, alphas=splits.alphas, name=name)


def select_alpha(validation: Evaluation, *, alphas: Alphas = None, name: str = "PRO") -> float:
    """Return the α with the best AUROC of PRO, or of the score of another name (`Evaluation.pro`), from `ALPHA_GRID`.

    `alphas` are others to choose from. Ties go to the α nearest 0.4, and of two equally near to the smaller. Where all
    answers are right, or all wrong, it is 0.4, and a warning says so.
    """
    if one_class := validation.one_class():
        warnings.warn(
            f"{one_class}: alpha cannot be chosen there, the default {DEFAULT_ALPHA} is taken",
            stacklevel=2,
        )
        return DEFAULT_ALPHA
    grid = np.unique(alpha_grid(validation.search_alpha) if alphas is None else alphas)
    # 0.35 and 0.45 are equally far, rounding aside
    distance = np.round(np.abs(grid - DEFAULT_ALPHA), 12)
    grid = grid[np.argsort(distance, kind="stable")]
    aurocs = metrics.auroc_intervals(validation.pro(grid, name=name), validation.correct)[0]
    return float(grid[aurocs.argmax()])  # equal AUROCs are exactly equal, being counts


def redraw_benchmark(splits: Splits, *, n_redraws: int = 200, seed: int = 0) -> pd.DataFrame:
    """Return PRO's AUROC on the reported split for α chosen on many redraws of the validation questions.

    Each redraw takes as many questions of the pool as α is chosen on, without replacement, and again if they are all
    right or all wrong. Where the pool has no more than that, or one class, nothing can be redrawn: one row of NaN, and
    a warning. Columns: redraw, alpha, auroc (on the reported split), better_than_nll (there; 1 or 0).
    """
    pool, n_questions = splits.pool, len(splits.validation.correct)
    too_many = f"α is chosen on {n_questions} of {len(pool.correct)}"
    if why := pool.one_class() or ("" if 2 <= n_questions < len(pool.correct) else too_many):
        where = f"{pool.dataset}, {pool.model}: the validation questions cannot be redrawn"
        warnings.warn(f"{where} ({why}), so how much α moves is not known", stacklevel=2)
        nothing = {"redraw": [0], "alpha": np.nan, "auroc": np.nan, "better_than_nll": np.nan}
        return labelled(pd.DataFrame(nothing), splits.reported)
    rng, chosen = np.random.default_rng(seed), list[float]()
    while len(chosen) < n_redraws:
        drawn = pool.rows(rng.choice(len(pool.correct), size=n_questions, replace=False))
        if not drawn.one_class():
            chosen.append(select_alpha(drawn, alphas=splits.alphas))
    table = pd.DataFrame({"alpha": chosen}).rename_axis("redraw")
    swept = alpha_sweep(splits.reported, alphas=table["alpha"].unique()).set_index("alpha")["auroc"]
    nll = metrics.auroc(splits.reported.baselines["NLL"], splits.reported.correct)
    table["auroc"] = table["alpha"].map(swept)
    table["better_than_nll"] = (table["auroc"] > nll).astype(float)
    return labelled(table.reset_index(), splits.reported)


def with_aurocs(
    table: pd.DataFrame, uncertainty: ArrayLike, evaluation: Evaluation
) -> pd.DataFrame:
    """Add the labels, and the AUROC of the columns of `uncertainty` (n, A), a row each, with its interval."""
    columns: tuple = (np.nan, np.nan, np.nan)
    clusters = evaluation.answers.get("cluster")
    if one_class := evaluation.one_class():
        warnings.warn(f"{one_class}, so that AUROC is NaN", stacklevel=3)
    else:
        columns = metrics.auroc_intervals(uncertainty, evaluation.correct, clusters=clusters)
    table = table.assign(**dict(zip(("auroc", "low", "high"), columns, strict=True)))
    table["interval"] = "by question" if clusters is None else "by cluster"
    return labelled(table, evaluation)


def labelled(table: pd.DataFrame, setting: Evaluation) -> pd.DataFrame:
    """Put the labels of a setting in front of the table, but for those it has."""
    labels = {name: label for name, label in setting.labels().items() if name not in table}
    return table.assign(**labels)[[*labels, *table.columns]]
