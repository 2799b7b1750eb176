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
from pro_lib.evaluation.tables.examples import (
    answer_details,
    appendix_answers,
    appendix_pro,
    examples,
    exposure,
    repeats,
)
from pro_lib.evaluation.tables.generated_answers import costs, generated_answers
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
    "ROUGE_THRESHOLDS",
    "SETTING_COLUMNS",
    "LabelledSplits",
    "alpha_choices",
    "alpha_rows",
    "alpha_sweep",
    "answer_details",
    "appendix_answers",
    "appendix_pro",
    "auroc_columns",
    "costs",
    "examples",
    "exposure",
    "generated_answers",
    "label_agreement",
    "label_counts",
    "label_estimates",
    "labellers",
    "method_columns",
    "nll_comparison_columns",
    "overview",
    "printed_alphas",
    "printed_rouge_thresholds",
    "redraws",
    "repeats",
    "rouge_thresholds",
    "with_run",
    "with_setting",
]
