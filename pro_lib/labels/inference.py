"""AUROCs and shares from labels of some answers: pure functions of arrays, in float64.

An answer without a label, or with a label and an inclusion probability, is represented by a
pseudo-label, a number whose expectation is the true label. The constants of the intervals were
chosen by simulation; docs/results/experiment_log.md has what was tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, stdtr, stdtrit

from pro_lib.evaluation.judgement import Estimate
from pro_lib.metrics.roc import (
    FEWEST_CLUSTERS,
    BoolArray,
    FloatArray,
    IntArray,
    sum_by_group,
    tie_numbers,
    weight_below,
)

Scope = Literal["population", "questions"]
SCOPES = ("population", "questions")
_PRIOR_TERMS = 2.0  # residuals that the label model adds to those seen
_FREEDOM = 3.0  # degrees of freedom for each effective term of a variance
_CLUSTER_FREEDOM = 1.5  # the same for clusters, whose sums vary more
_LEAST_FREEDOM = 1.5


def label_weights(
    labels: FloatArray,
    is_first: BoolArray,
    probabilities: FloatArray,
    *,
    n_first: int,
    n_second: int,
) -> FloatArray:
    """Return how many answers each label stands for, (G,), with the expectation 1 for every answer.

    The labels of both phases are combined in proportion to their numbers k₁ and k₂. With k = k₁ +
    k₂, a label of the first phase has the weight G / k, and one of the second phase n₂ / (k (1 - n₁
    / G) π). If some of the answers that were chosen have no label, because the person stopped early
    or could not decide, the others stand for them.

    Args:
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        is_first: (G,) whether the answer was chosen in the first phase.
        probabilities: (G,) inclusion probabilities π of the second phase; only those of its labels
            are read.
        n_first: how many answers were chosen in the first phase, n₁.
        n_second: how many answers were chosen in the second phase, n₂; 0 before it begins.

    Returns:
        (G,) weights; 0 without a label.

    Example:
        >>> is_first = np.array([True, False, False, False])
        >>> labels = np.array([1, 0, np.nan, np.nan])
        >>> probabilities = np.array([0, 0.5, 0.2, 0.3])
        >>> label_weights(labels, is_first, probabilities, n_first=1, n_second=1).round(3)
        array([2.   , 1.333, 0.   , 0.   ])
    """
    has_label = ~np.isnan(labels)
    n = len(labels)
    n_labels = int(has_label.sum())
    weights = np.zeros(n)
    second = has_label & ~is_first
    weights[has_label & is_first] = n / max(n_labels, 1)
    weights[second] = n_second / (n_labels * (1 - n_first / n) * probabilities[second])
    return weights


@dataclass(frozen=True)
class Ranking:
    """The orders of M scores of the same n answers, found once and used for many labels.

    Attributes:
        group: (M, n) number of the tie group of each answer, counted from the lowest.
        units: (n,) number of the unit of each answer. Answers of one unit share a label.
        sizes: (G,) how many answers each unit has.
    """

    group: IntArray
    units: IntArray
    sizes: FloatArray

    @classmethod
    def from_scores(
        cls, scores: ArrayLike, units: IntArray | None = None, n_units: int = 0
    ) -> Ranking:
        """Order scores (n, M), higher = more uncertain; without `units` a unit per answer."""
        group = np.ascontiguousarray(tie_numbers(scores).T)
        if units is None:
            units = np.arange(group.shape[1])
        return cls(group, units, np.bincount(units, minlength=n_units).astype(np.float64))

    def by_unit(self, values: FloatArray) -> FloatArray:
        """Sum values (M, n) of the answers over the units, (M, G)."""
        return sum_by_group(values, self.units, len(self.sizes))


@dataclass(frozen=True)
class Areas:
    """AUROCs of M scores for given (pseudo-)labels, with what each label does to them.

    Attributes:
        auroc: (M,); NaN if a class sum or the number of pairs is not positive.
        influence: (M, G) derivative of each AUROC with respect to the label of each unit.
        population: (M, G) influence of each unit as a draw from the population. The sum of the
            squared deviations from the mean, over independent units, estimates the variance of the
            AUROC in the population.
        if_right: (M, G) the same influence if the unit is right.
        if_wrong: (M, G) the same influence if the unit is wrong.
    """

    auroc: FloatArray
    influence: FloatArray
    population: FloatArray
    if_right: FloatArray
    if_wrong: FloatArray

    def minus(self, reference: int) -> Areas:
        """Return the differences of all AUROCs to one of them, and what each label does to these.

        Args:
            reference: the position of the AUROC that is subtracted.
        """
        return Areas(*(values - values[reference] for values in vars(self).values()))


def areas(ranking: Ranking, labels: ArrayLike) -> Areas:
    """Return the AUROCs of scores for labels between 0 and 1, or pseudo-labels beyond.

    The AUROC is Σ (1 - r_i) r_j k(u_i, u_j) / Σ (1 - r_i) r_j. The sums are over pairs of different
    units. k is 1 if the wrong answer i has the higher score, ½ for a tie and 0 otherwise. If the
    labels of different units are independent, the expectations of both sums are those for the true
    labels. The cost is O(n M) after sorting.

    Args:
        ranking: the orders of the scores.
        labels: (G,) a label per unit.

    Returns:
        The AUROCs and their derivatives.

    Example:
        >>> # Both wrong answers have a higher score than the right one.
        >>> areas(Ranking.from_scores([[0.1], [0.2], [0.3]]), [1, 0, 0]).auroc
        array([1.])
    """
    unit_labels = np.asarray(labels, dtype=np.float64)
    right = unit_labels[ranking.units]
    wrong = 1 - right
    n_right = right.sum()
    n_wrong = wrong.sum()
    right_below = weight_below(ranking.group, right)
    wrong_below = weight_below(ranking.group, wrong)
    # Each pair of answers of one unit would count 1, or two halves: it is taken off.
    within = ranking.sizes**2 * unit_labels * (1 - unit_labels)
    n_pairs = n_wrong * n_right - within.sum()
    if min(n_right, n_wrong, n_pairs) <= 0:
        nothing = np.full((len(right_below), len(ranking.sizes)), np.nan)
        return Areas(nothing[:, 0], *[nothing] * 4)
    area = (right_below @ wrong - within.sum() / 2) / n_pairs
    wrong_above = n_wrong - wrong_below
    slope = ranking.sizes**2 * (1 - 2 * unit_labels)
    won = ranking.by_unit(wrong_above - right_below) - slope / 2
    pairs = ranking.sizes * (n_wrong - n_right) - slope
    influence = (won - area[:, None] * pairs) / n_pairs
    if_right = ranking.by_unit((wrong_above / n_wrong - area[:, None]) / n_right)
    if_wrong = ranking.by_unit((right_below / n_right - area[:, None]) / n_wrong)
    population = unit_labels * if_right + (1 - unit_labels) * if_wrong
    return Areas(area, influence, population, if_right, if_wrong)


@dataclass(frozen=True)
class WeightedLabels:
    """Labels of some of G answers, with their weights and the label model.

    Attributes:
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        weights: (G,) how many answers each label stands for; 0 without a label.
        model: (G,) predicted probabilities r̂ that the answers are right, without use of the
            answer's own label (`cross_fitted`).
        scope: "population" for intervals about the population of the questions, "questions" for
            intervals about these questions.
        clusters: (G,) numbers of clusters of units that belong together; None for independent ones.

    Example:
        >>> labels = np.array([1.0, 0.0, 1.0, 0.0])
        >>> weighted = WeightedLabels(labels, np.ones(4), np.full(4, 0.5), scope="questions")
        >>> ranking = Ranking.from_scores([[0.1], [0.2], [0.3], [0.4]])
        >>> weighted.auroc(ranking).value  # all answers have labels
        array([0.75])
    """

    labels: FloatArray
    weights: FloatArray
    model: FloatArray
    scope: Scope = "population"
    clusters: IntArray | None = None

    @cached_property
    def pseudo(self) -> FloatArray:
        """Pseudo-labels (G,), whose expectations are the labels: r̂ + w (r - r̂).

        They may be below 0 or above 1. This is the augmented inverse-probability-weighted label
        (Robins, Rotnitzky and Zhao 1994; Angelopoulos et al. 2023; Zrnic and Candès 2024).
        """
        residuals = np.where(np.isnan(self.labels), 0.0, self.labels - self.model)
        return self.model + self.weights * residuals

    def areas(self, ranking: Ranking) -> Areas:
        """Return the AUROCs of scores from these labels, without intervals."""
        return areas(ranking, self.pseudo)

    def shares(self, units: IntArray, weights: FloatArray) -> tuple[Estimate, IntArray]:
        """Estimate weighted shares of right answers, or of answers that a judge is right about.

        The intervals treat the weights as fixed.

        Args:
            units: (n,) number of the unit of each answer.
            weights: (A, n) how much each answer counts. A right answer counts towards the share if
                its weight is positive, and a wrong one if it is negative. Answers with 0 are left
                out.

        Returns:
            The shares (A,), NaN if they are not between 0 and 1, and the number of labels (A,)
            among the answers of each.

        Example:
            >>> labels = np.array([1.0, 0.0, 1.0, 1.0])
            >>> weighted = WeightedLabels(labels, np.ones(4), np.full(4, 0.5), "questions")
            >>> weights = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 0.0]])
            >>> weighted.shares(np.arange(4), weights)[0].value
            array([0.75, 1.  ])
        """
        right = self.pseudo[units]
        sizes = np.abs(weights)
        total = sizes.sum(axis=1, keepdims=True)
        values = np.where(weights < 0, 1 - right, right) * sizes
        share = values.sum(axis=1) / total[:, 0]
        share = np.where((share >= 0) & (share <= 1), share, np.nan)
        n_units = len(self.labels)
        # How each label changes a share, and the influence of each answer as a draw
        influence = sum_by_group(weights / total, units, n_units)
        deviations = (values - np.nan_to_num(share)[:, None] * sizes) / total
        variance = self.variance(influence, sum_by_group(deviations, units, n_units))
        is_used = sum_by_group(sizes, units, n_units) > 0
        n_labels = (is_used & ~np.isnan(self.labels)).sum(axis=1)
        return Estimate(share, *share_interval(share, *variance)), n_labels

    def variance(
        self, influence: FloatArray, population: FloatArray, *, predicted: ArrayLike = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Return the variance (A,) of estimates, and its degrees of freedom.

        The variance for the population is at least that for these questions, and at least the
        predicted one.

        Args:
            influence: (A, G) derivative of each estimate with respect to each label.
            population: (A, G) influence of each answer as a draw from the population.
            predicted: (A,) variance for the population that the label model predicts.
        """
        variance, freedom = label_variance(influence, self.weights, self.model, self.labels)
        if self.scope == "questions":
            return variance, freedom
        drawn, drawn_freedom = population_variance(population, clusters=self.clusters)
        drawn = np.maximum(drawn, predicted)
        is_larger = ~(drawn < variance)  # NaN stays
        return np.where(is_larger, drawn, variance), np.where(is_larger, drawn_freedom, freedom)

    def auroc(self, ranking: Ranking) -> Estimate:
        """Return the AUROCs (M,) of scores: Student's interval on the logit scale.

        They are NaN where the estimate is not between 0 and 1. A variance of 0 gives the estimate
        itself.
        """
        found = self.areas(ranking)
        values = found.auroc
        auroc = np.where((values > 0) & (values < 1), values, np.nan)
        variance, freedom = self._auroc_variance(found)
        half = stdtrit(freedom, 0.975) * np.sqrt(variance) / (auroc * (1 - auroc))
        return Estimate(auroc, expit(logit(auroc) - half), expit(logit(auroc) + half))

    def difference(self, ranking: Ranking, reference: int) -> tuple[Estimate, FloatArray]:
        """Return the differences (M,) to one AUROC, with Student's intervals and tests.

        They exist even if one of the AUROCs is estimated as 1 or more.

        Returns:
            The differences, and the two-sided p-values of equal AUROCs. These are 1 for scores
            without a difference whose variance is 0.
        """
        differences = self.areas(ranking).minus(reference)
        variance, freedom = self._auroc_variance(differences)
        values = differences.auroc
        error = np.sqrt(variance)
        half = stdtrit(freedom, 0.975) * error
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where((error == 0) & (values == 0), 0.0, np.abs(values) / error)
        estimate = Estimate(values, np.clip(values - half, -1, 1), np.clip(values + half, -1, 1))
        return estimate, 2 * stdtr(freedom, -ratio)

    def _auroc_variance(self, compared: Areas) -> tuple[FloatArray, FloatArray]:
        """Return variance and degrees of freedom of AUROCs, or of their differences.

        If two scores differ on few questions, the labels of these few may have little influence by
        chance. The prediction of the label model knows what the other label would do.
        """
        model = self.model
        predicted = compared.if_right**2 @ model + compared.if_wrong**2 @ (1 - model)
        return self.variance(compared.influence, compared.population, predicted=predicted)


def label_variance(
    influence: FloatArray, weights: FloatArray, model: FloatArray, labels: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Estimate the variance (A,) due to answers without a label, and its degrees of freedom.

    It is the variance of Σ h w (r - r̂), and combines two values. The first is the observed sum
    V = Σ w (w - 1) (r - r̂)² h² over the labels. The weight w has the expectation 1, so w² - w has
    the variance of w as its expectation. The second is a prediction from the label model. It
    protects against labels whose residuals are small by chance. With m effective terms in V, the
    result is (m V + 2 prediction) / (m + 2).

    The prediction is the mean of two values. One is Σ w (w - 1) r̂ (1 - r̂) h² over the labels. The
    other is (G / k - 1) Σ r̂ (1 - r̂) h² over all answers, with k labels: the variance with as many
    random labels. It is too large, but includes answers that matter and have no label.

    Args:
        influence: (A, G) derivative h of each estimate with respect to each label.
        weights: (G,) from `label_weights`, 0 without a label.
        model: (G,) predicted probabilities r̂.
        labels: (G,) 1, 0, or NaN without a label.

    Returns:
        Variance and degrees of freedom, (A,) each. The variance is 0 only if all answers have
        labels, or if no label can change the estimate.

    Example:
        >>> weights, model = np.array([2, 0]), np.array([0.5, 0.5])
        >>> label_variance(np.array([[0.5, 0.5]]), weights, model, np.array([1, np.nan]))
        (array([0.125]), array([3.]))
    """
    has_label = ~np.isnan(labels)
    residuals = np.where(has_label, labels - model, 0.0)
    squares = influence**2
    # Answers that the second phase takes for sure may have weights below 1. They add nothing.
    spread = np.maximum(weights * (weights - 1), 0)
    terms = squares * (spread * residuals**2)
    variance = terms.sum(axis=1)
    n_terms = effective_number(terms)
    excess = len(labels) / max(int(has_label.sum()), 1) - 1
    uncertain = model * (1 - model)
    predicted = (squares @ (spread * uncertain) + excess * (squares @ uncertain)) / 2
    blended = (n_terms * variance + _PRIOR_TERMS * predicted) / (n_terms + _PRIOR_TERMS)
    return blended, np.maximum(_FREEDOM * n_terms, _LEAST_FREEDOM)


def effective_number(terms: FloatArray) -> FloatArray:
    """Return the effective number (A,) of non-negative terms (A, G): (Σ t)² / Σ t², or 0.

    Example:
        >>> effective_number(np.array([[1.0, 1.0, 0.0], [4.0, 0.0, 0.0]]))
        array([2., 1.])
    """
    largest = terms.max(axis=1, keepdims=True)
    scaled = terms / np.where(largest > 0, largest, 1.0)
    squares = (scaled**2).sum(axis=1)
    number: FloatArray = scaled.sum(axis=1) ** 2 / np.where(squares > 0, squares, 1.0)
    return number


def population_variance(
    influence: FloatArray, *, clusters: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the variance (A,) for the population, and its degrees of freedom.

    Args:
        influence: (A, G) influence of each unit as a draw, such as `Areas.population`.
        clusters: (G,) numbers of the clusters of units that are drawn together; None for
            independent units.

    Returns:
        Variance and degrees of freedom, (A,) each; NaN with fewer than five clusters.

    Example:
        >>> population_variance(np.array([[0.5, -0.5]]))
        (array([0.5]), array([6.]))
    """
    values = influence - influence.mean(axis=1, keepdims=True)
    if clusters is None:
        terms = values**2
        return terms.sum(axis=1), np.maximum(_FREEDOM * effective_number(terms), _LEAST_FREEDOM)
    n_clusters = clusters.max() + 1
    if n_clusters < FEWEST_CLUSTERS:
        unknown = np.full(len(values), np.nan)
        return unknown, unknown
    sums = sum_by_group(values, clusters, n_clusters)
    terms = sums**2 * n_clusters / (n_clusters - 1)
    n_terms = effective_number(terms)
    freedom = np.minimum(n_clusters - 1, np.maximum(_CLUSTER_FREEDOM * n_terms, _LEAST_FREEDOM))
    return terms.sum(axis=1), freedom


def share_interval(
    share: FloatArray, variance: FloatArray, freedom: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (A,) of 95 % intervals of shares of answers.

    Wilson's interval with Student's quantile t, for the number of independent answers whose share
    has this variance, n = p (1 - p) / variance. A variance of 0 gives the estimate itself. NaN
    where the estimate is not between 0 and 1, or is 0 or 1 with a variance above 0.

    Example:
        >>> low, high = share_interval(np.array([0.5]), np.array([0.0025]), 1e9)  # 100 answers
        >>> low.round(3), high.round(3)
        (array([0.404]), array([0.596]))
    """
    is_inside = (share > 0) & (share < 1)
    is_shown = is_inside | ((variance == 0) & np.isin(share, [0, 1]))
    spread = np.where(is_inside, share * (1 - share), 1.0)
    per_answer = stdtrit(freedom, 0.975) ** 2 * variance / spread  # t² / n
    center = (share + per_answer / 2) / (1 + per_answer)
    half = np.sqrt(per_answer * (spread + per_answer / 4)) / (1 + per_answer)
    return np.where(is_shown, center - half, np.nan), np.where(is_shown, center + half, np.nan)
