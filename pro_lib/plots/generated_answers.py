"""The generated answers: how many are distinct, how probable they are, their cost (notebook 01)."""

import numpy as np
import pandas as pd

from pro_lib import metrics, scoring
from pro_lib.plots.captions import join_caption, percent_span, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import per_setting, with_run
from pro_lib.plots.style import Figure, distinct_values, draw_curves
from pro_lib.runs.run import Run

_MEASURES = ("n_distinct", "mass")


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
        untitled=["measure"],
        figure_columns=figure_columns,
        per_line=2,
        height=1.3,
        sharey="col",
    ) as (figure, panels):
        for ax, rows in panels:
            is_count = rows["measure"].iloc[0] == "n_distinct"
            shares = (_count_shares if is_count else _sum_shares)(rows)
            style = {"bars": True, "shift": 0.1} if is_count else {"marker": ""}
            draw_curves(ax, shares, "model", models, "value", "share", **style)
            ax.set_xlabel("distinct answers" if is_count else "sum of probabilities")
            ax.set_ylabel("share of questions" if is_count else "share up to the sum")
            if is_count:
                ax.set_xticks(shares["value"].unique())
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
    shown = (
        "Share of questions by the number of distinct answers (left), and with at most a given sum "
        "of their probabilities (right), with 95 % confidence intervals."
    )
    findings = [
        f"On average, {span(means['n_distinct'], '{:.1f}')} of "
        f"{span(means['n_answers'], '{:.0f}')} answers are distinct, and their probabilities sum "
        f"to {span(means['mass'], '{:.2f}')}.",
        f"If repeats count, the sum is above 1 for {percent_span(means['is_above'])} of the "
        f"questions; if they do not, PRO at α = {alpha:g} uses more than one answer for "
        f"{percent_span(means['has_several'])}.",
    ]
    return join_caption(shown, table, *findings)


def _count_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share of questions with each number of distinct answers, by model."""
    numbers = np.arange(min(1, table["n_distinct"].min()), table["n_distinct"].max() + 1)
    parts = []
    for model, counts in table.groupby("model")["n_distinct"]:
        shares = counts.value_counts(normalize=True).reindex(numbers, fill_value=0.0).to_numpy()
        low, high = metrics.wilson(shares, len(counts))
        columns = {"model": model, "value": numbers, "share": shares}
        parts.append(pd.DataFrame(columns | {"share_low": low, "share_high": high}))
    return pd.concat(parts)


def _sum_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share of questions whose answers have at most a probability together, by model."""
    places = np.linspace(0, max(1.0, table["mass"].max()), 201)
    parts = []
    for model, masses in table.groupby("model")["mass"]:
        shares = np.searchsorted(np.sort(masses), places, side="right") / len(masses)
        half_width = np.sqrt(np.log(2 / 0.05) / (2 * len(masses)))
        ends = {"share_low": shares - half_width, "share_high": shares + half_width}
        columns = {name: values.clip(0, 1) for name, values in ends.items()}
        parts.append(pd.DataFrame({"model": model, "value": places, "share": shares} | columns))
    return pd.concat(parts)
