"""Tables of AUROC against α: the sweep, the α chosen on validation, and redraws of that choice."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import scoring
from pro_lib.common import catalog
from pro_lib.evaluation.evaluation import (
    DEFAULT_ALPHA,
    DRAWN_ALPHAS,
    Evaluation,
    Splits,
    alpha_grid,
)
from pro_lib.evaluation.sweeps import chosen_alpha, select_alpha
from pro_lib.evaluation.tables.settings import (
    SETTING_COLUMNS,
    auroc_columns,
    nll_comparison_columns,
    with_setting,
)


def alpha_sweep(splits: Sequence[Splits]) -> pd.DataFrame:
    """Return AUROC of PRO at each α, on the validation questions and on the reported ones.

    Columns: those of the setting; alpha; mean_k, the mean number of answers kept; auroc with its
    interval; the difference to NLL (`settings.nll_comparison_columns`).
    """
    tables = []
    for setting in splits:
        tables.append(alpha_rows(setting.validation))
        tables.append(alpha_rows(setting.reported))
    return pd.concat(tables, ignore_index=True)


def alpha_rows(evaluation: Evaluation, *, alphas: ArrayLike | None = None) -> pd.DataFrame:
    """Return the rows of `alpha_sweep` for one evaluation.

    Args:
        evaluation: the questions.
        alphas: the values of α, (A,); None for those that the figure draws.
    """
    if alphas is None:
        grid = alpha_grid(evaluation.search_alpha, alphas=DRAWN_ALPHAS)
    else:
        grid = np.asarray(alphas, dtype=float)
    scores = evaluation.pro(grid)
    columns = {
        "alpha": grid,
        "mean_k": scoring.adaptive_k(evaluation.log_probs, grid).mean(axis=0),
        **auroc_columns(scores, evaluation),
        **nll_comparison_columns(scores, evaluation),
    }
    return with_setting(pd.DataFrame(columns), evaluation)


def alpha_choices(splits: Sequence[Splits], *, default: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """Return AUROC of PRO on the reported questions for three choices of α.

    The column alpha_choice names the choice. `validation` is the α with the best AUROC on the
    validation questions. `default` is the α of the argument `default`. `oracle` is the α with the
    best AUROC on the reported questions themselves, which shows how much choosing on them would
    add. The other columns are those of `alpha_sweep`.
    """
    tables = []
    for setting in splits:
        alphas = {
            "validation": chosen_alpha(setting),
            "default": default,
            "oracle": select_alpha(setting.reported, alphas=setting.alphas),
        }
        tables.append(_choice_rows(setting.reported, alphas))
    return pd.concat(tables, ignore_index=True)


def redraws(splits: Sequence[Splits], quantity: str, *, seed: int = 0) -> pd.DataFrame:
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
    tables = []
    for setting in splits:
        drawn = redraw_benchmark(setting, seed=seed)
        quantiles = drawn[quantity].quantile([0, 0.25, 0.5, 0.75, 1]).to_numpy()
        names = [f"{quantity}_{part}" for part in ("min", "q25", "median", "q75", "max")]
        row = dict(zip(names, quantiles, strict=True))
        row["share_better_than_nll"] = drawn["better_than_nll"].mean()
        tables.append(with_setting(pd.DataFrame([row]), setting.reported))
    return pd.concat(tables, ignore_index=True)


def printed_alphas(table: pd.DataFrame) -> pd.DataFrame:
    """Return the α and AUROC that the paper printed for the settings of a table.

    Columns: dataset, model, alpha, auroc. There are no rows if the paper has no such settings.
    """
    aurocs = catalog.paper("main_table", table).query("method == 'PRO'")
    return catalog.paper("alpha_per_setting", table).merge(aurocs.drop(columns="method"))


def _choice_rows(evaluation: Evaluation, alphas: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows of one setting at αs that are chosen in different ways."""
    table = alpha_rows(evaluation, alphas=list(alphas.values()))
    table.insert(len(SETTING_COLUMNS), "alpha_choice", list(alphas))
    return table


def redraw_benchmark(splits: Splits, *, n_redraws: int = 200, seed: int = 0) -> pd.DataFrame:
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
    reason = _no_redraws(splits)
    if reason:
        pool = splits.pool
        warnings.warn(
            f"{pool.dataset}, {pool.model}: the validation questions cannot be redrawn ({reason}), "
            "so the variation of α over redraws is unknown",
            stacklevel=2,
        )
        row = {"redraw": 0, "alpha": np.nan, "auroc": np.nan, "better_than_nll": np.nan}
        return pd.DataFrame([row])
    reported = splits.reported
    redrawn = np.array(_redrawn_alphas(splits, n_redraws, seed))
    alphas, places = np.unique(redrawn, return_inverse=True)
    aurocs = reported.judgement.areas(reported.pro(alphas))[places]
    nll_auroc = reported.judgement.areas(reported.baselines[["NLL"]].to_numpy())[0]
    columns = {
        "redraw": np.arange(n_redraws),
        "alpha": redrawn,
        "auroc": aurocs,
        "better_than_nll": (aurocs > nll_auroc).astype(float),
    }
    table = pd.DataFrame(columns)
    if reported.judgement.problem:
        table[["auroc", "better_than_nll"]] = np.nan
    return table


def _no_redraws(splits: Splits) -> str:
    """Return why the validation questions cannot be redrawn, or nothing if they can."""
    n_pool = len(splits.pool.correct)
    n_questions = len(splits.validation.correct)
    one_class = splits.pool.one_class()
    if one_class:
        return one_class
    if 2 <= n_questions < n_pool:
        return ""
    return f"α is chosen on {n_questions} of {n_pool}"


def _redrawn_alphas(splits: Splits, n_redraws: int, seed: int) -> list[float]:
    """Return the α chosen on each redraw of the validation questions."""
    pool = splits.pool
    n_questions = len(splits.validation.correct)
    rng = np.random.default_rng(seed)
    alphas: list[float] = []
    while len(alphas) < n_redraws:
        rows = rng.choice(len(pool.correct), size=n_questions, replace=False)
        redraw = pool.rows(rows)
        if not redraw.one_class():
            alphas.append(select_alpha(redraw, alphas=splits.alphas))
    return alphas
