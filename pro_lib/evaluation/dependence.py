"""Find the questions that depend on each other, by a column of the dataset or by equal texts."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pro_lib.questions.repeats import question_groups


def dependence_columns(questions: pd.DataFrame, cluster: str | None) -> pd.DataFrame:
    """Return which questions form a cluster, and which have the same text.

    Args:
        questions: the questions.
        cluster: a column of the questions whose equal values form a cluster, if they have it.

    Returns:
        A row per question. Column cluster exists if the questions have the column or a text is
        repeated; questions with one text, and those with one value of the column, share a cluster.
        Column text_number exists if a text is repeated.
    """
    text_numbers = question_groups(questions)
    has_repeats = len(np.unique(text_numbers)) < len(text_numbers)
    table = pd.DataFrame(index=range(len(questions)))
    if cluster in questions:
        table["cluster"] = questions[cluster].map(str).to_numpy()
    if has_repeats:
        table["text_number"] = text_numbers
        if "cluster" in table:
            table["cluster"] = _joined_clusters(table["cluster"], text_numbers)
        else:
            table["cluster"] = text_numbers.astype(str)
    return table


def _joined_clusters(clusters: pd.Series, text_numbers: NDArray[np.intp]) -> NDArray[np.object_]:
    """Join the clusters that share a text, also through a chain of other clusters.

    A joined cluster has the name of its first one.
    """
    cluster_numbers, names = pd.factorize(clusters)
    joined = pd.Series(cluster_numbers)
    while True:
        # The smallest number spreads to all questions of the text, then to all of the cluster.
        by_text = joined.groupby(text_numbers).transform("min")
        by_cluster = by_text.groupby(cluster_numbers).transform("min")
        if by_cluster.equals(joined):
            return np.asarray(names.take(joined), dtype=object)
        joined = by_cluster
