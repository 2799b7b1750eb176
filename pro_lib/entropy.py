"""The entropy of answers, estimated from draws, with limits; arrays in and out, knows no model and no run."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]


class EntropyEstimate(NamedTuple):
    """An estimate of H(Y) in nats, with a limit on either side, each of the shape `(n,)`."""

    estimate: Floats
    low: Floats
    high: Floats


def from_search(tree_bound: ArrayLike, mass_left: ArrayLike, draws: ArrayLike) -> EntropyEstimate:
    """Estimate H(Y) by a search's tree bound (n,) and draws (n, N) of what lies below the mass (n,) it did not expand.

    H(Y) is the tree bound plus the mass times the draws' expectation: an unbiased estimate for a number of draws fixed
    beforehand. The limits are Student's at 95 %, NaN of one draw, too narrow where draws are few and rare ones carry
    much.
    """
    tree_bound, mass, draws = (np.asarray(each, float) for each in (tree_bound, mass_left, draws))
    mean, n = draws.mean(axis=1), draws.shape[1]
    half_width = stats.t.ppf(0.975, n - 1) * draws.std(axis=1) / np.sqrt(max(n - 1, 1))
    limits = np.maximum(mean - half_width, 0.0), mean + half_width
    return EntropyEstimate(*(tree_bound + mass * each for each in (mean, *limits)))
