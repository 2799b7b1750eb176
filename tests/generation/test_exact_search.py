"""Exact search with the bundled model: stored runs and scores."""

from dataclasses import replace

import numpy as np
import pytest
from test_threshold import MASSES

from pro_lib import importing, scoring
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
    texts = {"Rome": 0.3, "rome.": 0.2, "Oslo": 0.25, "ROME": 0.1}
    answers = [{"text": text, "log_prob": np.log(p)} for text, p in texts.items()]
    run = importing.import_answers([{"question_id": "a", "answers": answers}])
    np.testing.assert_allclose(np.exp(run.log_probs(merge_by="text")), [[0.6, 0.25]])
    with pytest.raises(ValueError, match="merge_by='tokens' must be None"):
        run.log_probs(merge_by="tokens")
    with pytest.raises(ValueError, match="needs the texts of all answers"):
        replace(run, answers=run.answers.assign(text=None)).log_probs(merge_by="text")
