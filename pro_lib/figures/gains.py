"""Where PRO can differ from NLL, and by how much it does: a map, and differences with their intervals."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pro_lib.figures.lines import explain, handles
from pro_lib.figures.panels import name_rows, need, panels, set_ticks, values
from pro_lib.figures.style import look


def gains(table: pd.DataFrame, *by: str, level: str, score: str, label: str, columns: int = 2) -> Figure:
    """Differences with 95 % intervals: a panel per combination of `by`, in it a line per `level`, a marker per `score`.

    `table` has the columns named, gain, low and high; a level of which all is NaN is not available. The
    axis is linear up to ± 0.02, logarithmic beyond.
    """
    need(table, "table", *by, level, score, "gain", "low", "high")
    scores, most = list(dict.fromkeys(table[score].dropna())), table.groupby(list(by))[level].nunique().max()
    per_line, height = None if len(by) > 1 else 1 + columns, 0.15 * most * max(1.0, len(scores) / 4)
    shared = {"sharex": True, "sharey": table[level].nunique() == most}
    with panels(table, *by, columns=columns, per_line=per_line, height=height, **shared) as (figure, grid):
        for ax, _, panel in grid:
            levels = list(dict.fromkeys(panel[level]))
            for index, name in enumerate(scores):
                of, drawn = panel[panel[score] == name], look(index)
                at = of[level].map(levels.index) + 0.7 * ((index + 0.5) / len(scores) - 0.5)
                ax.hlines(at, of["low"], of["high"], color=drawn["color"], lw=0.9)
                ax.plot(of["gain"], at, **(drawn | {"ls": "", "ms": 2.6}))
            name_rows(ax, levels, panel.dropna(subset="gain")[level])
            ax.axvline(0, color="black", lw=0.6)
            ax.set_xscale("symlog", linthresh=0.02)
            set_ticks(ax, [0, 0.02, -0.1, -0.02, 0.1])
        explain(figure, handles(scores, ls=""), f"{label}\n(log scale beyond ±0.02)")
    return figure


def places(differences: pd.DataFrame, reach: pd.DataFrame, *, columns: int = 2) -> Figure:
    """How far PRO_2 exceeds NLL over p₁ and p₂, and which questions can change places at each α.

    `differences` has columns p_1, p_2 and gain, over a grid; `reach` alpha, p_1 and least (`worlds.least_overtaken`).
    """
    need(differences, "differences", "p_1", "p_2", "gain")
    need(reach, "reach", "alpha", "p_1", "least")
    shown, alphas = {"PRO₂ − NLL, nats": differences, "can change places": reach}, values(reach, "alpha")
    with panels(pd.concat(shown, names=["of"]).reset_index("of"), "of", columns=columns, per_line=2) as (figure, grid):
        (left, *_), (right, *_) = grid
        over = differences.pivot_table(index="p_2", columns="p_1", values="gain")
        levels = np.array([0.2, 0.5, 1])
        lines = left.contour(over.columns, over.index, over, levels, colors="black", linewidths=0.8)
        # Named where p₁ = 0.35, since there they lie apart.
        left.clabel(lines, fontsize=6, manual=[(0.35, p_2) for p_2 in 0.35 * np.exp(-levels / 0.65)])
        left.set(xlabel="p₁", ylabel="p₂", xlim=(0, 1), ylim=(0, 0.5))
        for index, alpha in enumerate(alphas):
            of, drawn = reach[reach["alpha"] == alpha].dropna(), look(index) | {"marker": ""}
            left.plot([alpha, 1 - alpha], [alpha, alpha], **drawn)
            right.plot(of["p_1"], of["least"], **drawn)
            right.fill_between(of["p_1"], of["least"], of["p_1"], color=drawn["color"], alpha=0.12, lw=0)
        right.plot([0, 1], [0, 1], color="black", lw=0.6)
        right.set(xlabel="p₁ of a question", ylabel="p₁ of one it overtakes", xlim=(0, 1), ylim=(0, 1))
        explain(figure, handles([f"α = {alpha:g}" for alpha in alphas], marker=""))
    return figure
