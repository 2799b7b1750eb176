"""Figures: one module per figure, with its `table`, its drawing `draw` and its `caption`."""

from pro_lib.plots import fixed_k, k_vs_alpha
from pro_lib.plots.alpha_sweep import alpha_sweep
from pro_lib.plots.benchmark import benchmark, beside_paper
from pro_lib.plots.exact_search import exact_search
from pro_lib.plots.exact_search_auroc import exact_search_auroc
from pro_lib.plots.examples import examples, exposure
from pro_lib.plots.gains import causes, worlds
from pro_lib.plots.generated_answers import generated_answers
from pro_lib.plots.guarantees import answer_sets, entropies, guarantees
from pro_lib.plots.labelled_answers import label_estimates
from pro_lib.plots.rouge_thresholds import rouge_thresholds
from pro_lib.plots.saving import SavedFigure, read_caption, save_figure, svg_text
from pro_lib.plots.selective import accuracy_by_coverage, reliability
from pro_lib.plots.style import (
    COLORS,
    PRINTED,
    SHARE_TICKS,
    alpha_axis,
    difference_axis,
    distinct_values,
    draw_curve,
    draw_curves,
    drawn_methods,
    explain,
    handles,
    line_style,
    matching_rows,
    minus_nll,
    name_rows,
    panels,
    set_ticks,
)

__all__ = [
    "COLORS",
    "PRINTED",
    "SHARE_TICKS",
    "SavedFigure",
    "accuracy_by_coverage",
    "alpha_axis",
    "alpha_sweep",
    "answer_sets",
    "benchmark",
    "beside_paper",
    "causes",
    "difference_axis",
    "distinct_values",
    "draw_curve",
    "draw_curves",
    "drawn_methods",
    "entropies",
    "exact_search",
    "exact_search_auroc",
    "examples",
    "explain",
    "exposure",
    "fixed_k",
    "generated_answers",
    "guarantees",
    "handles",
    "k_vs_alpha",
    "label_estimates",
    "line_style",
    "matching_rows",
    "minus_nll",
    "name_rows",
    "panels",
    "read_caption",
    "reliability",
    "rouge_thresholds",
    "save_figure",
    "set_ticks",
    "svg_text",
    "worlds",
]
