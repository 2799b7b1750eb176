"""Measure how often the interval of PRO − NLL at the chosen α contains the true difference.

    python benchmarks/alpha_choice_coverage.py --output docs/results/data/alpha_choice_coverage.csv

Each repetition draws questions of a simulated world and applies `evaluation.choose_alpha`. The
interval is that of the questions on which α was not chosen. The true difference at the same α is
measured on 200,000 other questions.
"""

import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_arguments

from pro_lib import metrics, scoring
from pro_lib.evaluation import Evaluation, alpha_grid, choose_alpha
from pro_lib.plots.worlds import World, simulate

N_QUESTIONS = (300, 600, 1000)
N_OTHERS = 200_000
CLUSTER_SIZE = 10
OVERCONFIDENT = World(calibration=0.5, share_outside=0.1)
SPELLINGS = World(n_spellings=3)
# Each question is from one of the worlds of its row. The questions of a cluster share their world.
WORLDS = {
    "overconfident": [OVERCONFIDENT],
    "spellings": [SPELLINGS],
    "samples of spellings": [replace(SPELLINGS, answers_found="samples")],
    "clusters": [World(), OVERCONFIDENT, replace(SPELLINGS, sharpness=1.0)],
}


def draw(
    worlds: list[World], n_questions: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log-probabilities, which answers are right, and the cluster of each question."""
    clusters = np.arange(n_questions) // CLUSTER_SIZE
    kinds = rng.integers(len(worlds), size=clusters[-1] + 1)[clusters]
    log_probs = np.empty((n_questions, worlds[0].n_answers))
    correct = np.empty(n_questions, bool)
    for kind, world in enumerate(worlds):
        members = kinds == kind
        log_probs[members], correct[members] = simulate(world, int(members.sum()), rng)
    return log_probs, correct, clusters


def true_differences(worlds: list[World], rng: np.random.Generator) -> dict[float, float]:
    """Return AUROC of PRO minus AUROC of NLL in the population, by α."""
    log_probs, correct, _ = draw(worlds, N_OTHERS, rng)
    alphas = alpha_grid()
    with warnings.catch_warnings(action="ignore", category=scoring.PremiseWarning):
        pro = scoring.pro(log_probs, alpha=alphas)
    scores = np.column_stack([scoring.nll(log_probs), pro])
    aurocs = metrics.auroc_intervals(scores, correct)[0]
    return dict(zip(alphas.tolist(), aurocs[1:] - aurocs[0], strict=True))


def repetition(
    worlds: list[World], n_questions: int, rng: np.random.Generator
) -> tuple[float, int, float, float]:
    """Return the chosen α, the number of reported questions, and the ends of the interval."""
    log_probs, correct, clusters = draw(worlds, n_questions, rng)
    # The names of the clusters, or the texts of the questions, decide the halves.
    answers = pd.DataFrame({"question_id": np.arange(n_questions), "correct": correct})
    numbers = answers["question_id"]
    if len(worlds) > 1:
        answers["cluster"] = clusters
        numbers = answers["cluster"]
    texts = f"{rng.random()} " + numbers.astype(str)
    questions = pd.DataFrame({"question_id": answers["question_id"], "question": texts})
    baselines = pd.DataFrame({"NLL": scoring.nll(log_probs)})
    evaluation = Evaluation("model", "world", "all", answers, log_probs, baselines, "", ())
    choice = choose_alpha(evaluation, questions)
    if choice.reported is not None:
        evaluation = evaluation.rows(choice.reported)
    scores = evaluation.with_pro({"PRO": choice.alpha})[["NLL", "PRO"]]
    tests = metrics.delong(scores, evaluation.correct, clusters=evaluation.answers.get("cluster"))
    return choice.alpha, len(scores), tests.low[1], tests.high[1]


def measure(name: str, n_questions: int, truths: dict[float, float], n_repetitions: int) -> dict:
    """Return the row of a world and a number of questions."""
    rng = np.random.default_rng([list(WORLDS).index(name), n_questions])
    rows = [repetition(WORLDS[name], n_questions, rng) for _ in range(n_repetitions)]
    table = pd.DataFrame(rows, columns=["alpha", "n_reported", "low", "high"])
    truth = table["alpha"].map(truths)
    coverage = table["low"].le(truth).mul(table["high"].ge(truth)).mean()
    return {
        "world": name,
        "n_questions": n_questions,
        "repetitions": n_repetitions,
        "coverage": coverage,
        "coverage_error": np.sqrt(coverage * (1 - coverage) / n_repetitions),
        "share_chosen": table["n_reported"].lt(n_questions).mean(),
        "n_reported": table["n_reported"].mean(),
        "alpha": table["alpha"].median(),
        "difference": truth.mean(),
        "width": (table["high"] - table["low"]).mean(),
    }


def main(words: list[str] | None = None) -> None:
    """Write a row per world and number of questions."""
    options = {"--repetitions": 2000, "--output": Path("build/alpha_choice_coverage.csv")}
    arguments = parse_arguments(__doc__, options, words)
    rows = []
    for number, (name, worlds) in enumerate(WORLDS.items()):
        truths = true_differences(worlds, np.random.default_rng([number]))
        for n_questions in N_QUESTIONS:
            rows.append(measure(name, n_questions, truths, arguments.repetitions))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(arguments.output, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
