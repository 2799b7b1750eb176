"""Test the package as a whole: what its import loads, and its public names.

The order of the packages is a contract in pyproject.toml, which `make lint` checks.
"""

import ast
import subprocess
import sys
from importlib import import_module

import pytest
from conftest import ROOT

PACKAGE = ROOT / "pro_lib"
DECODING = "generation/decoding"
# Packages whose import loads neither torch nor Matplotlib; `plots` needs Matplotlib.
LIGHT = ["app", "common", "evaluation", "generation", "generation.decoding", "importing"]
LIGHT += ["labels", "metrics", "questions", "runs", "scoring"]
# The modules of `decoding` are imported one by one; the package lists no public names.
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE / DECODING})


# What the import of `evaluation` and then of all light packages has loaded.
LOADED = f"""
import sys, pro_lib.evaluation
print(*{{"scipy.stats", "scipy.sparse", "scipy.optimize", "sklearn"}} & {{*sys.modules}})
import {", ".join(f"pro_lib.{name}" for name in LIGHT)}
print(*{{"torch", "transformers", "matplotlib"}} & {{*sys.modules}})
"""


def test_importing_a_package_loads_no_slow_package():
    command = [sys.executable, "-c", LOADED]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "\n\n"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_all_public_names_of_a_package_are_there_and_type_checkers_see_them(folder):
    package = import_module(".".join(folder.relative_to(ROOT).parts))
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else folder / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name for node in imports for alias in node.names}
    assert set(package.__all__) <= seen
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = package.nothing_of_this_name


def test_every_name_of_the_package_that_a_benchmark_uses_is_there():
    for path in (ROOT / "benchmarks").glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        taken = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module.startswith("pro_lib"):
                exec(ast.unparse(node), taken)
        for node in nodes:
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in taken:
                eval(ast.unparse(node), taken)
