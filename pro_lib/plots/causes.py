"""The gain of PRO over NLL if a suspected cause is removed from the answers (notebook 08)."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from pro_lib import scoring
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Evaluation
from pro_lib.metrics.roc import FloatArray
from pro_lib.plots.captions import (
    comparison,
    corrected,
    has_enough,
    join_caption,
    listed,
    signed_span,
    verdicts,
    with_signs,
)
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.gains import FIXED_K_WORDS, GAIN, pro_minus_nll, with_scores
from pro_lib.plots.settings import per_setting, with_setting
from pro_lib.plots.style import Figure
from pro_lib.runs.run import Run

_SHOWN = (
    "AUROC of PRO minus that of NLL, with 95 % confidence intervals, after one change of the "
    "answers or of their probabilities p, from which both are computed anew; “nothing changed” has "
    f"each answer once, with p as the model gives it; {FIXED_K_WORDS}. "
    f"{corrected('all α, K and rows')}"
)
# The changes in the words of the figure
_CHANGES = {
    "answers below 0.01 left out": "answers with p < 0.01 left out",
    "spellings merged": "answers of one meaning merged",
    "endings left out": "p without the token that ends an answer",
    "repeats kept": "repeated answers counted",
    "probabilities made to sum to 1": "p divided by the sum over the answers",
}


def table(evaluation: Evaluation, run: Run, *, alpha: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """Return how much PRO gains over NLL if each suspected cause of a difference is removed alone.

    Args:
        evaluation: the judged answers of one setting, each answer counted once.
        run: the run of these questions.
        alpha: the α of PRO, besides K = 2, 5 and 10.

    Returns:
        Columns: those of the setting; cause, what was changed; those of `pro_minus_nll`. A cause is
        left out if the run does not have the answers for it.
    """
    run = run.select(question_ids=list(evaluation.answers["question_id"]))
    parts = []
    for cause, log_probs in _without_causes(evaluation, run).items():
        if log_probs is None:
            continue
        options: dict[str, Any] = {"alphas": [alpha], "search_alpha": evaluation.search_alpha}
        gain = pro_minus_nll(log_probs, evaluation.judgement, **options)
        gain.insert(0, "cause", cause)
        parts.append(gain)
    return with_setting(pd.concat(parts, ignore_index=True), evaluation)


@per_setting
def two_or_more(
    evaluation: Evaluation,
    alphas: Sequence[float] = (0.02, 0.1, 0.2, 0.4),
) -> dict[str, Any]:
    """Return how many questions keep two or more answers at each α.

    Only for these can PRO differ from NLL.

    Columns: those of the setting; alpha; n_two_or_more and share_two_or_more.
    """
    is_more = scoring.adaptive_k(evaluation.log_probs, list(alphas)) > 1
    return {
        "alpha": alphas,
        "n_two_or_more": is_more.sum(axis=0),
        "share_two_or_more": is_more.mean(axis=0),
    }


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the gain of PRO over NLL: a row for each change, a symbol for each α or K.

    Args:
        table: needs the columns cause, nll_auroc, k_choice, k, alpha and auroc_minus_nll with its
            interval. It may have dataset, model and n_questions, and with p_value significant
            differences are marked.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["cause", "nll_auroc", "k_choice", "k", "alpha", *GAIN]
    table = with_signs(with_scores(checked_table(table, needed, "causes")))
    changes = table["cause"].replace(_CHANGES)
    table["row"] = changes.map(lambda words: textwrap.fill(words, 22 * figure_columns))
    table["text"] = table["nll_auroc"].map("{:.3f}".format)
    with row_figure(
        table.drop(columns="protocol", errors="ignore"),  # a row has repeated answers
        *("dataset", "model"),
        value="auroc_minus_nll",
        group="score",
        title="PRO minus NLL after a change of the answers",
        x="AUROC of PRO minus that of NLL",
        heading="AUROC\nof NLL",
        figure_columns=figure_columns,
        row_height=0.34,
        least_row_height=0.34,
    ) as (figure, _):
        return figure


def caption(table: pd.DataFrame) -> str:
    """Say after which changes PRO differs from NLL with some α or K.

    Significance is decided for all comparisons of the table together.
    """
    if not has_enough(table).all() or table["auroc_minus_nll_low"].isna().any():
        return join_caption(_SHOWN, table, comparison(table.head(1), "PRO"))
    table = with_signs(table)
    n_rows = table["cause"].nunique()
    findings = []
    for words, rows in verdicts(table, table["sign"]):
        if words.startswith("significantly"):
            scores = with_scores(rows)["score"].unique()
            several = "at least one of " * (len(scores) > 1)
            findings.append(
                f"PRO is {words} NLL with {several}{listed(scores)} in "
                f"{rows['cause'].nunique()} of {n_rows} rows "
                f"(significant differences: {signed_span(rows['auroc_minus_nll'])})."
            )
    alike = table["cause"][~table["cause"].isin(table.loc[table["sign"] != 0, "cause"])]
    if len(alike):
        names = listed(f"“{name}”" for name in alike.replace(_CHANGES).unique())
        findings.append(f"No α or K makes a significant difference with {names}.")
    return join_caption(_SHOWN, table, *findings)


def _without_causes(evaluation: Evaluation, run: Run) -> dict[str, FloatArray | None]:
    """Return log-probabilities (n, N) without each cause, or None if the run cannot say."""
    answers = evaluation.log_probs
    most = np.nanmax(answers, axis=1)
    at_least = np.minimum(most, np.log(0.01))
    total = logsumexp(np.nan_to_num(answers, nan=-np.inf), axis=1, keepdims=True)
    has_endings = "closed" not in run.answers or run.answers["end_log_prob"].notna().all()
    meanings = [score.inputs.get("meaning_log_probs") for score in evaluation.alpha_scores.values()]
    return {
        "nothing changed": answers,
        "answers below 0.01 left out": np.where(answers >= at_least[:, None], answers, np.nan),
        "probabilities made to sum to 1": answers - total,
        "spellings merged": next((each for each in meanings if each is not None), None),
        "endings left out": run.log_probs(convention="answer_tokens") if has_endings else None,
        "repeats kept": run.log_probs(distinct=False),
    }
