"""Evaluations, intervals and guarantees with repeated questions and with few labels."""

import warnings
from dataclasses import replace

import numpy as np
from commands import answer, record

from pro_lib import importing
from pro_lib.evaluation import evaluate, guarantee, miss_rate, set_threshold
from pro_lib.metrics.correctness import AnswerRules


def records(n_texts, *, n_copies=1, relation=None):
    """Return a run that has each question several times, with the same answers.

    The answers to questions with an even number are right.
    """
    texts = [*range(n_texts)] * n_copies
    rows = []
    for row, text in enumerate(texts):
        best = answer("x", 0.5 + text / 100, correct=text % 2 == 0)
        other = answer("z", 0.1, correct=False)
        rows.append(record(row, best, other, question=f"Question {text}?"))
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        run = importing.import_answers(rows)
    if relation:
        run.questions["relation"] = [relation(text) for text in texts]
    return run


def test_questions_of_one_text_are_one_cluster_and_without_repeats_there_is_none():
    judged = evaluate(records(4, n_copies=2))
    assert judged.answers["cluster"].tolist() == ["0", "1", "2", "3"] * 2
    assert judged.answers["text_number"].tolist() == [0, 1, 2, 3] * 2
    assert "The 8 questions have 4 different texts" in judged.sentence()
    assert sorted(judged.one_per_text(seed=1).answers["text_number"]) == [0, 1, 2, 3]
    without_repeats = evaluate(records(4))
    assert not {"cluster", "text_number"} & set(without_repeats.answers)
    assert without_repeats.cautions() == ""


def test_clusters_that_are_declared_and_texts_are_joined():
    run = records(4, n_copies=2, relation=lambda text: "ab"[text // 3])
    assert evaluate(run).answers["cluster"].tolist() == ["a", "a", "a", "b"] * 2
    # The second copy of question 0, whose first copy is in a
    run.questions.loc[4, "relation"] = "c"
    assert evaluate(run).answers["cluster"].tolist() == ["a", "a", "a", "b", "a", "a", "a", "b"]


def test_a_guarantee_counts_a_repeated_question_once():
    scores = np.arange(100.0)
    correct = scores < 60
    once = guarantee(scores, correct, target=0.5)
    copies = {"uncertainty": np.tile(scores, 3), "correct": np.tile(correct, 3)}
    texts = np.tile([f"Question {n}" for n in range(100)], 3)
    thrice = guarantee(**copies, target=0.5, unlabelled=scores, texts=texts)
    assert thrice == replace(once, n_repeats=200)
    assert "200 validation questions that repeat a text" in thrice.sentence()


def test_sets_and_their_misses_count_a_repeated_question_once():
    right = np.array([0.0, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9])
    copies = {"right": np.tile(right, 4), "search_alpha": 0.1, "texts": np.tile(np.arange(9), 4)}
    assert set_threshold(right, delta=0.3, search_alpha=0.1) == 0.3
    assert set_threshold(**copies, delta=0.3) == 0.3
    assert miss_rate(**copies, alpha=0.25) == miss_rate(right, alpha=0.25, search_alpha=0.1)


def labels_of(run, n):
    top = run.top()[["question_id", "text"]].head(n)
    return top.assign(correct=[bool(row % 2) for row in range(len(top))])


def test_labels_of_some_questions_are_said_to_be_of_these_only():
    run = records(10)
    some = evaluate(run, rules=AnswerRules(labels=labels_of(run, 4)))
    assert some.n_unlabelled == 6
    assert "6 further questions have no label or reference" in some.sentence()
    assert "the labelled questions only" in some.cautions()
    whole = evaluate(run, rules=AnswerRules(labels=labels_of(run, 10)))
    assert whole.cautions() == ""
    assert whole.n_unlabelled == 0
