import base64
import copy
import io
import json
import subprocess
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pro_lib import ask, bundled, evaluation, explorer, figures, generate, metrics, scores, tables
from pro_lib import questions as question_sets
from pro_lib import settings as notebook_settings
from pro_lib.runs import Run
from pro_lib.storage import Cost, RunError, RunInfo

NASTY = "<script>alert('$x$')</script> & <img src=x onerror=alert(1)>"


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


def test_asking_the_bundled_model(facts_2m):
    questions = question_sets.load("world-facts", split="validation", limit=1)
    options = {"alpha": 0.4, "questions": questions, "strategy": "diverse_beam"}
    answer = ask(facts_2m, "What is the capital of France?", **options)
    assert answer.text == answer.answers[0].text
    probabilities = np.array([p for _, p in answer.answers])
    assert (np.diff(probabilities) <= 0).all()
    assert probabilities.sum() <= 1 + 1e-6
    assert answer.uncertainty == pytest.approx(scores.pro(np.log(probabilities)[None], alpha=0.4)[0])
    assert answer.kept == max(1, (probabilities >= 0.4).sum())
    assert (answer.status, answer.entropy_bounds) == (None, None)


@pytest.mark.parametrize("question", ["", "  \n", None])
def test_an_empty_question_is_refused(facts_2m, question):
    with pytest.raises(ValueError, match="question is empty"):
        ask(facts_2m, question)


def test_alpha_out_of_range_is_refused(facts_2m):
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        ask(facts_2m, "What is the capital of France?", alpha=1.5)


def test_answers_that_do_not_end_are_refused_in_a_sentence(facts_2m):
    with pytest.raises(ValueError, match="no answer of facts-2m ended within 1 tokens"):
        ask(facts_2m, "What is the capital of France?", max_new_tokens=1)


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


def test_a_view_holds_pro_at_every_alpha_of_the_slider():
    run = many()
    shown = explorer.view(run, alpha=0.123)
    assert {0.0, 0.001, 0.07, 0.123, 0.4, 1.0} <= set(shown.alphas.tolist())
    for alpha in (0.0, 0.123, 0.4):
        expected = scores.pro(run.log_probs(), alpha=alpha)
        np.testing.assert_array_equal(shown.uncertainty[:, shown.column(alpha)], expected)
        row = shown.sweep.iloc[shown.column(alpha)]
        assert row["auroc"] == pytest.approx(metrics.auroc(expected, shown.questions["correct"].to_numpy(bool)))
        assert row["mean_kept"] == scores.adaptive_k(run.log_probs(), alpha).mean()
    assert list(shown.questions["correct"][:4]) == [True, False, False, True]


def test_a_view_of_answers_that_are_all_right_has_no_auroc_and_everything_else():
    run = many().select(question_ids=["q00", "q03", "q06"])
    shown = explorer.view(run)
    assert shown.sweep["auroc"].isna().all()
    assert shown.sweep["mean_kept"].notna().all()
    written = explorer.summary_html(shown, alpha=0.4)
    assert "AUROC not defined: all 3 judged answers are right" in written
    assert "100% right" in written


def test_mean_k_is_of_the_questions_with_an_answer_and_accuracy_of_those_judged():
    run = many(n=4)
    run = replace(
        run,
        answers=run.answers[run.answers["question_id"] != "q00"],
        questions=run.questions.assign(references=[["alpha"], None, ["alpha"], ["alpha"]]),
    )
    shown = explorer.view(run, alpha=0)
    assert shown.sweep["mean_kept"].iloc[0] == 3
    assert explorer.summary_html(shown, alpha=0).endswith("n = 4, 50% right of the 2 that can be judged")
    nothing = explorer.view(run.select(question_ids=["q00"]))
    assert explorer.summary_html(nothing, alpha=0.4) == (
        "<b>AUROC not defined: no answer can be judged</b> · no answer ended · letters/toy/diverse_beam, n = 1"
    )


def test_a_view_of_a_search_does_not_offer_what_was_not_searched(facts_2m):
    shown = explorer.view(searched(facts_2m, 3))
    assert shown.alphas.min() == 0.05


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(40)),
        ({"right": True}, range(0, 40, 3)),
        ({"right": False, "exposure": 8}, [i for i in range(40) if i % 3 and i % 2]),
        ({"text": "NUMBER 7?"}, [7]),
        ({"text": " gamma "}, range(40)),
        ({"text": "delta"}, []),
    ],
)
def test_questions_are_filtered(options, expected):
    assert list(explorer.filtered(explorer.view(many()), **options)) == list(expected)


def test_questions_are_filtered_and_ordered_by_the_score_at_alpha():
    shown = explorer.view(many())
    score = shown.uncertainty[:, shown.column(0.2)]
    rows = explorer.filtered(shown, alpha=0.2, between=(0.5, 1.5), order="most uncertain first")
    assert set(rows) == set(np.flatnonzero((score >= 0.5) & (score <= 1.5)))
    assert (np.diff(score[rows]) <= 0).all()
    backwards = explorer.filtered(shown, alpha=0.2, order="least uncertain first")
    assert (np.diff(score[backwards]) >= 0).all()


def test_a_question_shows_repeats_spellings_and_what_was_cut():
    run = toy_run().select(question_ids=["a"])
    extra = run.answers.iloc[[2, 2]].assign(
        text=["paris!", "Par"], token_ids=[[7], [8]], log_prob=np.log([0.1, 0.05]), finished=[True, False]
    )
    run = replace(run, answers=pd.concat([run.answers, extra], ignore_index=True))
    table = explorer.question_answers(run, alpha=0.25)
    assert list(table["text"]) == ["Paris", "Lyon", "paris!", "Par"]
    assert list(table["copies"]) == [2, 1, 1, 1]
    assert list(table["spellings"]) == [2, 1, 2, 1]
    assert list(table["together"])[:3] == pytest.approx([0.4, 0.2, 0.4])
    assert list(table["finished"]) == [True, True, True, False]
    assert list(explorer.question_answers(run, alpha=0.25, distinct=False)["text"])[:3] == ["Paris", "Paris", "Lyon"]
    written = explorer.answers_html(table, alpha=0.25)
    for text in ("found 2 times", "2 spellings, together 0.4", "still open where it was cut", "✓ right"):
        assert text in written
    assert written.count("pro-kept") == 1


def test_the_papers_examples_have_the_papers_pro_when_repeats_count():
    run = explorer.appendix_run()
    printed = bundled.paper("appendix_scores")
    adaptive = printed[printed["selection"] == "adaptive"].set_index("question")["pro"]
    with pytest.warns(scores.PremiseWarning):
        pro = scores.pro(run.log_probs(distinct=False), alpha=0.1)
    assert pro == pytest.approx(adaptive[run.questions["question"]].to_numpy(), abs=0.005)
    assert list(explorer.view(run).questions["correct"]) == [True, False, False]


def test_standing_counts_the_questions_that_are_less_uncertain():
    shown = explorer.view(many())
    score, right = shown.uncertainty[:, shown.column(0.4)], shown.questions["correct"].to_numpy(bool)
    row = int(np.argsort(score)[20])
    of_right, of_wrong = ((score[of] < score[row]).mean() for of in (right, ~right))
    expected = f"More uncertain than {of_right:.0%} of the 14 right ones and {of_wrong:.0%} of the 26 wrong ones."
    assert explorer.standing(shown, row, alpha=0.4) == expected


def test_a_question_does_not_stand_among_none():
    assert explorer.standing(explorer.view(many(n=1)), 0, alpha=0.4) == ""


def test_examples_are_right_and_wrong_ones_or_any_where_nothing_can_be_judged():
    run = many()
    ids = [list(tables.examples(run, seed=seed).questions["question_id"]) for seed in (0, 1)]
    assert list(explorer.view(tables.examples(run)).questions["correct"]) == [True] * 3 + [False] * 3
    assert ids[0] != ids[1]
    few = tables.examples(run.select(question_ids=["q00", "q01", "q02"]))
    assert sorted(few.questions["question_id"]) == ["q00", "q01", "q02"]
    unknown = replace(run, questions=run.questions.assign(references=None))
    assert len(set(tables.examples(unknown, n=2).questions["question_id"])) == 4


# ---- The prefix tree.


def searched(model, n, *, search_alpha=0.05):
    questions = question_sets.load("world-facts", split="test", limit=n)
    return generate.generate(model, questions, strategy="threshold", search_alpha=search_alpha, progress=False)


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
        whole = explorer.question_answers(one, alpha=0.4)
        assert set(likely["text"]) <= set(whole["text"])


def test_a_run_without_a_search_has_no_tree():
    with pytest.raises(RunError, match="holds no search tree"):
        explorer.prefix_tree(toy_run().select(question_ids=["a"]), spelled)


def test_an_upper_bound_is_shown_where_there_is_one(facts_2m):
    """A search over an endpoint has none."""
    run = searched(facts_2m, 1)
    table = explorer.question_answers(run, alpha=0.4)
    upper = f" ≤ H(Y) ≤ {run.questions['upper_bound'][0]:.1f} nats"
    assert upper in explorer.question_html(run, table, alpha=0.4)
    for missing in (None, np.nan):
        without = replace(run, questions=run.questions.assign(upper_bound=missing))
        written = explorer.question_html(without, table, alpha=0.4)
        assert " ≤ H(Y) nats" in written
        assert "nan" not in written


def test_a_search_that_found_no_answer_shows_what_it_is_sure_of(facts_2m):
    questions = question_sets.load("world-facts", split="test", limit=1)
    options = {"strategy": "threshold", "search_alpha": 0.05, "budget": 1, "progress": False}
    run = generate.generate(facts_2m, questions, **options)
    table = explorer.question_answers(run, alpha=0.4)
    assert not table["finished"].any()
    written = explorer.question_html(run, table, alpha=0.4)
    assert "No answer ended before it was cut." in written
    assert "Searched down to α = 0.05: <b>undecided</b>" in written


# ---- Compare.


def test_disagreements_put_the_largest_difference_of_ranks_first():
    answers = pd.DataFrame({"question_id": list("abcd"), "text": list("wxyz"), "correct": [True, False, True, False]})
    log_probs = np.log([[0.9], [0.5], [0.2], [0.1]])
    baselines = pd.DataFrame({"NLL": [4.0, 2.0, 2.0, 1.0]})
    exclusions = metrics.usable(baselines, answers["correct"])
    judged = evaluation.Evaluation("m", "d", "test", answers, log_probs, baselines, exclusions, ())
    questions = pd.DataFrame({"question_id": list("abcd"), "question": ["A?", "B?", "C?", "D?"]})
    table = explorer.disagreements(judged, questions, first="PRO", second="NLL", alpha=0.4)
    assert list(table["question"]) == ["A?", "D?", "B?", "C?"]
    assert list(table["difference"]) == [-75.0, 75.0, -12.5, 12.5]  # PRO ranks 25 … 100, NLL 100, 62.5, 62.5, 25
    assert list(table["first"]) == [25.0, 100.0, 50.0, 75.0]


# ---- Pictures and texts.


def test_nothing_that_a_model_or_a_file_says_becomes_markup():
    run = many(n=3)
    run = replace(
        run,
        answers=run.answers.assign(text=NASTY),
        questions=run.questions.assign(question=NASTY, references=[[NASTY]] * 3, note=NASTY),
        info=replace(run.info, model=NASTY),
    )
    shown, one = explorer.view(run), run.select(question_ids=["q00"])
    table = explorer.question_answers(one, alpha=0.4)
    judged = evaluation.evaluate(run)
    compared = explorer.disagreements(judged, run.questions, first="PRO", second="NLL", alpha=0.4)
    for text in (
        explorer.question_html(one, table, alpha=0.4, standing=explorer.standing(shown, 0, alpha=0.4)),
        explorer.answers_html(table, alpha=0.4),
        explorer.summary_html(shown, alpha=0.4),
        explorer.disagreements_html(compared, names=(NASTY, "NLL")),
        explorer.error_html(ValueError(NASTY)),
        explorer.progress_html(NASTY),
        explorer.picture_html(figures.disagreement(compared, names=(NASTY, "NLL")), alt=NASTY),
    ):
        assert "<script" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text


def pixels(written):
    data = written.partition("base64,")[2].partition('"')[0]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("L"))


def test_panels_are_drawn_for_the_least_there_can_be():
    """One question, one answer, no AUROC: a picture all the same, and no figure stays open."""
    run = many().select(question_ids=["q00"])
    shown = explorer.view(run)
    answers = explorer.question_answers(run, alpha=0.4).head(1)
    places = pd.DataFrame({"uncertainty": [0.3], "correct": [None], "shown": [True]})
    figure = figures.looked_at(answers, places, shown.sweep, alpha=0.4, bounds={"α-floor": 1.0, "tree bound": 2.0})
    assert len(figure.axes) == 4
    assert [text.get_text() for text in figure.axes[0].texts] == ["α-floor 1.00", "tree bound 2.00"]
    assert figure.axes[2].texts[0].get_text().startswith("needs right and")
    assert pixels(explorer.picture_html(figure, alt="")).std() > 10
    assert plt.get_fignums() == []


def test_the_tree_is_drawn_with_its_answers_and_its_cuts():
    table = explorer.prefix_tree(small_tree(), spelled)
    figure = figures.prefix_tree(table.assign(text=table["text"].replace("abc", "$a_b")), alpha=0.4)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert {"ab 0.500", "$a_b 0.150", "d 0.200", "dd 0.050", "cut 0.150", "cut 0.100"} <= set(texts)
    assert "cut 0.000" not in texts
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"]
    assert bold == ["ab 0.500"]  # the only answer with p ≥ α
    assert pixels(explorer.picture_html(figure, alt="")).std() > 5


# ---- The widgets, without a browser.


@pytest.fixture
def app(tmp_path):
    return explorer.Explorer(many(), notebook_settings.Settings(generations_dir=tmp_path))


def test_the_slider_moves_text_picture_and_summary_at_once(app):
    panels = (app.question, app.picture, app.summary)
    before = [panel.value for panel in panels]
    app.alpha.value = 0.05
    assert all(panel.value != text for panel, text in zip(panels, before, strict=True))
    assert "line: α = 0.05" in app.question.value
    assert app.status.value == ""


def test_filters_and_buttons_choose_questions(app):
    assert app.splits.value == "test"  # as the notebook's parameter says
    app.splits.value = "all"
    assert app.listed.value == "40 of 40 questions"
    app.right.value = "right"
    assert app.listed.value == "14 of 40 questions"
    assert "Letter number 0?" in app.question.value
    app.next.click()
    assert "Letter number 3?" in app.question.value
    app.previous.click()
    app.previous.click()  # at the first one already
    assert "Letter number 0?" in app.question.value
    app.exposure.value = 8
    app.order.value = "least uncertain first"
    score = app.view.uncertainty[:, app.view.column(0.4)]
    assert (np.diff(score[[row for _, row in app.list.options]]) >= 0).all()
    app.find.value = "no such thing"
    assert app.question.value == "<p>No question passes the filters.</p>"
    assert app.picture.value == ""
    app.next.click()
    assert app.status.value == ""


def test_an_error_is_a_sentence(app):
    app.tabs.selected_index = 1
    app.ask_button.click()
    assert "letters/toy/diverse_beam comes without a model to ask" in app.status.value
    app.ask_text.value = "Why?"
    app.ask_text._handle_custom_msg({"event": "submit"}, [])
    assert "Traceback" not in app.status.value
    assert 'role="alert"' in app.status.value
    app.alpha.value = 0.3
    assert app.status.value == ""


def test_a_damaged_run_is_a_sentence(tmp_path):
    folder = tmp_path / "world-facts" / "facts-9m" / "greedy"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{")
    app = explorer.Explorer(many(), notebook_settings.Settings(generations_dir=tmp_path))
    app.runs.value = "world-facts/facts-9m/greedy"
    assert 'role="alert"' in app.status.value
    assert "facts-9m" in app.status.value


def test_the_papers_examples_are_one_click_away(app):
    app.right.value = "wrong"
    app.paper.click()
    assert "sixth president of the United States" in app.question.value
    assert "The paper prints PRO = 0.404 at α = 0.1" in app.question.value
    app.repeats.value = True
    app.alpha.value = 0.1
    assert "PRO = 0.404 nats" in app.question.value
    assert "mass exceeds 1" in app.question.value


def test_methods_are_compared_and_a_question_is_opened(app):
    app.tabs.selected_index = 2
    assert {"PRO", "NLL", "SE, lexical"} <= set(app.first.options)
    app.first.value = app.second.value = "NLL"
    assert app.status.value == ""
    assert app.disagreed.value.count("NLL 0.") == 2
    app.second.value = "PRO"
    picture = app.scatter.value
    app.alpha.value = 0.05
    assert app.scatter.value != picture
    text, question_id = app.open.options[1]
    app.open.value = question_id
    assert app.tabs.selected_index == 0
    assert text.partition(". ")[2] in app.question.value


def test_the_model_of_a_run_is_asked_as_the_run_was(facts_2m, tmp_path):
    run = searched(facts_2m, 3)
    app = explorer.Explorer(
        run, notebook_settings.Settings(generations_dir=tmp_path, strategy="threshold", device="cpu")
    )
    assert "Searched down to α = 0.05" in app.question.value
    app.tabs.selected_index = 1
    app.ask_text.value = "What is the capital of France?"
    app.ask_button.click()
    assert app.status.value == ""
    answer = ask(
        facts_2m, "What is the capital of France?", questions=question_sets.load("world-facts", split="test", limit=3)
    )
    assert f"PRO = {answer.uncertainty:.3f} nats" in app.answer.value
    assert "<img" in app.tree.value
    app.alpha.value = 0.05
    tree = app.tree.value
    app.ask_alpha.value = 0.1
    app.ask_button.click()
    assert "alpha=0.05 is below search_alpha=0.1" in app.status.value
    assert app.tree.value == tree


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}<assistant>"


def test_a_run_made_with_the_chat_template_is_asked_with_it(facts_2m, tmp_path, monkeypatch):
    tokenizer = copy.deepcopy(facts_2m.tokenizer)
    tokenizer.chat_template = CHAT
    model, question = replace(facts_2m, tokenizer=tokenizer), "What is the capital of France?"
    questions = question_sets.load("world-facts", split="test", limit=2)
    options = {"strategy": "greedy", "max_new_tokens": 7, "chat": True, "progress": False}
    run = generate.generate(model, questions, **options)
    monkeypatch.setattr(notebook_settings.Settings, "loaded", lambda *_: model)
    app = explorer.Explorer(run, notebook_settings.Settings(generations_dir=tmp_path, device="cpu"))
    app.tabs.selected_index = 1
    app.ask_text.value = question
    app.ask_button.click()
    assert app.status.value == ""
    plain, chatting = (
        ask(model, question, questions=questions, max_new_tokens=7, alpha=0.4, chat=chat) for chat in (False, True)
    )
    assert chatting.uncertainty != pytest.approx(plain.uncertainty, abs=1e-3)
    assert f"PRO = {chatting.uncertainty:.3f} nats" in app.answer.value


def test_another_run_clears_what_was_asked_and_compared(app, facts_2m):
    app._runs["asked"] = searched(facts_2m, 3)
    unjudged = many()
    app._runs["unjudged"] = replace(unjudged, questions=unjudged.questions.assign(references=None))
    app.runs.options = list(app._runs)
    app.runs.value = "asked"
    app.tabs.selected_index = 1
    app.ask_text.value = "What is the capital of France?"
    app.ask_button.click()
    assert "<img" in app.tree.value
    app.tabs.selected_index = 2
    assert "<img" in app.scatter.value
    app.runs.value = "unjudged"
    assert "no answer can be judged" in app.status.value
    assert (app.scatter.value, app.disagreed.value, app.open.options) == ("", "", ())
    app.tabs.selected_index = 1
    assert "comes without a model to ask" in app.answer.value
    assert (app.tree.value, app.status.value) == ("", "")


def test_the_next_disagreement_is_an_arrow_key_away_from_the_last(app):
    app.tabs.selected_index = 2
    app.open.value = app.open.options[1][1]
    assert app.tabs.selected_index == 0
    app.tabs.selected_index = 2
    assert app.open.index == 1


@pytest.mark.parametrize("question", ["asdf $$ <b>", "🦆", "?", "word " * 3000])
def test_whatever_is_typed_gets_an_answer_or_a_sentence(question, facts_2m, tmp_path):
    app = explorer.Explorer(searched(facts_2m, 2), notebook_settings.Settings(generations_dir=tmp_path, device="cpu"))
    app.tabs.selected_index = 1
    app.ask_text.value = question
    app.ask_button.click()
    assert ("PRO = " in app.answer.value) != ('role="alert"' in app.status.value)
    assert "<b>asdf" not in app.answer.value


@pytest.mark.parametrize(
    "run",
    [
        many(n=1),
        many(n=2).select(question_ids=["q00"]),
        many(n=3).select(question_ids=[]),
        replace(many(), questions=many().questions.assign(references=None)),
        replace(many(), answers=many().answers.assign(finished=False)),
        replace(many(), answers=many().answers.assign(text=None)),
    ],
    ids=["one question", "one class", "no question", "no references", "no answer", "no text"],
)
def test_runs_of_which_little_is_known_get_sentences(run, tmp_path):
    app = explorer.Explorer(run, notebook_settings.Settings(generations_dir=tmp_path))
    assert app.status.value == ""
    app.find.value = "no such thing"
    assert app.question.value == "<p>No question passes the filters.</p>"
    for widget, value in (
        (app.alpha, 0.05),
        (app.repeats, True),
        (app.right, "wrong"),
        (app.order, explorer.ORDERS[1]),
    ):
        widget.value = value
        assert app.status.value == ""
    app.tabs.selected_index = 1
    assert "comes without a model to ask" in app.answer.value
    app.tabs.selected_index = 2
    assert app.scatter.value or "no answer can be judged" in app.status.value
    shown = tables.examples(run)
    assert len(tables.explained(shown, alpha=0.4)) <= 6 * 3


def test_importing_it_loads_neither_torch_nor_widgets_nor_matplotlib():
    code = "import sys, pro_lib.explorer; sys.exit(str({'torch', 'ipywidgets', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"


def test_records_without_texts_can_be_looked_at(tmp_path):
    """Log-probabilities alone, right or wrong from outside, one question not judged and one without an answer."""
    path = tmp_path / "mine.jsonl"
    lines = [
        {"question_id": i, "answers": [{"log_prob": -0.1 - i, "correct": i < 2}, {"log_prob": -3}]} for i in range(4)
    ]
    lines += [{"question_id": 4, "answers": [{"log_prob": -0.5}]}, {"question_id": 5, "answers": []}]
    path.write_text("\n".join(map(json.dumps, lines)))
    settings = notebook_settings.Settings(records=str(path), generations_dir=tmp_path)
    app = explorer.Explorer(settings.run("records", "mine"), settings)
    assert app.status.value == ""
    assert "AUROC 1.000" in app.summary.value
    assert "question 0" in app.question.value
    assert "answer 1" in app.question.value
    app.list.value = 5
    assert "No answer ended" in app.question.value
    assert "<img" in app.picture.value
    app.right.value = "right"
    assert app.listed.value == "2 of 6 questions"
    app.tabs.selected_index = 2
    assert app.status.value == ""
    assert "<img" in app.scatter.value
