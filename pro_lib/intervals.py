"""95 % intervals of shares and of AUROCs, and what a difference says; arrays in and out, knows no score."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]
MARGIN = 0.01  # AUROCs that differ by less are equal for all that this project reports
_Z, _Z_ONE_SIDED = ndtri(0.975), ndtri(0.95)
# Where (n - 1) a (1 - a) of a class falls to this, what its placements scatter counts as much as the most they could.
_SCARCE = 0.7


def wilson(share: ArrayLike, n: ArrayLike) -> tuple[Floats, Floats]:
    """Lower and upper ends of 95 % score intervals of shares of `n` (Wilson 1927), of any shape; NaN for n = 0.

    In closed form, since within a tie n times an accuracy may be no whole number.
    """
    share, n = np.asarray(share, float), np.asarray(n, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    # Rounding must not leave a little beside what is exact.
    low = np.where((share == 0) & (n > 0), 0.0, middle - half)
    return low, np.where((share == 1) & (n > 0), 1.0, middle + half)


def normal(mean: ArrayLike, standard_error: ArrayLike) -> tuple[Floats, Floats]:
    """Ends of 95 % normal intervals, of any shape."""
    half = _Z * np.asarray(standard_error, float)
    return mean - half, mean + half


def auroc(of_wrong: Floats, of_right: Floats) -> tuple[Floats, Floats]:
    """Ends (A,) of 95 % intervals of AUROCs, from the placements of each class, (A, n_wrong) and (A, n_right).

    Wilson's interval of the AUROC a as of a share, with that n which gives a (1 - a) / n the variance of DeLong, DeLong
    and Clarke-Pearson (1988). The placements of a class can vary by a (1 - a) at most, and few of them, or nearly
    equal ones, say little of how much they do: their part of the most is shrunk towards all of it, with the weight
    1 / (1 + (s / 0.7)³), s = (n - 1) a (1 - a). One answer of a class is enough. Its coverage: docs/intervals.md.
    """
    area, inverse_n = of_wrong.mean(axis=1), 0.0
    for placements in (of_wrong, of_right):
        n = placements.shape[1]
        most = (n - 1) * area * (1 - area)
        squares = n * placements.var(axis=1)
        inverse_n += (most**2 * squares + _SCARCE**3) / (most**3 + _SCARCE**3) / n
    return wilson(area, 1 / inverse_n)


def readings(difference: Floats, standard_error: Floats, n: int, *, margin: float = MARGIN) -> tuple[list[str], Floats]:
    """What differences, shape (A,), of n questions say: `different`, `equivalent`, both or `undecided`; and when.

    *Different*: the 95 % interval is without 0. *Equivalent*: the 90 % interval lies within ± `margin`, which are two
    one-sided tests at 5 % (Schuirmann 1987). Intervals are normal ones; nothing is corrected for the number of
    differences. With it, how many questions (A,) it takes for either to hold if the difference stays and its standard
    error falls with the root of their number: the smaller of n (1.960 e / |d|)² and, for |d| below the margin,
    n (1.645 e / (margin - |d|))². NaN is undecided.
    """
    size = np.abs(difference)
    different, equivalent = size > _Z * standard_error, size + _Z_ONE_SIDED * standard_error < margin
    words = {(0, 0): "undecided", (1, 0): "different", (0, 1): "equivalent", (1, 1): "different and equivalent"}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        to_differ = np.where(size > 0, (_Z * standard_error / size) ** 2, np.inf)
        to_equal = np.where(size < margin, (_Z_ONE_SIDED * standard_error / (margin - size)) ** 2, np.inf)
    needed = np.where(np.isnan(size), np.nan, np.ceil(n * np.minimum(to_differ, to_equal)))
    return [words[pair] for pair in zip(different.tolist(), equivalent.tolist(), strict=True)], needed
