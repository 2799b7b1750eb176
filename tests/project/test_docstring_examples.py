"""The examples in the docstrings of all packages but plots, whose examples are in the docs."""

import doctest
import importlib
import pkgutil
import sys

import pytest

PACKAGES = [
    "app",
    "common",
    "evaluation",
    "generation",
    "importing",
    "labels",
    "metrics",
    "questions",
    "runs",
    "scoring",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_examples_in_docstrings_give_what_they_show(package):
    parent = importlib.import_module(f"pro_lib.{package}")
    n_examples = 0
    for module in pkgutil.walk_packages(parent.__path__, f"{parent.__name__}."):
        importlib.import_module(module.name)
        # A package may have a function with the name of a module, so the module comes from here.
        result = doctest.testmod(sys.modules[module.name])
        assert result.failed == 0, module.name
        n_examples += result.attempted
    assert n_examples
