"""Answers and scores as people read them, and as files; computes no score of its own and prints nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation import Choices, evaluate
from pro_lib.runs import Run
from pro_lib.store import RunError, write_whole

if TYPE_CHECKING:
    from pro_lib.asking import Answer

# What an exact search is sure of, by its status.
SURE = {
    "certified": "All answers with p ≥ {:g} were found; whether they are right, the model does not know.",
    "fallback": "No answer has p ≥ {:g}; PRO is the NLL of the greedy answer.",
    "undecided": "Answers with p ≥ {:g} may be missing: the search stopped at its length or budget.",
}
ROWS = 20


def answer(found: Answer, *, alpha: float, search_alpha: float) -> str:
    """An answer on a few lines: its text, PRO, the answers kept, what the search is sure of, a sentence to act on."""
    kept = [f"  {p:.4f}  {text}" for text, p in found.answers[: found.kept]]
    read = f"PRO {found.uncertainty:.3f} nats, from the answers kept at α = {alpha:g} ({found.kept}):"
    others = [f"  and {len(found.answers) - found.kept} with less"] if len(found.answers) > found.kept else []
    sure = SURE[found.status].format(search_alpha)
    return "\n".join([found.text, "", read, *kept, *others, sure, "", found.sentence()])


def table(scored: pd.DataFrame, *, whole: bool) -> str:
    """A table of `Run.scores`, or its first rows and how to get all."""
    shown = (scored if whole else scored.head(ROWS)).dropna(axis="columns", how="all")
    text = shown.to_string(index=False, max_colwidth=None if whole else 40, float_format="%.4f", na_rep="")
    left = len(scored) - len(shown)
    return text + (f"\n… and {left:,} more; all with --output scores.csv" if left else "")


def write(scored: pd.DataFrame, path: Path) -> None:
    """Write the table as the file's name ends, whole or not at all. ValueError for another ending."""
    made = {
        ".csv": lambda: scored.to_csv(index=False).encode(),
        ".jsonl": lambda: scored.to_json(orient="records", lines=True, force_ascii=False, double_precision=15).encode(),
        ".parquet": lambda: scored.to_parquet(index=False),
    }
    if path.suffix not in made:
        raise ValueError(f"--output {path} ends neither in .csv, nor .jsonl, nor .parquet")
    write_whole(made[path.suffix](), path)


def quality(run: Run, choices: Choices, *, alpha: float, needed: bool) -> str:
    """Accuracy and AUROC of PRO and NLL with 95 % intervals; or why not, which is an error where they are `needed`."""
    try:
        judged = evaluate(run, choices=choices)
        methods = judged.with_pro({"PRO": alpha})[["PRO", "NLL"]]
        aurocs = metrics.bootstrap_auroc(methods, judged.correct, reference=None).itertuples(index=False)
    except metrics.OneClassError:
        return f"No AUROC: {judged.one_class()}."
    except RunError as error:
        if needed:
            raise
        return f"No accuracy: {error}."
    told = [f"AUROC {method}: {auroc:.3f} ({low:.3f} to {high:.3f})" for method, auroc, low, high in aurocs]
    return "\n".join([f"Accuracy: {judged.correct.mean():.3f}. {judged.exclusions.sentence()}", *told])
