"""Measure the estimates from labels by hand: bias, error and coverage.

    python benchmarks/label_estimates.py --repetitions 2000 --output build/label_estimates.csv

Each repetition draws questions, an automatic judge with errors, and the labels of one plan, and
estimates an AUROC and two differences. The same number of random labels is the baseline. The script
writes a row as soon as a cell is done; a second call with the same `--output` skips the cells in
the file.

`--only` runs the cells whose name contains a text. `--records FOLDER` adds cells of records files
with a column correct, `--world-facts FOLDER` those of runs of the bundled models (FOLDER has the
runs, made by notebook 01). label_summary.py makes the tables of docs/results/labels.md from the
output. docs/results/experiment_log.md explains how the method was chosen, with other seeds.
"""

import itertools
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import ROOT, parse_arguments
from scipy.special import expit, logit, ndtri

from pro_lib.evaluation import Evaluation, evaluate
from pro_lib.importing import import_answers
from pro_lib.labels import answer_units, sampling
from pro_lib.labels.inference import Ranking, WeightedLabels, areas, label_weights
from pro_lib.labels.label_model import cross_fitted
from pro_lib.labels.sampled_verdicts import FEWEST_FOR_AUROC
from pro_lib.runs import read_run

POPULATION = 300_000
SHARES_RIGHT = (0.05, 0.2, 0.5)
AGREEMENTS = (0.75, 0.85, 0.95)
AUROCS = (0.5, 0.75, 0.95)
N_QUESTIONS = (300, 1000, 3000)
N_LABELS = (60, 100, 200)
QUANTITIES = ("auroc", "difference_1", "difference_2")


@dataclass(frozen=True)
class Questions:
    """Questions with scores (n, 3), ROUGE-L (n,), true labels (n,) and clusters (n,) or None.

    The first score stands for NLL. The second has another AUROC; the third differs for one question
    in five.
    """

    scores: np.ndarray
    rouge: np.ndarray
    correct: np.ndarray
    clusters: np.ndarray | None = None

    def select(self, chosen: np.ndarray) -> "Questions":
        """Return some of the questions."""
        clusters = None if self.clusters is None else self.clusters[chosen]
        return Questions(self.scores[chosen], self.rouge[chosen], self.correct[chosen], clusters)


# Questions


def made_up(cell: dict, n: int, rng: np.random.Generator) -> Questions:
    """Draw questions of a cell: binormal scores, and a judge whose errors depend on the score.

    A wrong answer that the model is sure of is more often judged right, and a right answer that it
    is not sure of is more often judged wrong.
    """
    kind = cell["kind"]
    clusters = None
    effects = np.zeros((2, n))
    if kind == "clusters":
        clusters = np.arange(n) // 10
        effects = rng.normal(size=(2, n // 10 + 1))[:, clusters]
    right = logit(cell["share_right"]) + effects[0]
    correct = (rng.random(n) < expit(right)).astype(np.float64)
    shift = np.sqrt(2) * ndtri(cell["auroc"])
    noise = rng.normal(size=n)
    if kind == "clusters":
        noise = np.sqrt(0.8) * noise + np.sqrt(0.2) * effects[1]
    first = noise + shift * (1 - correct)
    second = 0.9 * noise + np.sqrt(1 - 0.9**2) * rng.normal(size=n) + (shift - 0.1) * (1 - correct)
    moved = rng.random(n) < (0.03 if kind == "few moved" else 0.2)
    third = np.where(moved, first + 0.6 * rng.normal(size=n) - 0.05 * (1 - correct), first)
    scores = np.column_stack([first, second, third])
    if kind == "ties":
        scores = np.round(scores)
    rouge = made_up_rouge(
        correct, noise, cell["agreement"], rng, strength=2.0 if kind == "strong errors" else 1.0
    )
    if kind == "rare bin":
        # One answer in a hundred is a long right answer that shares few words with the reference.
        is_rare = rng.random(n) < 0.01
        rouge = np.where(is_rare, 0.1, np.where(rouge == 0.2, 0.0, rouge))
        correct = np.where(is_rare, (rng.random(n) < 0.9).astype(np.float64), correct)
    return Questions(scores, rouge, correct, clusters)


def made_up_rouge(
    correct: np.ndarray,
    noise: np.ndarray,
    agreement: float,
    rng: np.random.Generator,
    *,
    strength: float,
) -> np.ndarray:
    """Draw ROUGE-L values whose verdicts agree with the labels with about this probability."""
    n = len(correct)
    # The logistic curve of a normal argument has this mean, about.
    scale = np.sqrt(1 + 0.346 * strength**2)
    error = expit(logit(1 - agreement) * scale + strength * noise * (2 * correct - 1))
    verdict = np.where(rng.random(n) < error, 1 - correct, correct)
    level = rng.random(n)
    accepted = np.where(
        level < np.where(correct == 1, 0.6, 0.25), 1.0, np.where(level < 0.8, 0.8, 0.5)
    )
    rejected = np.where(level < np.where(correct == 1, 0.5, 0.8), 0.0, 0.2)
    return np.where(verdict == 1, accepted, rejected)


@cache
def stored(path: Path, truth: str) -> Questions:
    """Return the questions of a records file or of a run, scored by NLL, ALL and PRO.

    PRO has α = 0.1. Where it equals NLL, the sum of the ranks of NLL and ALL takes its place.

    Args:
        path: a records file, or the folder of a run.
        truth: the column with the true labels.
    """
    with warnings.catch_warnings(action="ignore"):
        run = import_answers(path) if path.is_file() else read_run(path)
        evaluation: Evaluation = evaluate(run, protocol="workbench")
        pro = evaluation.pro(0.1)
    nll = evaluation.baselines["NLL"].to_numpy(float)
    average = evaluation.baselines["ALL"].to_numpy(float)
    if np.array_equal(pro, nll):
        pro = answer_units.ranks(nll) + answer_units.ranks(average)
    scores = np.column_stack([nll, average, pro])
    correct = evaluation.answers[truth].to_numpy(float)
    return Questions(scores, evaluation.answers["rouge_l"].to_numpy(float), correct)


# Cells


def cells(records: Path | None = None, runs: Path | None = None) -> list[dict]:
    """Return all cells, each with a name."""
    every = [*made_up_cells(), *stored_cells(records, runs)]
    return [cell | {"cell": name_of(cell)} for cell in every]


def name_of(cell: dict) -> str:
    """Return the settings of a cell in one line."""
    return "; ".join(f"{name}={value}" for name, value in cell.items())


def made_up_cells() -> Iterator[dict]:
    """Yield the grid, and cells with something else that may go wrong."""
    names = ("share_right", "agreement", "auroc", "n_questions", "n_labels")
    for values in itertools.product(SHARES_RIGHT, AGREEMENTS, AUROCS, N_QUESTIONS, N_LABELS):
        yield {"kind": "grid", **dict(zip(names, values, strict=True))}
    for kind in ("ties", "rare bin", "clusters", "early stop", "few moved", "strong errors"):
        for values in itertools.product((0.2, 0.5), (0.85,), (0.75, 0.95), (300, 1000), (100, 200)):
            yield {"kind": kind, **dict(zip(names, values, strict=True))}


def stored_cells(records: Path | None, runs: Path | None) -> Iterator[dict]:
    """Yield the cells of records files and of runs.

    Each has a cell with all questions and one that draws from them with replacement.
    """
    sources = []
    if records is not None:
        paths = sorted(records.glob("*.jsonl"))
        sources += [{"kind": "records", "source": path.stem} for path in paths]
    if runs is not None:
        names = ("world-facts/facts-2m", "world-facts/facts-1m", "world-facts-reworded/facts-2m")
        sources += [{"kind": "runs", "source": name} for name in names]
    for source, n, n_labels in itertools.product(sources, ("all", 1000), N_LABELS):
        yield {**source, "n_questions": n, "n_labels": n_labels}


def population(cell: dict, folders: tuple[Path | None, Path | None]) -> Questions:
    """Return the questions whose AUROCs are the truth of the population."""
    records, runs = folders
    if cell["kind"] == "records":
        return stored(records / f"{cell['source']}.jsonl", "correct")
    if cell["kind"] == "runs":
        return stored(runs / cell["source"] / "diverse_beam", "alias_match")
    return made_up(cell, POPULATION, np.random.default_rng(zlib.crc32(cell["cell"].encode())))


def draw(cell: dict, whole: Questions, rng: np.random.Generator) -> Questions:
    """Draw the questions of one repetition."""
    if cell["kind"] not in ("records", "runs"):
        return made_up(cell, cell["n_questions"], rng)
    if cell["n_questions"] == "all":
        return whole
    return whole.select(rng.integers(len(whole.correct), size=cell["n_questions"]))


# One repetition


def features_of(questions: Questions) -> np.ndarray:
    """Return the features (n, F) of the label model."""
    bins = answer_units.rouge_bin(questions.rouge)
    ranks = [answer_units.ranks(questions.scores[:, column]) for column in (0, 1)]
    is_bin = bins[:, None] == np.arange(len(answer_units.ROUGE_BINS))
    return np.column_stack([is_bin, *ranks]).astype(np.float64)


def quantities(ranking: Ranking, labels: np.ndarray) -> np.ndarray:
    """Return the true values (3,) of `QUANTITIES`."""
    values = areas(ranking, labels).auroc
    return np.array([values[0], *(values[1:] - values[0])])


def choose(
    questions: Questions,
    ranking: Ranking,
    features: np.ndarray,
    n_labels: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return both phases in order, the mask of the first and the probabilities."""
    n = len(questions.correct)
    n_first = sampling.first_size(n_labels, n)
    first = sampling.first_phase(answer_units.rouge_bin(questions.rouge), n_first, rng)
    is_first = np.zeros(n, dtype=bool)
    is_first[first] = True
    labels = np.where(is_first, questions.correct, np.nan)
    n_second = min(n_labels, n) - n_first
    probabilities = sampling.second_probabilities(
        ranking, features, labels, is_first, n_second=n_second
    )
    return first, sampling.second_phase(probabilities, rng), is_first, probabilities


def repeat(
    cell: dict, whole: Questions, truth: np.ndarray, rng: np.random.Generator
) -> dict | None:
    """Return errors and coverage of one repetition; None if a class has no answer."""
    questions = draw(cell, whole, rng)
    n = len(questions.correct)
    if questions.correct.min() == questions.correct.max():
        return None
    ranking = Ranking.from_scores(questions.scores)
    features = features_of(questions)
    first, second, is_first, probabilities = choose(
        questions, ranking, features, cell["n_labels"], rng
    )
    n_second = len(second)
    if cell["kind"] == "early stop":
        second = second[: n_second // 2]
    labels = np.full(n, np.nan)
    labels[first] = questions.correct[first]
    labels[second] = questions.correct[second]
    weights = label_weights(labels, is_first, probabilities, n_first=len(first), n_second=n_second)
    seed = int(rng.integers(2**31))
    model = cross_fitted(features, labels, seed=seed)
    weighted = WeightedLabels(labels, weights, model, clusters=questions.clusters)
    at_hand = quantities(ranking, questions.correct)
    result = {"n_labels": np.count_nonzero(~np.isnan(labels))}
    label_values = labels[~np.isnan(labels)]
    fewest = min(label_values.sum(), (1 - label_values).sum())
    result["enough"] = fewest >= FEWEST_FOR_AUROC
    values = quantities(ranking, weighted.pseudo)
    baseline = random_labels(questions, len(label_values), rng)
    for name, value, random, exact in zip(QUANTITIES, values, baseline, at_hand, strict=True):
        result |= {f"{name}_error": value - exact, f"{name}_random": random - exact}
    for scope, exact in (("questions", at_hand), ("population", truth)):
        scoped = replace(weighted, scope=scope)
        for name, low, high, value in intervals(ranking, scoped, exact):
            result[f"{name}_{scope}_covered"] = low <= value + 1e-12 and value - 1e-12 <= high
            result[f"{name}_{scope}_width"] = high - low
    return result


def random_labels(questions: Questions, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """Return the same quantities from as many random labels; NaN if they are of one class."""
    some = questions.select(rng.choice(len(questions.correct), n_labels, replace=False))
    return quantities(Ranking.from_scores(some.scores), some.correct)


def intervals(
    ranking: Ranking, weighted: WeightedLabels, exact: np.ndarray
) -> Iterator[tuple[str, float, float, float]]:
    """Yield the interval of each quantity, with the value that it should contain."""
    auroc = weighted.auroc(ranking)
    yield "auroc", auroc.low[0], auroc.high[0], exact[0]
    difference, _ = weighted.difference(ranking, 0)
    for column in (1, 2):
        yield f"difference_{column}", difference.low[column], difference.high[column], exact[column]


# Tables


def measure(
    cell: dict, repetitions: int, seed: int, folders: tuple[Path | None, Path | None]
) -> dict:
    """Return the row of a cell."""
    rng = np.random.default_rng([seed, zlib.crc32(cell["cell"].encode())])
    whole = population(cell, folders)
    truth = quantities(Ranking.from_scores(whole.scores), whole.correct)
    results = [repeat(cell, whole, truth, rng) for _ in range(repetitions)]
    table = pd.DataFrame([row for row in results if row is not None]).astype(np.float64)
    row = {**cell, "repetitions": repetitions, "n_drawn": len(table)}
    row |= dict(zip(QUANTITIES, truth, strict=True))
    row["mean_labels"] = table["n_labels"].mean()
    enough = table["enough"] == 1
    row["enough"] = enough.mean()
    for name in QUANTITIES:
        shown = table[enough & table[f"{name}_population_width"].notna()]
        row |= {
            f"{name}_n_shown": len(shown),
            f"{name}_shown_of_allowed": len(shown) / max(enough.sum(), 1),
        }
        row[f"{name}_bias"] = shown[f"{name}_error"].mean()
        row[f"{name}_bias_se"] = shown[f"{name}_error"].std() / np.sqrt(max(len(shown), 1))
        both = shown.dropna(subset=f"{name}_random")
        row[f"{name}_rmse"] = root_mean_square(both[f"{name}_error"])
        row[f"{name}_random_rmse"] = root_mean_square(both[f"{name}_random"])
        row[f"{name}_ratio"] = row[f"{name}_rmse"] / row[f"{name}_random_rmse"]
        row |= (
            shown.filter(regex=f"^{name}_(questions|population)_(covered|width)$").mean().to_dict()
        )
    return row


def root_mean_square(values: pd.Series) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt((values**2).mean()))


def main(words: list[str] | None = None) -> None:
    """Measure the cells that are not in the output yet, and write them there."""
    options = {
        "--repetitions": 2000,
        "--seed": 20,
        "--only": "",
        "--records": Path,
        "--world-facts": Path,
        "--output": ROOT / "build" / "label_estimates.csv",
    }
    arguments = parse_arguments(__doc__, options, words)
    folders = (arguments.records, arguments.world_facts)
    output = arguments.output
    table = pd.read_csv(output) if output.exists() else pd.DataFrame({"cell": []})
    for cell in cells(*folders):
        if arguments.only in cell["cell"] and cell["cell"] not in set(table["cell"]):
            row = measure(cell, arguments.repetitions, arguments.seed, folders)
            table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
            table.round(5).to_csv(output, index=False)
            print(cell["cell"], flush=True)


if __name__ == "__main__":
    main()
