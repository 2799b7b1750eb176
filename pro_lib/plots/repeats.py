"""The summed probabilities of answers, with and without repeats (notebook 00)."""

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.plots.settings import with_run
from pro_lib.runs.run import Run


def table(run: Run, *, alpha: float = 0.4, split: str = "test") -> pd.DataFrame:
    """Return the summed probabilities of the answers of a run, with and without repeats.

    The bound of PRO holds if the answers are distinct and their probabilities sum to at most 1.

    The columns are dataset, model, strategy, split, n_questions, and

    - repeats: `counted` or `left out`.
    - mean_answers: the mean number of answers to a question.
    - largest_mass: the largest sum of the probabilities of the answers to a question.
    - n_above_one: the number of questions with a sum above 1.
    - share_several: the share of questions of which PRO keeps more than one answer at α.
    """
    rows = []
    for name, distinct in (("counted", False), ("left out", True)):
        log_probs = run.log_probs(distinct=distinct)
        n_kept = scoring.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha)
        row = {
            "repeats": name,
            "mean_answers": np.isfinite(log_probs).sum(axis=1).mean(),
            "largest_mass": scoring.mass(log_probs).max(),
            "n_above_one": int(scoring.above_one(log_probs).sum()),
            "share_several": (n_kept > 1).mean(),
        }
        rows.append(row)
    return with_run(rows, run, split)


def caption(table: pd.DataFrame, *, alpha: float) -> str:
    """Say for how many questions PRO can differ from NLL, and how many break the premise."""
    rows = table.set_index("repeats")
    shares = 100 * rows["n_above_one"] / rows["n_questions"]
    return (
        f"At α = {alpha:g}, PRO keeps more than one distinct answer for "
        f"{100 * rows.loc['left out', 'share_several']:.2f} % of the questions; for the others, "
        "PRO equals NLL. If repeats are counted, the probabilities of the answers sum to more than "
        f"1 for {shares['counted']:.1f} % of the questions, and to "
        f"{rows.loc['counted', 'largest_mass']:.2f} at most; without repeats, for "
        f"{shares['left out']:.1f} %."
    )
