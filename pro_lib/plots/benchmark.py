"""AUROC of all methods, and which of them differ from PRO (notebook 06)."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Splits
from pro_lib.evaluation.sweeps import chosen_alpha, select_alpha
from pro_lib.plots.captions import (
    by_protocol,
    comparison,
    has_enough,
    in_settings,
    join_caption,
    left_out_sentence,
    listed,
    significant_tests,
)
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure
from pro_lib.plots.reliability import calibrations
from pro_lib.plots.settings import method_columns, per_setting
from pro_lib.plots.style import COLORS, Axes, Figure, drawn_methods, name_rows, plt

_SHOWN = (
    "AUROC of each method with its 95 % confidence interval, in the order of the means; the dotted "
    "line is the highest AUROC of a panel. The α of PRO is chosen on validation questions; the "
    "oracle α is the best one on the reported questions themselves. ▲ and ▼ mark methods that are "
    "significantly better or worse than PRO."
)
# The rows of PRO, by the name of their score, with how each chooses α.
_PRO_ROWS = {"PRO": "validation", "PRO, default": "default", "PRO, oracle": "oracle"}
_FURTHER_CHOICES = ("default", "oracle")
_CUT_MARKER: Literal[4] = 4  # an arrow to the left
_COLORS = {"oracle": COLORS[7], "PRO": COLORS[0], "other": COLORS[6], "cut": COLORS[6]}


@per_setting
def table(splits: Splits, *, default: float = DEFAULT_ALPHA) -> pd.DataFrame:
    """Return AUROC, rejection and calibration of every method on the reported questions.

    PRO has three rows: with the α chosen on validation questions, with the α of the argument
    `default`, and with the α that is best on the reported questions (`oracle`). The last two are
    not methods of their own, so they are not corrected for and have no p_holm. Every other score
    that needs an α has its own, chosen on the validation questions.

    The columns are those of the setting, and

    - method, similarity, alpha and alpha_choice.
    - auroc with its interval.
    - The paired difference to PRO with α chosen on validation: n_differ, auroc_minus_pro with its
      interval, p_value, p_holm, significant and reading. `metrics.compare_aurocs`
      explains them. p_holm is corrected for the other methods of the setting.
    - prr and auarc, from `metrics.rejection`.
    - ece and brier of the probability of a correct answer that is fitted on validation, from
      `metrics.calibration`. They are NaN if nothing can be fitted.

    From labels of a sample, all are estimates (`labels.SampledVerdicts`), except ece, which
    is NaN.
    """
    reported = splits.reported
    alphas = {
        "PRO": chosen_alpha(splits),
        "PRO, default": default,
        "PRO, oracle": select_alpha(reported, alphas=splits.alphas),
    }
    for name in reported.alpha_scores:
        alphas[name] = chosen_alpha(splits, name=name)
    scores = reported.with_pro(alphas)
    names = pd.DataFrame(method_columns(list(scores), alphas=alphas))
    for place, name in enumerate(scores):
        if name in _PRO_ROWS:
            row = {"method": "PRO", "similarity": None, "alpha_choice": _PRO_ROWS[name]}
            names.loc[place, list(row)] = list(row.values())
    judgement = reported.judgement
    compared = judgement.compare(scores, uncorrected=list(_PRO_ROWS)[1:])
    compared.columns = compared.columns.str.replace(r"^difference", "auroc_minus_pro", regex=True)
    fitted = calibrations(splits, alphas, list(scores))
    errors = [(fitted[name].ece, fitted[name].brier) for name in scores if name in fitted]
    parts = [compared, judgement.rejection(scores)]
    parts = [part.drop(columns="method") for part in parts]
    return pd.concat([names, *parts, pd.DataFrame(errors, columns=["ece", "brier"])], axis=1)


def draw(
    table: pd.DataFrame,
    *,
    every_method: bool = False,
    figure_columns: int = 2,
    title: str = "AUROC of each method",
) -> Figure:
    """Draw AUROC of each method: a panel for each setting, a row for each method.

    The methods are in the order of their mean AUROC. The axis begins 0.2 below the highest AUROC,
    or at 0.5 if the highest AUROC of a panel is below 0.8. An arrow at the edge stands for an AUROC
    below that; its value is at the right.

    Args:
        table: needs the columns method and auroc. It may have the interval of auroc, and
            auroc_minus_pro with p_value, from which ▲ and ▼ are drawn. Further columns may be
            similarity, dataset, model, protocol, n_questions and alpha_choice.
        every_method: whether to draw the methods that figures leave out, too (`Method.figures`).
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    table = checked_table(table, ["method", "auroc"], "benchmark")
    if "alpha_choice" in table:
        table = table[table["alpha_choice"] != "default"]
    if not every_method:
        table = table[drawn_methods(table)]
    table = table.assign(row=_row_names(table), mark=_marks(table))
    means = table.groupby("row", sort=False)["auroc"].mean()
    names = list(means.sort_values(ascending=False, kind="stable").index)
    left = _left_end(table)
    table = table.assign(kind=_kinds(table, left))
    with labelled_figure(
        table,
        *("model", "dataset", "protocol"),
        title=title,
        x="AUROC",
        entries=_entries(table, left),
        figure_columns=figure_columns,
        height=0.15 * max(len(names), 5),
        sharex=True,
        sharey=True,
    ) as (figure, panels):
        for ax, _, rows in panels:
            _draw_panel(ax, rows, names, left)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL, and name the methods that are significantly better or worse."""
    findings = []
    for words, rows in by_protocol(table):
        others = rows[_is_other(rows)]
        nll = others[others["method"] == "NLL"]
        findings.append(words + _compare_with_nll(rows, nll, others))
        tests = others[has_enough(others)]
        kept = tests[drawn_methods(tests) & (tests["method"] != "NLL")]
        is_significant = significant_tests(tests)[kept.index]
        difference = kept["auroc_minus_pro"]
        for adverb, chosen in (("better", difference > 0), ("worse", difference < 0)):
            findings.append(_named_methods(kept, is_significant & chosen, adverb))
    return join_caption(_SHOWN, table, *findings)


def _compare_with_nll(rows: pd.DataFrame, nll: pd.DataFrame, others: pd.DataFrame) -> str:
    """Compare PRO with NLL, by rows that have the difference of NLL to PRO."""
    if nll.empty:
        return left_out_sentence(rows[~has_enough(rows)])
    columns = {
        "auroc_minus_nll": -nll["auroc_minus_pro"],
        "auroc_minus_nll_low": -nll["auroc_minus_pro_high"],
        "auroc_minus_nll_high": -nll["auroc_minus_pro_low"],
    }
    return comparison(nll.assign(**columns), "PRO", "NLL", "auroc_minus_nll", family=others)


def _named_methods(rows: pd.DataFrame, chosen: pd.Series, adverb: str) -> str:
    """Name the methods of the chosen rows, with the number of their settings."""
    labels = method_labels(rows)
    n_settings = labels.value_counts()
    counts = labels[chosen].value_counts()
    if counts.empty:
        return ""
    parts = [f"{name}{in_settings(n, n_settings[name])}" for name, n in counts.items()]
    return f"Significantly {adverb} than PRO: {listed(parts)}."


def _is_other(table: pd.DataFrame) -> pd.Series:
    """Return whether a row is about another method than PRO."""
    is_further = False
    if "alpha_choice" in table:
        is_further = table["alpha_choice"].isin(_FURTHER_CHOICES)
    return (table["method"] != "PRO") & ~is_further


def _marks(table: pd.DataFrame) -> pd.Series:
    """Return ▲ for methods that are significantly better than PRO, and ▼ for worse ones."""
    marks = pd.Series("", table.index)
    if not {"auroc_minus_pro", "p_value"} <= set(table):
        return marks
    for _, rows in by_protocol(table):
        tests = rows[_is_other(rows) & has_enough(rows)]
        is_significant = significant_tests(tests)
        difference = tests["auroc_minus_pro"]
        marks[tests.index[is_significant & (difference > 0)]] = "▲"
        marks[tests.index[is_significant & (difference < 0)]] = "▼"
    return marks


def _row_names(table: pd.DataFrame) -> pd.Series:
    """Return the name of each row: the method, its similarity, and whether α is the oracle's."""
    labels = method_labels(table)
    if "alpha_choice" not in table:
        return labels
    is_oracle = (table["method"] == "PRO") & (table["alpha_choice"] == "oracle")
    return labels.where(~is_oracle, "PRO (oracle α)")


def _kinds(table: pd.DataFrame, left: float) -> pd.Series:
    """Return the kind of the point of each row, a key of `_COLORS`."""
    kinds = table["method"].where(table["method"] == "PRO", "other")
    kinds = kinds.mask(table["row"] == "PRO (oracle α)", "oracle")
    return kinds.mask(table["auroc"] < left, "cut")


def _left_end(table: pd.DataFrame) -> float:
    settings = list(table.columns.intersection(["model", "dataset", "protocol"]))
    highest = table.groupby(settings)["auroc"].max()
    return highest.max() - 0.2 if highest.min() >= 0.8 else 0.5


def _draw_panel(ax: Axes, rows: pd.DataFrame, names: list[str], left: float) -> None:
    """Draw the AUROC of each method with its interval, and write its value and its mark."""
    drawn = rows.assign(auroc=rows["auroc"].clip(lower=left))
    for kind, color in _COLORS.items():
        style = {"color": color, "marker": _CUT_MARKER if kind == "cut" else "o", "ms": 3.5}
        style |= {"clip_on": False, "zorder": 3}
        some = drawn[drawn["kind"] == kind]
        draw_rows(ax, some, "auroc", names, styles={"": style}, missing="")
    name_rows(ax, names, list(rows["row"]))
    place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "fontsize": 7, "va": "center"}
    for row in rows.to_dict("records"):
        value = "–" if pd.isna(row["auroc"]) else f"{row['auroc']:.3f}".replace("0.", ".")
        ax.text(1, names.index(row["row"]), f" {value}{row['mark']}", **place)
    ax.axvline(rows["auroc"].max(), color="black", lw=0.6, ls=":")
    ax.set_xlim(left, None)


def _entries(table: pd.DataFrame, left: float) -> list[plt.Line2D]:
    """Return the legend: the marks of significance, and the arrow, if they are in the figure."""
    markers: dict[str, Any] = {}
    if (table["mark"] == "▲").any():
        markers["significantly better than PRO"] = "^"
    if (table["mark"] == "▼").any():
        markers["significantly worse than PRO"] = "v"
    if (table["auroc"] < left).any():
        markers[f"AUROC below {left:.2f}"] = _CUT_MARKER
    style: dict[str, Any] = {"ls": "", "color": "black", "ms": 4}
    return [plt.Line2D([], [], label=text, marker=mark, **style) for text, mark in markers.items()]
