"""Test the figures of the gain of PRO over NLL: they are readable and agree with their tables."""

import numpy as np
import pytest
from figure_checks import legend, unreadable

from pro_lib import plots
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation import tables


@pytest.fixture(scope="module")
def worlds():
    return tables.worlds(n_questions=100)


@pytest.fixture(scope="module")
def alone(worlds):
    return worlds[worlds["varied"] != tables.BOTH_VARIED]


@pytest.fixture(scope="module")
def causes(alone):
    parts = alone[alone["varied"] == "answers found per question"]
    names = {
        "2": "nothing changed",
        "5": "probabilities made to sum to 1",
        "10": "repeats kept",
        "20": "other",
    }
    return parts.assign(cause=parts["level"].map(names), dataset="world-facts", model="facts-2m")


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_all_can_be_read_at_one_and_at_two_columns(figure_columns, worlds, alone, causes):
    options = {"figure_columns": figure_columns, "title": "A title of mine"}
    both = worlds[worlds["varied"].isin([tables.BOTH_VARIED, "spellings of each meaning"])]
    figures = [plots.worlds(alone, **options), plots.worlds(both, panel="calibration", **options)]
    figures.append(plots.causes(causes, **options))
    for figure, n_panels in zip(figures, (7, 5, 1), strict=True):
        assert unreadable(figure, 7) == []
        assert len(figure.axes) == n_panels
        assert figure.legends[0].get_title().get_text() == "A title of mine"
        assert "95 % interval" in figure.get_supxlabel().replace("\n", " ")
        assert figure.get_supylabel()


def titles(figure):
    return [ax.get_title(loc="right").replace("\n", " ").replace("\xa0", " ") for ax in figure.axes]


def test_a_figure_of_worlds_names_what_is_varied_and_describes_the_base_world(alone):
    figure = plots.worlds(alone)
    assert titles(figure) == [
        "sharpness: how unequal the probabilities are",
        "number of possible meanings of an answer",
        "calibration (below 1: overconfident)",
        "spellings of each meaning",
        "probability that no possible answer is true",
        "which answers PRO is given",
        "number of answers that PRO is given",
    ]
    rows = [label.get_text() for label in figure.axes[5].get_yticklabels()]
    assert rows == ["the most probable (base)", "samples without repeats", "samples with repeats"]
    below = figure.get_supxlabel().replace("\n", " ")
    assert "AUROC of PRO minus AUROC of NLL" in below
    assert "Base world: sharpness 4, 30 meanings, calibrated, one spelling of each meaning" in below
    assert "100 questions in each world." in below
    assert legend(figure) == [
        *("PRO, α = 0.1", "PRO, α = 0.4"),
        *("PRO, K = 2", "PRO, K = 5", "PRO, K = 10"),
    ]


def test_points_and_intervals_are_those_of_the_table(alone):
    figure = plots.worlds(alone)
    third = alone[(alone["varied"] == "spellings of each meaning") & (alone["k"] == 2)]
    ax = figure.axes[3]
    assert list(ax.lines[2].get_xdata()) == list(third["auroc_minus_nll"])
    ends = np.array([segment[:, 0] for segment in ax.collections[2].get_segments()])
    np.testing.assert_array_equal(ends, third[["auroc_minus_nll_low", "auroc_minus_nll_high"]])


def test_panels_by_calibration_are_in_its_order_and_say_what_it_means(worlds):
    both = worlds[worlds["varied"].isin([tables.BOTH_VARIED, "spellings of each meaning"])]
    figure = plots.worlds(both, panel="calibration", y="spellings of each meaning")
    assert figure.get_supylabel() == "spellings of each meaning"
    assert titles(figure) == [
        "calibration 0.5 (overconfident)",
        "calibration 0.7 (overconfident)",
        "calibration 1 (calibrated)",
        "calibration 1.4 (underconfident)",
        "calibration 2 (underconfident)",
    ]


def test_a_table_of_a_user_needs_few_columns_and_a_missing_one_is_named(alone, causes):
    gain = [
        "k_choice",
        "k",
        "alpha",
        "auroc_minus_nll",
        "auroc_minus_nll_low",
        "auroc_minus_nll_high",
    ]
    figure = plots.worlds(alone[["varied", "level", *gain]])
    assert "Base world" not in figure.get_supxlabel()
    assert len(plots.causes(causes[["cause", *gain]]).axes) == 1
    with pytest.raises(
        SentenceError, match=r"^The table has no column 'level'; plots.worlds needs"
    ):
        plots.worlds(alone.drop(columns="level"))
    with pytest.raises(
        SentenceError, match=r"^The table has no column 'cause'; plots.causes needs"
    ):
        plots.causes(alone)
