"""What PRO gains over NLL on published outputs of large models: K or α chosen on 100 questions, and near-repeats.

    python benchmarks/published.py

reads what `pro download rank-calibration` got and writes two tables. `published_gain.csv`: on 200 redraws of 100
validation questions of the 500 set apart, K (1 to 10) and α (0, 0.05, …, 1) with the best AUROC there, and what AUROC
minus NLL's is with that choice on the others: its median over the redraws, with DeLong's 95 % interval at the choice
that has it, and what the redraws span. `published_all.csv`: AUROC on all questions, nothing chosen, at several
`same_within`, with the number of questions that then have fewer answers.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import bundled, metrics, scores
from pro_lib.evaluation import Choices, evaluations
from pro_lib.imports import from_published, split_records
from pro_lib.protocols import ALPHA_GRID

PUBLISHED = [f"rank-calibration/{name}" for name in ("gpt-3.5-turbo/nq-open", "gpt-3.5-turbo/meadow")]
PUBLISHED += ["rank-calibration/Llama-2-7b-chat-hf/nq-open"]
NEAR = (0.0, 0.02, 0.1)
# What is chosen: from these, of several equally good ones that nearest to the next, by this score.
KS, ALPHAS = np.arange(1, 11), np.array(ALPHA_GRID)
CHOICES = {
    "K": (KS, 1, lambda log_probs: scores.pro_at_k(log_probs, KS)),
    "alpha": (ALPHAS, 0.4, lambda log_probs: scores.pro(log_probs, alpha=ALPHAS)),
}


def on_all(run, same_within):
    """By protocol, AUROC of NLL, PRO and the published Deg on all questions, and how many of these merge answers."""
    counts = ((~np.isnan(run.log_probs(same_within=near))).sum(axis=1) for near in (0, same_within))
    merged = {"questions_merged": int((np.subtract(*counts) > 0).sum())}
    for judged in evaluations(run, choices=Choices(same_within=same_within)):
        pros = scores.pro_at_k(judged.log_probs, [2, 5, 10])
        methods = {"NLL": scores.nll(judged.log_probs), "PRO_2": pros[:, 0], "PRO_5": pros[:, 1], "PRO_10": pros[:, 2]}
        methods |= {"alpha_0.4": scores.pro(judged.log_probs, alpha=0.4), "Deg": judged.baselines["Deg, NLI agreement"]}
        aurocs = metrics.auroc_columns(pd.DataFrame(methods), judged.correct)
        answers = (~np.isnan(judged.log_probs)).sum(axis=1).mean()
        yield (
            judged.labels()
            | {"same_within": same_within, "answers": answers}
            | merged
            | dict(zip(methods, aurocs, strict=True))
        )


def gains(run, n_redraws=200, n_validation=100):
    """For K and for α, by protocol: the choice and AUROC minus NLL's on the reported questions, over redraws."""
    parts = {split: evaluations(run, split=split) for split in ("validation", "test")}
    for pool, reported in zip(*parts.values(), strict=True):
        nll = metrics.auroc(scores.nll(reported.log_probs), reported.correct)
        for kind, (grid, preferred, score) in CHOICES.items():
            tried, told = score(pool.log_probs), score(reported.log_probs)
            gain = metrics.auroc_columns(told, reported.correct) - nll
            rng, chosen = np.random.default_rng(0), []
            for _ in range(n_redraws):
                rows = rng.choice(len(pool.correct), n_validation, replace=False)
                aurocs = metrics.auroc_columns(tried[rows], pool.correct[rows])
                ties = np.flatnonzero(aurocs == aurocs.max())
                chosen.append(ties[np.abs(grid[ties] - preferred).argmin()])
            middle = sorted(chosen, key=gain.__getitem__)[n_redraws // 2]
            pair = pd.DataFrame({"NLL": scores.nll(reported.log_probs), "PRO": told[:, middle]})
            low, high = (ends[1] for ends in metrics.differences(pair, reported.correct, reference="NLL").interval())
            p05, p95 = np.quantile(gain[chosen], (0.05, 0.95))
            found = {"choice": grid[middle], "median": gain[middle], "low": low, "high": high, "p05": p05, "p95": p95}
            yield reported.labels() | {"chosen": kind} | found | {"above_nll": (gain[chosen] > 0).mean()}


def main():
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=bundled.ROOT / "figures" / "real_models", help="folder of the tables"
    )
    folder = parser.parse_args().out
    warnings.simplefilter("ignore", scores.PremiseWarning)
    runs = [from_published(name) for name in PUBLISHED]
    tables = {
        "published_all": [row for run in runs for near in NEAR for row in on_all(run, near)],
        "published_gain": [row for run in runs for row in gains(split_records(run))],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
        print(pd.DataFrame(rows).round(4).to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main()
