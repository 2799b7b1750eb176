"""Tests of the simulation of intervals: its populations and its rows."""

import difference_intervals as simulation
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

CELL = simulation.Cell("normal", 60, 0.33, 0.3, 0.0)


def test_all_kinds_have_a_difference_of_their_population():
    differences = {}
    for kind in simulation.KINDS:
        rng = np.random.default_rng(3)
        aurocs = simulation.true_aurocs(CELL._replace(scores=kind), rng)
        differences[kind] = aurocs[0] - aurocs[1]
    assert differences["normal"] == pytest.approx(differences["exponential"], abs=0.001)
    assert differences["ten levels"] == pytest.approx(differences["ten levels, noise"], abs=0.002)
    assert differences["normal"] < -0.03


def test_a_row_has_the_coverage_of_both_intervals():
    row = simulation.measure(CELL, 40, seed=1)
    assert row["covered"] >= 0.85
    assert 0 < row["delong_width"] < row["width"]


def test_the_file_has_all_cells_and_the_coverage_that_the_page_names():
    table = pd.read_csv(ROOT / "docs" / "results" / "data" / "difference_intervals.csv")
    assert (table["repetitions"] == 2000).all()
    assert table["covered"].min() >= 0.91
    assert (table["covered"] < 0.93).mean() <= 0.05
