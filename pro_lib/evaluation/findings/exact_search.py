"""The findings about exact search (notebook 07)."""

from __future__ import annotations

import pandas as pd

from pro_lib.evaluation.findings.statements import (
    comparison,
    has_enough,
    left_out_sentence,
    percent_span,
    signed,
    signed_span,
    span,
)


def exact_search(table: pd.DataFrame, bounds: pd.DataFrame, aurocs: pd.DataFrame) -> str:
    """Return the findings of notebook 07.

    Args:
        table: the table of `tables.exact_search`.
        bounds: the table of `tables.entropy_bounds`.
        aurocs: the table of `tables.exact_search_auroc`.
    """
    sentences = []
    for alpha in dict.fromkeys((table["alpha"].max(), table["alpha"].min())):
        rows = table[table["alpha"] == alpha]
        certified = percent_span(rows["share_certified"])
        recall = rows["recall"].dropna()
        beams = f"beams find {percent_span(recall)} of the answers with p ≥ α"
        if recall.empty:
            beams = "no answer has p ≥ α"
        sentences.append(
            f"At α = {alpha:g}, {beams}, and {certified} of the questions are certified."
        )
    compared = []
    scores = _search_scores(aurocs[has_enough(aurocs)])
    for subject, rows in scores.items():
        if len(rows):
            exact = "PRO of the exact search"
            compared.append(comparison(rows, subject, exact, "auroc_minus_pro"))
    one_per_setting = aurocs[aurocs["method"] == "NLL"]
    paragraphs = [
        " ".join(sentences),
        _bounds_sentences(bounds),
        *compared,
        left_out_sentence(one_per_setting),
    ]
    return "\n\n".join(text for text in paragraphs if text)


def _search_scores(aurocs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each score that is compared with PRO of the exact search."""
    is_pro = aurocs["method"] == "PRO"
    is_exact = aurocs["strategy"] == "threshold"
    has_same_alpha = aurocs["alpha_choice"] == "exact search"
    own_alpha = "PRO of beams, with its own α chosen on validation questions,"
    scores = {
        own_alpha: aurocs[is_pro & ~is_exact & ~has_same_alpha],
        "PRO of beams at the α of the search": aurocs[is_pro & has_same_alpha],
    }
    names = {
        "NLL": "NLL",
        "α-floor": "The α-floor",
        "tree bound": "The tree bound",
        "probability not found": "The probability not found",
    }
    for method, subject in names.items():
        scores[subject] = aurocs[aurocs["method"] == method]
    return scores


def _bounds_sentences(bounds: pd.DataFrame) -> str:
    """Return whether the bounds are in order, and how far the tree bound is from the entropy."""
    certified = bounds[bounds["n_certified"] > 0]
    if certified.empty:
        return "No question is certified at any α, so the bounds are not compared."
    n_pairs = certified["n_certified"].sum()
    n_violations = n_pairs - certified["n_ordered"].sum()
    order = "PRO ≤ α-floor ≤ tree bound holds for every certified question at every α."
    if n_violations:
        order = (
            f"PRO ≤ α-floor ≤ tree bound is violated in {n_violations:,} of {n_pairs:,} cases (a "
            f"certified question at one α), which contradicts the proof."
        )
    estimated = certified.dropna(subset=["entropy_minus_tree_bound_low"])
    if estimated.empty:
        return f"{order} The interval of the entropy is unknown."
    low = signed(estimated["entropy_minus_tree_bound_low"].min())
    high = signed(estimated["entropy_minus_tree_bound_high"].max())
    deepest = estimated[estimated["alpha"] == estimated["alpha"].min()]
    width = span(deepest["entropy_interval_width"], "{:.2f}")
    return (
        f"{order} The mean entropy, estimated by samples, minus the mean tree bound is "
        f"{signed_span(estimated['entropy_minus_tree_bound'])} nats (95 % confidence intervals "
        f"within {low} to {high}). The entropy of a single question is known less well: at "
        f"α = {estimated['alpha'].min():g} its 95 % interval is {width} nats wide on average."
    )
