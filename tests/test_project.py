"""What the project promises about itself: imports that go one way, no heavy import, a tree and names that are true."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pkgutil import resolve_name

import pytest
from conftest import ROOT

HOUSE = ROOT / "pro_lib"
WALK = (ROOT / "docs" / "walk.md").read_text()
FILES = sorted(HOUSE.rglob("*.py"))
# A module imports only what stands before it; a room stands for all of its modules. docs/walk.md lists them so.
NAMES = """
    checks files bundled scores correctness metrics selective similarities meanings engine store runs readers
    questions checkpoints models packs generate records layouts imports inside server protocols evaluation sweeps
    promises asking figures settings explorer command __main__
"""
ORDER = NAMES.split()
TORCH = {"checkpoints", "models", "engine", "generate", "packs", "inside", "server"}


def room(path):
    """The module, or the room, that a file belongs to; empty for the front door."""
    first = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported(path, *, everywhere=True):
    """Dotted names that a file imports; `everywhere`: in functions too. What is for type checkers alone is left out."""
    names, waiting = set(), [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            waiting += ast.iter_child_nodes(node) if everywhere or not deferred else []
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_imports_go_one_way_and_only_what_asks_a_model_loads_torch(path):
    own = room(path)
    others = {name.split(".")[1] for name in imported(path) if name.startswith("pro_lib.")} - {own, "ask"}
    before = ORDER[: ORDER.index(own)] if own else ORDER
    assert others & set(ORDER) <= set(before), own
    heads = {name.split(".")[0] for name in imported(path, everywhere=False)}
    assert "torch" not in heads or own in TORCH
    assert not [name for name in imported(path) if name.startswith("pro_lib.") and "._" in name and "__" not in name]


def test_within_a_room_imports_form_no_circle():
    needs = {}
    for path in [path for path in FILES if path.parent != HOUSE]:
        needs[f"{path.parent.name}.{path.stem}"] = {".".join(name.split(".")[1:3]) for name in imported(path)}
    TopologicalSorter(needs).prepare()  # raises CycleError


def test_importing_what_reads_and_scores_does_not_load_torch():
    reading = sorted({room(path) for path in FILES} - TORCH - {"", "__main__"} | {"engine"})
    code = "import sys, pro_lib; [getattr(pro_lib, name) for name in sys.argv[1:]]; "
    code += "print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code, *reading], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_the_tree_of_the_docs_has_every_module_in_the_order_of_imports():
    package = WALK.partition("\npro_lib/")[2].partition("\ndata/")[0]
    assert re.findall(r"^  (\w+)(?:\.py|/) ", package, re.MULTILINE) == ORDER
    assert {*ORDER} == {room(path) for path in FILES} - {""}


def test_the_walk_goes_down_that_tree_and_each_step_imports_what_it_names():
    rows = [line.split("|")[-3:-1] for line in WALK.splitlines() if line.startswith("| ")][1:]
    steps = [[re.findall(r"`([\w.]+)`", cell) for cell in cells] for cells in rows]
    rooms = [where[0].split(".")[0] for where, _ in steps]
    assert len(rooms) > 5
    assert rooms == [name for name in ORDER if name in rooms]
    for own, (where, others) in zip(rooms, steps, strict=True):
        for name in (*where, *others):
            full = name if name.split(".")[0] in ORDER else f"{own}.{name}"
            resolve_name(f"pro_lib.{full}")  # raises AttributeError or ModuleNotFoundError
        needed = {name.split(".")[1] for name in imported(HOUSE / f"{own}.py") if name.startswith("pro_lib.")}
        assert {name.split(".")[0] for name in others} <= needed, own


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_name_of_the_package_that_a_benchmark_uses_is_there(path):
    nodes, taken = [*ast.walk(ast.parse(path.read_text()))], {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pro_lib"):
            exec(ast.unparse(node), taken)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in taken:
            eval(ast.unparse(node), taken)
