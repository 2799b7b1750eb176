"""The simulation of labels by hand: its questions are as its cells say, and it resumes."""

import label_estimates as simulation
import numpy as np
import pandas as pd
import pytest

from pro_lib import metrics

CELL = {
    "kind": "grid",
    "share_right": 0.2,
    "agreement": 0.85,
    "auroc": 0.75,
    "n_questions": 300,
    "n_labels": 60,
}


@pytest.mark.parametrize("agreement", [0.75, 0.95])
def test_questions_have_the_share_and_the_auroc_and_the_agreement_of_their_cell(agreement):
    drawn = simulation.made_up(CELL | {"agreement": agreement}, 100_000, np.random.default_rng(3))
    correct = drawn.correct == 1
    assert correct.mean() == pytest.approx(0.2, abs=0.005)
    assert metrics.auroc(drawn.scores[:, 0], correct) == pytest.approx(0.75, abs=0.007)
    assert ((drawn.rouge > 0.3) == correct).mean() == pytest.approx(agreement, abs=0.01)
    # The judge's errors depend on the score: wrong answers that it accepts have lower ones.
    wrong = drawn.scores[~correct, 0]
    is_accepted = drawn.rouge[~correct] > 0.3
    assert wrong[is_accepted].mean() < wrong[~is_accepted].mean() - 0.3


def test_a_repetition_stops_early_in_the_cells_that_say_so():
    rng = np.random.default_rng(4)
    for kind, n_labels in (("grid", 60), ("early stop", 40)):
        cell = CELL | {"kind": kind, "cell": kind}
        whole = simulation.made_up(cell, 2000, rng)
        result = simulation.repeat(cell, whole, np.zeros(5), rng)
        assert result["n_labels"] == n_labels


def test_a_second_call_skips_the_cells_that_are_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(simulation, "POPULATION", 2000)
    output = tmp_path / "table.csv"
    words = [
        "--repetitions",
        "5",
        "--only",
        "grid; share_right=0.5; agreement=0.95; auroc=0.75; n_questions=300;",
    ]
    measured = []
    measure = simulation.measure
    monkeypatch.setattr(
        simulation, "measure", lambda cell, *rest: measured.append(cell) or measure(cell, *rest)
    )
    for part in ("1/3", "1/3", "2/3"):
        monkeypatch.setattr(
            "sys.argv", ["label_estimates.py", *words, "--part", part, "--output", str(output)]
        )
        simulation.main()
    table = pd.read_csv(output)
    assert table["cell"].is_unique
    assert len(measured) == len(table) == 2
    assert table["auroc_questions_covered"].between(0.2, 1).all()
    monkeypatch.setattr("sys.argv", ["label_estimates.py", "--summary", "--output", str(output)])
    simulation.main()
    assert "| auroc | questions | 0 |" in capsys.readouterr().out
