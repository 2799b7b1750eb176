"""Simulated worlds: what is drawn is what is said; where PRO must win it wins, where it must lose it loses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pro_lib.worlds import World

from pro_lib import metrics, scores, tables, worlds


def gain(world, k=10, n=4000):
    log_probs, correct = world.questions(n, np.random.default_rng(1))
    return metrics.auroc(scores.pro_at_k(log_probs, k), correct) - metrics.auroc(scores.nll(log_probs), correct)


def drawn(n=20_000, **world):
    return World(**world).questions(n, np.random.default_rng(0))


def test_each_panel_could_come_out_either_way():
    """Split spellings and a model too sure of itself help PRO, a calibrated and an unsure one NLL."""
    assert gain(World(spellings=5, calibration=0.5)) > 0.01
    assert gain(World(spellings=5)) > 0.005
    assert gain(World()) < -0.003
    assert gain(World(calibration=2.0)) < -0.01


def test_where_calibrated_the_probability_is_the_chance_to_be_right():
    log_probs, correct = drawn()
    p = np.exp(np.nanmax(log_probs, axis=1))
    for low in (0.1, 0.3, 0.5, 0.7, 0.9):
        of = (p >= low) & (p < low + 0.1)
        assert correct[of].mean() == pytest.approx(p[of].mean(), abs=0.03)
    assert drawn(calibration=0.5)[1].mean() < correct.mean() < drawn(calibration=2.0)[1].mean()


def test_truth_outside_is_never_right_and_spellings_share_a_meaning():
    whole = drawn()[1].mean()
    assert drawn(outside=1.0)[1].sum() == 0
    assert drawn(outside=0.5)[1].mean() == pytest.approx(whole / 2, abs=0.02)
    one, five = drawn(meanings=1), drawn(meanings=1, spellings=5)
    assert one[1].all()
    assert five[1].all()
    np.testing.assert_allclose(one[0], 0, atol=1e-12)
    np.testing.assert_allclose(np.exp(five[0]).sum(axis=1), 1)


def test_what_is_found():
    log_probs, _ = drawn(n=500, meanings=6, answers=4)
    every, _ = drawn(n=500, meanings=6, answers=6)
    np.testing.assert_allclose(np.exp(every).sum(axis=1), 1)
    np.testing.assert_allclose(np.sort(log_probs), np.sort(every)[:, 2:])
    repeated, _ = drawn(n=500, meanings=6, found="samples")
    once, _ = drawn(n=500, meanings=6, found="distinct samples")
    assert repeated.shape == (500, 10)
    assert not np.isnan(repeated).any()
    for with_repeats, without in zip(repeated, once, strict=True):
        assert set(with_repeats) == set(without[~np.isnan(without)])
        assert (~np.isnan(without)).sum() == len(set(with_repeats))
    assert (np.nansum(np.exp(once), axis=1) <= 1 + 1e-9).all()


def test_samples_are_drawn_with_their_probabilities():
    log_probs, _ = drawn(n=4000, sharpness=1.0, meanings=3, found="samples", answers=50)
    surprise = -log_probs.mean(axis=1)
    p = [np.exp(np.unique(row)) for row in log_probs]
    entropy = np.array([-(each * np.log(each)).sum() if abs(each.sum() - 1) < 1e-9 else np.nan for each in p])
    assert np.nanmean(surprise[~np.isnan(entropy)]) == pytest.approx(np.nanmean(entropy), rel=0.02)


def test_the_grid_changes_one_thing_at_a_time():
    panels = [panel for panel, _, _ in worlds.grid()]
    assert len(panels) == 43
    for panel, level, world in worlds.grid():
        differs = [name for name, value in vars(World()).items() if getattr(world, name) != value]
        assert len(differs) <= 1 + ("," in panel)
        assert str(getattr(world, panel.split(",")[0])) == level


def test_the_table_of_worlds(monkeypatch):
    two = [("a", "1", World()), ("b", "1", World()), ("b", "2", World(spellings=5))]
    monkeypatch.setattr(worlds, "grid", lambda: iter(two))
    table = tables.worlds_table(n_questions=500)
    assert list(table["score"].unique()) == ["α = 0.1", "α = 0.4", "K = 2", "K = 5", "K = 10"]
    same = ["accuracy", "nll", "score", "gain", "low", "high"]
    of = [table[(table["panel"] == panel) & (table["level"] == level)][same].to_numpy() for panel, level, _ in two]
    assert (of[0] == of[1]).all()
    log_probs, correct = World(spellings=5).questions(500, np.random.default_rng([0, 1]))
    expected = metrics.auroc(scores.pro_at_k(log_probs, 5), correct) - metrics.auroc(scores.nll(log_probs), correct)
    assert of[2][3, 3] == pytest.approx(expected)
    assert of[2][3, 4] < expected < of[2][3, 5]


@given(st.floats(0.02, 0.5), st.floats(0.01, 0.99), st.lists(st.floats(0.001, 1), min_size=1, max_size=8))
def test_no_question_overtakes_more_than_the_map_says(alpha, first, rest):
    """PRO at α of any distinct answers with this p_1 is at most the NLL of the least p_1 that is overtaken."""
    others = np.minimum(np.array(rest) / sum(rest) * (1 - first), first)
    [pro] = scores.pro(np.log([[first, *others]]), alpha=alpha)
    least = worlds.least_overtaken(first, alpha)
    assert pro <= (-np.log(first) if np.isnan(least) else -np.log(least)) + 1e-9


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.4])
def test_the_maps_edge_is_reached(alpha):
    for first in (alpha, 0.5, 1 - alpha):
        [pro] = scores.pro(np.log([[first, alpha]]), alpha=alpha)
        assert np.exp(-pro) == pytest.approx(worlds.least_overtaken(first, alpha))
    assert np.isnan(worlds.least_overtaken([alpha / 2, 1 - alpha / 2], alpha)).all()
