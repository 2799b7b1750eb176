"""AUROC of all methods, and which of them differ from PRO (notebook 06)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.evaluation.alpha_choice import Splits, select_alpha
from pro_lib.evaluation.evaluation import DEFAULT_ALPHA
from pro_lib.plots.captions import (
    by_protocol,
    comparison,
    join_caption,
    listed,
    with_signs,
)
from pro_lib.plots.figure import checked_table, row_figure
from pro_lib.plots.reliability import calibrations
from pro_lib.plots.settings import counted_methods, method_columns, method_labels, per_setting
from pro_lib.plots.style import COLORS, Figure, drawn_methods, set_ticks

_SHOWN = (
    "AUROC of each method with its 95 % confidence interval, for the most probable answer that any "
    "decoding found (figures of α and K judge that of beams, so that AUROC of NLL can differ). "
    "Symbols mark significant differences to PRO in paired tests, and are corrected for multiple "
    "comparisons (Holm: over methods and settings); intervals are those of single methods and not "
    "corrected, so they can overlap although there is a symbol."
)
# The rows of PRO, by the name of their score, with how each chooses α.
_PRO_ROWS = {"PRO": "validation", "PRO, default": "default", "PRO, oracle": "oracle"}
_OPTIONAL = ["alpha_choice", "auroc_minus_pro", "p_value"]
_CHANCE = 0.5
_POINT: dict[str, Any] = {"marker": "o", "ms": 3.5, "zorder": 3}


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
        "PRO": splits.alpha(),
        "PRO, default": default,
        "PRO, oracle": select_alpha(reported, alphas=splits.alphas),
    }
    for name in reported.alpha_scores:
        alphas[name] = splits.alpha(name)
    scores = reported.scores(alphas)
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


def draw(table: pd.DataFrame, *, every_method: bool = False, figure_columns: int = 2) -> Figure:
    """Draw AUROC of each method: a panel for each setting, a row for each method.

    An arrow at the left edge stands for an AUROC below 0.5.

    Args:
        table: needs the columns method and auroc. It may have the interval of auroc, and
            auroc_minus_pro with p_value, from which + and × are drawn. Further columns may be
            similarity, dataset, model, protocol, n_questions and alpha_choice.
        every_method: whether to draw the methods that figures leave out, too (`Method.figures`).
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    table = checked_table(table, ["method", "auroc"], "benchmark")
    table = _drawn(table.reindex(columns=table.columns.union(_OPTIONAL, sort=False)), every_method)
    table = table.assign(row=method_labels(table))
    table["text"] = table["auroc"].map("{:.3f}".format).replace("nan", "")
    with row_figure(
        table.assign(is_pro=table["method"] == "PRO"),
        *("model", "dataset", "protocol"),
        value="auroc",
        group="is_pro",
        styles={False: _POINT | {"color": COLORS[6]}, True: _POINT | {"color": COLORS[0]}},
        title="AUROC of each method",
        x="AUROC (numbers at the right)",
        figure_columns=figure_columns,
        row_height=0.15,
        least=_CHANCE,
        reference="PRO",
    ) as (figure, panels):
        for ax, _ in panels:
            ax.axvline(_CHANCE, label="chance (0.5)", color="black", lw=0.9, ls=":", zorder=1)
            set_ticks(ax.xaxis, np.arange(0.1, 1, 0.2 / figure_columns).tolist())
    return figure


def caption(table: pd.DataFrame) -> str:
    """Compare PRO with NLL, and name the methods that are significantly better or worse."""
    drawn = _drawn(table)
    others = drawn[drawn["method"] != "PRO"]
    others = others.assign(
        auroc_minus_nll=-others["auroc_minus_pro"],
        auroc_minus_nll_low=-others["auroc_minus_pro_high"],
        auroc_minus_nll_high=-others["auroc_minus_pro_low"],
    )
    findings = [comparison(others[others["method"] == "NLL"], "PRO", family=others)]
    for words, rows in by_protocol(drawn[drawn["method"] != "NLL"]):
        groups = {
            "significantly better than PRO": rows["sign"] == 1,
            "significantly worse": rows["sign"] == -1,
            "with the whole interval below 0.5 (chance)": rows["auroc_high"] < _CHANCE,
        }
        parts = [
            f"{name}: {listed(counted_methods(rows[chosen]) or ['none'])}"
            for name, chosen in groups.items()
        ]
        findings.append(f"{words}Methods (with the number of settings) {'; '.join(parts)}.")
    return join_caption(_SHOWN, drawn, *findings)


def _drawn(table: pd.DataFrame, every_method: bool = False) -> pd.DataFrame:
    """Return the rows that are drawn, with signs, and without PRO at other α than that chosen."""
    is_drawn = every_method | drawn_methods(table)
    rows = table[is_drawn & ~table["alpha_choice"].isin(["default", "oracle"])]
    return with_signs(rows, "protocol", quantity="auroc_minus_pro")
