"""A probability of being right from a run with known answers: by hand, refused where it would mislead, and in `ask`."""

import re

import numpy as np
import pytest

from pro_lib import ask, evaluation, generate, imports, metrics, scores, selective, store, tables
from pro_lib import questions as question_sets


def records(uncertain, right, splits):
    rows = []
    for number, (p, is_right, split) in enumerate(zip(uncertain, right, splits, strict=True)):
        answer = {"text": f"t{number}", "log_prob": float(np.log(p)), "rouge_l": float(is_right)}
        rows.append({"question_id": number, "answers": [answer]} | ({"split": split} if split else {}))
    return imports.from_records(rows)


def test_fitted_on_validation_and_checked_on_the_others_by_hand():
    # NLL orders validation right, wrong, right, wrong: fitted 1, 1/2, 1/2, 0. The others have 0.8 -> 1, 0.3 -> 1/2.
    run = records([0.9, 0.6, 0.4, 0.1, 0.95, 0.5], [1, 0, 1, 0, 0, 1], ["validation"] * 4 + ["test"] * 2)
    found = tables.calibrated(run)
    assert (found.n_fitted, found.n_checked, found.alpha) == (4, 2, 0.4)
    assert [found.probability(-np.log(p)) for p in (0.99, 0.9, 0.5, 0.1)] == [1, 1, 0.5, 0]
    assert np.isnan(found.probability(np.nan))
    assert found.checked.ece == 0.75  # 1 of a wrong answer, 1/2 of a right one
    assert found.sentence() == "calibrated on 4 questions of records, error 0.750 on 2 others"


def test_a_run_without_a_validation_split_lends_a_half():
    rng = np.random.default_rng(0)
    run = records(rng.uniform(0.1, 0.9, 40), np.arange(40) % 2, ["test"] * 40)
    found = tables.calibrated(run)
    assert (found.n_fitted, found.n_checked) == (20, 20)


def test_without_right_answers_or_with_one_class_it_says_so():
    run = records([0.5, 0.4, 0.3, 0.2], [1, 1, 1, 1], ["validation", "validation", "test", "test"])
    with pytest.raises(metrics.OneClassError):
        tables.calibrated(run)
    bare = imports.from_records([{"question_id": n, "answers": [{"log_prob": -1.0}]} for n in range(4)])
    with pytest.raises(store.RunError, match="no answer can be judged"):
        tables.calibrated(bare)


@pytest.fixture(scope="module")
def run(facts_2m):
    questions = question_sets.load("world-facts", split=("validation", "test"), limit=24)
    return generate.generate(facts_2m, questions, strategy="threshold", search_alpha=0.1, progress=False)


def test_asked_as_the_run_was_the_answer_says_how_probably_it_is_right(facts_2m, run):
    question, identity = run.questions.loc[0, ["question", "question_id"]]
    answer = ask(facts_2m, question, calibration=run, search_alpha=0.1)
    # The same prompt as in the run, shots included, and so the same PRO.
    judged = [evaluation.evaluate(run, split=split) for split in ("validation", "test")]
    pros = [scores.pro(each.log_probs, alpha=0.4, search_alpha=0.1) for each in judged]
    [place] = np.flatnonzero(judged[0].answers["question_id"] == identity)
    assert answer.uncertainty == pytest.approx(pros[0][place], abs=1e-4)
    found = selective.calibration(pros[0], judged[0].correct, pros[1], judged[1].correct)
    assert answer.probability_right == found.fit([answer.uncertainty])[0]
    assert answer.calibrated == f"calibrated on 24 questions of world-facts, error {found.ece:.3f} on 24 others"
    assert f"right with probability {answer.probability_right:.2f} ({answer.calibrated})" in answer.sentence()
    assert answer.sentence().startswith(answer.text)


def test_a_calibration_by_another_model_strategy_alpha_or_way_of_asking_is_refused(facts_2m, tiny_model, run):
    made = tables.calibrated(run)
    others = [
        ({"strategy": "greedy"}, facts_2m, "strategy='threshold', now strategy='greedy'"),
        ({"alpha": 0.5}, facts_2m, "alpha=0.4, now alpha=0.5"),
        ({"max_new_tokens": 20}, facts_2m, "max_new_tokens=32, now max_new_tokens=20"),
        ({"questions": question_sets.asked("Who?")}, facts_2m, "shots="),
        ({"questions": question_sets.asked("Who?")}, tiny_model("llama"), "fingerprint="),
    ]
    for options, model, said in others:
        with pytest.raises(ValueError, match=re.escape(said)) as refused:
            ask(model, "What is the capital of France?", calibration=made, **options)
        assert str(refused.value).startswith("calibration: run world-facts/facts-2m/threshold was made with ")
    # How far down was searched is no difference: PRO at 0.4 is the same.
    assert (
        ask(facts_2m, "What is the capital of France?", calibration=made, search_alpha=0.3).probability_right
        is not None
    )
