"""Limits of a mean that hold at every number of draws at once; arrays in and out, knows not what is drawn.

Hedged capital with predictable plug-in bets (Waudby-Smith and Ramdas 2024, arXiv 2010.09686, theorem 3): were the mean
m, whoever bets on draws above it, or on draws below it, would hardly ever win much; a mean against which much was won
is refused.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# Any bets that look back only are valid. These expect draws in the lowest twentieth of their range, and little spread,
# where theirs expect its middle; they risk 0.9 of what is there at most, theirs a half.
_MEAN, _VARIANCE, _RISK = 0.05, 0.01, 0.9


def limits(draws: ArrayLike, most: ArrayLike, *, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Lower and upper limits (n,) of the mean of draws (n, N), each between 0 and `most` (n,); NaN behind the last.

    With probability `confidence` the mean lies within the limits of the first draw, of the first two, …, all at once:
    one may look after each and stop when one likes. What is returned is their intersection. It can be empty (low above
    high) where the draws are not of one mean. ValueError for a draw that is out of its range.
    """
    draws, most = np.asarray(draws, float), np.asarray(most, float)[:, None]
    if ((draws < -1e-6) | (draws > most * (1 + 1e-6) + 1e-6)).any():
        raise ValueError(f"draws must lie between 0 and the most they can be, not at {np.nanmax(draws - most):g} above")
    shares = np.clip(np.divide(draws, most, out=np.zeros_like(draws), where=most > 0), 0, 1)
    t = np.arange(1, shares.shape[1] + 1)
    means = (_MEAN + shares.cumsum(axis=1)) / (t + 1)
    variances = (_VARIANCE + ((shares - means) ** 2).cumsum(axis=1)) / (t + 1)
    before = np.column_stack([np.full(len(shares), _VARIANCE), variances])[:, :-1]
    needed = np.log(2 / (1 - confidence))
    bets = np.sqrt(2 * needed / (before * t * np.log(t + 1)))
    return most[:, 0] * _low(shares, bets, needed), most[:, 0] * (1 - _low(1 - shares, bets, needed))


def _low(shares: Floats, bets: Floats, needed: float) -> Floats:
    """The least mean (n,) that is not refused; what bets above a mean win falls as it rises, so it can be halved in."""
    low, high = np.zeros(len(shares)), np.ones(len(shares))
    for _ in range(40):
        middle = (low + high) / 2
        won = np.log1p(np.minimum(bets, _RISK / middle[:, None]) * (shares - middle[:, None]))
        refused = np.nan_to_num(won).cumsum(axis=1).max(axis=1, initial=0.0) >= needed
        low, high = np.where(refused, middle, low), np.where(refused, high, middle)
    return low
