"""The tidy tables behind the figures, on answers whose values are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import EVALUATION, SPLITS, evaluation_of, some_questions, splits_of

from pro_lib import metrics, scoring
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.plots import alpha_sweep, gains, redraws
from pro_lib.plots.settings import SETTING_COLUMNS, aurocs, overview

NAMES = ("alpha_sweep", "alpha_choices", "redraws", "overview")


@pytest.fixture(scope="module")
def made():
    return {
        "alpha_sweep": alpha_sweep.table(SPLITS),
        "alpha_choices": alpha_sweep.choices(SPLITS),
        "redraws": redraws.table([splits_of(EVALUATION, 30)] * 2, quantity="alpha"),
        "overview": overview([each.reported for each in SPLITS]),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_table_begins_with_its_setting(name, made):
    table = made[name]
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    expected = EVALUATION if name == "redraws" else SPLITS[0].reported
    labels = {"dataset": "d", "model": "m", "strategy": expected.strategy, "split": "test"}
    labels |= {"n_questions": len(expected.correct), "n_correct": expected.correct.sum()}
    first = table.iloc[1] if name == "alpha_sweep" else table.iloc[0]
    if name == "alpha_sweep":  # it begins with the validation questions
        labels["n_correct"] = SPLITS[0].validation.correct.sum()
    assert first[list(labels)].to_dict() == labels
    assert table.index.equals(pd.RangeIndex(len(table)))


def test_the_difference_to_nll_is_paired_and_by_hand():
    # Wrong: scores 3 and 1; right: 2 and 0. NLL orders three of four pairs, the score 0 all four:
    # with scores 3, 2 for the wrong ones and 1, 0 for the right ones AUROC is 1, and minus 0.75.
    correct = [False, False, True, True]
    evaluation = evaluation_of(np.log([[0.5]] * 4), correct, NLL=[3.0, 1.0, 2.0, 0.0])
    score = np.array([[3.0, 2.0, 1.0, 0.0]]).T
    columns = aurocs(score, evaluation)
    assert columns["n_differ"].tolist() == [2]
    assert columns["auroc_minus_nll"].tolist() == [0.25]
    assert np.isnan(columns["p_value"]).all()  # fewer than five correct answers
    correct = np.repeat(correct, 3)
    evaluation = evaluation_of(
        np.log([[0.5]] * 12), correct, NLL=np.repeat([3.0, 1.0, 2.0, 0.0], 3)
    )
    score = np.repeat(score, 3, axis=0)
    columns = aurocs(score, evaluation)
    tests = metrics.delong(np.column_stack([evaluation.baselines["NLL"], score]), correct)
    assert columns["p_value"].tolist() == [tests.p_value[1]]
    low, high = tests.interval()
    assert columns["auroc_minus_nll_low"].tolist() == [low[1]]
    assert columns["auroc_minus_nll_high"].tolist() == [high[1]]


def test_clusters_change_the_interval_of_the_difference_to_nll():
    log_probs, correct = some_questions(120, seed=5)
    evaluation = evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))
    pairs = evaluation.answers.assign(cluster=np.arange(120) // 40)
    scores = scoring.pro(log_probs, alpha=[0.0])
    single, clustered = (
        aurocs(scores, each) for each in (evaluation, replace(evaluation, answers=pairs))
    )
    widths = [
        each["auroc_minus_nll_high"] - each["auroc_minus_nll_low"] for each in (single, clustered)
    ]
    assert widths[0] != widths[1]


def test_one_class_has_no_auroc_and_a_warning():
    wrong = evaluation_of(np.log([[0.5], [0.4], [0.3]]), [False] * 3, NLL=[1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="all 3 judged answers are wrong, so that AUROC is NaN"):
        columns = aurocs(np.zeros((3, 2)), wrong)
    assert columns["interval"] == "by question"
    for name in ("auroc", "auroc_low", "auroc_high"):
        assert np.isnan(columns[name]).all()


def test_overview_counts_correct_answers_and_says_what_is_left_out():
    reported = replace(SPLITS[0].reported, unavailable=("SE, alias",), note="Published answers.")
    row = overview([reported]).iloc[0]
    assert row["accuracy"] == reported.correct.mean()
    assert row["note"] == f"{reported.exclusions} Not available: SE, alias. Published answers."
    repeated = replace(reported, log_probs=np.log(np.full((120, 2), 0.6)))
    assert overview([repeated]).iloc[0]["n_above_one"] == 120


def test_printed_values_are_those_of_the_settings_of_a_table():
    settings = pd.DataFrame({"dataset": ["trivia_qa"], "model": ["google/gemma-2b"]})
    nothing = pd.DataFrame({"dataset": ["world-facts"], "model": ["facts-2m"]})
    assert alpha_sweep.printed(nothing).empty
    named = settings.assign(dataset="mandarjoshi/trivia_qa")
    assert alpha_sweep.printed(named)["alpha"].tolist() == [0.4]


def test_scores_that_differ_by_rounding_are_not_counted_as_different():
    # The second answer is as probable as the first up to 1e-8, so PRO with K = 2 is NLL up to that.
    probabilities = np.linspace(0.1, 0.4, 20)
    log_probs = np.log(np.column_stack([probabilities, probabilities * (1 - 1e-8)]))
    table = gains.pro_minus_nll(log_probs, Verdicts(np.arange(20) % 2 == 0), alphas=[0.05])
    assert table["n_differ"].tolist() == [0, 0, 0, 0]
