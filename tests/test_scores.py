import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pro_lib import scores

NAN = np.nan

# Appendix of the paper (NQ, Gemma-7B): the answers' probabilities, and PRO as printed for K = 1, 2, 3, α = 0.1
PRESIDENT = [0.455, 0.455, 0.455, 0.159, 0.065, 0.065, 0.065, 0.015, 0.005, 1e-6]
GIRLFRIEND = [0.144, 0.144, 0.118, 0.118, 0.103, 0.103, 0.028, 0.020, 0.019, 1e-10]
COASTLINE = [0.147, 0.136, 0.136, 0.114, 0.114, 0.056, 0.044, 0.007, 2e-5, 2e-8]
APPENDIX = [
    (PRESIDENT, (0.788, 0.788, 0.788, 0.404)),
    (GIRLFRIEND, (1.935, 1.935, 2.081, 2.142)),
    (COASTLINE, (1.921, 1.987, 1.987, 2.087)),
]


def naive_pro(probs, k):
    """The formula of the paper, term by term."""
    p = sorted(probs, reverse=True)[:k]
    return -math.log(p[-1]) - sum(p_i * math.log(p_i / p[-1]) for p_i in p)


def padded(rows):
    width = max(map(len, rows), default=0)
    return np.array([[math.log(p) for p in row] + [NAN] * (width - len(row)) for row in rows])


def distributions(min_size=1, max_size=12):
    weights = st.lists(st.floats(1e-6, 1.0), min_size=min_size, max_size=max_size)
    return weights.map(lambda values: np.array(values) / np.sum(values))


def test_pro_by_hand():
    # p = 1/2, 1/4: K = 2 gives log 4 - (1/2) log(2) - (1/4) log(1) = 2 log 2 - 0.5 log 2 = 1.5 log 2.
    log_probs = np.log([[0.5, 0.25]])
    assert scores.pro_at_k(log_probs, 2) == pytest.approx(1.5 * math.log(2), abs=1e-15)
    # α = 0.25 keeps both; α = 0.3 keeps the first alone: log 2.
    assert scores.pro(log_probs, alpha=0.25) == pytest.approx(1.5 * math.log(2), abs=1e-15)
    assert scores.pro(log_probs, alpha=0.3) == pytest.approx(math.log(2), abs=1e-15)


@pytest.mark.parametrize(("probs", "printed"), APPENDIX)
@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
def test_pro_agrees_with_the_printed_appendix_examples(probs, printed):
    log_probs = np.log([probs])
    computed = [scores.pro_at_k(log_probs, k)[0] for k in (1, 2, 3)] + [scores.pro(log_probs, alpha=0.1)[0]]
    np.testing.assert_allclose(computed, printed, rtol=0, atol=0.005)


def test_repeated_answers_can_make_pro_negative():
    # -log 0.01 - 1.2 log 60 = 4.605 - 4.913 = -0.308; without the repeat 4.605 - 0.6 * 4.094 = 2.149.
    log_probs = padded([[0.6, 0.6, 0.01], [0.6, 0.01]])
    with pytest.warns(scores.PremiseWarning, match=r"^1 of 2 questions .*first in row 0"):
        result = scores.pro(log_probs, alpha=0)
    np.testing.assert_allclose(result, [-0.308, 2.149], rtol=0, atol=0.001)


@given(st.lists(distributions(), min_size=1, max_size=6), st.integers(1, 14))
def test_every_k_agrees_with_the_formula(rows, k):
    log_probs = padded(rows)
    expected = [naive_pro(row, k) for row in rows]
    np.testing.assert_allclose(scores.pro_at_k(log_probs, k), expected, rtol=1e-12, atol=1e-12)
    table = scores.pro_all_k(log_probs)
    assert table.shape == log_probs.shape
    for row, values in zip(rows, table, strict=True):
        n = len(row)
        np.testing.assert_allclose(values[:n], [naive_pro(row, j + 1) for j in range(n)], rtol=1e-12, atol=1e-12)
        assert np.isnan(values[n:]).all()


@given(distributions(), st.data())
def test_pro_grows_with_k_and_never_exceeds_the_entropy(distribution, data):
    top = np.sort(distribution)[::-1]
    n_found = data.draw(st.integers(1, len(top)))
    by_k = scores.pro_all_k(np.log([top[:n_found]]))[0]
    entropy = -np.sum(top * np.log(top))
    assert (np.diff(by_k) >= -1e-12).all()
    assert by_k[-1] <= entropy + 1e-12


@given(distributions())
def test_pro_of_the_whole_distribution_is_its_entropy(distribution):
    entropy = -np.sum(distribution * np.log(distribution))
    assert scores.pro(np.log([distribution]), alpha=0)[0] == pytest.approx(entropy, abs=1e-12)


@given(st.lists(distributions(), min_size=1, max_size=5))
def test_pro_of_one_answer_is_exactly_nll(rows):
    log_probs = padded(rows)
    np.testing.assert_array_equal(scores.pro_at_k(log_probs, 1), scores.nll(log_probs))
    np.testing.assert_array_equal(scores.pro_all_k(log_probs)[:, 0], scores.nll(log_probs))


@given(st.lists(distributions(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_answers_is_irrelevant(rows, random):
    log_probs = padded(rows)
    order = list(range(log_probs.shape[1]))
    random.shuffle(order)
    shuffled = log_probs[:, order]
    wider = np.column_stack([np.full((len(rows), 9), NAN), shuffled])
    exact = (scores.pro, scores.nll, scores.predictive_entropy, scores.predictive_entropy_mc, scores.normalized_entropy)
    floors = (partial(of, alpha=0.1) for of in (scores.alpha_floor, scores.mass_not_found, scores.adaptive_k))
    for score in (*exact, *floors):  # to the bit, so that what ties stays a tie
        for moved in (shuffled, wider):
            np.testing.assert_array_equal(score(moved), score(log_probs))
    np.testing.assert_array_equal(scores.pro_all_k(shuffled), scores.pro_all_k(log_probs))
    np.testing.assert_array_equal(
        scores.average_log_likelihood(shuffled / 3, shuffled),
        scores.average_log_likelihood(log_probs / 3, log_probs),
    )


@given(arrays(np.float64, (4, 5), elements=st.floats(0.001, 1.0)), st.lists(st.floats(0, 1), max_size=4))
def test_kept_counts_the_answers_at_or_above_alpha(probs, alphas):
    log_probs = np.log(probs)
    alphas = [*alphas, *probs[0, :2]]  # exact ties among them
    expected = [[max(1, int(np.sum(np.log(row) >= (np.log(a) if a else -np.inf)))) for a in alphas] for row in probs]
    np.testing.assert_array_equal(scores.adaptive_k(log_probs, alphas), expected)


def test_alpha_keeps_an_answer_that_equals_it():
    for alpha in (0.1, 0.15, 0.3, 0.7, 1.0):
        assert scores.adaptive_k(np.log([[alpha, alpha, alpha / 2]]), alpha).tolist() == [2]


def test_kept_falls_back_to_one_answer_and_to_none():
    log_probs = padded([[0.3, 0.2, 0.1], [0.05], []])
    assert scores.adaptive_k(log_probs, 0.15).tolist() == [2, 1, 0]
    assert scores.adaptive_k(log_probs, 0).tolist() == [3, 1, 0]
    assert scores.adaptive_k(log_probs, 1).tolist() == [1, 1, 0]


def test_several_alphas_or_ks_give_a_column_each():
    log_probs = padded([[0.3, 0.2, 0.1], [0.05], []])
    by_alpha = scores.pro(log_probs, alpha=[0.0, 0.15, 0.9])
    by_k = scores.pro_at_k(log_probs, [1, 2, 5])
    assert by_alpha.shape == by_k.shape == (3, 3)
    for column, (alpha, k) in enumerate([(0.0, 1), (0.15, 2), (0.9, 5)]):
        np.testing.assert_array_equal(by_alpha[:, column], scores.pro(log_probs, alpha=alpha))
        np.testing.assert_array_equal(by_k[:, column], scores.pro_at_k(log_probs, k))


def test_a_question_with_fewer_than_k_answers_uses_all_it_has():
    log_probs = padded([[0.3, 0.2, 0.1], [0.5]])
    assert scores.pro_at_k(log_probs, 3)[1] == -math.log(0.5)
    np.testing.assert_array_equal(scores.pro_at_k(log_probs, 9), scores.pro_at_k(log_probs, 3))


def test_baselines_by_hand():
    # First question: p = 1/8 in 3 tokens, p = 1/2 in 2 tokens. Second: p = 1/4 in 1 token. In units of log 2:
    log2 = math.log(2)
    log_probs = log2 * np.array([[-3.0, -1.0], [-2.0, NAN]])
    means = log_probs / np.array([[3, 2], [1, NAN]])  # -1, -1/2; -2
    np.testing.assert_allclose(scores.nll(log_probs), [log2, 2 * log2])
    np.testing.assert_allclose(scores.average_log_likelihood(means, log_probs), [0.5 * log2, 2 * log2])
    np.testing.assert_allclose(scores.predictive_entropy(log_probs), [(1 / 2 + 3 / 8) * log2, 2 / 4 * log2])
    np.testing.assert_allclose(scores.predictive_entropy_mc(log_probs), [(3 + 1) / 2 * log2, 2 * log2])
    np.testing.assert_allclose(scores.normalized_entropy(means), [(1 + 0.5) / 2 * log2, 2 * log2])


def test_average_log_likelihood_of_tied_answers_takes_the_highest_mean():
    log_probs = np.array([[-6.0, -6.0, -7.0]])
    assert scores.average_log_likelihood([[-3.0, -2.0, -1.0]], log_probs).tolist() == [2.0]


def test_average_log_likelihood_wants_aligned_arrays():
    # Known for the most probable answer; known only for another; known for none.
    means, totals = [[-1.0, NAN], [NAN, -0.5], [NAN, NAN]], [[-1.0, -2.0]] * 3
    np.testing.assert_array_equal(scores.average_log_likelihood(means, totals), [1.0, NAN, NAN])
    with pytest.raises(ValueError, match=r"shape \(1, 1\), but log_probs \(1, 2\)"):
        scores.average_log_likelihood([[-1.0]], [[-1.0, -2.0]])


ALL_SCORES = [
    scores.pro,
    lambda x: scores.pro_at_k(x, 2),
    scores.nll,
    lambda x: scores.average_log_likelihood(x, x),
    scores.predictive_entropy,
    scores.predictive_entropy_mc,
    scores.normalized_entropy,
]


@pytest.mark.parametrize("score", ALL_SCORES)
def test_a_question_without_answers_is_nan_and_alone_in_that(score):
    result = score([[NAN, NAN], [-1.0, NAN]])
    assert result.dtype == np.float64
    assert np.isnan(result).tolist() == [True, False]
    assert np.isnan(score(np.empty((2, 0)))).tolist() == [True, True]
    assert score(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize("score", [*ALL_SCORES, scores.pro_all_k, scores.premise, lambda x: scores.adaptive_k(x, 0.4)])
def test_impossible_log_probabilities_name_row_and_answer(score):
    for bad in (0.1, 2e-6, np.inf, -np.inf):
        with pytest.raises(ValueError, match=r"log_probs row 1, answer 2 is .*must be finite and at most 0"):
            score([[-1.0, -1.0, -2.0], [-1.0, -3.0, bad]])
    with pytest.raises(ValueError, match=r"log_probs must have the shape \(n, N\), not \(2,\)"):
        score([-1.0, -2.0])


def test_rounding_above_zero_is_accepted():
    assert scores.nll([[5e-7]]).tolist() == [-5e-7]


@pytest.mark.parametrize("alpha", [-0.1, 1.1, NAN, [0.1, 2.0], [[0.1]]])
def test_alpha_outside_zero_to_one_is_an_error(alpha):
    for score in (lambda: scores.pro([[-1.0]], alpha=alpha), lambda: scores.adaptive_k([[-1.0]], alpha)):
        with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
            score()


@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, True, [1, 0], "2", np.array([], int)])
def test_k_must_be_a_positive_integer(k):
    with pytest.raises(ValueError, match="k must be an integer of at least 1"):
        scores.pro_at_k([[-1.0]], k)


@pytest.mark.parametrize("score", [scores.pro, lambda x: scores.pro_at_k(x, 1), scores.pro_all_k])
def test_mass_above_one_is_warned_about_once_with_its_count(score):
    log_probs = np.log([COASTLINE, PRESIDENT, PRESIDENT])
    with pytest.warns(scores.PremiseWarning, match="^2 of 3 questions .*first in row 1") as caught:
        score(log_probs)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # the warning points at the caller


def test_a_mass_of_one_is_not_warned_about():
    scores.pro(np.log([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]))  # warnings are errors here


def test_premise_measures_the_mass():
    # 3 * 0.455 + 0.159 + 3 * 0.065 + 0.015 + 0.005 + 1e-6 = 1.739001.
    measured = scores.premise(padded([PRESIDENT, [0.2, 0.1], [], [0.5, 0.5]]))
    np.testing.assert_allclose(measured.mass, [1.739001, 0.3, 0.0, 1.0])
    assert measured.above_one.tolist() == [True, False, False, False]


def test_the_alpha_floor_by_hand():
    log_probs = np.log([[0.5, 0.2, 0.05], [0.03, np.nan, np.nan]])
    terms = -0.5 * np.log(0.5) - 0.2 * np.log(0.2) - 0.3 * np.log(0.1)
    floor = scores.alpha_floor(log_probs, alpha=0.1)
    assert floor == pytest.approx([terms, -np.log(0.1)])
    still_open = np.log([[0.15], [np.nan]])
    opened = scores.alpha_floor(log_probs, alpha=0.1, open_log_probs=still_open)
    assert opened[0] == pytest.approx(terms - 0.15 * np.log(0.15) + 0.15 * np.log(0.1))
    assert scores.alpha_floor(log_probs, alpha=[0.1, 0.3])[0] == pytest.approx([terms, -0.5 * np.log(0.5 * 0.3)])
    with pytest.raises(ValueError, match="alpha must be above 0 for alpha_floor"):
        scores.alpha_floor(log_probs, alpha=0.0)


def test_the_mass_not_found_by_hand():
    log_probs = np.log([[0.5, 0.2, 0.05], [0.03, np.nan, np.nan]])
    expected = [[0.3, 0.25], [1.0, 0.97]]
    np.testing.assert_allclose(scores.mass_not_found(log_probs, alpha=[0.1, 0.01]), expected, atol=1e-12)


def test_the_tree_bound_by_hand():
    prefixes, entropies = np.log([[1.0, 0.4, 0.1], [1.0, np.nan, np.nan]]), np.array([[2.0, 1.0, 0.5], [0.3, 0, 0]])
    assert scores.tree_bound(prefixes, entropies) == pytest.approx([2.45, 0.3])
    assert scores.tree_bound(prefixes, entropies, alpha=[0.2, 0.0])[0] == pytest.approx([2.4, 2.45])
    with pytest.raises(ValueError, match="next_entropies has the shape"):
        scores.tree_bound(prefixes, entropies[:1])


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8), st.floats(0.001, 1.0))
def test_pro_stays_below_the_alpha_floor_and_both_below_the_entropy(weights, alpha):
    probs = np.sort(np.array(weights) / sum(weights))[::-1]
    log_probs = np.log(probs)[None]
    entropy = -(probs * np.log(probs)).sum()
    floor = scores.alpha_floor(log_probs, alpha=alpha)[0]
    assert floor <= entropy + 1e-9
    if (log_probs >= np.log(alpha)).any():
        assert scores.pro(log_probs, alpha=alpha)[0] <= floor + 1e-9
