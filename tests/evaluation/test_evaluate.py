from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pytest
from alpha_scores import s_pro
from test_damaged_input import WRITE

from pro_lib import importing, scoring
from pro_lib.common.files import RunError
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.run_evaluation import evaluate
from pro_lib.importing.splits import split_records
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.runs.storage import RunInfo


def toy_run(answers, *, strategy="diverse_beam", references=None, split="test"):
    """Return a run from `{question: [(text, probability), ...]}` with one token per answer.

    The token includes the ending.
    """
    records = []
    for name, found in answers.items():
        record = {"question_id": name, "question": f"{name}?", "split": split, "answers": []}
        record["references"] = references[name] if references else ["yes"]
        for text, p, *ending in found:
            answer = {"text": text, "token_log_probs": [np.log(p)]}
            record["answers"].append(answer | ({"end_log_prob": np.log(*ending)} if ending else {}))
        records.append(record)
    return replace(importing.import_answers(records), info=RunInfo("toy", "none", strategy))


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
    with pytest.raises(RunError, match="no answer can be judged"):
        evaluate(replace(BEAMS, questions=BEAMS.questions.assign(references=None)))
    better = toy_run({"a": [("no", 0.9)], "b": [("no", 0.1)], "c": [("no", 0.1)]})
    with_better = evaluate(BEAMS, samples=SAMPLES, others=[better])
    assert list(with_better.answers["text"]) == ["no", "no", "yes"]
    table = judged.scores({"PRO": 0.25})
    assert list(table) == ["PRO", "NLL", "ALL", "PE", "PE-MC", "NE"]
    np.testing.assert_allclose(table["NLL"], -np.log([0.5, 0.4, 0.2]))
    np.testing.assert_allclose(table["PE-MC"][2], -np.log([0.6, 0.2]).mean())


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
    said = f"PE-MC ({n_sampled} of 20 questions have it)"
    assert (said in judged.sentence()) == (not is_compared)
    if n_sampled == 19:
        assert "1 of 20 questions are left out (q19): PE-MC is missing for 1" in judged.sentence()


def test_a_text_or_a_token_that_is_unknown_costs_its_own_question_alone():
    beams, _ = beams_and_samples(40, 40)
    beams.answers.loc[3, "text"] = None
    beams.answers.loc[5, "token_log_probs"] = None
    beams.answers["correct"] = np.arange(40) % 2 == 1
    judged = evaluate(beams, samples=beams, similarities=LEXICAL)
    assert {"SE, lexical", "SC, lexical", "NE", "ALL"} <= set(judged.baselines)
    missing = {*beams.questions["question_id"]} - {*judged.answers["question_id"]}
    assert missing == {"q03", "q05"}


def test_most_answers_with_log_probabilities_are_compared_on_their_questions():
    run, _ = beams_and_samples(10, 10)
    log_probs = run.answers["log_prob"].mask(run.answers.index >= 8)
    run = replace(run, answers=run.answers.assign(log_prob=log_probs))
    judged = evaluate(run, samples=run, similarities=LEXICAL)
    assert judged.reasons == {"no log-probabilities": 2}
    np.testing.assert_allclose(judged.baselines["NLL"], -log_probs[:8])


def test_a_method_that_one_split_lacks_is_left_out_of_the_other():
    beams, samples = beams_and_samples(40, 20)
    beams.questions["split"] = np.repeat(["validation", "test"], 20)
    pool, reported = (
        evaluate(beams, samples=samples, split=split, similarities=LEXICAL)
        for split in ("validation", "test")
    )
    assert "PE-MC" in pool.baselines
    assert "PE-MC" not in reported.baselines
    common = pool.with_methods_of(reported)
    assert list(common.baselines) == list(reported.baselines)
    assert "Without PE-MC, NE, " in common.sentence()
    assert reported.with_methods_of(pool) is reported
    assert list(pool.alpha_scores) == ["S-PRO, lexical"]
    assert pool.with_methods_of(replace(pool, alpha_scores={})).alpha_scores == {}


def test_records_are_split_by_the_seed():
    run = toy_run({f"q{n}": [("yes", 0.5)] for n in range(250)}, split=None)
    first, again, other = (
        list(split_records(run, n_validation=10, seed=seed).questions["split"])
        for seed in (0, 0, 1)
    )
    assert first.count("validation") == 50  # five times as many as choose α
    assert first == again != other
    assert split_records(BEAMS).questions["split"].eq("test").all()


def test_fewer_questions_than_asked_for_are_said_and_one_cannot_be_split():
    run = toy_run({f"q{n}": [("yes", 0.5)] for n in range(50)}, split=None)
    with pytest.warns(UserWarning, match="25 of its 50"):
        split = split_records(run, n_validation=40)
    assert (split.questions["split"] == "validation").sum() == 25
    with pytest.raises(RunError, match="has 1 questions"):
        split_records(run.select(question_ids=["q0"]))


def test_the_order_in_which_answers_were_found_moves_no_score():
    random = Random(0)
    texts = ["Rome", "rome", "Oslo", "a b", "b c"]
    found, shuffled = {}, {}
    for number in range(100):
        chosen = random.sample(texts, random.randint(1, 5))
        # Few values, so that answers tie within a question and questions with each other.
        answers = [(text, random.choice([0.1, 0.07, 0.01])) for text in chosen]
        found[str(number)] = answers
        shuffled[str(number)] = random.sample(answers, len(answers))
    runs = toy_run(found), toy_run(shuffled)
    judged = [evaluate(run, samples=run, similarities=LEXICAL) for run in runs]
    tables = [one.scores({"PRO": 0.05}) for one in judged]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    pd.testing.assert_frame_equal(judged[0].answers, judged[1].answers)


def test_a_sample_that_was_cut_means_the_same_as_none_and_the_answer_judged_need_not_be_a_beam():
    beams = toy_run({"a": [("no", 0.3)]})
    samples = toy_run({"a": [("yes", 0.5)] * 3})
    samples.answers["finished"] = [True, True, False]
    judged = evaluate(beams, samples=samples, similarities=LEXICAL)
    row = judged.baselines.iloc[0]
    assert row["SC, lexical"] == pytest.approx(1 - 2 / 3)
    assert row["Deg, lexical"] == 0


def test_methods_without_what_they_need_are_named_not_guessed():
    labels = BEAMS.top()[["question_id"]].assign(text=None, correct=[True, False, True])
    beams, samples = (
        replace(run, answers=run.answers.assign(text=None)) for run in (BEAMS, SAMPLES)
    )
    similarities = {**LEXICAL, "alias": None}
    rules = AnswerRules(labels=labels)
    judged = evaluate(beams, samples=samples, similarities=similarities, rules=rules)
    names = [f"{name}, {kind}" for kind in similarities for name in ("SE", "SD", "Deg", "S-NLL")]
    assert set(names) < set(judged.unavailable)
    assert not set(names) & set(judged.baselines)


GREAT = {"a": [("the great Leo", 0.5)], "b": [("Rome", 0.5)], "c": [("Leon Battista Alberti", 0.5)]}
GREAT = toy_run(GREAT, references={"a": ["Leo"], "b": ["Rome", "Paris"], "c": ["Leon Alberti"]})


@pytest.mark.parametrize(
    ("correctness", "expected"),
    [
        ("rouge_l", [True, True, True]),
        ("exact_match", [False, True, False]),
        ("alias_match", [True, True, False]),
    ],
)
def test_what_is_right_is_a_choice(correctness, expected):
    assert list(evaluate(GREAT, rules=AnswerRules(correctness=correctness)).correct) == expected


def test_verdicts_of_records_come_before_rouge_l_but_not_before_another_rule():
    verdicts = [False, True, True]
    run = replace(GREAT, answers=GREAT.answers.assign(correct=verdicts))
    judged = evaluate(run)
    assert judged.correct.tolist() == verdicts
    other = evaluate(run, rules=AnswerRules(correctness="exact_match"))
    assert (other.correct.tolist(), other.rule) == ([False, True, False], "exact match")
    assert judged.answers["rouge_l"].tolist() == [0.5, 1.0, 0.8]


@pytest.mark.parametrize("suffix", WRITE)
def test_labels_are_read_from_a_file_as_written(suffix, tmp_path):
    texts = ["NA", "None", "null", "nan", "", "true", "007", "1.50", "1e3", "-0", "1990"]
    labels = [
        {"question_id": f"{n:03}", "text": text, "correct": True} for n, text in enumerate(texts)
    ]
    path = tmp_path / f"labels{suffix}"
    path.write_bytes(WRITE[suffix](labels))
    assert importing.read_labels(path).to_dict("records") == labels
    path.write_bytes(WRITE[suffix]([labels[0], labels[0] | {"correct": False}]))
    with pytest.raises(RunError, match=r"labels\..*'NA' both right and wrong"):
        importing.read_labels(path)


@pytest.mark.parametrize(("ids", "words"), [("abc", "2 labelled questions"), ("xyz", "none")])
def test_labels_that_match_nothing_are_counted(ids, words):
    labels = pd.DataFrame({"question_id": list(ids), "text": ["Yes", "No", "yes"], "correct": True})
    with pytest.raises(RunError, match=words):
        evaluate(BEAMS, samples=SAMPLES, rules=AnswerRules(labels=labels))


@pytest.fixture(scope="module")
def pool():
    """An evaluation of 60 questions, with a second score that needs α."""
    probabilities = np.random.default_rng(0).uniform(0.1, 0.9, 60)
    answers = {
        f"q{n}": [("yes" if n % 3 else "no", probability)]
        for n, probability in enumerate(probabilities)
    }
    judged = evaluate(toy_run(answers))
    return replace(judged, alpha_scores={"S-PRO": s_pro(2 * judged.log_probs)})


def test_validation_questions_are_drawn_with_the_seed_and_in_their_order(pool):
    sample = pool.drawn(20, seed=3)
    ids = list(sample.answers["question_id"])
    assert len(ids) == 20
    assert ids == [name for name in pool.answers["question_id"] if name in ids]
    assert list(pool.drawn(20, seed=4).answers["question_id"]) != ids
    assert ["20 were drawn of them" in each.sentence() for each in (sample, pool)] == [True, False]
    assert Splits(pool, pool, 20, seed=3).validation.answers.equals(sample.answers)
    assert Splits(pool, pool, None).validation is Splits(pool, pool, 1000).validation is pool


def test_some_questions_keep_all_of_their_values(pool):
    some = pool.select([7, 3])
    assert some.answers["question_id"].tolist() == ["q7", "q3"]
    np.testing.assert_array_equal(some.log_probs, pool.log_probs[[7, 3]])
    np.testing.assert_array_equal(some.baselines["NLL"], pool.baselines["NLL"].iloc[[7, 3]])
    expected = scoring.pro(2 * pool.log_probs[[7, 3]], alpha=0.4)
    np.testing.assert_array_equal(some.pro(0.4, name="S-PRO"), expected)
    with pytest.raises(ValueError, match="k=2"):
        some.pro(k=2, name="S-PRO")
    with pytest.raises(KeyError, match="S-NLL"):
        some.scores({"S-NLL": 0.4})
