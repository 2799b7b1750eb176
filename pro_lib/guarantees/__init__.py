"""Promises: what a user may rely on, with what error; arrays in and out, knows no model and no run."""
# ruff: noqa: F401  What is imported here is what the room exports.

from pro_lib.guarantees import anytime, entropy
from pro_lib.guarantees.answering import Promise, promise
from pro_lib.guarantees.sets import AnswerSets, answer_sets, miss_rate
from pro_lib.guarantees.within import auroc_within, open_mass, pro_auroc_within, pro_within
