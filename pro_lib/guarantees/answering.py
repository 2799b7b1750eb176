"""Answering only when it is safe: a threshold with a promise on accuracy; knows no score by its formula."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from pro_lib.metrics import aligned

STARTS = (10, 20, 30, 50, 70)  # percent of the questions, fixed beforehand


@dataclass(frozen=True)
class Promise:
    """P(r = 1 | u < threshold) >= target in the *population*; validation misleads with at most 1 - `confidence`.

    Questions answered are a sample, whose accuracy scatters around it. `threshold` is None where nothing is promised,
    infinite where all may be answered. Of `n_validation` questions `n_answered` lie below it, of which `n_right` are
    right. The best promise of `n_scores` scores may be chosen, each having its part of 1 - `confidence`.
    """

    target: float
    confidence: float
    threshold: float | None
    n_answered: int
    n_right: int
    n_validation: int
    n_scores: int

    def answers(self, uncertainty: ArrayLike) -> NDArray[np.bool_]:
        """Which questions to answer, for scores of any shape: those strictly below the threshold, never NaN."""
        return np.asarray(uncertainty, float) < (-np.inf if self.threshold is None else self.threshold)

    def sentence(self) -> str:
        """The promise, for people."""
        sure = f"at least {100 * self.target:g} % right with {100 * self.confidence:g} % confidence"
        if self.threshold is None:
            return f"Nothing can be promised: {self.n_validation} validation questions do not show {sure}."
        which = "every question" if self.threshold == np.inf else f"when the score is below {self.threshold:.4g}"
        share = f"{100 * self.n_answered / self.n_validation:.0f} % of questions"
        return f"Answer {which}: {sure}, {share} ({self.n_right} of {self.n_answered} were)."


def promise(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    target: float,
    confidence: float = 0.95,
    unlabelled: ArrayLike | None = None,
    n_scores: int = 1,
) -> Promise:
    """The largest threshold t for which P(r = 1 | u < t) >= `target` is shown, by exact binomial tests upwards.

    δ = (1 - `confidence`) / `n_scores` is split among five starts, at 10, 20, 30, 50 and 70 % of the questions. Each
    part is handed on from a threshold that passed to the next and lost at one that did not (the fallback procedure,
    Wiens 2003): this passes whatever walks of their own from each start would (Angelopoulos et al. 2021).

    Args:
        uncertainty: scores (m,) of validation questions, higher = more uncertain; infinite ones are never below.
        correct: (m,) booleans.
        unlabelled: scores (n,) of other questions of the population, whose percentiles are the thresholds. None takes
            those of `uncertainty`, for which the promise is not exact: docs/guarantees.md has what was measured.
        n_scores: how many scores are tried for the best promise.

    Raises:
        ValueError: a score is NaN, shapes differ, or `target` or `confidence` is not in (0, 1).
    """
    values, labels = aligned(uncertainty, correct)
    others = np.sort(values if unlabelled is None else np.asarray(unlabelled, float))
    known = others.ndim == 1 and not np.isnan(others).any()
    if not (0 < target < 1 and 0 < confidence < 1 and n_scores >= 1 and known):
        said = f"target={target} and confidence={confidence} must lie between 0 and 1, n_scores={n_scores}"
        raise ValueError(f"{said} be at least 1, unlabelled be scores (n,) without NaN")
    thresholds = np.unique(np.append(others, np.inf)[np.arange(1, 101) * len(others) // 100])
    below, given = np.searchsorted(others, thresholds), np.zeros(len(thresholds))
    for start in STARTS:  # of scores that tie, the first with as many below it
        place = np.searchsorted(below, start * len(others) // 100)
        given[min(place, len(given) - 1)] += (1 - confidence) / n_scores / len(STARTS)
    n, right = (np.searchsorted(np.sort(each), thresholds) for each in (values, values[labels]))
    level, last = 0.0, None
    for place, p_value in enumerate(binom.sf(right - 1, n, target)):
        level += given[place]
        level, last = (level, place) if p_value <= level > 0 else (0.0, last)
    found = (None, 0, 0) if last is None else (float(thresholds[last]), int(n[last]), int(right[last]))
    return Promise(target, confidence, *found, len(values), n_scores)
