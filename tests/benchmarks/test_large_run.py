"""Reading, scoring and sweeping 100,000 questions stays in bounded memory."""

import large_run
import pytest


@pytest.mark.trial
def test_a_hundred_thousand_questions_take_less_than_two_gigabytes(capsys):
    large_run.main(["--questions", "100000"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert max(float(line.split()[-1]) for line in lines[1:]) < 2048
