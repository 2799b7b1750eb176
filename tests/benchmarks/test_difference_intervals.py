"""Tests of the simulation of intervals: its samples, its continuation, and its page."""

import difference_intervals as simulation
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from pro_lib import metrics

CELL = {"scores": "rounded", "auroc": 0.75, "gap": 0.05, "correlation": 0.9}


def test_the_intervals_of_many_samples_are_those_of_the_package():
    rng = np.random.default_rng(3)
    classes = simulation.population(CELL, rng)
    for wrong, right in simulation.samples(classes, 40, 0.4, 20, rng):
        low, high = simulation.proposed(simulation.moves_of(wrong, right))
        for number in range(len(wrong)):
            values = np.concatenate([wrong[number], right[number]], axis=1).T
            correct = np.arange(40) >= wrong.shape[2]
            expected = metrics.delong(values, correct).interval()
            np.testing.assert_allclose(
                [low[number], high[number]], [ends[1] for ends in expected], rtol=1e-9
            )


@pytest.mark.parametrize(("kind", "second"), [("binormal", 0.8), ("wide wrong class", 0.8)])
def test_a_population_has_the_aurocs_of_its_cell(kind, second):
    classes = simulation.population(CELL | {"scores": kind}, np.random.default_rng(3))
    assert simulation.true_aurocs(classes) == pytest.approx([0.75, second], abs=0.005)


def test_exchanged_scores_have_equal_aurocs():
    rng = np.random.default_rng(3)
    classes = simulation.exchanged(rng, simulation.population(CELL, rng))
    assert np.diff(simulation.true_aurocs(classes))[0] == pytest.approx(0, abs=0.004)


def test_a_second_call_skips_the_cells_that_are_done(tmp_path, monkeypatch, capsys):
    output = tmp_path / "table.csv"
    words = [
        "--workers",
        "1",
        "--repetitions",
        "20",
        "--only",
        "n_questions=30; share_right=0.5",
        "--output",
    ]
    for part in ("1/40", "1/40", "2/40"):
        monkeypatch.setattr(
            "sys.argv", ["difference_intervals.py", *words, str(output), "--part", part]
        )
        simulation.main()
    table = pd.read_csv(output)
    assert table["cell"].is_unique
    assert table["covered"].between(0.5, 1).all()
    # Only two of the three calls measured cells.
    assert capsys.readouterr().out.count(" cells\n") == 2


def test_the_page_holds_the_tables_of_its_file():
    page = (ROOT / "docs" / "explanation" / "intervals.md").read_text()
    table = pd.read_csv(ROOT / "docs" / "results" / "data" / "difference_intervals.csv")
    for part in simulation.summary(table).split("\n\n"):
        assert part in page
    assert len(table) == len(simulation.cells())
    repetitions = table.loc[table["delong_covered"].notna(), "repetitions"]
    assert f"have {repetitions.iloc[0]:,} repetitions" in page
    assert (repetitions == repetitions.iloc[0]).all()
