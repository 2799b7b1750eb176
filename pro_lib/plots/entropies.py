"""The entropy of the answers to each question, and a lower bound of it (notebook 09)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.plots.captions import join_caption, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import COLORS, SHARE_TICKS, Figure, set_ticks
from pro_lib.runs.run import Run

_SHOWN = (
    "{n_drawn} questions{each}, in equal steps of all questions sorted by a guaranteed lower bound "
    "of the entropy of their answers (line: the tree bound of an exact search with α = {alpha}). "
    "An estimate (circle, which can hide its 95 % confidence interval) is the mean, over "
    "{n_samples} samples, of the sum of the next-token entropies along a sample. Estimates and "
    "intervals can lie below the bound, because so few samples often miss rare answers with a "
    "large sum."
)
_MOST_QUESTIONS = 60
_TICKS = (0.1, 0.3, 1, 3, 10, 30, 100)
_ARROW: dict[str, Any] = {
    "color": COLORS[0],
    "ls": "",
    "marker": 7,  # downwards
    "ms": 4,
    "clip_on": False,
    "zorder": 3,  # in front of the axis
    "label": "interval goes on below the axis",
}
_STYLES: dict[str, dict[str, Any]] = {
    "tree_bound": {"label": "lower bound", "color": COLORS[1], "lw": 1},
    "entropy": {
        "label": "estimate from samples",
        "color": COLORS[0],
        "ls": "",
        "marker": "o",
        "ms": 2.5,
    },
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
        estimated from the samples (`Run.entropy`), all in nats; n_samples and search_alpha.
    """
    search, samples = runs
    reported = search.select(split=split)
    samples = samples.select(question_ids=list(reported.questions["question_id"]))
    names = {"estimate": "entropy", "low": "entropy_low", "high": "entropy_high"}
    estimate = samples.entropy().rename(columns=names)
    rows = reported.questions[["question_id", "tree_bound", "upper_bound"]].join(estimate)
    n_samples = int(samples.answers["question_id"].value_counts().max())
    rows = rows.assign(n_samples=n_samples, search_alpha=search.search_alpha)
    return [with_run(rows, samples, split)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the entropy of questions in the order of its bound: a panel for each dataset and model.

    If there are more than 60 questions, 60 of them are drawn, in steps of equal size.

    Args:
        table: needs the columns tree_bound, and entropy with its interval. It may have dataset,
            model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, [*_STYLES, "entropy_low", "entropy_high"], "entropies")
    values = table[list(_STYLES)]
    least = 0.8 * values[values > 0].min(axis=None)
    with labelled_figure(
        table,
        *("model", "dataset"),
        title="Entropy of the answers to single questions",
        x="questions, sorted by their lower bound",
        y="entropy (nats, logarithmic)",
        figure_columns=figure_columns,
        height=2.0,
    ) as (figure, panels):
        for ax, rows in panels:
            places = np.linspace(0, len(rows) - 1, min(_MOST_QUESTIONS, len(rows))).astype(int)
            some = rows.sort_values("tree_bound").iloc[places]
            shares = (places + 1) / len(rows)
            low = some["entropy_low"].clip(lower=least)
            ax.vlines(shares, low, some["entropy_high"], COLORS[0], lw=0.7)
            for column, style in _STYLES.items():
                ax.plot(shares, some[column], **style)
            is_cut = low.to_numpy() == least
            if is_cut.any():
                ax.plot(shares[is_cut], low[is_cut], **_ARROW)
            ax.set_yscale("log")
            set_ticks(ax.xaxis, SHARE_TICKS)
            set_ticks(ax.yaxis, _TICKS)
            ax.set_xlim(-0.02, 1.02)
        panels[0][0].set_ylim(bottom=least)  # of all panels
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare the means of the entropy and of the bound."""
    names = ["dataset", "model"]
    settings = table.sort_values("tree_bound").groupby(names, sort=False)
    sizes = settings.size()
    shown = _SHOWN.format(
        n_drawn=span(sizes.clip(upper=_MOST_QUESTIONS), "{}"),
        each=" in each setting" * (len(sizes) > 1),
        alpha=span(table["search_alpha"], "{:g}"),
        n_samples=span(table["n_samples"], "{}"),
    )
    quarter = int(np.ceil(sizes.min() / 4))
    parts = {"all": table, "least": settings.head(quarter), "most": settings.tail(quarter)}
    shares = {}
    for name, rows in parts.items():
        means = rows.groupby(names)[["entropy", "tree_bound"]].mean()
        shares[name] = f"{span(100 * means['tree_bound'] / means['entropy'], '{:.0f}')} %"
    bounds = span(settings["tree_bound"].mean(), "{:.2f}")
    finding = (
        f"Over all n questions, the mean lower bound is {bounds} nats, which is {shares['all']} "
        f"of the estimated mean entropy: {shares['least']} in the quarter of the questions with "
        f"the smallest bounds, and {shares['most']} in the quarter with the largest."
    )
    return join_caption(shown, table, finding)
