"""What runs found, claim and cost, as tables for notebooks; knows runs, scores and evaluations, and draws nothing."""

from pro_lib.tables.found import cost_table, examples, explained, found_table
from pro_lib.tables.searches import (
    Searched,
    merged_table,
    recall_table,
    search_benchmark,
    search_table,
    searched,
)

__all__ = [
    "Searched",
    "cost_table",
    "examples",
    "explained",
    "found_table",
    "merged_table",
    "recall_table",
    "search_benchmark",
    "search_table",
    "searched",
]
