"""Exact search with the bundled model: stored runs, scores and `ask`."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from test_threshold import MASSES

from pro_lib import ask, scoring
from pro_lib import runs as run_tables
from pro_lib.generation.run_generation import generate
from pro_lib.questions import question_sets
from pro_lib.runs.certificate import Certificate
from pro_lib.runs.storage import CERTIFICATE_COLUMNS


@pytest.fixture(scope="module")
def questions():
    return question_sets.load_questions("world-facts", split="test", limit=96, seed=0)


@pytest.fixture(scope="module")
def exact(facts_2m, questions, tmp_path_factory):
    out = tmp_path_factory.mktemp("exact")
    generate(facts_2m, questions, strategy="threshold", search_alpha=0.01, out=out, progress=False)
    return run_tables.read_run(out / "world-facts" / "facts-2m" / "threshold,search_alpha=0.01")


def test_the_certificate_is_stored_with_the_run(exact, questions):
    assert set(Certificate.__dataclass_fields__) == set(CERTIFICATE_COLUMNS)
    assert set(CERTIFICATE_COLUMNS) <= set(exact.questions)
    np.testing.assert_allclose(exact.questions[MASSES].sum(axis=1), 1.0, atol=1e-5)
    assert exact.info.parameters["search_alpha"] == exact.search_alpha == 0.01
    assert exact.questions["token_forwards"].sum() == exact.info.cost.token_forwards
    reordered = exact.select(question_ids=list(questions.table["question_id"])[::-1])
    assert list(reordered.questions["status"]) == list(exact.questions["status"])[::-1]


@pytest.mark.parametrize("strategy", ["greedy", "multinomial", "diverse_beam"])
def test_a_certified_set_contains_every_likely_answer_of_the_other_strategies(
    exact, facts_2m, questions, strategy
):
    certified = set(exact.questions.loc[exact.questions["status"] == "certified", "question_id"])
    assert len(certified) > 0.8 * len(exact.questions)
    log_probs = {
        (row.question_id, tuple(row.token_ids)): row.value
        for row in exact.ranked_answers().itertuples()
    }
    ranked = generate(facts_2m, questions, strategy=strategy, progress=False).ranked_answers()
    # Batches of other shapes are rounded differently, so an answer within 1e-5 nats of α may be on
    # the other side of it.
    likely = ranked[
        ranked["question_id"].isin(certified) & (ranked["value"] >= np.log(0.01) + 1e-5)
    ]
    assert len(likely) > 50
    for row in likely.itertuples():
        assert log_probs[(row.question_id, tuple(row.token_ids))] == pytest.approx(
            row.value, abs=2e-5
        )


def test_bounds_of_the_entropy_are_in_order(exact):
    alpha = exact.search_alpha
    log_probs = exact.log_probs()
    certificates = exact.questions
    floor = scoring.alpha_floor(log_probs, alpha=alpha, open_log_probs=exact.open_log_probs())
    np.testing.assert_allclose(floor, certificates["alpha_floor"], atol=1e-4)
    np.testing.assert_allclose(
        scoring.tree_bound(*exact.tree()), certificates["tree_bound"], atol=1e-9
    )
    certified = (certificates["status"] == "certified").to_numpy()
    pro = scoring.pro(log_probs, alpha=alpha)
    assert (pro <= floor + 1e-6)[certified].all()
    assert (certificates["alpha_floor"] <= certificates["tree_bound"] + 1e-5).all()
    assert (certificates["tree_bound"] <= certificates["upper_bound"]).all()


def test_merging_spellings_adds_their_probabilities():
    log_probs = np.log([0.3, 0.2, 0.25, 0.1])
    columns = {
        "question_id": "a",
        "rank": range(4),
        "text": ["Rome", "rome.", "Oslo", "ROME"],
        "token_ids": [[1], [2], [3], [4, 5]],
        "log_prob": log_probs,
        "token_log_probs": [[p] for p in log_probs],
        "end_log_prob": 0.0,
        "finished": True,
    }
    answers = pd.DataFrame(columns)
    question = {"question_id": "a", "question": "?", "references": ["Rome"], "split": "test"}
    questions = pd.DataFrame([question | {"search_alpha": 0.1}])
    info = run_tables.RunInfo("toy", "none", "threshold", parameters={"search_alpha": 0.1})
    run = run_tables.Run(answers, questions, info)
    np.testing.assert_allclose(np.exp(run.log_probs(merge_by="text")), [[0.6, 0.25]])
    with pytest.raises(ValueError, match="merge_by='tokens' must be None"):
        run.log_probs(merge_by="tokens")
    with pytest.raises(ValueError, match="needs the texts of all answers"):
        replace(run, answers=answers.assign(text=None)).log_probs(merge_by="text")


def test_asking_is_exact_by_default(facts_2m, questions):
    asked = partial(ask, facts_2m, "What is the capital of France?", questions=questions)
    answer = asked()
    assert answer.status == "certified"
    low, high = answer.entropy_bounds
    assert answer.uncertainty <= low < high
    assert asked(budget=3).status == "undecided"
    with pytest.raises(ValueError, match=r"alpha=0.01 is below search_alpha=0.02"):
        asked(alpha=0.01)
