"""Searches in half precision: what is undecided and wrong without and with float32, what deciding costs, ε by depth.

Run from the repository root: `python benchmarks/half_precision.py [--questions 200] [--csv docs]`, on one thread. Arms:
`alone` (no float32 copy: ε is how far log-probabilities move with the pack's shape), `decided` (as the workbench
searches), `float32` (the copy is searched). Tokens include prompts and what ε is measured with; seconds are CPU's.
"""

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.engine import half
from pro_lib.generate import generate
from pro_lib.models import Model
from pro_lib.questions import QuestionSet
from pro_lib.runs import Run

SETTINGS = [
    ("facts-2m", "world-facts", "bfloat16"),
    ("facts-2m", "world-facts", "float16"),
    ("facts-long", "world-facts-long", "bfloat16"),
]
ALPHAS = (0.02, 0.1)


def searched(model: Model, questions: QuestionSet, alpha: float) -> tuple[Run, float]:
    """The run of a search, and its CPU seconds."""
    started = time.process_time()
    run = generate(model, questions, strategy="threshold", search_alpha=alpha, progress=False)
    return run, time.process_time() - started


def found(run: Run) -> dict[str, set[tuple[int, ...]]]:
    """The answers that reach the run's α, by question."""
    rows = run.ranked()
    rows = rows[rows["value"] >= np.log(run.search_alpha)]
    answers = {name: set() for name in run.questions["question_id"]}
    for name, ids in zip(rows["question_id"], rows["token_ids"], strict=True):
        answers[name].add(tuple(ids))
    return answers


def arms(model: Model, exact: Model, questions: QuestionSet, alpha: float) -> list[dict[str, object]]:
    """A row for each arm at an α."""
    with mock.patch.object(half, "float32_copy", side_effect=MemoryError("left out")), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        alone = searched(model, questions, alpha)
    runs = {"alone": alone, "decided": searched(model, questions, alpha), "float32": searched(exact, questions, alpha)}
    truth, rows = found(runs["float32"][0]), []
    for arm, (run, seconds) in runs.items():
        certificates, cost, answers = run.questions, run.info.cost, found(run)
        undecided = certificates["status"] == "undecided"
        differs = np.array([answers[name] != truth[name] for name in certificates["question_id"]])
        rows.append(
            {
                "alpha": alpha,
                "arm": arm,
                "epsilon": certificates["epsilon"].max(),
                "searched_again": (certificates["epsilon"] < 1e-3).mean() if arm == "decided" else 0.0,
                "undecided": undecided.mean(),
                "wrongly_decided": (differs & ~undecided).mean(),
                "changed_sides": sum(len(answers[name] ^ truth[name]) for name in truth),
                "prompt_tokens": cost.prompt_tokens,
                "token_forwards": cost.token_forwards,
                "seconds": seconds,
            }
        )
    return rows


def by_depth(model: Model, exact: Model, questions: QuestionSet) -> pd.DataFrame:
    """Differences from float32 of all prefixes of answers with p ≥ α, and the ε of the first questions, by depth."""
    with mock.patch.object(half, "float32_copy", side_effect=MemoryError("left out")), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        run, _ = searched(model, questions, half.ALPHA)
    sums = [prefixes(each) for each in (run, searched(exact, questions, half.ALPHA)[0])]
    both = sums[0].join(sums[1], how="inner", lsuffix="_half").reset_index()
    both["apart"] = (both["value_half"] - both["value"]).abs()
    first = both["question_id"].isin(questions.table["question_id"][: half.N_QUESTIONS])
    table = both.groupby("depth")["apart"].agg(["size", "mean", "max"])
    bound = 2 * both[first].groupby("depth")["apart"].max().reindex(table.index).cummax().ffill()
    beyond = (both["apart"] > both["depth"].map(bound)).groupby(both["depth"]).mean()
    by_probability = both.groupby(pd.cut(np.exp(both["value"]), [0, 0.02, 0.1, 0.5, 1.01]), observed=True)["apart"]
    print(by_probability.agg(["size", "mean", "max"]).to_string())
    return table.assign(epsilon=bound, beyond_epsilon=beyond).reset_index()


def prefixes(run: Run) -> pd.DataFrame:
    """Log-probability of each prefix of each answer, indexed by question, depth and tokens, the ending a last one."""
    rows = {}
    for row in run.answers.itertuples():
        steps = [
            *row.token_log_probs,
            *([row.end_log_prob] if row.finished and row.end_log_prob == row.end_log_prob else []),
        ]
        tokens = (*row.token_ids, -1)
        for depth, value in enumerate(np.cumsum(steps), 1):
            rows[row.question_id, depth, tokens[:depth]] = value
    index = pd.MultiIndex.from_tuples(rows, names=["question_id", "depth", "tokens"])
    return pd.DataFrame({"value": list(rows.values())}, index=index)


def main() -> None:
    """Run all settings, print the tables and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--csv", type=Path, help="folder for half_precision.csv and half_precision_by_depth.csv")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    costs, depths = [], []
    for name, dataset, dtype in SETTINGS:
        model = models.load(name, device=asked.device, dtype=dtype)
        exact = replace(model, network=half.float32_copy(model.network))
        sizes = (each.network.get_memory_footprint() for each in (model, exact))
        print("{}, {}: weights {:,} bytes, of the copy {:,}".format(name, dtype, *sizes))
        questions = question_sets.load(dataset, split="test", limit=asked.questions, seed=0)
        setting = {"model": name, "dtype": dtype, "n_questions": len(questions)}
        costs += [setting | row for alpha in ALPHAS for row in arms(model, exact, questions, alpha)]
        depths.append(by_depth(model, exact, questions).assign(**setting))
    tables = {"half_precision": pd.DataFrame(costs), "half_precision_by_depth": pd.concat(depths)}
    for file, table in tables.items():
        print(table.to_string(index=False))
        if asked.csv:
            table.to_csv(asked.csv / f"{file}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
