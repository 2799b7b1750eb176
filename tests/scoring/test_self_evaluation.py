"""P(True): prompts, orientation and values worked by hand."""

import numpy as np
import pytest

from pro_lib.common.validation import SentenceError
from pro_lib.scoring.self_evaluation import p_true, p_true_prompt


class Recorder:
    """A model with the same log-probabilities for every prompt, which keeps the prompts."""

    name, fingerprint = "recorder", "1"

    def __init__(self, *row):
        self.row = row
        self.prompts = []

    def choice_log_probs(self, prompts, choices):
        self.prompts += prompts
        self.choices = choices
        return np.array([self.row] * len(prompts))


def test_a_model_that_believes_its_answer_is_certain():
    certain = p_true(Recorder(np.log(0.6), np.log(0.2)), ["Who?"], ["Ada"])
    doubtful = p_true(Recorder(np.log(0.2), np.log(0.6)), ["Who?"], ["Ada"])
    assert (certain[0], doubtful[0]) == (pytest.approx(0.25), pytest.approx(0.75))


def test_the_first_choice_is_true():
    model = Recorder(-1.0, -1.0)
    p_true(model, ["Who?"], ["Ada"])
    assert model.choices == (" (A)", " (B)")
    assert "(A) True\n(B) False" in model.prompts[0]


def test_probabilities_that_underflow_still_compare():
    assert p_true(Recorder(-5000.0, -4000.0), ["Who?"], ["Ada"])[0] == pytest.approx(1)


def test_a_value_that_the_model_does_not_tell_is_missing():
    assert np.isnan(p_true(Recorder(np.nan, -1.0), ["Who?"], ["Ada"])[0])


def test_ideas_and_shots_are_in_the_prompt():
    prompt = p_true_prompt("Who?", "Ada", ["Bob", "Cid"], shots="SHOTS\n")
    assert prompt.startswith("SHOTS\nQuestion: Who?\nHere are some brainstormed ideas:\nBob\nCid\n")
    assert "Possible answer: Ada" in prompt


def test_lengths_must_agree():
    with pytest.raises(SentenceError, match="got 2, 1 and 2"):
        p_true(Recorder(-1.0, -1.0), ["Who?", "What?"], ["Ada"])
