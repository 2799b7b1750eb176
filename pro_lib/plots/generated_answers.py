"""The generated answers: how many are distinct, how probable they are, their cost (notebook 01)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.plots.captions import percent_span, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Axes, Figure, distinct_values, line_style
from pro_lib.runs.run import Run

# The measures, with the labels of their axes.
_MEASURES = {
    "n_distinct": "distinct answers",
    "mass": "sum of probabilities",
}


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

    There are two panels for each dataset, with a line for each model. Intervals of the left panels
    are Wilson's. Bands of the right panels hold for the whole line (Dvoretzky, Kiefer, Wolfowitz).

    Args:
        table: has a row per question, and needs the columns n_distinct and mass. It may have
            dataset, model and n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, list(_MEASURES), "generated_answers")
    models = distinct_values(table, "model")
    measured = [table.assign(measure=name) for name in _MEASURES]
    with labelled_figure(
        pd.concat(measured),
        *("dataset", "measure"),
        title="Distinct answers to a question, and the sum of their probabilities",
        y="share of questions",
        untitled=["measure"],
        figure_columns=figure_columns,
        per_line=2,
        height=1.3,
        sharey="col",
    ) as (figure, panels):
        for ax, rows in panels:
            measure = rows["measure"].iloc[0]
            draw_model = _draw_counts if measure == "n_distinct" else _draw_distribution
            largest = table[measure].max()
            for index, model in enumerate(models):
                values = rows.loc[rows["model"] == model, measure]
                style = line_style(index) | {"marker": "", "label": model}
                if len(values):
                    draw_model(ax, values, largest, style)
            ax.set_xlabel(_MEASURES[measure])
        for ax, _ in panels:  # when the common axes have all values
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
        "Share of questions by the number of distinct answers (left; bars are 95 % intervals), and "
        "with at most a given sum of the probabilities of these answers (right; bands are 95 % "
        "intervals). "
        f"n = {span(table['n_questions'], '{:,.0f}')} questions{several}, with "
        f"{span(means['n_answers'], '{:.1f}')} answers each. On average, "
        f"{span(means['n_distinct'], '{:.1f}')} answers are distinct, and their probabilities sum "
        f"to {span(means['mass'], '{:.2f}')}. If an answer that is found twice counts twice, the "
        f"sum is above 1 for {percent_span(means['is_above'])} of the questions. At α = {alpha:g}, "
        f"PRO of distinct answers uses more than one for {percent_span(means['has_several'])} of "
        "the questions, and equals NLL for the others."
    )


def _draw_counts(ax: Axes, counts: pd.Series, largest: int, style: dict[str, Any]) -> None:
    """Draw the share of questions with each number of answers."""
    numbers = np.arange(min(1, counts.min()), largest + 1)
    shares = counts.value_counts(normalize=True).reindex(numbers, fill_value=0.0)
    edges = [*(numbers - 0.5), largest + 0.5]
    ax.step(edges, [*shares, shares.iloc[-1]], where="post", **style)
    ax.vlines(numbers, *metrics.wilson(shares, len(counts)), color=style["color"], lw=0.8)
    ax.set_xticks(numbers[:: -1 - len(numbers) // 9])


def _draw_distribution(ax: Axes, masses: pd.Series, largest: float, style: dict[str, Any]) -> None:
    """Draw the share of questions whose answers have at most a probability together."""
    places = np.linspace(0, max(1.0, largest), 201)
    shares = np.searchsorted(np.sort(masses), places, side="right") / len(masses)
    half_width = np.sqrt(np.log(2 / 0.05) / (2 * len(masses)))
    ax.plot(places, shares, **style)
    band = (shares - half_width).clip(0), (shares + half_width).clip(max=1)
    ax.fill_between(places, *band, color=style["color"], alpha=0.15, lw=0)
