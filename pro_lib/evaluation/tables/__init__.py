"""The tables behind the figures, one module per figure.

docs/reference/table_columns.md describes the columns.
"""

from pro_lib.evaluation.tables.alpha_sweep import (
    alpha_choices,
    alpha_rows,
    alpha_sweep,
    printed_alphas,
    redraws,
)
from pro_lib.evaluation.tables.benchmark import benchmark, beside_paper, printed_benchmark
from pro_lib.evaluation.tables.exact_search import (
    SearchRuns,
    entropy_bounds,
    exact_search,
    exact_search_auroc,
)
from pro_lib.evaluation.tables.examples import (
    answer_details,
    appendix_answers,
    appendix_pro,
    examples,
    exposure,
    repeats,
)
from pro_lib.evaluation.tables.gains import (
    BOTH_VARIED,
    causes,
    pro_minus_nll,
    two_or_more,
    worlds,
)
from pro_lib.evaluation.tables.generated_answers import costs, generated_answers
from pro_lib.evaluation.tables.guarantees import (
    answer_sets,
    default_targets,
    entropies,
    guarantees,
)
from pro_lib.evaluation.tables.labelled_answers import (
    LabelledSplits,
    label_agreement,
    label_counts,
    label_estimates,
    labellers,
)
from pro_lib.evaluation.tables.rouge_thresholds import (
    ROUGE_THRESHOLDS,
    printed_rouge_thresholds,
    rouge_thresholds,
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
    "ROUGE_THRESHOLDS",
    "SETTING_COLUMNS",
    "LabelledSplits",
    "SearchRuns",
    "accuracy_by_coverage",
    "alpha_choices",
    "alpha_rows",
    "alpha_sweep",
    "answer_details",
    "answer_sets",
    "appendix_answers",
    "appendix_pro",
    "auroc_columns",
    "benchmark",
    "beside_paper",
    "causes",
    "costs",
    "default_targets",
    "entropies",
    "entropy_bounds",
    "exact_search",
    "exact_search_auroc",
    "examples",
    "exposure",
    "generated_answers",
    "guarantees",
    "label_agreement",
    "label_counts",
    "label_estimates",
    "labellers",
    "method_columns",
    "nll_comparison_columns",
    "overview",
    "printed_alphas",
    "printed_benchmark",
    "printed_rouge_thresholds",
    "pro_minus_nll",
    "redraws",
    "reliability",
    "repeats",
    "rouge_thresholds",
    "two_or_more",
    "with_run",
    "with_setting",
    "worlds",
]
