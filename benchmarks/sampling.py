"""PRO on nucleus samples and on samples at other temperatures, which its paper leaves to future work.

Run from the repository root: `python benchmarks/sampling.py [--limit 1000] [--csv docs/sampling.csv]`.
Ten samples a question, each answer once, in every way of `WAYS`, beside ten diverse beams. Whatever the samples were
drawn from, their probabilities are those of the unmodified model. All ways of a dataset are judged on the same answer
to each question, the most probable one that any of them found. PRO's α is chosen on 100 validation questions, in steps
of 0.05; PRO_K takes the K most probable answers of every question. Differences are to NLL on the same answers.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import asked

from pro_lib import metrics, scores, sweeps
from pro_lib.evaluation import Splits, evaluate
from pro_lib.runs import Run
from pro_lib.settings import BEAMS, SAMPLES, Settings

WAYS = {
    "temperature 0.5": {"temperature": 0.5},
    "temperature 1": {},
    "temperature 1.5": {"temperature": 1.5},
    "nucleus 0.9": {"top_p": 0.9},
}
GRID = [step / 20 for step in range(21)]
FIXED = (2, 3, 5, 10)


def runs(model: str, dataset: str, limit: int | None) -> dict[str, Run]:
    """A run for each way, and the beams; generated where they are missing, each way in a folder of its own."""
    made, plain = {}, Settings(model=model, dataset=dataset, limit=limit)
    for way, changes in {BEAMS: {}, **WAYS}.items():
        apart = {"generations_dir": plain.generations_dir / way.replace(" ", "=")} if changes else {}
        settings, strategy = replace(plain, **changes, **apart), BEAMS if way == BEAMS else SAMPLES
        made[way] = settings.run(model, dataset, "validation", settings.split, strategy=strategy)
    return made


def table(run: Run, others: list[Run]) -> pd.DataFrame:
    """A row per method on the test questions of a run, the answer judged being the best of all runs."""
    splits = Splits(*(evaluate(run, others=others, split=split) for split in ("validation", "test")))
    reported, alpha = splits.reported, sweeps.select_alpha(splits.validation, alphas=GRID)
    found = reported.log_probs
    fixed = {f"PRO_{k}": scores.pro_at_k(found, k) for k in FIXED}
    methods = pd.DataFrame({"NLL": scores.nll(found), "PRO": scores.pro(found, alpha=alpha), **fixed})
    own = run.select(split="test").select(question_ids=list(reported.answers["question_id"]))
    of_all = {
        "n_questions": len(found),
        "distinct": (~np.isnan(found)).sum(axis=1).mean(),
        "mass": scores.mass(found).mean(),
        "finds_the_judged": (own.top()["text"].to_numpy() == reported.answers["text"].to_numpy()).mean(),
        "accuracy": reported.correct.mean(),
    }
    compared = metrics.comparison(methods, reported.correct, reference="NLL").loc[:, :"difference_high"]
    compared.insert(1, "alpha", compared["method"].map({"PRO": alpha}))
    compared.insert(2, "mean_kept", compared["method"].map({"PRO": scores.adaptive_k(found, alpha).mean()}))
    return compared.assign(**of_all)[["n_questions", *list(of_all)[1:], *compared.columns]]


def main() -> None:
    """Make the runs that are missing, and the table."""
    datasets = ["world-facts", "world-facts-reworded"]
    given = asked(__doc__, {"--model": "facts-2m", "--dataset": datasets, "--limit": int, "--csv": Path})
    tables = {}
    for dataset in given.dataset:
        of = runs(given.model, dataset, given.limit)
        for way, run in of.items():
            tables[dataset, way] = table(run, [other for other in of.values() if other is not run])
    every = pd.concat(tables, names=["dataset", "answers", "row"]).reset_index().drop(columns="row")
    if given.csv:
        every.to_csv(given.csv, index=False, float_format="%.4f")
    shown = ["dataset", "answers", "method", "alpha", "auroc", "low", "high", "difference"]
    print(every[shown].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
