"""The ladder of speed at toy size: a run of our own arms, its counts by hand, and the random models' calibration."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

ladder, ladder_release, random_models = map(importlib.import_module, ("ladder", "ladder_release", "random_models"))


def run(*options):
    command = [sys.executable, str(ROOT / "benchmarks" / "ladder.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Eight questions without shots through the arms that need no second environment, and what was printed."""
    out = tmp_path_factory.mktemp("ladder") / "small.csv"
    options = ["--arms", "D", "E", "F 0.05", "G", "--shots", 0, "--questions", 8, "--batch-sizes", 1, 8]
    done = run(*options, "--repeats", 1, "--threads", 1, "--out", out)
    return pd.read_csv(out).set_index(["arm", "batch_size"]), done.stdout, out


def test_a_small_run_counts_and_times_every_arm_at_every_batch_size(small):
    table, printed, _ = small
    assert set(table.index) == {(arm, size) for arm in ("D", "E", "F 0.05", "G") for size in (1, 8)}
    assert (table[["token_forwards", "model_calls", "attended_positions", "ms_min", "cpu_ms_min"]] > 0).all(axis=None)
    assert (table["ms_min"] <= table["ms_median"]).all()
    assert table[["machine", "commit", "ours_torch", "ours_transformers"]].notna().all(axis=None)
    assert "F 0.05 ÷ E" in printed


def test_our_greedy_answers_as_the_library_does_with_fewer_tokens_and_no_more_positions(small):
    table, _, _ = small
    assert (table.loc["E", "compared"] == 8).all()
    assert (table.loc["E", "differing"] == 0).all()
    # One question at a time nothing is padded: both put the same tokens through and see the same positions.
    for name in ("token_forwards", "attended_positions"):
        assert table.loc[("E", 1), name] == table.loc[("G", 1), name]
        assert table.loc[("E", 8), name] < table.loc[("G", 8), name]


def test_packing_changes_the_calls_and_nothing_else(small):
    table, _, _ = small
    for arm in ("D", "E", "F 0.05"):
        for name in ("token_forwards", "attended_positions"):
            assert table.loc[(arm, 1), name] == table.loc[(arm, 8), name]
        assert table.loc[(arm, 8), "model_calls"] < table.loc[(arm, 1), "model_calls"]


def test_memory_is_that_above_the_idle_model(small):
    table, _, _ = small
    peak = table["peak_mib"].dropna()
    assert list(peak.index) == [("D", 8)]
    # Less than the weights themselves, which are there before.
    assert 0 < peak.iloc[0] < 200


def test_the_ratios_are_written_beside_the_table(small):
    table, _, out = small
    ratios = pd.read_csv(out.with_name("small_ratios.csv")).set_index(["ratio", "batch_size"])
    expected = table.loc[("D", 8), "ms_min"] / table.loc[("F 0.05", 8), "ms_min"]
    assert ratios.loc[("D ÷ F 0.05", 8), "value"] == pytest.approx(expected)
    assert ratios.loc[("D ÷ F 0.05", 8), "goal"] == "≥ 4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arms", "A", "--release-python", "no/such/python"], "arms A, B and C need transformers 4.56.2"),
        (["--arms", "E", "--repeats", "0"], "must be positive"),
        (["--arms", "H"], "invalid choice: 'H'"),
    ],
)
def test_a_command_line_that_cannot_be_run_is_refused(capsys, options, message):
    with pytest.raises(SystemExit):
        ladder.parse(options)
    assert message in capsys.readouterr().err


def test_cases_run_one_by_one_arms_once_and_no_batch_of_one_padded():
    found = [(case.arm, case.batch_size, case.questions) for case in ladder.cases(["A", "C", "D"], [1, 32], 64, 8)]
    assert found == [("A", 1, 8), ("C", 8, 8), ("D", 1, 64), ("D", 32, 64)]


def test_a_goal_is_met_on_its_side():
    rows = [("m", 10, "A", 1, 30.0), ("m", 10, "D", 32, 5.0), ("m", 10, "F 0.05", 32, 2.0), ("m", 10, "E", 32, 0.8)]
    table = pd.DataFrame(rows, columns=["model", "shots", "arm", "batch_size", "ms_min"])
    found = ladder.ratios(table).set_index("ratio")
    assert found["value"].to_dict() == pytest.approx(
        {"A ÷ D": 6, "A ÷ F 0.05": 15, "D ÷ F 0.05": 2.5, "F 0.05 ÷ E": 2.5}
    )
    assert found["met"].to_dict() == {"A ÷ D": True, "A ÷ F 0.05": False, "D ÷ F 0.05": False, "F 0.05 ÷ E": False}


def test_environments_that_read_the_weights_differently_are_refused():
    def worker(value):
        return argparse.Namespace(greeting={"log_probs": [value], "versions": {"torch": "2"}})

    assert ladder._checked_versions({"ours": worker(-1.0), "release": worker(-1.0005)})["release_torch"] == "2"
    with pytest.raises(ValueError, match=r"release is off by 0\.01 nats"):
        ladder._checked_versions({"ours": worker(-1.0), "release": worker(-1.01)})


def test_attended_positions_by_hand():
    class Cache:
        def get_seq_length(self):
            return 2

    counts, ids = ladder_release.Counts(), torch.zeros(2, 3, dtype=torch.long)
    counts.hook(None, (), {"input_ids": ids})
    assert (counts.token_forwards, counts.attended_positions) == (6, 2 * (1 + 2 + 3))
    counts.hook(None, (), {"input_ids": ids, "past_key_values": Cache()})
    assert counts.attended_positions == 12 + 2 * (3 + 4 + 5)
    # One row padded on the left by two, the other not: 0 + 0 + 1 and 1 + 2 + 3.
    counts.hook(None, (), {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1], [1, 1, 1]])})
    assert counts.attended_positions == 36 + 7
    packed = torch.tensor([[[[0.0, -1e38, 0.0], [0.0, 0.0, 0.0], [-1e38, 0.0, -1e38]]]])
    counts.hook(None, (), {"input_ids": ids[:1], "attention_mask": packed})
    assert counts.attended_positions == 43 + 6
    assert counts.model_calls == 4


TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A very small random model, calibrated on random prompts that end alike, and what its answers look like."""
    generator = torch.Generator().manual_seed(0)
    prompts = [[*torch.randint(2, 3000, (9,), generator=generator).tolist(), 42] for _ in range(96)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(random_models.SHAPES, "random-tiny", TINY)
        patch.setattr(random_models, "VOCABULARY", 3000)
        folder = tmp_path_factory.mktemp("random")
        constants, found = random_models.build("random-tiny", folder / "one", prompts)
        again, _ = random_models.build("random-tiny", folder / "two", prompts)
    return folder, constants, again, found


def test_calibrated_answers_have_the_asked_length_and_shares(calibrated):
    _, _, _, found = calibrated
    # One question of the 96 may fall on either side, and the bisection ends somewhere.
    assert found.mean_length == pytest.approx(random_models.MEAN_LENGTH, abs=0.3)
    assert found.share_likely == pytest.approx(random_models.SHARE_LIKELY, abs=0.08)
    assert found.share_possible == pytest.approx(random_models.SHARE_POSSIBLE, abs=0.03)


def test_answers_that_cannot_be_calibrated_are_refused(tmp_path):
    # One prompt, asked twice: its answer has one probability, and no share of one half is near the targets.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(random_models.SHAPES, "random-tiny", TINY)
        patch.setattr(random_models, "VOCABULARY", 3000)
        with pytest.raises(ValueError, match="random-tiny with seed 0 cannot be calibrated on these prompts"):
            random_models.build("random-tiny", tmp_path, [[5, 6, 42]] * 2)


def test_a_random_model_is_decided_by_its_seed(calibrated):
    folder, constants, again, _ = calibrated
    assert constants == again
    one, two = ((folder / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("name", "prompts", "message"),
    [("random-1b", [[5]], "random model 'random-1b' is unknown"), ("random-35m", [[5, 99_999]], "has token 99999")],
)
def test_a_random_model_that_cannot_be_made_is_refused(tmp_path, name, prompts, message):
    with pytest.raises(ValueError, match=message):
        random_models.build(name, tmp_path, prompts)
