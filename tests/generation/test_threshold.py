"""Exact search, compared with all outcomes of random models of at most twelve tokens."""

import itertools
import math
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pro_lib.generation.decoding import exact_search
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.strategies import Greedy, Threshold


@dataclass(frozen=True)
class World:
    """Random distributions of the next token for some questions, one for every prefix."""

    seed: int
    n_questions: int
    vocabulary: int
    n_stops: int
    n_closing: int
    length: int
    peakedness: float

    @property
    def endings(self):
        ids = torch.arange(self.vocabulary)
        stop = ids < self.n_stops
        return Endings(stop, (ids < self.n_stops + self.n_closing) & ~stop)

    def log_probs(self, question, prefix):
        rng = np.random.default_rng([self.seed, question, *prefix])
        logits = rng.normal(size=self.vocabulary) * self.peakedness
        # Rounded logits cause ties, an impossible token causes probabilities of 0.
        logits = np.round(logits) if self.seed % 3 == 0 else logits
        logits[rng.integers(self.vocabulary)] -= (
            np.inf if self.seed % 5 == 0 and self.vocabulary > 2 else 0
        )
        return torch.log_softmax(torch.tensor(logits), dim=-1).float()

    def outcomes(self, question):
        """Return all outcomes and all prefixes that can be expanded.

        Outcomes map (token ids, finished) to a log-probability, prefixes map token ids to p(v) and
        H(next | v).
        """
        outcomes = {}
        prefixes = {}

        def visit(prefix, log_prob):
            step = self.log_probs(question, prefix).double()
            stop = self.endings.stop
            closing = self.endings.closing
            events = [float(torch.logsumexp(step[stop], dim=0)), *step[~stop].tolist()]
            prefixes[prefix] = (
                math.exp(log_prob),
                -sum(math.exp(e) * e for e in events if e > -math.inf),
            )
            outcomes[(prefix, True)] = log_prob + events[0]
            for token in (~stop).nonzero().squeeze(1).tolist():
                child = (*prefix, token)
                total = log_prob + float(step[token])
                if total == -math.inf:
                    continue
                if closing[token] or len(child) == self.length:
                    outcomes[(child, bool(closing[token]))] = total
                else:
                    visit(child, total)

        visit((), 0.0)
        return {key: value for key, value in outcomes.items() if value > -math.inf}, prefixes


class TableTree:
    """A `Tree` of the distributions of a world; `widest` is the largest number of children."""

    def __init__(self, world):
        self.world = world
        self.widest = 0

    def plant(self):
        self.rows = [(question, ()) for question in range(self.world.n_questions)]
        return torch.stack([self.world.log_probs(*row) for row in self.rows])

    def grow(self, parents, tokens, *, keep=None):
        above = [self.rows[row] for row in parents.tolist()]
        children = [
            (question, (*path, token))
            for (question, path), token in zip(above, tokens.tolist(), strict=True)
        ]
        kept_rows = [] if keep is None else keep.tolist()
        self.rows = [self.rows[row] for row in kept_rows] + children
        self.widest = max(self.widest, len(children))
        return torch.stack([self.world.log_probs(*row) for row in children])


@st.composite
def worlds(draw):
    vocabulary = draw(st.integers(2, 12))
    longest = 3
    if vocabulary <= 9:
        longest = 5 if vocabulary <= 6 else 4
    n_stops = draw(st.integers(1, max(1, min(3, vocabulary - 1))))
    return World(
        seed=draw(st.integers(0, 2**20)),
        n_questions=draw(st.integers(1, 3)),
        vocabulary=vocabulary,
        n_stops=n_stops,
        n_closing=draw(st.integers(0, min(5, vocabulary - n_stops))),
        length=draw(st.integers(1, longest)),
        peakedness=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0])),
    )


def searched(world, *, tree=None, epsilon=0.0, max_width=None, **settings):
    """Search each question, with at most `max_width` prefixes in a batch."""
    at_once = max_width * world.vocabulary if max_width else exact_search._LOG_PROBS_AT_ONCE
    search = Threshold(max_new_tokens=world.length, **settings)
    with mock.patch.object(exact_search, "_LOG_PROBS_AT_ONCE", at_once):
        return search.decode(
            tree or TableTree(world), world.endings, question_ids=[], epsilon=epsilon
        )


def ends_in_closing(world, ids):
    return len(ids) > 0 and bool(world.endings.closing[ids[-1]])


MASSES = [
    f"{name}_mass" for name in ("found", "small_endings", "pruned", "length_cut", "budget_cut")
]


def masses(certificate):
    return np.array([getattr(certificate, name) for name in MASSES])


def likely_answers(run, least):
    """Return the token ids of the answers of a run that have a log-probability, by question."""
    rows = run.ranked_answers()
    likely = rows[rows["value"] >= least].groupby("question_id")["token_ids"]
    return likely.agg(lambda answers: set(map(tuple, answers))).to_dict()


def chances(outcomes):
    """Return probabilities of the answers that end, and of those that are cut, by token ids."""
    ended = {}
    cut = {}
    for (ids, finished), log_prob in outcomes.items():
        (ended if finished else cut)[ids] = math.exp(log_prob)
    return ended, cut


def entropy(outcomes):
    return -sum(math.exp(v) * v for v in outcomes.values())


def probability(answer):
    return math.exp(sum(answer.token_log_probs) + (answer.end_log_prob or 0.0))


def check_certificate(certificate, outcomes, prefixes, *, lowest=None):
    """Check bounds and the stored tree by the whole tree; return the prefixes of the stored one."""
    assert certificate.alpha_floor <= certificate.tree_bound + 1e-5
    assert certificate.tree_bound <= entropy(outcomes) + 1e-5
    assert entropy(outcomes) <= certificate.upper_bound + 1e-5
    assert masses(certificate).sum() == pytest.approx(1.0, abs=1e-5)
    paths = []
    for parent, token in zip(certificate.tree_parents, certificate.tree_tokens, strict=True):
        paths.append(() if parent < 0 else (*paths[parent], token))
    assert len(set(paths)) == len(paths) == certificate.expanded_prefixes
    for path, log_prob, bits in zip(
        paths, certificate.tree_log_probs, certificate.tree_entropies, strict=True
    ):
        assert math.exp(log_prob) == pytest.approx(prefixes[path][0], abs=1e-6)
        assert bits == pytest.approx(prefixes[path][1], abs=1e-5)
    # No search expands more than E[length]/α prefixes in addition to the greedy path. E[length] is
    # at least the sum of p over the expanded prefixes at or above α, so this check is stricter.
    log_probs = np.array(certificate.tree_log_probs)
    greedy = np.array(certificate.tree_greedy)
    lowest = log_probs[~greedy].min(initial=0) if lowest is None else lowest - 1e-9
    expected_length = np.exp(log_probs[log_probs >= lowest]).sum()
    assert (
        certificate.expanded_prefixes
        <= expected_length * math.exp(-lowest) * (1 + 1e-9) + greedy.sum()
    )
    assert certificate.depth == max(map(len, paths))
    return set(paths)


def check_greedy(world, question, answers):
    decoded = Greedy(max_new_tokens=world.length).decode(
        TableTree(world), world.endings, question_ids=[]
    )
    [best] = decoded[question][0]
    [mine] = [a for a in answers if a.token_ids == best.token_ids and a.finished == best.finished]
    assert mine.end_log_prob == pytest.approx(best.end_log_prob, abs=1e-12)
    return "fallback" if best.finished else "cut"


ALPHAS = st.sampled_from([1.0, 0.7, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-5, 1e-9])


@given(worlds(), ALPHAS, st.sampled_from([None, 1, 3]))
def test_threshold_search_finds_what_brute_force_finds(world, alpha, max_width):
    tree = TableTree(world)
    results = searched(world, tree=tree, search_alpha=alpha, max_width=max_width)
    assert max_width is None or tree.widest <= max_width
    check_search(world, alpha, results)


def check_search(world, alpha, results):
    """Check answers, masses, trees, bounds and statuses of a threshold search by brute force."""
    for question, (answers, certificate) in enumerate(results):
        outcomes, prefixes = world.outcomes(question)
        # With α exactly at the probability of an answer, the rounding of float32 would decide.
        if any(abs(math.exp(value) - alpha) <= 1e-6 for value in outcomes.values()):
            continue
        complete, cut = chances(outcomes)
        likely = check_likely_answers(answers, complete, alpha)
        fallback_status = check_greedy(world, question, answers)
        paths = check_certificate(certificate, outcomes, prefixes, lowest=math.log(alpha))
        assert {path for path, (p, _) in prefixes.items() if p >= alpha + 1e-6} <= paths
        check_leaves(world, alpha, certificate, paths, outcomes, prefixes)

        is_open = any(p >= alpha for p in cut.values())
        status = expected_status(is_open, likely, fallback_status)
        assert certificate.status == status
        assert (certificate.why == "") == (status == "certified")
        assert certificate.token_forwards == certificate.expanded_prefixes - 1
        if status == "fallback":
            best = max((probability(answer) for answer in answers if answer.finished), default=0.0)
            assert best - 1e-6 <= max(complete.values(), default=0.0) < alpha


def expected_status(is_open, answers, fallback_status):
    if is_open:
        return "undecided"
    return "certified" if answers else fallback_status


def check_likely_answers(answers, complete, alpha):
    """Check that all answers with p ≥ α are found, each once; return their probabilities."""
    ended = [answer for answer in answers if answer.finished]
    assert len(ended) == len({answer.token_ids for answer in ended})
    probabilities = {answer.token_ids: probability(answer) for answer in ended}
    likely = {ids: p for ids, p in probabilities.items() if p >= alpha}
    expected = {ids: p for ids, p in complete.items() if p >= alpha}
    assert likely == pytest.approx(expected, abs=1e-6)
    return likely


def check_leaves(world, alpha, certificate, paths, outcomes, prefixes):
    """Check masses and bounds by the leaves below the expanded prefixes `paths`."""
    complete, cut = chances(outcomes)
    # The search meets an answer if it expands the prefix before the last event.
    ended = [
        p
        for ids, p in complete.items()
        if (ids[:-1] if ends_in_closing(world, ids) else ids) in paths
    ]
    pruned = {
        path: p for path, (p, _) in prefixes.items() if path not in paths and path[:-1] in paths
    }
    length_cut = [p for ids, p in cut.items() if ids[:-1] in paths]
    likely_mass = sum(p for p in complete.values() if p >= alpha)
    small_mass = sum(p for p in ended if p < alpha)
    expected = [likely_mass, small_mass, sum(pruned.values()), sum(length_cut), 0.0]
    assert masses(certificate) == pytest.approx(expected, abs=1e-5)
    # For an answer below α, only that is known. Below a pruned prefix, any event is possible.
    leaves = [*pruned.values(), *length_cut, *ended]
    floor = -sum(p * math.log(max(p, alpha)) for p in leaves)
    tree_bound = sum(math.prod(prefixes[path]) for path in paths)
    steps_left = sum(p * (world.length - len(path)) for path, p in pruned.items())
    upper_bound = tree_bound + steps_left * math.log((~world.endings.stop).sum() + 1)
    bounds = certificate.alpha_floor, certificate.tree_bound, certificate.upper_bound
    assert bounds == pytest.approx((floor, tree_bound, upper_bound), abs=1e-5)


# In this example the second answer is far below the first α of the search.
@example(World(4, 1, 4, 2, 0, 2, 12.0), 2, None)
@given(worlds(), st.integers(1, 12), st.sampled_from([None, 1, 4]))
def test_top_n_finds_the_n_most_probable(world, top_n, max_width):
    check_top_n(world, top_n, searched(world, top_n=top_n, max_width=max_width))


def check_top_n(world, top_n, results):
    """Check that the answers are the N most probable of all."""
    for question, (answers, certificate) in enumerate(results):
        outcomes, prefixes = world.outcomes(question)
        ended, cut = chances(outcomes)
        complete = sorted(ended.values(), reverse=True)
        expected = complete[:top_n]
        probabilities = [probability(answer) for answer in answers if answer.finished]
        ranked = sorted(probabilities, reverse=True)
        assert ranked[: len(expected)] == pytest.approx(expected, abs=1e-6)
        fallback_status = check_greedy(world, question, answers)
        check_certificate(certificate, outcomes, prefixes)
        # If there are fewer than N answers, all are found, and `search_alpha` is the last α.
        least = expected[-1] if len(expected) == top_n else certificate.search_alpha
        if not any(abs(p - least) < 1e-6 for p in cut.values()):
            is_open = any(p >= least for p in cut.values())
            assert certificate.status == expected_status(is_open, ranked, fallback_status)
        if certificate.status == "certified":
            assert bool(certificate.why) == (len(complete) < top_n)
        if len(complete) >= top_n:
            assert certificate.search_alpha == pytest.approx(expected[-1], abs=1e-6)


@given(worlds(), st.sampled_from([0.3, 0.1, 0.03, 0.01, 1e-4]), st.integers(0, 40), st.booleans())
def test_a_search_stopped_by_its_budget_is_undecided_and_its_bounds_hold(
    world, alpha, budget, use_top_n
):
    how = {"top_n": 5} if use_top_n else {"search_alpha": alpha}
    whole = searched(world, **how)
    results = searched(world, budget=budget, **how)
    for question, (answers, certificate) in enumerate(results):
        outcomes, prefixes = world.outcomes(question)
        assert certificate.token_forwards <= budget
        check_certificate(certificate, outcomes, prefixes)
        complete, _ = chances(outcomes)
        for answer in answers:
            assert not answer.finished or probability(answer) == pytest.approx(
                complete[answer.token_ids], abs=1e-6
            )
        # The search continues at a lower α if the budget suffices for its greedy path.
        if budget >= whole[question][1].token_forwards + use_top_n * world.length:
            assert certificate == whole[question][1]
        elif certificate.budget_cut_mass > 0:
            assert certificate.status == "undecided"
            assert f"budget of {budget}" in certificate.why
        if certificate.status == "certified" and not use_top_n:
            assert certificate.found_mass == pytest.approx(
                sum(p for p in complete.values() if p >= alpha), abs=1e-5
            )
        if budget >= world.length:
            check_greedy(world, question, answers)


def test_an_answer_exactly_at_alpha_is_found():
    world = World(
        seed=11, n_questions=1, vocabulary=9, n_stops=1, n_closing=1, length=3, peakedness=1.0
    )
    [(answers, _)] = searched(world, search_alpha=1e-3)
    values = [answer.complete_log_prob for answer in answers if answer.finished]
    exactly = [value for value in values if math.log(math.exp(value)) == value]
    assert len(exactly) > 10
    for alpha in exactly:
        [(answers, certificate)] = searched(world, search_alpha=math.exp(alpha))
        assert alpha in [answer.complete_log_prob for answer in answers if answer.finished]
        assert certificate.found_mass == pytest.approx(
            sum(math.exp(value) for value in values if value >= alpha)
        )


@pytest.mark.parametrize("depths", [slice(None), 1, 2, 3], ids=str)
def test_an_answer_within_the_epsilon_of_its_depth_of_alpha_is_undecided(depths):
    world = World(
        seed=11, n_questions=1, vocabulary=9, n_stops=1, n_closing=1, length=3, peakedness=1.0
    )
    outcomes, prefixes = world.outcomes(0)
    # The depth of an answer is its number of tokens, and 1 for its ending unless that is a token.
    depths_of_answers = [
        (value, len(ids) + (not ends_in_closing(world, ids)))
        for (ids, finished), value in outcomes.items()
        if finished
    ]
    ranked = sorted(depths_of_answers, reverse=True)[:6]
    assert {depth for _, depth in ranked} >= {1, 2}
    epsilon = np.zeros(4)
    epsilon[depths] = 0.05
    for (value, _), shift in itertools.product(ranked, (0.02, -0.02, 1e-6)):
        alpha = min(1.0, math.exp(value + shift))
        [(answers, certificate)] = searched(world, search_alpha=alpha, epsilon=epsilon)
        near = {v for v, depth in ranked if abs(v - value - shift) <= epsilon[depth]}
        assert (certificate.status == "undecided") == bool(near), (value, shift)
        log_probs = [pytest.approx(math.log(probability(answer)), abs=1e-5) for answer in answers]
        assert all(value in log_probs for value in near)
        assert certificate.epsilon == 0.05
        check_certificate(certificate, outcomes, prefixes)
    [(_, certificate)] = searched(world, search_alpha=0.9999, epsilon=epsilon)
    assert certificate.status == "fallback"


@pytest.mark.parametrize(
    ("share", "status"), [(0.4, "certified"), (0.6, "undecided"), (0.9, "undecided")]
)
def test_both_of_two_compared_answers_may_have_an_error(share, status):
    world = World(
        seed=21, n_questions=1, vocabulary=5, n_stops=2, n_closing=0, length=3, peakedness=2.0
    )
    complete, cut = chances(world.outcomes(0)[0])
    first, second = sorted(complete.values(), reverse=True)[:2]
    assert max(cut.values()) < second
    [(_, certificate)] = searched(world, top_n=1, epsilon=share * math.log(first / second))
    assert certificate.status == status
