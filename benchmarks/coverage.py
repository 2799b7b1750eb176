"""How often 95 % intervals of single AUROCs contain the value they are of: docs/intervals.md.

Differences and clusters are in difference_intervals.py.
Labels are drawn (again where one class is missing), scores given the labels. How `metrics.auroc_intervals` shrinks was
chosen on binormal scores, on those with a wide wrong class (deviation 2), on exponential ones and on four levels, with
other seeds; `SCORES` are what is reported.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_arguments
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
    """Normal scores; those of wrong answers with a mean that gives the AUROC, and a deviation."""
    mean = ndtri(auroc) * np.hypot(1, deviation)
    return lambda rng, shape, wrong: rng.normal(mean * wrong, deviation if wrong else 1, shape)


def exponential(auroc: float) -> Draw:
    """Minus exponential scores: the right answers have the long tail, downwards."""
    return lambda rng, shape, wrong: -rng.exponential(1 if wrong else auroc / (1 - auroc), shape)


def rounded(auroc: float) -> Draw:
    """Binormal scores cut into ten levels, moved apart until the AUROC, ties counting half, is right."""

    def reached(mean: float) -> float:
        of_wrong, of_right = (np.diff(ndtr([-np.inf, *(CUTS - at), np.inf])) for at in (mean, 0))
        return of_wrong @ (np.cumsum(of_right) - of_right / 2)

    mean = brentq(lambda at: reached(at) - auroc, 0, 20)
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
    """Scores of real answers, drawn with replacement."""
    return lambda rng, shape, wrong: rng.choice(values[correct != wrong], shape)


def drawn(
    draw: Draw, n: int, share: float, repetitions: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores (n, B) and labels (n,), those repetitions together that have as many right answers."""
    n_right = rng.binomial(n, share, 2 * repetitions)
    n_right = n_right[(n_right > 0) & (n_right < n)][:repetitions]
    for right, count in zip(*np.unique(n_right, return_counts=True), strict=True):
        parts = draw(rng, (right, count), False), draw(rng, (n - right, count), True)
        yield np.concatenate(parts), np.arange(n) < right


def placements(uncertainty: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the other class that lie below each wrong answer (B, n_wrong), and each right one (B, n_right)."""
    of_wrong, of_right = metrics.pairs_won(uncertainty, correct)
    return of_wrong / of_right.shape[1], of_right / of_wrong.shape[1]


def delong(of_wrong: np.ndarray, of_right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The AUROC less, and plus, 1.96 of DeLong's standard errors."""
    # Of one answer no variance is known
    classes = [of for of in (of_wrong, of_right) if of.shape[1] > 1]
    half = ndtri(0.975) * np.sqrt(sum(of.var(axis=1, ddof=1) / of.shape[1] for of in classes))
    return of_wrong.mean(axis=1) - half, of_wrong.mean(axis=1) + half


def covered(draw: Draw, truth: float, n: int, share: float, *, repetitions: int, seed: int) -> dict:
    """How often each interval contains the AUROC."""
    rng, hits = np.random.default_rng([seed, n, round(100 * share), round(1000 * truth)]), {}

    def add(name: str, low: np.ndarray, high: np.ndarray) -> None:
        hits.setdefault(name, []).extend((low <= truth + 1e-12) & (truth - 1e-12 <= high))

    for uncertainty, correct in drawn(draw, n, share, repetitions, rng):
        add("covered", *metrics.auroc_intervals(uncertainty, correct)[1:])
        add("delong", *delong(*placements(uncertainty, correct)))
    return {name: np.mean(of) for name, of in hits.items()}


def single(*, repetitions: int, seed: int) -> Iterator[dict]:
    """A row per distribution, number of questions, share of right answers and AUROC."""
    populations = [(name, auroc, of(auroc)) for name, of in SCORES.items() for auroc in AUROCS]
    experiment = Experiment(
        model="facts-2m", dataset="world-facts", similarity=["lexical"], reported=True
    )
    evaluation = experiment.evaluations("facts-2m", "world-facts", "test", methods="all")[-1]
    for name, values in evaluation.with_pro({"PRO": 0.4})[list(METHODS)].items():
        truth = metrics.auroc(values, evaluation.correct)
        populations.append(
            (f"{name} of facts-2m", truth, resampled(values.to_numpy(), evaluation.correct))
        )
    for (name, auroc, draw), n, share in itertools.product(populations, N_QUESTIONS, SHARES_RIGHT):
        found = covered(draw, auroc, n, share, repetitions=repetitions, seed=seed)
        yield {
            "scores": name,
            "n_questions": n,
            "share_right": share,
            "auroc": round(auroc, 4),
        } | found


def summary(table: pd.DataFrame) -> str:
    """Lines for the docs: the worst cells of each distribution, and how many of them fall short or go too far."""
    fewer = np.minimum(table["share_right"], 1 - table["share_right"])
    # 30 expected of both classes
    large = (table["n_questions"] * fewer > 29.9) & (table["auroc"] <= 0.9)
    columns = ["scores", "cells", "lowest", "below 0.93", "highest, 30 of both", "above 0.97"]
    columns += ["DeLong, lowest", "DeLong, below 0.93"]
    head = f"| {' | '.join(columns)} |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name, part in table.groupby("scores", sort=False):
        inner = part.loc[large[part.index], "covered"]
        cells = [
            name,
            len(part),
            f"{part['covered'].min():.3f}",
            (part["covered"] < 0.93).sum(),
            f"{inner.max():.3f}",
        ]
        cells += [
            (inner > 0.97).sum(),
            f"{part['delong'].min():.3f}",
            (part["delong"] < 0.93).sum(),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table beside docs/intervals.md, or where asked, and print what the page says."""
    given = parse_arguments(__doc__, {"--repetitions": 4000, "--seed": 2, "--out": Path("docs")})
    table = pd.DataFrame(single(repetitions=given.repetitions, seed=given.seed))
    table.round(4).to_csv(given.out / "coverage.csv", index=False)
    print(summary(table))


if __name__ == "__main__":
    main()
