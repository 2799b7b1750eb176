"""The benchmark of speed at toy size."""

import subprocess
import sys

import pandas as pd
import pytest
from conftest import ROOT

pytestmark = pytest.mark.trial  # minutes of timing

SMALL = ("D", "E", "F 0.05", "G", "H", "I", "J")


def test_a_small_run_times_every_arm_and_our_greedy_answers_as_the_library_does_with_fewer_tokens(
    tmp_path,
):
    """Eight questions without shots through the arms that need no second environment."""
    options = [
        "--shots",
        "0",
        "--questions",
        "8",
        "--batch-sizes",
        "1",
        "8",
        "--repeats",
        "1",
        "--threads",
        "1",
    ]
    options += ["--arms", *SMALL, "--out", tmp_path / "small.csv"]
    command = [sys.executable, ROOT / "benchmarks" / "ladder.py", *options]
    subprocess.run(command, capture_output=True, check=True)
    table = pd.read_csv(tmp_path / "small.csv").set_index(["arm", "batch_size"])
    assert set(table.index) == {(arm, size) for arm in SMALL for size in (1, 8)}
    assert (table[["token_forwards", "model_calls", "ms_min", "cpu_ms_min"]] > 0).all(axis=None)
    assert (table["ms_min"] <= table["ms_median"]).all()
    assert table[["machine", "commit", "ours_torch", "ours_transformers"]].notna().all(axis=None)
    assert (table.loc[["E", "H"], "compared"] == 8).all()
    assert (table.loc[["E", "H"], "differing"] == 0).all()
    # A batch of one question has no padding, so that both arms run the same tokens.
    tokens = table["token_forwards"]
    assert tokens[("E", 1)] == tokens[("G", 1)]
    assert tokens[("E", 8)] < tokens[("G", 8)]
