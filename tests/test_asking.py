"""One question asked of the bundled model."""

import subprocess
from importlib import metadata

import numpy as np
import pytest

from pro_lib import ask, correctness, models, scores
from pro_lib import questions as question_sets
from pro_lib.asking import Answer
from pro_lib.runs import Run


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
    assert (answer.status, answer.entropy_bounds, answer.entropy) == (None, None, None)
    same = [p for text, p in answer.answers if correctness.rouge_l([text], [[answer.text]])[0] >= 0.5]
    unseen = 1 - probabilities.sum()
    assert answer.agreement == pytest.approx((sum(same), min(1, sum(same) + unseen)), abs=1e-9)
    assert answer.sentence() == (
        "Paris: a fresh sample means the same with probability {:.2f} to {:.2f}".format(*answer.agreement)
    )


def test_an_answer_shows_itself_and_its_table():
    answer = Answer("Who?", "<Ann>", 0.5, (("<Ann>", 0.75), ("Bo", 0.125)), 1, "certified", (0.4, 2.0))
    assert repr(answer) == "Answer('<Ann>': PRO = 0.50 nats, 1 of 2 answers kept, search: certified)"
    assert answer.to_df().to_dict("list") == {
        "text": ["<Ann>", "Bo"],
        "probability": [0.75, 0.125],
        "kept": [True, False],
    }
    assert answer._repr_html_().startswith("<p>Answer(&#x27;&lt;Ann&gt;&#x27;: PRO")
    assert "<Ann>" not in answer._repr_html_()
    assert len(Answer("Who?", None, float("nan"), (), 0, None, None).to_df()) == 0


ASKED = ["What is the capital of France?", "Who wrote Emma?", "What is the capital of Peru?"]


def test_a_list_of_questions_gives_the_answers_one_by_one_would(facts_2m):
    together = ask(facts_2m, ASKED, search_alpha=0.05)
    assert [answer.question for answer in together] == ASKED
    for answer, question in zip(together, ASKED, strict=True):
        alone = ask(facts_2m, question, search_alpha=0.05)
        assert [text for text, _ in answer.answers] == [text for text, _ in alone.answers]
        np.testing.assert_allclose([p for _, p in answer.answers], [p for _, p in alone.answers], rtol=1e-4)
        assert (answer.text, answer.kept, answer.status) == (alone.text, alone.kept, alone.status)
        assert answer.uncertainty == pytest.approx(alone.uncertainty, abs=1e-4)
        assert answer.entropy_bounds == pytest.approx(alone.entropy_bounds, abs=1e-3)


def test_what_does_not_change_from_question_to_question_is_looked_up_once(facts_2m, monkeypatch):
    first, ranked, times = ask(facts_2m, ASKED[0], entropy_draws=0), Run.ranked, []
    monkeypatch.setattr(Run, "ranked", lambda *given, **named: times.append(1) or ranked(*given, **named))
    monkeypatch.setattr(metadata, "version", lambda name: pytest.fail(f"the version of {name} is known"))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: pytest.fail(f"{command} is run again"))
    assert ask(facts_2m, ASKED[0], entropy_draws=0) == first
    assert len(times) == 1


def test_the_entropy_is_estimated_within_its_sure_bounds(facts_2m):
    answers = ask(facts_2m, ASKED, search_alpha=0.05)
    for answer in answers:
        (least, most), (estimate, low, high) = answer.entropy_bounds, answer.entropy
        assert least <= low <= estimate <= high <= most
        assert answer.sentence().endswith(f"is about {estimate:.2f} nats ({low:.2f} to {high:.2f})")
    assert len({answer.entropy for answer in answers}) == 3
    without = ask(facts_2m, ASKED[0], search_alpha=0.05, entropy_draws=0)
    assert without.entropy is None
    assert "entropy" not in without.sentence()


def test_of_several_questions_one_without_an_answer_is_no_error(facts_2m):
    found = ask(facts_2m, ASKED[:2], max_new_tokens=1)
    assert [(answer.text, answer.answers, answer.kept) for answer in found] == [(None, (), 0)] * 2
    assert np.isnan([answer.uncertainty for answer in found]).all()


def test_by_name_the_last_model_asked_is_held(facts_2m, monkeypatch):
    loaded = []
    monkeypatch.setattr(models, "_held", None)
    monkeypatch.setattr(models, "load", lambda name, **_: loaded.append(name) or facts_2m)
    monkeypatch.setattr(models.load, "__kwdefaults__", {})
    for name in ("facts-2m", "facts-2m", "facts-1m", "facts-2m"):
        assert ask(name, ASKED[0], strategy="greedy").text
    assert loaded == ["facts-2m", "facts-1m", "facts-2m"]
    assert models.held(facts_2m) is facts_2m


def test_a_held_model_is_loaded_anew_where_its_files_have_changed(tmp_path, facts_2m, monkeypatch):
    loaded = []
    monkeypatch.setattr(models, "_held", None)
    monkeypatch.setattr(models, "load", lambda name, **_: loaded.append(name) or facts_2m)
    monkeypatch.setattr(models.load, "__kwdefaults__", {})
    for content in ("{}", "{}", '{"a": 1}'):
        (tmp_path / "config.json").write_text(content)
        models.held(tmp_path)
    assert len(loaded) == 2


@pytest.mark.parametrize("question", ["", "  \n", None, ["Who?", ""], [3]])
def test_an_empty_question_is_refused(facts_2m, question):
    with pytest.raises(ValueError, match=r"question( \d of \d)? is empty"):
        ask(facts_2m, question)


def test_alpha_out_of_range_is_refused(facts_2m):
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        ask(facts_2m, "What is the capital of France?", alpha=1.5)


def test_answers_that_do_not_end_are_refused_in_a_sentence(facts_2m):
    with pytest.raises(ValueError, match="no answer of facts-2m ended within 1 tokens"):
        ask(facts_2m, "What is the capital of France?", max_new_tokens=1)
