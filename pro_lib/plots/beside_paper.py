"""Differences in AUROC to PRO, in the paper and in this project (notebook 06)."""

from typing import Any

import pandas as pd

from pro_lib.common import catalog
from pro_lib.metrics.differences import signed
from pro_lib.plots.captions import join_caption
from pro_lib.plots.figure import checked_table, draw_rows, labelled_figure
from pro_lib.plots.settings import difference_to
from pro_lib.plots.style import COLORS, Figure, distinct_values, line_style

_NEEDED = ["method", "similarity", "alpha_choice"]
_NEEDED += ["auroc_minus_pro", "auroc_minus_pro_low", "auroc_minus_pro_high"]
_SHOWN = (
    "AUROC of each method of the paper minus that of PRO: a point is a setting, a thin line its "
    "95 % confidence interval (the paper has none), and a vertical bar the mean of the settings. "
    "The settings of the paper are five models on three datasets. Methods that compare meanings "
    "are drawn for each similarity."
)


def table() -> pd.DataFrame:
    """Return the AUROCs of the paper's main table, with the difference to its PRO.

    Columns: dataset, model, method, auroc, auroc_minus_pro.
    """
    printed = catalog.paper("main_table")
    difference = difference_to("PRO", printed, ["dataset", "model"])
    return printed.assign(auroc_minus_pro=difference)


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


def draw(
    table: pd.DataFrame,
    *,
    figure_columns: int = 2,
    title: str = "Methods minus PRO, in the paper and here",
) -> Figure:
    """Draw differences in AUROC to PRO: a row for each method, a point for each setting.

    The rows are the methods of the paper, whose differences are drawn first.

    Args:
        table: the table of `benchmark`, or another with the columns method, similarity,
            alpha_choice, and auroc_minus_pro with its interval. A row whose alpha_choice is
            `default` or `oracle` is left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.
    """
    here = _compared(checked_table(table, _NEEDED, "beside_paper"))
    similarity = here["similarity"]
    sources = ("here, " + similarity.astype(str)).where(similarity.notna(), "here")
    here = here.assign(source=sources).sort_values("similarity", key=pd.notna, kind="stable")
    printed = _printed().assign(source="the paper")
    names = [name for name in dict.fromkeys(printed["method"]) if name != "PRO"]
    rows = pd.concat([printed, here], ignore_index=True)
    rows = rows[rows["method"].isin(names)].assign(row=rows["method"], dataset="", model="")
    styles = {}
    for place, source in enumerate(distinct_values(rows, "source")):
        style = line_style(place - 1 if place else 7) | {"ms": 2.8, "alpha": 0.8, "ls": ""}
        n_settings = rows[rows["source"] == source].groupby("method").size().max()
        style["label"] = f"{source} ({n_settings} setting{'s' if n_settings > 1 else ''})"
        styles[source] = style | ({"mfc": "none"} if place else {"marker": "."})
    means = rows.groupby(["row", "source"], as_index=False)["auroc_minus_pro"].mean()
    with labelled_figure(
        rows[["dataset", "model"]],
        title=title,
        x="AUROC minus that of PRO",
        figure_columns=figure_columns,
        height=0.42 * len(names),
    ) as (figure, [(ax, _, _)]):
        options: dict[str, Any] = {"by": "source", "missing": ""}
        draw_rows(ax, rows, "auroc_minus_pro", names, styles=styles, **options)
        bars = {"marker": "|", "ms": 8, "mew": 2, "zorder": 4}
        thick = {name: {"color": style["color"], **bars} for name, style in styles.items()}
        draw_rows(ax, means, "auroc_minus_pro", names, styles=thick, **options)
        ax.axvline(0, color="black", lw=0.6)
        for line in range(1, len(names)):
            ax.axhline(line - 0.5, color=COLORS[7], lw=0.6)
        ax.yaxis.grid(visible=False)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say how far NLL is from PRO on average, in the paper and here."""
    parts = []
    for words, rows in (("in the paper", _printed()), ("here", _compared(table))):
        nll = rows.loc[rows["method"] == "NLL", "auroc_minus_pro"]
        n_settings = "1 setting" if len(nll) == 1 else f"{len(nll)} settings"
        if len(nll):
            parts.append(f"{signed(nll.mean())} {words} ({n_settings})")
    finding = f"NLL minus PRO is {' and '.join(parts)} on average."
    return join_caption(_SHOWN, table, finding)


_printed = table  # whose name the arguments of the other functions hide


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without PRO at other α than that chosen on validation."""
    return table[~table["alpha_choice"].isin(["default", "oracle"])]
