"""Reading, scoring and sweeping 100,000 questions stays in bounded memory."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.trial
def test_a_hundred_thousand_questions_take_less_than_two_gigabytes(capsys):
    spec = importlib.util.spec_from_file_location("large_run", ROOT / "benchmarks" / "large_run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--questions", "100000"])
    lines = capsys.readouterr().out.splitlines()
    peak = max(float(line.split()[-1]) for line in lines[1:])
    assert len(lines) == 8
    assert peak < 2048
