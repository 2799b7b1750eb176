import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pro_lib import bundled, evaluation, imports, metrics, scores, semantic, sweeps
from pro_lib.evaluation import Choices, evaluate, split_records
from pro_lib.runs import Run
from pro_lib.settings import Settings
from pro_lib.storage import RunError, RunInfo


def toy_run(answers, *, strategy="diverse_beam", references=None, split="test"):
    """A run from `{question: [(text, probability), ...]}`; its answers end with certainty."""
    rows = [
        (question, rank, text, [sum(text.encode())], [np.log(p)], np.log(p), 0.0, True)
        for question, found in answers.items()
        for rank, (text, p) in enumerate(found)
    ]
    names = ["question_id", "rank", "text", "token_ids", "token_log_probs", "log_prob", "end_log_prob", "finished"]
    questions = pd.DataFrame({"question_id": list(answers), "question": "?", "split": split})
    questions["references"] = [references[q] for q in answers] if references else [["yes"]] * len(answers)
    return Run(pd.DataFrame(rows, columns=names), questions, RunInfo("toy", "none", strategy))


BEAMS = toy_run({"a": [("yes", 0.5), ("no", 0.3)], "b": [("no", 0.4), ("yes", 0.2)], "c": [("no", 0.2)]})
SAMPLES = toy_run({"a": [("no", 0.3)], "b": [("no", 0.4)], "c": [("yes", 0.6), ("no", 0.2)]}, strategy="multinomial")


def test_the_judged_answer_is_the_most_probable_one_that_any_run_found():
    judged = evaluate(BEAMS, samples=SAMPLES)
    assert list(judged.answers["text"]) == ["yes", "no", "yes"]
    assert list(judged.correct) == [True, False, True]
    assert list(evaluate(BEAMS, samples=SAMPLES).by("diverse_beam").correct) == [True, False, False]
    assert list(evaluate(BEAMS, samples=SAMPLES).by("multinomial").correct) == [False, False, True]
    better = toy_run({"a": [("no", 0.9)], "b": [("no", 0.1)], "c": [("no", 0.1)]}, strategy="greedy")
    assert list(evaluate(BEAMS, samples=SAMPLES, others=[better]).answers["text"]) == ["no", "no", "yes"]


def test_every_method_reads_its_own_run():
    table = evaluate(BEAMS, samples=SAMPLES).uncertainties(alpha=0.25)
    assert list(table) == ["PRO", "NLL", "ALL", "PE", "PE-MC", "NE"]
    np.testing.assert_allclose(table["NLL"], -np.log([0.5, 0.4, 0.2]))
    np.testing.assert_allclose(table["PE"][0], -0.5 * np.log(0.5) - 0.3 * np.log(0.3))
    np.testing.assert_allclose(table["PE-MC"][2], -np.log([0.6, 0.2]).mean())
    np.testing.assert_allclose(table["PRO"], scores.pro(BEAMS.log_probs(), alpha=0.25))


def test_a_question_without_a_value_is_left_out_for_all_and_counted():
    empty = toy_run({"a": [("yes", 0.5)], "b": [], "c": [("no", 0.2)]})
    judged = evaluate(empty, samples=SAMPLES)
    assert list(judged.answers["question_id"]) == ["a", "c"]
    assert len(judged.log_probs) == len(judged.baselines) == 2
    assert "1 of 3 questions are left out (b)" in judged.sentence()


def test_a_method_that_no_question_has_is_named_not_judged(tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = [{"question_id": i, "answers": [{"log_prob": -0.1 * i - 0.1, "correct": i < 2}]} for i in range(4)]
    path.write_text("\n".join(map(json.dumps, lines)))
    run = imports.from_records(path)
    judged = evaluate(run, samples=run)
    assert judged.unavailable == ("ALL", "NE")
    assert "Not available: ALL, NE" in judged.sentence()
    assert list(judged.correct) == [True, True, False, False]


def test_a_run_that_cannot_be_judged_is_refused(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question_id": 1, "answers": [{"log_prob": -1.0}]}')
    with pytest.raises(RunError, match="no answer can be judged without references and texts, rouge_l or correct"):
        evaluate(imports.from_records(path))


def test_labels_from_outside_take_precedence_over_rouge():
    answers = pd.DataFrame({"text": ["yes", "no"], "correct": [False, True]})
    questions = pd.DataFrame({"references": [["yes"], ["yes"]]})
    judged = evaluation.rouge_and_correct(answers, questions)
    assert list(judged["rouge_l"]) == [1.0, 0.0]
    assert list(judged["correct"]) == [False, True]


def many(n, split):
    return toy_run({f"q{i}": [("yes", 0.5)] for i in range(n)}, split=split)


def test_records_without_splits_are_split_by_the_seed():
    run = split_records(many(250, None), seed=0)
    assert run.questions["split"].value_counts().to_dict() == {"test": 150, "validation": 100}
    again, other = split_records(many(250, None), seed=0), split_records(many(250, None), seed=1)
    assert list(run.questions["split"]) == list(again.questions["split"]) != list(other.questions["split"])
    assert split_records(many(5, "test")).questions["split"].eq("test").all()
    with pytest.raises(RunError, match="has 150 questions, too few to draw 100 for validation"):
        split_records(many(150, None))


MEANINGS = ["SE", "SE-MC", "SD", "Deg", "WD", "gap"]


def test_methods_that_compare_meanings_read_beams_and_deg_the_samples():
    beams = toy_run({"a": [("yes", 0.5), ("Yes!", 0.2), ("no", 0.1)]})
    samples = toy_run({"a": [("yes", 0.5), ("no", 0.1)]}, strategy="multinomial")
    table = pd.DataFrame({"question_id": ["a"], "references": [["yes"]]})
    judged = evaluate(beams, samples=samples, judges={"alias": semantic.Alias(table)})
    row = judged.baselines.iloc[0]
    # Two meanings of 0.7 and 0.1: with Q = 7/8 and 1/8 the entropy is 3 log 2 - 7/8 log 7.
    assert row["SE, alias"] == pytest.approx(3 * np.log(2) - 7 / 8 * np.log(7))
    assert row["SE-MC, alias"] == pytest.approx(-(np.log(0.7) + np.log(0.1)) / 2)
    assert row["SD, alias"] == pytest.approx(1 - 0.7 / 0.8)
    assert row["gap, alias"] == pytest.approx(1 - (0.7 - 0.1))
    assert row["WD, alias"] == pytest.approx(0.1 / 0.8)
    assert row["Deg, alias"] == pytest.approx(0.5)
    assert list(judged.baselines.columns[-6:]) == [f"{name}, alias" for name in MEANINGS]


def test_methods_without_what_they_need_are_named_not_guessed():
    unknown = replace_texts(BEAMS, None)
    labels = pd.DataFrame({"question_id": ["a", "b", "c"], "text": [None] * 3, "correct": [True, False, True]})
    judged = evaluate(unknown, samples=SAMPLES, judges={"lexical": semantic.Lexical()}, choices=Choices(labels=labels))
    assert judged.unavailable == tuple(f"{name}, lexical" for name in MEANINGS)
    judged = evaluate(BEAMS, samples=SAMPLES, judges={"alias": None})
    assert judged.unavailable == tuple(f"{name}, alias" for name in MEANINGS)


def replace_texts(run, text):
    return Run(run.answers.assign(text=text), run.questions, run.info)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (Choices(), [True, True, True]),
        (Choices(references="last"), [True, False, True]),
        (Choices(correctness="exact_match"), [False, True, False]),
        (Choices(correctness="alias_match"), [True, True, False]),
    ],
)
def test_what_is_right_is_a_choice(choices, expected):
    answers = {"a": [("the great Leo", 0.5)], "b": [("Rome", 0.5)], "c": [("Leon Battista Alberti", 0.5)]}
    references = {"a": ["Leo"], "b": ["Rome", "Paris"], "c": ["Leon Alberti"]}
    assert list(evaluate(toy_run(answers, references=references), choices=choices).correct) == expected


def test_answers_without_their_ending_and_with_repeats_are_a_choice_too():
    run = toy_run({"a": [("yes", 0.5), ("yes", 0.5), ("no", 0.25)]})
    run = Run(run.answers.assign(end_log_prob=np.log(0.5)), run.questions, run.info)
    np.testing.assert_allclose(evaluate(run).log_probs, np.log([[0.25, 0.125]]))
    without = evaluate(run, choices=Choices(convention="answer_tokens", distinct=False))
    np.testing.assert_allclose(without.log_probs, np.log([[0.5, 0.5, 0.25]]))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_labels_are_read_from_a_file_and_an_answer_without_one_is_counted(tmp_path, suffix):
    table = pd.DataFrame({"question_id": ["a", "b"], "text": ["yes", "no"], "correct": [False, True]})
    path = tmp_path / f"labels.{suffix}"
    {
        "csv": lambda: table.to_csv(path, index=False),
        "jsonl": lambda: table.to_json(path, orient="records", lines=True),
        "parquet": lambda: table.to_parquet(path),
    }[suffix]()
    judged = evaluate(BEAMS, samples=SAMPLES, choices=Settings(correctness=str(path)).choices)
    assert list(judged.correct) == [False, True]
    assert "1 of 3 questions are left out (c): correct is missing for 1" in judged.sentence()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("question_id,text\na,yes\n", "has no column correct; labels need question_id, text, correct"),
        ("question_id,text,correct\na,yes,maybe\n", "row 1: correct is 'maybe', neither true nor false"),
        ("question_id,text,correct\na,yes,1\na,yes,0\n", "calls answer 'yes' both right and wrong"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_the_file(tmp_path, content, sentence):
    path = tmp_path / "labels.csv"
    path.write_text(content)
    with pytest.raises(RunError, match=f"labels.csv.*{sentence}"):
        evaluation.read_labels(path)
    with pytest.raises(RunError, match=r"labels\.txt is neither \.csv"):
        evaluation.read_labels(tmp_path / "labels.txt")


def test_a_setting_of_the_paper_is_found_under_our_names():
    ours = pd.DataFrame({"dataset": ["trivia_qa", "mine"], "model": ["gemma-2b", "gemma-2b"]})
    cells = bundled.paper("main_table", ours)
    assert set(zip(cells["dataset"], cells["model"], strict=True)) == {("trivia_qa", "gemma-2b")}
    assert cells.set_index("method")["auroc"]["PRO"] == 0.819
    assert len(bundled.paper("main_table")) == 120
    assert bundled.paper("main_table", pd.DataFrame({"dataset": ["world-facts"], "model": ["facts-2m"]})).empty


def test_the_alias_table_of_a_bundled_set_has_all_splits_and_records_without_references_have_none(tmp_path):
    judges = Settings(similarity=["lexical", "alias"]).judges("facts-2m", "world-facts")
    assert list(judges) == ["lexical", "alias"]
    assert set(judges["alias"].table["split"]) == {"train_shots", "validation", "test"}
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question_id": 1, "answers": [{"log_prob": -1.0, "text": "yes", "correct": true}]}')
    assert Settings(similarity="alias", records=str(path)).judges("records", "answers") == {"alias": None}


def test_an_nli_model_is_named_by_its_folder_and_keeps_its_pairs_beside_the_runs(tmp_path):
    (tmp_path / "my-nli").mkdir()
    settings = Settings(similarity=str(tmp_path / "my-nli"), generations_dir=tmp_path / "runs")
    measure = settings.judges("facts-2m", "world-facts")["my-nli"]
    assert measure.cache == tmp_path / "runs" / "world-facts" / "facts-2m"
    assert Settings(similarity="nli").judges("facts-2m", "world-facts")["nli"].model == "microsoft/deberta-large-mnli"


@pytest.fixture
def pair():
    """A validation and a reported split in which low probability goes with wrong answers, with exceptions."""
    rng = np.random.default_rng(0)

    def run(split, n):
        answers = {}
        for i in range(n):
            p = rng.uniform(0.1, 0.9)
            answers[f"{split}{i}"] = [("yes" if rng.random() < p else "no", p), ("maybe", (1 - p) / 2)]
        return toy_run(answers, split=split)

    return tuple(
        evaluate(r, samples=r, split=s) for s, r in (("validation", run("validation", 60)), ("test", run("test", 80)))
    )


def test_validation_questions_are_drawn_with_the_seed_and_keep_their_rows_together(pair):
    validation, _ = pair
    some = validation.drawn(20, seed=3)
    rows = [list(validation.answers["question_id"]).index(q) for q in some.answers["question_id"]]
    assert rows == sorted(rows)
    assert len(rows) == 20
    np.testing.assert_array_equal(some.log_probs, validation.log_probs[rows])
    np.testing.assert_array_equal(some.baselines["NLL"], validation.baselines["NLL"].iloc[rows])
    assert list(validation.drawn(20, seed=4).answers["question_id"]) != list(some.answers["question_id"])
    assert validation.drawn(1000) is validation
    assert "20 were drawn of them" in some.sentence()


def test_alpha_is_chosen_on_validation_and_the_oracle_on_the_reported_split(pair):
    table = sweeps.alpha_choices(*pair, default=0.4)
    reported = table[table["split"] == "test"].set_index("kind")
    chosen = table[table["split"] == "validation"].set_index("kind")
    assert reported.loc["oracle", "auroc"] >= reported.loc["selected", "auroc"]
    assert chosen.loc["selected", "auroc"] >= chosen.loc["default", "auroc"]
    assert list(chosen.index) == ["selected", "default"]
    assert reported.loc["default", "alpha"] == 0.4
    assert (table["low"] <= table["auroc"]).all()
    assert (table["auroc"] <= table["high"]).all()


def test_the_benchmark_has_a_row_per_method_and_differences_to_pro(pair):
    table = sweeps.benchmark(*pair, default=0.4).set_index("method")
    assert list(table.index) == ["PRO", "PRO, default", "PRO, oracle", "NLL", "ALL", "PE", "PE-MC", "NE"]
    assert table.loc["PRO", "difference"] == 0
    assert table.loc["NLL", "difference"] == pytest.approx(table.loc["NLL", "auroc"] - table.loc["PRO", "auroc"])
    assert (table["n_questions"] == 80).all()
    assert table.loc["PRO, default", "alpha"] == 0.4
    assert np.isnan(table.loc["NLL", "alpha"])


def test_every_method_is_tested_and_pros_other_rows_are_no_methods(pair):
    table = sweeps.benchmark(*pair, n_resamples=200).set_index("method")
    p_value = table["p_value"]
    others = [name for name in table.index if not name.startswith("PRO")]
    np.testing.assert_allclose(table.loc[others, "p_holm"], metrics.holm(p_value[others]))
    for name in ("PRO, default", "PRO, oracle"):
        assert table.loc[name, "p_holm"] == p_value[name]
    assert not table.loc["PRO", "significant"]
    judged = pair[1]
    assert table.loc["NLL", "auarc"] == pytest.approx(metrics.auarc(judged.baselines["NLL"], judged.correct))
    fit = metrics.calibration(pair[0].baselines["NLL"], pair[0].correct, judged.baselines["NLL"], judged.correct)
    assert table.loc["NLL", "ece"] == fit.ece


def test_judged_by_a_strategy_all_methods_get_its_labels(pair):
    table = sweeps.by_strategy(*pair).set_index(["judged", "method"])
    assert set(table.index.get_level_values("judged")) == {"most probable", "diverse_beam"}
    nll = metrics.auroc(pair[1].baselines["NLL"], pair[1].correct)
    assert table.loc[("most probable", "NLL"), "auroc"] == table.loc[("diverse_beam", "NLL"), "auroc"] == nll
    assert (table["n_questions"] == 80).all()


def test_redraws_report_on_the_reported_split(pair):
    validation, reported = pair
    table = sweeps.redraw_benchmark(validation, reported, n_questions=30, n_redraws=20)
    expected = [metrics.auroc(scores.pro(reported.log_probs, alpha=a), reported.correct) for a in table["alpha"]]
    np.testing.assert_allclose(table["auroc"], expected)
    nll = metrics.auroc(reported.baselines["NLL"], reported.correct)
    np.testing.assert_allclose(table["difference"], np.array(expected) - nll)


def test_answering_fewer_questions_and_the_reliability_of_the_fit(pair):
    validation, reported = pair
    curves = sweeps.accuracy_coverage(validation, reported, methods=["NLL"], n_points=11)
    assert set(curves["method"]) == {"NLL", "oracle"}
    last = curves[curves["coverage"] == 1]
    np.testing.assert_allclose(last["accuracy"], reported.correct.mean())
    oracle = curves[curves["method"] == "oracle"]
    assert (oracle["accuracy"].to_numpy() >= curves.loc[curves["method"] == "NLL", "accuracy"].to_numpy()).all()
    table = sweeps.reliability(validation, reported, methods=["PRO", "NLL"])
    assert (table.groupby("method")["n"].sum() == 80).all()
    assert ((table["accuracy_low"] <= table["accuracy"]) & (table["accuracy"] <= table["accuracy_high"])).all()


def test_one_name_or_several_are_always_a_list():
    assert Settings(model="facts-2m").models == ["facts-2m"]
    assert Settings(dataset=["world-facts", "world-facts-reworded"]).datasets == ["world-facts", "world-facts-reworded"]
    assert len(Settings(model=["facts-2m", "facts-1m"]).pairs()) == 2


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"model": []}, r"model=\[\] must be a name or a list of names"),
        ({"alpha": "0.4"}, r"alpha='0.4' must lie in \[0, 1\]"),
        ({"alpha": float("nan")}, r"alpha=nan must lie in \[0, 1\]"),
        ({"strategy": "beams"}, "strategy='beams' is unknown; choose greedy, multinomial, diverse_beam"),
        ({"n_answers": 2.5}, "n_answers=2.5 must be a positive whole number"),
        ({"columns": 3}, "columns=3 must be 1 or 2, the columns of a paper that a figure spans"),
        ({"batch_size": 0}, "batch_size=0 must be a positive whole number or None"),
        ({"split": "validation", "reported": True}, "split='validation' is where alpha is chosen"),
        (
            {"similarity": "nil"},
            "similarity='nil' is neither lexical, alias, nli, embedding, nor an NLI model's folder",
        ),
        ({"correctness": "rouge"}, "correctness='rouge' is neither rouge_l, exact_match, alias_match, nor a file"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(**parameters)


def test_results_go_to_the_repository_wherever_a_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings, root = Settings(), Path(__file__).resolve().parents[1]
    assert (settings.generations_dir, settings.figures_dir) == (root / "data" / "generations", root / "figures")
    table = pd.DataFrame({"alpha": [0.4, 1 / 3], "model": ["a", "b"]})
    assert Settings(figures_dir="mine/figures").store(table, "chosen") is table
    assert (tmp_path / "mine" / "figures" / "chosen.csv").read_text() == "alpha,model\n0.4,a\n0.333333,b\n"


def test_a_stored_run_is_read_without_the_model_and_made_with_it(tmp_path, monkeypatch):
    settings = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, device="cpu")
    made = settings.run("facts-1m", "world-facts")
    monkeypatch.setattr(Settings, "_generated", lambda *_: pytest.fail("generated again"))
    read = settings.run("facts-1m", "world-facts")
    assert list(read.answers["text"]) == list(made.answers["text"])
    fewer = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, seed=0)
    assert len(fewer.run("facts-1m", "world-facts").questions) == 6
    # Who does not say how weights are to be quantised takes what is there; who does, gets that.
    quantised = Settings(model="facts-1m", limit=6, n_answers=3, generations_dir=tmp_path, quantization="8bit")
    assert quantised._stored("facts-1m", quantised.questions("world-facts"), "diverse_beam") is None


def test_another_number_of_answers_is_refused_by_name(tmp_path):
    options = {"model": "facts-1m", "limit": 3, "generations_dir": tmp_path, "device": "cpu"}
    Settings(n_answers=2, **options).run("facts-1m", "world-facts")
    with pytest.raises(RunError, match="was made with n_answers=2, now n_answers=3 is asked for"):
        Settings(n_answers=3, **options).run("facts-1m", "world-facts")


def test_a_question_file_beside_records_says_what_was_asked(tmp_path):
    questions = tmp_path / "mine.jsonl"
    questions.write_text("".join(json.dumps({"question": f"{n}?", "references": ["yes"]}) + "\n" for n in range(4)))
    choice = {"message": {"content": "yes"}, "finish_reason": "stop"}
    choice["logprobs"] = {"content": [{"token": "yes", "logprob": -0.5}]}
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps({"choices": [choice]}) + "\n" for _ in range(4)))
    run = Settings(records=str(path), dataset=str(questions)).run("records", "responses")
    assert list(run.questions["references"]) == [["yes"]] * 4
    assert Settings(records=str(path)).run("records", "responses").questions["references"].isna().all()


def test_the_papers_models_are_asked_for_by_name_and_kept_under_the_name_of_their_id(tmp_path):
    settings = Settings(model="Gemma-2B", similarity="nli", generations_dir=tmp_path)
    assert settings.judges("Gemma-2B", "world-facts")["nli"].cache == tmp_path / "world-facts" / "gemma-2b"


def test_a_set_of_the_hub_and_a_folder_are_datasets_too(tmp_path):
    assert Settings(dataset=["sciq", "nq", "trivia_qa"]).datasets == ["sciq", "nq", "trivia_qa"]
    (tmp_path / "test.txt").write_text("\n".join(f"Question {n}?\nanswer {n}\n" for n in range(8)))
    settings = Settings(dataset=str(tmp_path), n_validation=3, fraction=0.5, n_shots=1)
    asked = settings.questions(str(tmp_path), "validation", "test")
    assert asked.table["split"].value_counts().to_dict() == {"validation": 2, "test": 2}
    assert len(asked.shots) == 1


def test_the_estimate_says_what_a_run_would_take_or_that_it_is_there(tmp_path):
    settings = Settings(model="facts-1m", limit=4, n_answers=2, generations_dir=tmp_path, device="cpu")
    said = settings.estimate("facts-1m", "world-facts")
    assert said.startswith("world-facts, facts-1m, diverse_beam: 4 questions: ")
    assert said.endswith("for weights and cache (estimated from two questions).")
    settings.run("facts-1m", "world-facts")
    assert settings.estimate("facts-1m", "world-facts") == "world-facts, facts-1m, diverse_beam: already there."


def test_a_stored_run_in_a_chat_template_is_not_one_without(tmp_path):
    settings = Settings(model="facts-1m", limit=2, n_answers=2, generations_dir=tmp_path, device="cpu")
    settings.run("facts-1m", "world-facts")
    assert settings._stored("facts-1m", settings.questions("world-facts"), "diverse_beam") is not None
    chatting = Settings(chat=True, model="facts-1m", limit=2, n_answers=2, generations_dir=tmp_path)
    assert chatting._stored("facts-1m", chatting.questions("world-facts"), "diverse_beam") is None


def all_wrong(judged):
    return replace(judged, answers=judged.answers.assign(correct=False))


def test_where_validation_has_one_class_the_default_is_taken_and_said(pair):
    validation, reported = all_wrong(pair[0]), pair[1]
    with pytest.warns(
        sweeps.OneClassWarning, match="toy, none, validation: all 60 judged answers are wrong: alpha cannot"
    ):
        table = sweeps.benchmark(validation, reported, n_resamples=50).set_index("method")
    assert table.loc["PRO", "alpha"] == 0.4
    assert table["ece"].isna().all()
    redraws = sweeps.redraw_benchmark(validation, reported)
    assert redraws["alpha"].tolist() == [0.4]
    with pytest.raises(metrics.OneClassError, match="validation: all 60 judged answers are wrong: no probability"):
        sweeps.reliability(validation, reported)
    with pytest.warns(sweeps.OneClassWarning, match="all 60 are wrong"):
        swept = sweeps.alpha_sweep(validation.log_probs, validation.correct, n_resamples=10)
    assert swept[["auroc", "low", "high"]].isna().all(axis=None)
    assert swept["mean_kept"].notna().all()


def test_a_reported_split_of_one_class_is_refused_by_name(pair):
    wrong = all_wrong(pair[1])
    with pytest.raises(metrics.OneClassError, match="toy, none, test: all 80 judged answers are wrong, so no score"):
        Settings(reported=True)._drawn(wrong)
    assert Settings()._drawn(wrong) is wrong
