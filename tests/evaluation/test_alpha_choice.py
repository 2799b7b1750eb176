"""α chosen on some of the judged questions; results are measured on the others."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import evaluation_of

from pro_lib import scoring
from pro_lib.evaluation import held_out_alpha


def two_answers(n_questions, *, seed=0):
    """Questions whose second answer has p = 0.2 or 0.01; with 0.2 most are wrong."""
    rng = np.random.default_rng(seed)
    is_split = rng.random(n_questions) < 0.5
    second = np.where(is_split, 0.2, 0.01)
    first = rng.uniform(0.3, 0.75, n_questions)
    correct = rng.random(n_questions) < np.where(is_split, 0.2, 0.8)
    log_probs = np.log(np.column_stack([first, second]))
    return evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))


EVALUATION = two_answers(700)
IDS = EVALUATION.answers["question_id"]
QUESTIONS = pd.DataFrame({"question_id": IDS, "question": "Question " + IDS + "?"})


def chosen(n_questions=700, *, order=slice(None), evaluation=EVALUATION, **columns):
    """Return the choice on the first questions, in another order and with further columns."""
    rows = np.arange(n_questions)[order]
    questions = QUESTIONS.assign(**columns)
    cluster = "relation" if "relation" in columns else None
    return held_out_alpha(evaluation.select(rows), questions, cluster=cluster)


def reported_ids(choice, order=slice(None)):
    rows = np.arange(len(choice.is_reported))[order]
    return set(IDS.iloc[rows[choice.is_reported]])


def test_alpha_is_chosen_on_one_half_and_results_are_of_the_other():
    choice = chosen()
    n_reported = int(choice.is_reported.sum())
    assert 300 < n_reported < 400
    assert choice.alpha == 0.2
    assert f"chosen on {700 - n_reported} questions" in choice.reason
    # Equal second answers in the reported half would make 0.4 the best α there.
    changed = replace(EVALUATION, log_probs=EVALUATION.log_probs.copy())
    changed.log_probs[choice.is_reported, 1] = np.log(0.01)
    assert chosen(evaluation=changed).alpha == 0.2


def test_the_half_of_a_question_depends_on_its_text_alone():
    backwards = slice(None, None, -1)
    all_ids = reported_ids(chosen())
    assert reported_ids(chosen(order=backwards), backwards) == all_ids
    assert reported_ids(chosen(600)) == all_ids & set(IDS[:600])
    renamed = chosen(question=QUESTIONS["question"].str.upper() + " ")
    assert reported_ids(renamed) == all_ids
    assert reported_ids(chosen(question=None)) != all_ids  # the ids take the place of the texts


@pytest.mark.parametrize(
    "names",
    [IDS.astype(int) % 50, (IDS.astype(int) // 20).astype(str)],
    ids=["numbers", "texts"],
)
def test_a_cluster_is_in_one_half_which_depends_on_its_name_alone(names):
    choice = chosen(relation=names)
    assert pd.Series(choice.is_reported).groupby(names).nunique().max() == 1
    is_kept = (names.astype(str) != names.astype(str).iloc[0]).to_numpy()
    without_first = chosen(order=is_kept, relation=names)
    np.testing.assert_array_equal(without_first.is_reported, choice.is_reported[is_kept])


def test_clusters_that_share_a_text_are_in_one_half():
    relation = IDS.astype(int) // 10
    joined = relation.where(relation > 30, 0).astype(str)  # by texts that they share
    evaluation = replace(EVALUATION, answers=EVALUATION.answers.assign(cluster=joined))
    is_reported = chosen(evaluation=evaluation, relation=relation).is_reported
    assert len(set(is_reported[:310])) == 1


def test_three_hundred_validation_questions_choose_alpha_alone():
    split = np.where(np.arange(700) < 300, "validation", "test")
    choice = chosen(450, split=split)
    np.testing.assert_array_equal(choice.is_reported, np.arange(450) >= 300)
    assert chosen(300, split=split).is_reported is None
    split[0] = "test"  # 299 do not suffice
    assert chosen(599, split=split).is_reported is None
    np.testing.assert_array_equal(chosen(split=split).is_reported, chosen().is_reported)


FEW_RIGHT = replace(EVALUATION, answers=EVALUATION.answers.assign(correct=np.arange(700) < 35))


@pytest.mark.parametrize(
    ("choice", "counts"),
    [
        (chosen(599), "599 judged questions"),
        (chosen(evaluation=FEW_RIGHT), "700 judged questions (35 right)"),
        (chosen(relation="only"), "700 judged questions"),
    ],
    ids=["few questions", "few right answers", "one cluster"],
)
def test_alpha_is_the_default_if_there_are_too_few_answers(choice, counts):
    assert (choice.alpha, choice.is_reported) == (0.4, None)
    assert counts in choice.reason


def test_the_default_alpha_is_not_below_that_of_an_exact_search():
    assert chosen(40, evaluation=replace(EVALUATION, search_alpha=0.5)).alpha == 0.5
