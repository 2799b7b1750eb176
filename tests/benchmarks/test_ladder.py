"""The benchmarks of speed at toy size: our own arms, counts by hand, all on a device."""

import subprocess
import sys
from types import SimpleNamespace

import ladder_release
import on_gpu
import pandas as pd
import pytest
import torch
from conftest import ROOT

pytestmark = pytest.mark.trial  # minutes of timing

SMALL = ("D", "E", "F 0.05", "G", "H", "I", "J")


def test_a_small_run_times_every_arm_and_our_greedy_answers_as_the_library_does_with_fewer_tokens(
    tmp_path,
):
    """Eight questions without shots through the arms that need no second environment."""
    options = [
        "--arms",
        *SMALL,
        "--shots",
        "0",
        "--questions",
        "8",
        "--batch-sizes",
        "1",
        "8",
        "--repeats",
        "1",
    ]
    options += ["--threads", "1", "--out", tmp_path / "small.csv"]
    command = [sys.executable, ROOT / "benchmarks" / "ladder.py", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = pd.read_csv(tmp_path / "small.csv").set_index(["arm", "batch_size"])
    assert set(table.index) == {(arm, size) for arm in SMALL for size in (1, 8)}
    assert (
        table[["token_forwards", "model_calls", "attended_positions", "ms_min", "cpu_ms_min"]] > 0
    ).all(axis=None)
    assert (table["ms_min"] <= table["ms_median"]).all()
    assert table[["machine", "commit", "ours_torch", "ours_transformers"]].notna().all(axis=None)
    assert "F 0.05 ÷ E" in done.stdout
    assert (table.loc[["E", "H"], "compared"] == 8).all()
    assert (table.loc[["E", "H"], "differing"] == 0).all()
    # A batch of one question has no padding, so that both arms run the same tokens and positions.
    for name in ("token_forwards", "attended_positions"):
        assert table.loc[("E", 1), name] == table.loc[("G", 1), name]
        assert table.loc[("E", 8), name] < table.loc[("G", 8), name]


def test_attended_positions_by_hand():
    counts = ladder_release.Counts()
    ids = torch.zeros(2, 3, dtype=torch.long)
    counts.hook(None, (), {"input_ids": ids})
    assert (counts.token_forwards, counts.attended_positions) == (6, 2 * (1 + 2 + 3))
    counts.hook(
        None, (), {"input_ids": ids, "past_key_values": SimpleNamespace(get_seq_length=lambda: 2)}
    )
    assert counts.attended_positions == 12 + 2 * (3 + 4 + 5)
    # One row padded on the left by two, the other not: 0 + 0 + 1 and 1 + 2 + 3.
    counts.hook(
        None, (), {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1], [1, 1, 1]])}
    )
    assert counts.attended_positions == 36 + 7
    packed = torch.tensor([[[[0.0, -1e38, 0.0], [0.0, 0.0, 0.0], [-1e38, 0.0, -1e38]]]])
    counts.hook(None, (), {"input_ids": ids[:1], "attention_mask": packed})
    assert counts.attended_positions == 43 + 6
    assert counts.model_calls == 4


def test_on_a_device_all_is_measured_in_one_command(tmp_path):
    options = [
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--models",
        "facts-2m",
        "--questions",
        "2",
        "--minutes",
    ]
    command = [sys.executable, str(on_gpu.__file__), *options]
    done = subprocess.run(
        [*command, "9", "--out", str(tmp_path / "all")], capture_output=True, text=True
    )
    steps = pd.read_csv(tmp_path / "all" / "steps.csv").set_index("step")
    assert (done.returncode, set(steps["ended"])) == (0, {"done"}), done.stdout
    table = pd.read_csv(tmp_path / "all" / "agreement.csv").set_index(["dtype", "strategy"])
    assert table.loc["float32", "log_prob_apart"].max() == 0  # the processor beside itself
    assert table.loc["bfloat16", "log_prob_apart"].min() > 0
    assert {"D", "J"} <= set(pd.read_csv(tmp_path / "all" / "ladder_facts-2m.csv")["arm"])
