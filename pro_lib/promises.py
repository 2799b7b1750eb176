"""What may be promised: when to answer, sets with a right answer, the probability of being right; asks no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from pro_lib import imports, runs, scores, selective, store
from pro_lib.evaluation import Evaluation, evaluate
from pro_lib.metrics import aligned
from pro_lib.runs import Run
from pro_lib.selective import Calibration

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


# What must be the same of a run for its PRO to say anything of another's; how far down a search looked need not be.
_MATTERS = ("chat", "diversity_penalty", "dtype", "fingerprint", "header", "max_new_tokens", "n_answers", "shots")
_MATTERS += ("stop", "strategy", "temperature", "template", "top_p")


@dataclass(frozen=True)
class Calibrated:
    """PRO at `alpha` as a probability of being right: fitted on some questions of a run, checked on its others.

    Calibrated is not guaranteed: what it is worth on the questions that did not enter the fit is `ece`, and on other
    questions than the run's it is worth what these have in common.
    """

    run: Run
    alpha: float
    n_fitted: int
    n_checked: int
    checked: Calibration

    def probability(self, uncertainty: float) -> float:
        """The probability that an answer of this PRO (nats) is right; NaN of NaN."""
        return float(self.checked.fit([uncertainty])[0]) if uncertainty == uncertainty else np.nan

    def sentence(self) -> str:
        """What it was fitted on, and how far it is off elsewhere."""
        fitted = f"calibrated on {self.n_fitted:,} questions of {self.run.info.dataset}"
        return f"{fitted}, error {self.checked.ece:.3f} on {self.n_checked:,} others"

    def check(self, parameters: Mapping[str, object], alpha: float) -> None:
        """Raise `ValueError` if answers made with these parameters, or scored at another α, are not the run's kind."""
        ours, theirs = ({name: of.get(name) for name in _MATTERS} for of in (self.run.info.parameters, parameters))
        differs = store.difference(ours, theirs)
        if differs or alpha != self.alpha:
            differs = differs or f"alpha={self.alpha:g}, now alpha={alpha:g}"
            raise ValueError(f"calibration: run {self.run.name} was made with {differs}")


def calibrated(run: Run | str | Path, *, alpha: float = 0.4) -> Calibrated:
    """Fit on the validation questions of a run, or on a half of them where there is no such split; check on the others.

    `run` is one, or its folder. Raises `RunError` for one without right answers known, `OneClassError` where all are
    right, or all wrong, and `ValueError` as `scores.pro` does.
    """
    run = run if isinstance(run, Run) else runs.read(run)
    if "validation" not in set(run.questions["split"]):
        run = replace(run, questions=run.questions.assign(split=None))  # so that one is drawn
    both = imports.split_records(run, n_validation=None)
    fitted, others = evaluate(both, split="validation"), evaluate(both, split="test")

    def pro(judged: Evaluation) -> np.ndarray:
        return scores.pro(judged.log_probs, alpha=alpha, search_alpha=run.search_alpha)

    checked = selective.calibration(pro(fitted), fitted.correct, pro(others), others.correct)
    return Calibrated(run, alpha, len(fitted.correct), len(others.correct), checked)
