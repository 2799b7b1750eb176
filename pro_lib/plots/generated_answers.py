"""The generated answers: how many are distinct, how probable they are, their cost (notebook 01)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.plots.captions import percent_span, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import with_run
from pro_lib.plots.style import Axes, Figure, distinct_values, line_style, model_entries
from pro_lib.runs.run import Run

# The rows of panels: the column, and the labels of its axes.
_MEASURES = {
    "n_distinct": ("distinct answers", "share of questions\nwith this number"),
    "mass": ("sum of probabilities", "share of questions\nwith at most this sum"),
}


def table(runs: Sequence[Run], *, split: str = "test", alpha: float = 0.4) -> pd.DataFrame:
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


def draw(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Distinct answers to a question, and the sum of their probabilities",
) -> Figure:
    """Draw the number of distinct answers of questions, and the sum of their probabilities.

    There are two panels for each dataset, with a line for each model. Intervals of the upper panels
    are Wilson's. Bands of the lower panels hold for the whole line (Dvoretzky, Kiefer, Wolfowitz).

    Args:
        table: has a row per question, and needs the columns n_distinct and mass. It may have
            dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    table = checked_table(table, list(_MEASURES), "generated_answers")
    models = distinct_values(table, "model")
    largest = int(table["n_distinct"].max())
    highest = max(1.0, float(table["mass"].max()))
    n_datasets = len(distinct_values(table, "dataset"))
    per_line = min(n_datasets, 3 if figure_columns == 2 else 2)
    measured = [table.assign(measure=name) for name in _MEASURES]
    with labelled_figure(
        pd.concat(measured),
        *("measure", "dataset"),
        title=title,
        entries=model_entries(models, marker=""),
        untitled=["measure"],
        figure_columns=figure_columns,
        per_line=per_line,
        sharey="row" if per_line == n_datasets else False,
    ) as (figure, panels):
        for place, (ax, setting, rows) in enumerate(panels):
            measure = setting["measure"]
            for index, model in enumerate(models):
                some = rows[rows["model"] == model]
                if some.empty:
                    continue
                if measure == "n_distinct":
                    shift = 0.12 * (index - (len(models) - 1) / 2)
                    _draw_counts(ax, some["n_distinct"], largest, index, shift)
                else:
                    _draw_distribution(ax, some["mass"].to_numpy(), highest, index)
            x_label, y_label = _MEASURES[measure]
            ax.set_xlabel(x_label)
            if place % per_line == 0:
                ax.set_ylabel(y_label)
        for ax, _, _ in panels:
            ax.set_ylim(bottom=0)
    return figure


def caption(table: pd.DataFrame, *, alpha: float) -> str:
    """Say how many answers are distinct, how probable they are, and when PRO can differ from NLL.

    Args:
        table: the table.
        alpha: the α at which its column k counts the answers that PRO keeps.
    """
    is_above = table["mass_with_repeats"] > 1 + 1e-6
    table = table.assign(is_above=is_above, has_several=table["k"] > 1)
    columns = ["n_answers", "n_distinct", "mass", "is_above", "has_several"]
    means = table.groupby(["dataset", "model"])[columns].mean()
    several = f" in each of {len(means)} settings" if len(means) > 1 else ""
    return (
        "Share of questions by the number of distinct answers (above), and with at most a given "
        "sum of the probabilities of these answers (below); bars and bands are 95 % intervals. "
        f"n = {span(table['n_questions'], '{:,.0f}')} questions{several}, with "
        f"{span(means['n_answers'], '{:.1f}')} answers each. On average, "
        f"{span(means['n_distinct'], '{:.1f}')} answers are distinct, and their probabilities sum "
        f"to {span(means['mass'], '{:.2f}')}; with repeats the sum is above 1 for "
        f"{percent_span(means['is_above'])} of the questions. At α = {alpha:g}, PRO keeps more "
        f"than one answer for {percent_span(means['has_several'])} of the questions, and equals "
        "NLL for the others."
    )


def _draw_counts(ax: Axes, counts: pd.Series, largest: int, index: int, shift: float) -> None:
    """Draw the share of questions with each number of answers."""
    numbers = np.arange(min(1, counts.min()), largest + 1)
    shares = counts.value_counts(normalize=True).reindex(numbers, fill_value=0.0)
    style = line_style(index) | {"marker": ""}
    edges = [*(numbers - 0.5), largest + 0.5]
    ax.step(edges, [*shares, shares.iloc[-1]], where="post", **style)
    ax.vlines(numbers + shift, *metrics.wilson(shares, len(counts)), color=style["color"], lw=0.8)
    ax.set_xticks(numbers[:: 1 + len(numbers) // 12])


def _draw_distribution(ax: Axes, masses: np.ndarray, highest: float, index: int) -> None:
    """Draw the share of questions whose answers have at most a probability together."""
    places = np.linspace(0, highest, 201)
    shares = np.searchsorted(np.sort(masses), places, side="right") / len(masses)
    half_width = np.sqrt(np.log(2 / 0.05) / (2 * len(masses)))
    style = line_style(index) | {"marker": ""}
    ax.plot(places, shares, **style)
    band = (shares - half_width).clip(0), (shares + half_width).clip(max=1)
    ax.fill_between(places, *band, color=style["color"], alpha=0.15, lw=0)
