"""The answers that runs found: those to a few questions, how many there are and how much they hold."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pro_lib import intervals
from pro_lib.figures.lines import curves, explain, handles
from pro_lib.figures.panels import SHARE_TICKS, need, panels, set_ticks, values
from pro_lib.figures.style import COLORS, look


def answers(table: pd.DataFrame, *, alpha: float, columns: int = 2) -> Figure:
    """The likeliest answers to some questions as bars, ten or, at one column, five; those kept at `alpha` filled.

    Right answers are marked. `table` has columns question, text, probability, kept, correct and, of the question,
    uncertainty and, to say the right answer, reference.
    """
    need(table, "table", "question", "text", "probability", "kept", "correct", "uncertainty")
    table = table.groupby("question", sort=False).head(10 if columns == 2 else 5)
    most = table["question"].value_counts().max()
    shape = {"per_line": columns, "height": 0.135 * max(most, 3), "sharex": True}
    with panels(table, "question", columns=columns, **shape) as (figure, grid):
        for ax, _, found in grid:
            colors = [COLORS[0] if kept else "white" for kept in found["kept"]]
            ax.barh(range(len(found)), found["probability"], color=colors, edgecolor=COLORS[0], lw=0.8)
            marks = ["✓ " if right else "" for right in found["correct"]]
            ax.set_yticks(range(len(found)), [m + shortened(t) for m, t in zip(marks, found["text"], strict=True)])
            ax.axvline(alpha, color=COLORS[1], lw=1, ls="--")
            about = f"PRO = {found['uncertainty'].iloc[0]:.2f} nats, K = {found['kept'].sum()}"
            right = found.get("reference", pd.Series(dtype=object)).dropna().map(shortened)[:1]
            ax.set_title("\n".join([shortened(ax.get_title(), 80), *("right: " + right), about]))
            ax.set(xlim=(0, 1), ylim=(most - 0.5, -0.5))
            set_ticks(ax, SHARE_TICKS)
        figure.supxlabel("probability (filled: kept, line: α, ✓: right)")
    return figure


def answers_found(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """How many distinct answers runs found and how much probability they hold: a column per dataset.

    `table` has a row per question with columns dataset, model, distinct and mass. Bars are 95 % Wilson intervals,
    bands the 95 % Dvoretzky-Kiefer-Wolfowitz band of the whole curve.
    """
    need(table, "table", "dataset", "model", "distinct", "mass")
    models, sizes = values(table, "model"), table.groupby(["dataset", "model"])["mass"].transform("size")
    kinds = {"distinct answers found": _numbers, "probability of them together, at most": _masses}
    table = pd.concat([table.assign(shown=shown, n_questions=sizes) for shown in kinds])
    firsts: dict[str, Axes] = {}
    with panels(table, "shown", "dataset", columns=columns) as (figure, grid):
        for ax, setting, panel in grid:
            if (first := firsts.setdefault(setting["shown"], ax)) is not ax:
                ax.sharey(first)
            ax.set_xlabel(setting["shown"])
            ax.set_title(ax.get_title().replace(f", {setting['shown']}", ""))
            for index, model in enumerate(models):
                if len(of_model := panel[panel["model"] == model]):
                    kinds[setting["shown"]](ax, table, of_model, 0.12 * (index - (len(models) - 1) / 2), look(index))
        explain(figure, handles(models, marker=""), y="share of questions")
    return figure


def _numbers(ax: Axes, table: pd.DataFrame, panel: pd.DataFrame, shift: float, shape: dict) -> None:
    numbers = np.arange(table["distinct"].max() + 1)
    shares = panel["distinct"].value_counts(normalize=True).reindex(numbers, fill_value=0.0)
    last = {numbers[-1] + 1: shares.iloc[-1]}  # so that the last step has its full width
    ax.step([*numbers, *last], [*shares, *last.values()], where="mid", **{**shape, "marker": ""})
    ax.vlines(numbers + shift, *intervals.wilson(shares, len(panel)), color=shape["color"], lw=0.8)
    ax.set_xlim(-0.5, numbers[-1] + 0.5)


def _masses(ax: Axes, table: pd.DataFrame, panel: pd.DataFrame, shift: float, shape: dict) -> None:
    masses = np.linspace(0, max(1, table["mass"].max()), 201)
    shares = np.searchsorted(np.sort(panel["mass"]), masses, side="right") / len(panel)
    half = np.sqrt(np.log(2 / 0.05) / (2 * len(panel)))
    ax.plot(masses, shares, **{**shape, "marker": ""})
    low, high = (shares - half).clip(0), (shares + half).clip(max=1)
    ax.fill_between(masses, low, high, color=shape["color"], alpha=0.15, lw=0)


def by_exposure(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """Accuracy, NLL and PRO against how often a model was told a fact: a panel each, a line per share of falsehoods.

    `table` has columns measure, exposure, conflict, n, mean, low and high. Exposures stand at equal distances, and the
    two scores have one axis.
    """
    need(table, "table", "measure", "exposure", "conflict", "n", "mean", "low", "high")
    exposures, shares = (sorted(set(table[name])) for name in ("exposure", "conflict"))
    nats, sizes = table["measure"] != "accuracy", table.groupby("conflict")["n"].agg(["min", "max"])
    titles = table["measure"] + np.where(nats, ", nats", "")
    table = table.assign(place=table["exposure"].map(exposures.index), measure=titles)
    counted = [
        f"{share:.0%} of them false, n = {'–'.join(map(str, sorted(set(sizes.loc[share]))))}" for share in shares
    ]
    with panels(table, "measure", columns=columns, height=1.3) as (figure, grid):
        for ax, setting, panel in grid:
            curves(ax, panel, "conflict", shares, "place", "mean", apart=0.14, bars=True)
            ax.set_ylim(0, 1.03 if setting["measure"] == "accuracy" else 1.05 * table.loc[nats, "high"].max())
            ax.set_xticks(range(len(exposures)), map(str, exposures))
        explain(figure, handles(counted), "documents about a fact, 95 % intervals")
    return figure


def shortened(text: str, length: int = 28) -> str:
    """The text, its end cut where it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
