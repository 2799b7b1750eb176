"""A real model is downloaded and loaded, and exact search finds the answers that plain passes find.

Tests of the model itself run after `pro download smollm2-135m`, as in CI; elsewhere they are
skipped.
"""

import heapq
import math
import re
from dataclasses import replace

import pytest
import torch
from test_strategies import check_greedy, check_plain_passes
from test_threshold import expected_status

from pro_lib import app, generate, load_model, load_questions
from pro_lib.common import catalog

NAME = "smollm2-135m"
here = pytest.mark.skipif(
    NAME not in catalog.bundled_models(), reason=f"pro download {NAME} was not run"
)


@pytest.fixture(scope="module")
def smollm():
    return load_model(NAME, device="cpu")


@pytest.fixture
def questions():
    return load_questions("world-facts", split="validation", limit=20)


def test_a_gguf_file_is_a_model_by_its_path(tmp_path):
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    assert catalog.model_folder_name(str(tmp_path / "mine.gguf")) == "mine"
    with pytest.raises(FileNotFoundError, match=r"mine\.gguf"):
        load_model(tmp_path / "mine.gguf")


@here
@pytest.mark.slow
def test_with_shots_it_answers_and_no_answer_is_empty(smollm, questions):
    assert app.ask(smollm, "What is the capital of France?").text == "Paris"
    run = generate(smollm, questions, strategy="greedy")
    assert run.answers["finished"].mean() > 0.9
    assert (run.answers["text"] == "").sum() == 0
    assert "chat" not in run.info.parameters


@here
@pytest.mark.slow
def test_without_shots_it_is_asked_in_its_template_or_says_nothing(smollm, questions):
    question_set = replace(questions, shots=())
    how = {"strategy": "greedy", "max_new_tokens": 8}
    words = "questions do not end; raise max_new_tokens=8, or ask with shots"
    with pytest.warns(UserWarning, match=words):
        run = generate(smollm, question_set, **how)
    assert run.info.parameters["chat"] is True
    with pytest.warns(UserWarning, match="the most probable answers to") as warned:
        generate(smollm, question_set, chat=False, **how)
    assert any("of the first 20 questions are empty" in str(warning.message) for warning in warned)
    answer = app.ask(smollm, "What is the capital of France?", n_shots=0, chat=False)
    assert answer.text == ""
    words = "It is to say nothing; the best that says something: .*Paris"
    assert re.search(words, answer.sentence())


@pytest.fixture
def some(size):
    """Return questions that the real model is tried on: 2, 3, or 100 in `make trials`.

    The prompts have few shots, because each plain pass reads a prompt again.
    """
    limit = {"quick": 2, "all": 3, "trials": 100}[size]
    return load_questions("world-facts", split="validation", limit=limit, n_shots=3)


@here
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["multinomial", "diverse_beam"])
def test_its_log_probabilities_are_those_of_plain_passes(smollm, some, strategy):
    run = generate(smollm, some, strategy=strategy, n_answers=3)
    check_plain_passes(smollm, some, run.answers, atol=1e-4)


@here
@pytest.mark.slow
def test_greedy_answers_are_those_of_generate(smollm, some):
    check_greedy(smollm, some, max_new_tokens=32)


@torch.inference_mode()
def best_first(model, prompt: str, *, alpha: float, length: int) -> tuple[dict[tuple, float], bool]:
    """Find every answer with p ≥ alpha by a plain pass for each prefix, the likeliest prefix first.

    The code does not share a line with the package. It returns the log-probabilities of complete
    answers by token ids, and whether an answer was cut.
    """
    ids = model.encode(prompt)
    stops = set(model.endings.stop_ids.tolist())
    closing = set(model.endings.closing_ids.tolist())
    queue = [(0.0, ())]
    answers = {}
    is_open = False
    while queue:
        cost, path = heapq.heappop(queue)
        logits = model.network(torch.tensor([[*ids, *path]]), logits_to_keep=1).logits[0, -1]
        log_probs = logits.double().log_softmax(-1)
        ending = -cost + log_probs[sorted(stops)].logsumexp(0).item()
        if ending >= math.log(alpha):
            answers[path] = ending
        likely = (log_probs - cost >= math.log(alpha)).nonzero().squeeze(1).tolist()
        for token in set(likely) - stops:
            longer = (*path, token)
            log_prob = log_probs[token].item() - cost
            if token in closing:
                answers[longer] = log_prob
            elif len(longer) < length:
                heapq.heappush(queue, (-log_prob, longer))
            else:
                is_open = True
    return answers, is_open


@here
@pytest.mark.slow
def test_certificates_are_those_of_an_independent_best_first_search(smollm, some):
    run = generate(smollm, some, strategy="threshold", search_alpha=0.05)
    check_plain_passes(smollm, some, run.answers, atol=1e-4)
    answers = run.answers.assign(path=run.answers["token_ids"].map(tuple)).set_index("question_id")
    for question, prompt in zip(run.questions.itertuples(), some.prompts(), strict=True):
        expected, is_open = best_first(smollm, prompt, alpha=0.05, length=32)
        rows = answers.loc[[question.question_id]]
        complete = rows["log_prob"] + rows["end_log_prob"].fillna(0.0)
        likely = rows["finished"] & (complete >= math.log(0.05))
        found = dict(zip(rows["path"][likely], complete[likely], strict=True))
        assert found == pytest.approx(expected, abs=1e-4)
        fallback = "fallback" if rows["finished"].any() else "cut"
        assert question.status == expected_status(is_open, expected, fallback)


@pytest.mark.slow
@pytest.mark.skipif(
    "gemma-3-270m" not in catalog.bundled_models(), reason="pro download gemma-3-270m was not run"
)
def test_log_probabilities_of_gemma_are_those_of_plain_passes():
    gemma = load_model("gemma-3-270m", device="cpu")
    questions = load_questions("world-facts", split="validation", limit=100)
    run = generate(gemma, questions, strategy="greedy")
    check_plain_passes(gemma, questions, run.answers, atol=1e-4)
