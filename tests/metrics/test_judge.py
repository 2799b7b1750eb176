"""A language model as judge: verdicts, refusals, and the file that keeps the verdicts."""

import numpy as np
import pytest

from pro_lib.common.validation import SentenceError
from pro_lib.generation.models import load_model
from pro_lib.metrics.judge_model import judge

QUESTIONS = [f"Who is number {number}?" for number in range(40)]
REFERENCES = [["Ada"]] * 40
ANSWERS = ["Ada", "Bob"] * 20


class Judge:
    """A judge that compares the texts of its prompt, or has the same row for every prompt."""

    name = "judge"

    def __init__(self, *, fingerprint="1", fails_after=1000, row=None):
        self.fingerprint = fingerprint
        self.n_left = fails_after
        self.row = row
        self.prompts = []

    def choice_log_probs(self, prompts, choices):
        self.n_left -= len(prompts)
        if self.n_left < 0:
            raise ConnectionError("the server is gone")
        self.prompts += prompts
        rows = [[0.6, 0.3] if "answer: Ada" in prompt else [0.1, 0.8] for prompt in prompts]
        return np.log([self.row or row for row in rows])


def judge_all(model, cache=None, references=REFERENCES):
    return judge(QUESTIONS, references, ANSWERS, model=model, cache=cache)


def test_a_verdict_is_the_share_of_the_first_choice():
    table = judge_all(Judge())
    assert table["p_right"][:2].tolist() == pytest.approx([2 / 3, 1 / 9])
    assert table["mass"][:2].tolist() == pytest.approx([0.9, 0.9])
    assert set(table["status"]) == {"judged"}


@pytest.mark.parametrize(
    ("row", "status", "p_right"),
    [
        ([np.nan, np.nan], "unknown", np.nan),
        ([np.nan, 0.5], "refused", np.nan),
        ([np.nan, 0.9], "judged", 0.1),
    ],
)
def test_a_choice_without_a_value_has_at_most_the_rest(row, status, p_right):
    table = judge_all(Judge(row=row))
    assert set(table["status"]) == {status}
    assert table["p_right"][0] == pytest.approx(p_right, nan_ok=True)


def test_equal_prompts_are_sent_once():
    model = Judge()
    table = judge(["Who?"] * 3, [["Ada"]] * 3, ["Ada"] * 3, model=model)
    assert (len(model.prompts), table["status"].tolist()) == (1, ["judged"] * 3)


def test_an_interrupted_call_goes_on_where_it_stopped_and_asks_nothing_again(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    with pytest.raises(ConnectionError):
        judge_all(Judge(fails_after=32), cache)
    model = Judge()
    table = judge_all(model, cache)
    assert len(model.prompts) == 8
    assert table.equals(judge_all(Judge()))
    assert table.equals(judge_all(Judge(fails_after=0), cache))


def test_another_model_or_precision_does_not_read_the_verdicts(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    judge_all(Judge(), cache)
    other = Judge(fingerprint="2")
    judge_all(other, cache)
    assert len(other.prompts) == 40
    arguments = (QUESTIONS[:1], REFERENCES[:1], ANSWERS[:1])
    for dtype in ("float32", "bfloat16"):
        model = load_model("facts-1m", device="cpu", dtype=dtype)
        fresh = judge(*arguments, model=model)
        assert judge(*arguments, model=model, cache=cache).equals(fresh)


def test_unknown_values_are_not_stored(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    judge_all(Judge(row=[np.nan, np.nan]), cache)
    assert cache.read_text() == ""


def test_a_damaged_file_is_named_with_its_line(tmp_path):
    cache = tmp_path / "verdicts.jsonl"
    cache.write_text('{"model": "judge"}\n')
    with pytest.raises(SentenceError, match=r"verdicts\.jsonl, line 1"):
        judge_all(Judge(), cache)


@pytest.mark.parametrize(
    ("references", "words"),
    [([["Ada"]], "same length"), ([[]] * 40, "row 0"), (["Ada"] * 40, "row 0")],
)
def test_every_question_needs_references(references, words):
    with pytest.raises(SentenceError, match=words):
        judge_all(Judge(), references=references)
