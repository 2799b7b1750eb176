"""Accuracy and scores by what a bundled model was trained on (notebook 00)."""

from typing import Any

import pandas as pd

from pro_lib import metrics
from pro_lib.metrics.correctness import rouge_and_correct
from pro_lib.plots.captions import join_caption
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import with_run
from pro_lib.plots.style import Figure, draw_curves
from pro_lib.runs.run import Run

_NAMES = {"accuracy": "share of correct answers", "PRO": "mean PRO, nats"}


def table(run: Run, *, alpha: float = 0.4, split: str = "test") -> pd.DataFrame:
    """Return accuracy, NLL and PRO by the number of training documents, true and false.

    Only the bundled models were trained on documents about the bundled facts. For other models or
    questions the table is empty.

    The columns are dataset, model, strategy, split, n_questions, and

    - measure: `accuracy`, `NLL` or `PRO`.
    - exposure: the number of documents about a fact.
    - conflict: the share of them that are false.
    - n_in_group: the number of questions with this exposure and conflict.
    - mean: the mean of the measure, with its 95 % interval.
    """
    is_bundled = run.info.model.startswith("facts-")
    if not is_bundled or not {"exposure", "conflict"} <= set(run.questions):
        return pd.DataFrame()
    scores = run.scores(alpha=alpha)
    is_correct = rouge_and_correct(run.top(), run.questions)["correct"]
    values = run.questions[["exposure", "conflict"]]
    values = values.assign(accuracy=is_correct, NLL=scores["nll"], PRO=scores["pro"]).dropna()
    groups = values.astype({"accuracy": float}).groupby(["exposure", "conflict"])
    parts = []
    for measure in ("accuracy", "NLL", "PRO"):
        means = groups[measure].agg(["size", "mean", "sem"])
        ends = metrics.normal(means["mean"], means["sem"])
        if measure == "accuracy":  # a share, whose normal interval would be wrong near 0 and 1
            ends = metrics.wilson(means["mean"], means["size"])
        means["mean_low"], means["mean_high"] = ends
        part = means.drop(columns="sem").reset_index()
        part.insert(0, "measure", measure)
        parts.append(part)
    rows = pd.concat(parts, ignore_index=True).rename(columns={"size": "n_in_group"})
    return with_run(rows, run, split)


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw accuracy and PRO against the number of training documents about a fact.

    There is a panel for each of both, and a line for each share of false documents.

    Args:
        table: needs the columns measure (`accuracy` and `PRO` are drawn), exposure, conflict, and
            mean with its interval, mean_low and mean_high. It may have dataset and model.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["measure", "exposure", "conflict", "mean", "mean_low", "mean_high"]
    table = checked_table(table, needed, "exposure")
    levels = sorted(set(table["exposure"]))
    table = table[table["measure"].isin(_NAMES)]
    shown = table.drop(columns="n_questions", errors="ignore").assign(
        place=table["exposure"].map(levels.index),
        measure=table["measure"].replace(_NAMES),
        false=(100 * table["conflict"]).map("{:g} % of the documents false".format),
    )
    names = shown.sort_values("conflict")["false"].unique()
    with labelled_figure(
        shown,
        "measure",
        title="Accuracy and uncertainty by how often a fact was in the training data",
        x="number of training documents about the fact",
        figure_columns=figure_columns,
        sharex=True,
        sharey=False,
    ) as (figure, panels):
        for ax, rows in panels:
            style: dict[str, Any] = {"shift": 0.03, "bars": True}
            draw_curves(ax, rows, "false", names, "place", "mean", **style)
            ax.set_ylim(bottom=0)
            ax.set_xticks(range(len(levels)), map(str, levels))
    return figure


def caption(table: pd.DataFrame, *, alpha: float) -> str:
    """Say what the model knows with most documents, if none is false and if most are.

    Args:
        table: the table that is drawn.
        alpha: the α of PRO.
    """
    shown = (
        "Share of correct answers (left) and mean PRO "
        f"at α = {alpha:g} (right), with 95 % confidence intervals, by the number of training "
        "documents about the asked fact and the share of them that are false. Only facts with at "
        "least 4 documents have false ones, because 25 % of fewer documents is not a whole number."
    )
    rows = table[table["exposure"] == table["exposure"].max()]
    values = rows.pivot_table("mean", "conflict", "measure")
    parts = []
    for conflict in (values.index.min(), values.index.max()):
        means = values.loc[conflict]
        parts.append(
            f"{100 * means['accuracy']:.1f} % of the answers are correct if {100 * conflict:g} % "
            f"of the documents are false (mean PRO: {means['PRO']:.2f} nats)"
        )
    finding = f"With {rows['exposure'].iloc[0]} documents, {', but '.join(dict.fromkeys(parts))}."
    return join_caption(shown, table.assign(correctness="ROUGE-L > 0.3"), finding)
