"""Test the package as a whole: what its import loads, its public and its private names.

The order of the packages is a contract in pyproject.toml, which `make lint` checks.
"""

import ast
import json
import subprocess
import sys
from importlib import import_module

import pytest
from conftest import ROOT

PACKAGE = ROOT / "pro_lib"
DECODING = "generation/decoding"
# Packages whose import loads neither torch nor Matplotlib; `plots` needs Matplotlib.
LIGHT = [
    "app",
    "common",
    "evaluation",
    "generation",
    "generation.decoding",
    "importing",
    "labels",
    "metrics",
    "questions",
]
LIGHT += ["runs", "scoring"]
# The modules of `decoding` are imported one by one; the package lists no public names.
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE / DECODING})


def dotted(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imported(path):
    """Dotted names that a file imports from the package, in functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("pro_lib.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pro_lib":
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


# Runs each text on stdin as a program that did not import the package, and prints their results.
# One process for all, because imports of other packages take seconds.
EACH_AFRESH = """
import json, sys
results = []
for code in json.load(sys.stdin):
    for name in [name for name in sys.modules if name.split('.')[0] == 'pro_lib']:
        del sys.modules[name]
    values = {}
    exec(code, values)
    results.append(values['result'])
print(json.dumps(results))
"""


def results_of(programs):
    """Return the value of `result` that each program sets, by the program's name."""
    words = [sys.executable, "-c", EACH_AFRESH]
    texts = json.dumps([*programs.values()])
    done = subprocess.run(words, input=texts, check=True, capture_output=True, text=True)
    return dict(zip(programs, json.loads(done.stdout), strict=True))


def test_importing_a_package_loads_neither_torch_nor_matplotlib():
    heavy = "import sys; result = sorted({'torch', 'transformers', 'matplotlib'} & {*sys.modules})"
    names = ["pro_lib", *(f"pro_lib.{name}" for name in LIGHT)]
    loaded = results_of({name: f"import {name}; {heavy}" for name in names})
    assert loaded == {name: [] for name in names}


def test_no_module_imports_a_private_name_of_another_package():
    private = [
        (path, name)
        for path in PACKAGE.rglob("*.py")
        for name in imported(path)
        if any(part.startswith("_") for part in name.split("."))
    ]
    assert private == []


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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_public_function_has_the_name_of_its_module(folder):
    package = import_module(".".join(folder.relative_to(ROOT).parts))
    modules = {path.stem for path in folder.glob("*.py")}
    functions = {name for name in package.__all__ if callable(getattr(package, name))}
    assert functions & modules == set()


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
