"""The entropy of answers, estimated from draws, with limits; arrays in and out, knows no model and no run."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pro_lib import scores
from pro_lib.guarantees import anytime

Floats = NDArray[np.float64]


class EntropyEstimate(NamedTuple):
    """An estimate of H(Y) in nats, with a limit on either side, each of the shape `(n,)`."""

    estimate: Floats
    low: Floats
    high: Floats


def from_samples(log_probs: ArrayLike) -> EntropyEstimate:
    """Estimate H(Y) from independent samples of Y: the mean of `-log p`, with Student's 95 % interval of a mean.

    `log_probs` (n, N) are those of the samples, repeats kept, samples cut by length included
    (`Run.outcome_log_probs`). The mean is unbiased. The interval is too narrow where the samples are few and what is
    rare carries the entropy; where all samples agree it has no width at all. NaN with fewer than two samples.
    """
    mean, half_width = scores.predictive_entropy_mc(log_probs), _half_width(-np.asarray(log_probs, float))
    return EntropyEstimate(mean + 0 * half_width, mean - half_width, mean + half_width)


def from_search(
    tree_bound: ArrayLike, mass_left: ArrayLike, draws: ArrayLike, *, most: ArrayLike | None = None
) -> EntropyEstimate:
    """Estimate H(Y) by a search's tree bound (n,) and draws (n, N) of what lies below the mass (n,) it did not expand.

    H(Y) is the tree bound plus the mass times the draws' expectation: an unbiased estimate for a number of draws fixed
    beforehand. The limits are Student's at 95 %, with the failing of those of `from_samples`; or with `most` (n,), the
    most that a draw can be, such as hold whenever one stops drawing (`anytime`).
    """
    tree_bound, mass, draws = (np.asarray(each, float) for each in (tree_bound, mass_left, draws))
    mean, half_width = draws.mean(axis=1), _half_width(draws)
    limits = (np.maximum(mean - half_width, 0.0), mean + half_width) if most is None else anytime.limits(draws, most)
    return EntropyEstimate(*(tree_bound + mass * each for each in (mean, *limits)))


def _half_width(values: Floats) -> Floats:
    """Of Student's 95 % interval of the mean of each row's values, NaN with fewer than two."""
    n = (~np.isnan(values)).sum(axis=1)
    enough = np.where(n > 1, n, np.nan)
    mean = np.nansum(values, axis=1) / enough
    variance = np.nansum((values - mean[:, None]) ** 2, axis=1) / (enough - 1)
    return stats.t.ppf(0.975, enough - 1) * np.sqrt(variance / enough)
