"""The figure of exact search: what it finds, what it claims, its bounds and its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from pro_lib.plots.style import checked_table, draw_curve, label_figure, panels, set_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = (0.005, 0.02, 0.1, 0.4)
_NOTE = (
    "The exact search finds every answer with p ≥ α. Beams: diverse beam search. "
    "Entropy and bounds are means over the questions that are certified at this α, so other α have "
    "other questions. "
    "Tree bound: the entropy of the next tokens, summed over all searched beginnings of answers. "
    "α-floor: the smallest entropy that the found answers allow, because each other answer has "
    "p < α."
)


@dataclass(frozen=True)
class _Panel:
    """A panel: the name of its y-axis, and its lines, by column of the table."""

    y: str
    lines: dict[str, str]


_BOUNDS_TITLE = "entropy and its lower bounds"
_PANELS = {
    "answers that beams find": _Panel(
        "found by beams",
        {
            "recall": "share of the answers\nwith p ≥ α",
            "share_all_recalled": "share of questions with\nall of these answers",
        },
    ),
    "status of the search": _Panel(
        "share of questions",
        {
            "share_certified": "certified: all answers\nwith p ≥ α, one or more",
            "share_fallback": "fallback: certainly no\nanswer has p ≥ α",
            "share_undecided": "undecided: the search\nstopped too early",
        },
    ),
    _BOUNDS_TITLE: _Panel(
        "nats, mean over\ncertified questions",
        {
            "entropy": "entropy, from samples\n(95 % interval)",
            "tree_bound": "tree bound, from\nall searched prefixes",
            "alpha_floor": "α-floor, from\nthe found answers",
            "pro": "PRO of these answers",
        },
    ),
    "cost": _Panel(
        "tokens put through the\nmodel, per question",
        {
            "token_forwards": "exact search",
            "beam_forwards": "diverse beams",
            "greedy_forwards": "greedy decoding",
        },
    ),
}


def exact_search(
    table: pd.DataFrame,
    bounds: pd.DataFrame | None = None,
    *,
    figure_columns: int = 2,
    title: str = "Exact search: what beams miss, what is certified, and what it costs",
) -> Figure:
    """Draw what an exact search finds against its α: four panels for each dataset and model.

    Args:
        table: needs the columns alpha, recall, share_all_recalled, share_certified, share_fallback,
            share_undecided, token_forwards, beam_forwards and greedy_forwards. It may have dataset
            and model.
        bounds: the entropy and its lower bounds, with the columns alpha, pro, alpha_floor,
            tree_bound and entropy; it may have entropy_low and entropy_high, which are drawn as a
            band. Without it there are three panels.
        figure_columns: the columns of a two-column page that the figure spans, 1 or 2.
        title: the title of the figure.

    Example:
        experiment = Experiment(strategy="threshold", search_alpha=0.02, limit=200)
        plots.exact_search(experiment.exact_search(), experiment.entropy_bounds())
    """
    parts = []
    for name, panel in _PANELS.items():
        source = bounds if name == _BOUNDS_TITLE else table
        if source is not None:
            checked = checked_table(source, ["alpha", *panel.lines], "exact_search")
            parts.append(checked.assign(panel=name))
    drawn = pd.concat(parts)
    grid = panels(
        drawn.drop(columns="n_questions", errors="ignore"),
        "dataset",
        "model",
        "panel",
        figure_columns=figure_columns,
        per_line=figure_columns,
        height=1.5,
    )
    with grid as (figure, axes):
        for ax, setting, rows in axes:
            _draw(ax, _PANELS[setting["panel"]], rows)
        label_figure(
            figure,
            title=title,
            x="α, down to which the search finds every answer (log scale)",
            y="",
            note=_note(drawn),
        )
    return figure


def _note(table: pd.DataFrame) -> str:
    """Say what is searched, and for how many questions."""
    counts = table.get("n_questions", pd.Series(dtype=float)).dropna()
    questions = f" There are {counts.max():,.0f} questions in a panel." if len(counts) else ""
    return f"{_NOTE}{questions}"


def _draw(ax: Axes, panel: _Panel, rows: pd.DataFrame) -> None:
    for index, (column, label) in enumerate(panel.lines.items()):
        has_interval = f"{column}_low" in rows and rows[f"{column}_low"].notna().any()
        interval = f"{column}_" if has_interval else ""
        draw_curve(ax, rows["alpha"], rows, index, y=column, interval=interval, label=label)
    ax.set_xscale("log")
    set_ticks(ax, [alpha for alpha in _TICKS if alpha >= rows["alpha"].min()])
    ax.set_ylim(0, None)
    ax.set_ylabel(panel.y)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=2.2, borderpad=0)
