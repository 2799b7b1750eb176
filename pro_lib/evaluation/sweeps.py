"""Choose α on validation questions, and measure how the choice varies with these questions."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation, Splits, alpha_grid
from pro_lib.metrics.roc import FloatArray


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
