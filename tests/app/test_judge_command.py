"""`pro judge`: its file of verdicts, what it asks before it pays, and answers without a verdict."""

import json
import math

import pandas as pd
import pytest
from click.testing import CliRunner
from fake_server import replying

from pro_lib.app.cli import pro
from pro_lib.importing import read_labels

LOG_PROBS = {"A": math.log(0.8), "B": math.log(0.1)}
WRONG = {"A": math.log(0.1), "B": math.log(0.8)}
OTHER_WORDS = {"Sorry": math.log(0.9), "B": math.log(0.01)}


def reply(listed):
    return {"choices": [{"logprobs": {"top_logprobs": [listed]}}]}


def record(number, *texts):
    """A question with these answers, the first the most probable."""
    answers = [{"text": text, "token_log_probs": [-1.0 - rank]} for rank, text in enumerate(texts)]
    question = {"question_id": f"q{number}", "question": f"Who is {number}?"}
    return question | {"references": ["Ada"], "answers": answers}


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.jsonl"
    rows = [record(0, "Ada", "Bob"), record(1, "Bob"), record(2, "Eve")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judge(records, url, *options, text=None):
    """Run the command in the records' folder, one request at a time."""
    output = str(records.parent / "verdicts.csv")
    arguments = ["judge", str(records), "--model", "judge", "--server", url, "--output", output]
    arguments += ["--endpoint", "completions", "--concurrency", "1", *options]
    return CliRunner().invoke(pro, arguments, input=text)


def test_the_verdicts_are_a_file_of_labels(records):
    with replying(reply(LOG_PROBS), reply(WRONG), reply(OTHER_WORDS)) as (url, _):
        result = judge(records, url, "--yes")
    assert result.exit_code == 0, result.output
    assert (
        "2 verdicts, 1 of them right, 0 of them close (probability between 0.4 and 0.6); "
        "1 answers without one, because both letters have less than half of the probability"
        in result.output
    )
    table = pd.read_csv(records.parent / "verdicts.csv")
    assert table["status"].tolist() == ["judged", "judged", "refused"]
    labels = read_labels(records.parent / "verdicts.csv")
    assert labels[["question_id", "text", "correct"]].to_dict("records") == [
        {"question_id": "q0", "text": "Ada", "correct": True},
        {"question_id": "q1", "text": "Bob", "correct": False},
    ]


def test_the_verdicts_decide_what_pro_score_calls_right(records):
    with replying(reply(LOG_PROBS), reply(WRONG), reply(WRONG)) as (url, _):
        judge(records, url, "--yes")
    labels = str(records.parent / "verdicts.csv")
    result = CliRunner().invoke(pro, ["score", str(records), "--correctness", labels])
    assert "33.3% right" in result.output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Who is 1?", "Who is not 1?", "line 3: the label is for question 'Who is 1?', but"),
        ('"Ada"]', '"Ada", "Bob"]', "line 2: the label is for accepted_answers 'Ada', but"),
        ('"Bob"', '"Bobby"', "1 labelled questions (first 'q1') have no label for the answer"),
    ],
)
def test_verdicts_are_refused_if_what_was_judged_has_changed(records, old, new, words):
    with replying(reply(LOG_PROBS), reply(WRONG), reply(WRONG)) as (url, _):
        judge(records, url, "--yes")
    records.write_text(records.read_text().replace(old, new))
    verdicts = str(records.parent / "verdicts.csv")
    result = CliRunner().invoke(pro, ["score", str(records), "--correctness", verdicts])
    assert result.exit_code == 1
    assert words in result.output


def test_every_answer_is_judged_where_that_is_asked_for(records):
    with replying(reply(WRONG)) as (url, requests):
        judge(records, url, "--yes", "--every-answer")
    assert len(requests) == 4


def test_nothing_is_sent_before_the_user_agrees(records):
    with replying(reply(WRONG)) as (url, requests):
        result = judge(records, url, text="n\n")
    assert "Send 3 requests with about" in result.output
    assert (result.exit_code, requests) == (1, [])
    assert not (records.parent / "verdicts.csv").exists()


def test_a_local_model_can_be_the_judge(records):
    output = records.parent / "verdicts.csv"
    arguments = ["judge", str(records), "--model", "facts-1m", "--output", str(output)]
    result = CliRunner().invoke(pro, arguments)
    assert "0 verdicts" in result.output  # the toy model says neither (A) nor (B)
    assert pd.read_csv(output)["status"].tolist() == ["refused"] * 3


def test_answers_without_references_are_an_error(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record(0, "Ada") | {"references": None}) + "\n")
    result = judge(path, "http://localhost:1/v1", "--yes")
    assert result.exit_code == 1
    assert "give a file of questions with references (--questions)" in result.output
