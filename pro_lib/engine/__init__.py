"""Answers found in a prefix tree, with certificates; knows token ids and log-probabilities, no text or score.

Settings and certificates do without torch; what needs it is loaded on first use.
"""

import importlib

from pro_lib.engine.certificate import Certificate
from pro_lib.engine.strategies import STRATEGIES, DiverseBeam, Greedy, Multinomial, Strategy, Threshold, strategy

_NEED_TORCH = {
    "half": ("N_QUESTIONS", "measured_epsilon"),
    "plain": ("PlainTree",),
    "tree": ("Counts", "PackedTree", "Prefix", "Tree", "common_prefix_length", "encode_prefix"),
    "walk": ("Answer", "Endings"),
}
_NO_TORCH = (Certificate, DiverseBeam, Greedy, Multinomial, Strategy, Threshold, strategy)
__all__ = ["STRATEGIES", *(thing.__name__ for thing in _NO_TORCH), *sum(_NEED_TORCH.values(), ())]


def __getattr__(name: str):
    for module, names in _NEED_TORCH.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
