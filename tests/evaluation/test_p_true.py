"""The method P(True) of an experiment asks about the answers that are judged."""

import numpy as np
import pytest

from pro_lib.evaluation import evaluate
from pro_lib.evaluation.p_true import with_p_true
from pro_lib.importing import import_answers
from pro_lib.metrics.correctness import AnswerRules


class Recorder:
    """A model that keeps the prompts, and believes every answer with a probability of 3/4."""

    name, fingerprint = "recorder", "1"

    def __init__(self):
        self.prompts = []

    def choice_log_probs(self, prompts, choices):
        self.prompts += prompts
        return np.log([[0.6, 0.2]] * len(prompts))


@pytest.mark.parametrize(
    ("convention", "judged"), [("complete", "Paris, France"), ("answer_tokens", "Paris")]
)
def test_the_model_is_asked_about_the_judged_answer(convention, judged, tmp_path):
    """Its ending makes one answer less probable than the other."""
    answers = [
        {"text": "Paris", "token_log_probs": [-1.0], "end_log_prob": -0.5},
        {"text": "Paris, France", "token_log_probs": [-1.0, -0.25], "end_log_prob": 0.0},
    ]
    record = {"question_id": "a", "question": "a?", "references": ["Paris"], "answers": answers}
    run = import_answers([record])
    rules = AnswerRules(convention=convention)
    assert evaluate(run, rules=rules).answers["text"].tolist() == [judged]
    model = Recorder()
    cache = tmp_path / "replies.jsonl"
    scored = with_p_true(run, run, [], convention=convention, model=model, cache=cache)
    [prompt] = model.prompts
    assert f"Possible answer: {judged}\n" in prompt
    assert scored.questions["score_P(True)"].tolist() == pytest.approx([0.25])
