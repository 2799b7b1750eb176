"""The PRO workbench: uncertainty of language-model answers from the probabilities of the likely ones.

Modules load on first use, so that scoring a file of log-probabilities never loads torch.
"""

import importlib
import logging
import os
import pkgutil

# Threads that share cores with another process (two notebooks, say) otherwise wait for each other in long busy
# loops: on two cores that made decoding ten times slower. It works only if it is set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

logging.getLogger(__name__).addHandler(logging.NullHandler())
__version__ = "0.1.0"

_MODULES = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
# Calls that are at hand without their module.
_CALLS = {"ask": "asking", "answerer": "asking", "exact_generate": "inside", "diverse_beam_generate": "inside"}
__all__ = [*_CALLS, *_MODULES]


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _CALLS:
        return getattr(importlib.import_module(f"{__name__}.{_CALLS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
