import copy
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from pro_lib import (
    ask,
    bundled,
    explorer,
    generate,
    intervals,
    metrics,
    promises,
    scores,
    similarities,
    tables,
)
from pro_lib import questions as question_sets
from pro_lib.explorer.page import JAVASCRIPT
from pro_lib.files import RunError
from pro_lib.parts import Cost, RunInfo
from pro_lib.runs import Run
from pro_lib.settings import Settings

NASTY = "</script><script>alert('$x$')</script> & <img src=x onerror=alert(1)> <!-- "
# Writing turned round, an isolate that is not closed, lines, and a word that is wider than any page.
NASTY += "\u202eturned\u2066 round\nnext line\u2028another\u0000" + "w" * 700
CAPITAL = "What is the capital of France?"


def toy_run():
    answers = pd.DataFrame(
        {
            "question_id": ["a", "a", "a", "b"],
            "rank": [0, 1, 2, 0],
            "text": ["Paris", "Paris", "Lyon", "Emma"],
            "token_ids": [[1], [1], [2, 3], [4]],
            "token_log_probs": [[np.log(0.6)], [np.log(0.6)], [np.log(0.5), np.log(0.4)], [np.log(0.1)]],
            "log_prob": np.log([0.6, 0.6, 0.2, 0.1]),
            "end_log_prob": np.log([0.5, 0.5, 1.0, 1.0]),
            "finished": [True, True, True, True],
        }
    )
    questions = pd.DataFrame(
        {"question_id": ["a", "b"], "question": ["Capital?", "Book?"], "references": [["Paris"], ["Persuasion"]]}
    ).assign(split="test")
    info = RunInfo("toy", "none", "diverse_beam", cost=Cost(10, 30, 5, 2.0, 3 * 2**20))
    return Run(answers, questions, info)


def test_explained_says_what_pro_makes_of_every_answer():
    table = tables.explained(toy_run(), alpha=0.25)
    assert list(table["text"]) == ["Paris", "Lyon", "Emma"]
    assert list(table["probability"]) == pytest.approx([0.3, 0.2, 0.1])
    assert list(table["kept"]) == [True, False, True]  # nothing of b reaches α, so its likeliest answer stands alone
    assert list(table["correct"]) == [True, False, False]
    pro_2 = -np.log(0.2) - 0.3 * np.log(0.3 / 0.2)
    assert list(table["running_pro"]) == pytest.approx([-np.log(0.3), pro_2, -np.log(0.1)])
    assert list(table["uncertainty"]) == pytest.approx([-np.log(0.3)] * 2 + [-np.log(0.1)])


def test_cost_counts_prompt_and_decoded_tokens_per_second():
    row = tables.cost_table([toy_run()]).iloc[0]
    assert (row["run"], row["tokens_per_second"], row["peak_memory_mib"]) == ("toy/none/diverse_beam", 20, 3)


def test_found_counts_repeats_and_mass():
    table = tables.found_table([toy_run()], alpha=0.15)
    assert list(table["answers"]) == [3, 1]
    assert list(table["distinct"]) == [2, 1]
    assert list(table["mass"]) == pytest.approx([0.5, 0.1])
    assert list(table["mass_with_repeats"]) == pytest.approx([0.8, 0.1])
    assert list(table["kept"]) == [2, 1]
    assert list(table["cut"]) == [0, 0]


# ---- What the explorer shows.


def many(*, n=40, seed=0):
    """A run of `n` questions with three answers each, every third one answered right, with exposure."""
    rng = np.random.default_rng(seed)
    ids = [f"q{i:02}" for i in range(n)]
    p = np.sort(rng.dirichlet(np.ones(4), size=n)[:, :3], axis=1)[:, ::-1]
    texts = [["alpha", "beta", "gamma"] if i % 3 == 0 else ["beta", "alpha", "gamma"] for i in range(n)]
    answers = pd.DataFrame(
        {
            "question_id": np.repeat(ids, 3),
            "rank": list(range(3)) * n,
            "text": np.concatenate(texts),
            "token_ids": [[t] for _ in ids for t in range(3)],
            "token_log_probs": [[x] for x in np.log(p).ravel()],
            "log_prob": np.log(p).ravel(),
            "end_log_prob": 0.0,
            "finished": True,
        }
    )
    questions = pd.DataFrame(
        {
            "question_id": ids,
            "question": [f"Letter number {i}?" for i in range(n)],
            "references": [["alpha"]] * n,
            "split": ["test" if i % 4 else "validation" for i in range(n)],
            "exposure": [i % 2 * 8 for i in range(n)],
        }
    )
    return Run(answers, questions, RunInfo("letters", "toy", "diverse_beam", cost=Cost()))


def test_examples_are_right_and_wrong_ones_and_ones_that_keep_several_or_any_where_nothing_can_be_judged():
    run = many()
    drawn = [tables.examples(run, alpha=0.9, seed=seed) for seed in (0, 1)]
    assert corrects(drawn[0]) == [True] * 3 + [False] * 3
    assert list(drawn[0].questions["question_id"]) != list(drawn[1].questions["question_id"])
    kept = tables.explained(tables.examples(run, alpha=0.3), alpha=0.3).groupby("question_id", sort=False)["kept"].sum()
    assert [k > 1 for k in kept] == [False] * 4 + [True] * 2
    few = tables.examples(run.select(question_ids=["q00", "q01", "q02"]), alpha=0.9)
    assert sorted(few.questions["question_id"]) == ["q00", "q01", "q02"]
    unknown = replace(run, questions=run.questions.assign(references=None))
    assert len(set(tables.examples(unknown, alpha=0.9, n=4).questions["question_id"])) == 4


def corrects(run):
    return [question["correct"] for question in explorer.run_data(run)["questions"]]


def test_a_run_is_data_with_the_alphas_of_its_slider():
    data = explorer.run_data(many(), alpha=0.123)
    assert {0.0, 0.001, 0.07, 0.123, 0.4, 1.0} <= set(data["alphas"])
    assert data["log_alphas"][0] is None  # of 0
    assert data["log_alphas"][1:] == [np.log(alpha) for alpha in data["alphas"][1:]]
    first = {"id": "q00", "question": "Letter number 0?", "references": ["alpha"], "split": "test", "correct": True}
    assert data["questions"][0] == first | {"split": "validation", "exposure": 0}
    assert [row[1] for row in data["answers"][0]] == many().log_probs()[0].tolist()
    assert data["has_texts"]


def test_a_promise_is_made_of_the_validation_questions_at_the_alpha_given():
    run = many(n=400, seed=3)
    easy = run.questions["question_id"].str[1:].astype(int) % 3 == 0  # those answered right, now also the surest
    sure = run.answers["question_id"].isin(run.questions["question_id"][easy]) & (run.answers["rank"] == 0)
    run = replace(run, answers=run.answers.assign(log_prob=run.answers["log_prob"].where(~sure, np.log(0.999))))
    data = explorer.run_data(run, alpha=0.3, target=0.8)
    pro, asked = run.scores(alpha=0.3)["pro"].to_numpy(), (run.questions["split"] == "validation").to_numpy()
    right = np.array(corrects(run))
    made = promises.promise(pro[asked], right[asked], target=0.8, unlabelled=pro[~asked])
    assert made.threshold is not None
    expected = {"alpha": 0.3, "n": 100, "holds": True, "says": made.sentence(), "answered": made.answers(pro).tolist()}
    assert data["promise"] == expected
    assert 0 < sum(data["promise"]["answered"]) < 400
    json.dumps(data, allow_nan=False)
    nothing = explorer.run_data(run, target=0.99)["promise"]
    assert (nothing["holds"], any(nothing["answered"])) == (False, False)
    assert nothing["says"].startswith("Nothing can be promised")


def test_a_promise_over_a_search_is_made_at_no_alpha_below_its_own():
    run = replace(many(), info=RunInfo("letters", "toy", "threshold", {"search_alpha": 0.3}))
    assert [explorer.run_data(run, alpha=alpha)["promise"]["alpha"] for alpha in (0.1, 0.5)] == [0.3, 0.5]


def test_without_validation_questions_nothing_is_said_of_a_promise_and_one_without_an_answer_is_never_answered():
    assert explorer.run_data(many().select(split="test"))["promise"] is None
    run = many(n=400)
    unjudged = replace(run, questions=run.questions.assign(references=None))
    assert explorer.run_data(unjudged)["promise"] is None
    open_ones = replace(run, answers=run.answers.assign(finished=run.answers["question_id"] != "q00"))
    shown = explorer.run_data(open_ones, target=0.05)["promise"]  # which all the answers keep
    assert (shown["n"], shown["answered"]) == (100, [False, *[True] * 399])
    validation_only = explorer.run_data(run.select(split="validation"), target=0.05)["promise"]
    assert (validation_only["n"], all(validation_only["answered"])) == (100, True)


def test_a_search_is_not_shown_below_its_alpha_and_brings_its_certificate(facts_2m):
    run = searched(facts_2m, 3)
    data = explorer.run_data(run)
    assert min(data["alphas"]) == 0.05
    certificate = data["questions"][0]["certificate"]
    assert certificate["status"] == run.questions["status"][0]
    assert certificate["tree_bound"] == run.questions["tree_bound"][0]
    assert certificate["search_alpha"] == pytest.approx(0.05)
    assert sum(mass for name, mass in certificate.items() if name.endswith("_mass")) == pytest.approx(1, abs=1e-5)
    assert certificate["entropy"] is None
    drawn = searched(facts_2m, 3, entropy_draws=3)
    shown = explorer.run_data(drawn)["questions"][-1]["certificate"]
    assert shown["entropy"] == [each[-1] for each in drawn.entropy()]
    json.dumps(shown)
    for missing in (None, np.nan):  # over an endpoint there is no upper bound
        without = replace(run, questions=run.questions.assign(upper_bound=missing))
        assert explorer.run_data(without)["questions"][0]["certificate"]["upper_bound"] is None


def repeated():
    """One question with a repeat, another spelling of it, and an answer that was cut."""
    run = toy_run().select(question_ids=["a"])
    extra = run.answers.iloc[[2, 2]].assign(
        text=["paris!", "Par"], token_ids=[[7], [8]], log_prob=np.log([0.1, 0.05]), finished=[True, False]
    )
    return replace(run, answers=pd.concat([extra, run.answers], ignore_index=True))


def test_repeats_and_spellings_have_numbers_and_what_was_cut_comes_last():
    (answers,) = explorer.run_data(repeated())["answers"]
    text, log_probs, identity, spelling, finished, correct = map(list, zip(*answers, strict=True))
    assert text == ["Paris", "Paris", "Lyon", "paris!", "Par"]
    assert np.exp(log_probs) == pytest.approx([0.3, 0.3, 0.2, 0.1, 0.05])
    assert identity[0] == identity[1]
    assert len(set(identity)) == 4
    assert spelling[0] == spelling[1] == spelling[3]
    assert len(set(spelling)) == 3
    assert finished == [True] * 4 + [False]
    assert correct == [True, True, False, True, None]


def test_the_papers_examples_have_the_papers_pro_when_repeats_count():
    run = explorer.appendix_run()
    printed = bundled.paper("appendix_scores")
    adaptive = printed[printed["selection"] == "adaptive"].set_index("question")["pro"]
    with pytest.warns(scores.PremiseWarning):
        pro = scores.pro(run.log_probs(distinct=False), alpha=0.1)
    assert pro == pytest.approx(adaptive[run.questions["question"]].to_numpy(), abs=0.005)
    assert corrects(run) == [True, False, False]
    assert "The paper prints PRO = 0.404 at α = 0.1" in explorer.run_data(run)["questions"][0]["note"]


# ---- The numbers of the page, on vectors of pro_lib's.


def in_javascript(folder, code, given):
    """What `code` makes of `given` with the functions of explorer.js, by node."""
    node = shutil.which("node")
    if node is None:
        driver = pytest.importorskip("playwright._impl._driver", reason="neither node nor playwright is installed")
        node = driver.compute_driver_executable()[0]
    (folder / "explorer.mjs").write_text(JAVASCRIPT.read_text())
    program = "import { readFileSync } from 'node:fs';\nimport * as page from './explorer.mjs';\n"
    program += "const given = JSON.parse(readFileSync(0));\n" + f"console.log(JSON.stringify(({code})(given)));"
    (folder / "run.mjs").write_text(program)
    done = subprocess.run([node, "run.mjs"], cwd=folder, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PROBABILITY = st.one_of(st.floats(1e-6, 1), st.sampled_from([1.0, 0.5, 0.4, 0.1, 0.02, 1e-9]))
LOGS = st.lists(st.one_of(PROBABILITY.map(np.log), st.floats(-2000, 0)), max_size=40)
LISTS = st.lists(LOGS, min_size=1, max_size=30)


def pro_by_the_page(folder, lists, alphas):
    """For every list, PRO for every K, and [K, PRO] at every α, as the page makes them and as pro_lib does."""
    with np.errstate(divide="ignore"):
        logs = [None if alpha == 0 else np.log(alpha) for alpha in alphas]
    code = """({ lists, logs }) => lists.map((list) => [page.proAllK(list), ...logs.map((log) =>
        [page.adaptiveK(list, log ?? -Infinity), page.pro(list, log ?? -Infinity)])])"""
    lists = [np.sort(values)[::-1] for values in lists]
    found = in_javascript(folder, code, {"lists": [values.tolist() for values in lists], "logs": logs})
    for values, (by_k, *at) in zip(lists, found, strict=True):
        if not len(values):
            assert [by_k, *at] == [[], *[[0, None]] * len(alphas)]  # NaN, as JSON has it
            continue
        assert by_k == pytest.approx(scores.pro_all_k([values])[0], rel=1e-9, abs=1e-9)
        assert [k for k, _ in at] == scores.adaptive_k([values], alphas)[0].tolist()
        assert [pro for _, pro in at] == pytest.approx(scores.pro([values], alpha=alphas)[0], rel=1e-9, abs=1e-9)


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
def test_the_page_computes_what_pro_lib_computes(tmp_path):
    rng = np.random.default_rng(0)
    lists = [rng.dirichlet(np.ones(n + 1))[:n] for n in rng.integers(1, 33, size=300)]
    lists += [rng.dirichlet(np.ones(2000))]  # K of 2,000 at α = 0
    lists += [[0.4, 0.1, 0.1], [1.0], [0.4], [0.1] * 10, [0.6, 0.6, 0.6], [1e-300, 1e-301]]
    lists = [np.log(values) for values in lists] + [[], [-800.0, -900.0, -1e4]]  # of which exp is 0
    pro_by_the_page(tmp_path, lists, [0.0, 0.001, 0.1, 0.4, 1.0, *rng.random(5)])


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lists=LISTS, alphas=st.lists(st.one_of(PROBABILITY, st.just(0.0)), min_size=1, max_size=10))
def test_the_page_computes_what_pro_lib_computes_of_any_list(tmp_path, lists, alphas):
    pro_by_the_page(tmp_path, lists, alphas)


def aurocs_by_the_page(folder, uncertainty, correct):
    """AUROC with its interval, and ranks, as the page makes them and as pro_lib does."""
    code = "({ u, c }) => u.map((each, at) => [page.aurocWithin(each, c[at]), page.ranks(each)])"
    found = in_javascript(folder, code, {"u": uncertainty, "c": correct})
    for values, right, (auroc, ranks) in zip(uncertainty, correct, found, strict=True):
        expected = [float(each[0]) for each in metrics.auroc_intervals(np.transpose([values]), right)]
        assert auroc == pytest.approx(expected, abs=1e-9)
        assert ranks == pytest.approx(100 * rankdata(values) / len(values))


def test_auroc_its_interval_and_ranks_of_the_page_are_ours_with_ties(tmp_path):
    rng = np.random.default_rng(1)
    uncertainty = [rng.integers(0, 4 + i, size=200).astype(float).tolist() for i in range(20)]
    correct = [(rng.random(200) < 0.4).tolist() for _ in uncertainty]
    one_right = [True, *[False] * 199]
    separated = [[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0], [1.0] * 4]
    aurocs_by_the_page(
        tmp_path,
        [*uncertainty, uncertainty[0], *separated, [0.0, 1.0]],
        [*correct, one_right, *[[True, True, False, False]] * 3, [False, True]],
    )
    one_class = "() => [page.aurocWithin([1, 2], [true, true]), page.aurocWithin([], [])]"
    assert in_javascript(tmp_path, one_class, None) == [[None] * 3] * 2  # NaN, as JSON has it


JUDGED = st.lists(st.tuples(st.floats(0, 50) | st.integers(0, 3).map(float), st.booleans()), min_size=2, max_size=60)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(judged=st.lists(JUDGED.filter(lambda rows: len({right for _, right in rows}) == 2), min_size=1, max_size=20))
def test_auroc_and_its_interval_are_ours_of_any_scores(tmp_path, judged):
    aurocs_by_the_page(tmp_path, *([[row[at] for row in rows] for rows in judged] for at in (0, 1)))


def test_means_and_agreement_of_the_page_are_ours(tmp_path):
    values = [[1.0, 2.0, 2.0, 7.0], [3.0, 3.0]]
    masses = [(0.5, 0.75), (0.5, 1.0), (1.0, 1.0 + 1e-9), (0.0, 0.0), (0.6, 1.2)]
    code = "({ v, m }) => [v.map(page.meanWithin), m.map((each) => page.agreementWithin(...each))]"
    means, agreed = in_javascript(tmp_path, code, {"v": values, "m": masses})
    errors = [np.std(each, ddof=1) / np.sqrt(len(each)) for each in values]
    for at, (mean, error) in enumerate(zip(map(np.mean, values), errors, strict=True)):
        assert means[at] == pytest.approx([mean, *intervals.normal(mean, error)], abs=1e-12)
    with np.errstate(divide="ignore"):
        logs = [np.log([[same, max(found - same, 1e-300)]]) for same, found in masses]
    expected = [similarities.agreement(np.maximum(each, -700), np.array([[True, False]])) for each in logs]
    assert agreed[:-1] == [pytest.approx([float(low[0]), float(high[0])]) for low, high in expected[:-1]]
    assert agreed[-1] == [pytest.approx(0.6), None]


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
@pytest.mark.parametrize("distinct", [True, False])
def test_a_view_of_the_page_sweeps_as_pro_lib_does(distinct, tmp_path):
    run = many()
    twice = run.answers[run.answers["rank"] == 1]  # found twice, so that the mass stays below 1
    run = replace(run, answers=pd.concat([run.answers, twice], ignore_index=True)).select(split="test")
    data = explorer.run_data(run)
    code = """({ data, repeats }) => { const view = new page.View(data, "test", repeats);
        return [view.sweep.map((at) => [...at.auroc, ...at.meanKept]), data.alphas.map((_, at) => view.at(at))] }"""
    sweep, uncertainty = in_javascript(tmp_path, code, {"data": data, "repeats": not distinct})
    log_probs, alphas = run.log_probs(distinct=distinct), np.array(data["alphas"])
    expected = scores.pro(log_probs, alpha=alphas)
    assert np.transpose(uncertainty) == pytest.approx(expected, rel=1e-9)
    aurocs = metrics.auroc_intervals(expected, np.array(corrects(run)))
    kept = scores.adaptive_k(log_probs, alphas)
    means = kept.mean(axis=0), kept.std(axis=0, ddof=1) / np.sqrt(len(kept))
    assert np.array(sweep) == pytest.approx(np.column_stack([*aurocs, means[0], *intervals.normal(*means)]), rel=1e-9)


def test_a_view_of_the_page_counts_repeats_and_spellings(tmp_path):
    code = """(data) => new page.View(data, "all", true).answers[0].map((each) =>
        [each.copies, each.spellings, each.together, each.isFirst])"""
    copies, spellings, together, first = zip(*in_javascript(tmp_path, code, explorer.run_data(repeated())), strict=True)
    assert copies == (2, 2, 1, 1)  # Paris, Paris, Lyon, paris!; not Par, which was cut
    assert spellings == (2, 2, 1, 2)
    assert together == pytest.approx([0.3 + 0.1, 0.4, 0.2, 0.4])  # a repeat has no probability of its own
    assert first == (True, False, True, True)


def test_a_view_of_the_page_knows_which_of_its_own_questions_are_promised(tmp_path):
    data = explorer.run_data(many())
    answered = [at < 10 for at in range(40)]
    data["promise"] |= {"answered": answered}
    code = "(data) => ['all', 'validation'].map((split) => new page.View(data, split, false).promised)"
    assert in_javascript(tmp_path, code, data) == [answered, answered[::4]]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (range(10), ""),
        (range(9), "left out: 9 judged answers are too few"),
        ([0, 3], "not defined: all 2 judged answers are right"),
        ([1, 2], "not defined: all 2 judged answers are wrong"),
        ([], "not defined: no answer can be judged"),
    ],
)
def test_a_view_of_the_page_says_why_it_has_no_auroc(ids, says, tmp_path):
    data = explorer.run_data(many().select(question_ids=[f"q{at:02}" for at in ids]))
    code = "(data) => new page.View(data, 'all', false).withoutAuroc"
    assert in_javascript(tmp_path, code, data) == says


# ---- The prefix tree.


def searched(model, n, *, search_alpha=0.05, **more):
    questions = question_sets.load("world-facts", split="test", limit=n)
    return generate.generate(model, questions, strategy="threshold", search_alpha=search_alpha, progress=False, **more)


def small_tree():
    """Prompt → "a" 0.7 → "ab" 0.698 → ends 0.5, "abc" 0.15 (ends 0.15); prompt → "d" 0.2 (ends nowhere)."""
    rows = [("", -1, -1, 1.0), ("a", 0, 0, 0.7), ("d", 0, 3, 0.2), ("ab", 1, 1, 0.698), ("abc", 3, 2, 0.15)]
    ledger = {
        "question_id": "a", "question": "Letters?", "references": None, "split": None, "status": "certified",
        "tree_parents": [row[1] for row in rows], "tree_tokens": [row[2] for row in rows],
        "tree_log_probs": list(np.log([row[3] for row in rows])), "tree_entropies": [0.0] * 5,
        "tree_greedy": [True, True, False, True, False],
    }  # fmt: skip
    answers = pd.DataFrame(
        {
            "question_id": "a", "rank": [0, 1, 2], "text": ["ab", "abc", "dd"],
            "token_ids": [[0, 1], [0, 1, 2], [3, 3]],
            "token_log_probs": [[np.log(0.7), np.log(0.698 / 0.7)], [], []], "log_prob": np.log([0.698, 0.15, 0.05]),
            "end_log_prob": [np.log(0.5 / 0.698), 0.0, 0.0], "finished": [True, True, False],
        }
    )  # fmt: skip
    return Run(answers, pd.DataFrame([ledger]), RunInfo("letters", "toy", "threshold", {"search_alpha": 0.1}))


def spelled(ids):
    return "".join("abcd"[i] for i in ids)


def test_a_prefix_that_goes_on_in_one_only_is_drawn_with_it_and_leaves_sum_to_one():
    table = explorer.prefix_tree(small_tree(), spelled)
    found = [(row.kind, row.text, round(row.probability, 6), row.greedy) for row in table.itertuples()]
    assert found == [
        ("prefix", "", 1.0, True),
        ("prefix", "ab", 0.698, True),  # "a" loses 0.002 only
        ("answer", "ab", 0.5, True),
        ("prefix", "c", 0.15, False),
        ("answer", "abc", 0.15, False),
        ("cut", "cut", 0.0, False),
        ("cut", "cut", 0.05, False),
        ("prefix", "d", 0.2, False),
        ("open", "dd", 0.05, False),
        ("cut", "cut", 0.15, False),
        ("cut", "cut", 0.1, False),
    ]


def test_prefixes_that_are_left_out_count_as_cut():
    table = explorer.prefix_tree(small_tree(), spelled, n_nodes=1)
    # The greedy path stays, and so do answers right below it.
    assert list(table.loc[table["kind"] == "prefix", "text"]) == ["", "ab"]
    assert list(table.loc[table["kind"] == "answer", "text"]) == ["ab", "abc"]
    assert table.loc[table["kind"] != "prefix", "probability"].sum() == pytest.approx(0.95 + 0.05)


def test_the_tree_of_a_real_search_sums_to_one_and_agrees_with_its_ledger(facts_2m):
    run = searched(facts_2m, 12)
    for question_id in run.questions["question_id"]:
        one = run.select(question_ids=[question_id])
        table = explorer.prefix_tree(one, facts_2m.decode, n_nodes=1000)
        leaves = table[table["kind"] != "prefix"]
        assert leaves["probability"].sum() == pytest.approx(1, abs=1e-5)
        ledger = one.questions.iloc[0]
        likely = leaves[(leaves["kind"] == "answer") & (leaves["probability"] >= 0.05 - 1e-9)]
        assert likely["probability"].sum() == pytest.approx(ledger["found_mass"], abs=1e-6)
        assert set(table["parent"]) <= {-1, *table["node"]}
        assert set(likely["text"]) <= {answer[0] for answer in explorer.run_data(one)["answers"][0]}


def test_a_run_without_a_search_has_no_tree():
    with pytest.raises(RunError, match="holds no search tree"):
        explorer.prefix_tree(toy_run().select(question_ids=["a"]), spelled)


# ---- One file.


def test_nothing_that_a_model_or_a_file_says_ends_the_script_of_the_page(tmp_path):
    run = many(n=3)
    texts = {"question": NASTY, "references": [[NASTY]] * 3, "note": NASTY}
    run = replace(run, answers=run.answers.assign(text=NASTY), questions=run.questions.assign(**texts))
    run = replace(run, info=replace(run.info, model=NASTY))
    written = explorer.to_html(run, tmp_path / "run.html").read_text()
    assert written.count("<script") == written.count("</script") == 2
    assert "<img" not in written
    data, compared = json.loads(re.search(r'id="run">(.*)</script>', written)[1])
    assert data["answers"][0][0][0] == data["questions"][0]["note"] == NASTY
    assert compared["texts"][0] == NASTY
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", written)


def held(page):
    """The run and the methods compared that a page holds."""
    return json.loads(re.search(r'id="run">(.*)</script>', page.read_text())[1])


def test_a_page_says_why_no_methods_are_compared(tmp_path):
    run = replace(many(), questions=many().questions.assign(references=None))
    (_, methods) = held(explorer.to_html(run, tmp_path / "run.html"))
    assert list(methods) == ["why"]
    assert "no answer can be judged" in methods["why"]


def test_a_large_run_fits_in_five_megabytes(tmp_path):
    """3,600 questions with ten answers each, their log-probabilities in full."""
    run = many(n=3600)
    answers = pd.concat([run.answers] * 4, ignore_index=True).sort_values(["question_id", "rank"], kind="stable")
    answers = answers[answers.groupby("question_id").cumcount() < 10]
    texts = answers["text"] + " of some length " + answers["question_id"]
    token_ids = [[at] for at in range(len(answers))]
    run = replace(run, answers=answers.assign(text=texts, token_ids=token_ids).reset_index(drop=True))
    assert 2e6 < explorer.to_html(run, tmp_path / "run.html").stat().st_size < 5e6


# ---- The widget, without a browser.


@pytest.fixture
def app(tmp_path):
    return explorer.explore(many(), Settings(generations_dir=tmp_path))


def answered(app, **message):
    """What the kernel answers to a message of the page."""
    said = []
    app.send = said.append
    app._handle_custom_msg(message, [])
    (answer,) = said
    assert "Traceback" not in answer["status"]
    json.dumps(answer, allow_nan=False)
    return answer


def test_the_widget_shows_the_run_and_offers_others(app):
    assert app.runs == ["letters/toy/diverse_beam (this notebook)", "the paper's appendix"]
    assert "run the cell" in app._repr_mimebundle_()[0]["text/plain"]  # where no kernel is
    assert (app.data["label"], app.data["split"], app.alpha) == (app.runs[0], "test", 0.4)
    assert app.data["cannot_ask"] == "letters/toy/diverse_beam comes without a model to ask; choose another run"
    assert answered(app, kind="run", name=app.paper) == {"kind": "run", "status": ""}
    assert app.data["questions"][0]["question"] == "sixth president of the United States"


def test_the_widget_is_set_by_the_settings_and_compares_the_run_that_was_chosen(tmp_path):
    app = explorer.explore(many(), Settings(generations_dir=tmp_path, alpha=0.3, target=[0.05], split="validation"))
    said = {"label": app.runs[0], "cannot_ask": app.data["cannot_ask"]}
    assert app.data == explorer.run_data(many(), alpha=0.3, target=0.05, split="validation", **said)
    answered(app, kind="run", name=app.paper)
    assert answered(app, kind="compare", distinct=True)["ids"] == list(explorer.appendix_run().questions["question_id"])


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"kind": "ask", "question": "Why?", "search_alpha": 0.1}, "comes without a model to ask"),
        ({"kind": "run", "name": "no such run"}, "no such run"),
        ({"kind": "nothing"}, "nothing"),
        ({"kind": "compare"}, "distinct"),
    ],
)
def test_an_error_is_a_sentence(app, message, sentence):
    answer = answered(app, **message)
    assert (answer["kind"], answer["of"]) == ("error", message["kind"])
    assert sentence in answer["status"]


def test_a_damaged_run_is_a_sentence_and_the_run_before_stays(tmp_path):
    folder = tmp_path / "world-facts" / "facts-9m" / "greedy"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    app = explorer.explore(many(), Settings(generations_dir=tmp_path))
    answer = answered(app, kind="run", name="world-facts/facts-9m/greedy")
    assert answer["kind"] == "error"
    assert "facts-9m" in answer["status"]
    assert app.data["name"] == "letters/toy/diverse_beam"


def test_methods_are_compared_on_the_questions_that_all_can_score(app):
    answer = answered(app, kind="compare", distinct=False)
    assert (answer["kind"], answer["distinct"], answer["status"]) == ("compared", False, "")
    assert {"NLL", "SE, lexical"} <= set(answer["scores"])
    assert answer["ids"] == [f"q{i:02}" for i in range(40)]
    assert answer["scores"]["NLL"] == pytest.approx(scores.nll(many().log_probs()))
    assert answer["correct"] == corrects(many())


def test_methods_are_compared_with_samples_where_there_are_some(app, tmp_path, monkeypatch):
    samples = replace(many(seed=1), info=replace(many().info, strategy="multinomial"))
    alone, beside = (explorer.compared(many(), each) for each in (None, samples))
    assert set(alone["scores"]) < set(beside["scores"])
    page = explorer.to_html(many(), tmp_path / "run.html", alpha=0.3, target=0.05, samples=samples)
    assert held(page) == [explorer.run_data(many(), alpha=0.3, target=0.05), beside]
    monkeypatch.setattr("pro_lib.runs.read", lambda folder: samples)  # in the folder of samples
    assert answered(app, kind="compare", distinct=True)["scores"] == beside["scores"]


def test_methods_are_compared_with_repeats_or_without():
    run = many()
    twice = replace(run, answers=pd.concat([run.answers, run.answers[run.answers["rank"] == 1]], ignore_index=True))
    once, without, counted = (
        explorer.compared(each, distinct=distinct)["scores"]["SE, lexical"]
        for each, distinct in ((run, True), (twice, True), (twice, False))
    )
    assert without == pytest.approx(once)
    assert counted != pytest.approx(once)


def test_the_model_of_a_run_is_asked_as_the_run_was(facts_2m, tmp_path):
    run = searched(facts_2m, 3)
    app = explorer.explore(run, Settings(generations_dir=tmp_path, strategy="threshold", device="cpu"))
    answer = answered(app, kind="ask", question=CAPITAL, search_alpha=0.05)
    assert (answer["kind"], answer["status"]) == ("asked", "")
    expected = ask(
        facts_2m, CAPITAL, questions=question_sets.load("world-facts", split="test", limit=3), search_alpha=0.05
    )
    found = [(text, np.exp(log_prob)) for text, log_prob, *_ in answer["data"]["answers"][0]]
    assert [text for text, _ in found] == [text for text, _ in expected.answers]
    assert [p for _, p in found] == pytest.approx([p for _, p in expected.answers])
    assert min(answer["data"]["alphas"]) == 0.05
    entropy = answer["data"]["questions"][0]["certificate"]["entropy"]  # of the draws that are made in asking
    assert entropy[0] == pytest.approx(expected.entropy[0])
    assert {row["kind"] for row in answer["tree"]} >= {"prefix", "answer"}
    assert answered(app, kind="ask", question=" ", search_alpha=0.05)["status"] == "question is empty"


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}<assistant>"


def test_a_run_made_with_the_chat_template_is_asked_with_it(facts_2m, tmp_path, monkeypatch):
    tokenizer = copy.deepcopy(facts_2m.tokenizer)
    tokenizer.chat_template = CHAT
    model = replace(facts_2m, tokenizer=tokenizer)
    questions = question_sets.load("world-facts", split="test", limit=2)
    options = {"strategy": "greedy", "max_new_tokens": 7, "chat": True, "progress": False}
    run = generate.generate(model, questions, **options)
    monkeypatch.setattr(Settings, "loaded", lambda *_: model)
    app = explorer.explore(run, Settings(generations_dir=tmp_path, device="cpu"))
    answer = answered(app, kind="ask", question=CAPITAL, search_alpha=0.02)
    plain, chatting = (ask(model, CAPITAL, questions=questions, max_new_tokens=7, chat=chat) for chat in (False, True))
    best = np.exp(answer["data"]["answers"][0][0][1])
    assert best == pytest.approx(chatting.answers[0][1])
    assert best != pytest.approx(plain.answers[0][1], abs=1e-3)


@pytest.mark.parametrize("question", ["asdf $$ <b>", "🦆", "?", "word " * 3000])
def test_whatever_is_typed_gets_an_answer_or_a_sentence(question, facts_2m, tmp_path):
    app = explorer.explore(searched(facts_2m, 2), Settings(generations_dir=tmp_path, device="cpu"))
    answer = answered(app, kind="ask", question=question, search_alpha=0.02)
    assert answer["kind"] == "asked" or (answer["kind"] == "error" and answer["status"])


ODD = {
    "one question": many(n=1),
    "one class": many(n=4).select(question_ids=["q00", "q03"]),
    "no question": many(n=3).select(question_ids=[]),
    "no references": replace(many(), questions=many().questions.assign(references=None)),
    "no answer": replace(many(), answers=many().answers.assign(finished=False)),
    "no text": replace(
        many(), answers=many().answers.assign(text=None), questions=many().questions.assign(question=None)
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_runs_of_which_little_is_known_are_shown(name, tmp_path):
    run = ODD[name]
    data = explorer.explore(run, Settings(generations_dir=tmp_path)).data
    json.dumps(data, allow_nan=False)
    assert len(data["questions"]) == len(data["answers"]) == len(run.questions)
    assert data["has_texts"] == (name not in ("no text", "no question"))
    answer = answered(explorer.explore(run, Settings(generations_dir=tmp_path)), kind="compare", distinct=True)
    assert answer["kind"] == "compared" or "no answer can be judged" in answer["status"]
    assert len(tables.explained(tables.examples(run, alpha=0.4), alpha=0.4)) <= 6 * 3


def test_records_without_texts_are_numbered(tmp_path):
    """Log-probabilities alone, right or wrong from outside, one question not judged and one without an answer."""
    path = tmp_path / "mine.jsonl"
    lines = [
        {"question_id": i, "answers": [{"log_prob": -0.1 - i, "correct": i < 2}, {"log_prob": -9}]} for i in range(4)
    ]
    lines += [{"question_id": 4, "answers": [{"log_prob": -0.5}]}, {"question_id": 5, "answers": []}]
    path.write_text("\n".join(map(json.dumps, lines)))
    given_by = Settings(records=str(path), generations_dir=tmp_path)
    data = explorer.explore(given_by.run("records", "mine"), given_by).data
    assert not data["has_texts"]
    assert [question["question"] for question in data["questions"]] == [f"question {i}" for i in range(6)]
    assert [question["correct"] for question in data["questions"]] == [True, True, False, False, None, None]
    assert [answer[0] for answer in data["answers"][0]] == ["answer 1", "answer 2"]


def test_importing_it_loads_neither_torch_nor_widgets_nor_matplotlib():
    heavy = {"torch", "ipywidgets", "anywidget", "matplotlib"}
    code = f"import sys, pro_lib.explorer; sys.exit(str({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
