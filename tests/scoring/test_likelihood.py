import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pro_lib import scoring

NAN = np.nan
ALL_SCORES = [scoring.pro, scoring.nll, scoring.normalized_entropy, scoring.predictive_entropy]
ALL_SCORES += [scoring.predictive_entropy_mc, lambda x: scoring.pro_at_k(x, 2)]
ALL_SCORES += [lambda x: scoring.average_log_likelihood(x / 3, x)]


def naive_pro(probs, k):
    """The formula of the paper, term by term."""
    p = sorted(probs, reverse=True)[:k]
    return -math.log(p[-1]) - sum(p_i * math.log(p_i / p[-1]) for p_i in p)


def padded(rows):
    width = max(map(len, rows), default=0)
    return np.array([[math.log(p) for p in row] + [NAN] * (width - len(row)) for row in rows])


def distributions():
    return st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=12).map(
        lambda values: np.array(values) / np.sum(values)
    )


@given(
    st.lists(distributions(), min_size=1, max_size=6),
    st.lists(st.integers(1, 14), min_size=1, max_size=3),
)
def test_every_k_agrees_with_the_formula(rows, ks):
    log_probs = padded(rows)
    expected = [[naive_pro(row, k) for k in ks] for row in rows]
    np.testing.assert_allclose(scoring.pro_at_k(log_probs, ks), expected, rtol=1e-12, atol=1e-12)
    by_k = [
        [naive_pro(row, j + 1) if j < len(row) else NAN for j in range(log_probs.shape[1])]
        for row in rows
    ]
    np.testing.assert_allclose(scoring.pro_all_k(log_probs), by_k, rtol=1e-12, atol=1e-12)


@given(st.lists(distributions(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_answers_is_irrelevant_and_pro_of_one_is_nll(rows, random):
    log_probs = padded(rows)
    # PRO_1 is exactly NLL
    np.testing.assert_array_equal(scoring.pro_at_k(log_probs, 1), scoring.nll(log_probs))
    shuffled = log_probs[:, random.sample(range(log_probs.shape[1]), log_probs.shape[1])]
    wider = np.column_stack([np.full((len(rows), 9), NAN), shuffled])
    at_alpha = (
        partial(of, alpha=0.1)
        for of in (scoring.alpha_floor, scoring.mass_not_found, scoring.adaptive_k)
    )
    for score in (*ALL_SCORES, *at_alpha):  # to the bit, so that what ties stays a tie
        for moved in (shuffled, wider):
            np.testing.assert_array_equal(score(moved), score(log_probs))
    np.testing.assert_array_equal(scoring.pro_all_k(shuffled), scoring.pro_all_k(log_probs))


@given(
    arrays(np.float64, (4, 6), elements=st.floats(0.001, 0.16)),
    st.lists(st.floats(0.001, 1), max_size=3),
)
def test_what_reaches_alpha_counts_as_in_the_formulas(probs, alphas):
    alphas = [*alphas, *probs[0, :2]]  # exact ties among them
    log_probs = np.log(probs)
    answers, open_log_probs = log_probs[:, :4], log_probs[:, 4:]
    k = scoring.adaptive_k(log_probs, alphas)
    missing = scoring.mass_not_found(log_probs, alpha=alphas)
    floor = scoring.alpha_floor(answers, alpha=alphas, open_log_probs=open_log_probs)
    bound = scoring.tree_bound(log_probs, probs, alpha=alphas)
    for row, place in np.ndindex(k.shape):
        kept = probs[row][log_probs[row] >= np.log(alphas[place])]
        rest = 1 - kept.sum()
        assert k[row, place] == max(1, len(kept))
        assert missing[row, place] == pytest.approx(rest)
        expected = -(kept * np.log(kept)).sum() - rest * math.log(alphas[place])
        assert floor[row, place] == pytest.approx(expected)
        assert bound[row, place] == pytest.approx((kept * kept).sum())
    assert scoring.adaptive_k(log_probs, 0).tolist() == [6] * 4


def test_a_question_without_answers_keeps_none():
    log_probs = padded([[0.3, 0.1], []])
    assert scoring.adaptive_k(log_probs, [0.2, 1.0]).tolist() == [[1, 1], [0, 0]]
    assert np.isnan(scoring.tree_bound(log_probs, [[1, 1]] * 2)).tolist() == [False, True]


def test_of_the_most_probable_answers_the_highest_mean_counts_if_it_is_known():
    means = [[-3.0, -2.0, -1.0], [-1.0, NAN, NAN], [NAN, -0.5, NAN]]
    log_probs = [[-6.0, -6.0, -7.0], [-1.0, -2.0, NAN], [-1.0, -2.0, NAN]]
    scores = scoring.average_log_likelihood(means, log_probs)
    np.testing.assert_array_equal(scores, [2.0, 1.0, NAN])


@pytest.mark.parametrize("score", ALL_SCORES)
def test_a_question_without_answers_is_nan_and_alone_in_that(score):
    result = score(np.array([[NAN, NAN], [-1.0, NAN]]))
    assert (result.dtype, np.isnan(result).tolist()) == (np.float64, [True, False])
    assert np.isnan(score(np.empty((2, 0)))).tolist() == [True, True]
    assert score(np.empty((0, 3))).shape == (0,)
    assert str(score(np.array([[0.0, NAN]]))[0]) == "0.0"  # and not -0.0


@pytest.mark.parametrize("score", [*ALL_SCORES, scoring.pro_all_k, scoring.mass])
def test_impossible_log_probabilities_name_row_and_answer(score):
    for bad in (0.1, 2e-6, np.inf, -np.inf):
        # The first value, which is above 0 by rounding, is allowed.
        with pytest.raises(ValueError, match="row 1, answer 2"):
            score(np.array([[5e-7, -1.0, -2.0], [-1.0, -3.0, bad]]))
    with pytest.raises(ValueError, match=r"\(n, N\)"):
        score(np.array([-1.0, -2.0]))


# Arrays of answers and of numbers, of which a mask hides some.
HIDDEN = np.ma.masked_array([[-1.0, -0.1], [-2.0, -0.2]], mask=[[False, True], [True, False]])
WITH_MASKS = [
    *ALL_SCORES,
    lambda x: scoring.pro(list(x)),
    scoring.mass,
    lambda x: scoring.alpha_floor([[-1.0]] * 2, alpha=0.1, open_log_probs=x),
    lambda x: scoring.tree_bound(x, [[0.5, 0.5]] * 2),
    lambda x: scoring.tree_bound([[-1.0, -2.0]] * 2, -x),
    lambda x: scoring.degree(np.exp(x[:, :, None] + x[:, None, :])),
    lambda x: scoring.semantic_entropy(x, [[0, -1], [-1, 0]]),
]


@pytest.mark.parametrize("score", WITH_MASKS)
def test_a_value_that_a_mask_hides_is_missing(score):
    np.testing.assert_array_equal(score(HIDDEN), score(HIDDEN.filled(NAN)))


ALPHAS = (-0.1, 1.1, NAN, [0.1, 2.0], [[0.1]], np.ma.array([0.1, 0.2], mask=[0, 1]))
KS = (0, 1.5, 2.0, True, [1, 0], "2", np.array([], int), np.ma.array([1, 2], mask=[0, 1]))
REFUSED = [
    *(("alpha must lie in", scoring.pro, {"alpha": alpha}) for alpha in ALPHAS),
    *(("k must be an integer of at least 1", scoring.pro_at_k, {"k": k}) for k in KS),
    ("alpha must be above 0", scoring.alpha_floor, {"alpha": 0.0}),
    ("must have the shape", scoring.average_log_likelihood, {"log_probs": [[-1.0, -2.0]]}),
    ("below search_alpha", scoring.pro, {"alpha": 0.1, "search_alpha": 0.25}),
    ("top_n=2", scoring.pro_at_k, {"k": 2, "search_alpha": 0.25}),
]


@pytest.mark.parametrize(("words", "score", "options"), REFUSED)
def test_arguments_that_do_not_fit_are_refused(words, score, options):
    with pytest.raises(ValueError, match=words):
        score([[-1.0]], **options)


def test_a_score_needs_answers_that_the_search_looked_for_and_no_others():
    log_probs = np.log([[0.5, 0.25]])
    both = scoring.pro_at_k(log_probs, 2, search_alpha=0.25)
    np.testing.assert_array_equal(both, scoring.pro_at_k(log_probs, 2))
    at_the_search = scoring.pro(log_probs, alpha=0.25, search_alpha=0.25)
    np.testing.assert_array_equal(at_the_search, scoring.pro(log_probs, alpha=0.25))
    # The best alone needs no search.
    assert np.isnan(scoring.pro_at_k([[NAN]], 1, search_alpha=0.2)).all()


@pytest.mark.parametrize(
    "score", [scoring.pro, lambda x: scoring.pro_at_k(x, 1), scoring.pro_all_k]
)
def test_mass_above_one_is_measured_and_warned_about_once_with_its_count(score):
    log_probs = padded([[0.1], [0.9, 0.6], [0.7, 0.2, 0.6], [0.5, 0.5], []])
    with pytest.warns(scoring.PremiseWarning, match="^2 of 5 questions .*first in row 1") as caught:
        score(log_probs)
    assert [warning.filename for warning in caught] == [__file__]  # it points at the caller
    score(log_probs[[0, 3]])  # warnings are errors here
    np.testing.assert_allclose(scoring.mass(log_probs), [0.1, 1.5, 1.5, 1.0, 0.0])
    missing = scoring.mass_not_found(log_probs, alpha=0.0)
    np.testing.assert_allclose(missing, [0.9, 0.0, 0.0, 0.0, 1.0], atol=1e-12)
    assert scoring.above_one(log_probs).tolist() == [False, True, True, False, False]


def test_a_mass_next_to_the_limit_is_rounded_correctly_before_it_is_compared():
    probs = np.random.default_rng(0).uniform(size=(1000, 20))
    log_probs = np.log(probs * (1 + 1e-6) / probs.sum(axis=1, keepdims=True))
    is_above = scoring.mass(log_probs) > 1 + 1e-6
    assert 0 < is_above.sum() < 1000
    assert (np.exp(log_probs).sum(axis=1) > 1 + 1e-6).tolist() != is_above.tolist()
    assert scoring.above_one(log_probs).tolist() == is_above.tolist()


@given(distributions(), st.integers(1, 12), st.floats(0.001, 1.0))
def test_pro_grows_with_k_and_stays_below_the_alpha_floor_and_both_below_the_entropy(
    probs, n_found, alpha
):
    log_probs = np.log(np.sort(probs)[None, ::-1])
    by_k = scoring.pro_all_k(log_probs[:, :n_found])[0]
    entropy = -(probs * np.log(probs)).sum()
    assert (np.diff(by_k) >= -1e-12).all()
    assert by_k[-1] <= entropy + 1e-12
    floor = scoring.alpha_floor(log_probs, alpha=alpha)[0]
    assert floor <= entropy + 1e-9
    if log_probs.max() >= np.log(alpha):
        assert scoring.pro(log_probs, alpha=alpha)[0] <= floor + 1e-9
