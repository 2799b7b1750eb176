"""Measure the paired differences in the docs that are not in a notebook.

    python benchmarks/paired_differences.py --csv docs/results/data/paired_differences.csv

The script compares methods of notebook 06 on the bundled models. SE, SD and Deg by the table of
names are compared with the same methods by ROUGE-L. PRO with the best α on the reported questions
(oracle) is compared with NLL. `--clusters docs/results/data/cluster_interval.csv` writes the
interval of the AUROC of PRO at α = 0.4 by three methods: by relation, by question, and by a
bootstrap of the relations. The script reads the runs of the notebooks, and generates them if they
do not exist.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from measuring import parse_arguments

from pro_lib import metrics
from pro_lib.app.experiment import Experiment
from pro_lib.evaluation import sweeps
from pro_lib.evaluation.evaluation import Evaluation, Splits
from pro_lib.plots.settings import with_setting

ALPHA = 0.4
N_RESAMPLES = 4000
LABELS = ["dataset", "model", "protocol", "split", "n_questions"]
MEANINGS = ("SE", "SD", "Deg")


def differences(splits: Splits) -> pd.DataFrame:
    """Return the compared pairs of one setting: the method's AUROC minus the reference's."""
    reported = splits.reported
    oracle = sweeps.select_alpha(reported, alphas=splits.alphas)
    methods = reported.with_pro({"PRO, oracle": oracle})
    pairs = [("PRO, oracle", "NLL")]
    pairs += [(f"{name}, alias", f"{name}, lexical") for name in MEANINGS]
    parts = []
    for method, reference in pairs:
        clusters = reported.answers.get("cluster")
        both = methods[[method, reference]]
        table = metrics.compare_aurocs(
            both, reported.correct, reference=reference, clusters=clusters
        )
        parts.append(table[table["method"] == method].assign(reference=reference))
    return with_setting(pd.concat(parts, ignore_index=True), reported)


def cluster_intervals(reported: Evaluation) -> pd.DataFrame:
    """Return the interval of the AUROC of PRO by relation, question and bootstrap."""
    scores = reported.pro(ALPHA)
    clusters = reported.answers["cluster"]
    rows = []
    for name, groups in (("by cluster", clusters), ("by question", None)):
        auroc, low, high = metrics.auroc_intervals(
            scores[:, None], reported.correct, clusters=groups
        )
        rows.append(
            {"interval": name, "auroc": auroc[0], "auroc_low": low[0], "auroc_high": high[0]}
        )
    low, high = bootstrap(scores, reported.correct, clusters)
    rows.append(
        {"interval": "bootstrap", "auroc": rows[0]["auroc"], "auroc_low": low, "auroc_high": high}
    )
    table = pd.DataFrame(rows).assign(method="PRO", alpha=ALPHA, n_clusters=clusters.nunique())
    return with_setting(table, reported)


def bootstrap(scores: np.ndarray, correct: np.ndarray, clusters: pd.Series) -> tuple[float, float]:
    """Return the 2.5 and 97.5 percentiles of the AUROC over resamples of whole clusters."""
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(clusters == name) for name in clusters.unique()]
    aurocs = []
    for _ in range(N_RESAMPLES):
        drawn = rng.integers(len(members), size=len(members))
        rows = np.concatenate([members[number] for number in drawn])
        aurocs.append(metrics.auroc(scores[rows], correct[rows]))
    low, high = np.percentile(aurocs, [2.5, 97.5])
    return float(low), float(high)


def main(words: list[str] | None = None) -> None:
    """Print the table of differences, and write the files that the options name."""
    options = {
        "--model": ["facts-2m", "facts-1m"],
        "--dataset": ["world-facts", "world-facts-reworded"],
    }
    options |= {"--limit": int, "--csv": Path, "--clusters": Path}
    arguments = parse_arguments(__doc__, options, words)
    experiment = Experiment(
        model=arguments.model,
        dataset=arguments.dataset,
        limit=arguments.limit,
        similarity=["lexical", "alias"],
        protocol="workbench",
    )
    splits = experiment.splits("all")
    if arguments.clusters:
        table = cluster_intervals(splits[0].reported)
        table.to_csv(arguments.clusters, index=False, float_format="%.6g")
    columns = [*LABELS, "method", "reference", "auroc", "n_differ", "difference"]
    columns += ["difference_low", "difference_high", "p_value", "reading", "interval"]
    result = pd.concat([differences(part) for part in splits], ignore_index=True)[columns]
    print(result.to_string(index=False))
    if arguments.csv:
        result.to_csv(arguments.csv, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
