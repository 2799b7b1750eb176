"""Change the package in small ways and count the changes that its tests do not detect.

    python benchmarks/mutants.py 300 1

Each mutant is one changed operator, constant or statement of a module. The tests of this module run
on it in a process of their own. A mutant survives if these tests pass. Before the mutants, the
tests run on the unchanged modules, because tests that fail there would detect everything.
"""

import argparse
import ast
import copy
import importlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The test files of all modules of evaluation, quick ones first
EVALUATION_TESTS = [
    "methods",
    "guarantees",
    "selected_alpha",
    "settings",
    "evaluate",
    "repeated_questions",
    "scored_answers",
    "alpha_choice",
    "worlds",
    "alpha_sweep",
    "benchmark",
    "exact_search_figure",
]
# The test files of each mutated module, by their names without `test_` and `.py`. The first failure
# ends the tests of a mutant, so quick files that detect many mutants come first.
TESTS = {
    "scoring/likelihood": ["likelihood", "paper", "methods"],
    "metrics/roc": ["auroc", "differences", "selective", "selected_alpha"],
    "metrics/correctness": ["correctness", "evaluate", "scored_answers"],
    "metrics/selective": ["selective", "answered"],
    "runs/storage": ["storage", "run", "generate"],
    "runs/run": ["run", "evaluate", "methods", "repeated_questions", "exact_search"],
    "evaluation/run_evaluation": ["evaluate", *EVALUATION_TESTS],
    "evaluation/evaluation": ["evaluate", *EVALUATION_TESTS],
    "evaluation/methods": [*EVALUATION_TESTS, "logs"],
    "evaluation/inputs": [*EVALUATION_TESTS, "logs"],
    "evaluation/judgement": ["evaluate", "sampled_tables", *EVALUATION_TESTS],
    "evaluation/alpha_choice": ["alpha_choice", "selected_alpha", *EVALUATION_TESTS],
    "evaluation/guarantees": ["guarantees", *EVALUATION_TESTS, "ask"],
    "generation/decoding/packed_tree": ["packed_tree", "plain_tree", "generate", "accelerator"],
    "generation/decoding/exact_search": ["threshold", "half", "exact_search"],
    "generation/decoding/next_tokens": ["threshold", "packed_tree", "strategies", "accelerator"],
    "generation/decoding/steps": ["strategies", "generate"],
    "generation/decoding/beams": ["strategies", "generate"],
    "generation/decoding/sampling": ["strategies", "generate"],
}
# Modules that are imported once, before the processes of the mutants are forked
IMPORTED_ONCE = [
    "datasets",
    "hypothesis",
    "transformers.models.llama.modeling_llama",
    "scipy.stats",
    "sklearn.isotonic",
]
# A mutant has an endless loop, and counts as detected, if its tests take longer than this and than
# three times the tests of the unchanged module
SECONDS = 180
UNCHANGED_SECONDS = 1800

OPERATOR_PAIRS = [
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.BitAnd, ast.BitOr),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.USub, ast.UAdd),
]
SWAPS = dict(OPERATOR_PAIRS) | {second: first for first, second in OPERATOR_PAIRS}


class Place(NamedTuple):
    """A place of a module that can be changed: a node's number in the order of `ast.walk`."""

    module: str
    number: int


def mutate(node: ast.AST) -> bool:
    """Change a node in place; return False if there is nothing to change."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value = node.value + 1
    elif isinstance(node, ast.Expr | ast.AugAssign) and not isinstance(node.value, ast.Constant):
        node.__class__ = ast.Pass
        node._fields = ()
    else:
        return False
    return True


def mutable_places(module: str, tree: ast.Module) -> list[Place]:
    """Return the places within the functions of a module that can be changed."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    nodes_of_functions = {id(node) for function in functions for node in ast.walk(function)}
    return [
        Place(module, number)
        for number, node in enumerate(ast.walk(tree))
        if id(node) in nodes_of_functions and mutate(copy.deepcopy(node))
    ]


def find_tests(module: str) -> list[Path]:
    """Return the test files of a module.

    Raises:
        FileNotFoundError: if one of the names in `TESTS` is not that of one test file.
    """
    paths = []
    for name in dict.fromkeys(TESTS[module]):
        matches = list((ROOT / "tests").rglob(f"test_{name}.py"))
        if len(matches) != 1:
            raise FileNotFoundError(
                f"TESTS[{module!r}] names {name!r}, but tests/ has {len(matches)} files"
                f" test_{name}.py; expected one."
            )
        paths += matches
    return paths


def start_tests(module: str, text: str, folder: Path) -> BaseProcess:
    """Start the tests of a module on a copy of the package in which the module has this text."""
    for name in ("data", "notebooks", "docs", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "pro_lib", folder / "pro_lib", ignore=ignored)
    (folder / "pro_lib" / f"{module}.py").write_text(text)
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider"]
    arguments = [*options, *map(str, find_tests(module))]

    def run_pytest() -> None:
        sys.path.insert(0, str(folder))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os._exit(pytest.main(arguments))

    process = multiprocessing.get_context("fork").Process(target=run_pytest)
    process.start()
    return process


def passes_tests(module: str, text: str, seconds: float) -> bool:
    """Return whether the tests of a module pass within a time if the module has this text."""
    with tempfile.TemporaryDirectory() as folder:
        process = start_tests(module, text, Path(folder))
        process.join(seconds)
        process.kill()
        process.join()
        return process.exitcode == 0


def time_limits(trees: dict[str, ast.Module]) -> dict[str, float]:
    """Return the seconds after which the tests of a mutant are stopped, by module.

    Raises:
        RuntimeError: the tests of an unchanged module fail; with the name of the first such module.
    """
    limits = {}
    for module, tree in trees.items():
        start = time.monotonic()
        if not passes_tests(module, ast.unparse(tree), UNCHANGED_SECONDS):
            raise RuntimeError(f"The tests of {module} fail without a mutant; fix them first.")
        seconds = time.monotonic() - start
        limits[module] = max(SECONDS, 3 * seconds)
        print(f"{module}: unchanged, passes in {seconds:.0f} s", file=sys.stderr, flush=True)
    return limits


def survivor(place: Place, tree: ast.Module, seconds: float) -> str | None:
    """Return a mutant's place, code before and after if it survives; None if it is detected."""
    mutant = copy.deepcopy(tree)
    node = list(ast.walk(mutant))[place.number]
    line = node.lineno
    before = ast.unparse(node)
    mutate(node)
    if not passes_tests(place.module, ast.unparse(mutant), seconds):
        return None
    return f"{place.module}.py:{line}: {before} -> {ast.unparse(node)}"


def main() -> None:
    """Print the surviving mutants of a random sample, and their number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="number of mutants")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="seed of the sample")
    arguments = parser.parse_args()
    trees = {module: ast.parse((ROOT / "pro_lib" / f"{module}.py").read_text()) for module in TESTS}
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    limits = time_limits(trees)
    places = [place for module in trees for place in mutable_places(module, trees[module])]
    sample = random.Random(arguments.seed).sample(places, min(arguments.count, len(places)))
    survivors = 0
    for number, place in enumerate(sample, start=1):
        text = survivor(place, trees[place.module], limits[place.module])
        if text is not None:
            survivors += 1
            print(text, flush=True)
        if number % 10 == 0:
            print(f"{number} of {len(sample)} mutants", file=sys.stderr, flush=True)
    print(f"{survivors} of {len(sample)} mutants of {len(places)} survive")


if __name__ == "__main__":
    main()
