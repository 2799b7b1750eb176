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
    arrays(np.float64, (4, 5), elements=st.floats(0.001, 1.0)),
    st.lists(st.floats(0, 1), max_size=4),
)
def test_kept_counts_the_answers_at_or_above_alpha(probs, alphas):
    alphas = [*alphas, *probs[0, :2]]  # exact ties among them
    likely = np.log(probs)[:, :, None] >= [np.log(alpha) if alpha else -np.inf for alpha in alphas]
    np.testing.assert_array_equal(
        scoring.adaptive_k(np.log(probs), alphas), np.maximum(1, likely.sum(axis=1))
    )
    assert scoring.adaptive_k(padded([[0.3, 0.1], []]), [0.2, 1.0]).tolist() == [[1, 1], [0, 0]]


def test_scores_by_hand():
    # First question: p = 1/8 in 3 tokens, p = 1/2 in 2 tokens. Second: p = 1/4 in 1 token. In units
    # of log 2:
    log2 = math.log(2)
    log_probs = log2 * np.array([[-3.0, -1.0], [-2.0, NAN]])
    means = log_probs / np.array([[3, 2], [1, NAN]])  # -1, -1/2; -2
    # PRO at α = 0.1 keeps both answers: 3 - (1/2) 2 - (1/8) 0 = 2; at α = 0.3 the first alone.
    by_hand = [
        (scoring.pro(log_probs, alpha=[0.1, 0.3]), [[2, 1], [2, 2]]),
        (scoring.nll(log_probs), [1, 2]),
        (scoring.average_log_likelihood(means, log_probs), [1 / 2, 2]),
        (scoring.predictive_entropy(log_probs), [1 / 2 + 3 / 8, 2 / 4]),
        (scoring.predictive_entropy_mc(log_probs), [(3 + 1) / 2, 2]),
        (scoring.normalized_entropy(means), [(1 + 1 / 2) / 2, 2]),
    ]
    for values, expected in by_hand:
        np.testing.assert_allclose(values / log2, expected)
    # If answers tie, the highest mean counts; if the mean of the most probable is not known
    # there is none.
    means = [[-3.0, -2.0, -1.0], [-1.0, NAN, NAN], [NAN, -0.5, NAN]]
    all_ = scoring.average_log_likelihood(
        means, [[-6.0, -6.0, -7.0], [-1.0, -2.0, NAN], [-1.0, -2.0, NAN]]
    )
    np.testing.assert_array_equal(all_, [2.0, 1.0, NAN])


@pytest.mark.parametrize("score", ALL_SCORES)
def test_a_question_without_answers_is_nan_and_alone_in_that(score):
    result = score(np.array([[NAN, NAN], [-1.0, NAN]]))
    assert (result.dtype, np.isnan(result).tolist()) == (np.float64, [True, False])
    assert np.isnan(score(np.empty((2, 0)))).tolist() == [True, True]
    assert score(np.empty((0, 3))).shape == (0,)


@pytest.mark.parametrize(
    "score", [*ALL_SCORES, scoring.pro_all_k, scoring.mass, lambda x: scoring.adaptive_k(x, 0.4)]
)
def test_impossible_log_probabilities_name_row_and_answer(score):
    for bad in (0.1, 2e-6, np.inf, -np.inf):
        with pytest.raises(ValueError, match="row 1, answer 2"):
            score(
                np.array([[5e-7, -1.0, -2.0], [-1.0, -3.0, bad]])
            )  # a value above 0 by rounding is allowed
    with pytest.raises(ValueError, match=r"\(n, N\)"):
        score(np.array([-1.0, -2.0]))


# Arrays of answers and of numbers, of which a mask hides some.
HIDDEN = np.ma.masked_array([[-1.0, -0.1], [-2.0, -0.2]], mask=[[False, True], [True, False]])
WITH_MASKS = [
    lambda x: scoring.pro(list(x)),
    scoring.pro_all_k,
    scoring.mass,
    lambda x: scoring.above_one(x + 0.1),
    lambda x: scoring.adaptive_k(x, 0.1),
    lambda x: scoring.mass_not_found(x, alpha=0.1),
    lambda x: scoring.alpha_floor([[-1.0]] * 2, alpha=0.1, open_log_probs=x),
    lambda x: scoring.tree_bound(x, [[0.5, 0.5]] * 2),
    lambda x: scoring.tree_bound([[-1.0, -2.0]] * 2, -x),
    lambda x: scoring.meaning_log_probs(
        [[-1.0, NAN], [NAN, -0.2]],
        np.ma.array([[0, 5], [5, 0]], mask=x.mask) if np.ma.is_masked(x) else [[0, -1], [-1, 0]],
    ),
    lambda x: scoring.degree(np.exp(x[:, :, None] + x[:, None, :])),
    lambda x: scoring.semantic_entropy(x, [[0, -1], [-1, 0]]),
]


def test_a_value_that_a_mask_hides_is_missing():
    for score in (*ALL_SCORES, *WITH_MASKS):
        np.testing.assert_array_equal(score(HIDDEN), score(HIDDEN.filled(NAN)))


ONE = [[-1.0]]
BAD_KS = (0, 1.5, 2.0, True, [1, 0], "2", np.array([], int), np.ma.array([1, 2], mask=[0, 1]))
REFUSED = [
    *(
        ("alpha", partial(scoring.pro, ONE, alpha=alpha))
        for alpha in (-0.1, 1.1, NAN, [0.1, 2.0], [[0.1]], np.ma.array([0.1, 0.2], mask=[0, 1]))
    ),
    *(("k", partial(scoring.pro_at_k, ONE, k)) for k in BAD_KS),
    ("alpha", partial(scoring.adaptive_k, ONE, 2)),
    ("alpha", partial(scoring.alpha_floor, ONE, alpha=0.0)),
    ("search_alpha", partial(scoring.pro, ONE, alpha=0.1, search_alpha=0.2)),
    ("top_n=2", partial(scoring.pro_at_k, ONE, 2, search_alpha=0.2)),
    ("mean_log_probs", partial(scoring.average_log_likelihood, ONE, [[-1.0, -2.0]])),
]


def test_what_a_score_refuses_it_names():
    for named, call in REFUSED:
        with pytest.raises(ValueError, match=named):
            call()
    assert np.isnan(
        scoring.pro_at_k([[NAN]], 1, search_alpha=0.2)
    ).all()  # the best alone asks nothing of a search


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
    assert scoring.above_one(log_probs).tolist() == [False, True, True, False, False]


def test_a_mass_next_to_the_limit_is_rounded_correctly_before_it_is_compared():
    probs = np.random.default_rng(0).uniform(size=(1000, 20))
    log_probs = np.log(probs * (1 + 1e-6) / probs.sum(axis=1, keepdims=True))
    is_above = scoring.mass(log_probs) > 1 + 1e-6
    assert 0 < is_above.sum() < 1000
    assert (np.exp(log_probs).sum(axis=1) > 1 + 1e-6).tolist() != is_above.tolist()
    assert scoring.above_one(log_probs).tolist() == is_above.tolist()


def test_the_alpha_floor_by_hand():
    log_probs = np.log([[0.5, 0.2, 0.05], [0.03, np.nan, np.nan]])
    terms = -0.5 * np.log(0.5) - 0.2 * np.log(0.2) - 0.3 * np.log(0.1)
    assert scoring.alpha_floor(log_probs, alpha=0.1) == pytest.approx([terms, -np.log(0.1)])
    opened = scoring.alpha_floor(log_probs, alpha=0.1, open_log_probs=np.log([[0.15], [np.nan]]))
    assert opened[0] == pytest.approx(terms - 0.15 * np.log(0.15) + 0.15 * np.log(0.1))
    assert scoring.alpha_floor(log_probs, alpha=[0.1, 0.3])[0] == pytest.approx(
        [terms, -0.5 * np.log(0.5 * 0.3)]
    )
    not_found = scoring.mass_not_found(log_probs, alpha=[0.1, 0.01])
    np.testing.assert_allclose(not_found, [[0.3, 0.25], [1.0, 0.97]], atol=1e-12)


def test_the_tree_bound_by_hand():
    prefixes = np.log([[1.0, 0.4, 0.1], [1.0, np.nan, np.nan]])
    entropies = [[2.0, 1.0, 0.5], [0.3, 0, 0]]
    assert scoring.tree_bound(prefixes, entropies) == pytest.approx([2.45, 0.3])
    assert scoring.tree_bound(prefixes, entropies, alpha=[0.2, 0.0])[0] == pytest.approx(
        [2.4, 2.45]
    )


@given(distributions(), st.integers(1, 12), st.floats(0.001, 1.0))
def test_pro_grows_with_k_and_stays_below_the_alpha_floor_and_both_below_the_entropy(
    probs, n_found, alpha
):
    log_probs = np.log(np.sort(probs)[None, ::-1])
    by_k, entropy = scoring.pro_all_k(log_probs[:, :n_found])[0], -(probs * np.log(probs)).sum()
    assert (np.diff(by_k) >= -1e-12).all()
    assert by_k[-1] <= entropy + 1e-12
    floor = scoring.alpha_floor(log_probs, alpha=alpha)[0]
    assert floor <= entropy + 1e-9
    if (log_probs >= np.log(alpha)).any():
        assert scoring.pro(log_probs, alpha=alpha)[0] <= floor + 1e-9


def test_a_certain_answer_has_no_negative_zero():
    certain = np.array([[0.0, np.nan]])
    assert [str(score(certain)[0]) for score in ALL_SCORES] == ["0.0"] * len(ALL_SCORES)


@pytest.mark.parametrize(
    ("score", "search_alpha"),
    [
        (partial(scoring.pro_at_k, k=2), 0.2),  # the search found two answers, and no more is asked
        (partial(scoring.pro, alpha=0.25), 0.25),
    ],
)
def test_a_search_down_to_alpha_changes_no_score(score, search_alpha):
    log_probs = np.log([[0.5, 0.25]])
    np.testing.assert_array_equal(score(log_probs, search_alpha=search_alpha), score(log_probs))
