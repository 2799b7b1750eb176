"""The generated answers: how many are distinct, how probable they are, their cost (notebook 01)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib import scoring
from pro_lib.plots.captions import join_caption, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Figure, distinct_values, draw_curves
from pro_lib.runs.run import Run

# The measures, with the labels of their axes
_MEASURES = {"n_distinct": "distinct answers", "mass": "sum of their probabilities"}


@per_setting
def table(run: Run, *, split: str = "test", alpha: float = 0.4) -> list[pd.DataFrame]:
    """Return, for each question, how many answers a run has and how probable they are together.

    Args:
        run: a run of the questions of `split`.
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
    return [with_run(columns, run, split)]


@per_setting
def costs(run: Run, *, split: str = "test") -> list[pd.DataFrame]:
    """Return the cost of each run, over all questions of its folder.

    Columns: the dataset, model, strategy, split and n_questions; prompt_tokens; token_forwards, the
    tokens that were put through the model after the prompts; model_calls; seconds;
    tokens_per_second; peak_memory_mib, in MiB.
    """
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
    return [with_run([row], run, split)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the number of distinct answers of questions, and the sum of their probabilities.

    There are two panels for each dataset, with a line for each model. A band holds for the whole
    line.

    Args:
        table: has a row per question, and needs the columns n_distinct and mass. It may have
            dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, list(_MEASURES), "generated_answers")
    models = distinct_values(table, "model")
    measured = [_cumulative_shares(table, name) for name in _MEASURES]
    with labelled_figure(
        pd.concat(measured),
        *("dataset", "measure"),
        title="Distinct answers to a question, and the sum of their probabilities",
        y="share of questions with at most x",
        untitled=["measure"],
        figure_columns=figure_columns,
        per_line=2,
        height=1.3,
    ) as (figure, panels):
        for ax, rows in panels:
            measure = rows["measure"].iloc[0]
            style: dict[str, Any] = {"marker": ""}
            if measure == "n_distinct":
                style["drawstyle"] = "steps-post"
            draw_curves(ax, rows, "model", models, "value", "share", **style)
            ax.set_xlabel(_MEASURES[measure])
            ax.set(xlim=(0, 1.02 * rows["value"].max()), ylim=(0, 1.03))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say how many answers are distinct, and how probable they are."""
    columns = ["n_answers", "n_distinct", "mass"]
    means = table.groupby(["dataset", "model"])[columns].mean()
    shown = (
        "Share of questions with at most a given number of distinct answers (left), and with at "
        "most a given sum of their probabilities (right). Each band contains its whole true line "
        "with a probability of at least 95 %."
    )
    finding = (
        f"On average, {span(means['n_distinct'], '{:.1f}')} of "
        f"{span(means['n_answers'], '{:.0f}')} answers are distinct, and their probabilities sum "
        f"to {span(means['mass'], '{:.2f}')}."
    )
    return join_caption(shown, table, finding)


def _cumulative_shares(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the share of questions with at most each value, in each dataset and of each model."""
    highest = max(1.0, table[measure].max())
    n_steps = 200 if measure == "mass" else int(highest)
    values = np.linspace(0, highest, n_steps + 1)
    parts = []
    settings = list(table.columns.intersection(["dataset", "model", "n_questions"]))
    for setting, rows in table.groupby(settings, sort=False):
        shares = np.searchsorted(np.sort(rows[measure]), values + 1e-9, side="right") / len(rows)
        half_width = np.sqrt(np.log(2 / 0.05) / (2 * len(rows)))  # Dvoretzky, Kiefer, Wolfowitz
        columns = dict(zip(settings, setting, strict=True))
        columns |= {"measure": measure, "value": values, "share": shares}
        columns["share_low"] = (shares - half_width).clip(min=0)
        columns["share_high"] = (shares + half_width).clip(max=1)
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts)
