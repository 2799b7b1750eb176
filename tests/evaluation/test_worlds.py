"""Simulated worlds and the gain of PRO over NLL in them, against values worked by hand."""

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import evaluation_of, some_questions
from judged_questions import s_pro

from pro_lib import metrics, scoring
from pro_lib.evaluation import tables
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.evaluation.tables import gains
from pro_lib.evaluation.tables.worlds import World, simulate
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo


def simulated(n_questions=4000, **properties):
    return simulate(World(**properties), n_questions, np.random.default_rng(1))


def test_a_calibrated_model_is_right_as_often_as_it_says():
    log_probs, correct = simulated()
    confidence = np.exp(log_probs.max(axis=1))
    # The standard error of the share of correct answers is at most 0.008.
    assert abs(confidence.mean() - correct.mean()) < 0.03


@pytest.mark.parametrize(("calibration", "is_higher"), [(0.5, True), (2.0, False)])
def test_calibration_says_in_which_direction_the_model_errs(calibration, is_higher):
    log_probs, correct = simulated(calibration=calibration)
    confidence = np.exp(log_probs.max(axis=1))
    assert (confidence.mean() > correct.mean() + 0.05) == is_higher
    assert (confidence.mean() < correct.mean() - 0.05) == (not is_higher)


def test_all_meanings_of_a_world_without_spellings_have_all_the_probability():
    log_probs, _ = simulated(n_meanings=5, n_answers=10)
    assert log_probs.shape == (4000, 5)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1)


def test_without_sharpness_all_meanings_are_equally_probable():
    log_probs, correct = simulated(sharpness=0.0, n_meanings=4)
    np.testing.assert_allclose(np.exp(log_probs), 0.25)
    assert abs(correct.mean() - 0.25) < 0.03


def test_spellings_share_the_probability_of_their_meaning():
    log_probs, correct = simulated(n_spellings=3, n_meanings=2, n_answers=6)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1)
    # The most probable spelling has a third of its meaning's probability, or more.
    confidence = np.exp(log_probs.max(axis=1))
    assert confidence.mean() < correct.mean() - 0.1


def test_no_answer_is_right_if_the_truth_is_always_outside():
    assert not simulated(share_outside=1.0)[1].any()


def test_samples_repeat_and_distinct_samples_do_not():
    samples, _ = simulated(answers_found="samples")
    distinct, _ = simulated(answers_found="distinct samples")
    assert not np.isnan(samples).any()
    assert (np.exp(samples).sum(axis=1) > 1).any()
    assert np.nansum(np.exp(distinct), axis=1).max() <= 1 + 1e-9
    assert np.isnan(distinct).any()
    kept = ~np.isnan(distinct)
    np.testing.assert_array_equal(distinct[kept], samples[kept])


# --- The tables ---


@pytest.fixture(scope="module")
def table():
    return tables.worlds(n_questions=200, seed=3)


def test_the_base_world_is_a_row_of_every_group_and_one_world(table):
    base = table[table["is_base"]]
    assert base["varied"].unique().tolist() == list(gains.VARIED)
    assert len(set(base["world"])) == 1
    values = base[["k_choice", "k", "alpha", "auroc_minus_nll"]].drop_duplicates()
    assert len(values) == 5
    assert table.loc[~table["is_base"], "world"].nunique() == 32


def test_one_property_is_varied_except_for_spellings_with_calibration(table):
    properties = list(asdict(World()))
    n_changed = (table[properties] != pd.Series(asdict(World()))).sum(axis=1)
    is_both = table["varied"] == tables.BOTH_VARIED
    assert n_changed[~is_both].max() == 1
    assert n_changed[is_both].max() == 2
    for words, (name, levels) in gains.VARIED.items():
        group = table[table["varied"] == words]
        assert group[name].unique().tolist() == list(levels)
        assert group["level"].nunique() == len(levels)


def test_a_world_has_the_values_of_its_own_simulation(table):
    first = table[table["world"] == 0].reset_index(drop=True)
    world = World(sharpness=1.0)
    log_probs, correct = simulate(world, 200, np.random.default_rng([3, 0]))
    expected = tables.pro_minus_nll(log_probs, Verdicts(correct), alphas=(0.1, 0.4))
    pd.testing.assert_frame_equal(first[list(expected.columns)], expected)
    assert first["accuracy"].tolist() == [correct.mean()] * 5
    assert first["n_correct"].tolist() == [correct.sum()] * 5


def test_the_gain_is_the_paired_difference_to_nll():
    log_probs, correct = some_questions(120, seed=5)
    table = tables.pro_minus_nll(log_probs, Verdicts(correct), alphas=[0.2])
    assert table["k_choice"].tolist() == ["adaptive", "fixed", "fixed", "fixed"]
    assert table["k"].tolist()[1:] == [2, 5, 10]
    assert table["alpha"].isna().tolist() == [False, True, True, True]
    nll = scoring.nll(log_probs)
    scores = [scoring.pro(log_probs, alpha=0.2)]
    scores += [scoring.pro_at_k(log_probs, k) for k in (2, 5, 10)]
    assert table["nll_auroc"].tolist() == [metrics.auroc(nll, correct)] * 4
    tests = metrics.delong(np.column_stack([nll, *scores]), correct)
    low, high = tests.interval()
    assert table["auroc_minus_nll"].tolist() == tests.difference[1:].tolist()
    assert table["auroc_minus_nll_low"].tolist() == low[1:].tolist()
    assert table["auroc_minus_nll_high"].tolist() == high[1:].tolist()
    assert table["p_value"].tolist() == tests.p_value[1:].tolist()
    assert table["n_differ"].tolist() == [(score != nll).sum() for score in scores]


PROBABILITIES = [
    [0.6, 0.3, 0.3, 0.005],
    [0.5, 0.2, 0.1, 0.1],
    [0.4, 0.4, 0.05, 0.001],
    [0.3, 0.2, 0.2, 0.2],
] * 3


def setting(**columns):
    """Return an evaluation and the run of twelve questions.

    The second and the third answer may be the same.
    """
    answers = []
    for number, row in enumerate(PROBABILITIES):
        for rank, probability in enumerate(row):
            text = "x" if rank == 2 and probability == row[1] else str(rank)
            answer = {
                "question_id": str(number),
                "rank": rank,
                "text": text,
                "token_ids": (ord(text),),
            }
            answer |= {
                "token_log_probs": (np.log(probability),),
                "log_prob": np.log(probability) + 0.1,
            }
            answers.append(answer | {"end_log_prob": -0.1, "finished": True})
    ids = [str(number) for number in range(12)]
    questions = pd.DataFrame({"question_id": ids, "question": ids, "references": [("0",)] * 12})
    info = RunInfo("d", "m", "diverse_beam", {}, {}, 12)
    run = Run(pd.DataFrame(answers).assign(**columns), questions, info)
    correct = np.arange(12) % 2 == 0
    log_probs = run.log_probs()
    evaluation = evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))
    return evaluation, run


def test_each_cause_is_removed_from_the_answers():
    evaluation, run = setting()
    removed = gains._without_causes(evaluation, run)
    assert removed["spellings merged"] is None
    np.testing.assert_array_equal(removed["nothing changed"], evaluation.log_probs)
    mass = np.nansum(np.exp(removed["probabilities made to sum to 1"]), axis=1)
    np.testing.assert_allclose(mass, 1)
    kept = removed["answers below 0.01 left out"]
    assert np.nanmin(kept) >= np.log(0.01)
    assert np.isnan(kept).sum() > np.isnan(evaluation.log_probs).sum()
    top = np.nanmax(removed["endings left out"], axis=1)
    np.testing.assert_allclose(top, np.nanmax(evaluation.log_probs, axis=1) + 0.1)


def test_an_answer_below_001_stays_if_it_is_the_most_probable_one():
    evaluation, run = setting()
    rare = replace(evaluation, log_probs=np.log([[0.004, 0.002]] * 12))
    kept = gains._without_causes(rare, run)["answers below 0.01 left out"]
    np.testing.assert_array_equal(np.isnan(kept), [[False, True]] * 12)


def test_the_table_of_causes_has_four_rows_for_each_cause_that_can_be_removed():
    evaluation, run = setting()
    merged = replace(evaluation, alpha_scores={"S-PRO, alias": s_pro(evaluation.log_probs)})
    every = tables.causes(merged, run, alpha=0.3)
    assert every["cause"].value_counts().to_dict() == dict.fromkeys(
        [
            "nothing changed",
            "answers below 0.01 left out",
            "probabilities made to sum to 1",
            "spellings merged",
            "endings left out",
            "repeats kept",
        ],
        4,
    )
    assert set(every["alpha"].dropna()) == {0.3}
    assert tuple(every.columns[: len(tables.SETTING_COLUMNS)]) == tables.SETTING_COLUMNS
    assert "spellings merged" not in set(tables.causes(evaluation, run)["cause"])
    closed = tables.causes(*setting(closed=False, end_log_prob=np.nan))
    assert "endings left out" not in set(closed["cause"])


def test_two_or_more_answers_are_counted_at_each_alpha():
    log_probs = np.log([[0.6, 0.3], [0.5, 0.2], [0.9, 0.05]])
    evaluation = evaluation_of(log_probs, [True, False, True], NLL=scoring.nll(log_probs))
    table = tables.two_or_more(evaluation, [0.01, 0.25, 0.5])
    assert table["n_two_or_more"].tolist() == [3, 1, 0]
    np.testing.assert_allclose(table["share_two_or_more"], [1, 1 / 3, 0])
