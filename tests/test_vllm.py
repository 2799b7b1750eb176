"""A real server and engine: vLLM's own, where `make vllm` has installed it, beside the search in this process."""

import importlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pro_lib import models, questions

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / "build" / "vllm" / "bin" / "python"
sys.path.insert(0, str(ROOT / "benchmarks"))
served, vllm_server = map(importlib.import_module, ("served", "vllm_server"))

pytestmark = [pytest.mark.trial, pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is not installed: make vllm")]


@pytest.fixture(scope="module")
def server():
    with vllm_server.serving(PYTHON, "facts-2m") as url:
        yield url


@pytest.fixture(scope="module")
def asked():
    return questions.load("world-facts", split="test", limit=20, seed=0)


@pytest.fixture(scope="module")
def model():
    return models.load("facts-2m", device="cpu")


def test_it_reads_prompts_and_computes_log_probabilities_as_transformers_does(server, model, asked):
    told = served.agreement(server, model, asked.prompts())
    assert (told["tokens"], told["greedy"]) == (0, 0)
    assert told["largest"] < 1e-4


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_what_is_decided_over_it_is_what_the_search_here_finds(server, model, asked, alpha, concurrency):
    """Several at once, lists would be cut wherever tokens are named beside them."""
    came = served.searches(server, model, asked, alpha, concurrency=concurrency)
    assert (came["otherwise"], came["decided_here"]) == (0, 20)
    assert came["decided"] >= 19
    assert came["of_token"] < 1e-4
    assert came["noise"] < 1e-3


def test_its_greedy_answers_on_the_ladder_are_the_library_s(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "ladder.py"), "--arms", "E", "G", "K", "L", "--shots", "10"]
    options = ["--questions", "4", "--batch-sizes", "1", "4", "--repeats", "1", "--out", str(tmp_path / "ladder.csv")]
    subprocess.run([*command, *options, "--no-memory"], check=True)
    table = pd.read_csv(tmp_path / "ladder.csv").set_index(["arm", "batch_size"])
    assert (table.loc["K", ["compared", "differing"]] == [4, 0]).all(axis=None)
    assert (table.loc["L", "ms_min"] > 0).all()
