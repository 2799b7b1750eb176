"""How often sets of answers have no correct answer (notebook 09)."""

import numpy as np
import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.evaluation import alpha_grid
from pro_lib.evaluation.guarantees import miss_rate, set_threshold
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.metrics.correctness import AnswerRules, rouge_and_correct
from pro_lib.metrics.roc import FloatArray
from pro_lib.plots.captions import join_caption, percent_span, span
from pro_lib.plots.figure import checked_table, draw_against_alpha, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Figure
from pro_lib.runs.run import Run

_SHOWN = (
    "Share of the questions without a correct answer in the set of all answers with p ≥ α, which "
    "an exact search finds and which may be empty, with its 95 % confidence interval (band). The "
    "upper limit is computed beforehand from validation questions, with a confidence of 95 % for "
    "each α by itself."
)
# The shares of questions that a set of answers may miss, and the αs that are fixed beforehand.
DELTAS = (0.3, 0.4, 0.5, 0.6)
FIXED_ALPHAS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
# The lines, by column.
_LINES = {
    "missed": "sets without a correct answer",
    "missed_limit": "upper limit from validation questions",
}


@per_setting
def table(
    run: Run, *, split: str = "test", rules: AnswerRules | None = None, seed: int = 0
) -> list[pd.DataFrame]:
    """Return how often the set of all answers with p ≥ α has no correct answer.

    Rows with a `delta` have the α that validation questions choose for it, τ
    (`guarantees.set_threshold`). Rows without one have an α that is fixed beforehand.

    Args:
        run: an exact search (strategy `threshold`) of validation questions and those of `split`.
        split: the split to report.
        rules: what makes an answer correct; None is ROUGE-L above 0.3.
        seed: the seed with which one validation question of each text is drawn.

    Returns:
        A table with the dataset, model, strategy, split, n_questions, and

        - delta: the share of questions whose set may miss every correct answer.
        - alpha: α of the sets. It is missing if no set can be issued.
        - missed_limit: for a fixed α, the 95 % upper limit of the share missed, from validation.
        - missed: the share of reported questions whose set has no correct answer, with its 95 %
          interval. A question that the search could not decide counts as missed.
        - set_size: the mean number of answers in a set.
        - share_empty: the share of empty sets.
        - auroc: that of PRO at this α, with its 95 % interval.
        - correctness: the rule by which an answer is correct.
    """
    rules = rules or AnswerRules()
    pool = run.select(split="validation")
    reported = run.select(split=split)
    validation = _correct_probabilities(pool, rules)
    search_alpha = float(run.search_alpha or 0)
    options = {"search_alpha": search_alpha, "texts": pool.questions["question"], "seed": seed}
    thresholds: list[dict[str, float | None]] = []
    for delta in DELTAS:
        threshold = set_threshold(validation, delta=delta, **options)
        thresholds.append({"delta": delta, "alpha": threshold})
    for alpha in alpha_grid(search_alpha, alphas=FIXED_ALPHAS):
        _, limit = miss_rate(validation, alpha=alpha, **options)
        thresholds.append({"alpha": alpha, "missed_limit": limit})
    rows = pd.DataFrame(thresholds).astype(float)
    probabilities = _correct_probabilities(reported, rules)
    # No probability is below NaN, so that nothing is missed if no set is issued.
    rows["missed"] = (probabilities[:, None] < rows["alpha"].to_numpy()).mean(axis=0)
    rows["missed_low"], rows["missed_high"] = metrics.wilson(rows["missed"], len(probabilities))
    alphas = rows["alpha"].dropna().unique()
    sizes = (np.exp(reported.log_probs())[:, :, None] >= alphas).sum(axis=1)
    evaluation = evaluate(reported, rules=rules)
    columns = {
        "alpha": alphas,
        "set_size": sizes.mean(axis=0),
        "share_empty": (sizes == 0).mean(axis=0),
        **evaluation.judgement.auroc(np.asarray(evaluation.pro(alphas))).columns("auroc"),
        "interval": evaluation.judgement.interval,
    }
    rows = rows.merge(pd.DataFrame(columns), on="alpha", how="left")
    rows.insert(0, "correctness", evaluation.rule)
    return [with_run(rows, reported, split)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw how often answer sets miss, against α: a panel for each model and dataset.

    The mean number of answers in a set is written below α.

    Args:
        table: needs the columns alpha, delta (rows with a value are not drawn), missed_limit,
            missed and set_size. It may have the interval of missed, and dataset, model and
            n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["alpha", "delta", *_LINES, "set_size"], "answer_sets")
    fixed = table[table["delta"].isna()]
    with labelled_figure(
        fixed.assign(noted=fixed["set_size"].map("{:.1f}".format)),
        *("model", "dataset"),
        title="Sets of answers without a correct one",
        x="α (mean number of answers in a set)",
        y="share without a correct answer",
        figure_columns=figure_columns,
        height=1.8,
    ) as (figure, panels):
        draw_against_alpha(panels, _LINES)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say how often sets have no correct answer, and how large they are, at the ends of α."""
    fixed = table[table["delta"].isna()]
    smallest = fixed[fixed["alpha"] == fixed["alpha"].min()]
    largest = fixed[fixed["alpha"] == fixed["alpha"].max()]
    n_held = (fixed["missed"] <= fixed["missed_limit"]).sum()
    findings = [
        f"The share is at most its upper limit in {n_held} of {len(fixed)} cases.",
        f"At α = {smallest['alpha'].iloc[0]:g}, a set has {span(smallest['set_size'], '{:.1f}')} "
        f"answers on average, and {percent_span(smallest['missed'])} of the sets have no correct "
        f"one; at α = {largest['alpha'].iloc[0]:g}, {percent_span(largest['share_empty'])} of the "
        "sets are empty.",
    ]
    return join_caption(_SHOWN, table, *findings)


def _correct_probabilities(run: Run, rules: AnswerRules) -> FloatArray:
    """Return the probability of the most probable correct answer to each question, (n,).

    It is 0 if the search found no correct answer, or was undecided.
    """
    answers = run.ranked_answers()
    questions = run.questions.iloc[answers["row"]].reset_index(drop=True)
    is_correct = rouge_and_correct(answers, questions, rules)["correct"].astype(bool)
    probabilities = np.zeros(len(run.questions))
    np.maximum.at(probabilities, answers["row"], np.exp(answers["value"]) * is_correct)
    return np.where(run.questions["status"] == "undecided", 0.0, probabilities)
