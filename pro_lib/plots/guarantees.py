"""How many questions each method may answer with a guaranteed accuracy (notebook 09)."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.guarantees import guarantee
from pro_lib.evaluation.judgement import accuracy_of
from pro_lib.plots.captions import join_caption, listed, percent_span, setting_names, span
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.settings import (
    is_by_labels,
    method_columns,
    method_labels,
    per_setting,
    with_setting,
)
from pro_lib.plots.style import (
    Figure,
    distinct_values,
    drawn_methods,
    line_style,
    set_ticks,
)

_SHOWN = (
    "Share of the test questions that each method answers, because their uncertainty is below a "
    "threshold, and accuracy of the answers with its 95 % confidence interval (no mark: not "
    "guaranteed). The threshold is the largest of those with 10 %, 11 %, … of the test questions "
    "below them (shares are round unless scores tie) for which {n} validation questions show the "
    "guaranteed accuracy (dashed line), by an exact binomial test with {confidence:g} % confidence "
    "for all these thresholds together, each method and accuracy by itself{not_drawn}."
)
_SETTING = ["dataset", "model", "protocol"]
_QUANTITIES = {
    "share answered": "coverage",
    "their accuracy": "accuracy",
}
_BY_LABELS = (
    "The guarantee is about answers that ROUGE-L calls correct; the points are estimated from "
    "labels."
)


def table(
    splits: Sequence[Splits],
    *,
    targets: Sequence[float] | None = None,
    alpha: float = 0.4,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the share of questions that each method may answer, and the accuracy on these.

    All validation questions decide about the guarantee (`guarantees.guarantee`). The reported
    questions show how many questions it lets a method answer, and how many of these answers are
    correct. One question of each text is used, drawn with `seed`.

    Args:
        splits: the validation and reported questions of each setting.
        targets: the accuracies to guarantee; None chooses them (`default_targets`).
        alpha: α of PRO.
        confidence: the probability that a guarantee holds, for each row by itself.
        seed: the seed of the drawn questions.

    Returns:
        A table with the columns of the setting, and

        - method, similarity, alpha and alpha_choice.
        - target and confidence.
        - n_validation: the number of validation questions.
        - threshold: questions with a lower score may be answered. It is missing if nothing is
          guaranteed, and infinite if every question may be answered.
        - coverage: the share of reported questions below the threshold.
        - accuracy: that of these questions, with its 95 % interval. From labels of a sample, it is
          an estimate, and NaN if fewer than 20 of these answers have a label.
    """
    targets = default_targets(splits) if targets is None else targets
    return _rows(splits, targets=targets, alpha=alpha, confidence=confidence, seed=seed)


def default_targets(splits: Sequence[Splits]) -> list[float]:
    """Return three accuracies to guarantee: 0.7, 0.8 and 0.9, or lower ones.

    If fewer than 0.4 of all validation questions are answered correctly, the targets are the next
    three tenths above that share.
    """
    accuracy = float(np.mean([setting.pool.correct.mean() for setting in splits]))
    first = 7 if accuracy >= 0.4 else int(np.ceil(10 * accuracy)) + 1
    return [tenths / 10 for tenths in range(first, first + 3)]


@per_setting
def _rows(
    splits: Splits, *, targets: Sequence[float], alpha: float, confidence: float, seed: int
) -> list[pd.DataFrame]:
    """Return the rows of one setting."""
    reported = splits.reported.one_per_text(seed=seed)
    pool = splits.pool
    scores = reported.scores({"PRO": alpha})
    validation_scores = pool.scores({"PRO": alpha})
    names = []
    rows = []
    for name, target in product(scores, targets):
        result = guarantee(
            validation_scores[name],
            pool.judgement.verdicts,
            target=target,
            confidence=confidence,
            unlabelled=scores[name],
            texts=pool.answers.get("text_number"),
            seed=seed,
        )
        is_answered = np.asarray(result.answers(scores[name]))
        row = {
            "target": target,
            "confidence": confidence,
            "n_validation": result.n_validation,
            "threshold": result.threshold,
            "coverage": is_answered.mean(),
            **accuracy_of(reported.judgement, is_answered).columns("accuracy"),
        }
        names.append(str(name))
        rows.append(row)
    methods = method_columns(names, alphas={"PRO": alpha}, alpha_choice="default")
    results = pd.DataFrame(rows).astype({"threshold": float})
    return [with_setting(pd.DataFrame(methods).join(results), reported)]


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw the share of questions that each method may answer, and the accuracy on these.

    There are two panels for each dataset, model and protocol with a guarantee: the shares and the
    accuracies. They have a row for each method that figures of AUROC have, and a symbol for each
    target that is guaranteed for any of them.

    Args:
        table: needs the columns method, target, coverage and accuracy. It may have similarity, the
            interval of accuracy, dataset, model and protocol, and n_questions and n_correct.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["method", "target", "coverage", "accuracy"], "guarantees")
    table = table[drawn_methods(table)]
    is_shown = _has_guarantee(table, _SETTING) & _has_guarantee(table, ["target"])
    shares = table["coverage"].where(table["coverage"] > 0)
    table = table.assign(row=method_labels(table), coverage=shares)
    shown = table[is_shown] if is_shown.any() else table
    of_all = shown.get("n_correct", np.nan) / shown.get("n_questions", np.nan)
    names = distinct_values(table, "row")
    styles = {
        target: line_style(index) for index, target in enumerate(sorted(shown["target"].unique()))
    }
    with row_figure(
        shown.drop(columns="n_questions", errors="ignore").assign(of_all=of_all),
        *("model", "dataset", "protocol"),
        value=_QUANTITIES,
        group="target",
        styles=styles,
        title="Answers with a guaranteed accuracy",
        figure_columns=figure_columns,
        per_line=2,
        row_height=0.2,
        least_row_height=0.108,
        sharex="col",
        missing="",
        names=names,
        untitled=["quantity"],
    ) as (figure, panels):
        for ax, rows in panels:
            quantity = rows["quantity"].iloc[0]
            ax.set_xlabel(quantity)
            if _QUANTITIES[quantity] == "accuracy":
                for target, style in styles.items():
                    dashed = {"color": style["color"], "lw": 0.8, "ls": "--"}
                    ax.axvline(target, **dashed)
                    label = f"guaranteed accuracy {target:g}"
                    ax.plot(np.nan, np.nan, **style | dashed, label=label)  # for the legend
                for value in rows["of_all"].dropna().unique():
                    label = "accuracy of all answers"
                    ax.axvline(value, color="black", lw=0.8, ls=":", label=label)
                set_ticks(ax.xaxis, np.arange(0, 1, 0.2 / figure_columns).tolist())
                continue
            ticks = MaxNLocator(2 * figure_columns).tick_values(0, shares.max())
            set_ticks(ax.xaxis, list(ticks))
            ax.set_xlim(0, 1.03 * ticks[-1])
            guaranteed = rows.loc[rows["coverage"].notna(), "row"]
            for place in np.flatnonzero(~np.isin(names, guaranteed)).tolist():
                ax.text(0, place, " not guaranteed", fontsize=7, va="center")
    return figure


def _has_guarantee(table: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Return for each row whether any row with the same values of these columns is guaranteed."""
    groups = table.groupby(list(table.columns.intersection(columns)))
    return groups["coverage"].transform("max") > 0


def caption(table: pd.DataFrame) -> str:
    """Say for how many methods each accuracy is guaranteed, and how many questions they answer."""
    drawn = table[drawn_methods(table)]
    is_shown = _has_guarantee(drawn, _SETTING)
    left_out = drawn[~is_shown & is_shown.any()].drop_duplicates(["dataset", "model"])
    drawn = drawn[is_shown | ~is_shown.any()]
    n_settings = len(drawn.drop_duplicates(["dataset", "model"]))
    methods = "methods" if n_settings == 1 else "pairs of a method and a setting"
    parts: list[str] = []
    for target, rows in drawn.groupby("target"):
        shares = rows.loc[rows["coverage"] > 0, "coverage"]
        goal, unit = ("", "") if parts else ("an accuracy of ", " of the questions")
        answered = f"for {percent_span(shares)}{unit}" if len(shares) else "not drawn"
        parts.append(f"{len(shares) or 'none'} can guarantee {goal}{target:g} ({answered})")
    n = span(drawn["n_validation"], "{:,.0f}")
    findings = [f"Of {len(drawn) // len(parts)} {methods}, {listed(parts)}"]
    known = drawn[(drawn["coverage"] > 0) & drawn["accuracy"].notna()]
    if len(known):
        n_below = (known["accuracy_high"] < known["target"]).sum()
        of_all = known["n_correct"] / known["n_questions"]
        findings.append(
            f"guarantees from few questions are cautious: test answers have an accuracy of "
            f"{span(known['accuracy'])} ({span(of_all)} if all are answered), with an interval "
            f"entirely below the guarantee in {n_below} of {len(known)} cases"
        )
    by_labels = _BY_LABELS if is_by_labels(table) else ""
    not_drawn = ""
    if len(left_out):
        not_drawn = f"; nothing is guaranteed for {listed(setting_names(left_out))} (not drawn)"
    confidence = 100 * table["confidence"].iloc[0]
    shown = _SHOWN.format(n=n, confidence=confidence, not_drawn=not_drawn)
    return join_caption(shown, drawn, f"{'; '.join(findings)}.", by_labels)
