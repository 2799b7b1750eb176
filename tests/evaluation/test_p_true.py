"""The method P(True) of an experiment asks about the answers that are judged."""

import pytest
from test_judge import Judge

from pro_lib.evaluation import evaluate
from pro_lib.evaluation.p_true import with_p_true
from pro_lib.importing import import_answers
from pro_lib.metrics.correctness import AnswerRules


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
    model = Judge(row=[0.6, 0.2])
    cache = tmp_path / "replies.jsonl"
    scored = with_p_true(run, run, [], convention=convention, model=model, cache=cache)
    [prompt] = model.prompts
    assert f"Possible answer: {judged}\n" in prompt
    assert scored.questions["score_P(True)"].tolist() == pytest.approx([0.25])
