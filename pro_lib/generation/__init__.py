"""Models and decoding: from a model and questions to a run. Only this package needs torch.

The names in `__init__.pyi` load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
