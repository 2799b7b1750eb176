"""What the names of methods mean, in a few words for a figure that stands alone."""

from __future__ import annotations

import pandas as pd

# The names in the order in which a note explains them. p is the probability of an answer.
_METHODS = {
    "NLL": "−log p of the answer",
    "ALL": "NLL per token",
    "PE": "predictive entropy, −Σ p log p",
    "PE-MC": "mean of −log p",
    "NE": "mean of −log p per token",
    "SE": "semantic entropy",
    "SD": "semantic density",
    "Deg": "degree of dissimilarity of samples",
    "SC": "disagreement of samples",
    "S-NLL": "NLL of the meaning",
    "S-PRO": "PRO of meanings",
}
_SIMILARITIES = {
    "lexical": "meanings compared by ROUGE-L",
    "alias": "meanings compared by the references",
    "nli": "meanings compared by an NLI model",
}


def method_note(table: pd.DataFrame) -> str:
    """Return what the methods and similarities of a table mean, as sentences.

    Args:
        table: has the column method, and may have similarity.

    Returns:
        The sentences, with a space between them; empty if no name needs an explanation.

    Example:
        >>> method_note(pd.DataFrame({"method": ["PRO", "ALL", "PE"]}))
        'ALL: NLL per token. PE: predictive entropy, −Σ p log p.'
    """
    methods = set(table["method"])
    similarities = set(table["similarity"].dropna()) if "similarity" in table else set()
    meanings = {name: text for name, text in _METHODS.items() if name in methods}
    meanings |= {name: text for name, text in _SIMILARITIES.items() if name in similarities}
    return " ".join(f"{name}: {text}." for name, text in meanings.items())
