"""Mutants of the package, each run on its module's tests: `mutants.py 300 0` prints which of 300 of seed 0 survive."""

import ast
import copy
import importlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The tests that run for a mutant of a module, by their names without `test_`.
TESTS = {
    "scoring/likelihood": "likelihood paper",
    "metrics/auroc": "auroc",
    "metrics/correctness": "correctness evaluate",
    "metrics/selective": "selective",
    "runs/storage": "storage run",
    "runs/run": "run exact_search",
    "evaluation/evaluate": "evaluate methods",
    "evaluation/methods": "methods evaluate logs",
    "evaluation/sweeps": "sweeps",
    "evaluation/guarantees": "guarantees ask",
    "generation/decoding/packed_tree": "packed_tree plain_tree",
    "generation/decoding/exact_search": "threshold half",
    "generation/decoding/next_tokens": "threshold strategies",
    "generation/decoding/steps": "strategies",
    "generation/decoding/beams": "strategies",
    "generation/decoding/sampling": "strategies",
}
LOADED = [
    "datasets",
    "hypothesis",
    "transformers.models.llama.modeling_llama",
    "scipy.stats",
    "sklearn.isotonic",
]
OPERATORS = "Add Sub, Mult Div, And Or, Lt LtE, Gt GtE, Eq NotEq, BitAnd BitOr, Is IsNot, In NotIn, USub UAdd"
PAIRS = [[getattr(ast, name) for name in pair.split()] for pair in OPERATORS.split(", ")]
SWAPS = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


def change(node: ast.AST) -> bool:
    """Change a node in place; False where there is nothing to change."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Expr | ast.AugAssign) and not isinstance(node.value, ast.Constant):
        node.__class__, node._fields = ast.Pass, ()
    else:
        return False
    return True


def sites(tree: ast.Module) -> list[int]:
    """Return the places, in the order of `ast.walk`, of what can be changed within functions."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    inside = {id(node) for function in functions for node in ast.walk(function)}
    return [
        n
        for n, node in enumerate(ast.walk(tree))
        if id(node) in inside and change(copy.deepcopy(node))
    ]


def survives(module: str, text: str) -> bool:
    """Return whether the tests of a module pass when this is its text, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:

        def run() -> None:
            sys.path.insert(0, folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            names = [f"test_{name}.py" for name in TESTS[module].split()]
            tests = [str(path) for name in names for path in (ROOT / "tests").rglob(name)]
            os._exit(pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *tests]))

        for name in ("data", "notebooks", "docs", "pyproject.toml"):
            Path(folder, name).symlink_to(ROOT / name)
        shutil.copytree(
            ROOT / "pro_lib", f"{folder}/pro_lib", ignore=shutil.ignore_patterns("__pycache__")
        )
        Path(folder, "pro_lib", f"{module}.py").write_text(text)
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(180)
        process.kill()
        process.join()
        return process.exitcode == 0


if __name__ == "__main__":
    number, seed = map(int, sys.argv[1:])
    _ = [importlib.import_module(name) for name in LOADED]  # in each fork, then
    trees = {module: ast.parse((ROOT / "pro_lib" / f"{module}.py").read_text()) for module in TESTS}
    places = [(module, place) for module, tree in trees.items() for place in sites(tree)]
    survivors = []
    for module, place in random.Random(seed).sample(places, number):
        node = list(ast.walk(tree := copy.deepcopy(trees[module])))[place]
        before, line, _ = ast.unparse(node), node.lineno, change(node)
        survivors += [f"{module}.py:{line}: {before} -> {ast.unparse(node)}"] * survives(
            module, ast.unparse(tree)
        )
    print(*survivors, f"{len(survivors)} of {number} mutants of {len(places)} survive", sep="\n")
