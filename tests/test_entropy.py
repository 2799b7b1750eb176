"""Estimates of the entropy, by samples and by a search and what it left, with numbers worked by hand."""

import numpy as np
import pytest

from pro_lib import questions as question_sets
from pro_lib.generate import generate
from pro_lib.promises import anytime, entropy
from pro_lib.store import RunError


def test_what_a_search_left_is_added_with_its_probability():
    # Means 3 and 0; of the first the variance of 2, 4, 3 is 1, Student's factor for two degrees 4.3027.
    found = entropy.from_search([1.5, 2.0], [0.5, 0.25], [[2.0, 4.0, 3.0], [0.0, 0.0, 0.0]])
    half = 4.30265 / np.sqrt(3)
    assert found.estimate.tolist() == [3.0, 2.0]
    assert found.low == pytest.approx([1.5 + 0.5 * (3 - half), 2.0], abs=1e-4)
    assert found.high == pytest.approx([1.5 + 0.5 * (3 + half), 2.0], abs=1e-4)
    assert np.isnan(entropy.from_search([1.0], [0.5], [[2.0]])[1:]).all()
    # What is left is no less than nothing, so the estimate never falls below the tree bound, nor do its limits.
    assert entropy.from_search([1.0], [0.5], [[0.0, 9.0]]).low.tolist() == [1.0]
    low, high = anytime.limits([[2.0, 4.0, 3.0]], [40.0])
    wide = entropy.from_search([1.5], [0.5], [[2.0, 4.0, 3.0]], most=[40.0])
    assert (wide.low, wide.estimate, wide.high) == (1.5 + 0.5 * low, 3.0, 1.5 + 0.5 * high)
    assert wide.low <= found.low[0] <= found.high[0] <= wide.high


def test_a_run_says_its_entropies_and_one_without_draws_how_to_have_them(facts_2m):
    few = question_sets.load("world-facts", split="test", limit=12, seed=3)
    how = {"strategy": "threshold", "search_alpha": 0.05, "progress": False}
    run = generate(facts_2m, few, entropy_draws=15, **how)
    estimate, wide = run.entropy(), run.entropy(anytime=True)
    bounds = run.questions[["tree_bound", "upper_bound"]].to_numpy().T
    assert (bounds[0] <= estimate.low).all()
    assert (estimate.low <= estimate.estimate).all()
    assert (estimate.estimate <= bounds[1]).all()
    assert (wide.low <= estimate.estimate).all()
    assert (estimate.estimate <= wide.high).all()
    np.testing.assert_array_equal(wide.estimate, estimate.estimate)
    samples = generate(facts_2m, few, strategy="multinomial", n_answers=100, progress=False)
    surprise = -samples.outcome_log_probs()
    variance = ((estimate.high - estimate.estimate) / 2) ** 2 + surprise.var(axis=1) / 100
    assert abs((estimate.estimate - surprise.mean(axis=1)).sum()) < 4 * np.sqrt(variance.sum())
    for other in (generate(facts_2m, few, **how), samples):
        with pytest.raises(RunError, match="has no draws of the entropy; search with strategy='threshold', entropy_"):
            other.entropy()
