"""Sets of answers that contain a right one: split conformal on what an exact search found; knows no run and no text.

`right` has the shape (m,): the probability of the most probable right answer to each validation question, and less
than the search's α, as 0, where none with so much was found (*censored*) or the search was undecided.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta


@dataclass(frozen=True)
class AnswerSets:
    """The sets {y : p(y) >= tau}: P(a set is issued and holds no right answer) <= delta.

    Over validation *and* the question asked; given that a set is issued it may miss more often. A set may be empty,
    which is a miss. `tau` is None where the place it stands at is censored: then no set is issued, for any question.
    """

    delta: float
    tau: float | None
    n_validation: int
    n_censored: int

    def holds(self, log_probs: ArrayLike) -> NDArray[np.bool_]:
        """Which answers (n, N) the sets of n questions hold; none where no set is issued."""
        return np.exp(log_probs) >= (np.inf if self.tau is None else self.tau)

    def sentence(self) -> str:
        """The promise, for people."""
        found = f"(the search found no right answer to {self.n_censored} of {self.n_validation} validation questions)"
        if self.tau is None:
            return f"No set can be issued for δ = {self.delta:g} {found}."
        said = f"Take every answer with p ≥ {self.tau:.4g}: the set is without a right one"
        return f"{said} with probability at most {self.delta:g} {found}."


def answer_sets(right: ArrayLike, *, delta: float, search_alpha: float) -> AnswerSets:
    """Split conformal prediction: tau is the ⌊δ (m + 1)⌋-th smallest of `right` (m,), if that is not censored.

    Raises `ValueError` for a `delta` outside (0, 1), or `right` that are no probabilities.
    """
    values = np.sort(_known(right, search_alpha))
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie between 0 and 1")
    place = int(round(delta * (len(values) + 1), 9))  # 0.29 of 100 are 29, rounding aside
    tau = float(values[place - 1]) if place else 0.0
    return AnswerSets(delta, tau or None, len(values), int((values == 0).sum()))


def miss_rate(right: ArrayLike, *, alpha: float, search_alpha: float, confidence: float = 0.95) -> tuple[float, float]:
    """The share of `right` (m,) below an α fixed beforehand, and the upper limit of q = P({p >= α} holds none right).

    The limit is Clopper and Pearson's, one-sided. Raises `ValueError` for an `alpha` below `search_alpha`, or m = 0.
    """
    values = _known(right, search_alpha)
    if alpha < search_alpha or not values.size:
        raise ValueError(f"alpha={alpha} must be at least search_alpha={search_alpha}, and right hold a question")
    missed = int((values < alpha).sum())
    limit = beta.ppf(confidence, missed + 1, len(values) - missed) if missed < len(values) else 1.0
    return missed / len(values), float(limit)


def _known(right: ArrayLike, search_alpha: float) -> NDArray[np.float64]:
    values = np.asarray(right, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise ValueError("right must be probabilities (m,), 0 where no right answer was found")
    return np.where(values >= search_alpha, values, 0.0)
