"""What a rule for PRO or NLL is worth: mean regret over redraws of 100 validation questions, setting by setting.

    python benchmarks/choosing.py [--published rank-calibration/gpt-3.5-turbo/nq-open …] [--out docs/choosing.csv]

Embedded: the stored runs of `make figures`, beams and samples; facts-long, which came after the rule: those that
notebook 06 makes of it. Published: outputs that the repository
github.com/shuoli90/Rank-Calibration (MIT) holds at f46ae48, got with `pro download`; only what is computed from them
is written. The rule and its values were fixed in docs/log.md before this was run.
"""  # fmt: skip

import argparse
import warnings
from itertools import product
from pathlib import Path

import pandas as pd
from published import PUBLISHED

from pro_lib import evaluation, imports, runs, scores, tables
from pro_lib.runs import Run

ROOT = Path(__file__).resolve().parents[1]


def held(source: str, run: Run, *, n_redraws: int = 200) -> pd.DataFrame:
    """`tables.regret_table` of one run, repeats kept and each answer once."""
    table = tables.regret_table(evaluation.evaluations(run), n_redraws=n_redraws)
    return table.assign(source=source, strategy=run.info.strategy).drop(columns="split")


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Mean regret of each policy by source, settings counting alike, and over all."""
    fixed = table[table["source"] != "facts-long"].assign(source="all 22")  # those that docs/log.md named beforehand
    both = pd.concat([table.assign(source=table["source"] + ", " + table["strategy"]), fixed])
    return both.pivot_table(index="policy", columns="source", values="regret", sort=False)


def main() -> None:
    """Write the table of all settings, and print the mean regrets as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", nargs="*", default=PUBLISHED)
    parser.add_argument("--out", default=ROOT / "docs" / "choosing.csv")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", scores.PremiseWarning)
    parts = [held("published", imports.from_published(name)) for name in arguments.published]
    named = [("embedded", *pair) for pair in product(("world-facts", "world-facts-reworded"), ("facts-2m", "facts-1m"))]
    for source, dataset, model in [*named, ("facts-long", "world-facts-long", "facts-long")]:
        for strategy in ("diverse_beam", "multinomial"):
            parts.append(held(source, runs.read(ROOT / "data" / "generations" / dataset / model / strategy)))
    table = pd.concat(parts)
    first = ["source", "dataset", "model", "strategy", "protocol", "n_questions", "policy"]
    table = table[[*first, *table.columns.difference(first, sort=False)]]
    table.to_csv(arguments.out, index=False, float_format="%.6g")
    found = summary(table)
    print("| policy | " + " | ".join(found.columns) + " |\n|---" + "|---" * len(found.columns) + "|")
    for policy, row in found.iterrows():
        print(f"| {policy} | " + " | ".join(f"{value:.4f}" for value in row) + " |")


if __name__ == "__main__":
    main()
