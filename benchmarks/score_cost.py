"""CPU seconds per 1,000 questions of each score, generation apart: what the paper's word "cheap" is about.

Run from the repository root: `python benchmarks/score_cost.py [--questions 1000] [--csv docs/score_cost.csv]`.
Facts-2m on world-facts, so many test questions drawn with seed 0, ten diverse beams and ten samples each as they are
stored; one thread, least of three times. A method that compares meanings is charged all of its comparison, though in an
evaluation the methods share it; `comparing` says how much that is. Reading the answers is charged to nobody.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import asked, seconds

from pro_lib import meanings, scores, similarities
from pro_lib.runs import Run
from pro_lib.settings import BEAMS, SAMPLES, Settings

NAMES = ("lexical", "alias")


def least(score: Callable) -> float:
    """CPU seconds of a call, the least of three."""
    return min(seconds(score, repeats=3, clock=time.process_time))


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

    def entropy(compared: np.ndarray) -> np.ndarray:
        return meanings.semantic_entropy(logs, meanings.clusters(compared))

    of_texts = {"SE": (texts, entropy), "SD": (texts, partial(meanings.semantic_density, means))}
    of_texts["Deg"] = drawn_texts, meanings.degree
    rows = [(name, least(score), 0.0, 0.0) for name, score in plain.items()]
    for name, similarity in judges.items():
        for method, (these, score) in of_texts.items():
            compare = partial(similarity, these, beams.questions)
            comparing, cost = least(compare), least(partial(score, compare()))
            pairs = np.mean([n * (n - 1) for n in (len(set(row) - {None}) for row in these)])
            rows.append((f"{method}, {name}", cost + comparing, comparing, pairs))
    return pd.DataFrame(rows, columns=["method", "seconds", "comparing", "pairs"])


def main() -> None:
    """Read the runs, and print the table."""
    given = asked(__doc__, {"--questions": 1000, "--csv": Path})
    settings = Settings(model="facts-2m", dataset="world-facts", similarity=NAMES, limit=given.questions)
    [pair] = settings.pairs()
    beams, samples = (
        settings.run(*pair, "validation", "test", strategy=name).select(split="test") for name in (BEAMS, SAMPLES)
    )
    costs = table(beams, samples, settings.similarities(*pair))
    costs[["seconds", "comparing"]] *= 1000 / len(beams.questions)
    if given.csv:
        costs.to_csv(given.csv, index=False, float_format="%.3g")
    print(costs.to_string(index=False))


if __name__ == "__main__":
    main()
