"""The entropy of the answers to each question, and a lower bound of it (notebook 09)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.plots.captions import TREE_BOUND, join_caption, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import COLORS, Figure
from pro_lib.runs.run import Run

_SHOWN = (
    "Entropy of the distribution of a model's answers to each question, in the order of its size. "
    "Circles are estimates from a few samples with their 95 % confidence intervals, squares are a "
    f"guaranteed lower bound, which an exact search gives: {TREE_BOUND}. The estimates are noisy, "
    "so that some are below the bound, and the order by them steepens both ends. At most 200 "
    "questions are drawn, evenly spaced, and the largest intervals are cut."
)
_MOST_QUESTIONS = 200
_DOTS: dict[str, dict[str, Any]] = {
    "entropy": {"label": "estimate from samples", "color": COLORS[0], "marker": "o"},
    "tree_bound": {"label": "lower bound", "color": COLORS[1], "marker": "s"},
}


@per_setting
def table(runs: tuple[Run, Run], *, split: str = "test") -> list[pd.DataFrame]:
    """Return the entropy of the answers to each question, and the bounds of the search.

    Args:
        runs: an exact search (strategy `threshold`), and samples (strategy `multinomial`) of the
            same model and questions.
        split: the split to report.

    Returns:
        A table with a row per question: the dataset, model, strategy, split and n_questions;
        question_id; tree_bound and upper_bound of the search; entropy with its 95 % interval,
        estimated from the samples (`Run.entropy`). All are in nats.
    """
    search, samples = runs
    reported = search.select(split=split)
    samples = samples.select(question_ids=list(reported.questions["question_id"]))
    names = {"estimate": "entropy", "low": "entropy_low", "high": "entropy_high"}
    estimate = samples.entropy().rename(columns=names)
    bounds = reported.questions[["question_id", "tree_bound", "upper_bound"]]
    return [with_run(bounds.join(estimate), samples, split)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the entropy of each question in ascending order: a panel for each dataset and model.

    If there are more than 200 questions, 200 of them are drawn, in steps of equal size.

    Args:
        table: needs the columns tree_bound, and entropy with its interval. It may have dataset,
            model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, [*_DOTS, "entropy_low", "entropy_high"], "entropies")
    with labelled_figure(
        table,
        *("model", "dataset"),
        title="Entropy of the answers to each question",
        x="share of the questions with a smaller entropy",
        y="entropy (nats)",
        figure_columns=figure_columns,
        height=2.0,
        sharey=False,
    ) as (figure, panels):
        for ax, rows in panels:
            places = np.linspace(0, len(rows) - 1, min(_MOST_QUESTIONS, len(rows))).astype(int)
            some = rows.sort_values("entropy").iloc[places]
            shares = (places + 1) / len(rows)
            color = COLORS[0]
            ax.vlines(shares, some["entropy_low"], some["entropy_high"], color, lw=0.5, alpha=0.5)
            for column, style in _DOTS.items():
                ax.plot(shares, some[column], ls="", ms=2.2, **style)
            highest = [*some[list(_DOTS)].max(), some["entropy_high"].quantile(0.98)]
            ax.set(xlim=(-0.01, 1.01), ylim=(0, 1.03 * np.nanmax(highest)))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare the means of the entropy and of the bound."""
    means = table.groupby(["dataset", "model"], sort=False)[["entropy", "tree_bound"]].mean()
    finding = (
        f"The mean over questions is {span(means['entropy'], '{:.2f}')} nats, that of the lower "
        f"bound {span(means['tree_bound'], '{:.2f}')} nats."
    )
    return join_caption(_SHOWN, table, finding)
