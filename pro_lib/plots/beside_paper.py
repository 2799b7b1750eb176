"""Differences in AUROC to PRO, in the paper and in this project (notebook 06)."""

from typing import Any

import pandas as pd

from pro_lib.common import catalog
from pro_lib.evaluation.methods import METHODS
from pro_lib.metrics.differences import signed
from pro_lib.plots.captions import join_caption
from pro_lib.plots.figure import checked_table, draw_rows, row_figure
from pro_lib.plots.settings import difference_to
from pro_lib.plots.style import COLORS, Figure

_LEAST = -0.3  # where the axis begins
_CIRCLE: dict[str, Any] = {"marker": "o", "mfc": "none", "ms": 3}
_BAR: dict[str, Any] = {"marker": "|", "ms": 9, "mew": 2}
_SHOWN = (
    "AUROC of each method minus that of PRO, as the paper that introduced PRO (arXiv 2511.07694) "
    "printed it, and here. A circle is a model on a dataset (with one way to compare meanings), a "
    "vertical bar is the mean, unless it is below the axis, and the height in a row has no "
    "meaning; models and datasets differ, so that only the signs can be compared."
)


def table(benchmark: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the AUROCs of the paper's main table, and those that the figure has beside them.

    Args:
        benchmark: the table of `benchmark` that is drawn; None returns the paper's rows only.

    Returns:
        The columns dataset, model, method, auroc and auroc_minus_pro.
    """
    printed = catalog.paper("main_table")
    difference = difference_to("PRO", printed, ["dataset", "model"])
    printed = printed.assign(auroc_minus_pro=difference)
    if benchmark is None:
        return printed
    return pd.concat([printed, _compared(benchmark)[list(printed)]], ignore_index=True)


def same_settings(table: pd.DataFrame) -> pd.DataFrame:
    """Return AUROCs of a benchmark beside those that the paper printed for the same settings.

    Args:
        table: the table of `benchmark`.

    Returns:
        The columns dataset, model, protocol, method, similarity, auroc and printed_auroc, of PRO
        with α chosen on validation and of the other methods that the paper has. There are no rows
        if the paper has none of the settings.
    """
    printed = catalog.paper("main_table", table).rename(columns={"auroc": "printed_auroc"})
    columns = ["dataset", "model", "protocol", "method", "similarity", "auroc"]
    return _compared(table)[columns].merge(printed, on=["dataset", "model", "method"])


def draw(table: pd.DataFrame, *, figure_columns: int = 2) -> Figure:
    """Draw differences in AUROC to PRO: a row for each method of the paper, a point per setting.

    Args:
        table: the table of `benchmark`, or another with the columns method, alpha_choice and
            auroc_minus_pro. A row whose alpha_choice is `default` or `oracle` is left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["method", "alpha_choice", "auroc_minus_pro"]
    here = _compared(checked_table(table, needed, "beside_paper"))
    printed = _printed()
    names = [name for name in METHODS if name in set(printed["method"]) - {"PRO"}]
    rows = pd.concat([printed.assign(source="the paper"), here.assign(source="here")])
    rows = rows[rows["method"].isin(names)]
    rows = rows[["method", "source", "auroc_minus_pro"]].rename(columns={"method": "row"})
    means = rows.groupby(["row", "source"], as_index=False)["auroc_minus_pro"].mean()
    colors = {"the paper": COLORS[7], "here": COLORS[0]}
    styles = {name: _CIRCLE | {"color": color, "label": name} for name, color in colors.items()}
    bars = {name: style | _BAR for name, style in styles.items()}
    with row_figure(
        rows,
        value="auroc_minus_pro",
        group="source",
        styles=styles,
        title="AUROC of each method minus that of PRO",
        x="AUROC minus that of PRO",
        figure_columns=figure_columns,
        row_height=0.3,
        least=_LEAST,
        names=names,
    ) as (figure, [(ax, _)]):
        means = means[means["auroc_minus_pro"] >= _LEAST]
        draw_rows(ax, means, "auroc_minus_pro", names, by="source", styles=bars)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say how far NLL is from PRO on average, in the paper and here."""
    here = _compared(table)
    parts = []
    for words, rows in (("in the paper", _printed()), ("here", here)):
        nll = rows.loc[rows["method"] == "NLL", "auroc_minus_pro"]
        n_settings = "1 setting" if len(nll) == 1 else f"{len(nll)} settings"
        if len(nll):
            parts.append(f"{signed(nll.mean())} {words} ({n_settings})")
    finding = f"NLL minus PRO is {' and '.join(parts)} on average."
    drawn = here[here["method"].isin(_printed()["method"])]
    return join_caption(_SHOWN, drawn, finding)


_printed = table  # whose name the arguments of the other functions hide


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without PRO at other α than that chosen on validation."""
    return table[~table["alpha_choice"].isin(["default", "oracle"])]
