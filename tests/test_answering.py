"""Answer or abstain: the promise of a calibration run, what it refuses, and the same over HTTP."""

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

import pro_lib
from pro_lib import answering, promises
from pro_lib import questions as question_sets
from pro_lib.evaluation import evaluate
from pro_lib.files import RunError
from pro_lib.generate import generate


@pytest.fixture(scope="module")
def calibration(facts_2m):
    """A run of 150 validation and 60 test questions."""
    both = question_sets.load("world-facts", split=["validation", "test"], limit=150)
    table = both.table.groupby("split").head(150)
    table = table[(table["split"] == "validation") | (table.groupby("split").cumcount() < 60)].reset_index(drop=True)
    options = {"strategy": "threshold", "search_alpha": 0.05, "progress": False}
    return generate(facts_2m, replace(both, table=table), **options)


@pytest.fixture(scope="module")
def answers(facts_2m, calibration):
    return pro_lib.answerer(facts_2m, calibration=calibration, target=0.7)


def test_the_promise_is_that_of_its_validation_questions_and_replies_keep_to_it(answers, calibration):
    known, others = (evaluate(calibration, split=split) for split in ("validation", "test"))
    shown = promises.promise(known.pro(0.4), known.correct, target=0.7, unlabelled=others.pro(0.4))
    assert answers.promise == shown
    assert shown.threshold is not None
    replies = [answers(question) for question in others.answers.merge(calibration.questions)["question"]]
    np.testing.assert_allclose([reply.uncertainty for reply in replies], others.pro(0.4), atol=1e-4)
    clear = np.abs(others.pro(0.4) - shown.threshold) > 1e-4  # the threshold is one of the scores, asked here alone
    answered = np.array([reply.answered for reply in replies])
    assert (answered == shown.answers(others.pro(0.4)))[clear].all()
    assert {True, False} == {reply.answered for reply in replies}
    for reply, text in zip(replies, others.answers["text"], strict=True):
        assert reply.answer == (text if reply.answered else None)
        assert reply.promise == shown.sentence()
        assert reply.status in ("certified", "fallback", "undecided")


def test_without_a_validation_split_every_question_shows_the_promise(facts_2m, calibration):
    tested = calibration.select(split="validation")
    judged = evaluate(tested)
    shown = promises.promise(judged.pro(0.4), judged.correct, target=0.7)
    assert pro_lib.answerer(facts_2m, calibration=tested, target=0.7).promise == shown


def test_where_nothing_is_promised_nothing_is_answered(facts_2m, calibration):
    answers = pro_lib.answerer(facts_2m, calibration=calibration, target=0.999)
    reply = answers("What is the capital of France?")
    assert (reply.answer, reply.answered) == (None, False)
    assert reply.promise.startswith("Nothing can be promised")


def test_an_answer_that_does_not_end_is_no_answer(answers):
    short = replace(answers, settings={**answers.settings, "max_new_tokens": 1})
    assert short("Who wrote War and Peace?") == answering.Reply(None, None, False, answers.promise.sentence(), "cut")


def test_a_calibration_of_another_model_prompt_or_set_is_refused_with_the_difference(facts_2m, calibration):
    same = question_sets.load("world-facts", limit=5)
    assert pro_lib.answerer(facts_2m, calibration=calibration, questions=same)
    quantised = replace(calibration.info, parameters={**calibration.info.parameters, "quantization": "8bit"})
    records = pro_lib.imports.from_records([{"question_id": "a", "answers": [{"text": "b", "log_prob": -1.0}]}])
    for model, run, questions, words in (
        ("facts-1m", calibration, None, "was made with fingerprint="),
        (facts_2m, replace(calibration, info=quantised), None, "quantization='8bit', now quantization=None"),
        (facts_2m, calibration, question_sets.load("world-facts", limit=5, n_shots=3), "was made with shots="),
        (facts_2m, calibration, replace(same, name="others"), "set='world-facts', now set='others'"),
        (facts_2m, records, None, "does not say how"),
    ):
        with pytest.raises(RunError, match=words):
            pro_lib.answerer(model, calibration=run, questions=questions)


def test_over_http_replies_are_the_same_and_bad_requests_end_in_a_sentence(answers):
    with TestClient(answering.application(answers, length=200)) as client:
        reply = client.post("/", json={"question": "What is the capital of France?"})
        assert (reply.status_code, answering.Reply(**reply.json())) == (200, answers("What is the capital of France?"))
        assert client.get("/").json() == {"promise": answers.promise.sentence()}
        bad = [(b"", 422), (b"{", 422), (b"[1]", 422), (b'{"question": 3}', 422), (b'{"question": " "}', 422)]
        bad += [(b'{"other": "x"}', 422), (json.dumps({"question": "x" * 300}).encode(), 413), (b"\xff\xfe", 422)]
        for content, status in bad:
            reply = client.post("/", content=content)
            assert (reply.status_code, list(reply.json())) == (status, ["error"])
        chunked = client.post("/", content=iter([b'{"question": ', b'"Who?"}']))
        assert chunked.status_code == 413


class Slow:
    """Answers when it is let."""

    promise = promises.Promise(0.8, 0.95, None, 0, 0, 0)

    def __init__(self):
        self.may_go, self.at_once, self.most = threading.Event(), 0, 0

    def __call__(self, question):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.may_go.wait(10)
        self.at_once -= 1
        return answering.Reply(question, 0.1, True, "", None)


def test_questions_wait_in_turn_no_more_than_so_many_and_none_longer_than_allowed():
    slow, replies = Slow(), {}
    with TestClient(answering.application(slow, waiting=2, seconds=0.5)) as client:

        def post(name):
            replies[name] = client.post("/", json={"question": name}).status_code

        first = [threading.Thread(target=post, args=(name,)) for name in "ab"]
        for thread in first:
            thread.start()
        time.sleep(0.2)
        post("c")
        for thread in first:
            thread.join()
        assert (replies["c"], replies["a"], replies["b"]) == (503, 504, 504)
        slow.may_go.set()
        time.sleep(0.3)
        post("d")
    assert replies["d"] == 200
    assert slow.most == 1
