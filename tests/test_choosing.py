"""The rule that chooses between NLL and PRO: by hand, against a naive oracle, and where either must win."""

import numpy as np
import pandas as pd
import pytest

from pro_lib import metrics, scores, tables


def two_kinds(n, seed=0):
    """Right answers beside a rival as likely as they are, wrong ones without: NLL has them the wrong way round."""
    rng = np.random.default_rng(seed)
    right, noise = rng.random(n) < 0.5, 0.02 * rng.random(n)
    probs = np.where(right[:, None], [0.45, 0.45], [0.5, 0.02]) - noise[:, None] * [1, 0.5]
    return np.log(probs), right


def test_candidates_are_columns_of_scores():
    log_probs, _ = two_kinds(5)
    scored = tables.candidates(log_probs, ks=[2], alphas=[0.4, 1.0])
    assert list(scored) == ["NLL", "α = 0.4", "α = 1", "K = 2"]
    np.testing.assert_array_equal(scored["NLL"], scored["α = 1"])
    np.testing.assert_array_equal(scored["K = 2"], scores.pro_at_k(log_probs, 2))


def test_the_rule_takes_what_exceeds_nll_by_more_than_a_standard_error():
    log_probs, right = two_kinds(100)
    scored = tables.candidates(log_probs, ks=[2], alphas=[0.4])
    assert metrics.auroc(scored["NLL"], right) < 0.1
    assert metrics.auroc(scored["K = 2"], right) == 1
    assert tables.choice(scored, right) == "K = 2"
    assert tables.choice(scored, ~right) == "NLL"
    assert tables.choice(scored.assign(**{"K = 2": scored["NLL"]}), right) != "K = 2"


@pytest.mark.parametrize("caution", [0.0, 1.0, 1.645])
@pytest.mark.parametrize("seed", range(6))
def test_the_rule_against_one_written_out(caution, seed):
    rng = np.random.default_rng(seed)
    correct = rng.random(60) < 0.5
    scored = pd.DataFrame(rng.random((60, 6)) + 0.3 * ~correct[:, None], columns=["NLL", *"abcde"])
    best, taken = 0.0, "NLL"
    for name in "abcde":
        found = metrics.delong(scored[["NLL", name]], correct)
        bound = found.difference[1] - caution * found.standard_error[1]
        if bound > best:
            best, taken = bound, name
    assert tables.choice(scored, correct, caution=caution) == taken


def test_nothing_can_be_chosen_from_one_class():
    log_probs, _ = two_kinds(20)
    scored = tables.candidates(log_probs, ks=[2], alphas=[0.4])
    assert tables.choice(scored, np.ones(20, bool)) == "NLL"
    assert tables.choice(scored, np.arange(20) == 3) == "NLL"


def means(log_probs, correct):
    return (
        tables.regrets(log_probs, correct, n_validation=50, n_redraws=10).groupby("policy")[["gain", "regret"]].mean()
    )


def test_regrets_where_pro_must_win_and_where_it_must_lose():
    log_probs, right = two_kinds(400)
    won, lost = means(log_probs, right), means(log_probs, ~right)
    assert won.loc["the rule", "gain"] > 0.9
    assert won.loc["NLL", "regret"] > 0.9 > 0.001 > won.loc["the rule", "regret"]
    assert lost.loc["NLL", "regret"] == lost.loc["the rule", "regret"] == 0
    assert lost.loc["the rule", "gain"] == 0
    assert (won["regret"] >= 0).all()
    assert (won.loc["NLL", "gain"], lost.loc["NLL", "gain"]) == (0, 0)


def test_regrets_report_on_the_questions_that_chose_nothing():
    """One redraw by hand: the questions drawn choose, the others report."""
    log_probs, right = two_kinds(60)
    right = right ^ (np.arange(60) % 5 == 0)
    [row] = (
        tables.regrets(log_probs, right, n_validation=30, n_redraws=1).query("policy == 'PRO, α = 0.4'").itertuples()
    )
    rest = np.setdiff1d(np.arange(60), np.random.default_rng(0).choice(60, 30, replace=False))
    gain = metrics.auroc(scores.pro(log_probs[rest]), right[rest]) - metrics.auroc(
        scores.nll(log_probs)[rest], right[rest]
    )
    assert row.gain == pytest.approx(gain)
