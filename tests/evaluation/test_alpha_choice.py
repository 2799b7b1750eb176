"""α chosen on judged questions, and the test of the choice on questions that it did not see."""

from dataclasses import replace

import numpy as np
import pytest
from test_sweeps import evaluation_of

from pro_lib import metrics, scoring
from pro_lib.evaluation import choose_alpha, select_alpha


def two_answers(n_questions, *, seed=0):
    """Questions whose second answer has p = 0.2 or 0.01; with 0.2 most are wrong."""
    rng = np.random.default_rng(seed)
    is_split = rng.random(n_questions) < 0.5
    second = np.where(is_split, 0.2, 0.01)
    first = rng.uniform(0.3, 0.75, n_questions)
    correct = rng.random(n_questions) < np.where(is_split, 0.2, 0.8)
    log_probs = np.log(np.column_stack([first, second]))
    return evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))


EVALUATION = two_answers(400)


def test_alpha_is_the_best_on_all_questions_and_is_tested_on_the_other_half():
    choice = choose_alpha(EVALUATION, n_splits=4)
    assert choice.is_chosen
    assert choice.alpha == select_alpha(EVALUATION) == 0.2
    assert set(choice.half_alphas) == {0.2}
    # The same α was the best on every half, so each test is the AUROC on a half at 0.2.
    whole = metrics.auroc(EVALUATION.pro(0.2), EVALUATION.correct)
    nll = metrics.auroc(EVALUATION.baselines["NLL"], EVALUATION.correct)
    test = choice.tests["PRO"]
    assert test.auroc.value == pytest.approx(whole, abs=0.02)
    assert test.minus_nll.value == pytest.approx(whole - nll, abs=0.02)
    assert test.minus_nll.low > 0
    assert test.auroc.low < test.auroc.value < test.auroc.high


def test_another_score_is_tested_at_the_alpha_that_pro_chose_on_the_other_half():
    # S-PRO reads the first answers alone, so it is NLL at every α.
    first_alone = EVALUATION.log_probs[:, :1]
    with_meanings = replace(EVALUATION, meanings={"S-PRO": first_alone})
    tests = choose_alpha(with_meanings, n_splits=4).tests
    assert tests["PRO"] == choose_alpha(EVALUATION, n_splits=4).tests["PRO"]
    assert tests["S-PRO"].minus_nll.value == 0


def test_the_tested_auroc_of_a_useless_choice_is_not_above_chance():
    # Correctness is independent of the scores, so the AUROC at the best α is above 0.5 by luck.
    rng = np.random.default_rng(1)
    log_probs = np.log(rng.dirichlet(np.full(6, 0.4), size=300)[:, :5] + 1e-9)
    choices = []
    lucky = []
    for _ in range(8):
        correct = rng.random(300) < 0.5
        evaluation = evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))
        choice = choose_alpha(evaluation, n_splits=3)
        choices.append(choice.tests["PRO"].auroc.value)
        lucky.append(metrics.auroc(evaluation.pro(choice.alpha), correct))
    assert np.mean(choices) < np.mean(lucky) - 0.01


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        (EVALUATION.rows(np.arange(299)), "299 judged questions"),
        (EVALUATION.rows(np.argsort(EVALUATION.correct)[:210]), "210 judged questions"),
    ],
    ids=["few questions", "few right answers"],
)
def test_alpha_is_the_default_if_there_are_too_few_answers(evaluation, words):
    choice = choose_alpha(evaluation)
    assert (choice.alpha, choice.is_chosen, choice.tests) == (0.4, False, {})
    assert words in choice.reason


def test_alpha_is_the_default_if_all_questions_are_one_cluster():
    answers = EVALUATION.answers.assign(cluster="only")
    choice = choose_alpha(replace(EVALUATION, answers=answers))
    assert not choice.is_chosen
    assert "cannot be split into halves" in choice.reason


def test_the_default_alpha_is_not_below_that_of_an_exact_search():
    choice = choose_alpha(replace(EVALUATION.rows(np.arange(40)), search_alpha=0.5))
    assert choice.alpha == 0.5
