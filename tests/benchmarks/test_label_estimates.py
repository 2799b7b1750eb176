"""The simulation of labels by hand: its questions are as its cells say, and it resumes."""

import label_estimates as simulation
import label_summary as summary
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


def test_a_second_call_skips_the_cells_that_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "POPULATION", 2000)
    output = tmp_path / "table.csv"
    measured = []
    measure = simulation.measure
    monkeypatch.setattr(
        simulation, "measure", lambda cell, *rest: measured.append(cell) or measure(cell, *rest)
    )
    name = "grid; share_right=0.5; agreement=0.95; auroc=0.75; n_questions=300; n_labels="
    for n_labels in ("60", "60", "100"):
        options = {"--repetitions": "5", "--only": name + n_labels, "--output": str(output)}
        simulation.main([word for option in options.items() for word in option])
    table = pd.read_csv(output)
    assert table["cell"].is_unique
    assert len(measured) == len(table) == 2
    assert table["auroc_questions_covered"].between(0.2, 1).all()


def cells(**columns):
    """Return two cells of the simulation in which nothing is wrong, with changes by column."""
    table = {"kind": "grid", "n_questions": 300, "n_labels": [100, 200], "cell": ["a", "b"]}
    table |= {"n_drawn": 1000, "enough": 1.0, "auroc_shown_of_allowed": 1.0}
    for name in summary.QUANTITIES:
        table |= {f"{name}_n_shown": 1000, f"{name}_bias": 0.001, f"{name}_bias_se": 0.001}
        table |= {f"{name}_ratio": 0.7, f"{name}_population_width": 0.1}
        table |= {f"{name}_{scope}_covered": 0.95 for scope in summary.SCOPES}
    return pd.DataFrame(table | columns)


def failing(table):
    """Return the criteria beyond which there is a cell, with both counts."""
    found = summary.criteria(table).set_index("criterion")
    beyond = found[found["n_beyond"] > 0]
    return {
        name.split(" at ")[0]: (row["n_beyond"], row["n_significant"])
        for name, row in beyond.iterrows()
    }


def test_cells_within_all_limits_fail_no_criterion():
    assert failing(cells()) == {}


def test_a_low_coverage_counts_but_is_significant_only_if_chance_does_not_explain_it():
    # 0.925 of 1,000 draws is within chance of 0.93 (p = 0.29); 0.88 is not.
    assert failing(cells(auroc_questions_covered=[0.95, 0.925])) == {
        "coverage of auroc (questions)": (1, 0)
    }
    assert failing(cells(auroc_questions_covered=[0.88, 0.95])) == {
        "coverage of auroc (questions)": (1, 1)
    }
