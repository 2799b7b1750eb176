"""Time the α sweep against per-question loops on the same synthetic answers; knows no model and no real data.

Run from the repository root: `OMP_NUM_THREADS=1 python benchmarks/alpha_sweep.py`. Each contender computes PRO
at every α and its AUROC. A loop costs about the same at every α, so by default it runs at a few of them, spread
over [0, 1], and its time for all of them is extrapolated; `--loop-alphas 0` runs it at every α.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from pro_lib import metrics, sweeps
from pro_lib.evaluation import Evaluation


def synthetic_answers(n_questions: int, n_answers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (n, N) of distinct answers, mass below 1, and correctness (n,) that follows them."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_answers + 1, 0.3), size=n_questions)[:, :n_answers]
    probs = np.sort(np.maximum(probs, 1e-12))[:, ::-1]
    return np.log(probs), rng.random(n_questions) < probs[:, 0]


def evaluation_of(log_probs: np.ndarray, correct: np.ndarray) -> Evaluation:
    """What `sweeps` take."""
    answers, nothing = pd.DataFrame({"correct": correct}), pd.DataFrame(index=range(len(correct)))
    return Evaluation("model", "synthetic", "all", answers, log_probs, nothing, metrics.usable(nothing, correct), ())


def pro_of(probs: Sequence[float]) -> float:
    """PRO of one question's kept probabilities, sorted downwards, term by term."""
    return -math.log(probs[-1]) - sum(p * math.log(p / probs[-1]) for p in probs)


def pandas_loc_loop(log_probs: np.ndarray, correct: np.ndarray, alphas: np.ndarray) -> list[float]:
    """A DataFrame with a row per question and a column per answer; each row is looked up by its label."""
    frame = pd.DataFrame(np.exp(log_probs), columns=[f"p{rank}" for rank in range(log_probs.shape[1])])
    columns, aurocs = list(frame.columns), []
    for alpha in alphas:
        uncertainty = []
        for question in frame.index:
            ranked = sorted(frame.loc[question, columns], reverse=True)
            uncertainty.append(pro_of([p for p in ranked if p > alpha] or ranked[:1]))
        aurocs.append(roc_auc_score(~correct, uncertainty))
    return aurocs


def pandas_apply_loop(log_probs: np.ndarray, correct: np.ndarray, alphas: np.ndarray) -> list[float]:
    """A DataFrame with a row per question and a list of answers in a cell; `apply` goes through the rows."""
    frame = pd.DataFrame({"probs": np.exp(log_probs).tolist()})

    def pro(row: pd.Series, alpha: float) -> float:
        ranked = sorted(row["probs"], reverse=True)
        return pro_of([p for p in ranked if p > alpha] or ranked[:1])

    return [roc_auc_score(~correct, frame.apply(pro, axis=1, alpha=alpha)) for alpha in alphas]


def numpy_loop(log_probs: np.ndarray, correct: np.ndarray, alphas: np.ndarray) -> list[float]:
    """A Python loop over the questions, NumPy within each."""
    aurocs = []
    for alpha in alphas:
        uncertainty = np.empty(len(log_probs))
        for question, row in enumerate(log_probs):
            probs = np.exp(row)
            kept = probs[probs > alpha]
            if not kept.size:
                kept = probs.max(keepdims=True)
            last = kept.min()
            uncertainty[question] = -np.log(last) - (kept * np.log(kept / last)).sum()
        aurocs.append(roc_auc_score(~correct, uncertainty))
    return aurocs


Loop = Callable[[np.ndarray, np.ndarray, np.ndarray], list[float]]
LOOPS: list[tuple[str, Loop]] = [
    ("pandas loop, .loc", pandas_loc_loop),
    ("pandas loop, .apply", pandas_apply_loop),
    ("NumPy loop", numpy_loop),
]


def main() -> None:
    """Measure, check that the results agree, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--answers", type=int, default=10)
    parser.add_argument("--alphas", type=int, default=101, help="how many α, evenly spaced over [0, 1]")
    parser.add_argument("--loop-alphas", type=int, default=5, help="how many of them the loops run at; 0: all")
    parser.add_argument("--repeats", type=int, default=5, help="runs of the vectorised sweep; the median counts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    log_probs, correct = synthetic_answers(args.questions, args.answers, args.seed)
    alphas = np.linspace(0, 1, args.alphas)
    n_timed = min(args.loop_alphas or args.alphas, args.alphas)
    timed = np.unique(np.linspace(0, args.alphas - 1, n_timed).astype(int))

    sweep_seconds = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        swept = sweeps.alpha_sweep(evaluation_of(log_probs, correct), alphas=alphas)["auroc"].to_numpy()
        sweep_seconds.append(time.perf_counter() - start)
    fast = float(np.median(sweep_seconds))

    print(f"{args.questions} questions x {args.answers} answers, {args.alphas} alphas")
    print(f"{'':24}{'alphas run':>12}{'seconds run':>13}{'s for all':>12}{'ratio':>9}")
    print(f"{'pro_lib alpha_sweep':24}{args.alphas:12}{fast:13.3f}{fast:12.3f}{1:9}")
    for name, loop in LOOPS:
        start = time.perf_counter()
        looped = loop(log_probs, correct, alphas[timed])
        seconds = time.perf_counter() - start
        np.testing.assert_allclose(swept[timed], looped, rtol=0, atol=1e-9)
        total = seconds * args.alphas / len(timed)
        print(f"{name:24}{len(timed):12}{seconds:13.3f}{total:12.3f}{total / fast:9.0f}")
    print(f"AUROCs agree within 1e-9. The sweep's time is the median of {args.repeats} runs.")
    if len(timed) < args.alphas:
        print(f"Loops ran at {len(timed)} of {args.alphas} alphas; 's for all' is extrapolated in proportion.")


if __name__ == "__main__":
    main()
