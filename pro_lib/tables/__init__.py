"""What runs found, claim and cost, as tables for notebooks; knows runs, scores and evaluations, and draws nothing."""

from pro_lib.tables.found import cost_table, examples, explained, found_table, repeats_table
from pro_lib.tables.searches import (
    Searched,
    bounds_table,
    merged_table,
    recall_table,
    search_benchmark,
    search_table,
    searched,
)
from pro_lib.tables.shallower import at_alpha

__all__ = [
    "Searched",
    "at_alpha",
    "bounds_table",
    "cost_table",
    "examples",
    "explained",
    "found_table",
    "merged_table",
    "recall_table",
    "repeats_table",
    "search_benchmark",
    "search_table",
    "searched",
]
