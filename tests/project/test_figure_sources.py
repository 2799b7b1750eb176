"""Committed figures say what they were made from, and have the columns of the present code."""

import json

import pandas as pd
import pytest
from conftest import ROOT

FIGURES = ROOT / "figures"
FOLDERS = [FIGURES, FIGURES / "smollm2", FIGURES / "gemma-3-270m", FIGURES / "real_models"]
LABELS = {"judge", "n_labels"}  # columns of tables with labels of a sample


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_table_has_its_sources_and_the_columns_of_the_bundled_models(folder):
    sources = json.loads((folder / "made_from.json").read_text())
    tables = sorted(path.stem for path in folder.glob("[01]*.csv"))
    assert [name for name in tables if not sources[name]["inputs"] and name[:2] != "08"] == []
    for name in tables:
        columns = set(pd.read_csv(folder / f"{name}.csv").columns)
        expected = set(pd.read_csv(FIGURES / f"{name}.csv").columns)
        assert columns ^ expected <= LABELS, name
