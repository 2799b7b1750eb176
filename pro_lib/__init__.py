"""The PRO workbench: uncertainty of the answers of language models, from their probabilities.

The packages and functions in `__init__.pyi` load on first use, so that scoring log-probabilities
does not load torch.
"""

import logging
import os

import lazy_loader

# OpenMP threads wait for each other in busy loops. Short loops help if another process, such as a
# second notebook, uses the same cores: long ones made decoding ten times slower on two cores.
# The variable has an effect only if it is set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

logging.getLogger(__name__).addHandler(logging.NullHandler())
__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
