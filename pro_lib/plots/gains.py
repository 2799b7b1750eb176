"""The figures of the gain of PRO over NLL: in simulated worlds, and without a suspected cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from pro_lib.plots.style import (
    checked_table,
    distinct_values,
    handles,
    label_figure,
    line_style,
    name_rows,
    panels,
    set_ticks,
    title_at_right,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAIN = ["auroc_minus_nll", "auroc_minus_nll_low", "auroc_minus_nll_high"]
_LINEAR = 0.02  # the x-axis is linear up to this difference, and logarithmic beyond
# Names of causes that a figure alone has to explain
_CAUSES = {
    "answers below 0.01 left out": "answers with p < 0.01 left out",
    "spellings merged": "answers of one meaning merged",
    "endings left out": "end token left out of p",
    "repeats kept": "repeated answers counted",
    "probabilities made to sum to 1": "p divided by the sum over the answers",
}
# Words for panels and rows of simulated worlds
_VARIED = {
    "sharpness of probabilities": "sharpness: how unequal the probabilities are",
    "possible meanings of an answer": "number of possible meanings of an answer",
    "probability that no meaning is true": "probability that no possible answer is true",
    "how answers are found": "which answers PRO is given",
    "answers found per question": "number of answers that PRO is given",
}
_LEVELS = {
    "most probable": "the most probable",
    "distinct samples": "samples without repeats",
    "samples": "samples with repeats",
}
_WORLD_NOTE = (
    "A simulated world draws, for each question, the probabilities of the possible answers and the "
    "true one. Each row is a world whose other properties are those of the base world. Rows that "
    "are marked (base) are the same world, which counts once. K is at most the number of answers. "
    "At calibration c, the true answer is drawn with probabilities proportional to p^c. With s "
    "spellings, p of each meaning is divided at random between s answers. A point without a bar "
    "has an interval that is narrower than the point."
)
_CAUSE_NOTE = (
    "Each row changes one thing about the answers and their probabilities p, and computes both "
    "scores anew. The AUROC of NLL after the change is in parentheses. Unless the row says "
    "otherwise, each answer is counted once."
)
_X = f"AUROC of PRO minus AUROC of NLL, with 95 % interval (log scale beyond ±{_LINEAR:g})"


def worlds(
    table: pd.DataFrame,
    *,
    panel: str = "varied",
    y: str = "value of the property that a panel varies",
    figure_columns: int = 2,
    title: str = "PRO and NLL in simulated worlds that differ in one property",
    note: str = "",
) -> Figure:
    """Draw the gain of PRO over NLL in simulated worlds: a row for each world, with its interval.

    Args:
        table: needs the columns level, k_choice, k, alpha and auroc_minus_nll with its interval. It
            may have the other columns of `tables.worlds`; the base world is then marked and
            described.
        panel: the column with a panel for each of its values, such as varied or calibration.
        y: what the values in column level are, as the y-axis names them.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
        note: what else the note below the figure says, such as `findings.worlds_note`.

    Example:
        table = tables.worlds(n_questions=2000)
        plots.worlds(table[table["varied"] == "spellings of each meaning"])
    """
    needed = [panel, "level", "k_choice", "k", "alpha", *_GAIN]
    table = checked_table(table, needed, "worlds").drop(columns="model")
    values = table[panel]
    if panel == "calibration":
        table = table.sort_values("calibration", kind="stable")
        values = table["calibration"].map(_calibration_name)
    is_base = table["is_base"] if "is_base" in table else pd.Series(False, table.index)
    rows = table["level"].astype(str).replace(_LEVELS)
    rows += is_base.map({True: " (base)", False: ""})
    drawn = table.assign(panel=values.replace(_VARIED), row=rows)
    return _draw_gains(
        drawn.drop(columns="n_questions", errors="ignore"),
        ["panel"],
        figure_columns=figure_columns,
        per_line=figure_columns,
        title=title,
        y=y,
        note=" ".join(filter(None, [_WORLD_NOTE, _describe_base(table), note])),
    )


def causes(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Which changes of the answers move the difference between PRO and NLL?",
) -> Figure:
    """Draw the gain of PRO over NLL in a setting: a row for each cause that is removed alone.

    Args:
        table: needs the columns cause, k_choice, k, alpha and auroc_minus_nll with its interval. It
            may have nll_auroc, which is written beside the causes, and dataset, model, protocol and
            n_questions.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        plots.causes(Experiment(model="facts-2m", limit=200).causes())
    """
    needed = ["cause", "k_choice", "k", "alpha", *_GAIN]
    table = checked_table(table, needed, "causes")
    return _draw_gains(
        table.assign(row=_cause_names(table)),
        ["dataset", "model"],
        figure_columns=figure_columns,
        per_line=1,
        title=title,
        y="change",
        note=_CAUSE_NOTE,
    )


def _cause_names(table: pd.DataFrame) -> pd.Series:
    """Return the words for each change, with the AUROC of NLL after it if that is known."""
    names = table["cause"].replace(_CAUSES)
    if "nll_auroc" not in table:
        return names
    return names + [f" ({value:.3f})" for value in table["nll_auroc"]]


def _draw_gains(
    table: pd.DataFrame,
    by: list[str],
    *,
    figure_columns: int,
    per_line: int,
    title: str,
    y: str,
    note: str,
) -> Figure:
    """Draw a panel for each value of `by`, a row for each `row`, and a marker for each α and K."""
    table = table.assign(score=[_score_name(row) for row in table.to_dict("records")])
    scores = distinct_values(table, "score")
    present = [name for name in by if name in table]
    n_rows = table.groupby(present)["row"].nunique().max() if present else table["row"].nunique()
    grid = panels(
        table,
        *by,
        figure_columns=figure_columns,
        per_line=per_line,
        height=0.22 * n_rows + 0.3,
        sharex=True,
    )
    with grid as (figure, axes):
        for ax, _, rows in axes:
            _draw_rows(ax, rows, scores)
            set_ticks(ax, [-0.1, -_LINEAR, 0, _LINEAR, 0.1])
            ax.tick_params(labelbottom=True)
            title_at_right(ax)
        label_figure(figure, title=title, x=_X, y=y, entries=handles(scores, ls=""), note=note)
    return figure


def _draw_rows(ax: Axes, rows: pd.DataFrame, scores: list[str]) -> None:
    names = list(dict.fromkeys(rows["row"]))
    for index, score in enumerate(scores):
        of_score = rows[rows["score"] == score]
        shift = 0.7 * ((index + 0.5) / len(scores) - 0.5)
        places = of_score["row"].map(names.index) + shift
        style = {**line_style(index), "ls": "", "ms": 2.6}
        low = of_score["auroc_minus_nll_low"]
        high = of_score["auroc_minus_nll_high"]
        ax.hlines(places, low, high, color=style["color"], lw=0.9)
        ax.plot(of_score["auroc_minus_nll"], places, **style)
    name_rows(ax, names, names)
    ax.axvline(0, color="black", lw=0.6)
    ax.set_xscale("symlog", linthresh=_LINEAR)


def _score_name(row: dict) -> str:
    return (
        f"PRO, α = {row['alpha']:g}" if row["k_choice"] == "adaptive" else f"PRO, K = {row['k']:g}"
    )


def _calibration_name(value: float) -> str:
    words = "calibrated"
    if value != 1:
        words = "overconfident" if value < 1 else "underconfident"
    return f"calibration\xa0{value:g} ({words})"


def _describe_base(table: pd.DataFrame) -> str:
    """Say which properties the base world has; empty if the table does not have it."""
    if "is_base" not in table or not table["is_base"].any():
        return ""
    base = table[table["is_base"]].iloc[0]
    return (
        f"Base world: sharpness {base['sharpness']:g}, {base['n_meanings']} meanings, calibrated, "
        "one spelling of each meaning, one of the meanings is always true, "
        f"the {base['n_answers']} most probable answers found. "
        f"{base['n_questions']:,} questions in each world."
    )
