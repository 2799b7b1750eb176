"""What benchmarks take from the package is there; what they do with 100,000 questions stays in bounded memory."""

import ast

import large_run
import pytest
from conftest import ROOT


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_name_of_the_package_that_a_benchmark_uses_is_there(path):
    nodes, taken = [*ast.walk(ast.parse(path.read_text()))], {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pro_lib"):
            exec(ast.unparse(node), taken)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in taken:
            eval(ast.unparse(node), taken)


@pytest.mark.trial
def test_a_hundred_thousand_questions_take_less_than_two_gigabytes(capsys):
    large_run.main(["--questions", "100000"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert max(float(line.split()[-1]) for line in lines[1:]) < 2048
