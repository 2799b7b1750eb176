"""Draws of the entropy that a search leaves, against brute force: random models, every outcome enumerated."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exact_search import MASSES
from test_threshold import TableTree, World, entropy, worlds

from pro_lib import models, runs
from pro_lib import questions as question_sets
from pro_lib.engine import Threshold, remainder
from pro_lib.entropy import from_search
from pro_lib.generate import generate
from pro_lib.promises import anytime


def searched(world, *, draws, seed=0, tree=None, **settings):
    """Certificates of a search with draws, one per question."""
    asked = Threshold(max_new_tokens=world.length, entropy_draws=draws, seed=seed, **settings)
    ids = [f"q{number}" for number in range(world.n_questions)]
    return [known for _, known in asked.decode(tree or TableTree(world), world.endings, question_ids=ids)]


def left(certificate, prefixes):
    """By brute force: of each prefix that was not expanded its p, and every X that a draw from it may be."""
    paths = []
    for parent, token in zip(certificate.tree_parents, certificate.tree_tokens, strict=True):
        paths.append(() if parent < 0 else (*paths[parent], token))

    def below(prefix):
        here = prefixes[prefix][1]
        after = [path for path in prefixes if len(path) == len(prefix) + 1 and path[:-1] == prefix]
        return [here, *(here + more for path in after for more in below(path))]

    return {w: (p, below(w)) for w, (p, _) in prefixes.items() if w not in paths and w[:-1] in paths}, set(paths)


HOW = st.sampled_from(
    [{"search_alpha": alpha} for alpha in (1.0, 0.4, 0.1, 0.02, 1e-3)]
    + [{"search_alpha": 0.02, "budget": budget} for budget in (0, 2, 5)]
    + [{"top_n": 2}, {"top_n": 3, "budget": 4}]
)


@given(worlds(), HOW)
def test_tree_bound_and_what_is_left_are_the_entropy_and_every_draw_is_one_that_can_be(world, how):
    for question, certificate in enumerate(searched(world, draws=7, **how)):
        outcomes, prefixes = world.outcomes(question)
        unexpanded, expanded = left(certificate, prefixes)
        mass = certificate.pruned_mass + certificate.budget_cut_mass
        assert mass == pytest.approx(sum(p for p, _ in unexpanded.values()), abs=1e-5)
        more = sum(p * bits for path, (p, bits) in prefixes.items() if path not in expanded)
        assert certificate.tree_bound + more == pytest.approx(entropy(outcomes), abs=1e-4)
        draws, most = np.array(certificate.remainder_draws), certificate.remainder_most
        assert (draws.shape, draws.min() >= -1e-6, draws.max() <= most + 1e-5) == ((7,), True, True)
        possible = np.array([0.0] if mass == 0 else [x for p, all_x in unexpanded.values() if p > 0 for x in all_x])
        assert np.abs(draws[:, None] - possible).min(axis=1) == pytest.approx(0, abs=1e-4)
        # What is all but impossible may round to nothing.
        lengths = [[world.length - len(w) for w, (p, _) in unexpanded.items() if p > at] for at in (1e-12, 0)]
        events = world.vocabulary - int(world.endings.stop.sum()) + 1
        ends = [max(each, default=0) * math.log(events) for each in lengths]
        assert most in (pytest.approx(ends[0]), pytest.approx(ends[1])) or mass < 1e-9


def z_scores(*, worlds_tried, draws, seed):
    """How many standard errors each estimate lies from the entropy, over random models, searches and budgets."""
    scores = []
    for number in range(worlds_tried):
        rng = np.random.default_rng([seed, number])
        shape = {"vocabulary": int(rng.integers(3, 9)), "length": int(rng.integers(2, 5)), "n_questions": 2}
        peaked = float(rng.choice([0.5, 1.0, 2.0]))
        world = World(**shape, seed=int(rng.integers(2**20)), n_stops=1, n_closing=number % 2, peakedness=peaked)
        how = {"search_alpha": float(rng.choice([1.0, 0.3, 0.1, 0.03]))}
        how |= {"budget": int(rng.integers(0, 4))} if number % 3 == 0 else {"top_n": 2, "search_alpha": None}
        for question, certificate in enumerate(searched(world, draws=draws, seed=number, **how)):
            mass = certificate.pruned_mass + certificate.budget_cut_mass
            values = certificate.tree_bound + mass * np.array(certificate.remainder_draws)
            error = values.std(ddof=1) / math.sqrt(draws)
            if error > 1e-6:
                scores.append((values.mean() - entropy(world.outcomes(question)[0])) / error)
    return np.array(scores)


def test_the_estimate_is_unbiased_at_a_fixed_number_of_draws(size):
    """Stated beforehand: the sum of z² is χ² of as many degrees, refused beyond its 99.9 % quantile; the mean z within
    3.3 of its standard errors of 0.
    """
    tried, draws = {"quick": (6, 1000), "all": (30, 2000), "trials": (100, 10_000)}[size]
    z = z_scores(worlds_tried=tried, draws=draws, seed=5)
    from scipy import stats

    assert len(z) > tried
    assert (z**2).sum() < stats.chi2.ppf(0.999, len(z))
    assert abs(z.mean()) * math.sqrt(len(z)) < 3.3


def test_limits_at_any_time_hold_the_entropy_at_the_worst_moment(size):
    """1,000 stretches of draws; 7.1 %, that is 5 % and three binomial standard errors, would refuse the promise."""
    n = {"quick": 25, "all": 60, "trials": 200}[size]
    world = World(seed=12, n_questions=1, vocabulary=7, n_stops=1, n_closing=1, length=4, peakedness=2.0)
    [certificate] = searched(world, draws=1000 * n, search_alpha=0.2)
    exact, mass = entropy(world.outcomes(0)[0]), certificate.pruned_mass
    draws = np.reshape(certificate.remainder_draws, (1000, n))
    low, high = anytime.limits(draws, [certificate.remainder_most] * 1000)
    left = (exact - certificate.tree_bound) / mass
    assert ((left < low) | (left > high)).mean() <= 0.071
    by_student = np.zeros(1000, bool)
    for k in range(2, n + 1):
        found = from_search(np.zeros(1000), np.ones(1000), draws[:, :k])
        by_student |= (left < found.low - 1e-9) | (left > found.high + 1e-9)
    assert by_student.mean() > 0.2


def test_a_remainder_by_hand():
    """After 'a' (0.5, above α) everything is certain; after 'b' or 'c' (0.2 each, neither named) a fair coin ends."""
    tables = {(): [0.1, 0.5, 0.2, 0.2], (1,): [1.0, 0.0, 0.0, 0.0], **{(t,): [0.5, 0.5, 0.0, 0.0] for t in (2, 3)}}

    class Hand(World):
        def log_probs(self, question, prefix):
            import torch

            return torch.tensor(tables.get(prefix, [1.0, 0.0, 0.0, 0.0]), dtype=torch.float64).log().float()

    world, tree = Hand(0, 1, 4, 1, 0, 3, 0.0), None
    [certificate] = searched(world, draws=50, tree=tree, search_alpha=0.3)
    assert certificate.pruned_mass == pytest.approx(0.4)
    assert certificate.remainder_draws == pytest.approx([math.log(2)] * 50, abs=1e-6)
    assert certificate.remainder_most == pytest.approx(2 * math.log(4))
    # 'b' and 'c' are put through once each, however many draws there are, and so is what follows each of them.
    assert (certificate.token_forwards, certificate.remainder_forwards) == (1, 4)


def test_a_draw_depends_on_seed_question_and_number_alone():
    world = World(seed=7, n_questions=4, vocabulary=8, n_stops=2, n_closing=1, length=4, peakedness=1.0)
    [*few], [*many] = (searched(world, draws=draws, search_alpha=0.2) for draws in (3, 12))
    assert [each.remainder_draws for each in few] == [each.remainder_draws[:3] for each in many]
    other = searched(world, draws=12, seed=1, search_alpha=0.2)
    assert all(one.remainder_draws != two.remainder_draws for one, two in zip(many, other, strict=True))
    assert [each.tree_bound for each in other] == [each.tree_bound for each in many]
    with mock.patch.object(remainder, "uniforms", wraps=remainder.uniforms) as asked:
        searched(world, draws=3, search_alpha=0.2)
    # Samples of the same seed have another stream, so that one may be held against the other.
    assert not set(asked.call_args.args[1]) & {"q0", "q1", "q2", "q3"}


def test_where_nothing_is_left_the_draws_are_nothing():
    world = World(seed=3, n_questions=1, vocabulary=4, n_stops=1, n_closing=0, length=1, peakedness=1.0)
    [certificate] = searched(world, draws=4, search_alpha=0.5)
    assert (certificate.remainder_draws, certificate.remainder_most) == ((0.0,) * 4, 0.0)
    assert certificate.remainder_forwards == 0


def test_a_search_without_draws_is_the_run_that_it_was():
    asked = Threshold(search_alpha=0.1, seed=3)
    assert set(asked.parameters()) == {"strategy", "search_alpha", "top_n", "budget", "max_new_tokens", "stop"}
    assert asked.apart() == Threshold(search_alpha=0.1).apart()
    drawing = Threshold(search_alpha=0.1, seed=3, entropy_draws=5)
    assert drawing.parameters().items() >= {"entropy_draws": 5, "seed": 3}.items()
    with pytest.raises(ValueError, match="entropy_draws=-1 must be a whole number"):
        Threshold(entropy_draws=-1)


@pytest.mark.parametrize("at_once", [None, 3])
def test_a_run_keeps_its_draws_and_counts_their_forwards(facts_2m, tmp_path, monkeypatch, at_once):
    from pro_lib.engine import exact

    few = question_sets.load("world-facts", split="test", limit=6, seed=3)
    if at_once:
        monkeypatch.setattr(exact, "_LOG_PROBS_AT_ONCE", at_once * len(facts_2m.endings.stop))
    how = {"strategy": "threshold", "search_alpha": 0.1, "entropy_draws": 8, "progress": False}
    made = generate(facts_2m, few, **how)
    generate(facts_2m, few, out=tmp_path, **how)
    read = runs.read(next(tmp_path.glob("*/*/*")))
    assert read.info.strategy == "threshold"
    assert list(map(list, read.questions["remainder_draws"])) == list(map(list, made.questions["remainder_draws"]))
    spent = read.questions["token_forwards"] + read.questions["remainder_forwards"]
    assert spent.sum() == read.info.cost.token_forwards
    np.testing.assert_allclose(read.questions[MASSES].sum(axis=1), 1, atol=1e-5)
    plain = generate(facts_2m, few, **how | {"entropy_draws": 0})
    np.testing.assert_allclose(read.questions["tree_bound"], plain.questions["tree_bound"], atol=2e-5)
    assert list(plain.questions["token_forwards"]) == list(read.questions["token_forwards"])


def test_in_half_precision_what_is_searched_again_is_drawn_again_and_both_are_counted():
    model = models.load("facts-2m", device="cpu", dtype="bfloat16")
    few = question_sets.load("world-facts", split="test", limit=12, seed=3)
    how = {"strategy": "threshold", "search_alpha": 0.05, "progress": False}
    run, plain = (generate(model, few, entropy_draws=draws, **how) for draws in (4, 0))
    spent = run.questions["token_forwards"] + run.questions["remainder_forwards"]
    measured = plain.info.cost.token_forwards - plain.questions["token_forwards"].sum()  # what ε took
    assert spent.sum() == run.info.cost.token_forwards - measured
    # Some were searched again: else there would be nothing to count twice.
    assert plain.questions["token_forwards"].sum() > (plain.questions["expanded_prefixes"] - 1).sum()
    assert (run.entropy().estimate >= run.questions["tree_bound"]).all()
