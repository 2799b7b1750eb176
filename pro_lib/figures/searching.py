"""What exact search finds, claims and costs as its α falls."""

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from pro_lib import intervals
from pro_lib.figures.lines import curve, explain
from pro_lib.figures.panels import need, panels, set_ticks
from pro_lib.figures.style import COLORS, DASHES

_RECALLS = {"recall": "answers with p ≥ α", "all_found": "all of a question's"}
_BOUNDS = {"entropy": "H, tree and draws", "tree_bound": "tree bound", "alpha_floor": "α-floor", "pro": "PRO"}
_LIMITS = {"estimate": ("", "estimate, 95 % (Student)"), "tree_bound": ("anytime_", "tree bound, 95 % at any time")}
_ALPHAS = (0.005, 0.4, 0.02, 0.1, 0.01, 0.05, 0.2)


def exact_search(searches: pd.DataFrame, recall: pd.DataFrame, bounds: pd.DataFrame, *, columns: int = 2) -> Figure:
    """What exact search does as its α falls: recall, status, bounds and cost, four panels for each setting.

    `searches` has a row per dataset, model and α with the columns of `tables.search_table`, and greedy_forwards
    and beam_forwards, token-forwards per question of the other strategies. `recall` has columns dataset, model, alpha,
    recall, all_found and, for the latter's Wilson interval, questions (answers to one question go together, so that
    recall gets none); `bounds` those of `tables.bounds_table`, means over the questions certified at each α. A mean
    with columns `<name>_low` and `<name>_high` gets a band.
    """
    need(searches, "searches", "dataset", "model", "alpha", "n_questions", "token_forwards")
    need(recall, "recall", "dataset", "model", "alpha", "recall", "all_found")
    need(bounds, "bounds", "dataset", "model", "alpha", "n_questions", "entropy")
    if "questions" in recall:
        low, high = intervals.wilson(recall["all_found"], recall["questions"])
        recall = recall.assign(all_found_low=low, all_found_high=high)
    kinds = {
        "share found by ten beams": (partial(_means, names=_RECALLS), recall),
        "share of questions by status": (_status, searches),
        "mean over the certified of a sample, nats": (partial(_means, names=_BOUNDS), bounds),
        "token-forwards per question": (_cost, searches),
    }
    table = pd.concat([source.assign(shown=shown) for shown, (_, source) in kinds.items()])
    with panels(table, "model", "dataset", "shown", columns=columns, per_line=2 * columns) as (figure, grid):
        for number, (ax, setting, panel) in enumerate(grid):
            kinds[setting["shown"]][0](ax, panel)
            ax.set_xscale("log")
            set_ticks(ax, [alpha for alpha in _ALPHAS if alpha >= panel["alpha"].min()])
            if number < len(kinds):
                _key(ax)
        figure.supxlabel("search α")
    return figure


def entropies(table: pd.DataFrame, *, columns: int = 2) -> Figure:
    """The entropy of each question, upwards in its estimate, between its limits: a panel for each setting.

    `table` has the columns of `tables.entropy_table`.
    """
    need(table, "table", "dataset", "model", "tree_bound", "estimate", "low", "high", "anytime_low", "anytime_high")
    with panels(table, "dataset", "model", columns=columns) as (figure, grid):
        for ax, _, panel in grid:
            panel = panel.sort_values("estimate")
            for index, (name, (of, label)) in enumerate(_LIMITS.items()):
                curve(ax, pd.Series(range(1, len(panel) + 1)), panel, index, y=name, of=of, label=label)
            ax.set_ylim(0, panel["anytime_high"].quantile(0.98))
        label = "questions, the least uncertain first\n(2 % of the limits lie above the panel)"
        explain(figure, ax.get_legend_handles_labels()[0], label, "entropy of the answers, nats")
    return figure


def _key(ax: Axes) -> None:
    """The names of a panel's lines, between the panel and its title."""
    handles, names = ax.get_legend_handles_labels()
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "borderaxespad": 0.2}
    ax.legend(handles, names, **place, handlelength=2.6, labelspacing=0.2, borderpad=0.2)
    ax.set_title(ax.get_title(), pad=6 + 9 * len(names))


def _means(ax: Axes, table: pd.DataFrame, names: dict[str, str]) -> None:
    for index, (name, label) in enumerate(names.items()):
        curve(ax, table["alpha"], table, index, y=name, of=f"{name}_", label=label)
    ax.set_ylim(0, None)


def _status(ax: Axes, table: pd.DataFrame) -> None:
    shades = {"certified": COLORS[0], "fallback": COLORS[4], "undecided": COLORS[6]}
    shades = {name: shade for name, shade in shades.items() if table[name].any()}
    shares, colors = (table[name] for name in shades), list(shades.values())
    ax.stackplot(table["alpha"], *shares, colors=colors, labels=list(shades), lw=0)
    ax.set_ylim(0, 1)


def _cost(ax: Axes, table: pd.DataFrame) -> None:
    curve(ax, table["alpha"], table, 0, y="token_forwards", of="token_forwards_", label="exact search")
    for index, (name, label) in enumerate({"beam_forwards": "ten beams", "greedy_forwards": "greedy"}.items(), start=1):
        ax.axhline(table[name].iloc[0], color=COLORS[index], ls=DASHES[index], label=label)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())
