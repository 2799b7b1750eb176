"""AUROC of all methods against the ROUGE-L threshold of a correct answer (notebook 05)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.common.method_labels import method_labels
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import chosen_alpha
from pro_lib.evaluation.evaluation import Splits
from pro_lib.plots.captions import by_protocol, comparison, has_enough, join_caption
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.gains import GAIN
from pro_lib.plots.settings import difference_to, method_aurocs, per_setting, with_setting
from pro_lib.plots.style import (
    PRINTED,
    Axes,
    Figure,
    difference_axis,
    drawn_methods,
    line_style,
    matching_rows,
    method_styles,
)

ROUGE_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
_STEP = 0.1  # between two thresholds
_SHOWN = (
    "AUROC of each method minus that of NLL (line at 0), if an answer is correct by ROUGE-L above "
    "a threshold. A filled marker has a 95 % confidence interval of the paired difference that "
    "does not contain 0."
)


@per_setting
def table(splits: Splits, *, thresholds: Sequence[float] = ROUGE_THRESHOLDS) -> list[pd.DataFrame]:
    """Return AUROC of every method with answers judged at several ROUGE-L thresholds.

    The α of PRO is chosen once, on the validation questions as they are judged there.

    The columns are those of the setting, and

    - rouge_threshold: an answer is correct if its ROUGE-L F1 is above this value. If the reported
      questions have labels of a sample, there are further rows that are estimated from them, in
      which it is NaN and the column judge is `labels`.
    - accuracy: the share of correct answers.
    - method, similarity, and alpha and alpha_choice of PRO.
    - auroc with its interval, and the difference to NLL (`settings.aurocs`).

    Raises:
        SentenceError: if the ROUGE-L of some answers is not known.
    """
    reported = splits.reported
    rouge_l = reported.answers["rouge_l"]
    if rouge_l.isna().any():
        raise SentenceError(
            f"{reported.dataset}, {reported.model}: ROUGE-L is not known for "
            f"{rouge_l.isna().sum()} of {len(rouge_l)} answers. It needs texts and references, "
            "or a column rouge_l in the records."
        )
    alphas = {"PRO": chosen_alpha(splits)}
    scores = reported.with_pro(alphas)
    evaluations = {}
    for threshold in thresholds:
        evaluations[threshold] = replace(
            reported.without_labels(),
            answers=reported.answers.assign(correct=rouge_l > threshold),
            rule=f"ROUGE-L > {threshold:g}",
        )
    if reported.judgement.columns():
        evaluations[np.nan] = reported
    tables = []
    for threshold, judged in evaluations.items():
        columns = {
            "rouge_threshold": threshold,
            "accuracy": judged.accuracy,
            **method_aurocs(scores, judged, alphas=alphas),
        }
        tables.append(with_setting(columns, judged))
    return tables


def printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the differences in AUROC to NLL that the paper printed for the settings of a table.

    Columns: dataset, model, rouge_threshold, method, auroc, auroc_minus_nll.
    """
    values = catalog.paper("rouge_thresholds", table)
    values = values.rename(columns={"threshold": "rouge_threshold"})
    setting = ["dataset", "model", "rouge_threshold"]
    return values.assign(auroc_minus_nll=difference_to("NLL", values, setting))


def draw(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "AUROC minus that of NLL, by the ROUGE-L threshold of a correct answer",
) -> Figure:
    """Draw the difference in AUROC to NLL against the threshold: a line for each method.

    There is a panel for each setting. NLL is the line at 0. Differences up to ±0.05 are on a linear
    scale, larger ones on a logarithmic scale. Values that the paper printed are grey.

    Args:
        table: needs the columns rouge_threshold, method, and auroc_minus_nll with its interval.
            Rows without a threshold, which are estimated from labels, are drawn at the right. It
            may have similarity, dataset, model, protocol and n_questions. Methods that figures do
            not draw are left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    table = checked_table(table, ["rouge_threshold", "method", *GAIN], "rouge_thresholds")
    table = table[drawn_methods(table) & (table["method"] != "NLL")]
    labels = method_labels(table)
    # Estimates from labels stand one step after the last threshold.
    last = round(table["rouge_threshold"].max() + _STEP, 9)
    table = table.assign(label=labels, place=table["rouge_threshold"].fillna(last))
    styles = dict(zip(labels.unique(), method_styles(list(labels.unique())), strict=True))
    paper = printed(table)
    with labelled_figure(
        table,
        *("model", "dataset", "protocol"),
        title=title,
        x="ROUGE-L above which an answer is correct",
        y="AUROC minus that of NLL\n(log scale beyond ±0.05)",
        figure_columns=figure_columns,
        least_height=1.0,
        sharex=True,
    ) as (figure, panels):
        for ax, setting, rows in panels:
            for label, index in styles.items():
                line = rows[rows["label"] == label].sort_values("place")
                _draw_line(ax, line, line_style(index) | {"label": label}, last)
            values = matching_rows(paper, {name: setting[name] for name in ("model", "dataset")})
            if len(values):
                ax.plot(values["rouge_threshold"], values["auroc_minus_nll"], **PRINTED)
            difference_axis(ax, "y", (0.5, 0.1, 0.02), linear=0.05)
            places = sorted(rows["place"].unique())
            ax.set_xticks(places, ["labels" if place == last else f"{place:g}" for place in places])
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL at the smallest and the largest threshold, and the methods' order."""
    findings = []
    for words, rows in by_protocol(table):
        ends = sorted({rows["rouge_threshold"].min(), rows["rouge_threshold"].max()})
        for threshold in ends:
            is_end = (rows["method"] == "PRO") & (rows["rouge_threshold"] == threshold)
            subject = f"{words}At a threshold of {threshold:g}, PRO"
            findings.append(comparison(rows[is_end], subject, says_detectable=False))
        if len(ends) > 1:
            drawn = rows[drawn_methods(rows) & has_enough(rows)]
            findings.append(_order_sentence(drawn, ends))
    return join_caption(_SHOWN, table.drop(columns="correctness"), *findings)


def _draw_line(ax: Axes, line: pd.DataFrame, style: dict[str, Any], last: float) -> None:
    """Draw the line of a method; a difference that is not clear has an empty marker."""
    by_rouge = line[line["place"] < last]
    ax.plot(by_rouge["place"], by_rouge["auroc_minus_nll"], lw=1, **style)
    is_clear = (line["auroc_minus_nll_low"] > 0) | (line["auroc_minus_nll_high"] < 0)
    for some, filling in ((line[is_clear], style["color"]), (line[~is_clear], "white")):
        marks = {**style, "ls": "", "mfc": filling, "zorder": 3, "label": ""}
        ax.plot(some["place"], some["auroc_minus_nll"], **marks)


def _order_sentence(rows: pd.DataFrame, ends: list[float]) -> str:
    """Return how far the threshold moves AUROCs and their order, where answers are enough."""
    labelled = rows.assign(label=method_labels(rows))
    wide = labelled.pivot_table("auroc", ["dataset", "model", "label"], "rouge_threshold")
    wide = wide.dropna(subset=wide.columns.intersection(ends))
    if not set(ends) <= set(wide) or wide.empty:
        return ""
    moves = wide.max(axis=1) - wide.min(axis=1)
    n_pairs = 0
    n_same = 0
    for _, part in wide.groupby(["dataset", "model"]):
        above = np.triu_indices(len(part), k=1)
        values = part[ends].to_numpy()
        signs = np.sign(values[above[0]] - values[above[1]])
        n_pairs += len(signs)
        n_same += int((signs[:, 0] == signs[:, 1]).sum())
    return (
        f"The threshold changes no AUROC by more than {moves.max():.3f}, and {n_same} of {n_pairs} "
        f"pairs of methods have the same order at {ends[0]:g} and {ends[1]:g}."
    )
