"""Choose α on validation questions, and measure how the choice varies with these questions."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation, Splits, alpha_grid
from pro_lib.metrics.auroc import FloatArray


def chosen_alpha(splits: Splits, *, name: str = "PRO") -> float:
    """Return the α that is chosen on the validation questions (`select_alpha`).

    Args:
        splits: the validation questions and the reported ones.
        name: PRO, or another score that needs an α (`Evaluation.pro`).

    Returns:
        The α.
    """
    return select_alpha(splits.validation, alphas=splits.alphas, name=name)


def select_alpha(
    validation: Evaluation, *, alphas: Sequence[float] | None = None, name: str = "PRO"
) -> float:
    """Return the α with the best AUROC.

    If several are best, the one nearest to 0.4 is returned, and of two equally near ones the
    smaller. If all answers are right, or all wrong, the result is 0.4, with a warning.

    Args:
        validation: the questions.
        alphas: the values to choose from; None for `ALPHA_GRID`.
        name: PRO, or another score that needs an α (`Evaluation.pro`).

    Returns:
        The α.

    Example:
        >>> from pro_lib import evaluation
        >>> from pro_lib.common import catalog
        >>> from pro_lib.importing import import_answers
        >>> judged = evaluation.evaluate(import_answers(catalog.EXAMPLE)).judged
        >>> select_alpha(judged, alphas=[0.1, 0.4])
        0.1
    """
    one_class = validation.one_class()
    if one_class:
        warnings.warn(
            f"{one_class}, so alpha cannot be chosen on them; the default {DEFAULT_ALPHA} is used",
            stacklevel=2,
        )
        return DEFAULT_ALPHA
    nearest_first = nearest_alphas(
        alpha_grid(validation.search_alpha) if alphas is None else alphas
    )
    scores = validation.pro(nearest_first, name=name)
    aurocs = validation.judgement.areas(scores)
    # `argmax` takes the first of equal AUROCs, which are exactly equal because they are counts.
    return float(nearest_first[aurocs.argmax()])


def nearest_alphas(alphas: ArrayLike) -> FloatArray:
    """Return the different values of α, those nearest to 0.4 first.

    Args:
        alphas: the values (A,).

    Returns:
        The values without repeats, at most A. If two are equally near, the smaller one is first.
    """
    grid = np.unique(alphas)
    # Rounding makes 0.35 and 0.45 equally far from 0.4.
    distances = np.round(np.abs(grid - DEFAULT_ALPHA), 12)
    return np.asarray(grid[np.argsort(distances, kind="stable")])


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
