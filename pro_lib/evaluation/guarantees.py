"""What may be guaranteed: when to answer, sets with a right answer, the probability of being right; asks no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from pro_lib import importing, metrics
from pro_lib.evaluation.evaluate import evaluate
from pro_lib.metrics.auroc import aligned, need_both
from pro_lib.questions.repeats import one_per_text
from pro_lib.runs.run import Run

STARTS = (10, 20, 30, 50, 70)  # percent of the questions, fixed beforehand


@dataclass(frozen=True)
class Guarantee:
    """P(r = 1 | u < threshold) >= target in the *population*; validation misleads with at most 1 - `confidence`.

    `threshold` is None where nothing is guaranteed, infinite where all may be answered. Of `n_validation` questions
    `n_answered` lie below it, of which `n_right` are right. `n_repeats` further ones repeat a text and were left out.
    """

    target: float
    confidence: float
    threshold: float | None
    n_answered: int
    n_right: int
    n_validation: int
    n_repeats: int = 0

    def answers(self, uncertainty: ArrayLike) -> NDArray[np.bool_]:
        """Return which questions to answer, for scores of any shape: those below the threshold, never NaN."""
        return np.asarray(uncertainty, float) < (
            -np.inf if self.threshold is None else self.threshold
        )

    def sentence(self) -> str:
        """Say the guarantee."""
        sure = f"at least {100 * self.target:g} % right with {100 * self.confidence:g} % confidence"
        repeats = ""
        if self.n_repeats:
            repeats = f" {self.n_repeats} validation questions that repeat a text were left out."
        if self.threshold is None:
            return f"Nothing can be guaranteed: {self.n_validation} validation questions do not show {sure}.{repeats}"
        which = (
            "every question"
            if self.threshold == np.inf
            else f"when the score is below {self.threshold:z.4g}"
        )
        share = f"{100 * self.n_answered / self.n_validation:.0f} % of questions"
        return (
            f"Answer {which}: {sure}, {share} ({self.n_right} of {self.n_answered} were).{repeats}"
        )


def guarantee(
    uncertainty: ArrayLike,
    correct: ArrayLike,
    *,
    target: float,
    confidence: float = 0.95,
    unlabelled: ArrayLike | None = None,
    texts: ArrayLike | None = None,
    seed: int = 0,
) -> Guarantee:
    """Return the largest threshold t for which P(r = 1 | u < t) >= `target` is shown, by exact binomial tests upwards.

    δ = 1 - `confidence` is split among five starts, at 10, 20, 30, 50 and 70 % of the questions. Each part is handed on
    from a threshold that passed to the next, and lost at one that did not: the fallback procedure (Wiens 2003). What
    walks of their own from each start pass (Angelopoulos et al. 2021), this passes too.

    Args:
        uncertainty: scores (m,) of validation questions, higher = more uncertain; infinite ones are never below.
        correct: (m,) booleans.
        unlabelled: scores (n,) of other questions of the population, whose percentiles are the thresholds. None takes
            those of `uncertainty`, for which the guarantee is not exact: docs/guarantees.md has what was measured.
        texts: (m,), the text of each validation question. The binomial tests need independent questions, and copies of
            one question are not: one question of each text is drawn with `seed`, and the others are left out. The
            guarantee is then about a population of different questions. None says that no question is repeated.
        seed: seed of that draw.

    Raises `ValueError` where a score is NaN, shapes differ, or `target` or `confidence` is not in (0, 1).
    """
    values, labels = aligned(uncertainty, correct)
    drawn = _one_of_each(texts, len(values), seed)
    n_repeats = len(values) - len(drawn)
    values, labels = values[drawn], labels[drawn]
    others = np.sort(values if unlabelled is None else np.asarray(unlabelled, float))
    if not (0 < target < 1 and 0 < confidence < 1 and not np.isnan(others).any()):
        message = f"target={target} and confidence={confidence} must lie between 0 and 1"
        raise ValueError(f"{message}, unlabelled must be scores (n,) without NaN")
    thresholds = np.unique(np.append(others, np.inf)[np.arange(1, 101) * len(others) // 100])
    below, levels = np.searchsorted(others, thresholds), np.zeros(len(thresholds))
    for start in STARTS:  # of scores that tie, the first with as many below it
        place = int(np.searchsorted(below, start * len(others) // 100))
        levels[min(place, len(levels) - 1)] += (1 - confidence) / len(STARTS)
    n, right = (np.searchsorted(np.sort(of), thresholds) for of in (values, values[labels]))
    level, last = 0.0, None
    for place, p_value in enumerate(binom.sf(right - 1, n, target)):
        level += levels[place]
        level, last = (level, place) if p_value <= level > 0 else (0.0, last)
    if last is None:
        return Guarantee(target, confidence, None, 0, 0, len(values), n_repeats)
    counts = int(n[last]), int(right[last]), len(values), n_repeats
    return Guarantee(target, confidence, float(thresholds[last]), *counts)


def set_threshold(
    right: ArrayLike,
    *,
    delta: float,
    search_alpha: float,
    texts: ArrayLike | None = None,
    seed: int = 0,
) -> float | None:
    """Return τ of the sets {y : p(y) >= τ} by split conformal prediction: the ⌊δ (m + 1)⌋-th smallest of `right` (m,).

    P(a set is issued and holds no right answer) <= `delta`, over validation *and* the question asked; given that a set
    is issued it may miss more often. A set may be empty, which is a miss. None where the place of τ is censored: then
    no set is issued, for any question. `texts` and `seed` as in `guarantee`. Raises `ValueError` for a `delta` outside
    (0, 1), or `right` that are no probabilities.
    """
    values = _right(right, search_alpha)
    values = np.sort(values[_one_of_each(texts, len(values), seed)])
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie between 0 and 1")
    # 0.29 of 100 are 29, rounding aside
    rank = min(len(values), int(round(delta * (len(values) + 1), 9)))
    # `_right` makes 0 of what is below `search_alpha`
    is_censored = rank == 0 or values[rank - 1] == 0
    return None if is_censored else float(values[rank - 1])


def miss_rate(
    right: ArrayLike,
    *,
    alpha: float,
    search_alpha: float,
    confidence: float = 0.95,
    texts: ArrayLike | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the share of `right` (m,) below an α fixed beforehand, and the upper limit of its chance.

    The limit is Clopper and Pearson's, one-sided. `texts` and `seed` as in `guarantee`. Raises `ValueError` for an
    `alpha` below `search_alpha`, or m = 0.
    """
    values = _right(right, search_alpha)
    values = values[_one_of_each(texts, len(values), seed)]
    if alpha < search_alpha or not values.size or not 0 < confidence < 1:
        words = f"alpha={alpha} must be at least search_alpha={search_alpha}, right hold a question"
        raise ValueError(f"{words}, and confidence={confidence} lie between 0 and 1")
    missed = int((values < alpha).sum())
    limit = beta.ppf(confidence, missed + 1, len(values) - missed) if missed < len(values) else 1.0
    return missed / len(values), float(limit)


def _one_of_each(texts: ArrayLike | None, n: int, seed: int) -> NDArray[np.intp]:
    """Return the rows that a guarantee rests on: one of each text, or all."""
    if texts is None:
        return np.arange(n)
    texts = np.asarray(texts, dtype=object)
    if texts.shape != (n,):
        raise ValueError(
            f"texts must have the shape ({n},), a text for each validation question, not {texts.shape}"
        )
    return one_per_text(texts, seed=seed)


def _right(right: ArrayLike, search_alpha: float) -> NDArray[np.float64]:
    values = np.asarray(right, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise ValueError("right must be probabilities (m,), 0 where no right answer was found")
    return np.where(values >= search_alpha, values, 0.0)


def right_probability(
    run: Run, *, alpha: float = 0.4
) -> tuple[Callable[[ArrayLike], NDArray[np.float64]], str]:
    """Fit the probability that an answer is right to PRO at `alpha`: the function, and a sentence about the fit.

    The function takes PRO (n,) in nats. It is fitted on the validation questions of the run, or on a half where there
    is no such split, and checked on the others, each time on one question of each text. A wrong answer at its lowest
    score and a right one at its highest are added, so that no probability is 0 or 1. Calibrated is not guaranteed.
    Raises `RunError` for a run without right answers known, `OneClassError` where all are right, or all wrong, and
    `ValueError` as `scoring.pro` does.
    """
    if "validation" not in set(run.questions["split"]):
        run = replace(run, questions=run.questions.assign(split=None))  # so that one is drawn
    both = importing.split_records(run, n_validation=None)
    fitted = evaluate(both, split="validation").one_per_text()
    others = evaluate(both, split="test").one_per_text()
    need_both(fitted.correct, "a calibration")
    uncertainty = fitted.pro(alpha)
    ends = (
        np.append(uncertainty, [uncertainty.min(), uncertainty.max()]),
        np.append(fitted.correct, [False, True]),
    )
    calibration = metrics.calibration(*ends, others.pro(alpha), others.correct)
    fit = f"calibrated on {len(fitted.correct):,} questions of {run.info.dataset}"
    return calibration.fit, f"{fit}, error {calibration.ece:.3f} on {len(others.correct):,} others"
