import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_questions import evaluate, s_pro
from test_damaged_input import TABLES, WRITE

from pro_lib import importing, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.common.files import RunError
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.evaluation.run_evaluation import common_methods
from pro_lib.importing.records import split_records
from pro_lib.metrics.correctness import Choices
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo


def toy_run(answers, *, strategy="diverse_beam", references=None, split="test"):
    """Return a run from `{question: [(text, probability), ...]}` with one token per answer.

    The token includes the ending.
    """
    rows = []
    for question, found in answers.items():
        for rank, (text, p, *ending) in enumerate(found):
            row = {"question_id": question, "rank": rank, "text": text, "finished": True}
            row |= {"token_ids": [sum(text.encode())], "token_log_probs": [np.log(p)]}
            row |= {"log_prob": np.log(p), "end_log_prob": np.log(*ending or [np.nan])}
            rows.append(row)
    ids = list(answers)
    questions = pd.DataFrame({"question_id": ids, "question": [f"{q}?" for q in ids]})
    references = references or {name: ["yes"] for name in ids}
    questions = questions.assign(split=split, references=[references[q] for q in ids])
    columns = list(rows[0]) if rows else []
    return Run(pd.DataFrame(rows, columns=columns), questions, RunInfo("toy", "none", strategy))


BEAMS = toy_run(
    {"a": [("yes", 0.5), ("no", 0.3)], "b": [("no", 0.4), ("yes", 0.2)], "c": [("no", 0.2)]}
)
LEXICAL = {"lexical": scoring.lexical}
SAMPLES = toy_run(
    {"a": [("no", 0.3)], "b": [("no", 0.4)], "c": [("yes", 0.6), ("no", 0.2)]},
    strategy="multinomial",
)


def test_the_most_probable_answer_of_any_run_is_judged_and_every_method_reads_its_own():
    judged = evaluate(BEAMS, samples=SAMPLES)
    assert list(judged.answers["text"]) == ["yes", "no", "yes"]
    assert list(judged.correct) == [True, False, True]
    better = toy_run(
        {"a": [("no", 0.9)], "b": [("no", 0.1)], "c": [("no", 0.1)]}, strategy="greedy"
    )
    assert list(evaluate(BEAMS, samples=SAMPLES, others=[better]).answers["text"]) == [
        "no",
        "no",
        "yes",
    ]
    table = judged.with_pro({"PRO": 0.25})
    assert list(table) == ["PRO", "NLL", "ALL", "PE", "PE-MC", "NE"]
    np.testing.assert_allclose(table["NLL"], -np.log([0.5, 0.4, 0.2]))
    np.testing.assert_allclose(table["PE-MC"][2], -np.log([0.6, 0.2]).mean())
    np.testing.assert_allclose(table["PRO"], scoring.pro(BEAMS.log_probs(), alpha=0.25))


def test_a_question_without_a_value_is_left_out_for_all_and_counted():
    empty = toy_run({"a": [("yes", 0.5)], "b": [], "c": [("no", 0.2)]})
    judged = evaluate(empty, samples=SAMPLES)
    assert list(judged.answers["question_id"]) == ["a", "c"]
    assert len(judged.log_probs) == len(judged.baselines) == 2
    assert "1 of 3 questions are left out (b): no answer (1)." in judged.sentence()


def beams_and_samples(n_questions, n_sampled):
    """Beams of so many questions, and samples of the first of them."""
    answers = {f"q{n:02}": [("yes" if n % 2 else "no", 0.9 - n / 100)] for n in range(n_questions)}
    beams, samples = toy_run(answers), toy_run(answers, strategy="multinomial")
    sampled = samples.answers["question_id"].isin([*answers][:n_sampled])
    return beams, replace(samples, answers=samples.answers[sampled])


@pytest.mark.parametrize(
    ("n_sampled", "is_compared"), [(20, True), (19, True), (18, False), (2, False)]
)
def test_a_method_missing_for_more_than_five_percent_is_left_out_instead_of_the_questions(
    n_sampled, is_compared
):
    beams, samples = beams_and_samples(20, n_sampled)
    judged = evaluate(beams, samples=samples, similarities=LEXICAL)
    of_samples = {"PE-MC", "NE", "Deg, lexical", "SC, lexical"}
    assert of_samples & set(judged.baselines) == (of_samples if is_compared else set())
    assert len(judged.correct) == (n_sampled if is_compared else 20)
    parts = [f"{name} ({n_sampled} of 20 questions have it)" for name in ("PE-MC", "NE")]
    said = f"Left out of the comparison: {', '.join(parts)}"
    assert (said in judged.sentence()) == (not is_compared)
    if n_sampled == 19:
        assert "1 of 20 questions are left out (q19): PE-MC is missing for 1" in judged.sentence()


def test_a_text_or_a_token_that_is_unknown_costs_its_own_question_alone():
    beams, _ = beams_and_samples(40, 40)
    texts = beams.answers["text"].where(beams.answers["question_id"] != "q03", None)
    tokens = [
        None if n == 5 else values for n, values in enumerate(beams.answers["token_log_probs"])
    ]
    correct = (np.arange(40) % 2).astype(bool)
    beams = replace(
        beams, answers=beams.answers.assign(text=texts, token_log_probs=tokens, correct=correct)
    )
    judged = evaluate(beams, samples=beams, similarities=LEXICAL)
    assert {"SE, lexical", "SD, lexical", "Deg, lexical", "SC, lexical", "NE", "ALL"} <= set(
        judged.baselines
    )
    assert sorted({*beams.questions["question_id"]} - {*judged.answers["question_id"]}) == [
        "q03",
        "q05",
    ]


def mixed_records(n_log_probs, n_questions=10):
    """A run of two samples a question, of which the first questions have log-probabilities."""
    rows = []
    for n in range(n_questions):
        answers = [{"text": "yes"}, {"text": "no" if n % 2 else "yes"}]
        if n < n_log_probs:
            answers = [
                answer | {"log_prob": -1.0 - n - place} for place, answer in enumerate(answers)
            ]
        rows.append(
            {"question_id": f"q{n}", "references": ["yes" if n % 3 else "else"], "answers": answers}
        )
    with pytest.warns(UserWarning, match="answers have no log-probability"):
        return importing.from_records(rows)


def test_most_answers_with_log_probabilities_are_compared_on_their_questions():
    run = mixed_records(8)
    judged = evaluate(run, samples=run, similarities=LEXICAL)
    assert judged.answers["question_id"].tolist() == [f"q{n}" for n in range(8)]
    sentence = "2 of 10 questions are left out (q8, q9): no log-probabilities (2)."
    assert sentence in judged.sentence()
    assert judged.reasons == {"no log-probabilities": 2}
    np.testing.assert_allclose(judged.baselines["NLL"], 1.0 + np.arange(8))


def test_few_answers_with_log_probabilities_leave_the_counts_of_all_questions():
    run = mixed_records(2)
    judged = evaluate(run, samples=run, similarities=LEXICAL)
    assert set(judged.baselines) == {"SE, lexical", "Deg, lexical", "SC, lexical"}
    # Two different texts of a question are two meanings of 1/2 each; two equal ones are one.
    np.testing.assert_allclose(judged.baselines["SE, lexical"], [0.0, np.log(2)] * 5, atol=1e-15)
    said = (
        "Left out of the comparison: every score of log-probabilities (2 of 10 questions have it)."
    )
    assert said in judged.sentence()
    with pytest.raises(RunError, match="PRO needs log-probabilities"):
        judged.pro(0.4)


def test_pro_of_an_evaluation_keeps_answers_from_two_fifths_on():
    answers = [{"text": "yes", "log_prob": np.log(0.45)}, {"text": "no", "log_prob": np.log(0.42)}]
    record = {"question_id": "q", "references": ["yes"], "answers": answers}
    judged = evaluate(importing.from_records([record]))
    np.testing.assert_array_equal(judged.pro(), judged.pro(0.4))
    assert judged.pro() != judged.pro(0.43)


def test_meanings_that_one_split_lacks_are_left_out_of_the_other():
    run = mixed_records(8)
    judged = evaluate(run, samples=run, similarities=LEXICAL)
    assert list(judged.alpha_scores) == ["S-PRO, lexical"]
    common = judged.with_methods_of(replace(judged, alpha_scores={}))
    assert common.alpha_scores == {}
    assert "Without S-PRO, lexical, which" in common.sentence()


def test_a_question_without_a_label_does_not_make_nll_count():
    table = pd.DataFrame({"NLL": [0.5, np.nan], "SC": [0.1, 0.2]})
    selected, left_out = common_methods(table, [None, True])
    assert (list(selected), left_out) == (["SC"], {"NLL": (0, 1)})


def test_a_method_that_one_split_lacks_is_left_out_of_the_other():
    beams, samples = beams_and_samples(40, 20)
    split = pd.Series(["validation", "test"]).repeat(20).to_numpy()
    beams = replace(beams, questions=beams.questions.assign(split=split))
    pool, reported = (
        evaluate(beams, samples=samples, split=name) for name in ("validation", "test")
    )
    assert ("PE-MC" in pool.baselines, "PE-MC" in reported.baselines) == (True, False)
    common = pool.with_methods_of(reported)
    assert list(common.baselines) == list(reported.baselines)
    assert "Without PE-MC, NE, which split test does not have." in common.sentence()
    assert reported.with_methods_of(pool) is reported


def test_an_evaluation_without_a_question_says_so():
    nothing = evaluate(BEAMS).rows(np.zeros(3, bool))
    assert "no question has both a judged answer and a score" in nothing.one_class()
    assert "nan" not in nothing.sentence()


def test_a_method_that_no_question_has_is_named_not_judged(tmp_path):
    path = tmp_path / "answers.jsonl"
    lines = [
        {"question_id": i, "answers": [{"log_prob": -0.1 * i - 0.1, "correct": i < 2}]}
        for i in range(4)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    run = importing.from_records(path)
    judged = evaluate(run, samples=run)
    assert judged.unavailable == ("ALL", "NE")
    assert (
        "0.500 of the judged answers are right by verdicts of the records. Not available: ALL, NE"
        in repr(judged)
    )
    assert list(judged.correct) == [True, True, False, False]
    path.write_text('{"question_id": 1, "answers": [{"log_prob": -1.0}]}')
    with pytest.raises(RunError, match="no answer can be judged"):
        evaluate(importing.from_records(path))


@pytest.mark.parametrize(
    ("n", "n_validation", "size"), [(250, 10, 50), (250, None, 125), (250, 125, 125), (3, 1, 1)]
)
def test_five_times_the_questions_that_choose_alpha_are_set_apart_but_at_most_half(
    n, n_validation, size
):
    run = toy_run({f"q{i}": [("yes", 0.5)] for i in range(n)}, split=None)
    runs = [split_records(run, n_validation=n_validation, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (list(run.questions["split"]) for run in runs)
    assert (first.count("validation"), first) == (size, again)
    assert n < 250 or first != other


def test_fewer_questions_than_asked_for_are_said_and_one_cannot_be_split():
    run = toy_run({f"q{i}": [("yes", 0.5)] for i in range(150)}, split=None)
    with pytest.warns(UserWarning, match="75 of its 150"):
        assert (split_records(run, n_validation=100).questions["split"] == "validation").sum() == 75
    with pytest.raises(RunError, match="has 1 questions"):
        split_records(run.select(question_ids=["q0"]))
    assert split_records(BEAMS).questions["split"].eq("test").all()


# Few values, so that answers tie within a question and questions with each other.
TEXTS = st.sampled_from(["Rome", "rome", "Oslo", "a b", "b c"])
PROBABILITIES = st.sampled_from([0.1, 0.07, 0.01])
ANSWERS = st.lists(
    st.tuples(TEXTS, PROBABILITIES), min_size=1, max_size=6, unique_by=lambda answer: answer[0]
)
TIED = st.lists(ANSWERS, min_size=2, max_size=5)


@given(TIED, st.randoms(use_true_random=False))
def test_the_order_in_which_answers_were_found_moves_no_score(pairs, random):
    shuffled = [random.sample(answers, len(answers)) for answers in pairs]
    runs = [
        toy_run({str(n): answers for n, answers in enumerate(order)}) for order in (pairs, shuffled)
    ]
    judged = [evaluate(run, samples=run, similarities=LEXICAL) for run in runs]
    pd.testing.assert_frame_equal(
        *(one.with_pro({"PRO": 0.05}) for one in judged), check_exact=True
    )
    pd.testing.assert_frame_equal(*(one.answers for one in judged))


def test_a_sample_that_was_cut_means_the_same_as_none_and_the_answer_judged_need_not_be_a_beam():
    beams = toy_run({"a": [("no", 0.3)]})
    samples = toy_run({"a": [("yes", 0.5)] * 3})
    samples.answers["finished"] = [True, True, False]
    judged = evaluate(beams, samples=samples, similarities=LEXICAL)
    row = judged.baselines.iloc[0]
    assert row["SC, lexical"] == pytest.approx(1 - 2 / 3)
    assert row["Deg, lexical"] == 0


def test_methods_without_what_they_need_are_named_not_guessed():
    labels = pd.DataFrame(
        {"question_id": list("abc"), "text": [None] * 3, "correct": [True, False, True]}
    )
    without = [
        Run(run.answers.assign(text=None), run.questions, run.info) for run in (BEAMS, SAMPLES)
    ]
    by_meaning = {"lexical": scoring.lexical, "alias": None}
    judged = evaluate(
        without[0], samples=without[1], similarities=by_meaning, choices=Choices(labels=labels)
    )
    names = ("SE", "SD", "Deg", "S-NLL", "SC")
    assert judged.unavailable == tuple(
        f"{name}, {similarity}" for similarity in by_meaning for name in names
    )


def test_what_is_right_is_a_choice():
    answers = {
        "a": [("the great Leo", 0.5)],
        "b": [("Rome", 0.5)],
        "c": [("Leon Battista Alberti", 0.5)],
    }
    run = toy_run(answers, references={"a": ["Leo"], "b": ["Rome", "Paris"], "c": ["Leon Alberti"]})
    right = {
        "rouge_l": [True, True, True],
        "exact_match": [False, True, False],
        "alias_match": [True, True, False],
    }
    for correctness, expected in right.items():
        assert list(evaluate(run, choices=Choices(correctness=correctness)).correct) == expected
    # As records brought it
    judged = evaluate(replace(run, answers=run.answers.assign(correct=[False, True, True])))
    assert judged.answers[["rouge_l", "correct"]].to_numpy().tolist() == [
        [0.5, False],
        [1.0, True],
        [0.8, True],
    ]


@pytest.mark.parametrize("suffix", TABLES)
def test_labels_are_read_from_a_file_as_written_and_an_answer_without_one_is_counted(
    tmp_path, suffix
):
    def written(**columns):
        (path := tmp_path / f"labels{suffix}").write_bytes(
            WRITE[suffix](pd.DataFrame(columns).to_dict("records"))
        )
        return path

    path = written(
        question_id=["a", "b", "of another run"], text=["yes", "no", "?"], correct=[0, 1, 1]
    )
    judged = evaluate(BEAMS, samples=SAMPLES, choices=Experiment(correctness=str(path)).choices)
    assert list(judged.correct) == [False, True]
    assert "1 of 3 questions are left out (c): no reference (1)." in judged.sentence()
    texts = ["NA", "None", "null", "nan", "", "true", "007", "1.50", "1e3", "-0", "1990"]
    ids = [f"{n:03}" for n in range(len(texts))]
    columns = {"question_id": ids, "text": texts, "correct": [True] * len(texts)}
    assert importing.read_labels(written(**columns)).to_dict("list") == columns
    numbered = written(question_id=[7, 8], text=["yes", "no"], correct=[True, False])
    assert importing.read_labels(numbered)["question_id"].tolist() == ["7", "8"]
    path = written(question_id=["a", "a"], text=["yes", "yes"], correct=[1, 0])
    with pytest.raises(RunError, match=r"labels\..*'yes' both right and wrong"):
        importing.read_labels(path)


def test_labels_that_match_nothing_are_counted():
    for ids, words in (
        ("abc", "2 labelled questions .first 'a'. have no label for the answer that is judged"),
        ("xyz", "none of the 3"),
    ):
        labels = pd.DataFrame(
            {"question_id": list(ids), "text": ["Yes", "No", "yes"], "correct": True}
        )
        with pytest.raises(RunError, match=words):
            evaluate(BEAMS, samples=SAMPLES, choices=Choices(labels=labels))


def test_validation_questions_are_drawn_with_the_seed_and_keep_their_rows_together():
    rng = np.random.default_rng(0)
    answers = {
        f"q{i}": [("yes" if rng.random() < 0.5 else "no", rng.uniform(0.1, 0.9))] for i in range(60)
    }
    pool = evaluate(toy_run(answers))
    pool = replace(pool, alpha_scores={"S-PRO": s_pro(2 * pool.log_probs)})
    sample = pool.drawn(20, seed=3)
    rows = [list(pool.answers["question_id"]).index(q) for q in sample.answers["question_id"]]
    assert (rows, len(rows)) == (sorted(rows), 20)
    np.testing.assert_array_equal(sample.log_probs, pool.log_probs[rows])
    np.testing.assert_array_equal(sample.baselines["NLL"], pool.baselines["NLL"].iloc[rows])
    expected = scoring.pro(2 * pool.log_probs[rows], alpha=0.4)
    np.testing.assert_array_equal(sample.pro(0.4, name="S-PRO"), expected)
    with pytest.raises(ValueError, match="k=2"):
        sample.pro(k=2, name="S-PRO")
    assert ["20 were drawn of them" in of.sentence() for of in (sample, pool)] == [True, False]
    assert list(pool.drawn(20, seed=4).answers["question_id"]) != list(
        sample.answers["question_id"]
    )
    assert Splits(pool, pool, 20, seed=3).validation.answers.equals(sample.answers)
    assert Splits(pool, pool, None).validation is Splits(pool, pool, 1000).validation is pool
    assert pool.rows([7, 3]).answers["question_id"].tolist() == ["q7", "q3"]


def test_evaluation_starts_without_the_slow_packages():
    code = "import sys, pro_lib.evaluation; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert "pro_lib.evaluation.evaluation" in loaded
    assert not loaded & {"scipy.stats", "scipy.sparse", "scipy.optimize", "sklearn", "torch"}


def test_some_verdicts_keep_their_clusters():
    clusters = pd.Series(["a", "a", "b", "c"])
    verdicts = Verdicts(np.array([True, False, True, False]), "exact match", clusters)
    some = verdicts.rows(np.array([1, 3]))
    assert some.verdicts.tolist() == [False, False]
    assert (some.rule, some.clusters.tolist()) == ("exact match", ["a", "c"])
    assert replace(verdicts, clusters=None).rows(np.array([0])).clusters is None
