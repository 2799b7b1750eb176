"""Estimated shares of answers, such as accuracy, from labels of some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pro_lib.evaluation.labels.estimator import sum_by_unit
from pro_lib.evaluation.labels.inference import Sample, Scope, scoped_variance
from pro_lib.evaluation.labels.intervals import share_interval

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Shares:
    """Estimates of A shares, with 95 % intervals.

    Attributes:
        share: (A,); NaN if the estimate is not between 0 and 1.
        low: (A,) lower ends of the intervals.
        high: (A,) upper ends of the intervals.
        n_labels: (A,) the number of labels among the answers of each share.
    """

    share: FloatArray
    low: FloatArray
    high: FloatArray
    n_labels: NDArray[np.intp]

    def hidden(self, is_hidden: NDArray[np.bool_]) -> Shares:
        """Return the shares with NaN where `is_hidden` (A,)."""
        nothing = np.nan
        return replace(
            self,
            share=np.where(is_hidden, nothing, self.share),
            low=np.where(is_hidden, nothing, self.low),
            high=np.where(is_hidden, nothing, self.high),
        )


def estimate_shares(
    sample: Sample,
    codes: NDArray[np.intp],
    weights: FloatArray,
    *,
    scope: Scope = "population",
    clusters: NDArray[np.intp] | None = None,
) -> Shares:
    """Estimate weighted shares of right answers, or of answers that a judge is right about.

    Args:
        sample: the labels of the G units.
        codes: (n,) number of the unit of each answer.
        weights: (A, n) how much each answer counts. A right answer counts towards the share if its
            weight is positive, and a wrong one if it is negative. Answers with 0 are left out.
        scope: "population" or "questions".
        clusters: (G,) numbers of clusters of units; None for independent units.

    Returns:
        The shares. Their intervals treat the weights as fixed.

    Example:
        >>> labels = [1.0, 0.0, 1.0, 1.0]
        >>> all_first = ([True] * 4, [1.0] * 4)
        >>> sample = Sample.from_design(labels, *all_first, [[0.0]] * 4, n_first=4, n_second=0)
        >>> weights = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 0.0]])
        >>> estimate_shares(sample, np.arange(4), weights, scope="questions").share
        array([0.75, 1.  ])
    """
    right = sample.pseudo[codes]
    sizes = np.abs(weights)
    total = sizes.sum(axis=1, keepdims=True)
    values = np.where(weights < 0, 1 - right, right) * sizes
    share = values.sum(axis=1) / total[:, 0]
    share = np.where((share >= 0) & (share <= 1), share, np.nan)
    n_units = len(sample.labels)
    # How each label changes a share, and the influence of each answer as a draw from the population
    influence = sum_by_unit(weights / total, codes, n_units)
    population = sum_by_unit(
        (values - np.nan_to_num(share)[:, None] * sizes) / total, codes, n_units
    )
    variance = scoped_variance(sample, influence, population, scope, clusters)
    is_used = sum_by_unit(sizes, codes, n_units) > 0
    n_labels = (is_used & ~np.isnan(sample.labels)).sum(axis=1)
    return Shares(share, *share_interval(share, *variance), n_labels)
