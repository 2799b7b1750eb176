"""What runs found, claim and cost, as tables for notebooks; knows runs, scores and evaluations, and draws nothing."""
# ruff: noqa: F401  What is imported here is what the room exports.

from pro_lib.tables.causes import causes_table, places_table, worlds_table
from pro_lib.tables.ceiling import ceiling_table, learned
from pro_lib.tables.found import cost_table, examples, explained, exposure_table, found_table, repeats_table
from pro_lib.tables.promises import promises_table, right_probabilities, sets_table
from pro_lib.tables.searches import (
    Searched,
    bounds_table,
    entropy_table,
    merged_table,
    recall_table,
    search_benchmark,
    search_table,
    searched,
)
from pro_lib.tables.shallower import at_alpha
