"""Measure the accuracies of groups of answers that are estimated from labels of a sample.

    python benchmarks/label_accuracies.py --repetitions 1000 --output build/label_accuracies.csv

The groups are those of notebook 06: the most certain answers, and bins of similar confidence. A
right answer is one that matches an alias of its reference. Each repetition makes a plan with
another seed, labels its answers correctly, and estimates the accuracies. It also estimates AUARC,
PRR and the Brier score, which have no intervals. The runs of the bundled models must exist
(`make figures`). `--records FOLDER` adds records files, in which a column `correct` has the truth.

The output has a row per setting, number of labels, method and quantity, with these columns:

- true: the true value.
- bias, standard_deviation: of the estimates.
- coverage, width: the share of the intervals that contain the true value, and their mean width.
- n_intervals, shown: the number of intervals, and the share of the repetitions with an estimate.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from pro_lib import Experiment, importing, metrics  # noqa: E402
from pro_lib.evaluation import Evaluation, Splits, evaluate  # noqa: E402
from pro_lib.evaluation.labels import (  # noqa: E402
    LabelPlan,
    LabelSample,
    Request,
    SampledVerdicts,
    label_table,
)
from pro_lib.metrics.selective import answered_weights  # noqa: E402

SETTINGS = (
    ("facts-2m", "world-facts"),
    ("facts-1m", "world-facts"),
    ("facts-2m", "world-facts-reworded"),
)
N_LABELS = (100, 200)
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)  # of the answers, the most certain first
ALPHA = 0.1  # of PRO, fixed beforehand
ESTIMATES = ("estimate", "low", "high")
Source = tuple[str, str] | Path  # a model and a dataset, or a records file


class Setting(NamedTuple):
    """The reported answers of a setting, with their scores and true labels.

    Attributes:
        reported: the n answers, judged by ROUGE-L.
        correct: (n,) the true labels.
        scores: (n, 2) NLL and PRO, or NLL and ALL for records.
        fits: the calibration of each score, which validation questions fit.
    """

    reported: Evaluation
    correct: np.ndarray
    scores: pd.DataFrame
    fits: dict[str, metrics.Calibration]


def load_setting(model: str, dataset: str) -> Setting:
    """Return a setting in which each answer counts once."""
    by_rouge = load_splits(model, dataset, "rouge_l")
    correct = load_splits(model, dataset, "alias_match").reported.correct
    scores = compute_scores(by_rouge.reported)
    validation = by_rouge.validation
    fits = fit_confidence(compute_scores(validation), validation.correct, scores, correct)
    return Setting(by_rouge.reported, correct, scores, fits)


def load_records(path: Path) -> Setting:
    """Return the setting of a records file with one answer to each question.

    A third of the questions, drawn at random, are the validation questions.
    """
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    truth = {record["question_id"]: record["answers"][0].pop("correct") for record in records}
    judged = replace(evaluate(importing.from_records(records)).judged, dataset=path.stem)
    correct = judged.answers["question_id"].map(truth).to_numpy(bool)
    is_validation = np.random.default_rng(0).permutation(len(correct)) < len(correct) // 3
    validation = judged.rows(is_validation)
    reported = judged.rows(~is_validation)
    scores = reported.baselines[["NLL", "ALL"]]
    reported_correct = correct[~is_validation]
    fits = fit_confidence(validation.baselines, validation.correct, scores, reported_correct)
    return Setting(reported, reported_correct, scores, fits)


def fit_confidence(
    validation_scores: pd.DataFrame,
    validation_correct: np.ndarray,
    scores: pd.DataFrame,
    correct: np.ndarray,
) -> dict[str, metrics.Calibration]:
    """Return the calibration of each column of `scores`, fitted on validation questions."""
    return {
        name: metrics.calibration(
            validation_scores[name], validation_correct, scores[name], correct
        )
        for name in scores
    }


def load_splits(model: str, dataset: str, correctness: str) -> Splits:
    """Return the validation and reported questions of a setting, judged by a rule."""
    experiment = Experiment(
        model=model, dataset=dataset, correctness=correctness, protocol="workbench"
    )
    [splits] = experiment.splits()
    return splits


def compute_scores(evaluation: Evaluation) -> pd.DataFrame:
    """Return NLL and PRO of the answers of an evaluation."""
    nll = evaluation.baselines["NLL"].to_numpy()
    return pd.DataFrame({"NLL": nll, "PRO": evaluation.pro(ALPHA)})


def label_correctly(setting: Setting, n_labels: int, seed: int) -> SampledVerdicts:
    """Return the labels of a new plan, all of them true."""
    truth = dict(zip(setting.reported.answers["question_id"], setting.correct, strict=True))
    plan = LabelPlan.create([setting.reported], n_labels=n_labels, seed=seed)
    labels = []
    while requests := plan.requests()[len(labels) :]:
        for unit, is_repetition in requests:
            dataset, question_id, text = plan.answers.table.iloc[unit][
                ["dataset", "question_id", "text"]
            ]
            request = Request(unit, dataset, question_id, text, is_repetition, 0, 0)
            labels.append(plan.label(request, bool(truth[question_id]), labeller="truth"))
        plan = plan.advance(label_table(labels))
    sample = replace(LabelSample.without_labels(setting.reported), labels=label_table(labels))
    sampled = sample.with_labels(setting.reported).labels
    assert sampled is not None
    return sampled


def estimate_quantities(setting: Setting, sampled: SampledVerdicts) -> Iterator[dict]:
    """Yield each quantity with its true value, its estimate and the ends of the interval."""
    correct = setting.correct
    counts = np.round(np.array(SHARES) * len(correct)).astype(int)
    for method, values in setting.scores.items():
        weights = answered_weights(values, counts)
        accuracy = sampled.accuracy_at(values, counts).columns("accuracy")
        columns = np.column_stack(list(accuracy.values()))
        for share, true, row in zip(SHARES, weights @ correct / counts, columns, strict=True):
            quantity = f"accuracy of the most certain {share:.0%}"
            yield {"method": method, "quantity": quantity, "true": true} | name_ends(row)
        fitted = setting.fits[str(method)]
        checked = sampled.check(fitted)
        for bin_row in checked.table.to_dict("records"):
            is_member = (fitted.probability >= bin_row["low"]) & (
                fitted.probability <= bin_row["high"]
            )
            true = correct[is_member].mean()
            row = [bin_row[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
            yield {"method": method, "quantity": "accuracy of a bin", "true": true} | name_ends(row)
        yield {
            "method": method,
            "quantity": "brier",
            "true": fitted.brier,
            "estimate": checked.brier,
        }
    exact = metrics.rejection(setting.scores, correct)
    estimated = sampled.rejection(setting.scores)
    for name in ("auarc", "prr"):
        for method, true, value in zip(exact["method"], exact[name], estimated[name], strict=True):
            yield {"method": method, "quantity": name, "true": true, "estimate": value}


def name_ends(row: np.ndarray | list[float]) -> dict[str, float]:
    """Return an estimate and the ends of its interval by name."""
    return dict(zip(ESTIMATES, row, strict=True))


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per setting, number of labels, method and quantity."""
    is_inside = (rows["low"] <= rows["true"]) & (rows["true"] <= rows["high"])
    rows = rows.assign(
        error=rows["estimate"] - rows["true"],
        is_shown=rows["estimate"].notna(),
        coverage=is_inside.where(rows["low"].notna()).astype(float),
        width=rows["high"] - rows["low"],
    )
    groups = rows.groupby(["dataset", "model", "n_labels", "method", "quantity"], sort=False)
    return groups.agg(
        true=("true", "mean"),
        bias=("error", "mean"),
        standard_deviation=("error", "std"),
        coverage=("coverage", "mean"),
        width=("width", "mean"),
        n_intervals=("coverage", "count"),
        shown=("is_shown", "mean"),
    ).reset_index()


def simulate_cell(source: Source, n_labels: int, *, repetitions: int, seed: int) -> list[dict]:
    """Return the estimates of all repetitions for a model and dataset, or a records file."""
    setting = load_records(source) if isinstance(source, Path) else load_setting(*source)
    reported = setting.reported
    labels = {"dataset": reported.dataset, "model": reported.model, "n_labels": n_labels}
    rows: list[dict] = []
    for repetition in range(repetitions):
        sampled = label_correctly(setting, n_labels, seed + repetition)
        rows += [labels | row for row in estimate_quantities(setting, sampled)]
    return rows


def main() -> None:
    """Simulate, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first plan")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--records", type=Path, help="folder of records files")
    parser.add_argument("--output", required=True, help="CSV file of the summary")
    arguments = parser.parse_args()
    sources: list[Source] = [*SETTINGS]
    if arguments.records is not None:
        sources += sorted(arguments.records.glob("*.jsonl"))
    cells = list(itertools.product(sources, N_LABELS))
    simulate = partial(simulate_cell, repetitions=arguments.repetitions, seed=arguments.seed)
    rows: list[dict] = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        results = pool.map(simulate, *zip(*cells, strict=True))
        for number, cell_rows in enumerate(results, start=1):
            rows += cell_rows
            print(f"{number} of {len(cells)} cells", flush=True)
    summarize(pd.DataFrame(rows)).round(4).to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
