"""The meanings of the names of methods, in a few words for a figure."""

from __future__ import annotations

import pandas as pd

from pro_lib.evaluation.methods import METHODS

_SIMILARITIES = {
    "lexical": "meanings compared by ROUGE-L",
    "alias": "two answers that match the same reference have the same meaning",
    "nli": "meanings compared by an NLI model",
    "NLI agreement": "meanings compared by probabilities of entailment",
    "NLI disagreement": "meanings compared by probabilities of contradiction",
}

_ALPHA_CHOICES = {
    "validation": "with the α that is best on validation questions",
    "default": "with the default α",
}


def method_note(table: pd.DataFrame) -> str:
    """Return the meanings of the methods and similarities of a table, as sentences.

    Args:
        table: has the column method, and may have similarity, and alpha with alpha_choice.

    Returns:
        The sentences, with a space between them; empty if no name needs an explanation.

    Example:
        >>> method_note(pd.DataFrame({"method": ["PRO", "ALL", "PE"]}))
        'ALL: NLL per token. PE: predictive entropy, −Σ p log p.'
    """
    methods = set(table["method"])
    similarities = set(table["similarity"].dropna()) if "similarity" in table else set()
    meanings = {
        name: method.meaning
        for name, method in METHODS.items()
        if name in methods and name != "PRO"  # which each figure explains by itself
    }
    meanings |= {name: text for name, text in _SIMILARITIES.items() if name in similarities}
    sentences = [f"{name}: {text}." for name, text in meanings.items()]
    return " ".join([*_alpha_of_pro(table), *sentences])


def _alpha_of_pro(table: pd.DataFrame) -> list[str]:
    """Return a sentence about α of PRO, if all of its rows have an α that is chosen in one way."""
    if not {"alpha", "alpha_choice"} <= set(table):
        return []
    pro = table[(table["method"] == "PRO") & (table["alpha_choice"] != "oracle")]
    choices = pro["alpha_choice"].unique()
    alphas = pro["alpha"]
    if len(choices) != 1 or choices[0] not in _ALPHA_CHOICES or alphas.isna().any():
        return []
    values = f"{alphas.min():g}"
    if alphas.min() < alphas.max():
        values += f" to {alphas.max():g}"
    return [f"PRO: {_ALPHA_CHOICES[choices[0]]}, {values}."]
