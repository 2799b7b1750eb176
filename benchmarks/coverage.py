"""Measure how often 95 % intervals of single AUROCs contain the true value.

docs/explanation/intervals.md explains the table. Differences and clusters are in
difference_intervals.py. Labels are drawn first, again if one class is missing, and then scores by
label. The shrinkage in `metrics.auroc_intervals` was chosen with other seeds on binormal scores, on
binormal scores with a wide wrong class (deviation 2), on exponential scores and on four levels. The
table reports the distributions in `SCORES`.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from measuring import ROOT, parse_arguments
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pro_lib import metrics
from pro_lib.app.experiment import Experiment

N_QUESTIONS = (100, 300, 1000)
SHARES_RIGHT = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
AUROCS = (0.6, 0.7, 0.8, 0.9, 0.97)
CUTS = np.arange(-0.5, 4, 0.5)  # between the levels of rounded scores
METHODS = ("NLL", "PRO", "Deg, lexical")  # whose real scores are resampled; Deg has many ties
# (generator, shape, of wrong answers)
Draw = Callable[[np.random.Generator, tuple[int, int], bool], np.ndarray]


def binormal(auroc: float, deviation: float = 1.0) -> Draw:
    """Return normal scores, with a mean and a deviation of the wrong class."""
    mean = ndtri(auroc) * np.hypot(1, deviation)
    return lambda rng, shape, wrong: rng.normal(mean * wrong, deviation if wrong else 1, shape)


def exponential(auroc: float) -> Draw:
    """Return negative exponential scores; the right answers have a long tail downwards."""
    return lambda rng, shape, wrong: -rng.exponential(1 if wrong else auroc / (1 - auroc), shape)


def rounded(auroc: float) -> Draw:
    """Return binormal scores in ten levels with this AUROC, in which ties count half."""

    def reached(mean: float) -> float:
        of_wrong, of_right = (
            np.diff(ndtr([-np.inf, *(CUTS - center), np.inf])) for center in (mean, 0)
        )
        return of_wrong @ (np.cumsum(of_right) - of_right / 2)

    mean = brentq(lambda center: reached(center) - auroc, 0, 20)
    return lambda rng, shape, wrong: np.searchsorted(
        CUTS, rng.normal(mean * wrong, 1, shape)
    ).astype(float)


SCORES = {
    "binormal": binormal,
    "binormal, narrow wrong class": lambda auroc: binormal(auroc, 0.5),
    "exponential, downwards": exponential,
    "ten levels": rounded,
}


def resampled(values: np.ndarray, correct: np.ndarray) -> Draw:
    """Return scores of real answers, drawn with replacement."""
    return lambda rng, shape, wrong: rng.choice(values[correct != wrong], shape)


def drawn(
    draw: Draw, n: int, share: float, repetitions: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield scores (n, B) and labels (n,) of all repetitions with equally many right answers."""
    n_right = rng.binomial(n, share, 2 * repetitions)
    n_right = n_right[(n_right > 0) & (n_right < n)][:repetitions]
    for right, count in zip(*np.unique(n_right, return_counts=True), strict=True):
        parts = draw(rng, (right, count), False), draw(rng, (n - right, count), True)
        yield np.concatenate(parts), np.arange(n) < right


def delong(uncertainty: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of DeLong's interval: the AUROC ± 1.96 standard errors."""
    won_by_wrong, won_by_right = metrics.pairs_won(uncertainty, correct)
    of_wrong = won_by_wrong / won_by_right.shape[1]
    of_right = won_by_right / won_by_wrong.shape[1]
    # The variance is unknown if a class has one answer.
    classes = [shares for shares in (of_wrong, of_right) if shares.shape[1] > 1]
    variance = sum(shares.var(axis=1, ddof=1) / shares.shape[1] for shares in classes)
    half = ndtri(0.975) * np.sqrt(variance)
    return of_wrong.mean(axis=1) - half, of_wrong.mean(axis=1) + half


def covered(draw: Draw, truth: float, n: int, share: float, *, repetitions: int, seed: int) -> dict:
    """Return how often each interval contains the AUROC."""
    rng = np.random.default_rng([seed, n, round(100 * share), round(1000 * truth)])
    hits = {}

    def add(name: str, low: np.ndarray, high: np.ndarray) -> None:
        hits.setdefault(name, []).extend((low <= truth + 1e-12) & (truth - 1e-12 <= high))

    for uncertainty, correct in drawn(draw, n, share, repetitions, rng):
        add("covered", *metrics.auroc_intervals(uncertainty, correct)[1:])
        add("delong", *delong(uncertainty, correct))
    return {name: np.mean(values) for name, values in hits.items()}


def single(*, repetitions: int, seed: int) -> Iterator[dict]:
    """Yield a row for each distribution, number of questions, share of right answers and AUROC."""
    populations = [(name, auroc, make(auroc)) for name, make in SCORES.items() for auroc in AUROCS]
    experiment = Experiment(
        model="facts-2m", dataset="world-facts", similarity=["lexical"], protocol="workbench"
    )
    evaluation = experiment.evaluations("facts-2m", "world-facts", "test", methods="all")[-1]
    for name, values in evaluation.with_pro({"PRO": 0.4})[list(METHODS)].items():
        truth = metrics.auroc(values, evaluation.correct)
        populations.append(
            (f"{name} of facts-2m", truth, resampled(values.to_numpy(), evaluation.correct))
        )
    for (name, auroc, draw), n, share in itertools.product(populations, N_QUESTIONS, SHARES_RIGHT):
        shares = covered(draw, auroc, n, share, repetitions=repetitions, seed=seed)
        yield {
            "scores": name,
            "n_questions": n,
            "share_right": share,
            "auroc": round(auroc, 4),
        } | shares


def main() -> None:
    """Write a row for each cell to the file `--csv`."""
    file = ROOT / "docs" / "results" / "data" / "coverage.csv"
    arguments = parse_arguments(__doc__, {"--repetitions": 4000, "--seed": 2, "--csv": file})
    table = pd.DataFrame(single(repetitions=arguments.repetitions, seed=arguments.seed))
    table.round(4).to_csv(arguments.csv, index=False)


if __name__ == "__main__":
    main()
