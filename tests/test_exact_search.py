"""Exact search through everything above it: runs on disk, scores, tables, `ask`, and the bundled model."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pro_lib import ask, scores, sweeps, tables
from pro_lib import models as pro_models
from pro_lib import questions as question_sets
from pro_lib import runs as run_tables
from pro_lib.engine import half
from pro_lib.engine.certificate import Certificate
from pro_lib.generate import generate
from pro_lib.promises import anytime
from pro_lib.store import CERTIFICATE_COLUMNS, RunError

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


def test_scoring_below_the_search_alpha_is_refused_in_a_sentence(exact):
    log_probs = exact.log_probs()
    for score in (scores.pro, scores.adaptive_k, scores.mass_not_found, scores.alpha_floor):
        with pytest.raises(ValueError, match=r"alpha=0.005 is below search_alpha=0.01: the search did not look"):
            score(log_probs[5:9], alpha=0.005, search_alpha=exact.search_alpha)
    with pytest.raises(ValueError, match=r"k=40: .* fixed K wants a search for the most probable \(top_n=40\)"):
        scores.pro_at_k(log_probs, 40, search_alpha=exact.search_alpha)
    assert scores.pro_at_k(log_probs, 1) == pytest.approx(scores.nll(log_probs))
    assert sweeps.alpha_grid(exact.search_alpha)[0] == 0.01
    with pytest.raises(ValueError, match="alphas must be at least the search_alpha"):
        tables.recall_table([exact], [exact], alphas=[0.001])


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
    table = tables.merged_table([run], alphas=[0.2])
    assert list(table.loc[0, ["kept", "kept_merged", "changed", "certain"]]) == [3, 2, True, True]
    assert tables.merged_table([run], alphas=[0.01, 0.2])["alpha"].tolist() == [0.1, 0.2]
    # What is not found (0.15) could all be Oslo, which would still lie below Rome; without Rome's 0.1 it would not.
    assert bool(tables.merged_table([run], alphas=[0.5])["certain"][0])
    fewer = replace(run, answers=answers[answers["token_ids"].map(len) == 1])
    assert not tables.merged_table([fewer], alphas=[0.3])["certain"][0]
    with pytest.raises(ValueError, match="merge_by='tokens' is unknown"):
        run.log_probs(merge_by="tokens")
    with pytest.raises(RunError, match="does not say the texts"):
        replace(run, answers=answers.assign(text=None)).log_probs(merge_by="text")


def test_the_table_of_searches_is_means_of_their_certificates(exact):
    [row] = tables.search_table([exact], greedy=[exact]).itertuples()
    assert (row.dataset, row.model) == (exact.info.dataset, exact.info.model)
    assert row.greedy_forwards == exact.info.cost.token_forwards / exact.info.n_planned
    certificates = exact.questions
    assert (row.alpha, row.n_questions) == (0.01, 96)
    assert row.certified + row.fallback + row.undecided == pytest.approx(1.0)
    assert row.answers == pytest.approx((exact.ranked()["value"] >= np.log(0.01)).sum() / 96)
    assert row.tree_bound == pytest.approx(certificates["tree_bound"].mean())
    assert row.pro == pytest.approx(scores.pro(exact.log_probs(), alpha=0.01).mean())
    assert (row.token_forwards, row.largest_width) == (
        certificates["token_forwards"].mean(),
        certificates["live_width"].max(),
    )


def test_bounds_are_compared_on_the_questions_certified(exact):
    status = np.where(np.arange(len(exact.questions)) % 3, exact.questions["status"], "fallback")
    exact = replace(exact, questions=exact.questions.assign(status=status))
    ids = exact.questions["question_id"][::2]
    drawn = exact.select(question_ids=list(ids))
    # What is left has 3 nats, as every draw says; so the entropy is known, and only the limits at any time are apart.
    draws = {"remainder_draws": [np.full(5, 3.0)] * len(ids), "remainder_most": 30.0}
    drawn = replace(drawn, questions=drawn.questions.assign(**draws))
    [row] = tables.bounds_table([exact], [drawn]).itertuples()
    certified = drawn.questions[drawn.questions["status"] == "certified"]
    left = certified["pruned_mass"] + certified["budget_cut_mass"]
    assert 0 < len(certified) < len(ids)
    assert (row.n_questions, row.certified) == (len(ids), len(certified))
    assert row.alpha_floor == pytest.approx(certified["alpha_floor"].mean())
    kept = exact.select(question_ids=list(certified["question_id"])).log_probs()
    assert row.pro == pytest.approx(scores.pro(kept, alpha=0.01).mean())
    assert row.pro <= row.alpha_floor <= row.tree_bound <= row.entropy
    entropies = certified["tree_bound"] + 3 * left
    assert row.entropy == pytest.approx(entropies.mean())
    assert row.entropy_high - row.entropy == pytest.approx(1.96 * entropies.std() / len(certified) ** 0.5, rel=0.02)
    assert row.width == pytest.approx(0)
    [low], [high] = anytime.limits([[3.0] * 5], [30.0])
    assert row.anytime_width == pytest.approx((high - low) * left.mean())
    each = tables.entropy_table([drawn]).set_index("question_id").loc[certified["question_id"]]
    assert each[["low", "high"]].to_numpy() == pytest.approx(each[["estimate"]].to_numpy() * [1, 1])
    assert each["anytime_low"].to_numpy() == pytest.approx((certified["tree_bound"] + low * left).to_numpy())
    assert (each["draws"] == 5).all()
    everything = exact.questions.assign(status="fallback")
    [row] = tables.bounds_table([replace(exact, questions=everything)], [drawn]).itertuples()
    assert row.certified == 0
    assert np.isnan([row.pro, row.alpha_floor, row.tree_bound, row.entropy, row.entropy_low, row.width]).all()


@pytest.mark.parametrize("length", [32, 2])
@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.03])
def test_a_deeper_search_holds_the_shallower_ones(facts_2m, questions, alpha, length):
    few = replace(questions, table=questions.table.head(32))
    options = {"strategy": "threshold", "max_new_tokens": length, "progress": False}
    read = tables.at_alpha(generate(facts_2m, few, search_alpha=0.01, **options), alpha)
    made = generate(facts_2m, few, search_alpha=alpha, **options)
    counted = ["status", "expanded_prefixes", "depth", "live_width", "token_forwards", "prompt_tokens"]
    pd.testing.assert_frame_equal(read.questions[counted], made.questions[counted])
    sums = ["search_alpha", "found_mass", "alpha_floor", "tree_bound"]
    np.testing.assert_allclose(read.questions[sums], made.questions[sums], atol=2e-5)
    np.testing.assert_allclose(read.log_probs(), made.log_probs(), atol=2e-5)
    np.testing.assert_allclose(read.open_log_probs(), made.open_log_probs(), atol=2e-5)
    assert [*map(tuple, read.ranked()["token_ids"])] == [*map(tuple, made.ranked()["token_ids"])]
    assert read.search_alpha == alpha
    expected = "undecided" if length == 2 else "fallback" if alpha == 0.4 else "certified"
    assert expected in set(made.questions["status"])


def test_a_search_tells_nothing_of_a_smaller_alpha_nor_past_its_budget(exact):
    assert tables.at_alpha(exact, 0.01) is exact
    with pytest.raises(ValueError, match=r"alpha=0.005 is below the search_alpha of the run, 0.01"):
        tables.at_alpha(exact, 0.005)
    spent = replace(exact, info=replace(exact.info, parameters=exact.info.parameters | {"budget": 9}))
    blurred = replace(exact, questions=exact.questions.assign(epsilon=0.1))
    for run in (spent, blurred):
        with pytest.raises(ValueError, match="has a budget or log-probabilities that may be off"):
            tables.at_alpha(run, 0.4)


def test_recall_counts_what_another_run_found(exact):
    ids = exact.ranked().groupby("question_id").head(1).index
    best = replace(exact, answers=exact.ranked().loc[ids].drop(columns=["row", "value", "mean"]))
    table = tables.recall_table([exact], [best], alphas=[0.3, 0.01])
    log_probs = np.asarray(exact.log_probs())
    for row, alpha in zip(table.itertuples(), (0.3, 0.01), strict=True):
        likely = log_probs >= np.log(alpha)
        assert (row.answers, row.found) == (likely.sum(), likely.any(axis=1).sum())
        assert row.all_found == pytest.approx((likely.sum(axis=1) == 1).sum() / likely.any(axis=1).sum())


def test_new_scores_compete_with_alpha_from_validation(facts_2m, questions):
    both = question_sets.load("world-facts", split=("validation", "test"), limit=80)
    exact, beams = (
        generate(facts_2m, both, strategy=strategy, progress=False, **options)
        for strategy, options in (("threshold", {"search_alpha": 0.02}), ("diverse_beam", {}))
    )
    lined_up = [tables.searched(exact, beams, split=split) for split in ("validation", "test")]
    table = tables.search_benchmark([lined_up])
    names = ["PRO, exact", "PRO, beams", "α-floor", "tree bound", "mass not found", "NLL", "ALL"]
    assert list(table["method"]) == names
    assert (table["alpha"].dropna() >= 0.02).all()
    assert table["difference"][0] == 0
    half = lined_up[1].only(lined_up[1].judged.answers["question_id"][::2])
    assert len(half.beams) == len(half.judged.correct) == len(half.prefixes) == 40


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
        ({"search_alpha": 0.0}, r"search_alpha=0.0 must lie in \(0, 1\]"),
        ({"search_alpha": 1.5}, r"search_alpha=1.5 must lie in \(0, 1\]"),
        ({"top_n": 0}, "top_n=0 must be a"),
        ({"budget": -1}, "budget=-1 must be a whole number of at least 0"),
        ({"search_alpha": 0.1, "top_n": 3}, "search_alpha and top_n are two ways to end a search"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(facts_2m, questions, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(facts_2m, questions, strategy="threshold", progress=False, **options)


def test_in_half_precision_what_rounding_blurs_is_searched_again_in_float32(questions):
    model = pro_models.load("facts-2m", device="cpu", dtype="bfloat16")
    few = replace(questions, table=questions.table.head(24))
    run = generate(model, few, strategy="threshold", search_alpha=0.05, progress=False)
    epsilon = run.questions["epsilon"]
    again, apart = epsilon < 1e-4, epsilon.max()
    assert 0.02 < apart < 1
    assert set(epsilon) == {apart, epsilon.min()}
    assert 0 < again.sum() < 20
    model = replace(model, network=half.float32_copy(model.network))
    exact = generate(model, few, strategy="threshold", search_alpha=0.05, progress=False)
    assert list(run.questions["status"]) == list(exact.questions["status"])
    mine, theirs = (
        {*zip(t["question_id"], map(tuple, t["token_ids"]), strict=True)} for t in (run.ranked(), exact.ranked())
    )
    assert mine == theirs
    values = [one.top().loc[again.to_numpy(), "value"] for one in (run, exact)]
    np.testing.assert_allclose(*values, atol=2e-5)
    np.testing.assert_allclose(run.questions["tree_bound"][again], exact.questions["tree_bound"][again], atol=1e-4)
    # Both searches count, and what ε was measured with is the run's alone.
    spent = run.questions["token_forwards"]
    assert (spent[again] > exact.questions["token_forwards"][again]).all()
    assert run.info.cost.token_forwards > spent.sum()
    assert run.info.cost.prompt_tokens > 2 * exact.info.cost.prompt_tokens


@pytest.mark.parametrize("alpha", [1.0, 1e-3])
def test_extremes_of_alpha(facts_2m, questions, alpha):
    few = replace(questions, table=questions.table.head(8))
    run = generate(facts_2m, few, strategy="threshold", search_alpha=alpha, progress=False)
    np.testing.assert_allclose(run.questions[MASSES].sum(axis=1), 1.0, atol=1e-5)
    assert set(run.questions["status"]) == ({"fallback"} if alpha == 1.0 else {"certified"})
