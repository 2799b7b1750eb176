"""The interfaces for users: the command `pro`, single questions, experiments, the explorer.

The names in `__init__.pyi` load on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
