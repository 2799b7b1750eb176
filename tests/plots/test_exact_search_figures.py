"""The figures of exact search: readable, and true to their tables."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import unreadable

from pro_lib import plots
from pro_lib.common.validation import SentenceError

SETTINGS = pd.DataFrame({"dataset": ["world-facts", "mine"], "model": "facts-2m"})


def search_tables(settings=SETTINGS):
    """The found answers and bounds of a search, at three αs in each setting."""
    table = settings.merge(pd.DataFrame({"alpha": [0.4, 0.1, 0.005]}), how="cross").assign(
        n_questions=1234
    )
    shares = (
        "recall",
        "share_all_recalled",
        "share_certified",
        "share_fallback",
        "share_undecided",
    )
    forwards = ("token_forwards", "beam_forwards", "greedy_forwards")
    for number, name in enumerate((*shares, *forwards)):
        table[name] = 0.1 * number + table["alpha"]
    bounds = table[["dataset", "model", "alpha", "n_questions"]].copy()
    for number, name in enumerate(("pro", "alpha_floor", "tree_bound", "entropy")):
        bounds[name] = number - table["alpha"]
    ends = {"entropy_low": bounds["entropy"] - 0.2, "entropy_high": bounds["entropy"] + 0.2}
    return table, bounds.assign(**ends)


def score_table(settings=SETTINGS):
    """Four scores in each setting, with intervals."""
    rows = [
        ("PRO", "threshold", "validation", 0.0),
        ("PRO", "diverse_beam", "validation", -0.01),
        ("probability not found", "threshold", "validation", -0.05),
        ("PRO", "diverse_beam", "exact search", 0.002),
    ]
    columns = ["method", "strategy", "alpha_choice", "auroc_minus_pro"]
    scores = pd.DataFrame(rows, columns=columns)
    scores["auroc"] = 0.8 + scores["auroc_minus_pro"]
    for name in ("auroc", "auroc_minus_pro"):
        scores[f"{name}_low"] = scores[name] - 0.01
        scores[f"{name}_high"] = scores[name] + 0.01
    return settings.merge(scores, how="cross").assign(n_questions=1234)


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_both_can_be_read_at_one_and_at_two_columns(figure_columns):
    options = {"figure_columns": figure_columns, "title": "A title of mine"}
    figures = [plots.exact_search(*search_tables(), **options)]
    figures.append(plots.exact_search_auroc(score_table(), **options))
    for figure, n_panels in zip(figures, (8, 4), strict=True):
        assert unreadable(figure, 7) == []
        assert len(figure.axes) == n_panels
        assert figure.get_suptitle() == "A title of mine"
        assert figure.get_supxlabel()


def test_every_panel_of_a_search_names_its_axis_and_its_lines():
    table, bounds = search_tables(SETTINGS[:1])
    figure = plots.exact_search(table, bounds)
    assert [ax.get_title() for ax in figure.axes] == [
        "answers that beams find",
        "status of the search",
        "entropy and its lower bounds",
        "cost",
    ]
    assert all(ax.get_ylabel() for ax in figure.axes)
    legends = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes]
    statuses = [text.partition(":")[0] for text in legends[1]]
    assert statuses == ["certified", "fallback", "undecided"]
    assert legends[3] == ["exact search", "diverse beams", "greedy decoding"]
    line = figure.axes[1].lines[1]
    np.testing.assert_array_equal(line.get_xydata(), table[["alpha", "share_fallback"]])
    [band] = figure.axes[2].collections  # the entropy alone has an interval
    assert band.get_datalim(figure.axes[2].transData).y0 == pytest.approx(3 - 0.4 - 0.2)


def test_a_search_without_bounds_has_three_panels():
    table, bounds = search_tables(SETTINGS[:1])
    assert len(plots.exact_search(table).axes) == 3
    few = [each.drop(columns=["dataset", "model"]) for each in (table, bounds)]
    few[1] = few[1].drop(columns=["entropy_low", "entropy_high"])
    assert len(plots.exact_search(*few).axes) == 4


def test_scores_are_named_by_their_answers_and_drawn_beside_their_difference():
    table = score_table(SETTINGS[:1])
    auroc, difference = plots.exact_search_auroc(table).axes
    assert [label.get_text() for label in auroc.get_yticklabels()] == [
        "PRO of exact search",
        "PRO of beams",
        "PRO of beams, α of exact search",
        "probability of other answers",
    ]
    assert list(auroc.lines[0].get_xdata()) == list(table["auroc"])
    assert list(difference.lines[0].get_xdata()) == list(table["auroc_minus_pro"])
    ends = [tuple(segment[:, 0]) for segment in difference.collections[0].get_segments()]
    limits = table[["auroc_minus_pro_low", "auroc_minus_pro_high"]]
    assert ends == list(limits.itertuples(index=False, name=None))


def test_a_missing_column_is_named():
    table, bounds = search_tables()
    with pytest.raises(
        SentenceError, match=r"^The table has no column 'recall'; plots.exact_search needs"
    ):
        plots.exact_search(table.drop(columns="recall"))
    with pytest.raises(SentenceError, match=r"^The table has no column 'entropy'"):
        plots.exact_search(table, bounds.drop(columns="entropy"))
    with pytest.raises(SentenceError, match=r"^The table has no column 'auroc_minus_pro_low'"):
        plots.exact_search_auroc(score_table().drop(columns="auroc_minus_pro_low"))
