"""The tables behind the figures, one module per figure.

docs/reference/table_columns.md describes the columns.
"""

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
    "SETTING_COLUMNS",
    "auroc_columns",
    "method_columns",
    "nll_comparison_columns",
    "overview",
    "with_run",
    "with_setting",
]
