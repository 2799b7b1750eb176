"""Estimates with intervals: joins the estimator, the label model and the intervals."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pro_lib.evaluation.labels.design import cross_fitted
from pro_lib.evaluation.labels.estimator import Areas, Ranking, areas, label_weights, pseudo_labels
from pro_lib.evaluation.labels.intervals import (
    auroc_interval,
    difference_interval,
    difference_p_value,
    label_variance,
    population_variance,
    predicted_variance,
)

FloatArray = NDArray[np.float64]
Scope = Literal["population", "questions"]
SCOPES = ("population", "questions")


@dataclass(frozen=True)
class Sample:
    """Labels of some of G answers, with their weights, label model and pseudo-labels.

    Attributes:
        labels: (G,) 1 for right, 0 for wrong, NaN without a label.
        weights: (G,) how many answers each label stands for; 0 without a label.
        model: (G,) predicted probabilities that the answers are right, without use of the answer's
            own label.
        pseudo: (G,) pseudo-labels.
    """

    labels: FloatArray
    weights: FloatArray
    model: FloatArray
    pseudo: FloatArray

    @classmethod
    def from_design(
        cls,
        labels: ArrayLike,
        is_first: ArrayLike,
        probabilities: ArrayLike,
        features: ArrayLike,
        *,
        n_first: int,
        n_second: int,
        seed: int = 0,
    ) -> "Sample":
        """Fit the label model and compute the pseudo-labels of `label_weights`.

        Args:
            labels: (G,) 1 for right, 0 for wrong, NaN without a label.
            is_first: (G,) whether the answer was chosen in the first phase.
            probabilities: (G,) inclusion probabilities of the second phase.
            features: (G, F) of all answers, for the label model.
            n_first: how many answers were chosen in the first phase.
            n_second: how many answers were chosen in the second phase; 0 before it begins.
            seed: of the folds of the label model.

        Returns:
            The sample.
        """
        labels = np.asarray(labels, dtype=np.float64)
        weights = label_weights(labels, is_first, probabilities, n_first=n_first, n_second=n_second)
        return cls.from_weights(labels, weights, features, seed=seed)

    @classmethod
    def from_weights(
        cls, labels: ArrayLike, weights: FloatArray, features: ArrayLike, *, seed: int = 0
    ) -> "Sample":
        """Fit the label model and compute the pseudo-labels for known weights.

        Args:
            labels: (G,) 1 for right, 0 for wrong, NaN without a label.
            weights: (G,) from `label_weights`, which may have been computed with further answers.
            features: (G, F) of all answers, for the label model.
            seed: of the folds of the label model.

        Returns:
            The sample.
        """
        labels = np.asarray(labels, dtype=np.float64)
        model = cross_fitted(features, labels, seed=seed)
        return cls(labels, weights, model, pseudo_labels(model, labels, weights))

    def variance(self, influence: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the variance for these questions, and its degrees of freedom."""
        return label_variance(influence, self.weights, self.model, self.labels)


@dataclass(frozen=True)
class AurocEstimates:
    """AUROCs of M scores from labels of some answers.

    Attributes:
        sample: the labels.
        areas: the AUROCs and their derivatives.
        scope: "population" for intervals about the population of the questions, "questions" for
            intervals about these questions.
        clusters: (G,) numbers of clusters of answers that belong together; None for independent
            ones.
    """

    sample: Sample
    areas: Areas
    scope: Scope = "population"
    clusters: NDArray[np.intp] | None = None

    @property
    def auroc(self) -> FloatArray:
        """Return the AUROCs (M,); NaN where the estimate is not between 0 and 1."""
        values = self.areas.auroc
        return np.where((values > 0) & (values < 1), values, np.nan)

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the 95 % intervals of the AUROCs, (M,) each."""
        return auroc_interval(self.auroc, *self._variance())

    def difference(
        self, reference: int, *, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the differences (M,) to one AUROC, and the ends of their intervals.

        They exist even if one of the AUROCs is estimated as 1 or more.
        """
        values = self.areas.auroc - self.areas.auroc[reference]
        low, high = difference_interval(values, *self._variance(reference), level=level)
        return values, low, high

    def p_values(self, reference: int) -> FloatArray:
        """Return two-sided p-values (M,) of equal AUROCs, from Student's distribution.

        They are 1 for scores without a difference whose variance is 0.
        """
        values = self.areas.auroc - self.areas.auroc[reference]
        return difference_p_value(values, *self._variance(reference))

    def _variance(self, reference: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Return variance and degrees of freedom of the AUROCs, or of differences to one."""
        compared = self.areas if reference is None else self.areas.minus(reference)
        predicted = predicted_variance(compared.if_right, compared.if_wrong, self.sample.model)
        return scoped_variance(
            self.sample,
            compared.influence,
            compared.population,
            self.scope,
            self.clusters,
            predicted=predicted,
        )


def scoped_variance(
    sample: Sample,
    influence: FloatArray,
    population: FloatArray,
    scope: Scope,
    clusters: NDArray[np.intp] | None = None,
    *,
    predicted: ArrayLike = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Return the variance (A,) of estimates for one scope, and its degrees of freedom.

    The variance for the population is at least that for these questions, and at least the
    predicted one.

    Args:
        sample: the labels.
        influence: (A, G) derivative of each estimate with respect to each label.
        population: (A, G) influence of each answer as a draw from the population; 0 for answers of
            other settings.
        scope: "population" or "questions".
        clusters: (G,) numbers of clusters; None for independent answers.
        predicted: (A,) variance for the population that the label model predicts.

    Returns:
        Variance and degrees of freedom, (A,) each.
    """
    variance, freedom = sample.variance(influence)
    if scope == "questions":
        return variance, freedom
    drawn, drawn_freedom = population_variance(population, clusters=clusters)
    drawn = np.maximum(drawn, predicted)
    is_larger = ~(drawn < variance)  # NaN stays
    return np.where(is_larger, drawn, variance), np.where(is_larger, drawn_freedom, freedom)


def estimate_aurocs(
    ranking: Ranking,
    sample: Sample,
    *,
    scope: Scope = "population",
    clusters: NDArray[np.intp] | None = None,
) -> AurocEstimates:
    """Return the AUROCs of scores from labels of some answers.

    Args:
        ranking: the orders of M scores.
        sample: the labels, weights and pseudo-labels of the same units.
        scope: "population" or "questions", as in `AurocEstimates`.
        clusters: (G,) numbers of clusters of units; None for independent units.

    Returns:
        The estimates.

    Example:
        >>> ranking = Ranking.from_scores([[0.1], [0.2], [0.3], [0.4]])
        >>> labels = [1.0, 0.0, 1.0, 0.0]
        >>> features = [[0.0]] * 4
        >>> all_first = ([True] * 4, [1.0] * 4)
        >>> sample = Sample.from_design(labels, *all_first, features, n_first=4, n_second=0)
        >>> estimate_aurocs(ranking, sample, scope="questions").auroc  # all answers have labels
        array([0.75])
    """
    return AurocEstimates(sample, areas(ranking, sample.pseudo), scope, clusters)
