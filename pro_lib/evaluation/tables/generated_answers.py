"""The tables of generated answers: their numbers, their probabilities and their cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.evaluation.tables.settings import with_run
from pro_lib.runs.run import Run


def generated_answers(
    runs: Sequence[Run], *, split: str = "test", alpha: float = 0.4
) -> pd.DataFrame:
    """Return, for each question, how many answers a run has and how probable they are together.

    Args:
        runs: the runs of the questions of `split`.
        split: the name of the split.
        alpha: α of PRO.

    Returns:
        A row per question with the dataset, model, strategy, split, n_questions, and

        - n_cut: the number of answers that were cut by length. The other columns do not count them.
        - n_answers: the number of answers.
        - n_distinct: the number of distinct answers.
        - mass: the sum of the probabilities of the distinct answers.
        - mass_with_repeats: the sum if repeats are counted.
        - k: the number of distinct answers that PRO keeps at α.
    """
    tables = []
    for run in runs:
        log_probs = run.log_probs()
        with_repeats = run.log_probs(distinct=False)
        is_cut = ~run.answers["finished"].to_numpy(bool)
        cut = run.answers.loc[is_cut, "question_id"].value_counts()
        columns = {
            "n_answers": np.isfinite(with_repeats).sum(axis=1),
            "n_distinct": np.isfinite(log_probs).sum(axis=1),
            "mass": scoring.mass(log_probs),
            "mass_with_repeats": scoring.mass(with_repeats),
            "k": scoring.adaptive_k(log_probs, alpha, search_alpha=run.search_alpha),
            "n_cut": cut.reindex(run.questions["question_id"], fill_value=0).to_numpy(),
        }
        tables.append(with_run(pd.DataFrame(columns), run, split))
    return pd.concat(tables, ignore_index=True)


def costs(runs: Sequence[Run], *, split: str = "test") -> pd.DataFrame:
    """Return the cost of each run, over all questions of its folder.

    Columns: the dataset, model, strategy, split and n_questions; prompt_tokens; token_forwards, the
    tokens that were put through the model after the prompts; model_calls; seconds;
    tokens_per_second; peak_memory_mib, in MiB.
    """
    tables = []
    for run in runs:
        cost = run.info.cost
        tokens = cost.prompt_tokens + cost.token_forwards
        row = {
            "prompt_tokens": cost.prompt_tokens,
            "token_forwards": cost.token_forwards,
            "model_calls": cost.model_calls,
            "seconds": cost.seconds,
            "tokens_per_second": round(tokens / max(cost.seconds, 1e-9)),
            "peak_memory_mib": round(cost.peak_memory_bytes / 2**20),
        }
        tables.append(with_run(pd.DataFrame([row]), run, split))
    return pd.concat(tables, ignore_index=True)
