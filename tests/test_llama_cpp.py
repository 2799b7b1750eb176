"""A real server: llama.cpp's own, which has the bundled model as GGUF, beside the search in this process."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_endpoint import probabilities

from pro_lib import endpoint, models, questions
from pro_lib.base.bundled import bundled_models

for package in ("xllamacpp", "gguf"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'pro-workbench[server]'")

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
llama_cpp, served = map(importlib.import_module, ("llama_cpp", "served"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = llama_cpp.write_gguf(bundled_models()["facts-2m"], tmp_path_factory.mktemp("gguf") / "facts-2m.gguf")
    with llama_cpp.serving(path, exact=True) as url:
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


@pytest.mark.parametrize("alpha", [0.2, 0.05])
def test_what_is_decided_over_it_is_what_the_search_here_finds(server, model, asked, alpha):
    came = served.searches(server, model, asked, alpha)
    assert (came["otherwise"], came["decided_here"]) == (0, 20)
    assert came["decided"] >= 18
    assert came["of_token"] < 1e-4
    # A found answer has all that stop tokens not listed may add.
    assert came["of_answer"] < 0.02
    assert came["noise"] < 1e-3


def test_texts_that_it_reads_anew_come_to_the_same_and_it_is_said_that_it_tells_no_tokens_by_name(server, model, asked):
    few = replace(asked, table=asked.table.head(8))
    options = {"model": "facts-2m", "search_alpha": 0.2, "progress": False}
    as_texts = endpoint.from_endpoint(f"{server}/v1", few, n_stop_tokens=2, **options)
    as_ids = endpoint.from_endpoint(f"{server}/v1", few, tokenizer=model.tokenizer, **options)
    assert "does not tell those named" in as_ids.info.provenance["stop_tokens"]
    statuses = zip(as_texts.questions["status"], as_ids.questions["status"], strict=True)
    decided = [name for name, both in zip(few.table["question_id"], statuses, strict=True) if "undecided" not in both]
    assert len(decided) >= 7
    for question_id in decided:
        texts = [probabilities(run, question_id, 0.2, lambda row: row.text).keys() for run in (as_texts, as_ids)]
        assert texts[0] == texts[1]
