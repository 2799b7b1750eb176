"""AUROC of all methods against the ROUGE-L threshold of a correct answer (notebook 05)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.plots.captions import (
    by_protocol,
    corrected,
    has_enough,
    join_caption,
    listed,
    setting_names,
    too_few,
    with_signs,
)
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.gains import GAIN
from pro_lib.plots.settings import (
    counted_methods,
    difference_to,
    method_aurocs,
    method_labels,
    per_setting,
    with_setting,
)
from pro_lib.plots.style import PRINTED, Figure, distinct_values, drawn_methods

ROUGE_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
_SHOWN = (
    "AUROC of each method minus that of NLL, with 95 % confidence intervals, at three thresholds "
    f"of ROUGE-L above which an answer counts as correct. "
    f"{corrected('methods and settings, for each threshold')}"
)
_LEAST = -0.37  # so that the axis begins near -0.4


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
    alphas = {"PRO": splits.alpha()}
    scores = reported.scores(alphas)
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

    There is a panel for each setting. Values that the paper printed are grey. An arrow at the left
    edge stands for a difference below -0.37, and the legend has the numbers.

    Args:
        table: needs the columns rouge_threshold, method, and auroc_minus_nll with its interval. It
            may have similarity, dataset, model, protocol and n_questions, and with p_value
            significant differences are marked. Rows without a threshold are estimated from labels.
            The smallest, the middle and the largest threshold are drawn, and the methods that
            figures of AUROC have.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["rouge_threshold", "method", *GAIN], "rouge_thresholds")
    table = _compared(table)
    group = table["rouge_threshold"].map("ROUGE-L > {:g}".format)
    table = table.assign(group=group.replace("ROUGE-L > nan", "labels"), row=method_labels(table))
    with row_figure(
        table.sort_values("rouge_threshold", kind="stable"),
        *("model", "dataset", "protocol"),
        value=GAIN[0],
        group="group",
        title="AUROC minus that of NLL, by ROUGE-L threshold",
        x="AUROC minus that of NLL",
        figure_columns=figure_columns,
        row_height=0.28,
        least_row_height=0.16,
        least=_LEAST,
    ) as (figure, panels):
        names = distinct_values(table, "row")
        for ax, rows in panels:
            paper = printed(rows).merge(rows[["method", "row"]].drop_duplicates(), on="method")
            if len(paper):
                ax.plot(paper[GAIN[0]], paper["row"].map(names.index), **PRINTED)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say which methods differ from NLL at which thresholds, and how the differences change."""
    table = _compared(table)
    tests = table[table["rouge_threshold"].notna()].sort_values("rouge_threshold", kind="stable")
    names = {"setting": setting_names(tests), "method": method_labels(tests)}
    tests = tests.assign(**names).drop(columns="similarity", errors="ignore")
    is_enough = has_enough(tests).groupby(tests["setting"]).transform("all")
    first, last = tests["rouge_threshold"].agg(["min", "max"])
    findings = []
    for words, rows in by_protocol(tests[is_enough]):
        if rows.empty:
            continue
        signs = rows.groupby(list(names), sort=False)["sign"].agg(["min", "max"]).reset_index()
        pro = signs[signs["method"] == "PRO"]
        n_alike = (pro[["min", "max"]] == 0).all(axis=1).sum()
        parts = [
            f"{words}PRO is not significantly different from NLL at any threshold in {n_alike} of "
            f"{len(pro)} settings"
        ]
        for verdict, chosen in (
            ("worse at every threshold", signs["max"] == -1),
            ("worse at some", (signs["min"] == -1) & (signs["max"] > -1)),
            ("better at every threshold", signs["min"] == 1),
            ("better at some", (signs["max"] == 1) & (signs["min"] < 1)),
        ):
            if chosen.any():
                parts.append(f"{verdict}: {listed(counted_methods(signs[chosen]))}")
        if len(parts) > 1:
            parts[1] = f"methods (with the number of settings) significantly {parts[1]}"
        findings.append(f"{'; '.join(parts)}.")
        others = rows[rows["method"] != "PRO"].groupby(list(names))[GAIN[0]]
        changes = others.last() - others.first()
        if len(changes) and first < last:
            findings.append(
                f"{words}From {first:g} to {last:g}, {(changes < 0).sum()} of {len(changes)} "
                "differences of methods other than PRO fall."
            )
    findings.append(too_few(tests[~is_enough]))
    return join_caption(_SHOWN, table.drop(columns="correctness"), *findings)


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn, with the signs of significant differences."""
    thresholds = sorted(table["rouge_threshold"].dropna().unique())
    drawn = [thresholds[0], thresholds[len(thresholds) // 2], thresholds[-1]]
    is_shown = drawn_methods(table) & table["rouge_threshold"].isin([*drawn, np.nan])
    return with_signs(table[is_shown & (table["method"] != "NLL")], "rouge_threshold", "protocol")
