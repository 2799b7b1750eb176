"""Controlled worlds, and where PRO can differ from NLL at all: knows distributions and truth, no model and no text.

Which worlds are compared was fixed before any was looked at.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """How questions, answers and truth come about.

    The logits of a question's `meanings` are normal with a deviation drawn uniformly from 0 to twice the `sharpness`.
    Each meaning's probability is split over its `spellings` (uniformly on the simplex). The right meaning is drawn with
    a probability proportional to the model's to the power `calibration` (1: calibrated, above: the model is
    underconfident, below: overconfident), or with probability `outside` it is none of them.
    """

    sharpness: float = 4.0
    meanings: int = 30
    calibration: float = 1.0
    spellings: int = 1
    outside: float = 0.0
    found: str = "most probable"  # or "distinct samples", or "samples", repeats kept
    answers: int = 10

    def questions(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
        """Log-probabilities (n, N) of the answers found, NaN where fewer, and whether the most probable is right."""
        logits = rng.uniform(0, 2 * self.sharpness, (n, 1)) * rng.standard_normal((n, self.meanings))
        truth = _drawn(self.calibration * logits, 1, rng)[:, 0]
        truth[rng.random(n) < self.outside] = -1
        split = np.log(rng.dirichlet(np.ones(self.spellings), logits.shape))
        every = (log_softmax(logits, axis=1)[:, :, None] + split).reshape(n, -1)
        if self.found == "most probable":
            picked = np.argpartition(-every, min(self.answers, every.shape[1]) - 1, axis=1)[:, : self.answers]
        else:
            picked = _drawn(every, self.answers, rng)
        log_probs = np.take_along_axis(every, picked, axis=1)
        correct = picked[np.arange(n), log_probs.argmax(axis=1)] // self.spellings == truth
        if self.found == "distinct samples":
            log_probs[np.triu(picked[:, :, None] == picked[:, None, :], 1).any(axis=1)] = np.nan
        return log_probs, correct


LEVELS = {
    "sharpness": (1.0, 2.0, 4.0, 8.0),
    "meanings": (3, 10, 30, 100),
    "calibration": (0.5, 0.7, 1.0, 1.4, 2.0),
    "spellings": (1, 2, 3, 5),
    "outside": (0.0, 0.2, 0.5),
    "found": ("most probable", "distinct samples", "samples"),
    "answers": (2, 5, 10, 20),
}


def grid() -> Iterator[tuple[str, str, World]]:
    """Panel, level and world: one thing changed at a time, and the number of spellings at each calibration but 1."""
    for name, levels in LEVELS.items():
        yield from ((name, str(level), replace(World(), **{name: level})) for level in levels)
    for power in (0.5, 0.7, 1.4, 2.0):
        for n in LEVELS["spellings"]:
            yield f"spellings, calibration {power:g}", str(n), World(calibration=power, spellings=n)


def least_overtaken(first: ArrayLike, alpha: float) -> Floats:
    """The least p_1 of a question that one with p_1 = `first` can overtake in PRO at `alpha`; NaN where it can none.

    Of distinct complete answers: with α ≤ p_1 ≤ 1 - α PRO is at most -p_1 log p_1 - (1 - p_1) log α (p_2 = α), and
    it is NLL where no second answer reaches α. So a question can come out less certain than one whose own p_1 is
    smaller, but above p_1^p_1 α^(1 - p_1), and than no other; outside of [α, 1 - α] PRO is NLL.
    """
    first = np.asarray(first, float)
    can = (first >= alpha) & (first <= 1 - alpha + 1e-12)
    return np.exp(np.log(first, where=can, out=np.full(can.shape, np.nan)) * first + (1 - first) * np.log(alpha))


def _drawn(logits: Floats, n_draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Positions (n, n_draws) drawn with probabilities of these logits (n, M)."""
    up_to = np.exp(log_softmax(logits, axis=1)).cumsum(axis=1)
    drawn = (rng.random((len(logits), n_draws, 1)) > up_to[:, None, :]).sum(axis=2)
    return np.minimum(drawn, logits.shape[1] - 1)
