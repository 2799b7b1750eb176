"""The tables behind the figures, one module per figure.

docs/reference/table_columns.md describes the columns.
"""

from pro_lib.evaluation.tables.benchmark import benchmark, beside_paper, printed_benchmark
from pro_lib.evaluation.tables.exact_search import (
    SearchRuns,
    entropy_bounds,
    exact_search,
    exact_search_auroc,
)
from pro_lib.evaluation.tables.gains import (
    BOTH_VARIED,
    causes,
    pro_minus_nll,
    two_or_more,
    worlds,
)
from pro_lib.evaluation.tables.guarantees import (
    answer_sets,
    default_targets,
    entropies,
    guarantees,
)
from pro_lib.evaluation.tables.selective import accuracy_by_coverage, reliability
from pro_lib.evaluation.tables.settings import (
    SETTING_COLUMNS,
    auroc_columns,
    method_columns,
    nll_comparison_columns,
    overview,
    with_run,
    with_setting,
)

__all__ = [
    "BOTH_VARIED",
    "SETTING_COLUMNS",
    "SearchRuns",
    "accuracy_by_coverage",
    "answer_sets",
    "auroc_columns",
    "benchmark",
    "beside_paper",
    "causes",
    "default_targets",
    "entropies",
    "entropy_bounds",
    "exact_search",
    "exact_search_auroc",
    "guarantees",
    "method_columns",
    "nll_comparison_columns",
    "overview",
    "printed_benchmark",
    "pro_minus_nll",
    "reliability",
    "two_or_more",
    "with_run",
    "with_setting",
    "worlds",
]
