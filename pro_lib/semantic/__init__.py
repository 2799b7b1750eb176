"""Whether answers mean the same, and the uncertainty scores that ask; knows texts and arrays, no run, no correctness.

A *similarity* is called as `similarity(answers, questions)`. `answers` are n rows of up to N texts (None or NaN:
missing), `questions` is a DataFrame of n rows, in the same order, or None. What it returns is `compared`: numbers in
[0, 1], shape (n, N, N), or the probabilities of entailment, neutral and contradiction of every ordered pair (premise,
hypothesis), shape (n, N, N, 3); float64, NaN where an answer is missing. `docs/semantic_variants.md` says whose formula
is whose.
"""
# ruff: noqa: F401  What is imported here is what the room exports.

from pro_lib.semantic.nli import LABELS, Nli
from pro_lib.semantic.pairs import distinct
from pro_lib.semantic.scores import (
    agreement,
    agreement_of_two,
    clusters,
    degree,
    matches,
    meaning_log_probs,
    semantic_density,
    semantic_entropy,
    semantic_entropy_mc,
    top_two_gap,
    weighted_dissimilarity,
)
from pro_lib.semantic.similarities import SIMILARITIES, Alias, Embedding, Lexical, Similarity, similarity
