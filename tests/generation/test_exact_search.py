"""Exact search with the bundled model: stored runs and scores."""

from dataclasses import replace

import numpy as np
import pytest
from test_threshold import MASSES

from pro_lib import generate, import_answers, load_questions, read_run, scoring
from pro_lib.runs.certificate import Certificate
from pro_lib.runs.storage import CERTIFICATE_COLUMNS


@pytest.fixture(scope="module")
def exact(facts_2m, tmp_path_factory):
    questions = load_questions("world-facts", split="test", limit=96, seed=0)
    out = tmp_path_factory.mktemp("exact")
    generate(facts_2m, questions, strategy="threshold", search_alpha=0.01, out=out)
    return read_run(out / "world-facts" / "facts-2m" / "threshold,search_alpha=0.01")


def test_the_certificate_is_stored_with_the_run(exact):
    assert set(Certificate.__dataclass_fields__) == set(CERTIFICATE_COLUMNS)
    assert set(CERTIFICATE_COLUMNS) <= set(exact.questions)
    np.testing.assert_allclose(exact.questions[MASSES].sum(axis=1), 1.0, atol=1e-5)
    assert exact.info.parameters["search_alpha"] == exact.search_alpha == 0.01
    assert exact.questions["token_forwards"].sum() == exact.info.cost.token_forwards


def test_the_bounds_of_the_certificates_are_those_of_the_answers_and_of_the_stored_tree(exact):
    floor = scoring.alpha_floor(
        exact.log_probs(), alpha=exact.search_alpha, open_log_probs=exact.open_log_probs()
    )
    np.testing.assert_allclose(floor, exact.questions["alpha_floor"], atol=1e-4)
    bound = scoring.tree_bound(*exact.tree())
    np.testing.assert_allclose(bound, exact.questions["tree_bound"], atol=1e-9)


def test_merging_spellings_adds_their_probabilities():
    texts = {"Rome": 0.3, "rome.": 0.2, "Oslo": 0.25, "ROME": 0.1}
    answers = [{"text": text, "log_prob": np.log(p)} for text, p in texts.items()]
    run = import_answers([{"question_id": "a", "answers": answers}])
    np.testing.assert_allclose(np.exp(run.log_probs(merge_by="text")), [[0.6, 0.25]])
    with pytest.raises(ValueError, match="merge_by='tokens' must be None"):
        run.log_probs(merge_by="tokens")
    with pytest.raises(ValueError, match="needs the texts of all answers"):
        replace(run, answers=run.answers.assign(text=None)).log_probs(merge_by="text")
