"""Differences in AUROC to PRO, in the paper and in this project (notebook 06)."""

from typing import Any

import numpy as np
import pandas as pd

from pro_lib.common import catalog
from pro_lib.evaluation.methods import METHODS
from pro_lib.metrics.differences import signed
from pro_lib.plots.captions import join_caption, listed
from pro_lib.plots.figure import checked_table, draw_rows, row_figure
from pro_lib.plots.settings import difference_to
from pro_lib.plots.style import COLORS, PROTOCOL_WORDS, Figure, distinct_values

_CIRCLE: dict[str, Any] = {"marker": "o", "mfc": "none", "ms": 3}
_BAR: dict[str, Any] = {"marker": "|", "ms": 9, "mew": 2, "label": "mean"}
_SHOWN = (
    "AUROC of each method minus that of PRO, as the paper that introduced PRO (arXiv 2511.07694) "
    "printed it, and here. A circle is a model on a dataset, and for SE, SD and Deg here also a "
    "way to compare meanings; only signs can be compared, because models and datasets differ. Here,"
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
    """Draw differences in AUROC to PRO: a point for each setting.

    Each method of the paper has a row for the paper and one for here.

    Args:
        table: the table of `benchmark`, or another with the columns method, alpha_choice and
            auroc_minus_pro. A row whose alpha_choice is `default` or `oracle` is left out.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
    """
    needed = ["method", "alpha_choice", "auroc_minus_pro"]
    here = _compared(checked_table(table, needed, "beside_paper"))
    printed = _printed()
    names = [name for name in METHODS if name in set(printed["method"]) - {"PRO"}]
    rows = pd.concat([printed.assign(source="paper"), here.assign(source="here")])
    rows = rows[rows["method"].isin(names)]
    rows = rows.assign(row=rows["method"] + " (" + rows["source"] + ")")
    rows = rows[["row", "source", "auroc_minus_pro"]]
    counted = [PROTOCOL_WORDS.get(name, name) for name in distinct_values(here, "protocol")]
    title = "AUROC of each method minus that of PRO"
    if counted:
        title = f"{title} (here: {listed(counted)})"
    means = rows.groupby(["row", "source"], as_index=False)["auroc_minus_pro"].mean()
    colors = {"paper": COLORS[7], "here": COLORS[0]}
    styles = {name: _CIRCLE | {"color": color, "label": name} for name, color in colors.items()}
    bars = {name: style | _BAR for name, style in styles.items()}
    row_names = [f"{name} ({source})" for name in names for source in colors]
    with row_figure(
        rows,
        value="auroc_minus_pro",
        group="source",
        styles=styles,
        title=title,
        x="AUROC minus that of PRO",
        figure_columns=figure_columns,
        row_height=0.2,
        names=row_names,
    ) as (figure, [(ax, _)]):
        options: dict[str, Any] = {"by": "source", "styles": bars, "missing": ""}
        draw_rows(ax, means, "auroc_minus_pro", row_names, **options)
    return figure


def caption(table: pd.DataFrame) -> str:
    """Say how far NLL is from PRO on average, and for which methods the signs differ."""
    here = _compared(table)
    drawn = here[here["method"].isin(_printed()["method"])]
    means: dict[str, pd.Series] = {}
    parts: list[str] = []
    for words, rows in (("in the paper", _printed()), ("here", drawn)):
        differences = rows[rows["method"] != "PRO"].groupby("method", sort=False)["auroc_minus_pro"]
        means[words] = differences.mean().round(3)
        n_settings = differences.count().get("NLL", 0)
        if n_settings:
            settings = "1 setting" if n_settings == 1 else f"{n_settings} settings"
            parts.append(f"{signed(means[words]['NLL'])} {words} ({settings})")
    findings = [f"NLL minus PRO is {' and '.join(parts)} on average."]
    signs = np.sign(pd.DataFrame(means)).dropna()
    product = signs["in the paper"] * signs["here"]
    verdicts = [
        f"{verdict} for {listed(signs.index[chosen])}"
        for verdict, chosen in (("is the same in both", product > 0), ("differs", product < 0))
        if chosen.any()
    ]
    if verdicts:
        findings.append(f"The sign of the mean {' and '.join(verdicts)}.")
    return join_caption(_SHOWN, drawn.drop(columns="n_differ", errors="ignore"), *findings)


_printed = table  # whose name the arguments of the other functions hide


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without PRO at other α than that chosen on validation."""
    return table[~table["alpha_choice"].isin(["default", "oracle"])]
