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


@pytest.mark.parametrize(
    ("log_probs", "expected"),
    [
        (np.log([0.2, 0.6]), 0.75),
        ([-5000.0, -4000.0], 1),  # probabilities that underflow
        ([np.nan, -1.0], np.nan),
    ],
)
def test_a_model_that_believes_its_answer_is_certain(log_probs, expected):
    [score] = p_true(Recorder(*log_probs), ["Who?"], ["Ada"])
    assert score == pytest.approx(expected, nan_ok=True)


def test_the_first_choice_is_true():
    model = Recorder(-1.0, -1.0)
    p_true(model, ["Who?"], ["Ada"])
    assert model.choices == (" (A)", " (B)")
    assert "(A) True\n(B) False" in model.prompts[0]


def test_ideas_and_shots_are_in_the_prompt():
    prompt = p_true_prompt("Who?", "Ada", ["Bob", "Cid"], shots="SHOTS\n")
    assert prompt.startswith("SHOTS\nQuestion: Who?\nHere are some brainstormed ideas:\nBob\nCid\n")
    assert "Possible answer: Ada" in prompt


def test_lengths_must_agree():
    with pytest.raises(SentenceError, match="got 2, 1 and 2"):
        p_true(Recorder(-1.0, -1.0), ["Who?", "What?"], ["Ada"])
