"""How far a server's log-probabilities may be off, told from repeats; knows numbers, no search and no HTTP."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# What sums of probabilities in float32, or told with few digits, may be off.
ROUNDING = 1e-3
_MOST = 100.0


@dataclass(frozen=True)
class Noise:
    """What is taken to bound the errors of a server, in nats.

    Each log-probability is within `stated` of the model's own, listed or not; what repeats show besides is within
    `measured`, for log-odds, log p/(1 - p), so that likely events are off by less. Where what the server tells does
    not add up (`sums_to_one`), nothing is known of 1 - p, and either number is for log-probabilities.
    """

    stated: float
    measured: float = 0.0
    sums_to_one: bool = True

    @property
    def epsilon(self) -> float:
        """By how much a log-probability may be off at most."""
        return max(self.stated, self.measured)

    def off(self, p: float, sign: int) -> float:
        """By how many nats an event told to have p may be more (sign 1) or less probable (-1)."""
        if not self.sums_to_one or p <= 0:
            return self.epsilon
        others = max(0.0, 1.0 - p)
        shift = -others / p * math.expm1(-sign * self.stated)
        stated = min(self.stated, sign * math.log1p(shift)) if shift > -1 else self.stated
        measured = -sign * math.log1p(others * math.expm1(-sign * self.measured))
        return min(self.epsilon, max(stated, measured) + ROUNDING)


def noise_of(places: Sequence[Sequence[Mapping[object, float]]], *, stated: float) -> Noise:
    """The noise of a server, from what it listed (token -> log-probability) at each place in several repeats.

    What is measured is the largest difference between two repeats, twice the smallest error that explains it: a
    margin, no bound. What all repeats have in common, such as another precision, cannot be seen; `stated` is for it.
    """
    sums_to_one = max(sum(map(math.exp, each.values())) for repeats in places for each in repeats) <= 1 + ROUNDING
    scale, measured = _log_odds if sums_to_one else float, 0.0
    for repeats in places:
        for token in set().union(*repeats):
            values = [scale(each[token]) for each in repeats if token in each]
            measured = max(measured, max(values) - min(values))
    return Noise(min(stated, _MOST), min(measured, _MOST), sums_to_one)


def _log_odds(log_prob: float) -> float:
    log_prob = min(log_prob, math.log1p(-ROUNDING))  # nearer to 1 it is rounding
    return log_prob - math.log1p(-math.exp(log_prob))
