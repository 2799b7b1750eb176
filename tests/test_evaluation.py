import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pro_lib import evaluation, imports, metrics, scores, selective, similarities, sweeps
from pro_lib.evaluation import Choices, Splits, evaluate
from pro_lib.files import RunError
from pro_lib.imports import split_records
from pro_lib.runs import Run
from pro_lib.settings import Settings
from pro_lib.store import RunInfo


def toy_run(answers, *, strategy="diverse_beam", references=None, split="test"):
    """A run from `{question: [(text, probability), ...]}`; one token each, which carries the ending."""
    rows = [
        (question, rank, text, [sum(text.encode())], [np.log(p)], np.log(p), np.nan, True)
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
    better = toy_run({"a": [("no", 0.9)], "b": [("no", 0.1)], "c": [("no", 0.1)]}, strategy="greedy")
    assert list(evaluate(BEAMS, samples=SAMPLES, others=[better]).answers["text"]) == ["no", "no", "yes"]


def test_every_method_reads_its_own_run():
    table = evaluate(BEAMS, samples=SAMPLES).with_pro({"PRO": 0.25})
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
    assert repr(judged) == f"Evaluation({judged.sentence()})"
    assert judged.to_df()["NLL"].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert judged.to_df()["correct"].tolist() == [True, True, False, False]
    assert "0.500 of the judged answers are right" in judged._repr_html_()


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


@pytest.mark.parametrize(("n", "n_validation", "size"), [(250, 10, 50), (250, None, 125), (250, 125, 125), (3, 1, 1)])
def test_five_times_the_questions_that_choose_alpha_are_set_apart_but_at_most_half(n, n_validation, size):
    runs = [split_records(many(n, None), n_validation=n_validation, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (list(run.questions["split"]) for run in runs)
    assert first.count("validation") == size
    assert first == again
    assert n < 250 or first != other
    assert split_records(many(5, "test")).questions["split"].eq("test").all()


def test_fewer_questions_than_asked_for_are_said_and_one_cannot_be_split():
    with pytest.warns(UserWarning, match="run toy/none/diverse_beam has no validation split: 75 of its 150 .* not 100"):
        run = split_records(many(150, None))
    assert (run.questions["split"] == "validation").sum() == 75
    with pytest.raises(RunError, match="has 1 questions"):
        split_records(many(1, None))


# Few values, so that answers tie within a question and questions with each other.
TIED = st.lists(
    st.lists(st.tuples(st.sampled_from(["Rome", "rome", "Oslo", "a b", "b c"]), st.sampled_from([0.1, 0.07, 0.01])),
             min_size=1, max_size=6, unique_by=lambda answer: answer[0]),
    min_size=2, max_size=5,
)  # fmt: skip


@given(TIED, st.randoms(use_true_random=False))
def test_the_order_in_which_answers_were_found_moves_no_score(found, random):
    shuffled = [random.sample(answers, len(answers)) for answers in found]
    judged = []
    for order in (found, shuffled):
        beams, samples = (
            toy_run({str(n): answers for n, answers in enumerate(order)}, strategy=name)
            for name in ("beams", "samples")
        )
        judged.append(evaluate(beams, samples=samples, similarities={"lexical": similarities.Lexical()}))
    pd.testing.assert_frame_equal(*(each.with_pro({"PRO": 0.05}) for each in judged), check_exact=True)
    pd.testing.assert_frame_equal(*(each.answers for each in judged))


MEANINGS = ["SE", "SD", "Deg", "S-NLL", "SC"]


def test_methods_that_compare_meanings_read_beams_and_deg_the_samples():
    beams = toy_run({"a": [("yes", 0.5), ("Yes!", 0.2), ("no", 0.1)]})
    samples = toy_run({"a": [("yes", 0.5), ("no", 0.1)]}, strategy="multinomial")
    table = pd.DataFrame({"question_id": ["a"], "references": [["yes"]]})
    judged = evaluate(beams, samples=samples, similarities={"alias": similarities.Alias(table)})
    row = judged.baselines.iloc[0]
    # Two meanings of 0.7 and 0.1: with Q = 7/8 and 1/8 the entropy is 3 log 2 - 7/8 log 7.
    assert row["SE, alias"] == pytest.approx(3 * np.log(2) - 7 / 8 * np.log(7))
    assert row["SD, alias"] == pytest.approx(1 - 0.7 / 0.8)
    assert row["Deg, alias"] == pytest.approx(0.5)
    # One of two samples says yes.
    assert row["SC, alias"] == pytest.approx(0.5)
    # PRO of 0.7 and 0.1, at α = 0.1 and, where one meaning is kept, at 0.4; only that one is NLL's.
    assert row["S-NLL, alias"] == pytest.approx(-np.log(0.7))
    pro = [judged.with_pro({"S-PRO, alias": alpha})["S-PRO, alias"].item() for alpha in (0.05, 0.4)]
    assert pro == pytest.approx([-np.log(0.1) - 0.7 * np.log(7), -np.log(0.7)])
    assert list(judged.baselines.columns[-5:]) == [f"{name}, alias" for name in MEANINGS]


def test_a_sample_that_was_cut_means_the_same_as_none_and_the_answer_judged_need_not_be_a_beam():
    beams, samples = toy_run({"a": [("no", 0.3)]}), toy_run({"a": [("yes", 0.5), ("yes", 0.5), ("yes", 0.5)]})
    samples.answers["finished"] = [True, True, False]
    row = evaluate(beams, samples=samples, similarities={"lexical": similarities.Lexical()}).baselines.iloc[0]
    assert row["SC, lexical"] == pytest.approx(1 - 2 / 3)
    assert row["Deg, lexical"] == 0


def test_methods_without_what_they_need_are_named_not_guessed():
    unknown = replace_texts(BEAMS, None)
    samples = replace_texts(SAMPLES, None)
    labels = pd.DataFrame({"question_id": ["a", "b", "c"], "text": [None] * 3, "correct": [True, False, True]})
    judged = evaluate(
        unknown, samples=samples, similarities={"lexical": similarities.Lexical()}, choices=Choices(labels=labels)
    )
    assert judged.unavailable == tuple(f"{name}, lexical" for name in MEANINGS)
    judged = evaluate(BEAMS, samples=SAMPLES, similarities={"alias": None})
    assert judged.unavailable == tuple(f"{name}, alias" for name in MEANINGS)


def replace_texts(run, text):
    return Run(run.answers.assign(text=text), run.questions, run.info)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (Choices(), [True, True, True]),
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


def written_labels(table, path):
    """The labels as a file of the format that its name says."""
    {
        ".csv": lambda: table.to_csv(path, index=False),
        ".jsonl": lambda: table.to_json(path, orient="records", lines=True),
        ".parquet": lambda: table.to_parquet(path),
    }[path.suffix]()
    return path


SUFFIXES = pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])


@SUFFIXES
def test_labels_are_read_from_a_file_and_an_answer_without_one_is_counted(tmp_path, suffix):
    table = pd.DataFrame(
        {"question_id": ["a", "b", "of another run"], "text": ["yes", "no", "?"], "correct": [0, 1, 1]}
    )
    path = written_labels(table, tmp_path / f"labels{suffix}")
    judged = evaluate(BEAMS, samples=SAMPLES, choices=Settings(correctness=str(path)).choices)
    assert list(judged.correct) == [False, True]
    assert "1 of 3 questions are left out (c): correct is missing for 1" in judged.sentence()


@SUFFIXES
def test_texts_of_labels_are_what_is_written_and_whole_numbers_may_be_ids(tmp_path, suffix):
    for texts in (["NA", "None", "null", "nan", "", "true"], ["007", "1.50", "1e3", "-0"], ["1990", "1991"]):
        table = pd.DataFrame({"question_id": [f"{n:03}" for n in range(len(texts))], "text": texts, "correct": True})
        read = imports.read_labels(written_labels(table, tmp_path / f"labels{suffix}"))
        assert read.to_dict("list") == table.to_dict("list")
    table = pd.DataFrame({"question_id": [7, 8], "text": ["yes", "no"], "correct": [True, False]})
    path = written_labels(table, tmp_path / f"labels{suffix}")
    assert imports.read_labels(path)["question_id"].tolist() == ["7", "8"]
    if suffix != ".csv":
        for wrong in ({"question_id": [7.5, None]}, {"text": [1990, 1991]}):
            with pytest.raises(RunError, match=r"(line|row) 1"):
                imports.read_labels(written_labels(table.assign(**wrong), path))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("labels.csv", "question_id,text\na,yes\n", "line 2: correct"),
        ("labels.csv", "question_id,text,correct\na,yes,maybe\n", "line 2: correct='maybe'"),
        ("labels.csv", "question_id,text,correct\na,yes,1\na,yes,0\n", "'yes' both right and wrong"),
        ("labels.csv", "question_id,text,correct\n", "no labels"),
        ("labels.csv", "question_id,text,text,correct\na,yes,no,1\n", "'text' twice"),
        ("labels.csv", "0\n0\n", "line 2: question_id"),
        ("labels.jsonl", "0\n", "line 1"),
        ("labels.txt", "", "labels.txt"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_the_file(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=name) as refused:
        imports.read_labels(tmp_path / name)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("ids", "texts", "sentence"),
    [
        ("ab", ["yes", "no "], "labels of 1 questions .* question 'b' is answered 'no', its label is for 'no '"),
        ("abc", ["Yes", "No", "yes"], "labels of 2 questions .* question 'a' is answered 'yes'"),
        ("xy", ["yes", "no"], "none of the 2 labels is for one of its questions, as 'x'"),
    ],
)
def test_labels_that_match_nothing_are_counted_and_one_is_shown(ids, texts, sentence):
    labels = pd.DataFrame({"question_id": list(ids), "text": texts, "correct": True})
    with pytest.raises(RunError, match=sentence):
        evaluate(BEAMS, samples=SAMPLES, choices=Choices(labels=labels))


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
    table = sweeps.alpha_choices(Splits(*pair), default=0.4)
    reported = table[table["split"] == "test"].set_index("kind")
    chosen = table[table["split"] == "validation"].set_index("kind")
    assert reported.loc["oracle", "auroc"] >= reported.loc["selected", "auroc"]
    assert chosen.loc["selected", "auroc"] >= chosen.loc["default", "auroc"]
    assert list(chosen.index) == ["selected", "default"]
    assert reported.loc["default", "alpha"] == 0.4
    assert (table["low"] <= table["auroc"]).all()
    assert (table["auroc"] <= table["high"]).all()


def test_the_benchmark_has_a_row_per_method_and_differences_to_pro(pair):
    table = sweeps.benchmark(Splits(*pair), default=0.4).set_index("method")
    assert list(table.index) == ["PRO", "PRO, default", "PRO, oracle", "NLL", "ALL", "PE", "PE-MC", "NE"]
    assert table.loc["PRO", "difference"] == 0
    assert table.loc["NLL", "difference"] == pytest.approx(table.loc["NLL", "auroc"] - table.loc["PRO", "auroc"])
    assert (table["n_questions"] == 80).all()
    assert table.loc["PRO, default", "alpha"] == 0.4
    assert np.isnan(table.loc["NLL", "alpha"])


def test_every_method_is_tested_and_pros_other_rows_are_no_methods(pair):
    table = sweeps.benchmark(Splits(*pair)).set_index("method")
    p_value = table["p_value"]
    others = [name for name in table.index if not name.startswith("PRO")]
    np.testing.assert_allclose(table.loc[others, "p_holm"], metrics.holm(p_value[others]))
    for name in ("PRO, default", "PRO, oracle"):
        assert np.isfinite(p_value[name])
        assert np.isnan(table.loc[name, "p_holm"])
        assert not table.loc[name, "significant"]
    assert not table.loc["PRO", "significant"]
    judged = pair[1]
    assert table.loc["NLL", "auarc"] == pytest.approx(selective.auarc(judged.baselines["NLL"], judged.correct))
    fit = selective.calibration(pair[0].baselines["NLL"], pair[0].correct, judged.baselines["NLL"], judged.correct)
    assert table.loc["NLL", "ece"] == fit.ece


def test_redraws_report_on_the_reported_split(pair):
    validation, reported = pair
    table = sweeps.redraw_benchmark(Splits(validation, reported, 30), n_redraws=20)
    expected = [metrics.auroc(scores.pro(reported.log_probs, alpha=a), reported.correct) for a in table["alpha"]]
    np.testing.assert_allclose(table["auroc"], expected)
    nll = metrics.auroc(reported.baselines["NLL"], reported.correct)
    assert table["better_than_nll"].tolist() == (np.array(expected) > nll).astype(float).tolist()


@pytest.mark.parametrize("n_validation", [None, 60, 100])
def test_a_pool_without_others_cannot_be_redrawn_and_does_not_look_stable(pair, n_validation):
    with pytest.warns(UserWarning, match="toy, none: .* cannot be redrawn .α is chosen on all 60 there are."):
        table = sweeps.redraw_benchmark(Splits(*pair, n_validation))
    spread = sweeps.spread(table, "alpha")
    of = ["dataset", "model", "protocol"]
    assert spread[of].to_numpy().tolist() == [["toy", "none", "workbench"]]
    assert spread.drop(columns=of).isna().all(axis=None)


def test_the_spread_of_redraws_is_their_quartiles_by_setting(pair):
    other = replace(pair[1], model="other")
    settings = Splits(*pair, 30), Splits(pair[0], other, 20)
    table = pd.concat([sweeps.redraw_benchmark(of, n_redraws=8) for of in settings], ignore_index=True)
    spread = sweeps.spread(table, "auroc").set_index("model")
    assert list(spread.index) == ["none", "other"]
    mine = table.loc[table["model"] == "other", "auroc"]
    expected = [mine.min(), *mine.quantile([0.25, 0.5, 0.75]), mine.max()]
    assert spread.loc["other", ["min", "25%", "50%", "75%", "max"]].tolist() == pytest.approx(expected)
    assert spread.loc["none", "better_than_nll"] == table["better_than_nll"][:8].mean()


def test_alpha_is_chosen_on_as_many_of_the_pool_as_is_said(pair):
    assert Splits(*pair, 20, seed=3).validation.answers.equals(pair[0].drawn(20, seed=3).answers)
    assert Splits(*pair, None).validation is pair[0]


def test_answering_fewer_questions_and_the_reliability_of_the_fit(pair):
    validation, reported = pair
    curves = sweeps.accuracy_coverage(Splits(validation, reported), methods=["NLL", "absent"], n_points=11)
    assert set(curves["method"]) == {"NLL", "oracle"}
    last = curves[curves["coverage"] == 1]
    np.testing.assert_allclose(last["accuracy"], reported.correct.mean())
    oracle = curves[curves["method"] == "oracle"]
    assert (oracle["accuracy"].to_numpy() >= curves.loc[curves["method"] == "NLL", "accuracy"].to_numpy()).all()
    table = sweeps.reliability(Splits(validation, reported), methods=["PRO", "NLL"])
    assert (table.groupby("method")["n"].sum() == 80).all()
    assert ((table["accuracy_low"] <= table["accuracy"]) & (table["accuracy"] <= table["accuracy_high"])).all()


def all_wrong(judged):
    return replace(judged, answers=judged.answers.assign(correct=False))


def test_where_validation_has_one_class_the_default_is_taken_and_said(pair):
    validation, reported = all_wrong(pair[0]), pair[1]
    with pytest.warns(
        sweeps.OneClassWarning, match="toy, none, validation: all 60 judged answers are wrong: alpha cannot"
    ):
        table = sweeps.benchmark(Splits(validation, reported)).set_index("method")
    assert table.loc["PRO", "alpha"] == 0.4
    assert table["ece"].isna().all()
    with pytest.warns(UserWarning, match="cannot be redrawn .toy, none, validation: all 60 judged answers are wrong."):
        redraws = sweeps.redraw_benchmark(Splits(validation, reported, 30))
    assert redraws["alpha"].isna().tolist() == [True]
    with pytest.warns(sweeps.OneClassWarning, match="alpha cannot"):
        assert sweeps.reliability(Splits(validation, reported), methods=["PRO"]).empty
    with pytest.warns(sweeps.OneClassWarning, match="all 60 judged answers are wrong, so that AUROC"):
        swept = sweeps.alpha_sweep(validation)
    assert swept[["auroc", "low", "high"]].isna().all(axis=None)
    assert swept["mean_kept"].notna().all()
