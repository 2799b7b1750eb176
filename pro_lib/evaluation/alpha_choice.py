"""Choose the α of PRO for given answers, and measure what the choice is worth.

`sweeps.select_alpha` chooses α on the questions that it is given. This module also tests such a
choice on questions that it did not see, and says when there are too few judged questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtrit

from pro_lib import metrics
from pro_lib.evaluation.evaluation import Evaluation, alpha_grid
from pro_lib.evaluation.sweeps import DEFAULT_ALPHA, nearest_alphas

# With fewer judged questions, a chosen α was worse than 0.4 on some published answers
# (docs/results/experiment_log.md).
FEWEST_JUDGED = 300
FEWEST_OF_A_CLASS = 20
N_SPLITS = 20
_TRIES_PER_SPLIT = 50
_MANY_QUESTIONS = 20_000  # above this number, a quarter of the splits is precise enough


@dataclass(frozen=True)
class Estimate:
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ScoreTest:
    """A score on one half of the questions, at the α of PRO chosen on the other half.

    Attributes:
        auroc: AUROC of the score, averaged over halves and splits.
        minus_nll: the same for AUROC of the score minus AUROC of NLL.
    """

    auroc: Estimate
    minus_nll: Estimate


@dataclass(frozen=True)
class AlphaChoice:
    """The α of PRO, and what choosing it in this way is worth.

    Attributes:
        alpha: the α.
        reason: one sentence that says where α comes from.
        is_chosen: whether α was chosen on judged questions.
        tests: the test of PRO and of every other score with an α, such as S-PRO, by its name. Empty
            if α was not chosen.
        half_alphas: the αs chosen on the halves.
    """

    alpha: float
    reason: str
    is_chosen: bool = False
    tests: Mapping[str, ScoreTest] = field(default_factory=dict)
    half_alphas: tuple[float, ...] = ()


def default_alpha(search_alpha: float | None = None, *, why: str) -> AlphaChoice:
    """Return the paper's default α, 0.4, or the α of an exact search if that is larger.

    Args:
        search_alpha: the α of an exact search; None for other answers.
        why: why α is not chosen, as a clause.

    Example:
        >>> default_alpha(why="no answer is judged").reason
        'α = 0.4, the default: no answer is judged.'
        >>> default_alpha(search_alpha=0.5, why="no answer is judged").alpha
        0.5
    """
    alpha = max(DEFAULT_ALPHA, search_alpha or 0.0)
    return AlphaChoice(alpha, f"α = {alpha:g}, the default: {why}.")


def choose_alpha(evaluation: Evaluation, *, n_splits: int = N_SPLITS, seed: int = 0) -> AlphaChoice:
    """Choose α by the AUROC of PRO, and test the choice on questions that it did not see.

    The questions are split into halves `n_splits` times. Each half is tested at the α that is best
    on the other half, so the reported AUROC is not that of an α tuned on the same questions. The
    questions of a cluster, and copies of a question, stay in the same half.

    Args:
        evaluation: judged answers with their log-probabilities.
        n_splits: number of random splits.
        seed: seed of the splits.

    Returns:
        The α that is best on all questions, with the tested AUROC. α is 0.4 if there are fewer than
        300 judged questions, or fewer than 20 right or 20 wrong answers.

    Example:
        >>> choice = choose_alpha(evaluation)  # doctest: +SKIP
        >>> choice.alpha, choice.tests["PRO"].auroc.value  # doctest: +SKIP
        (0.25, 0.713)
    """
    n_judged = len(evaluation.correct)
    n_right = int(evaluation.correct.sum())
    if n_judged < FEWEST_JUDGED or evaluation.n_rarer < FEWEST_OF_A_CLASS:
        why = (
            f"{n_judged:,} judged questions ({n_right:,} right) are too few to choose α; "
            f"{FEWEST_JUDGED} are needed, with {FEWEST_OF_A_CLASS} right and "
            f"{FEWEST_OF_A_CLASS} wrong answers"
        )
        return default_alpha(evaluation.search_alpha, why=why)
    if n_judged > _MANY_QUESTIONS:
        n_splits = max(1, n_splits // 4)
    halves = list(_halves(evaluation, n_splits, seed))
    if not halves:
        why = "the clusters of questions cannot be split into halves with right and wrong answers"
        return default_alpha(evaluation.search_alpha, why=why)
    tests = _HalfTests(evaluation)
    for half in halves:
        tests.test(chosen_on=half, tested_on=~half)
        tests.test(chosen_on=~half, tested_on=half)
    alpha = tests.best_alpha(np.ones(n_judged, bool))
    alphas = tests.half_alphas
    return AlphaChoice(
        alpha,
        f"α = {alpha:g}, the best on {n_judged:,} judged questions. In {len(halves)} random splits "
        f"into halves, the best α of a half was between {min(alphas):g} and {max(alphas):g}.",
        is_chosen=True,
        tests={name: tests.result(name, alpha) for name in tests.names},
        half_alphas=tuple(alphas),
    )


class _HalfTests:
    """AUROCs of scores on halves of the questions, at the α of PRO chosen on the other half.

    Attributes:
        names: PRO, and the other scores with an α.
        half_alphas: the αs chosen on the halves.
    """

    def __init__(self, evaluation: Evaluation):
        self._evaluation = evaluation
        self._correct = evaluation.correct
        self._nll = evaluation.baselines["NLL"].to_numpy()
        self._alphas = nearest_alphas(alpha_grid(evaluation.search_alpha))
        self.names = ("PRO", *evaluation.meanings)
        self._scores = {name: evaluation.pro(self._alphas, name=name) for name in self.names}
        self._n_tests = np.zeros(len(self._correct))  # of each question
        # The sums of the placements (n,) over the tests, and the AUROC of each test
        self._sums = {name: np.zeros(len(self._correct)) for name in (*self.names, "NLL")}
        self._aurocs: dict[str, list[float]] = {name: [] for name in self._sums}
        self.half_alphas: list[float] = []

    def best_alpha(self, members: NDArray[np.bool_]) -> float:
        """Return the α with the best AUROC on the questions of a mask (n,)."""
        return float(self._alphas[self._best_column(members)])

    def test(self, *, chosen_on: NDArray[np.bool_], tested_on: NDArray[np.bool_]) -> None:
        """Choose α on the questions of one mask (n,), and test it on those of the other."""
        column = self._best_column(chosen_on)
        correct = self._correct[tested_on]
        scores = {name: self._scores[name][:, column] for name in self.names} | {"NLL": self._nll}
        for name, values in scores.items():
            shares = metrics.placements(values[tested_on], correct)
            self._sums[name][tested_on] += shares
            self._aurocs[name].append(float(shares[correct].mean()))
        self._n_tests[tested_on] += 1
        self.half_alphas.append(float(self._alphas[column]))

    def result(self, name: str, alpha: float) -> ScoreTest:
        """Return the test of a score."""
        return ScoreTest(self._auroc(name, alpha), self._difference(name))

    def _auroc(self, name: str, alpha: float) -> Estimate:
        """Return the mean AUROC of the tests, with an interval.

        The interval is that of the AUROC at `alpha` on all questions, moved to the mean of the
        tests. So it has the width that this number of questions gives.
        """
        tested = float(np.mean(self._aurocs[name]))
        column = list(self._alphas).index(alpha)
        [untested], [low], [high] = metrics.auroc_intervals(
            self._scores[name][:, [column]], self._correct, clusters=self._clusters
        )
        low, high = np.clip([low + tested - untested, high + tested - untested], 0, 1)
        return Estimate(tested, float(low), float(high))

    def _difference(self, name: str) -> Estimate:
        """Return the mean AUROC minus that of NLL, with Student's interval.

        The standard error comes from the influence of each question, or of each cluster. The rarer
        class limits the degrees of freedom.
        """
        placement_gains = (self._sums[name] - self._sums["NLL"]) / self._n_tests
        influences = metrics.influence(placement_gains, self._correct)
        n_independent = self._evaluation.n_rarer
        if self._clusters is not None:
            n_independent = min(n_independent, len(np.unique(self._clusters)))
        quantile = -stdtrit(max(n_independent - 1, 1), 0.025)
        half_width = float(quantile) * metrics.influence_error(influences, self._clusters)
        gain = float(np.mean(self._aurocs[name]) - np.mean(self._aurocs["NLL"]))
        return Estimate(gain, gain - half_width, gain + half_width)

    @property
    def _clusters(self) -> pd.Series | None:
        """The clusters of the questions (n,); None if the questions are independent."""
        clusters: pd.Series | None = self._evaluation.answers.get("cluster")
        return clusters

    def _best_column(self, members: NDArray[np.bool_]) -> int:
        """Return the place of the best α on the questions of a mask (n,)."""
        aurocs = metrics.auroc_intervals(self._scores["PRO"][members], self._correct[members])[0]
        # `argmax` takes the first of equal AUROCs, which is the α nearest to 0.4.
        return int(aurocs.argmax())


def _halves(evaluation: Evaluation, n_splits: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Yield masks (n,) of one half of the questions.

    Each half has right and wrong answers.

    There are fewer than `n_splits` masks if most splits have a half of one class.
    """
    groups = _groups(evaluation.answers)
    n_groups = int(groups.max()) + 1
    rng = np.random.default_rng(seed)
    n_found = 0
    for _ in range(n_splits * _TRIES_PER_SPLIT):
        chosen_groups = rng.permutation(n_groups) < n_groups // 2
        half = chosen_groups[groups]
        classes = [evaluation.correct[half], evaluation.correct[~half]]
        if all(labels.any() and not labels.all() for labels in classes):
            n_found += 1
            yield half
        if n_found == n_splits:
            return


def _groups(answers: pd.DataFrame) -> NDArray[np.intp]:
    """Return group numbers (n,): of clusters, otherwise of equal texts, otherwise of questions."""
    for column in ("cluster", "text_number"):
        if column in answers:
            return np.asarray(pd.factorize(answers[column])[0])
    return np.arange(len(answers))
