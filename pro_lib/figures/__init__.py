"""Figures: each function takes a table and returns a Matplotlib figure.

The room knows columns and looks; it does not know runs, models, files of answers or how a number was computed. Figures
that are saved take `columns`, the columns of a paper that they span: 1 is 3.3 inches wide, 2 (the default) is 7.0.
"""
# ruff: noqa: F401  What is imported here is what the room exports.

from pro_lib.checks import extra

with extra("notebooks", "drawing"):
    from pro_lib.figures.comparison import accuracy_coverage, benchmark, beside_paper, reliability
    from pro_lib.figures.found import answers, answers_found, by_exposure
    from pro_lib.figures.gains import gains, places
    from pro_lib.figures.paper import auroc_vs_alpha, fixed_k, k_vs_alpha, rouge_thresholds
    from pro_lib.figures.promises import agreements, coverage_promised, sets_missed
    from pro_lib.figures.searching import entropies, exact_search
    from pro_lib.figures.style import COLORS, DASHES, MARKERS, save, save_table, style
