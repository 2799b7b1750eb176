"""Exact search through everything above it: runs on disk, scores, tables, `ask`, and the bundled model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pro_lib import ask, scores, sweeps
from pro_lib import questions as question_sets
from pro_lib import runs as run_tables
from pro_lib.engine.certificate import Certificate
from pro_lib.files import RunError
from pro_lib.generate import generate
from pro_lib.store import CERTIFICATE_COLUMNS

MASSES = ["found_mass", "small_endings_mass", "pruned_mass", "length_cut_mass", "budget_cut_mass"]


@pytest.fixture(scope="module")
def questions():
    return question_sets.load("world-facts", split="test", limit=96, seed=3)


@pytest.fixture(scope="module")
def exact(facts_2m, questions, tmp_path_factory):
    out = tmp_path_factory.mktemp("exact")
    generate(facts_2m, questions, strategy="threshold", search_alpha=0.01, out=out, progress=False)
    return run_tables.read(out / "world-facts" / "facts-2m" / "threshold,search_alpha=0.01")


def test_the_certificate_is_stored_with_the_run(exact, questions):
    assert set(Certificate.__dataclass_fields__) == set(CERTIFICATE_COLUMNS)
    assert set(CERTIFICATE_COLUMNS) <= set(exact.questions)
    np.testing.assert_allclose(exact.questions[MASSES].sum(axis=1), 1.0, atol=1e-5)
    assert exact.info.parameters["search_alpha"] == exact.search_alpha == 0.01
    assert exact.questions["token_forwards"].sum() == exact.info.cost.token_forwards
    reordered = exact.asked_as(questions.table.iloc[::-1])
    assert list(reordered.questions["status"]) == list(exact.questions["status"])[::-1]


@pytest.mark.parametrize("strategy", ["greedy", "multinomial", "diverse_beam"])
def test_the_certified_set_holds_every_likely_answer_that_another_strategy_finds(exact, facts_2m, questions, strategy):
    other = generate(facts_2m, questions, strategy=strategy, progress=False)
    certified = set(exact.questions.loc[exact.questions["status"] == "certified", "question_id"])
    assert len(certified) > 80
    found = {(row.question_id, tuple(row.token_ids)): row.value for row in exact.ranked().itertuples()}
    n_likely = 0
    for row in other.ranked().itertuples():
        # Packs of another shape round otherwise: an answer within 1e-5 nats of α may fall on its other side.
        if row.question_id in certified and row.value >= np.log(0.01) + 1e-5:
            assert found[(row.question_id, tuple(row.token_ids))] == pytest.approx(row.value, abs=2e-5)
            n_likely += 1
    assert n_likely > 50


@pytest.mark.trial
def test_on_all_test_questions_no_other_strategy_finds_a_likely_answer_that_the_search_missed(facts_2m):
    everything = question_sets.load("world-facts", split="test")
    run = generate(facts_2m, everything, strategy="threshold", search_alpha=0.01, progress=False)
    certified = set(run.questions.loc[run.questions["status"] == "certified", "question_id"])
    assert len(certified) > 3300
    found = set(zip(run.answers["question_id"], run.answers["token_ids"].map(tuple), strict=True))
    for strategy in ("greedy", "multinomial", "diverse_beam"):
        other = generate(facts_2m, everything, strategy=strategy, progress=False).ranked()
        likely = other[(other["value"] >= np.log(0.01) + 1e-5) & other["question_id"].isin(certified)]
        assert len(likely) > 2000
        assert found >= set(zip(likely["question_id"], likely["token_ids"].map(tuple), strict=True))


def test_bounds_come_in_their_order(exact):
    alpha, log_probs = exact.search_alpha, exact.log_probs()
    certificates = exact.questions
    floor = scores.alpha_floor(log_probs, alpha=alpha, open_log_probs=exact.open_log_probs())
    np.testing.assert_allclose(floor, certificates["alpha_floor"], atol=1e-4)
    np.testing.assert_allclose(scores.tree_bound(*exact.tree()), certificates["tree_bound"], atol=1e-9)
    certified = (certificates["status"] == "certified").to_numpy()
    pro = scores.pro(log_probs, alpha=alpha)
    assert (pro <= floor + 1e-6)[certified].all()
    assert (certificates["alpha_floor"] <= certificates["tree_bound"] + 1e-5).all()
    assert (certificates["tree_bound"] <= certificates["upper_bound"]).all()


def test_the_tree_bound_rises_as_alpha_falls_and_fallbacks_keep_theirs(exact, facts_2m, questions):
    before = np.zeros(len(questions))
    for alpha in (0.5, 0.2, 0.05):
        run = generate(facts_2m, questions, strategy="threshold", search_alpha=alpha, progress=False)
        bound = run.questions["tree_bound"].to_numpy()
        assert (bound >= before - 1e-5).all()
        fallback = (run.questions["status"] == "fallback").to_numpy()
        assert (-np.log(alpha) <= bound[fallback] + 1e-6).all()
        assert alpha < 0.5 or fallback.sum() > 10
        before = bound
    assert (exact.questions["tree_bound"] >= before - 1e-5).all()


def test_a_search_in_packs_of_another_size_is_the_same(exact, facts_2m, questions):
    other = generate(facts_2m, questions, strategy="threshold", search_alpha=0.01, batch_size=7, progress=False)
    mine, theirs = exact.ranked(), other.ranked()
    assert list(map(tuple, mine["token_ids"])) == list(map(tuple, theirs["token_ids"]))
    np.testing.assert_allclose(mine["value"], theirs["value"], atol=2e-5)
    for name in ("status", "expanded_prefixes", "depth", "live_width", "token_forwards", "prompt_tokens"):
        assert list(exact.questions[name]) == list(other.questions[name])


def test_the_exact_ten_are_at_least_as_probable_as_ten_beams(facts_2m, questions):
    few = replace(questions, table=questions.table.head(24))
    top = generate(facts_2m, few, strategy="threshold", top_n=10, progress=False)
    assert set(top.questions["status"]) == {"certified"}
    beams = generate(facts_2m, few, n_answers=10, progress=False).log_probs()
    log_probs = top.log_probs()
    assert np.isfinite(log_probs[:, :10]).all()
    mine, theirs = np.exp(log_probs[:, :10]), np.nan_to_num(np.exp(beams))
    assert (mine.cumsum(axis=1)[:, : theirs.shape[1]] >= theirs.cumsum(axis=1) - 1e-5).all()
    assert scores.pro_at_k(log_probs, 10).shape == (24,)


def test_scoring_below_the_search_alpha_is_refused(exact):
    log_probs = exact.log_probs()
    for score in (scores.pro, scores.adaptive_k, scores.mass_not_found, scores.alpha_floor):
        with pytest.raises(ValueError, match=r"alpha=0.005 is below search_alpha=0.01"):
            score(log_probs[5:9], alpha=0.005, search_alpha=exact.search_alpha)
    with pytest.raises(ValueError, match=r"k=40: .* top_n=40"):
        scores.pro_at_k(log_probs, 40, search_alpha=exact.search_alpha)
    assert scores.pro_at_k(log_probs, 1) == pytest.approx(scores.nll(log_probs))
    assert sweeps.alpha_grid(exact.search_alpha)[0] == 0.01


def test_a_budget_is_kept_and_said(facts_2m, questions):
    for budget in (0, 1, 5, 40):
        run = generate(facts_2m, questions, strategy="threshold", search_alpha=0.01, budget=budget, progress=False)
        certificates = run.questions
        assert (certificates["token_forwards"] <= budget).all()
        np.testing.assert_allclose(certificates[MASSES].sum(axis=1), 1.0, atol=1e-5)
        assert (certificates["alpha_floor"] <= certificates["tree_bound"] + 1e-5).all()
        stopped = certificates["budget_cut_mass"] > 0
        assert stopped.any()
        assert (certificates["status"][stopped] == "undecided").all()
        assert certificates["why"][stopped].str.contains(f"budget of {budget} ").all()


def test_merging_spellings_adds_their_probabilities():
    answers = pd.DataFrame(
        {
            "question_id": ["a"] * 4,
            "rank": range(4),
            "text": ["Rome", "rome.", "Oslo", "ROME"],
            "token_ids": [[1], [2], [3], [4, 5]],
            "token_log_probs": [[np.log(p)] for p in (0.3, 0.2, 0.25, 0.1)],
            "log_prob": np.log([0.3, 0.2, 0.25, 0.1]),
            "end_log_prob": 0.0,
            "finished": True,
        }
    )
    questions = pd.DataFrame({"question_id": ["a"], "question": ["?"], "references": [["Rome"]], "split": ["test"]})
    info = run_tables.RunInfo("toy", "none", "threshold", parameters={"search_alpha": 0.1})
    run = run_tables.Run(answers, questions.assign(search_alpha=0.1), info)
    np.testing.assert_allclose(np.exp(run.log_probs(merge_by="text")), [[0.6, 0.25]])
    with pytest.raises(ValueError, match="merge_by='tokens' is unknown"):
        run.log_probs(merge_by="tokens")
    with pytest.raises(RunError, match="does not say the texts"):
        replace(run, answers=answers.assign(text=None)).log_probs(merge_by="text")


@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.03])
def test_a_deeper_search_holds_the_shallower_ones(exact, facts_2m, questions, alpha):
    made = generate(facts_2m, questions, strategy="threshold", search_alpha=alpha, progress=False)
    deep, shallow = (rows[rows["value"] >= np.log(alpha)] for rows in (exact.ranked(), made.ranked()))
    assert [*map(tuple, deep["token_ids"])] == [*map(tuple, shallow["token_ids"])]
    np.testing.assert_allclose(deep["value"], shallow["value"], atol=2e-5)
    log_probs, entropies = exact.tree()
    reaches = log_probs >= np.log(alpha)
    greedy = exact.matrix(exact.questions.assign(row=range(len(questions))).explode("tree_greedy"), "tree_greedy") == 1
    floor = np.where(reaches | greedy, np.exp(log_probs) * entropies, 0).sum(axis=1)
    np.testing.assert_allclose(floor, made.questions["tree_bound"], atol=2e-5)
    assert list((reaches | greedy).sum(axis=1)) == list(made.questions["expanded_prefixes"])


def test_asking_is_exact_by_default(facts_2m, questions):
    answer = ask(facts_2m, "What is the capital of France?", questions=questions)
    assert answer.status == "certified"
    low, high = answer.entropy_bounds
    assert answer.uncertainty <= low < high
    assert ask(facts_2m, "What is the capital of France?", questions=questions, budget=3).status == "undecided"
    with pytest.raises(ValueError, match=r"alpha=0.01 is below search_alpha=0.02"):
        ask(facts_2m, "What is the capital of France?", questions=questions, alpha=0.01)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"search_alpha": 0.0}, r"search_alpha=0.0 "),
        ({"search_alpha": 1.5}, r"search_alpha=1.5 "),
        ({"top_n": 0}, "top_n=0 "),
        ({"budget": -1}, "budget=-1 "),
        ({"search_alpha": 0.1, "top_n": 3}, "search_alpha and top_n are two ways to end a search"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(facts_2m, questions, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(facts_2m, questions, strategy="threshold", progress=False, **options)


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_extremes_of_alpha(facts_2m, questions, alpha):
    few = replace(questions, table=questions.table.head(8))
    run = generate(facts_2m, few, strategy="threshold", search_alpha=alpha, progress=False)
    np.testing.assert_allclose(run.questions[MASSES].sum(axis=1), 1.0, atol=1e-5)
    assert set(run.questions["status"]) == ({"fallback"} if alpha == 1.0 else {"certified"})
