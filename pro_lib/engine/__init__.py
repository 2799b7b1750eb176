"""Answers found in a prefix tree, with certificates; knows token ids and log-probabilities, no text or score.

Settings and certificates do without torch; what needs it is loaded on first use.
"""

import importlib

from pro_lib.engine.strategies import STRATEGIES, DiverseBeam, Greedy, Multinomial, Strategy, Threshold, strategy
from pro_lib.runs.certificate import Certificate

_LAZY = dict.fromkeys(("Counts", "PackedTree", "Prefix", "Tree", "common_prefix_length", "encode_prefix"), "tree")
_LAZY |= {"PlainTree": "plain", "Outcome": "walk", "Endings": "children"}
_LAZY |= {"FEWEST": "exact", "N_QUESTIONS": "exact", "measured_epsilon": "exact"}
_NO_TORCH = (Certificate, DiverseBeam, Greedy, Multinomial, Strategy, Threshold, strategy)
__all__ = ["STRATEGIES", *(thing.__name__ for thing in _NO_TORCH), *_LAZY]


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
