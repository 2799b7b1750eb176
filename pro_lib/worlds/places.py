"""Where adding answers moves PRO away from NLL, and which questions it can put in another order; knows no data."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def pro_2_minus_nll(first: ArrayLike, second: ArrayLike) -> Floats:
    """PRO_2 - NLL = (1 - p_1) log(p_1 / p_2) in nats, of any shape; NaN where p_2 > p_1 or p_1 + p_2 > 1."""
    first, second = np.asarray(first, float), np.asarray(second, float)
    possible = (second > 0) & (second <= first) & (first + second <= 1 + 1e-12)
    return (1 - first) * np.log(np.divide(first, second, where=possible, out=np.full(possible.shape, np.nan)))


def least_overtaken(first: ArrayLike, alpha: float) -> Floats:
    """The least p_1 of a question that one with p_1 = `first` can overtake in PRO at `alpha`; NaN where it can none.

    Of distinct complete answers: with α ≤ p_1 ≤ 1 - α PRO is at most -p_1 log p_1 - (1 - p_1) log α (p_2 = α), and
    it is NLL where no second answer reaches α. So a question can come out less certain than one whose own p_1 is
    smaller, but above p_1^p_1 α^(1 - p_1), and than no other; outside of [α, 1 - α] PRO is NLL.
    """
    first = np.asarray(first, float)
    can = (first >= alpha) & (first <= 1 - alpha + 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(can, np.exp(first * np.log(first) + (1 - first) * np.log(alpha)), np.nan)
