"""CPU seconds per 1,000 questions of each score, generation apart: what the paper's word "cheap" is about.

Run from the repository root: `python benchmarks/score_cost.py [--questions 1000] [--csv docs/score_cost.csv]`.
Facts-2m on world-facts, ten diverse beams and ten samples a question as they are stored; one thread, least of three
times. A method that compares meanings is charged all of its comparison, though in an
evaluation the methods share it; `comparing` says how much that is. Reading the answers is charged to nobody.
"""

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import meanings, scores, similarities
from pro_lib.runs import Run
from pro_lib.settings import BEAMS, SAMPLES, Settings

NAMES = ("lexical", "alias")


def seconds(asked: Callable, repeats: int = 3) -> float:
    """CPU seconds of a call, the least of some."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        asked()
        taken.append(time.process_time() - start)
    return min(taken)


def read(run: Run, *, distinct: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, the same per token, and texts, (n, N) each."""
    ranked = run.ranked(distinct=distinct)
    return run.matrix(ranked, "value"), run.matrix(ranked, "mean"), run.matrix(ranked, "text", None)


def table(beams: Run, samples: Run, judges: dict[str, similarities.Similarity]) -> pd.DataFrame:
    """A row per method and similarity: seconds, of which comparing, and the ordered pairs of texts it compares."""
    (logs, means, texts), (drawn, drawn_means, drawn_texts) = read(beams, distinct=True), read(samples, distinct=False)
    plain = {
        "PRO": lambda: scores.pro(logs, alpha=0.4),
        "NLL": lambda: scores.nll(logs),
        "ALL": lambda: scores.average_log_likelihood(means, logs),
        "PE": lambda: scores.predictive_entropy(logs),
        "PE-MC": lambda: scores.predictive_entropy_mc(drawn),
        "NE": lambda: scores.normalized_entropy(drawn_means),
    }

    def of_beams(compared: np.ndarray) -> dict[str, Callable]:
        return {
            "SE": lambda: meanings.semantic_entropy(logs, meanings.clusters(compared)),
            "SD": lambda: meanings.semantic_density(means, compared),
        }

    def of_samples(compared: np.ndarray) -> dict[str, Callable]:
        return {"Deg": lambda: meanings.degree(compared)}

    rows = [(name, seconds(score), 0.0, 0.0) for name, score in plain.items()]
    for name, similarity in judges.items():
        for these, made in ((texts, of_beams), (drawn_texts, of_samples)):
            comparing = seconds(functools.partial(similarity, these, beams.questions))
            pairs = np.mean([n * (n - 1) for n in (len(set(row) - {None}) for row in these)])
            for method, score in made(similarity(these, beams.questions)).items():
                rows.append((f"{method}, {name}", seconds(score) + comparing, comparing, pairs))
    return pd.DataFrame(rows, columns=["method", "seconds", "comparing", "pairs"])


def main() -> None:
    """Read the runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=1000, help="of the test questions, drawn with seed 0")
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    settings = Settings(model="facts-2m", dataset="world-facts", similarity=NAMES, limit=asked.questions)
    [pair] = settings.pairs()
    beams, samples = (
        settings.run(*pair, "validation", "test", strategy=name).select(split="test") for name in (BEAMS, SAMPLES)
    )
    costs = table(beams, samples, settings.similarities(*pair))
    costs[["seconds", "comparing"]] *= 1000 / len(beams.questions)
    if asked.csv:
        costs.to_csv(asked.csv, index=False, float_format="%.3g")
    print(costs.to_string(index=False))


if __name__ == "__main__":
    main()
