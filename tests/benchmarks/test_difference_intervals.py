"""The simulation of intervals: the coverage of a row, and of the rows of the committed file."""

import difference_intervals as simulation
import pandas as pd
from conftest import ROOT

CELL = simulation.Cell("normal", 60, 0.33, 0.3, 0.0)


def test_a_row_has_the_coverage_of_both_intervals():
    row = simulation.measure(CELL, 40, seed=1)
    assert row["covered"] >= 0.85
    assert 0 < row["delong_width"] < row["width"]


def test_the_file_has_all_cells_and_the_coverage_that_the_page_names():
    table = pd.read_csv(ROOT / "docs" / "results" / "data" / "difference_intervals.csv")
    assert (table["repetitions"] == 2000).all()
    assert table["covered"].min() >= 0.91
    assert (table["covered"] < 0.93).mean() <= 0.05
