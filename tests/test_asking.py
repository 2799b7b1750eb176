"""One question asked of the bundled model."""

import numpy as np
import pytest

from pro_lib import ask, scores
from pro_lib import questions as question_sets


def test_asking_the_bundled_model(facts_2m):
    questions = question_sets.load("world-facts", split="validation", limit=1)
    options = {"alpha": 0.4, "questions": questions, "strategy": "diverse_beam"}
    answer = ask(facts_2m, "What is the capital of France?", **options)
    assert answer.text == answer.answers[0][0]
    probabilities = np.array([p for _, p in answer.answers])
    assert (np.diff(probabilities) <= 0).all()
    assert probabilities.sum() <= 1 + 1e-6
    assert answer.uncertainty == pytest.approx(scores.pro(np.log(probabilities)[None], alpha=0.4)[0])
    assert answer.kept == max(1, (probabilities >= 0.4).sum())
    assert (answer.status, answer.entropy_bounds) == (None, None)


@pytest.mark.parametrize("question", ["", "  \n", None])
def test_an_empty_question_is_refused(facts_2m, question):
    with pytest.raises(ValueError, match="question is empty"):
        ask(facts_2m, question)


def test_alpha_out_of_range_is_refused(facts_2m):
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        ask(facts_2m, "What is the capital of France?", alpha=1.5)


def test_answers_that_do_not_end_are_refused_in_a_sentence(facts_2m):
    with pytest.raises(ValueError, match="no answer of facts-2m ended within 1 tokens"):
        ask(facts_2m, "What is the capital of France?", max_new_tokens=1)
