"""How much the choice of α varies with the validation questions (notebooks 02 and 06)."""

import warnings

import numpy as np
import pandas as pd

from pro_lib.evaluation.alpha_choice import Splits, select_alpha
from pro_lib.plots.settings import per_setting


@per_setting
def table(splits: Splits, *, quantity: str, seed: int = 0) -> pd.DataFrame:
    """Return how much a quantity varies if α is chosen on other validation questions.

    Each of 200 redraws chooses α on as many questions, drawn from the whole validation split.

    Args:
        splits: the settings.
        quantity: `alpha`, the α chosen, or `auroc`, the AUROC on the reported questions with it.
        seed: the seed of the redraws.

    Returns:
        A row per setting with the columns <quantity>_min, _q25, _median, _q75 and _max, and
        share_better_than_nll, the share of the redraws whose α has a higher AUROC than NLL on the
        reported questions. The values are NaN if there are no other validation questions.
    """
    drawn = redraw(splits, seed=seed)
    quantiles = drawn[quantity].quantile([0, 0.25, 0.5, 0.75, 1])
    names = [f"{quantity}_{part}" for part in ("min", "q25", "median", "q75", "max")]
    row = dict(zip(names, quantiles, strict=True))
    return pd.DataFrame([row | {"share_better_than_nll": drawn["better_than_nll"].mean()}])


def redraw(splits: Splits, *, n_redraws: int = 200, seed: int = 0) -> pd.DataFrame:
    """Return PRO's AUROC on the reported questions for α chosen on redrawn validation questions.

    Each redraw takes as many questions of the pool as α is chosen on, without replacement. A redraw
    with right answers only, or wrong ones only, is repeated.

    Args:
        splits: the validation questions and the reported ones.
        n_redraws: the number of redraws.
        seed: the seed of the redraws.

    Returns:
        A row per redraw with the columns redraw, alpha, auroc and better_than_nll (1 or 0, on the
        reported questions). The last two are NaN if labels of a sample do not suffice for an AUROC.
        If the pool does not have other questions, or has one class, there is one row of NaN, and a
        warning.
    """
    reported = splits.reported
    pool = splits.pool
    n_pool = len(pool.correct)
    n_questions = len(splits.validation.correct)
    reason = pool.one_class()
    if not 2 <= n_questions < n_pool:
        reason = reason or f"α is chosen on {n_questions} of {n_pool}"
    if reason:
        warnings.warn(
            f"{pool.dataset}, {pool.model}: the validation questions cannot be redrawn ({reason}), "
            "so the variation of α over redraws is unknown",
            stacklevel=2,
        )
        row = {"redraw": 0, "alpha": np.nan, "auroc": np.nan, "better_than_nll": np.nan}
        return pd.DataFrame([row])
    rng = np.random.default_rng(seed)
    redrawn: list[float] = []
    while len(redrawn) < n_redraws:
        drawn = pool.select(rng.choice(n_pool, size=n_questions, replace=False))
        if not drawn.one_class():
            redrawn.append(select_alpha(drawn, alphas=splits.alphas))
    alphas, places = np.unique(redrawn, return_inverse=True)
    aurocs = reported.judgement.areas(reported.pro(alphas))[places]
    nll_auroc = reported.judgement.areas(reported.baselines[["NLL"]].to_numpy())[0]
    columns = {
        "redraw": np.arange(n_redraws),
        "alpha": redrawn,
        "auroc": aurocs,
        "better_than_nll": (aurocs > nll_auroc).astype(float),
    }
    rows = pd.DataFrame(columns)
    if reported.judgement.problem:
        rows[["auroc", "better_than_nll"]] = np.nan
    return rows
