"""The judge that decides about correct answers in the rows of a table."""

import pandas as pd

BY_LABELS = "labels"  # in the column judge, if labels of a sample estimate the values


def is_by_labels(table: pd.DataFrame) -> bool:
    """Return whether labels of a sample estimate the values of all rows.

    Example:
        >>> is_by_labels(pd.DataFrame({"judge": ["labels", "rouge_l"]}))
        False
    """
    return "judge" in table and bool((table["judge"] == BY_LABELS).all())
