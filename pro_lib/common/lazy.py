"""Packages whose public names are loaded on first use."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any


class _LazyPackage(ModuleType):
    """A package whose public names are loaded from its modules on first use.

    A function may have the name of its module, such as `generate` in `generation/generate.py`.
    Importing the module would set the attribute of the package to the module. The attribute stays
    the function, whatever was imported first.
    """

    _modules: Mapping[str, str]  # public name -> the module that defines it

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._modules or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in self._modules:
            # The value is not stored, since a test may replace it in its module for a while.
            return getattr(importlib.import_module(self._modules[name]), name)
        full_name = f"{self.__name__}.{name}"
        if name.startswith("_") or importlib.util.find_spec(full_name) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return importlib.import_module(full_name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._modules})


def load_lazily(package: str, names: Mapping[str, Sequence[str]]) -> None:
    """Make the public names of a package load on first use.

    Args:
        package: the `__name__` of the package that calls this.
        names: public names by the module of the package that defines them.
    """
    module = sys.modules[package]
    modules = {}
    for module_name, public_names in names.items():
        for name in public_names:
            modules[name] = f"{package}.{module_name}"
    module.__dict__["_modules"] = modules
    module.__class__ = _LazyPackage
