"""AUROCs and accuracy from labels of some answers: pure functions of arrays, in float64.

`design` says which answers are labelled. An answer without a label, or with a label and an
inclusion probability, is represented by a pseudo-label, a number whose expectation is the true
label.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


def label_weights(
    labels: ArrayLike, is_first: ArrayLike, probabilities: ArrayLike, *, n_first: int, n_second: int
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
        >>> is_first = [True, False, False, False]
        >>> labels = [1, 0, np.nan, np.nan]
        >>> probabilities = [0, 0.5, 0.2, 0.3]
        >>> label_weights(labels, is_first, probabilities, n_first=1, n_second=1).round(3)
        array([2.   , 1.333, 0.   , 0.   ])
    """
    has_label = ~np.isnan(np.asarray(labels, dtype=np.float64))
    is_first = np.asarray(is_first, dtype=bool)
    probabilities = np.asarray(probabilities, dtype=np.float64)
    n = len(has_label)
    n_labels = np.count_nonzero(has_label)
    weights = np.zeros(n)
    if not n_labels:
        return weights
    second = has_label & ~is_first
    weights[has_label & is_first] = n / n_labels
    weights[second] = n_second / (n_labels * (1 - n_first / n) * probabilities[second])
    return weights


def pseudo_labels(model: ArrayLike, labels: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Return numbers (G,) whose expectations are the labels: r̂ + w (r - r̂).

    This is the augmented inverse-probability-weighted label (Robins, Rotnitzky and Zhao 1994;
    Angelopoulos et al. 2023; Zrnic and Candès 2024).

    Args:
        model: (G,) predicted probabilities r̂ that the answers are right, without use of the
            answer's own label.
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        weights: (G,) from `label_weights`.

    Returns:
        (G,) pseudo-labels. They may be below 0 or above 1.

    Example:
        >>> pseudo_labels([0.5, 0.75, 0.75], [1, 0, np.nan], [1, 2, 0])
        array([ 1.  , -0.75,  0.75])
    """
    model = np.asarray(model, dtype=np.float64)
    labels = np.asarray(labels, dtype=np.float64)
    residuals = np.where(np.isnan(labels), 0.0, labels - model)
    return model + np.asarray(weights, dtype=np.float64) * residuals


def sum_by_unit(values: FloatArray, codes: IntArray, n_units: int) -> FloatArray:
    """Sum values (A, n) of answers over the units, (A, G).

    Args:
        values: (A, n) of the answers.
        codes: (n,) number of the unit of each answer.
        n_units: the number of units, G.

    Example:
        >>> sum_by_unit(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 1]), 3)
        array([[1., 6., 0.]])
    """
    if n_units == values.shape[1] and np.array_equal(codes, np.arange(n_units)):
        return values
    return np.stack([np.bincount(codes, weights=row, minlength=n_units) for row in values])


@dataclass(frozen=True)
class Ranking:
    """The orders of M scores of the same n answers, found once and used for many labels.

    Attributes:
        group: (M, n) number of the tie group of each answer, counted from the lowest.
        codes: (n,) number of the unit of each answer. Answers of one unit share a label.
        sizes: (G,) how many answers each unit has.
    """

    group: IntArray
    codes: IntArray
    sizes: FloatArray

    @classmethod
    def from_scores(
        cls, scores: ArrayLike, codes: ArrayLike | None = None, n_units: int | None = None
    ) -> "Ranking":
        """Sort scores (n, M), higher = more uncertain; without `codes` a unit per answer."""
        columns = np.ascontiguousarray(np.asarray(scores, dtype=np.float64).T)
        n = columns.shape[1]
        codes = np.arange(n) if codes is None else np.asarray(codes, dtype=np.intp)
        order = np.argsort(columns, axis=1, kind="stable")
        ordered = np.take_along_axis(columns, order, axis=1)
        starts = np.zeros_like(order)
        starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        group = np.empty_like(order)
        np.put_along_axis(group, order, np.cumsum(starts, axis=1), axis=1)
        sizes = np.bincount(codes, minlength=n_units or 0).astype(np.float64)
        return cls(group, codes, sizes)

    @property
    def n_units(self) -> int:
        """Return the number of units, G."""
        return len(self.sizes)

    def weight_below(self, weights: FloatArray) -> FloatArray:
        """Return the total weight (M, n) of the answers scored below each; ties count half.

        Args:
            weights: (n,) of the answers.

        Example:
            >>> Ranking.from_scores([[1.0], [2.0], [2.0]]).weight_below(np.array([1.0, 2.0, 4.0]))
            array([[0.5, 4. , 4. ]])
        """
        result = np.empty(self.group.shape)
        for row, group in enumerate(self.group):
            in_group = np.bincount(group, weights=weights)
            below = np.cumsum(in_group) - in_group / 2
            result[row] = below[group]
        return result

    def by_unit(self, values: FloatArray) -> FloatArray:
        """Sum values (M, n) of the answers over the units, (M, G)."""
        return sum_by_unit(values, self.codes, self.n_units)


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

    def minus(self, reference: int) -> "Areas":
        """Return the differences of all AUROCs to one of them, and what each label does to these.

        Args:
            reference: the position of the AUROC that is subtracted.
        """
        return Areas(
            auroc=self.auroc - self.auroc[reference],
            influence=self.influence - self.influence[reference],
            population=self.population - self.population[reference],
            if_right=self.if_right - self.if_right[reference],
            if_wrong=self.if_wrong - self.if_wrong[reference],
        )


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
    right = unit_labels[ranking.codes]
    wrong = 1 - right
    n_right = right.sum()
    n_wrong = wrong.sum()
    right_below = ranking.weight_below(right)
    wrong_below = ranking.weight_below(wrong)
    # Each pair of answers of one unit would count 1, or two halves: it is taken off.
    within = ranking.sizes**2 * unit_labels * (1 - unit_labels)
    n_pairs = n_wrong * n_right - within.sum()
    if min(n_right, n_wrong, n_pairs) <= 0:
        nothing = np.full((len(right_below), ranking.n_units), np.nan)
        return Areas(nothing[:, :1].sum(axis=1), nothing, nothing, nothing, nothing)
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
