"""Measure how often intervals of AUROC differences cover the truth, and how often they exclude 0.

    python benchmarks/difference_intervals.py --csv docs/results/data/difference_intervals.csv

Two scores of the same questions are drawn many times in each cell, and the true difference is that
of a large sample. The interval of `pro_lib.metrics.delong` is compared with DeLong's normal one.
`auroc_covered` is the coverage of the interval of a single AUROC. docs/explanation/intervals.md has
the results.
"""

import itertools
import zlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from measuring import parse_arguments
from scipy.special import ndtri

from pro_lib import metrics
from pro_lib.app.scored_answers import score_answers
from pro_lib.common import catalog
from pro_lib.importing import import_answers
from pro_lib.metrics.differences import FEWEST_FOR_INTERVAL

POPULATION = 200_000  # questions that stand for all
CLUSTER_SIZE = 10  # 60 questions have six clusters
N_QUESTIONS = (60, 377)
# The share of the questions that one score moves, and by how much it moves wrong answers upwards.
MOVES = ((1.0, 0.3), (0.3, 0.0), (0.05, 0.0), (0.02, 1.0), (0.01, 2.0))
KINDS = ("normal", "exponential", "ten levels", "ten levels, noise", "one class moves", "clusters")
REAL_PAIRS = (("PRO", "NLL"), ("SE", "NLL"), ("S-PRO", "PRO"))


class Cell(NamedTuple):
    """A population and a number of questions.

    For scores of real answers, `moved` is the position of the pair in `REAL_PAIRS`.
    """

    scores: str
    n_questions: int
    share_wrong: float
    moved: float
    shift: float


class Sample(NamedTuple):
    """Two scores (n, 2) of questions, whether their answers are right, and their clusters."""

    scores: np.ndarray
    correct: np.ndarray
    clusters: np.ndarray | None = None


def cells() -> Iterator[Cell]:
    """Yield all cells in which a sample usually has enough right and wrong answers."""
    for kind, n, share_wrong, (moved, shift) in itertools.product(
        KINDS, N_QUESTIONS, (0.1, 0.33, 0.8), MOVES
    ):
        if n * min(share_wrong, 1 - share_wrong) > FEWEST_FOR_INTERVAL:
            yield Cell(kind, n, share_wrong, moved, shift)
    for n, place in itertools.product(N_QUESTIONS, range(len(REAL_PAIRS))):
        yield Cell("real answers", n, np.nan, place, np.nan)


def draw(cell: Cell, n: int, rng: np.random.Generator) -> Sample:
    """Draw n questions of the population of a cell."""
    if cell.scores == "real answers":
        scores, correct = real_scores()
        rows = rng.integers(len(correct), size=n)
        pair = [scores.columns.get_loc(name) for name in REAL_PAIRS[int(cell.moved)]]
        return Sample(scores.to_numpy()[np.ix_(rows, pair)], correct[rows])
    clusters = None
    log_odds = np.full(n, np.log(cell.share_wrong / (1 - cell.share_wrong)))
    effect = np.zeros(n)
    if cell.scores == "clusters":
        clusters = np.arange(n) // CLUSTER_SIZE
        log_odds += rng.normal(size=clusters[-1] + 1)[clusters]
        effect = 0.5 * rng.normal(size=clusters[-1] + 1)[clusters]
    is_wrong = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    first = rng.normal(size=n) + 1.2 * is_wrong
    is_moved = rng.random(n) < cell.moved
    if cell.scores == "one class moves":
        is_moved &= is_wrong
    step = 2 * rng.normal(size=n) + cell.shift * np.where(is_wrong, 1, -1) + effect
    scores = np.column_stack([first + step * is_moved, first])
    if cell.scores == "exponential":
        scores[:, 0] = np.exp(scores[:, 0])
    if cell.scores.startswith("ten levels"):
        scores = np.clip(np.round(1.5 * scores), -4, 5)
    if cell.scores.endswith("noise"):
        scores[:, 0] += 1e-9 * rng.normal(size=n)
    return Sample(scores, ~is_wrong, clusters)


@cache
def real_scores() -> tuple[pd.DataFrame, np.ndarray]:
    """Return the scores of the bundled answers of SmolLM2, and which answers are right."""
    scored = score_answers(import_answers(catalog.EXAMPLE), alpha=0.05)
    return scored.reported_scores, scored.reported.correct


def true_aurocs(cell: Cell, rng: np.random.Generator) -> np.ndarray:
    """Return the AUROCs (2,) in the population."""
    sample = Sample(*real_scores())
    if cell.scores != "real answers":
        sample = draw(cell, POPULATION // CLUSTER_SIZE * CLUSTER_SIZE, rng)
        scores = sample.scores
    else:
        scores = sample.scores[list(REAL_PAIRS[int(cell.moved)])].to_numpy()
    return metrics.auroc_intervals(scores, sample.correct)[0]


def plain_delong(sample: Sample) -> tuple[float, float]:
    """Return DeLong's normal interval."""
    won_by_wrong, won_by_right = metrics.pairs_won(sample.scores, sample.correct)
    wrong_moves = (won_by_wrong[0] - won_by_wrong[1]) / won_by_right.shape[1]
    right_moves = (won_by_right[1] - won_by_right[0]) / won_by_wrong.shape[1]
    variance = sum(moves.var(ddof=1) / len(moves) for moves in (wrong_moves, right_moves))
    half = ndtri(0.975) * np.sqrt(variance)
    return wrong_moves.mean() - half, wrong_moves.mean() + half


def measure(cell: Cell, n_repetitions: int, seed: int) -> dict:
    """Return the row of a cell: the coverage, power and mean width of both intervals."""
    rng = np.random.default_rng([seed, zlib.crc32(str(cell).encode())])
    aurocs = true_aurocs(cell, rng)
    truth = aurocs[0] - aurocs[1]
    ends = []
    singles = []
    while len(ends) < n_repetitions:
        sample = draw(cell, cell.n_questions, rng)
        n_right = sample.correct.sum()
        if min(n_right, len(sample.correct) - n_right) < FEWEST_FOR_INTERVAL:
            continue
        groups = {"clusters": sample.clusters}
        tests = metrics.delong(sample.scores, sample.correct, reference=1, **groups)
        ends.append([tests.low[0], tests.high[0], *plain_delong(sample)])
        _, low, high = metrics.auroc_intervals(sample.scores[:, :1], sample.correct, **groups)
        singles.append(low[0] <= aurocs[0] <= high[0])
    low, high, delong_low, delong_high = np.transpose(ends)
    row = {**cell._asdict(), "difference": truth, "repetitions": n_repetitions}
    for name, lower, upper in (("", low, high), ("delong_", delong_low, delong_high)):
        is_seen = lower > 0 if truth > 0 else upper < 0
        row[f"{name}covered"] = ((lower <= truth) & (truth <= upper)).mean()
        row[f"{name}power"] = is_seen.mean() if abs(truth) > 0.001 else np.nan
        row[f"{name}width"] = (upper - lower).mean()
    return {**row, "auroc_covered": np.mean(singles)}


def main() -> None:
    """Print the rows of all cells, and write them."""
    arguments = parse_arguments(__doc__, {"--csv": "", "--repetitions": 2000, "--seed": 1})
    rows = []
    for cell in cells():
        row = measure(cell, arguments.repetitions, arguments.seed)
        rows.append(row)
        print(row, flush=True)
        if arguments.csv:
            pd.DataFrame(rows).round(4).to_csv(arguments.csv, index=False)


if __name__ == "__main__":
    main()
