"""`pro judge`: its file of verdicts, what it asks before it pays, and answers without a verdict."""

import math

import pandas as pd
import pytest
from commands import record, refused, typed
from fake_server import replying

from pro_lib.importing import read_labels

LOG_PROBS = {"A": math.log(0.8), "B": math.log(0.1)}
WRONG = {"A": math.log(0.1), "B": math.log(0.8)}
OTHER_WORDS = {"Sorry": math.log(0.9), "B": math.log(0.01)}


def reply(listed):
    return {"choices": [{"logprobs": {"top_logprobs": [listed]}}]}


def asked(number, *texts):
    """Return a question with these answers, the first the most probable."""
    answers = [{"text": text, "token_log_probs": [-1.0 - rank]} for rank, text in enumerate(texts)]
    return record(number, *answers, question=f"Who is {number}?", references=["Ada"])


@pytest.fixture
def records(write):
    return write(asked(0, "Ada", "Bob"), asked(1, "Bob"), asked(2, "Eve"), name="records.jsonl")


def judge(records, url, *options, **keywords):
    """Run the command in the records' folder, one request at a time; return what it prints."""
    words = ["judge", records, "--model", "judge", "--server", url]
    words += ["--output", records.parent / "verdicts.csv"]
    words += ["--endpoint", "completions", "--concurrency", "1", *options]
    return typed(*words, **keywords)


@pytest.fixture
def verdicts(records):
    """A file of verdicts: an answer is right, another is wrong, and the third has no verdict."""
    with replying(reply(LOG_PROBS), reply(WRONG), reply(OTHER_WORDS)) as (url, _):
        out, _ = judge(records, url, "--yes")
    assert "2 verdicts, 1 of them right, 0 of them close" in out
    assert "1 answers without one, because both letters have less than half" in out
    return records.parent / "verdicts.csv"


def test_the_verdicts_are_a_file_of_labels(records, verdicts):
    assert pd.read_csv(verdicts)["status"].tolist() == ["judged", "judged", "refused"]
    columns = read_labels(verdicts)[["question_id", "text", "correct"]]
    assert columns.to_numpy().tolist() == [["q0", "Ada", True], ["q1", "Bob", False]]
    assert "50.0% right" in typed("score", records, "--correctness", verdicts)[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Who is 1?", "Who is not 1?", "line 3: the label is for question 'Who is 1?', but"),
        ('"Ada"]', '"Ada", "Bob"]', "line 2: the label is for accepted_answers 'Ada', but"),
        ('"Bob"', '"Bobby"', "1 labelled questions (first 'q1') have no label for the answer"),
    ],
)
def test_verdicts_are_refused_if_what_was_judged_has_changed(records, verdicts, old, new, words):
    records.write_text(records.read_text().replace(old, new))
    assert words in refused("score", records, "--correctness", verdicts)


def test_every_answer_is_judged_where_that_is_asked_for(records):
    with replying(reply(WRONG)) as (url, requests):
        judge(records, url, "--yes", "--every-answer")
    assert len(requests) == 4


def test_nothing_is_sent_before_the_user_agrees(records):
    with replying(reply(WRONG)) as (url, requests):
        _, err = judge(records, url, stdin="n\n", code=1)
    assert "Send 3 requests with about" in err
    assert requests == []
    assert not (records.parent / "verdicts.csv").exists()


def test_a_local_model_can_be_the_judge(records):
    output = records.parent / "verdicts.csv"
    out, _ = typed("judge", records, "--model", "facts-1m", "--output", output)
    assert "0 verdicts" in out  # the toy model says neither (A) nor (B)
    assert pd.read_csv(output)["status"].tolist() == ["refused"] * 3


def test_answers_without_references_are_an_error(write):
    records = write(asked(0, "Ada") | {"references": None})
    _, err = judge(records, "http://localhost:1/v1", "--yes", code=1)
    assert "give a file of questions with references (--questions)" in err
