"""AUROC of all methods against the ROUGE-L threshold of a correct answer (notebook 05)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.common.method_labels import method_labels
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.sweeps import chosen_alpha
from pro_lib.plots.captions import by_protocol, comparison, has_enough, join_caption
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import aurocs, method_columns, per_setting, with_setting
from pro_lib.plots.style import (
    PRINTED,
    Axes,
    Figure,
    difference_axis,
    distinct_values,
    drawn_methods,
    handles,
    line_style,
    matching_rows,
    method_styles,
    printed_entry,
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
    alpha = chosen_alpha(splits)
    scores = reported.with_pro({"PRO": alpha})
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
            **method_columns(list(scores), alphas={"PRO": alpha}),
            **aurocs(scores.to_numpy(), judged, is_nll=scores.columns == "NLL"),
        }
        tables.append(with_setting(pd.DataFrame(columns), judged))
    return tables


def printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the differences in AUROC to NLL that the paper printed for the settings of a table.

    Columns: dataset, model, rouge_threshold, method, auroc, auroc_minus_nll.
    """
    values = catalog.paper("rouge_thresholds", table)
    values = values.rename(columns={"threshold": "rouge_threshold"})
    setting = ["dataset", "model", "rouge_threshold"]
    nll = values[values["method"] == "NLL"].set_index(setting)["auroc"]
    of_nll = values[setting].join(nll, on=setting)["auroc"]
    return values.assign(auroc_minus_nll=values["auroc"] - of_nll)


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
        table: needs the columns rouge_threshold, method and auroc_minus_nll. Rows without a
            threshold, which are estimated from labels, are drawn at the right. It may have the
            interval of auroc_minus_nll, similarity, dataset, model, protocol and n_questions.
            Methods that figures do not draw are left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    needed = ["rouge_threshold", "method", "auroc_minus_nll"]
    table = checked_table(table, needed, "rouge_thresholds")
    table = table[drawn_methods(table) & (table["method"] != "NLL")]
    table = table.assign(label=method_labels(table).to_numpy())
    labels = distinct_values(table, "label")
    styles = method_styles(labels)
    paper = printed(table)
    entries = handles(labels, styles=styles)
    entries += [] if paper.empty else [printed_entry()]
    with labelled_figure(
        table,
        *("model", "dataset", "protocol"),
        title=title,
        x="ROUGE-L above which an answer is correct",
        y="AUROC minus that of NLL\n(log scale beyond ±0.05)",
        entries=entries,
        figure_columns=figure_columns,
        sharex=True,
        sharey=True,
    ) as (figure, panels):
        for ax, setting, rows in panels:
            place = {name: setting[name] for name in ("model", "dataset")}
            values = matching_rows(paper, place)
            ax.plot(values["rouge_threshold"], values["auroc_minus_nll"], **PRINTED)
            for label, index in zip(labels, styles, strict=True):
                _draw_line(ax, rows[rows["label"] == label], line_style(index))
            difference_axis(ax)
            thresholds = sorted(rows["rouge_threshold"].dropna().unique())
            ticks = {threshold: f"{threshold:g}" for threshold in thresholds}
            if rows["rouge_threshold"].isna().any():
                ticks[thresholds[-1] + _STEP] = "labels"
            ax.set_xticks(list(ticks), list(ticks.values()))
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL at the smallest and the largest threshold, and the methods' order."""
    findings = []
    for words, rows in by_protocol(table):
        ends = sorted({rows["rouge_threshold"].min(), rows["rouge_threshold"].max()})
        for threshold in ends:
            is_end = (rows["method"] == "PRO") & (rows["rouge_threshold"] == threshold)
            subject = f"{words}At a threshold of {threshold:g}, PRO"
            options: dict[str, Any] = {"says_detectable": False}
            compared = comparison(rows[is_end], subject, "NLL", "auroc_minus_nll", **options)
            findings.append(compared)
        if len(ends) > 1:
            findings.append(_order_sentence(rows[has_enough(rows)], *ends))
    return join_caption(_SHOWN, table.drop(columns="correctness", errors="ignore"), *findings)


def _draw_line(ax: Axes, rows: pd.DataFrame, style: dict[str, Any]) -> None:
    """Draw the line of a method; a difference that is not clear has an empty marker."""
    rows = rows.sort_values("rouge_threshold")
    places = rows["rouge_threshold"].fillna(rows["rouge_threshold"].max() + _STEP)
    values = rows["auroc_minus_nll"]
    by_rouge = rows["rouge_threshold"].notna()
    ax.plot(places[by_rouge], values[by_rouge], **{**style, "marker": "", "lw": 1})
    is_clear = pd.Series(True, rows.index)
    if "auroc_minus_nll_low" in rows:
        is_clear = (rows["auroc_minus_nll_low"] > 0) | (rows["auroc_minus_nll_high"] < 0)
    for chosen, filling in ((is_clear, style["color"]), (~is_clear, "white")):
        ax.plot(places[chosen], values[chosen], **{**style, "ls": "", "mfc": filling, "zorder": 3})


def _order_sentence(rows: pd.DataFrame, first: float, last: float) -> str:
    """Return how far the threshold moves AUROCs and their order, where answers are enough."""
    setting = ["dataset", "model"]
    labelled = rows.assign(label=method_labels(rows))
    wide = labelled.pivot_table("auroc", [*setting, "label"], "rouge_threshold")
    wide = wide.reindex(columns=sorted({first, last, *wide})).dropna(subset=[first, last])
    if wide.empty:
        return ""
    moves = wide.max(axis=1) - wide.min(axis=1)
    n_pairs = 0
    n_same = 0
    for _, part in wide.groupby(setting):
        before, after = (part[end].to_numpy() for end in (first, last))
        above = np.triu_indices(len(part), k=1)
        signs = [np.sign(values[above[0]] - values[above[1]]) for values in (before, after)]
        n_pairs += len(above[0])
        n_same += int((signs[0] == signs[1]).sum())
    return (
        f"The threshold changes no AUROC by more than {moves.max():.3f}, and {n_same} of {n_pairs} "
        f"pairs of methods have the same order at {first:g} and {last:g}."
    )
