"""Compare rules that choose the α of `pro score`: AUROC on questions that the rule did not see.

    python benchmarks/alpha_choices.py --records FOLDER --runs FOLDER --output FILE

Each repetition draws some questions with labels, applies every rule to them, and measures the
AUROC of PRO on all other questions. `--records` is a folder of records files with a column that
says which answers are right (such as those of data/published/make.py), `--runs` a folder of runs
that notebook 01 has generated. The row of a setting, a number of questions and a rule has the mean
difference to the AUROC of NLL, and quantiles of the difference over the repetitions.
"""

import argparse
import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from pro_lib import Experiment, metrics, scoring
from pro_lib.evaluation.evaluation import ALPHA_GRID, DRAWN_ALPHAS, Evaluation, alpha_grid

N_JUDGED = (40, 100, 300, 1000)
KEPT = (1.1, 1.5, 2.0)
DEFAULT_ALPHA = 0.4
STRATEGIES = ("diverse_beam", "multinomial")
# Each rule sees all answers; with fewer questions than this left, an AUROC says little.
FEWEST_LEFT = 200


def record_settings(folder: Path) -> Iterator[tuple[str, Evaluation]]:
    """Yield the name and the evaluation of each records file of a folder, for each protocol."""
    for path in sorted(folder.glob("*.jsonl")):
        experiment = Experiment(records=str(path), protocol=["paper", "workbench"])
        model, dataset = experiment.pairs()[0]
        for evaluation in experiment.evaluations(model, dataset, "all"):
            yield path.stem, evaluation


def run_settings(
    folder: Path, models: list[str], datasets: list[str]
) -> Iterator[tuple[str, Evaluation]]:
    """Yield the name and the evaluation of stored runs: beams and samples, for each protocol."""
    for model, dataset, strategy in itertools.product(models, datasets, STRATEGIES):
        experiment = Experiment(
            model=model,
            dataset=dataset,
            strategy=strategy,
            protocol=["paper", "workbench"],
            limit=1000 if model.startswith("smollm2") else None,
            generations_dir=str(folder),
        )
        for evaluation in experiment.evaluations(model, dataset, "all"):
            yield f"{model}, {Path(dataset).stem}", evaluation


def alpha_with_kept(kept: np.ndarray, grid: np.ndarray, n_kept: float) -> float:
    """Return the largest α of the grid at which `n_kept` answers are kept on average.

    Args:
        kept: (n, A) number of answers kept.
        grid: (A,) the αs, rising.
        n_kept: the mean number of answers to keep.
    """
    enough = kept.mean(axis=0) >= n_kept
    return float(grid[enough].max()) if enough.any() else float(grid[0])


def compare(evaluation: Evaluation, n_judged: int, repetitions: int, seed: int) -> pd.DataFrame:
    """Return the AUROC minus that of NLL on unseen questions: a row per repetition and rule."""
    grid = np.unique(alpha_grid(evaluation.search_alpha, alphas=DRAWN_ALPHAS))
    nearest_first = np.argsort(np.round(np.abs(grid - DEFAULT_ALPHA), 12), kind="stable")
    nearest_first = nearest_first[np.isin(grid[nearest_first], ALPHA_GRID)]
    kept = scoring.adaptive_k(evaluation.log_probs, grid)
    scores = np.column_stack([evaluation.pro(grid), evaluation.baselines["NLL"]])
    correct = evaluation.correct
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < repetitions:
        order = rng.permutation(len(correct))
        judged, others = order[:n_judged], order[n_judged:]
        if correct[judged].all() or not correct[judged].any():
            continue
        aurocs = metrics.auroc_intervals(scores[others], correct[others])[0]
        on_judged = metrics.auroc_intervals(scores[judged][:, :-1], correct[judged])[0]
        best = nearest_first[on_judged[nearest_first].argmax()]
        chosen = {"α = 0.4": DEFAULT_ALPHA, "α chosen": float(grid[best])}
        for n_kept in KEPT:
            chosen[f"{n_kept:g} answers kept"] = alpha_with_kept(kept[order], grid, n_kept)
        gains = {
            rule: aurocs[np.abs(grid - alpha).argmin()] - aurocs[-1]
            for rule, alpha in chosen.items()
        }
        rows.append(gains)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure every setting and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=Path, help="folder of records files")
    parser.add_argument("--runs", type=Path, help="folder of stored runs")
    parser.add_argument("--models", nargs="+", default=["facts-2m"])
    parser.add_argument("--datasets", nargs="+", default=["world-facts"])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    settings: list[tuple[str, Evaluation]] = []
    if arguments.records:
        settings += record_settings(arguments.records)
    if arguments.runs:
        settings += run_settings(arguments.runs, arguments.models, arguments.datasets)
    tables = []
    for name, evaluation in settings:
        for n_judged in N_JUDGED:
            if len(evaluation.correct) < n_judged + FEWEST_LEFT:
                continue
            gains = compare(evaluation, n_judged, arguments.repetitions, arguments.seed)
            quantiles = gains.quantile([0.05, 0.95])
            summary = pd.DataFrame(
                {"gain": gains.mean(), "low": quantiles.loc[0.05], "high": quantiles.loc[0.95]}
            )
            summary.insert(0, "setting", name)
            summary.insert(1, "strategy", evaluation.strategy)
            summary.insert(2, "protocol", evaluation.protocol)
            summary.insert(3, "n_questions", len(evaluation.correct))
            summary.insert(4, "n_judged", n_judged)
            tables.append(summary.rename_axis("rule").reset_index())
            print(f"{name}, {evaluation.protocol}: {n_judged} judged questions", flush=True)
    table = pd.concat(tables, ignore_index=True)
    table.round(5).to_csv(arguments.output, index=False, lineterminator="\n")


if __name__ == "__main__":
    with warnings.catch_warnings(action="ignore"):
        main()
