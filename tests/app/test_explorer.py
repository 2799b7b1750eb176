import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import commands
import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from pro_lib import ask, generation, importing, metrics, scoring
from pro_lib.app import explorer
from pro_lib.app.experiment import Experiment
from pro_lib.app.explorer.page_parts import FOLDER, MODULES
from pro_lib.app.explorer.widget import Explorer, show
from pro_lib.common import catalog
from pro_lib.common.files import RunError
from pro_lib.questions import question_sets
from pro_lib.runs.storage import Cost, RunInfo

NASTY = "</script><script>alert('$x$')</script> & <img src=x onerror=alert(1)> <!-- "
# Reversed writing, an isolate that is not closed, line ends, and a word wider than any page
NASTY += "\u202eturned\u2066 round\nnext line\u2028another\u0000" + "w" * 700
CAPITAL = "What is the capital of France?"


def many(*, n=40, seed=0, cluster_size=0):
    """Return a run of `n` questions with three answers each; every third question is right."""
    p = np.random.default_rng(seed).dirichlet(np.ones(4), size=n)[:, :3]
    rows = []
    for i, probabilities in enumerate(np.sort(p, axis=1)[:, ::-1]):
        texts = ("beta", "alpha", "gamma") if i % 3 else ("alpha", "beta", "gamma")
        answers = map(commands.answer, texts, probabilities)
        names = {"question_id": f"q{i:02}", "question": f"Letter number {i}?"}
        names["split"] = "test" if i % 4 else "validation"
        if cluster_size:
            names["relation"] = f"r{i // cluster_size}"
        rows.append(commands.record(i, *answers, references=["alpha"], **names))
    run = importing.import_answers(rows)
    questions = run.questions.assign(exposure=np.arange(n) % 2 * 8)
    info = RunInfo("letters", "toy", "diverse_beam", cost=Cost())
    return replace(run, questions=questions, info=info)


def nasty():
    """Return a run of three questions in which every text is hostile."""
    run = many(n=3)
    questions = run.questions.assign(question=NASTY, references=[[NASTY]] * 3, note=NASTY)
    return replace(run, answers=run.answers.assign(text=NASTY), questions=questions)


RUN = many()


def corrects(run):
    return [question["correct"] for question in explorer.run_data(run)["questions"]]


def test_the_data_of_a_run_has_its_questions_and_the_alphas_of_the_slider():
    data = explorer.run_data(RUN, alpha=0.123)
    assert {0.0, 0.001, 0.07, 0.123, 0.4, 1.0} <= set(data["alphas"])
    assert data["log_alphas"] == [None, *np.log(data["alphas"][1:])]
    first = {"id": "q00", "question": "Letter number 0?", "references": ["alpha"], "correct": True}
    judgement = {"rouge_l": 1.0, "threshold": 0.3, "reference": "alpha"}
    given = {"split": "validation", "exposure": 0, "judgement": judgement}
    used = {"reason": "", "likelier_cut": False}
    assert data["questions"][0] == first | given | used
    assert [row[1] for row in data["answers"][0]] == RUN.log_probs()[0].tolist()


def judgement_of(text, references, **columns):
    """Return why the only answer of a run is right or wrong."""
    answer = {"text": text, "log_prob": -0.1} | columns
    records = [{"question_id": "a", "references": references, "answers": [answer]}]
    return explorer.run_data(importing.import_answers(records))["questions"][0]["judgement"]


def test_the_data_says_what_decides_that_an_answer_is_right():
    decisive = {"rouge_l": 0.5, "threshold": 0.3, "reference": "Carl Anderson"}
    assert judgement_of("Carl Orff", ["David Anderson Brown", "Carl Anderson"]) == decisive
    assert judgement_of("Lyon", ["Paris"]) == {"rouge_l": 0.0, "threshold": 0.3}
    assert judgement_of("Lyon", ["Paris"], correct=True) == {"rule": "verdicts of the records"}


def test_the_rule_of_right_answers_decides_on_every_tab():
    texts = RUN.answers["text"].mask(RUN.answers["question_id"] == "q00", "alpha one")
    run = replace(RUN, answers=RUN.answers.assign(text=texts))
    for name, is_right in {"rouge_l": True, "exact_match": False}.items():
        rules = metrics.AnswerRules(correctness=name)
        assert explorer.run_data(run, rules=rules)["questions"][0]["correct"] == is_right
        assert explorer.comparison_data(run, rules=rules)["correct"][0] == is_right


def repeated():
    """Return a run with Paris 0.3 twice, Lyon 0.2, paris! 0.1, and Par 0.05, which was cut."""
    given = [("paris!", 0.1), ("Par", 0.05), *[("Paris", 0.3)] * 2, ("Lyon", 0.2)]
    answers = [commands.answer(text, p, finished=text != "Par") for text, p in given]
    return importing.import_answers([commands.record(0, *answers, references=["Paris"])])


def twice(run):
    """Return the run with the second answers given twice."""
    more = run.answers[run.answers["rank"] == 1]
    return replace(run, answers=pd.concat([run.answers, more], ignore_index=True))


def odd_probabilities():
    """Return a run of very small, equal and many probabilities, and of some above 1 in all."""
    rng = np.random.default_rng(0)
    lists = [rng.dirichlet(np.ones(n + 1))[:n] for n in rng.integers(1, 33, size=100)]
    lists += [rng.dirichlet(np.ones(2000))]  # K of 2,000 at α = 0
    lists += [[0.4, 0.1, 0.1], [1.0], [0.1] * 10, [0.6] * 3, [1e-300, 1e-301]]
    rows = []
    for number, values in enumerate(lists):
        answers = [commands.answer(f"a{place}", value) for place, value in enumerate(values)]
        first = max(answers, key=lambda each: each["log_prob"])["text"]
        rows.append(commands.record(number, *answers, references=[first if number % 3 else "none"]))
    rows[0]["answers"] = [{"text": "x", "log_prob": -800.0}]  # the probability e^-800 is 0
    return importing.import_answers(rows)


def test_repeated_answers_have_one_identity_and_cut_answers_come_last():
    (answers,) = explorer.run_data(repeated())["answers"]
    text, log_probs, identity, finished, correct = map(list, zip(*answers, strict=True))
    assert text == ["Paris", "Paris", "Lyon", "paris!", "Par"]
    assert np.exp(log_probs) == pytest.approx([0.3, 0.3, 0.2, 0.1, 0.05])
    assert identity == [identity[0], *sorted(set(identity))]
    assert (finished, correct) == ([True] * 4 + [False], [True, True, False, True, None])


def run_javascript(folder, function, argument):
    """Return the result of a JavaScript function, which uses the explorer as `page`."""
    node = shutil.which("node")
    if node is None:
        reason = "neither node nor playwright is installed"
        driver = pytest.importorskip("playwright._impl._driver", reason=reason)
        node = driver.compute_driver_executable()[0]
    (folder / "explorer.mjs").write_text(explorer.read_javascript())
    lines = [
        "import { readFileSync } from 'node:fs';",
        "import * as page from './explorer.mjs';",
        f"const result = ({function})(JSON.parse(readFileSync(0)));",
        "console.log(JSON.stringify(result));",
    ]
    (folder / "run.mjs").write_text("\n".join(lines))
    process = subprocess.run(
        [node, "run.mjs"], cwd=folder, input=json.dumps(argument), capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_page_ranks_as_scipy_does(tmp_path):
    rng = np.random.default_rng(1)
    lists = [rng.integers(0, 4 + i, size=200).astype(float).tolist() for i in range(20)]
    results = run_javascript(tmp_path, "(lists) => lists.map(page.percentRanks)", lists)
    for values, ranks in zip(lists, results, strict=True):
        assert ranks == pytest.approx(100 * rankdata(values) / len(values))


@pytest.mark.filterwarnings("ignore::pro_lib.scoring.PremiseWarning")
@pytest.mark.parametrize(
    ("whole", "distinct", "split"),
    [
        (twice(many(cluster_size=8)), True, "test"),
        (twice(many()), False, "test"),
        (odd_probabilities(), True, "all"),
    ],
    ids=("clusters", "repeats", "odd"),
)
def test_the_page_sweeps_alpha_as_pro_lib_does(whole, distinct, split, tmp_path):
    data = explorer.run_data(whole)
    code = """({ data, split, repeats }) => { const view = new page.RunView(data, split, repeats);
        const { auroc, mean_kept } = view.sweep;
        return [auroc.map((row, index) => [...row, ...mean_kept[index]]), view.uncertainty] }"""
    given = {"data": data, "split": split, "repeats": not distinct}
    sweep, uncertainty = run_javascript(tmp_path, code, given)
    run = whole if split == "all" else whole.select(split=split)
    log_probs, alphas = run.log_probs(distinct=distinct), np.array(data["alphas"])
    expected = scoring.pro(log_probs, alpha=alphas)
    assert np.transpose(uncertainty) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    clusters = run.questions.get("relation")
    aurocs = metrics.auroc_intervals(expected, np.array(corrects(run)), clusters=clusters)
    kept = scoring.adaptive_k(log_probs, alphas)
    each = np.arange(len(kept)) if clusters is None else clusters
    sums = pd.DataFrame(kept - kept.mean(axis=0)).groupby(np.asarray(each)).sum() / len(kept)
    errors = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum())
    low, high = metrics.normal(kept.mean(axis=0), errors)
    assert split == "all" or low.min() < 1
    assert np.array(sweep) == pytest.approx(
        np.column_stack([*aurocs, kept.mean(axis=0), np.maximum(low, 1), high]), rel=1e-9
    )


@pytest.mark.filterwarnings("ignore::pro_lib.scoring.PremiseWarning")
@pytest.mark.parametrize(("cluster_size", "split"), [(8, "test"), (0, "all")])
def test_the_page_compares_methods_as_pro_lib_does(cluster_size, split, tmp_path):
    whole = many(n=80, cluster_size=cluster_size)
    data, comparison = page_data(explorer.to_html(whole, tmp_path / "run.html", alpha=0.3))
    run = whole if split == "all" else whole.select(split=split)
    ids = list(run.questions["question_id"])
    scores = pd.DataFrame(comparison["scores"], comparison["ids"]).loc[ids]
    scores.insert(0, "PRO", scoring.pro(run.log_probs(), alpha=0.3))
    given = comparison["splits"][split]
    place = data["alphas"].index(0.3)
    pairs, texts = [], []
    for reference in ("NLL", "SE, lexical", "PRO"):
        expected = metrics.compare_aurocs(
            scores, corrects(run), reference=reference, clusters=run.questions.get("relation")
        ).set_index("method")
        for method, row in expected.iterrows():
            index = place if method == "PRO" else 0
            shown = given["aurocs"][method][index]
            assert shown == pytest.approx(row[["auroc", "low", "high"]].tolist(), abs=1e-9)
            if method == reference:
                continue
            columns = ["difference", "difference_low", "difference_high"]
            numbers = [f"{row[name]:+z.3f}".replace("+0.000", "0.000") for name in columns]
            words = "{} (95\u00a0%: {} to {})".format(*numbers).replace("-", "−")
            pairs.append([method, reference])
            texts.append(f"; {method} minus {reference} {words}")
    few = explorer.comparison_data(many(n=12))["splits"]["all"]
    code = """([split, pairs, place, few]) =>
        [...pairs.map((names) => page.describePairedDifference(split, names, place)),
        page.describePairedDifference(few, ["PRO", "NLL"], 0)]"""
    *shown, last = run_javascript(tmp_path, code, [given, pairs, place, few])
    assert shown == texts
    assert last.endswith(", without an interval: fewer than 5 right answers")


@pytest.fixture(scope="module")
def searched(facts_2m):
    """The exact searches of twelve questions, a run each."""
    questions = question_sets.load_questions("world-facts", split="test", limit=12, seed=2)
    run = generation.generate(
        facts_2m, questions, strategy="threshold", search_alpha=0.05, progress=False
    )
    return [run.select(question_ids=[name]) for name in run.questions["question_id"]]


def test_the_certificate_of_each_question_is_shown_and_no_smaller_alpha(searched):
    for run in searched:
        data = explorer.run_data(run)
        assert min(data["alphas"]) == 0.05
        shown = data["questions"][0]["certificate"]
        stored = run.questions.iloc[0]
        assert all(shown[name] == stored[name] for name in ("status", "tree_bound"))
        masses = [mass for name, mass in shown.items() if name.endswith("_mass")]
        assert sum(masses) == pytest.approx(1, abs=1e-5)


def test_a_search_tree_of_any_size_has_the_answers_of_the_run_and_their_prefixes(
    searched, facts_2m
):
    for run, n_nodes in itertools.product(searched, (1, 3, 1000)):
        tree = explorer.prefix_tree(run, facts_2m.decode, n_nodes=n_nodes)
        leaves = tree[tree["kind"] != "prefix"]
        assert leaves["probability"].sum() == pytest.approx(1, abs=1e-5)
        assert set(tree["parent"]) <= {-1, *tree["node"]}
        of_parent = tree["parent"].map(tree["probability"]).fillna(1)
        assert (tree["probability"] <= of_parent + 1e-6).all()
        if n_nodes < 1000:
            continue
        likely = tree[(tree["kind"] == "answer") & (tree["probability"] >= 0.05 - 1e-9)]
        found_mass = run.questions["found_mass"][0]
        assert likely["probability"].sum() == pytest.approx(found_mass, abs=1e-6)
        assert set(likely["text"]) <= {answer[0] for answer in explorer.run_data(run)["answers"][0]}
        for answer in likely.itertuples():
            added = ""
            node = answer.parent
            while node >= 0:
                added = tree["text"][node] + added
                node = tree["parent"][node]
            assert added == answer.text


def test_a_run_without_a_search_has_no_search_tree(facts_2m):
    with pytest.raises(RunError, match="has no search tree"):
        explorer.prefix_tree(repeated(), facts_2m.decode)


def page_data(page):
    """Return the run and the comparison of methods that a page contains."""
    return json.loads(re.search(r'id="run">(.*)</script>', page.read_text())[1])


def test_no_text_of_the_data_ends_the_script_of_the_page(tmp_path):
    run = replace(nasty(), info=replace(nasty().info, model=NASTY))
    page = explorer.to_html(run, tmp_path / "run.html")
    text = page.read_text()
    assert text.count("<script") == text.count("</script") == 2
    assert not re.search(r"<img|https?://(?!www\.w3\.org/2000/svg)", text)
    data, comparison = page_data(page)
    assert data["answers"][0][0][0] == data["questions"][0]["note"] == NASTY
    assert comparison["texts"][0] == NASTY


def reply(app, **message):
    """Return the reply of the widget to a message of the page."""
    replies = []
    app.send = replies.append
    app._handle_custom_msg(message, [])
    assert "Traceback" not in replies[0]["status"]
    json.dumps(replies, allow_nan=False)
    return replies[0]


@pytest.fixture
def widget(tmp_path):
    """A function that makes the widget of a run in a folder without other runs."""
    return lambda run=RUN: Explorer(run, Experiment(generations_dir=tmp_path, device="cpu"))


def test_the_widget_offers_the_run_of_the_notebook_and_the_papers_examples(widget):
    app = widget()
    assert app.runs == ["letters/toy/diverse_beam (this notebook)", "the paper's appendix"]
    assert (app.data["label"], app.data["split"], app.alpha) == (app.runs[0], "test", 0.4)
    assert "without a model to ask" in app.data["cannot_ask"]
    assert reply(app, kind="run", name=app.runs[1]) == {"kind": "run", "status": ""}
    first = app.data["questions"][0]
    assert first["question"] == "sixth president of the United States"
    assert "The paper prints PRO = 0.404 at α = 0.1" in first["note"]
    question_ids = list(explorer.appendix_run().questions["question_id"])
    assert reply(app, kind="compare", distinct=True)["ids"] == question_ids


def test_a_widget_is_displayed_before_its_run_is_generated(tmp_path, monkeypatch):
    displayed = []

    def generate(_experiment, *_pair):
        assert [widget.data for widget in displayed] == [{}]
        return RUN

    monkeypatch.setattr("pro_lib.app.explorer.widget.display", displayed.append)
    monkeypatch.setattr(Experiment, "run_of_both_splits", generate)
    show(Experiment(generations_dir=tmp_path), alpha=0.05)
    assert (displayed[0].data["name"], displayed[0].alpha) == (RUN.name, 0.05)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_run_is_of_a_bundled_model_if_the_fingerprint_is_too(widget, is_ours):
    fingerprint = catalog.fingerprint(Path(catalog.locate("facts-2m"))) if is_ours else "another"
    about = {"parameters": {"shots": [], "fingerprint": fingerprint}, "model": "facts-2m"}
    info = replace(RUN.info, **about, provenance={"source": "/home/me/facts-2m"})
    app = widget(replace(RUN, info=info))
    assert app._model == ("facts-2m" if is_ours else "/home/me/facts-2m")
    assert app.data["scope"] == catalog.scope("facts-2m") * is_ours


def test_an_error_of_the_kernel_is_a_sentence_and_the_run_stays(widget, tmp_path):
    (folder := tmp_path / "world-facts" / "facts-9m" / "greedy").mkdir(parents=True)
    (folder / "run.json").write_text("{")
    app = widget()
    wrong = {
        "no such run": {"kind": "run", "name": "no such run"},
        "facts-9m": {"kind": "run", "name": "world-facts/facts-9m/greedy"},
        "without a model to ask": {"kind": "ask", "question": "Why?", "search_alpha": 0.1},
    }
    for words, message in wrong.items():
        answer = reply(app, **message)
        assert (answer["kind"], answer["of"]) == ("error", message["kind"])
        assert words in answer["status"]
        assert app.data["name"] == RUN.name


def test_the_widget_compares_methods_with_stored_samples(widget, monkeypatch):
    samples = replace(many(seed=1), info=replace(RUN.info, strategy="multinomial"))
    monkeypatch.setattr("pro_lib.runs.read_run", lambda folder, questions: samples)
    answer = reply(widget(), kind="compare", distinct=True)
    expected = explorer.comparison_data(RUN, samples)
    assert set(explorer.comparison_data(RUN)["scores"]) < set(expected["scores"])
    expected["ids"] = [f"q{number:02}" for number in range(40)]
    assert {name: answer[name] for name in expected} == expected
    assert answer["scores"]["NLL"] == pytest.approx(scoring.nll(RUN.log_probs()))
    assert answer["correct"] == corrects(RUN)


def test_the_widget_stores_labels_below_the_folder_of_runs_and_continues(widget, tmp_path):
    message = {"kind": "label", "n_given": 0, "correct": True}
    given, again = (reply(widget(), **message, action=action) for action in ("give", "open"))
    assert again == given | {"n_given": 1}
    [path] = tmp_path.glob("labels/*.jsonl")
    assert path.name == "letters-toy-diverse_beam-30-questions.labels.jsonl"


def test_the_widget_asks_the_model_with_the_prompt_of_the_run(facts_2m, widget):
    questions = question_sets.load_questions("world-facts", split="test", limit=2)
    run = generation.generate(
        facts_2m, questions, strategy="greedy", max_new_tokens=7, progress=False
    )
    answer = reply(widget(run), kind="ask", question=CAPITAL, search_alpha=0.02)
    assert (answer["kind"], answer["status"]) == ("answer", "")
    expected = ask(facts_2m, CAPITAL, questions=questions, search_alpha=0.02, max_new_tokens=7)
    texts, log_probs, *_ = zip(*answer["data"]["answers"][0], strict=True)
    expected_texts, probabilities = zip(*expected.answers, strict=True)
    assert texts == expected_texts
    assert np.exp(log_probs) == pytest.approx(probabilities)
    assert min(answer["data"]["alphas"]) == 0.02
    assert {row["kind"] for row in answer["tree"]} >= {"prefix", "answer"}


ODD = {
    "one question": many(n=1),
    "no question": RUN.select(question_ids=[]),
    "no references": replace(RUN, questions=RUN.questions.assign(references=None)),
    "no answer": replace(RUN, answers=RUN.answers.assign(finished=False)),
    "no text": replace(
        RUN, answers=RUN.answers.assign(text=None), questions=RUN.questions.assign(question=None)
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_runs_with_missing_parts_are_shown(name, widget, tmp_path):
    run = ODD[name]
    app = widget(run)
    assert len(app.data["questions"]) == len(app.data["answers"]) == len(run.questions)
    assert app.data["has_texts"] == (name not in ("no text", "no question"))
    if name == "no text":
        shown = app.data["questions"][0]["question"], app.data["answers"][0][0][0]
        assert shown == ("question q00", "answer 1")
    answer = reply(app, kind="compare", distinct=True)
    assert answer["kind"] == "comparison" or "no answer can be judged" in answer["status"]
    (_, comparison) = page_data(explorer.to_html(run, tmp_path / "run.html"))
    assert "scores" in comparison or "no answer can be judged" in comparison["why"]


def test_all_javascript_modules_can_be_joined_in_their_order():
    assert sorted(MODULES) == sorted(path.stem for path in FOLDER.glob("*.js"))
    for place, name in enumerate(MODULES):
        text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
        imported = re.findall(r'^(?:import|\}) .*from "\./(\w+)\.js";$', text, re.MULTILINE)
        assert set(imported) <= set(MODULES[:place]), name
