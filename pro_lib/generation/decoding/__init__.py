"""Decode answers in a prefix tree.

This package uses only token ids and log-probabilities.
"""

from typing import TYPE_CHECKING

from pro_lib.common.lazy import load_lazily
from pro_lib.generation.decoding.strategies import (
    STRATEGIES,
    DiverseBeam,
    Greedy,
    Multinomial,
    Strategy,
    Threshold,
    strategy,
)

if TYPE_CHECKING:
    from pro_lib.generation.decoding.exact_search import FEWEST, N_QUESTIONS, measured_epsilon
    from pro_lib.generation.decoding.next_tokens import Endings
    from pro_lib.generation.decoding.packed_tree import (
        ForwardCounts,
        PackedTree,
        Prefix,
        Tree,
        common_prefix_length,
        encode_prefix,
    )
    from pro_lib.generation.decoding.plain_tree import PlainTree
    from pro_lib.generation.decoding.steps import Outcome

__all__ = [
    "FEWEST",
    "N_QUESTIONS",
    "STRATEGIES",
    "DiverseBeam",
    "Endings",
    "ForwardCounts",
    "Greedy",
    "Multinomial",
    "Outcome",
    "PackedTree",
    "PlainTree",
    "Prefix",
    "Strategy",
    "Threshold",
    "Tree",
    "common_prefix_length",
    "encode_prefix",
    "measured_epsilon",
    "strategy",
]

load_lazily(
    __name__,
    {
        "exact_search": ["FEWEST", "N_QUESTIONS", "measured_epsilon"],
        "next_tokens": ["Endings"],
        "packed_tree": [
            "ForwardCounts",
            "PackedTree",
            "Prefix",
            "Tree",
            "common_prefix_length",
            "encode_prefix",
        ],
        "plain_tree": ["PlainTree"],
        "steps": ["Outcome"],
    },
)
