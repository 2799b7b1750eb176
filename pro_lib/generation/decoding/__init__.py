"""Decode answers in a prefix tree.

This package uses only token ids and log-probabilities.
"""

from pro_lib.generation.decoding.strategies import (
    STRATEGIES,
    DiverseBeam,
    Greedy,
    Multinomial,
    Strategy,
    Threshold,
    strategy,
)

__all__ = [
    "STRATEGIES",
    "DiverseBeam",
    "Greedy",
    "Multinomial",
    "Strategy",
    "Threshold",
    "strategy",
]
