"""Mutants of the package, drawn by a seed, each run on the tests of its module: how many survive, and which.

    python benchmarks/mutants.py --number 300 --seed 0 --output build/mutants.csv

A mutant changes one operator, comparison, number or truth value, or drops one statement. Each runs in a process that is
forked after torch and pandas are loaded, on a copy of the package; a test that fails, or takes too long, kills it.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = {"scores": "scores paper", "metrics": "metrics", "sweeps": "sweeps", "evaluation": "evaluation protocols"}
TESTS |= {"protocols": "protocols evaluation semantic", "correctness": "correctness", "runs": "runs", "store": "store"}
TESTS |= {"promises": "promises", "selective": "selective", "engine/exact": "threshold exact_search"}
TESTS |= {"engine/tree": "engine plain", "engine/children": "threshold engine", "engine/beams": "strategies"}
TESTS |= {"engine/walk": "strategies", "engine/sampling": "strategies"}
# So that no mutant waits for it; nothing of the package.
LOADED = "datasets hypothesis pandas.testing pyarrow.parquet rouge_score.rouge_scorer scipy.stats sklearn.isotonic"
LOADED += "".join(f" transformers.models.{family}.modeling_{family}" for family in ("llama", "gemma", "gemma2", "falcon"))
LOADED += " transformers.models.mistral.modeling_mistral transformers.models.qwen2.modeling_qwen2"
SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And}
SWAPS |= {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SWAPS |= {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult, ast.Mod: ast.Mult, ast.FloorDiv: ast.Div}
SWAPS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.USub: ast.UAdd}


def change(node: ast.AST) -> bool:
    """Change a node in place; False where there is nothing to change."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.If) and not node.orelse:
        node.body = [ast.Pass()]
    elif isinstance(node, ast.Expr | ast.AugAssign) and not isinstance(node.value, ast.Constant):
        node.__class__, node._fields = ast.Pass, ()
    else:
        return False
    return True


def sites(tree: ast.Module) -> list[int]:
    """Return the places, in the order of `ast.walk`, of what can be changed within functions, annotations apart."""
    hints = (getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns"))
    apart = {id(node) for hint in hints if hint for node in ast.walk(hint)}
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    inside = {id(node) for function in functions for node in ast.walk(function)} - apart
    nodes = enumerate(ast.walk(tree))
    return [place for place, node in nodes if id(node) in inside and change(copy.deepcopy(node))]


def run(folder: Path, tests: str) -> None:
    """Run the tests of these names on the package in a folder, and end this process with their status."""
    import pytest

    sys.path.insert(0, str(folder))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os._exit(
        pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *(f"{ROOT}/tests/test_{name}.py" for name in tests.split())])
    )


def survives(module: str, text: str, seconds: float) -> bool:
    """Return whether the tests of a module pass when this is its text."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path in ROOT.iterdir():
            if path.name in ("data", "notebooks", "docs", "pyproject.toml"):
                (folder / path.name).symlink_to(path)
        shutil.copytree(ROOT / "pro_lib", folder / "pro_lib", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pro_lib" / f"{module}.py").write_text(text)
        process = multiprocessing.get_context("fork").Process(target=run, args=(folder, TESTS[module]))
        process.start()
        process.join(seconds)
        process.kill()
        process.join()
        return process.exitcode == 0


def main() -> None:
    """Print a line for each survivor, and how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=180.0, help="that the tests of a mutant may take")
    given = parser.parse_args()
    for name in LOADED.split():
        importlib.import_module(name)
    trees = {module: ast.parse((ROOT / "pro_lib" / f"{module}.py").read_text()) for module in TESTS}
    every = [(module, place) for module, tree in trees.items() for place in sites(tree)]
    n_survivors, drawn = 0, random.Random(given.seed).sample(every, given.number)
    for number, (module, place) in enumerate(drawn, start=1):
        tree = copy.deepcopy(trees[module])
        node = list(ast.walk(tree))[place]
        before, line = ast.unparse(node), node.lineno
        change(node)
        if survives(module, ast.unparse(tree), given.seconds):
            n_survivors += 1
            print(f"{module}.py:{line}: {before} -> {ast.unparse(node)}", flush=True)
        print(f"{number} of {given.number}, {n_survivors} survive", end="\r", file=sys.stderr, flush=True)
    print(f"{n_survivors} of {given.number} mutants of {len(every)} survive")


if __name__ == "__main__":
    main()
