"""What holds of the package as a whole: what its import loads, and names that are true."""

import ast
import subprocess
import sys

import pytest
from conftest import ROOT

READING = ("metrics", "runs", "questions", "evaluation")


def test_importing_what_reads_and_scores_does_not_load_torch():
    code = "import sys, pro_lib; [getattr(pro_lib, name) for name in sys.argv[1:]]; "
    code += "print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code, *READING], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_name_of_the_package_that_a_benchmark_uses_is_there(path):
    nodes, taken = [*ast.walk(ast.parse(path.read_text()))], {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pro_lib"):
            exec(ast.unparse(node), taken)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in taken:
            eval(ast.unparse(node), taken)
