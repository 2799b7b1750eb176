"""AUROC of all methods, and which of them differ from PRO (notebook 06)."""

from typing import Any, Literal

import numpy as np
import pandas as pd

from pro_lib.common.method_labels import method_labels
from pro_lib.evaluation.alpha_choice import chosen_alpha, select_alpha
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA, Splits
from pro_lib.plots.captions import (
    by_protocol,
    comparison,
    has_enough,
    join_caption,
    listed,
    significant_signs,
    verdicts,
)
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure, names_by_mean
from pro_lib.plots.reliability import calibrations
from pro_lib.plots.settings import method_columns, per_setting
from pro_lib.plots.style import COLORS, Axes, Figure, drawn_methods, name_rows

_SHOWN = (
    "AUROC of each method with its 95 % confidence interval, in the order of the means; the dotted "
    "line is the highest AUROC of a panel. The α of PRO is chosen on validation questions; the "
    "oracle α is the best one on the reported questions themselves. ▲ and ▼ mark methods that are "
    "significantly better or worse than PRO, after Holm's correction over all methods and settings."
)
# The rows of PRO, by the name of their score, with how each chooses α.
_PRO_ROWS = {"PRO": "validation", "PRO, default": "default", "PRO, oracle": "oracle"}
# The marks of significant differences by sign, in the panel and in the legend
_MARKS = {1: ("▲", "^", "better than PRO"), -1: ("▼", "v", "worse than PRO")}
_CUT_MARKER: Literal[4] = 4  # an arrow to the left
_ORACLE = "PRO (oracle α)"
_OPTIONAL = ["alpha_choice", "auroc_minus_pro", "p_value"]
# The colours of rows by their names
_COLORS = {_ORACLE: COLORS[7], "PRO": COLORS[0]}


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
    table = table.reindex(columns=table.columns.union(_OPTIONAL, sort=False))
    table = table[table["alpha_choice"] != "default"]
    if not every_method:
        table = table[drawn_methods(table)]
    is_oracle = table["alpha_choice"] == "oracle"
    table = table.assign(row=method_labels(table).mask(is_oracle, _ORACLE), sign=_signs(table))
    names = names_by_mean(table, "auroc")
    settings = list(table.columns.intersection(["model", "dataset", "protocol"]))
    highest = table.groupby(settings)["auroc"].max()
    left = highest.max() - 0.2 if highest.min() >= 0.8 else 0.5
    n_rows = max(len(names), 5)
    with labelled_figure(
        table,
        *("model", "dataset", "protocol"),
        title=title,
        x="AUROC",
        figure_columns=figure_columns,
        height=0.15 * n_rows,
        least_height=0.11 * n_rows,
        sharex=True,
    ) as (figure, panels):
        for ax, _, rows in panels:
            _draw_panel(ax, rows, names, left)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL, and name the methods that are significantly better or worse."""
    findings = []
    for words, rows in by_protocol(table):
        others = rows[rows["method"] != "PRO"]
        others = others.assign(
            auroc_minus_nll=-others["auroc_minus_pro"],
            auroc_minus_nll_low=-others["auroc_minus_pro_high"],
            auroc_minus_nll_high=-others["auroc_minus_pro_low"],
        )
        nll = others[others["method"] == "NLL"]
        findings.append(comparison(nll, f"{words}PRO", family=others))
        tests = others[has_enough(others)]
        kept = tests[drawn_methods(tests) & (tests["method"] != "NLL")]
        signs = significant_signs(tests, "auroc_minus_pro")[kept.index]
        for verdict, chosen in verdicts(kept, signs):
            if verdict.startswith("significantly"):
                counts = method_labels(chosen).value_counts()
                names = listed(f"{name} ({n})" for name, n in counts.items())
                findings.append(f"Other methods {verdict} PRO (number of settings): {names}.")
    return join_caption(_SHOWN, table, *findings)


def _signs(table: pd.DataFrame) -> pd.Series:
    """Return 1 for methods that are significantly better than PRO, and -1 for worse ones."""
    signs = pd.Series(0.0, table.index)
    for _, rows in by_protocol(table[table["p_value"].notna()]):
        tests = rows[(rows["method"] != "PRO") & has_enough(rows)]
        signs.update(significant_signs(tests, "auroc_minus_pro"))
    return signs


def _draw_panel(ax: Axes, rows: pd.DataFrame, names: list[str], left: float) -> None:
    """Draw the AUROC of each method with its interval, and write its value and its mark."""
    place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "fontsize": 7, "va": "center"}
    drawn = rows.assign(auroc=rows["auroc"].clip(lower=left))
    for index, row in rows.iterrows():
        style = {"color": _COLORS.get(row["row"], COLORS[6]), "ms": 3.5, "zorder": 3}
        style |= {"marker": "o", "clip_on": False}
        if row["auroc"] < left:
            style |= {"marker": _CUT_MARKER, "label": f"below {left:.2f}"}
        draw_rows(ax, drawn.loc[[index]], "auroc", names, styles={"": style}, missing="")
        value = "–" if pd.isna(row["auroc"]) else f"{row['auroc']:.3f}".replace("0.", ".")
        symbol, marker, label = _MARKS.get(row["sign"], ("", "", ""))
        ax.plot(np.nan, np.nan, marker, color="black", ms=4, label=label)  # for the legend
        ax.text(1, names.index(row["row"]), f" {value} {symbol}".rstrip(), **place)
    name_rows(ax, names, list(rows["row"]))
    ax.axvline(rows["auroc"].max(), color="black", lw=0.6, ls=":")
    ax.set_xlim(left, None)
