"""Single questions, the probability that an answer is right, and answers within a guarantee."""

import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from commands import answer, record, typed
from conftest import ROOT
from starlette.testclient import TestClient

from pro_lib import answerer, ask, evaluation, generation, importing, metrics
from pro_lib.app.single_question import Answer, right_probability
from pro_lib.common.files import RunError
from pro_lib.evaluation import guarantees
from pro_lib.generation import models
from pro_lib.questions import question_sets

asking = import_module("pro_lib.app.single_question")

QUESTION = "What is the capital of France?"


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ([("Ann", 0.75), ("Bo", 0.125)], "High confidence: the best of 2 answers has 75%."),
        ([("Ann", 0.5)], "Middling confidence: the best of 1 answer has 50%."),
        (
            [("", 0.25), ("Bo", 0.125)],
            "Low confidence: the best of 2 answers has 25%. "
            "It is to say nothing; the best that says something: Bo (12%).",
        ),
    ],
)
def test_the_sentence_of_an_answer_says_how_probable_it_is(answers, sentence):
    answer = Answer("Who?", answers[0][0], 0.5, tuple(answers), 1, "certified", (0.4, 2.0))
    kept = f"1 of {len(answers)} answers kept"
    assert repr(answer) == f"Answer({answer.text!r}: PRO = 0.50 nats, {kept}, search: certified)"
    assert answer.sentence() == sentence


def test_the_model_that_was_loaded_last_stays_in_memory(facts_2m, tmp_path, monkeypatch):
    loads = []
    monkeypatch.setattr(models, "_LAST", {})
    monkeypatch.setattr(
        models,
        "load_model",
        lambda name, **options: loads.append((name, len(models._LAST))) or facts_2m,
    )
    for name in ("facts-2m", "facts-2m", "facts-1m", "facts-2m"):
        answer = ask(name, QUESTION, strategy="greedy")
        assert {answer.status, answer.entropy_bounds, answer.probability_right} == {None}
    # The one before is let go first
    assert loads == [("facts-2m", 0), ("facts-1m", 0), ("facts-2m", 0)]
    assert models.cached_model(facts_2m) is facts_2m
    for content, dtype in (("1", "auto"), ("1", "auto"), ("22", "auto"), ("22", "float16")):
        (tmp_path / "config.json").write_text(content)
        models.cached_model(tmp_path, dtype=dtype)
    assert len(loads) == 6  # anew where its files or its options have changed


def judged(probabilities, right, splits):
    """Return a run of one answer to each question."""
    values = zip(probabilities, right, splits, strict=True)
    rows = [
        record(n, answer("x", p, rouge_l=float(is_right)), split=split)
        for n, (p, is_right, split) in enumerate(values)
    ]
    return importing.import_answers(rows)


def test_the_probability_is_fitted_on_validation_and_checked_on_the_test_split():
    # Three right answers are above three wrong ones, and the fit adds one of the other kind at
    # each end: 3/4 and 1/4 instead of 1 and 0. In the test split the answer at 0.95 is wrong and
    # the one at 0.2 is right, so both are wrong by 3/4.
    splits = ["validation"] * 6 + ["test"] * 2
    run = judged([0.9, 0.8, 0.7, 0.3, 0.2, 0.1, 0.95, 0.2], [1, 1, 1, 0, 0, 0, 0, 1], splits)
    fit, about = right_probability(run)
    assert fit(-np.log([0.99, 0.9, 0.7, 0.3, 0.1])) == pytest.approx([0.75, 0.75, 0.75, 0.25, 0.25])
    assert about == "calibrated on 6 questions of records, error 0.750 on 2 others"
    # Without a validation split a half is drawn.
    run = judged(np.random.default_rng(0).uniform(0.1, 0.9, 40), np.arange(40) % 2, ["test"] * 40)
    assert right_probability(run)[1].startswith("calibrated on 20 questions of records, error")


def test_a_probability_cannot_be_fitted_to_one_class_or_to_unjudged_answers():
    with pytest.raises(metrics.OneClassError):
        right_probability(judged([0.5, 0.4, 0.3, 0.2], [1] * 4, ["validation"] * 2 + ["test"] * 2))
    bare = importing.import_answers([record(n, answer("x", 0.5)) for n in range(4)])
    with pytest.raises(RunError, match="no answer can be judged"):
        right_probability(bare)


@pytest.fixture(scope="module")
def run(facts_2m):
    """A run of 100 validation and 100 test questions."""
    asked = question_sets.load_questions("world-facts", split=["validation", "test"], limit=100)
    return generation.generate(
        facts_2m, asked, strategy="threshold", search_alpha=0.05, progress=False
    )


@pytest.fixture(scope="module")
def evaluations(run):
    """The evaluations of the validation and the test questions."""
    return [evaluation.evaluate(run, split=split) for split in ("validation", "test")]


def test_an_answer_with_a_calibration_run_has_its_prompt_its_pro_and_a_probability(
    facts_2m, run, evaluations
):
    asked = run.questions.loc[13]
    calibrated = ask(facts_2m, asked["question"], alpha=0.1, calibration=run, search_alpha=0.05)
    probabilities = [probability for _, probability in calibrated.answers]
    assert probabilities == sorted(probabilities, reverse=True)
    assert calibrated.text == calibrated.answers[0][0]
    assert calibrated.kept == sum(probability >= 0.1 for probability in probabilities) == 2
    validation, _ = evaluations
    is_asked = validation.answers["question_id"] == asked["question_id"]
    assert calibrated.uncertainty == pytest.approx(validation.pro(0.1)[is_asked][0], abs=1e-4)
    fit, about = right_probability(run, alpha=0.1)
    assert calibrated.probability_right == fit([calibrated.uncertainty])[0]
    words = r"calibrated on 100 questions of world-facts, error 0\.\d+ on 100 others"
    assert re.fullmatch(words, about)
    assert calibrated.calibrated == about
    words = f"It is right with probability {calibrated.probability_right:.2f} ({about})."
    assert calibrated.sentence().endswith(words)


@pytest.mark.parametrize(
    ("question", "options", "named"),
    [
        (" \n", {}, "empty"),
        (["Who?"], {}, "must be a text; generation.generate takes several"),
        (QUESTION, {"max_new_tokens": 1}, "no answer of facts-2m ended within 1 tokens"),
        (QUESTION, {"calibration": "run", "strategy": "greedy"}, "now strategy='greedy'"),
        (QUESTION, {"calibration": "run", "n_shots": 3}, "facts-2m/threshold .*shots\\."),
        (QUESTION, {"alpha": 1.5}, "must lie in"),
        (QUESTION, {"alpha": 0.01}, "is below search_alpha"),
        (QUESTION, {"alpha": [0.1, 0.2]}, "must be one number"),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error(
    facts_2m, run, question, options, named, monkeypatch
):
    options = {name: run if name == "calibration" else value for name, value in options.items()}
    if "alpha" in options:
        monkeypatch.setattr(asking, "answer_question", None)  # the model is not asked to find out
    with pytest.raises(ValueError, match=named):
        ask(facts_2m, question, **options)


def test_a_calibration_may_be_a_folder(facts_2m, tmp_path):
    asked = question_sets.load_questions("world-facts", split=["validation", "test"], limit=20)
    generation.generate(facts_2m, asked, strategy="threshold", out=tmp_path, progress=False)
    [folder] = {path.parent for path in tmp_path.rglob("run.json")}
    assert "20 questions" in ask(facts_2m, QUESTION, calibration=str(folder)).calibrated
    assert answerer(facts_2m, calibration=folder, target=0.7).guarantee.n_validation == 20
    for option in (["--template", "Q: {question}"], ["--n-shots", "3"]):
        _, err = typed("ask", QUESTION, "--calibration", folder, *option, code=1)
        assert "was made with" in err


@pytest.fixture(scope="module")
def answers(facts_2m, run):
    return answerer(facts_2m, calibration=run, target=0.7)


def test_an_answerer_without_validation_questions_uses_all_of_the_run(facts_2m, run):
    tested = run.select(split="validation")
    judged = evaluation.evaluate(tested)
    expected = guarantees.guarantee(judged.pro(0.4), judged.correct, target=0.7)
    assert answerer(facts_2m, calibration=tested, target=0.7).guarantee == expected


def test_an_answerer_answers_below_the_threshold_of_its_guarantee(answers, evaluations):
    validation, test = evaluations
    pro = test.pro(0.4)
    expected = guarantees.guarantee(
        validation.pro(0.4), validation.correct, target=0.7, unlabelled=pro
    )
    assert expected.threshold is not None
    assert answers.guarantee == expected
    asked = test.answers[:20]
    pro = pro[:20]
    replies = [answers(question) for question in asked["question"]]
    np.testing.assert_allclose([reply.uncertainty for reply in replies], pro, atol=1e-4)
    # The threshold is one of the scores. A question asked alone may have a slightly other score.
    is_clear = np.abs(pro - expected.threshold) > 1e-4
    answered = np.array([reply.answered for reply in replies])
    assert (answered == expected.answers(pro))[is_clear].all()
    assert {*answered} == {True, False}
    for reply, text in zip(replies, asked["text"], strict=True):
        assert reply.answer == (text if reply.answered else None)
        assert reply.guarantee == expected.sentence()
        assert reply.status in ("certified", "fallback", "undecided")


def calibration_with(**parameters):
    run = judged([0.5], [1], ["test"])
    return replace(run, info=replace(run.info, parameters={"strategy": "threshold", **parameters}))


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({}, {"a later setting": 2}, "was made with a later setting=None, now a later setting=2"),
        ({"budget": 1}, {"budget": None}, "was made with budget=1, now budget=None"),
        ({"budget": 1}, {"budget": 1}, None),
        ({"search_alpha": 0.02, "seed": 0}, {"search_alpha": 0.3, "seed": 1}, None),
    ],
)
def test_every_setting_of_a_calibration_that_matters_is_compared(before, now, words):
    refusal = nullcontext() if words is None else pytest.raises(RunError, match=words)
    with refusal:
        asking.check_calibration(calibration_with(**before), {"strategy": "threshold"} | now)


def test_a_question_is_not_answered_without_a_guarantee_or_a_complete_answer(
    answers, facts_2m, run
):
    reply = answerer(facts_2m, calibration=run, target=0.999)(QUESTION)
    assert (reply.answer, reply.answered) == (None, False)
    assert reply.guarantee.startswith("Nothing can be guaranteed")
    short = replace(answers, ask=partial(answers.ask, max_new_tokens=1))
    assert short("Who wrote War and Peace?") == asking.Reply(
        None, None, False, answers.guarantee.sentence(), "cut"
    )


def test_a_calibration_of_another_model_is_an_error_that_names_the_difference(facts_2m, run):
    def with_parameters(**changes):
        return replace(run, info=replace(run.info, parameters=run.info.parameters | changes))

    records = importing.import_answers([record(0, answer("x", 0.5))])
    quantised = with_parameters(quantization="8bit")
    for model, calibration, words in (
        ("facts-1m", run, "was made with fingerprint="),
        (facts_2m, quantised, "quantization='8bit', now quantization=None"),
        (facts_2m, records, "has no generation parameters"),
    ):
        with pytest.raises(RunError, match=words):
            answerer(model, calibration=calibration)
    with pytest.raises(RunError, match="budget=1000, now budget=None"):
        ask(facts_2m, QUESTION, calibration=with_parameters(budget=1000))


def test_the_server_of_the_docs_replies_as_an_answerer_and_refuses_bad_requests(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    [*_, block] = re.findall(
        r"```python\n(.*?)```",
        (ROOT / "docs" / "how_to" / "answer_or_abstain.md").read_text(),
        re.DOTALL,
    )
    names: dict = {}
    exec(block.replace("limit=300", "limit=40"), names)
    with TestClient(names["app"]) as client:
        reply = client.post("/", json={"question": QUESTION})
        assert (reply.status_code, asking.Reply(**reply.json())) == (
            200,
            names["answers"](QUESTION),
        )
        for content in (b"{", b"[1]", b'{"question": 3}', b'{"other": "x"}', b"\xff\xfe"):
            reply = client.post("/", content=content)
            assert (reply.status_code, list(reply.json())) == (422, ["error"])
