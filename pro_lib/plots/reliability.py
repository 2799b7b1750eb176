"""Accuracy against the confidence that is fitted to a score (notebook 11)."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pro_lib import metrics
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.methods import is_drawn
from pro_lib.plots.captions import join_caption, listed, span
from pro_lib.plots.figure import checked_table, labelled_figure
from pro_lib.plots.settings import method_columns, method_labels, per_setting
from pro_lib.plots.style import (
    SHARE_TICKS,
    Figure,
    distinct_values,
    draw_curve,
    labelled_styles,
    set_ticks,
)

_SHOWN = (
    "Accuracy of groups of at least 20 test questions with similar confidence, with 95 % "
    "confidence intervals, against their mean confidence, with larger symbols for PRO. The "
    "confidence is a probability of a correct answer that isotonic regression on validation "
    "questions gives for each score; on the dotted line, both are the same."
)
_FEWEST = 20  # questions of a group that is drawn
_SETTING = ("model", "dataset", "protocol")
_RENAMED = {"n": "n_in_bin", "low": "confidence_min", "high": "confidence_max"}


@per_setting
def table(splits: Splits, *, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """Return how often answers are correct, against the confidence that is fitted on validation.

    Isotonic regression on the validation questions turns each score into a probability of a correct
    answer (`metrics.calibration`). The reported questions are divided into ten bins by it.

    Args:
        splits: a setting.
        methods: the names of the scores; None for those that figures of calibration draw. PRO has
            the α chosen on validation.

    Returns:
        A row for each bin that has questions, with the columns of the setting, and

        - method, similarity, and alpha and alpha_choice of PRO.
        - ece and brier: those of the method.
        - n_in_bin: the number of questions in the bin.
        - confidence_min, confidence_max and confidence: the smallest, largest and mean probability
          in the bin.
        - accuracy: that of the bin, with its 95 % Wilson interval.

        From labels of a sample, ece is NaN, and accuracy and brier are estimates. There is then a
        bin for every 30 labels, and a bin with fewer than 20 labels has no accuracy.

        A setting has no rows if its validation answers are all correct or all wrong, because
        nothing can be fitted.
    """
    if methods is None:
        every = ["PRO", *splits.reported.baselines]
        methods = [name for name in every if is_drawn(name, "calibration")]
    alphas = splits.alphas_of(methods)
    parts = []
    for name, fitted in calibrations(splits, alphas, methods).items():
        bins = fitted.table.rename(columns=_RENAMED)
        columns = method_columns([name] * len(bins), alphas=alphas)
        columns |= {"ece": [fitted.ece] * len(bins), "brier": [fitted.brier] * len(bins)}
        parts.append(pd.DataFrame(columns, index=bins.index).join(bins))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def calibrations(
    splits: Splits, alphas: Mapping[str, float], methods: Sequence[str]
) -> dict[str, metrics.Calibration]:
    """Return the calibration of scores by name, or none if all validation answers are alike.

    Args:
        splits: the setting.
        alphas: the α of PRO and of other scores that have one, by name.
        methods: the names of the scores.
    """
    validation = splits.validation
    reported = splits.reported
    if validation.one_class():
        return {}
    known = validation.scores(alphas)
    scores = reported.scores(alphas)
    fitted = {}
    for name in methods:
        values = [known[name], validation.correct, scores[name], reported.correct]
        fitted[name] = reported.judgement.check(metrics.calibration(*values))
    return fitted


def draw(table: pd.DataFrame, *, fewest: int = _FEWEST, figure_columns: int = 2) -> Figure:
    """Draw accuracy against confidence: a panel for each setting, a symbol for each method.

    Args:
        table: needs the columns method, confidence, n_in_bin, and accuracy with its interval. It
            may have similarity, dataset, model, protocol and n_questions.
        fewest: the fewest questions of a group that is drawn.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["method", "confidence", "accuracy", "accuracy_low", "accuracy_high", "n_in_bin"]
    table = checked_table(table, needed, "reliability")
    table = table.assign(label=method_labels(table))
    names = distinct_values(table, "label")
    with labelled_figure(
        table,
        *_SETTING,
        title="Accuracy against confidence",
        x="confidence",
        y="accuracy",
        figure_columns=figure_columns,
        height=1.6,
        sharex=True,
    ) as (figure, panels):
        for ax, rows in panels:
            ax.plot([0, 1], [0, 1], color="black", lw=0.8, ls=":")
            drawn = rows[rows["n_in_bin"] >= fewest]
            for name, style in labelled_styles(names).items():
                # A symbol of another method is inside that of PRO where both have the same values.
                style |= {"ls": "", "mfc": "none", "ms": 6 if name == "PRO" else 3}
                line = drawn[drawn["label"] == name]
                draw_curve(ax, line, "confidence", "accuracy", bars=True, **style)
            ax.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
            for axis in (ax.xaxis, ax.yaxis):
                set_ticks(axis, SHARE_TICKS)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Name the calibration errors of each method, and say where PRO and NLL coincide."""
    findings = []
    if table["ece"].notna().all():
        errors = table.assign(label=method_labels(table)).groupby("label", sort=False)["ece"]
        parts = [f"{name} {span(values)}" for name, values in errors]
        findings.append(
            f"The mean distance from the line (expected calibration error) is {listed(parts)}."
        )
    drawn = table[table["n_in_bin"] >= _FEWEST]
    columns = table.columns.intersection([*_SETTING, "confidence", "accuracy", "n_in_bin"])
    pro, nll = (drawn.loc[drawn["method"] == name, columns].round(3) for name in ("PRO", "NLL"))
    n_same = len(pro.merge(nll))
    if n_same:
        findings.append(f"{n_same} of the {len(pro)} points of PRO are also points of NLL.")
    return join_caption(_SHOWN, table, *findings)
