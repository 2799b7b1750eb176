"""What a file of log-probabilities says: AUROC of every method, of PRO at each K and over α, as Markdown.

    python benchmarks/records_table.py answers.jsonl [--label rouge_l|correct] [--alphas 0.001 0.01 0.1 0.4]

Repeats kept and left out stand side by side. Nothing is chosen on these questions: every K and α is shown.
"""  # fmt: skip

import argparse
import warnings

import numpy as np
import pandas as pd

from pro_lib import evaluation, imports, metrics, scores
from pro_lib import runs as run_tables


def methods(run: run_tables.Run, *, distinct: bool, alphas: list[float]) -> pd.DataFrame:
    """Every method's uncertainty `(n, methods)`, PRO at each K and each α among them."""
    log_probs = run.log_probs(distinct=distinct)
    means = run.matrix(run.ranked(distinct=distinct), "mean")
    columns = {
        "NLL": scores.nll(log_probs),
        "ALL": scores.average_log_likelihood(means, log_probs),
        "PE (Eq. 2)": scores.predictive_entropy(log_probs),
        "PE (Monte Carlo)": scores.predictive_entropy_mc(log_probs),
        "NE": scores.normalized_entropy(means),
    }
    n_answers = log_probs.shape[1] if log_probs.shape[1] > 1 else 0
    columns |= {f"PRO, K = {k}": scores.pro_at_k(log_probs, k) for k in range(1, n_answers + 1)}
    columns |= {f"PRO, α = {alpha:g}": scores.pro(log_probs, alpha=alpha) for alpha in alphas}
    return pd.DataFrame(columns)


def column(run: run_tables.Run, label: str, *, distinct: bool, alphas: list[float], seed: int) -> pd.Series:
    """AUROC with its interval for every method, as text."""
    uncertainties = methods(run, distinct=distinct, alphas=alphas)
    top = run.top()
    judged = evaluation.rouge_and_correct(top, run.questions)
    correct = judged["correct"] if label == "correct" else judged["rouge_l"] > evaluation.ROUGE_THRESHOLD
    exclusions = metrics.usable(uncertainties, correct.to_numpy(object))
    print(f"<!-- {run.name}, distinct={distinct}: {exclusions.sentence()} -->")
    table = metrics.bootstrap_auroc(
        uncertainties[exclusions.mask], correct[exclusions.mask].to_numpy(bool), reference=None, seed=seed
    )
    text = [f"{row.auroc:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in table.itertuples()]
    return pd.Series(text, index=table["method"])


def main() -> None:
    """Print the table of one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records")
    parser.add_argument("--label", choices=("rouge_l", "correct"), default="rouge_l")
    parser.add_argument("--alphas", type=float, nargs="*", default=[0, 1e-6, 1e-4, 0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 1])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    run = imports.from_records(arguments.records)
    if arguments.label == "rouge_l" and "rouge_l" not in run.answers:
        # Labels from outside take precedence in the workbench; here ROUGE-L is asked for.
        run = run_tables.Run(run.answers.drop(columns="correct", errors="ignore"), run.questions, run.info)
    warnings.simplefilter("ignore", scores.PremiseWarning)
    n_answers = np.isfinite(run.log_probs(distinct=False)).sum(axis=1)
    n_distinct = np.isfinite(run.log_probs()).sum(axis=1)
    above = scores.premise(run.log_probs(distinct=False)).above_one.sum()
    print(
        f"{len(n_answers):,} questions, {n_answers.mean():.2f} answers each, {n_distinct.mean():.2f} distinct; "
        f"{(n_distinct < n_answers).sum():,} questions with repeats, {above:,} with mass above 1.\n"
    )
    options = {"label": arguments.label, "alphas": arguments.alphas, "seed": arguments.seed}
    table = pd.DataFrame(
        {
            "repeats kept": column(run, **options, distinct=False),
            "distinct answers": column(run, **options, distinct=True),
        }
    )
    print("\n| method | " + " | ".join(table.columns) + " |\n|---|---|---|")
    for method, cells in table.iterrows():
        print(f"| {method} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
