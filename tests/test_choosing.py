"""The rule that chooses between NLL and PRO: by hand, against a naive oracle, and where either must win."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib import metrics, scores, tables
from pro_lib.evaluation import Evaluation

ROOT = Path(__file__).resolve().parents[1]


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


def test_unless_told_otherwise_it_is_one_standard_error_as_the_log_has_it():
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(40):
        correct = rng.random(60) < 0.5
        scored = pd.DataFrame(rng.random((60, 2)), columns=["NLL", "a"])
        found = metrics.delong(scored, correct)
        errors = found.difference[1] / found.standard_error[1]
        assert tables.choice(scored, correct) == ("a" if errors > 1 else "NLL")
        outcomes.add((errors > 0, errors > 1, errors > 1.645))
    assert len(outcomes) == 4


def test_nothing_can_be_chosen_from_one_class():
    log_probs, _ = two_kinds(20)
    scored = tables.candidates(log_probs, ks=[2], alphas=[0.4])
    assert tables.choice(scored, np.ones(20, bool)) == "NLL"
    assert tables.choice(scored, np.arange(20) == 3) == "NLL"


def judged(log_probs, correct):
    """An evaluation of nothing but probabilities and labels."""
    table = pd.DataFrame({"question_id": np.arange(len(correct)).astype(str), "correct": correct})
    baselines = pd.DataFrame({"NLL": scores.nll(log_probs)})
    return Evaluation("m", "d", "all", table, log_probs, baselines, metrics.usable(baselines, correct), ())


def means(log_probs, correct, **options):
    table = tables.regret_table([judged(log_probs, correct)], **{"n_validation": 50, "n_redraws": 10} | options)
    return table.set_index("policy")


def test_regrets_where_pro_must_win_and_where_it_must_lose():
    log_probs, right = two_kinds(400)
    won, lost = means(log_probs, right), means(log_probs, ~right)
    assert won.loc["the rule", "gain"] > 0.9
    assert won.loc["NLL", "regret"] > 0.9 > 0.001 > won.loc["the rule", "regret"]
    assert (won.loc["the rule", "took"], lost.loc["the rule", "took"]) == (1, 0)
    assert lost.loc["NLL", "regret"] == pytest.approx(0, abs=1e-12)
    assert lost.loc["PRO, K chosen", "gain"] == pytest.approx(0, abs=1e-12)
    assert lost.loc["PRO, α chosen", "gain"] == pytest.approx(0, abs=1e-12)  # α = 1 is NLL
    assert (won["regret"] >= -1e-12).all()


def test_regrets_report_on_the_questions_that_chose_nothing():
    """One redraw by hand: the questions drawn choose, the others report."""
    log_probs, right = two_kinds(60)
    right = right ^ (np.arange(60) % 5 == 0)
    rest = np.setdiff1d(np.arange(60), np.random.default_rng(0).choice(60, 30, replace=False))
    scored = tables.candidates(log_probs[rest], ks=[2], alphas=np.arange(21) / 20)
    aurocs = pd.Series(metrics.auroc_columns(scored, right[rest]), scored.columns)
    row = means(log_probs, right, n_validation=30, n_redraws=1).loc["PRO, α = 0.4"]
    assert row["gain"] == pytest.approx(aurocs["α = 0.4"] - aurocs["NLL"])
    assert row["regret"] == pytest.approx(aurocs.max() - aurocs["α = 0.4"])


def test_at_most_half_of_the_questions_choose_and_one_class_is_passed_over():
    log_probs, right = two_kinds(40)
    assert means(log_probs, right, n_validation=100, n_redraws=5).loc["the rule", "gain"] > 0.9
    with pytest.raises(ValueError, match="no draw of 20 questions of d, m has two right and two wrong answers"):
        means(log_probs, np.ones(40, bool))


def test_alpha_is_chosen_from_those_given_and_the_default():
    """At α = 0 all answers count and PRO wins; where α = 1 alone is offered, next to nothing is gained."""
    log_probs, right = two_kinds(200)
    assert means(log_probs, right, alphas=[0, 1]).loc["PRO, α chosen", "gain"] > 0.9
    assert means(log_probs, right, alphas=[1]).loc["PRO, α chosen", "gain"] == pytest.approx(0, abs=0.1)


def test_what_an_exact_search_did_not_look_for_is_refused():
    log_probs, right = two_kinds(40)
    with pytest.raises(ValueError, match=r"below search_alpha=0\.1"):
        tables.regret_table([replace(judged(log_probs, right), search_alpha=0.1)])


@given(st.integers(0, 10_000), st.integers(4, 30))
def test_pairs_won_against_counting_them(seed, n):
    rng = np.random.default_rng(seed)
    values, correct = rng.integers(0, 5, (n, 2)).astype(float), np.arange(n) % 3 == 0
    won = tables.pairs_won(values, correct)
    for question, column in np.ndindex(values.shape):
        others = values[correct != correct[question], column]
        sign = 1 if not correct[question] else -1
        steps = sign * (values[question, column] - others)
        assert won[question, column] == np.sum(steps > 0) + np.sum(steps == 0) / 2


def test_the_committed_regrets_are_those_the_docs_tell():
    """Of `benchmarks/choosing.py`: the table in docs/notebooks.md has the means of docs/choosing.csv."""
    held = pd.read_csv(ROOT / "docs" / "choosing.csv")
    told = (ROOT / "docs" / "notebooks.md").read_text()
    held["by"] = held["source"] + ", " + held["strategy"]
    later = held["source"] == "facts-long"  # not of the settings that were named beforehand
    names = "published, multinomial", "embedded, diverse_beam", "embedded, multinomial"
    for policy in held["policy"].unique():
        groups = [*(held["by"] == name for name in names), ~later, later]
        cells = [f"{held.loc[of & (held['policy'] == policy), 'regret'].mean():.4f}" for of in groups]
        assert f"| {policy} | {' | '.join(cells)} |" in told
