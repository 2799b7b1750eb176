"""A language model as judge: verdicts, refusals, and the file that keeps the verdicts."""

import json
from contextlib import suppress

import numpy as np
import pytest

from pro_lib.common.validation import SentenceError
from pro_lib.generation.models import load_model
from pro_lib.metrics.judge_model import judge

QUESTIONS = [f"Who is number {number}?" for number in range(40)]
REFERENCES = [["Ada"]] * 40
ANSWERS = ["Ada", "Bob"] * 20


class Judge:
    """A judge that compares the texts of its prompt, and can fail after some prompts."""

    name = "judge"

    def __init__(self, *, fingerprint="1", fails_after=1000):
        self.fingerprint = fingerprint
        self.n_left = fails_after
        self.prompts = []

    def choice_log_probs(self, prompts, choices):
        self.n_left -= len(prompts)
        if self.n_left < 0:
            raise ConnectionError("the server is gone")
        self.prompts += prompts
        return np.log([[0.6, 0.3] if "answer: Ada" in prompt else [0.1, 0.8] for prompt in prompts])


class Constant(Judge):
    """A judge with the same row for every prompt."""

    def __init__(self, row):
        super().__init__()
        self.row = row

    def choice_log_probs(self, prompts, choices):
        return np.array([self.row] * len(prompts))


def test_a_verdict_is_the_share_of_the_first_choice():
    table = judge(QUESTIONS, REFERENCES, ANSWERS, model=Judge())
    assert table["p_right"][:2].tolist() == [pytest.approx(2 / 3), pytest.approx(1 / 9)]
    assert table["mass"][:2].tolist() == [pytest.approx(0.9)] * 2
    assert set(table["status"]) == {"judged"}


@pytest.mark.parametrize(
    ("row", "status", "p_right"),
    [
        ([np.nan, np.nan], "unknown", np.nan),
        ([np.nan, np.log(0.5)], "refused", np.nan),
        ([np.nan, np.log(0.9)], "judged", 0.1),
    ],
)
def test_a_choice_without_a_value_has_at_most_the_rest(row, status, p_right):
    [verdict] = judge(["Who?"], [["Ada"]], ["Bob"], model=Constant(row)).itertuples()
    assert verdict.status == status
    assert verdict.p_right == pytest.approx(p_right, nan_ok=True)


def test_equal_prompts_are_sent_once():
    model = Judge()
    table = judge(["Who?"] * 3, [["Ada"]] * 3, ["Ada"] * 3, model=model)
    assert (len(model.prompts), table["status"].tolist()) == (1, ["judged"] * 3)


@pytest.mark.parametrize(
    ("first", "second", "n_asked"),
    [
        (Judge(), Judge(), 0),
        (Judge(fails_after=32), Judge(), 8),
        (Judge(), Judge(fingerprint="2"), 40),
    ],
    ids=["stored", "interrupted", "another model"],
)
def test_a_model_is_asked_for_the_verdicts_that_it_has_not_stored(tmp_path, first, second, n_asked):
    cache = tmp_path / "verdicts.jsonl"
    with suppress(ConnectionError):
        judge(QUESTIONS, REFERENCES, ANSWERS, model=first, cache=cache)
    table = judge(QUESTIONS, REFERENCES, ANSWERS, model=second, cache=cache)
    assert len(second.prompts) == n_asked
    assert table.equals(judge(QUESTIONS, REFERENCES, ANSWERS, model=Judge()))


def test_another_precision_of_a_model_does_not_read_its_verdicts(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    arguments = (QUESTIONS[:2], REFERENCES[:2], ANSWERS[:2])
    for dtype in ("float32", "bfloat16"):
        model = load_model("facts-1m", device="cpu", dtype=dtype)
        fresh = judge(*arguments, model=model)
        stored = judge(*arguments, model=model, cache=cache)
        assert stored.equals(fresh)


def test_unknown_values_are_not_stored(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    judge(["Who?"], [["Ada"]], ["Bob"], model=Constant([np.nan, np.nan]), cache=cache)
    assert cache.read_text() == ""


@pytest.mark.parametrize("line", ["not JSON", "[1]", json.dumps({"model": "judge"})])
def test_a_damaged_file_is_named_with_its_line(tmp_path, line):
    cache = tmp_path / "verdicts.jsonl"
    cache.write_text(line + "\n")
    with pytest.raises(SentenceError, match=r"verdicts\.jsonl, line 1"):
        judge(QUESTIONS, REFERENCES, ANSWERS, model=Judge(), cache=cache)


@pytest.mark.parametrize(
    ("references", "words"),
    [([["Ada"]], "same length"), ([[]] * 40, "row 0"), (["Ada"] * 40, "row 0")],
)
def test_every_question_needs_references(references, words):
    with pytest.raises(SentenceError, match=words):
        judge(QUESTIONS, references, ANSWERS, model=Judge())
