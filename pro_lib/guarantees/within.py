"""A score that is only known within limits, and what its AUROC can be then; knows arrays, no search."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pro_lib import metrics, scores
from pro_lib.metrics import Floats


def open_mass(certificates: pd.DataFrame) -> Floats:
    """The mass (n,) that searches left open and that may hide answers with p ≥ their α; 0 unless undecided.

    `certificates` has the columns of `decoding.Certificate`; where masses are missing, all that was not found counts.
    """
    left = certificates["length_cut_mass"] + certificates["budget_cut_mass"]
    return left.fillna(1 - certificates["found_mass"]).where(certificates["status"] == "undecided", 0.0).to_numpy()


def pro_within(
    log_probs: ArrayLike, open_mass: ArrayLike, *, alpha: ArrayLike, search_alpha: float
) -> tuple[Floats, Floats]:
    """Limits (n,), or (n, A), of PRO of *all* answers with p ≥ alpha, or of the mode's NLL where there are none.

    `log_probs` (n, N) are what an exact search found, `open_mass` (n,) what may hide answers of any length. Where an
    answer reaches alpha, nothing lowers PRO more than one answer of the whole open mass would, and nothing raises it
    above the α-floor of what was found. Elsewhere the mode is at least the best answer found, and at most the largest
    of that, of the open mass and of search_alpha. Where nothing is in doubt both are PRO. Rounding is left aside.
    """
    ordered, asked = -np.sort(-np.asarray(log_probs), axis=1), {"alpha": np.atleast_1d(alpha)}
    pro, floor = scores.pro(ordered, search_alpha=search_alpha, **asked), scores.alpha_floor(ordered, **asked)
    smallest = np.take_along_axis(ordered, scores.adaptive_k(ordered, **asked) - 1, axis=1)
    left, best, log_alpha = np.maximum(np.asarray(open_mass), 1e-300)[:, None], ordered[:, :1], np.log(asked["alpha"])
    lower = pro - np.maximum(left * (np.log(left) - smallest), 0)
    low = np.where(best >= log_alpha, lower, -np.maximum(np.maximum(best, np.log(left)), np.log(search_alpha)))
    high = np.where((best >= log_alpha) & (left >= asked["alpha"]), floor, pro)
    return tuple(ends.reshape(len(ordered), *np.shape(alpha)) for ends in (low, high))


def auroc_within(low: ArrayLike, high: ArrayLike, correct: ArrayLike) -> tuple[Floats, Floats]:
    """The least and the largest AUROC, (A,) each, of uncertainties (n, A) that lie in [low, high]; ties count half.

    Wrong answers at their upper ends and right ones at their lower give the largest, the reverse the least. The
    difference of two such AUROCs is bounded by that of their ends, loosely, since one answer serves both. Raises as
    `metrics.auroc` does.
    """
    low, high, right = np.asarray(low), np.asarray(high), np.asarray(correct)[:, None]
    ends = np.where(right, high, low), np.where(right, low, high)
    return tuple(metrics.auroc_columns(each, correct) for each in ends)


def pro_auroc_within(
    log_probs: ArrayLike, correct: ArrayLike, *, open_mass: ArrayLike | None, **known: ArrayLike
) -> dict[str, Floats]:
    """By name, auroc_least and auroc_most (A,) of PRO (`pro_within`) of answers (n, N); nothing without a search."""
    if open_mass is None or len(set(np.asarray(correct).tolist())) < 2:
        return {}
    ends = auroc_within(*pro_within(log_probs, open_mass, **known), correct)
    return dict(zip(("auroc_least", "auroc_most"), ends, strict=True))
