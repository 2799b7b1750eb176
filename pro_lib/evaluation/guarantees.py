"""Guarantee an accuracy of selective answers, and sets that contain a right answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc, betaincinv

from pro_lib.metrics.roc import aligned
from pro_lib.questions.repeats import one_per_text

# The coverages at which the tests start, in percent of the questions. They are fixed beforehand.
STARTS = (10, 20, 30, 50, 70)


@dataclass(frozen=True)
class Guarantee:
    """The guarantee that P(r = 1 | u < threshold) >= target holds in the *population*.

    The probability that validation questions show this although it is false is at most
    1 - `confidence`.

    Attributes:
        target: the accuracy that is guaranteed.
        confidence: 1 minus the largest share of draws of validation questions that lead to a false
            guarantee.
        threshold: the score below which to answer; None if nothing is guaranteed, infinite if every
            question may be answered.
        n_answered: the number of validation questions below the threshold.
        n_right: the number of these that are right.
        n_validation: the number of validation questions.
        n_repeats: further validation questions, which repeat a text and were left out.
    """

    target: float
    confidence: float
    threshold: float | None
    n_answered: int
    n_right: int
    n_validation: int
    n_repeats: int = 0

    def answers(self, uncertainty: ArrayLike) -> NDArray[np.bool_]:
        """Return which questions to answer.

        Args:
            uncertainty: scores of any shape, higher = more uncertain.

        Returns:
            Truth values of that shape: whether a score is below the threshold; False for NaN.
        """
        scores = np.asarray(uncertainty, float)
        threshold = -np.inf if self.threshold is None else self.threshold
        return np.asarray(scores < threshold)

    def sentence(self, *, questions: str = "validation questions") -> str:
        """Return the guarantee as a sentence, with a name for the questions that show it."""
        goal = f"at least {100 * self.target:g} % right with {100 * self.confidence:g} % confidence"
        repeats = ""
        if self.n_repeats:
            repeats = f" {self.n_repeats} {questions} that repeat a text were left out."
        if self.threshold is None:
            return (
                f"Nothing can be guaranteed: {self.n_validation} {questions} do not show {goal}."
                f"{repeats}"
            )
        condition = "every question"
        if self.threshold != np.inf:
            condition = f"when the score is below {self.threshold:z.4g}"
        share = f"{100 * self.n_answered / self.n_validation:.0f} % of questions"
        counts = f"{self.n_right} of {self.n_answered} were"
        return f"Answer {condition}: {goal}, {share} ({counts}).{repeats}"


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
    """Return the largest threshold t for which P(r = 1 | u < t) >= `target` is shown.

    Exact binomial tests are made at increasing thresholds. δ = 1 - `confidence` is split among five
    starts, at 10, 20, 30, 50 and 70 % of the questions. If the test at a threshold rejects, its
    level is passed on to the next threshold; otherwise it is lost. This is the fallback procedure
    (Wiens 2003). It rejects whatever separate sequences of tests from each start would reject
    (Angelopoulos et al. 2021).

    Args:
        uncertainty: scores (m,) of validation questions, higher = more uncertain. The score +∞ is
            never below a threshold.
        correct: (m,); True for a right answer.
        target: the accuracy to guarantee, between 0 and 1.
        confidence: 1 minus the largest share of draws of validation questions that lead to a false
            guarantee, between 0 and 1.
        unlabelled: scores (n,) of other questions of the population, whose percentiles are the
            thresholds. None takes those of `uncertainty`, for which the guarantee is not exact;
            docs/explanation/guarantees.md has measurements.
        texts: the text of each validation question (m,). The binomial tests need independent
            questions, and copies of one question are not, so one question of each text is drawn
            with `seed`. The guarantee is then about a population of different questions. None means
            that no question is repeated.
        seed: the seed of that draw.

    Returns:
        The guarantee; its threshold is None if nothing is shown.

    Raises:
        ValueError: a score is NaN, shapes differ, or `target` or `confidence` is not in (0, 1).

    Example:
        >>> scores = np.arange(100) / 100
        >>> guarantee(scores, scores < 0.5, target=0.8).threshold
        0.54
    """
    values, labels = aligned(uncertainty, correct)
    drawn = _one_of_each(texts, len(values), seed)
    n_repeats = len(values) - len(drawn)
    values = values[drawn]
    labels = labels[drawn]
    population = np.sort(values if unlabelled is None else np.asarray(unlabelled, float))
    _check_between_0_and_1("target", target)
    _check_between_0_and_1("confidence", confidence)
    n_missing = int(np.isnan(population).sum())
    if n_missing:
        raise ValueError(f"unlabelled must be scores (n,) without NaN; {n_missing} are NaN")
    percentiles = np.append(population, np.inf)[np.arange(1, 101) * len(population) // 100]
    thresholds = np.unique(percentiles)
    levels = _starting_levels(thresholds, population, 1 - confidence)
    n_answered = np.searchsorted(np.sort(values), thresholds)
    n_right = np.searchsorted(np.sort(values[labels]), thresholds)
    # The probability of so many right answers or more, if the accuracy were the target.
    p_values = bdtrc(n_right - 1, n_answered, target)
    last = _last_rejected(p_values, levels)
    shown: tuple[float | None, int, int] = (None, 0, 0)
    if last is not None:
        shown = (float(thresholds[last]), int(n_answered[last]), int(n_right[last]))
    return Guarantee(target, confidence, *shown, len(values), n_repeats)


def _starting_levels(
    thresholds: NDArray[np.float64], population: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return the part of δ that starts at each threshold.

    A start is at the first threshold with as many scores of the (sorted) population below it.
    """
    n_below = np.searchsorted(population, thresholds)
    levels = np.zeros(len(thresholds))
    for start in STARTS:
        place = int(np.searchsorted(n_below, start * len(population) // 100))
        levels[min(place, len(levels) - 1)] += delta / len(STARTS)
    return levels


def _last_rejected(p_values: NDArray[np.float64], levels: NDArray[np.float64]) -> int | None:
    """Return the last place at which the fallback procedure rejects, or None if it never does."""
    last = None
    level = 0.0
    for place, p_value in enumerate(p_values):
        level += levels[place]
        if p_value <= level and level > 0:
            last = place
        else:
            level = 0.0
    return last


def set_threshold(
    right: ArrayLike,
    *,
    delta: float,
    search_alpha: float,
    texts: ArrayLike | None = None,
    seed: int = 0,
) -> float | None:
    """Return the threshold τ of answer sets {y : p(y) >= τ} by split conformal prediction.

    τ is the ⌊δ (m + 1)⌋-th smallest of `right`. Then P(a set is issued and holds no right answer)
    <= `delta`, over the validation questions *and* the new question. Given that a set is issued it
    may miss more often. An empty set is a miss.

    Args:
        right: the probability of the most probable right answer to each validation question (m,), 0
            if none was found.
        delta: the probability of a miss, between 0 and 1.
        search_alpha: the α of the search. Smaller probabilities are unknown (censored).
        texts: the texts of the questions, as in `guarantee`.
        seed: the seed of the draw, as in `guarantee`.

    Returns:
        τ; None if it is censored. Then no set is issued for any question.

    Raises:
        ValueError: `delta` is not in (0, 1), or `right` are not probabilities.

    Example:
        >>> right = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
        >>> set_threshold(right, delta=0.3, search_alpha=0.1)
        0.3
    """
    values = np.sort(_right(right, search_alpha, texts, seed))
    _check_between_0_and_1("delta", delta)
    # Without the rounding, 0.29 of 100 would be 28.
    rank = min(len(values), int(round(delta * (len(values) + 1), 9)))
    # `_right` sets probabilities below `search_alpha` to 0.
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
    """Return the share of questions whose set at a fixed α misses, and its upper limit.

    The limit is Clopper and Pearson's, one-sided.

    Args:
        right: the probability of the most probable right answer to each validation question (m,), 0
            if none was found.
        alpha: the α of the sets, which was fixed beforehand.
        search_alpha: the α of the search.
        confidence: the probability that the limit holds.
        texts: the texts of the questions, as in `guarantee`.
        seed: the seed of the draw, as in `guarantee`.

    Returns:
        The share of the validation questions, and the upper limit of the probability.

    Raises:
        ValueError: `alpha` is below `search_alpha`, or there are no questions.

    Example:
        >>> share, limit = miss_rate([0.5, 0.3, 0.0, 0.2], alpha=0.1, search_alpha=0.1)
        >>> share, round(limit, 2)
        (0.25, 0.75)
    """
    values = _right(right, search_alpha, texts, seed)
    _check_between_0_and_1("confidence", confidence)
    if alpha < search_alpha:
        problem = "the search did not look for answers in between"
        raise ValueError(f"alpha={alpha} is below search_alpha={search_alpha}: {problem}")
    if not values.size:
        raise ValueError("right is empty; give the probability for at least one question")
    n = len(values)
    n_missed = int((values < alpha).sum())
    limit = 1.0
    if n_missed < n:
        limit = float(betaincinv(n_missed + 1, n - n_missed, confidence))
    return n_missed / n, limit


def _check_between_0_and_1(name: str, value: float) -> None:
    """Raise `ValueError` for a value that is not above 0 and below 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name}={value} must lie between 0 and 1")


def _one_of_each(texts: ArrayLike | None, n: int, seed: int) -> NDArray[np.intp]:
    """Return the rows of one question of each text, or all rows if there are no texts."""
    if texts is None:
        return np.arange(n)
    texts = np.asarray(texts, dtype=object)
    if texts.shape != (n,):
        raise ValueError(
            f"texts must have the shape ({n},), a text for each validation question, "
            f"not {texts.shape}"
        )
    return one_per_text(texts, seed=seed)


def _right(
    right: ArrayLike, search_alpha: float, texts: ArrayLike | None, seed: int
) -> NDArray[np.float64]:
    """Return probabilities, 0 for those below the α of the search, one for each text."""
    values = np.asarray(right, dtype=np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise ValueError("right must be probabilities (m,), 0 where no right answer was found")
    values = np.where(values >= search_alpha, values, 0.0)
    return values[_one_of_each(texts, len(values), seed)]
