"""Limits of scores against whole outcome spaces, and of AUROCs against every way to choose within them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_evaluation import toy_run
from test_threshold import TableTree, World, away_from, probability, worlds

from pro_lib import guarantees, metrics, scores, sweeps
from pro_lib.decoding import Threshold
from pro_lib.evaluation import evaluate
from pro_lib.runs import Run

NAN = np.nan


def limits_of(answers, certificate, alpha, search_alpha):
    """What a run of this search would say: its answers with p ≥ α or the greedy one, and what it left open."""
    log_probs = np.log([probability(a) for a in answers if a.finished and probability(a) > 0])
    reaching = log_probs[log_probs >= math.log(search_alpha)]
    left = certificate.length_cut_mass + certificate.budget_cut_mass if certificate.status == "undecided" else 0.0
    row = np.full(len(log_probs) + 1, NAN)
    kept = reaching if len(reaching) else log_probs
    row[: len(kept)] = kept
    low, high = guarantees.pro_within(row[None], [left], alpha=alpha, search_alpha=search_alpha)
    return low[0], high[0]


def check_inside(world, *, search_alpha, alpha, budget, shorter):
    """The truth is inside for searches cut short by a budget, or by a length that answers exceed; their statuses."""
    alpha, length = max(alpha, search_alpha), max(1, world.length - shorter)
    asked = Threshold(max_new_tokens=length, search_alpha=search_alpha, budget=budget)
    for question, (answers, certificate) in enumerate(asked.decode(TableTree(world), world.endings, question_ids=[])):
        outcomes, _ = world.outcomes(question)
        if not (away_from(alpha, outcomes) and away_from(search_alpha, outcomes)):
            continue
        complete = np.array([[value for (_, finished), value in outcomes.items() if finished]])
        low, high = limits_of(answers, certificate, alpha, search_alpha)
        if complete.size and not math.isnan(low):
            truth = scores.pro(np.minimum(complete, 0), alpha=alpha)[0]
            assert low - 1e-5 <= truth <= high + 1e-5
            assert low == high or certificate.status != "certified"
            yield certificate.status, low < high


@given(
    worlds(),
    st.sampled_from([0.3, 0.1, 0.02]),
    st.sampled_from([0.5, 0.3, 0.15, 0.02]),
    st.sampled_from([None, 1, 2, 5]),
    st.integers(0, 2),
)
def test_pro_of_the_complete_set_is_inside(world, search_alpha, alpha, budget, shorter):
    list(check_inside(world, search_alpha=search_alpha, alpha=alpha, budget=budget, shorter=shorter))


@pytest.mark.parametrize(("budget", "shorter"), [(None, 0), (None, 2), (1, 0), (2, 0), (4, 1)])
def test_pro_of_the_complete_set_is_inside_in_worlds_where_much_is_open(budget, shorter):
    met = set()
    for seed in range(15):
        world = World(seed, n_questions=2, vocabulary=4, n_stops=1, n_closing=1, length=4, peakedness=1 + seed % 3)
        for search_alpha, alpha in ((0.3, 0.3), (0.1, 0.1), (0.1, 0.2), (0.03, 0.1)):
            cut = {"search_alpha": search_alpha, "alpha": alpha, "budget": budget, "shorter": shorter}
            met |= set(check_inside(world, **cut))
    assert {("certified", False), ("undecided", True), ("fallback", True)} <= met


def test_limits_of_pro_by_hand():
    half, eighth = np.log([0.5, 0.125])
    log_probs = [[half, eighth, NAN]] * 3 + [[eighth, NAN, NAN]] * 3
    left = [0.0, 0.25, 0.03125, 0.0, 0.25, 0.5]
    low, high = guarantees.pro_within(log_probs, left, alpha=0.25, search_alpha=0.2)
    log2 = math.log(2)
    # 0.5 alone is 1 bit; 0.25 left open may be an answer that makes it 0.5 + 0.5 * 2; what is below α changes nothing.
    np.testing.assert_allclose(low[:3] / log2, [1, 1, 1])
    np.testing.assert_allclose(high[:3] / log2, [1, 1.5, 1])
    # Nothing reaches α: the mode lies between the best found and search_alpha, or what was left open.
    np.testing.assert_allclose(np.exp(-low[3:]), [0.2, 0.25, 0.5])
    np.testing.assert_allclose(np.exp(-high[3:]), [0.125] * 3)
    # An open mass above the smallest answer kept may lower PRO: 0.5 and 0.125 beside 0.25 at α = 1/8.
    low, high = guarantees.pro_within([[half, eighth]], [0.25], alpha=[0.125, 0.4], search_alpha=0.1)
    np.testing.assert_allclose(low / log2, [[3 - 0.5 * 2 - 0.25, 1]])
    np.testing.assert_allclose(high / log2, [[0.5 + 3 / 8 + 3 / 8 * 3, 1]])


def inside(seed, n=8):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(4, size=(2, n)), axis=0).astype(float)  # ties abound
    correct = rng.permutation(np.arange(n) < rng.integers(1, n))
    return rng, *ends, correct


@given(st.integers(0, 10_000))
def test_any_score_within_has_an_auroc_within(seed):
    rng, low, high, correct = inside(seed)
    [least], [most] = guarantees.auroc_within(low[:, None], high[:, None], correct)
    for weight in rng.random((20, len(low))).round():
        chosen = low + weight * (high - low) * rng.random()
        assert least - 1e-12 <= metrics.auroc(chosen, correct) <= most + 1e-12


def naive_auroc(values, correct):
    pairs = [(w > r) + (w == r) / 2 for w in values[~correct] for r in values[correct]]
    return sum(pairs) / len(pairs)


@given(st.integers(0, 10_000))
def test_the_ends_are_the_best_and_the_worst_of_all_corners(seed):
    _, low, high, correct = inside(seed, n=6)
    corners = [naive_auroc(np.where(up, high, low), correct) for up in itertools.product([False, True], repeat=6)]
    [least], [most] = guarantees.auroc_within(low[:, None], high[:, None], correct)
    assert (least, most) == pytest.approx((min(corners), max(corners)))


def test_several_scores_at_once_and_one_class():
    low, high = np.array([[0.0, 1], [1, 1], [2, 2]]), np.array([[3.0, 1], [1, 1], [2, 2]])
    least, most = guarantees.auroc_within(low, high, [True, False, False])
    assert (least.tolist(), most.tolist()) == ([0, 0.75], [1, 0.75])
    with pytest.raises(metrics.OneClassError):
        guarantees.auroc_within(low, high, np.array([True] * 3))


CERTIFICATES = pd.DataFrame(
    {
        "status": ["certified", "undecided", "undecided", "fallback"],
        "length_cut_mass": [0.2, 0.25, NAN, 0.1],
        "budget_cut_mass": [0.0, 0.125, NAN, 0.0],
        "found_mass": [0.8, 0.5, 0.75, 0.0],
    }
)


def test_only_what_is_undecided_has_open_mass_and_all_not_found_where_masses_are_missing():
    np.testing.assert_allclose(guarantees.open_mass(CERTIFICATES), [0, 0.375, 0.25, 0])


def test_a_sweep_over_a_search_says_between_what_its_auroc_lies_and_one_over_beams_does_not():
    found = {"a": [("no", 0.5)], "b": [("no", 0.4)], "c": [("yes", 0.35)], "d": [("yes", 0.05)]}
    run = toy_run(found)
    assert "auroc_least" not in sweeps.alpha_sweep(evaluate(run), alphas=[0.3])
    info = replace(run.info, strategy="threshold", parameters={"search_alpha": 0.1})
    searched = Run(run.answers, run.questions.join(CERTIFICATES.assign(search_alpha=0.1)), info)
    judged = evaluate(searched)
    [row] = sweeps.alpha_sweep(judged, alphas=[0.3]).to_dict("records")
    # What is wrong has 0.69 and 0.92 nats, what is right 1.05 and 3; b may keep an answer of 0.3 too and come to 1.09.
    assert (row["auroc"], row["auroc_least"], row["auroc_most"]) == (0, 0, 1 / 4)
    with pytest.warns(sweeps.OneClassWarning):
        assert "auroc_least" not in sweeps.alpha_sweep(judged.only(["a", "b"]), alphas=[0.3])
