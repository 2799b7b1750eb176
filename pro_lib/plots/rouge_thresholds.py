"""AUROC of all methods against the ROUGE-L threshold of a correct answer (notebook 05)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.common.method_labels import method_labels
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import chosen_alpha
from pro_lib.evaluation.evaluation import Splits
from pro_lib.plots.captions import comparison, has_enough, join_caption
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure
from pro_lib.plots.gains import GAIN
from pro_lib.plots.settings import difference_to, method_aurocs, per_setting, with_setting
from pro_lib.plots.style import PRINTED, Figure, distinct_values, drawn_methods, labelled_styles

ROUGE_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
_LEAST = -0.15  # where the axis begins
_SHOWN = (
    "AUROC of each method minus that of NLL, with 95 % confidence intervals, at three thresholds "
    "of ROUGE-L above which an answer counts as correct."
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


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the difference in AUROC to NLL at three thresholds: a row for each method.

    There is a panel for each setting. Values that the paper printed are grey.

    Args:
        table: needs the columns rouge_threshold, method, and auroc_minus_nll with its interval. It
            may have similarity, dataset, model, protocol and n_questions. Rows without a threshold
            are estimated from labels. The smallest, the middle and the largest threshold are drawn,
            and the methods that figures of AUROC have.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["rouge_threshold", "method", *GAIN], "rouge_thresholds")
    table = table[drawn_methods(table) & (table["method"] != "NLL")]
    thresholds = sorted(table["rouge_threshold"].dropna().unique())
    drawn = [thresholds[0], thresholds[len(thresholds) // 2], thresholds[-1]]
    table = table[table["rouge_threshold"].isin([*drawn, np.nan])]
    group = table["rouge_threshold"].map("ROUGE-L > {:g}".format)
    table = table.assign(group=group.replace("ROUGE-L > nan", "labels"), row=method_labels(table))
    names = distinct_values(table, "row")
    styles = labelled_styles(table.sort_values("rouge_threshold")["group"])
    with labelled_figure(
        table,
        *("model", "dataset", "protocol"),
        title="AUROC minus that of NLL, by the threshold of a correct answer",
        x="AUROC minus that of NLL",
        figure_columns=figure_columns,
        height=0.28 * len(names),
        least_height=0.16 * len(names),
        sharex=True,
    ) as (figure, panels):
        least = _LEAST if table[GAIN[0]].min() < _LEAST else None
        for ax, rows in panels:
            draw_rows(ax, rows, GAIN[0], names, by="group", styles=styles, least=least)
            paper = printed(rows).merge(rows[["method", "row"]].drop_duplicates(), on="method")
            if len(paper):
                ax.plot(paper[GAIN[0]], paper["row"].map(names.index), **PRINTED)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL at the smallest and the largest threshold, and the methods' order."""
    ends = sorted({table["rouge_threshold"].min(), table["rouge_threshold"].max()})
    drawn = table[drawn_methods(table)]
    findings = []
    for threshold in ends:
        rows = table[(table["method"] == "PRO") & (table["rouge_threshold"] == threshold)]
        findings.append(comparison(rows, f"At a threshold of {threshold:g}, PRO"))
    if len(ends) > 1:
        findings.append(_order_sentence(drawn[has_enough(drawn)], ends))
    return join_caption(_SHOWN, drawn.drop(columns="correctness"), *findings)


def _order_sentence(rows: pd.DataFrame, ends: list[float]) -> str:
    """Return how far the threshold moves AUROCs and their order, where answers are enough."""
    labelled = rows.assign(label=method_labels(rows))
    setting = list(rows.columns.intersection(["dataset", "model", "protocol"]))
    wide = labelled.pivot_table("auroc", [*setting, "label"], "rouge_threshold")
    wide = wide.dropna(subset=wide.columns.intersection(ends))
    if not set(ends) <= set(wide) or wide.empty:
        return ""
    moves = wide.max(axis=1) - wide.min(axis=1)
    n_pairs = 0
    n_same = 0
    for _, part in wide.groupby(setting):
        above = np.triu_indices(len(part), k=1)
        values = part[ends].to_numpy()
        signs = np.sign(values[above[0]] - values[above[1]])
        n_pairs += len(signs)
        n_same += int((signs[:, 0] == signs[:, 1]).sum())
    return (
        f"The threshold changes no AUROC by more than {moves.max():.3f}, and {n_same} of {n_pairs} "
        f"pairs of methods have the same order at {ends[0]:g} and {ends[1]:g}."
    )
