"""Accuracy if only the least uncertain questions are answered (notebook 11)."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.judgement import Estimate, Judgement
from pro_lib.evaluation.methods import is_drawn, split_name
from pro_lib.metrics.selective import answered_weights
from pro_lib.plots.captions import join_caption, listed, signed_span, span
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.settings import counted_methods, method_columns, method_labels, per_setting
from pro_lib.plots.style import Figure

_SHOWN = (
    "Accuracy of the 25, 50 or 75 % of the answers that a method finds least uncertain, minus that "
    "of as many answers that NLL finds least uncertain, with 95 % confidence intervals (each by "
    "itself, not corrected for the number of points)."
)
_MOST_MEANING_METHODS = 3  # more points could not be told apart in a figure
_LEAST_COVERAGE = 0.02
_DRAWN_SHARES = (0.25, 0.5, 0.75)
_DIFFERENCE = "accuracy_minus_nll"
_LEAST = -0.1  # where the axis begins
_COLUMNS = ["method", "coverage", "accuracy", _DIFFERENCE]
_SETTING = ["model", "dataset", "protocol"]


@per_setting
def table(
    splits: Splits, *, methods: Sequence[str] | None = None, n_points: int = 101
) -> pd.DataFrame:
    """Return the accuracy among the least uncertain questions, against the share of them.

    A model that answers only the questions with the smallest scores answers more of them correctly.
    The table has NLL, PRO with α chosen on validation, ALL, PE and the first three methods that
    compare meanings (SE, SD and Deg). The method `oracle` answers all correct answers first.

    Args:
        splits: a setting.
        methods: the names of the scores; None for those above.
        n_points: number of shares for each method, from 2 % of the questions to all.

    Returns:
        A table with the columns of the setting, and

        - method, similarity, and alpha and alpha_choice of PRO.
        - n_answered: the number of questions answered.
        - coverage: their share.
        - threshold: the largest score among them.
        - accuracy: that of these questions, with its 95 % Wilson interval (not of `oracle`). From
          labels of a sample, it is an estimate, and NaN if fewer than 20 of the answers have a
          label.
        - accuracy_minus_nll: the paired difference to the accuracy of as many questions that NLL
          chooses, with its 95 % interval (not of `oracle`).
    """
    reported = splits.reported
    judgement = reported.judgement
    names = _drawn_names(["PRO", *reported.baselines]) if methods is None else methods
    alphas = splits.alphas_of(names)
    scores = reported.scores(alphas)
    # The accuracy on very few questions varies much.
    first = np.ceil(_LEAST_COVERAGE * len(scores)) - 1
    places = np.unique(np.linspace(first, len(scores) - 1, n_points).round().astype(int))
    n_answered = places + 1
    curves = {}
    for name, values in scores.filter(items=names).items():
        difference = _paired_difference(judgement, values, reported.baselines["NLL"], n_answered)
        curves[str(name)] = (values, judgement.accuracy_at(values, n_answered), difference)
    unknown = np.full(len(places), np.nan)
    oracle_scores, oracle_accuracies = judgement.oracle()
    best = Estimate(oracle_accuracies[places], unknown, unknown)
    curves["oracle"] = (oracle_scores, best, Estimate(unknown, unknown, unknown))
    parts = []
    for name, (values, accuracy, difference) in curves.items():
        columns = {
            **method_columns([name] * len(places), alphas=alphas),
            "n_answered": n_answered,
            "coverage": n_answered / len(scores),
            "threshold": np.sort(values)[places],
            **accuracy.columns("accuracy"),
            **difference.columns(_DIFFERENCE),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _paired_difference(
    judgement: Judgement, scores: ArrayLike, reference: ArrayLike, n_answered: NDArray[np.intp]
) -> Estimate:
    """Return the accuracy among the k questions of one score minus that of another, (A,).

    The answers that both scores choose cancel. The others are two groups of answers without a
    common one, so the interval follows from the intervals of their accuracies (Newcombe 1998).
    """
    weights = answered_weights(scores, n_answered) - answered_weights(reference, n_answered)
    weights = weights.round(9)  # so that rounding is not a share of an answer
    share = np.maximum(weights, 0).sum(axis=1) / n_answered
    is_moved = share > 0
    ours = judgement.accuracies(np.maximum(weights[is_moved], 0))
    theirs = judgement.accuracies(np.maximum(-weights[is_moved], 0))
    below = np.hypot(ours.value - ours.low, theirs.high - theirs.value)
    above = np.hypot(ours.high - ours.value, theirs.value - theirs.low)
    ends = np.zeros((3, len(n_answered)))
    ends[:, is_moved] = ours.value - theirs.value + np.array([0 * below, -below, above])
    return Estimate(*(share * ends))


def _drawn_names(names: Iterable[str]) -> list[str]:
    """Return the names of the scores of the figure, NLL first."""
    drawn = [name for name in names if is_drawn(name, "answered")]
    with_meanings = [name for name in drawn if split_name(name)[1]]
    left_out = with_meanings[_MOST_MEANING_METHODS:]
    return sorted([name for name in drawn if name not in left_out], key=lambda name: name != "NLL")


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw accuracy minus that of NLL, at three shares of questions: a panel for each setting.

    Args:
        table: needs the columns method, coverage, accuracy and accuracy_minus_nll. It may have the
            interval of the last one, similarity, dataset, model, protocol and n_questions. Rows of
            the method `oracle` are not drawn. Differences below -0.1 are arrows.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, _COLUMNS, "answered")
    table = _at_drawn_shares(table[~table["method"].isin(["oracle", "NLL"])])
    table = table.assign(row=method_labels(table))
    with row_figure(
        table.sort_values("share", kind="stable"),
        *_SETTING,
        value=_DIFFERENCE,
        group="share",
        title="Accuracy of the least uncertain answers, minus that with NLL",
        x="accuracy minus that with NLL",
        figure_columns=figure_columns,
        row_height=0.28,
        least_row_height=0.2,
        least=_LEAST,
    ) as (figure, _):
        return figure


def caption(table: pd.DataFrame) -> str:
    """Say how far PRO is from NLL at the shares that are drawn, and which intervals exclude 0."""
    rows = _at_drawn_shares(table[table["method"] != "oracle"])
    pro = rows.loc[rows["method"] == "PRO", _DIFFERENCE].dropna()
    nll = rows.loc[rows["method"] == "NLL", "accuracy"].dropna()
    findings = []
    if len(pro):
        findings.append(
            f"PRO minus NLL is {signed_span(pro)} at these shares, where the accuracy with NLL is "
            f"{span(nll)}."
        )
    sides = {
        "below": rows[rows[f"{_DIFFERENCE}_high"] < 0],
        "above": rows[rows[f"{_DIFFERENCE}_low"] > 0],
    }
    parts = [
        f"{side} 0 for {listed(counted_methods(chosen))}"
        for side, chosen in sides.items()
        if len(chosen)
    ]
    if parts:
        findings.append(f"The interval (with the number of points) is {', and '.join(parts)}.")
    return join_caption(_SHOWN, rows, *findings)


def _at_drawn_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows at the shares that are drawn, or nearest to them, with the words of each."""
    parts = []
    for _, rows in table.groupby(list(table.columns.intersection(_SETTING)), sort=False):
        for share in _DRAWN_SHARES:
            nearest = rows["coverage"].iloc[(rows["coverage"] - share).abs().argmin()]
            some = rows[rows["coverage"] == nearest]
            parts.append(some.assign(share=f"{100 * share:.0f}\xa0% answered"))
    return pd.concat(parts)
