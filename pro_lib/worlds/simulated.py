"""Questions drawn from a world, and which worlds are compared; knows no score. Fixed before any was looked at."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax


@dataclass(frozen=True)
class World:
    """How questions, answers and truth come about.

    A question has `n_meanings`; their logits are normal with a deviation drawn uniformly from 0 to twice the
    `sharpness`. Each meaning's probability is split over `n_spellings` (uniformly on the simplex). The right meaning is
    drawn with a probability proportional to the model's to the power `calibration` (1: calibrated, above: the model
    is underconfident, below: overconfident), or with probability `outside` it is none of them.
    """

    sharpness: float = 4.0
    n_meanings: int = 30
    calibration: float = 1.0
    n_spellings: int = 1
    outside: float = 0.0
    found: str = "most probable"  # or "distinct samples", or "samples", repeats kept
    n_answers: int = 10


BASE = World()
_LEVELS = {
    "sharpness": (1.0, 2.0, 4.0, 8.0),
    "n_meanings": (3, 10, 30, 100),
    "calibration": (0.5, 0.7, 1.0, 1.4, 2.0),
    "n_spellings": (1, 2, 3, 5),
    "outside": (0.0, 0.2, 0.5),
    "found": ("most probable", "distinct samples", "samples"),
    "n_answers": (2, 5, 10, 20),
}


def grid() -> Iterator[tuple[str, str, World]]:
    """Panel, level and world: one thing changed at a time, and spellings at each calibration but 1."""
    for name, levels in _LEVELS.items():
        yield from ((name, str(level), replace(BASE, **{name: level})) for level in levels)
    for power in (each for each in _LEVELS["calibration"] if each != 1):
        for n in _LEVELS["n_spellings"]:
            yield f"n_spellings, calibration {power:g}", str(n), replace(BASE, calibration=power, n_spellings=n)


def questions(world: World, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Log-probabilities (n, N) of the answers found, NaN where fewer, and whether the most probable is right (n,)."""
    logits = rng.uniform(0, 2 * world.sharpness, (n, 1)) * rng.standard_normal((n, world.n_meanings))
    truth = _drawn(world.calibration * logits, 1, rng)[:, 0]
    truth[rng.random(n) < world.outside] = -1
    split = np.log(rng.dirichlet(np.ones(world.n_spellings), logits.shape))
    every = (log_softmax(logits, axis=1)[:, :, None] + split).reshape(n, -1)
    if world.found == "most probable":
        picked = np.argsort(-every, axis=1)[:, : world.n_answers]
    else:
        picked = _drawn(every, world.n_answers, rng)
    log_probs = np.take_along_axis(every, picked, axis=1)
    correct = np.take_along_axis(picked, log_probs.argmax(axis=1)[:, None], axis=1)[:, 0] // world.n_spellings == truth
    if world.found == "distinct samples":
        log_probs[np.triu(picked[:, :, None] == picked[:, None, :], 1).any(axis=1)] = np.nan
    return log_probs, correct


def _drawn(logits: NDArray, n_draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Positions (n, n_draws) drawn with probabilities of these logits (n, M)."""
    up_to = np.exp(log_softmax(logits, axis=1)).cumsum(axis=1)
    drawn = (rng.random((len(logits), n_draws, 1)) > up_to[:, None, :]).sum(axis=2)
    return np.minimum(drawn, logits.shape[1] - 1)
