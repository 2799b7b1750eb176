"""Real servers, which have the bundled model, beside the search in this process: llama.cpp's own, and vLLM's."""

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_endpoint import probabilities

from pro_lib import endpoint, questions
from pro_lib.base.bundled import bundled_models

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
ladder, served = map(importlib.import_module, ("ladder", "served"))

MISSING = [package for package in ("xllamacpp", "gguf") if importlib.util.find_spec(package) is None]
LLAMA_MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} are not installed: pip install 'pro-workbench[server]'"),
]
VLLM_MARKS = [
    pytest.mark.trial,
    pytest.mark.skipif(not ladder.VLLM_PYTHON.exists(), reason="vLLM is not installed: make vllm"),
]


def llama(*values):
    return pytest.param("llama.cpp", *values, marks=LLAMA_MARKS)


def vllm(*values):
    return pytest.param("vLLM", *values, marks=VLLM_MARKS)


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    if request.param == "vLLM":
        serving = importlib.import_module("vllm_server").serving(ladder.VLLM_PYTHON, "facts-2m")
    else:
        llama_cpp = importlib.import_module("llama_cpp")
        path = llama_cpp.write_gguf(bundled_models()["facts-2m"], tmp_path_factory.mktemp("gguf") / "facts-2m.gguf")
        serving = llama_cpp.serving(path, exact=True)
    with serving as url:
        yield url


@pytest.fixture(scope="module")
def asked():
    return questions.load("world-facts", split="test", limit=20, seed=0)


@pytest.mark.parametrize("server", [llama(), vllm()], indirect=True)
def test_it_reads_prompts_and_computes_log_probabilities_as_transformers_does(server, facts_2m, asked):
    told = served.agreement(server, facts_2m, asked.prompts())
    assert (told["tokens"], told["greedy"]) == (0, 0)
    assert told["largest"] < 1e-4


# One at a time or several: then vLLM would cut lists wherever tokens are named beside them.
SEARCHES = [llama(alpha, 8, 18) for alpha in (0.2, 0.05)]
SEARCHES += [vllm(alpha, concurrency, 19) for alpha in (0.2, 0.05) for concurrency in (1, 8)]


@pytest.mark.parametrize(("server", "alpha", "concurrency", "least"), SEARCHES, indirect=["server"])
def test_what_is_decided_over_it_is_what_the_search_here_finds(server, facts_2m, asked, alpha, concurrency, least):
    came = served.searches(server, facts_2m, asked, alpha, concurrency=concurrency)
    assert (came["otherwise"], came["decided_here"]) == (0, 20)
    assert came["decided"] >= least
    assert came["of_token"] < 1e-4
    # A found answer has all that stop tokens not listed may add.
    assert came["of_answer"] < 0.02
    assert came["noise"] < 1e-3


@pytest.mark.parametrize("server", [llama()], indirect=True)
def test_texts_that_it_reads_anew_come_to_the_same_and_it_is_said_that_it_tells_no_tokens_by_name(
    server, facts_2m, asked
):
    few = replace(asked, table=asked.table.head(8))
    options = {"model": "facts-2m", "search_alpha": 0.2, "progress": False}
    as_texts = endpoint.from_endpoint(f"{server}/v1", few, n_stop_tokens=2, **options)
    as_ids = endpoint.from_endpoint(f"{server}/v1", few, tokenizer=facts_2m.tokenizer, **options)
    assert "does not tell those named" in as_ids.info.provenance["stop_tokens"]
    statuses = zip(as_texts.questions["status"], as_ids.questions["status"], strict=True)
    decided = [name for name, both in zip(few.table["question_id"], statuses, strict=True) if "undecided" not in both]
    assert len(decided) >= 7
    for question_id in decided:
        texts = [probabilities(run, question_id, 0.2, lambda row: row.text).keys() for run in (as_texts, as_ids)]
        assert texts[0] == texts[1]
