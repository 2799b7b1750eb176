"""Simulated worlds and the gain of PRO over NLL in them, against values worked by hand."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, legend, panels
from invented_settings import some_questions

from pro_lib import metrics, scoring
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.plots import gains, spellings, worlds
from pro_lib.plots.worlds import World, simulate


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
    return worlds.table(n_questions=200, seed=3)


def test_the_base_world_is_a_row_of_every_group_and_one_world(table):
    base = table[table["is_base"]]
    assert base["varied"].unique().tolist() == list(worlds.VARIED)
    assert len(set(base["world"])) == 1
    values = base[["k_choice", "k", "alpha", "auroc_minus_nll"]].drop_duplicates()
    assert len(values) == 5
    assert table.loc[~table["is_base"], "world"].nunique() == 32


def test_one_property_is_varied_except_for_spellings_with_calibration(table):
    properties = list(asdict(World()))
    n_changed = (table[properties] != pd.Series(asdict(World()))).sum(axis=1)
    is_both = table["varied"] == worlds.BOTH_VARIED
    assert n_changed[~is_both].max() == 1
    assert n_changed[is_both].max() == 2
    for words, (name, levels) in worlds.VARIED.items():
        group = table[table["varied"] == words]
        assert group[name].unique().tolist() == list(levels)
        assert group["level"].nunique() == len(levels)


def test_a_world_has_the_values_of_its_own_simulation(table):
    first = table[table["world"] == 0].reset_index(drop=True)
    world = World(sharpness=1.0)
    log_probs, correct = simulate(world, 200, np.random.default_rng([3, 0]))
    expected = gains.pro_minus_nll(log_probs, Verdicts(correct), alphas=(0.1, 0.4))
    pd.testing.assert_frame_equal(first[list(expected.columns)], expected)
    assert first["accuracy"].tolist() == [correct.mean()] * 5
    assert first["n_correct"].tolist() == [correct.sum()] * 5


def test_the_gain_is_the_paired_difference_to_nll():
    log_probs, correct = some_questions(120, seed=5)
    table = gains.pro_minus_nll(log_probs, Verdicts(correct), alphas=[0.2])
    assert table["k_choice"].tolist() == ["adaptive", "fixed", "fixed", "fixed"]
    assert table["k"].tolist()[1:] == [2, 5, 10]
    assert table["alpha"].isna().tolist() == [False, True, True, True]
    nll = scoring.nll(log_probs)
    scores = [scoring.pro(log_probs, alpha=0.2)]
    scores += [scoring.pro_at_k(log_probs, k) for k in (2, 5, 10)]
    assert table["nll_auroc"].tolist() == [metrics.auroc(nll, correct)] * 4
    tests = metrics.delong(np.column_stack([nll, *scores]), correct)
    low, high = tests.low, tests.high
    assert table["auroc_minus_nll"].tolist() == tests.difference[1:].tolist()
    assert table["auroc_minus_nll_low"].tolist() == low[1:].tolist()
    assert table["auroc_minus_nll_high"].tolist() == high[1:].tolist()
    assert table["p_value"].tolist() == tests.p_value[1:].tolist()
    assert table["n_differ"].tolist() == tests.n_differ[1:].tolist()


def test_both_can_be_read_at_both_widths(table):
    check_figure(worlds.draw, table, n_panels=4)
    check_figure(spellings.draw, spellings.table(table), n_panels=5)


def test_a_panel_varies_one_property_and_has_a_line_for_each_score(table):
    figure = worlds.draw(table)
    assert legend(figure) == ["α = 0.1", "α = 0.4", "K = 2", "K = 5", "base case"]
    rows = table[(table["varied"] == worlds.SPELLINGS) & (table["k"] == 2)]
    ax = figure.axes[1]
    assert list(ax.lines[2].get_ydata()) == list(rows["auroc_minus_nll"])
    ends = np.array([segment[:, 1] for segment in ax.collections[2].get_segments()])
    np.testing.assert_array_equal(ends, rows[["auroc_minus_nll_low", "auroc_minus_nll_high"]])


def test_panels_by_calibration_are_in_its_order_and_say_what_it_means(table):
    figure = spellings.draw(spellings.table(table))
    titles = [ax.get_title().replace("\n", " ").replace("\xa0", " ") for ax in panels(figure)]
    assert titles == [
        "calibration 0.5 (overconfident)",
        "calibration 0.7 (overconfident)",
        "calibration 1 (calibrated)",
        "calibration 1.4 (underconfident)",
        "calibration 2 (underconfident)",
    ]
    assert figure.get_supxlabel() == "spellings of each meaning"


def test_a_table_of_a_user_needs_few_columns_and_a_missing_one_is_named(table):
    needed = ["varied", "level", "k_choice", "k", "alpha", *gains.GAIN]
    ax = worlds.draw(table[needed]).axes[0]
    levels = [label.get_text() for label in ax.get_xticklabels()]
    assert levels == ["0.5", "0.7", "1", "1.4", "2"]
    with pytest.raises(SentenceError, match=r"^The table has no column 'level'; plots.worlds need"):
        worlds.draw(table.drop(columns="level"))


def world(number, *differences, p_value=1e-9, **others):
    """Return the rows of a world, in which PRO with K = 5, 10, 2 has these differences to NLL."""
    row = {"world": number, "calibration": 1.0, "n_spellings": 1, "n_questions": 100, "alpha": 0.4}
    row |= {
        "share_outside": 0.0,
        "k_choice": "fixed",
        "p_value": p_value,
        "varied": worlds.SPELLINGS,
    } | others
    rows = []
    for k, difference in zip((5, 10, 2), differences, strict=False):
        ends = {"auroc_minus_nll_low": difference - 0.01, "auroc_minus_nll_high": difference + 0.01}
        rows.append({**row, "k": k, "auroc_minus_nll": difference, **ends})
    return rows


def test_the_caption_counts_points_of_a_world_once_and_corrects_for_all_comparisons():
    ideal = world(0, -0.1, -0.1, -0.2)
    other = world(1, 0.3, 0.34, -0.1, n_spellings=3)
    over = world(2, 0.2, p_value=0.02, calibration=0.5)
    by_alpha = [row | {"k_choice": "adaptive"} for row in world(0, -0.03, p_value=0.5)]
    caption = worlds.caption(pd.DataFrame([*ideal, *ideal, *other, *over, *by_alpha]))
    assert "K = 10 differs from K = 5 by at most 0.040 and is not drawn." in caption
    # The p-value of 0.02 is the last but one of six, so Holm's correction doubles it.
    assert finding(caption) == (
        "A fixed K makes PRO significantly better than NLL at 1 of 2 points with several spellings "
        "alone (worse at 1), 1 of 1 points with overconfidence alone (worse at 0) and 0 of 2 "
        "points with neither (worse at 2); with α = 0.4, PRO is within 0.030 of NLL."
    )


def test_the_caption_of_spellings_counts_comparisons():
    differences = {0: (-0.1, -0.1), 1: (0.1, 0.1, -0.1)}
    rows = []
    for number, values in differences.items():
        rows += world(number, *values, n_spellings=number + 1)
        by_alpha = world(number, 0.1 * number, n_spellings=number + 1, p_value=1.0)
        rows += [row | {"k_choice": "adaptive"} for row in by_alpha]
    caption = spellings.caption(pd.DataFrame(rows))
    assert finding(caption) == (
        "A fixed K makes PRO significantly better than NLL at 1 of 2 points with several spellings "
        "alone (worse at 1) and 0 of 1 points with neither (worse at 1); with α = 0.4, PRO is "
        "within 0.100 of NLL; from 1 to 2 spellings, PRO minus NLL with a fixed K changes by "
        "+0.200."
    )
