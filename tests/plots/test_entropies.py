"""Test the figure of the entropy of the answers to each question."""

from dataclasses import replace

import numpy as np
import pandas as pd
from figure_checks import check_figure, finding, grid
from test_answer_sets import exact_search

from pro_lib.plots import entropies


def test_entropies_stand_beside_the_bounds_of_the_search():
    search = exact_search()
    samples = replace(
        search, answers=search.answers.assign(path_entropy=[1.0] * 10 + [1.0, 3.0, 2.0])
    )
    ends = search.answers.tail(1).assign(path_entropy=4.0)
    samples = replace(
        samples,
        answers=pd.concat([samples.answers, ends]),
        info=replace(search.info, strategy="multinomial"),
    )
    table = entropies.table([(search, samples)])
    assert table["question_id"].tolist() == ["10", "11"]
    assert table["entropy"].tolist() == [2.0, 3.0]
    assert table["tree_bound"].tolist() == [0.5, 0.5]
    assert table["strategy"].unique().tolist() == ["multinomial"]
    assert (table["entropy_low"] < table["entropy"]).all()
    assert table["n_samples"].tolist() == [2, 2]
    assert table["search_alpha"].unique().tolist() == [search.search_alpha]


def invented(**others):
    table = grid(**others, question_id=range(300))
    table = table.assign(entropy=0.8, tree_bound=table["auroc"], entropy_low=0.5, entropy_high=1.0)
    return table.assign(n_samples=10, search_alpha=0.01)


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["facts-2m", "facts-1m"]}
    check_figure(entropies.draw, invented(**setting), n_panels=4)


def test_at_most_60_questions_are_drawn_in_the_order_of_their_bound():
    [ax] = entropies.draw(invented(dataset=["d"], model=["m"])).axes
    bounds = ax.lines[0].get_ydata()
    assert len(bounds) == 60
    assert (np.diff(bounds) >= 0).all()


def test_an_interval_that_reaches_0_is_an_arrow_at_the_end_of_the_logarithmic_axis():
    table = invented(dataset=["d"], model=["m"]).head(3)
    table = table.assign(tree_bound=[0.5, 0.6, 0.7], entropy_low=[0.0, 0.5, 0.5])
    [ax] = entropies.draw(table).axes
    least, _ = ax.get_ylim()
    assert least == 0.4  # a fifth below the least value
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), [[1 / 3, least]])


def test_the_caption_has_the_share_of_the_bound_in_the_entropy():
    bounds = {"entropy": [1.0, 2.0], "tree_bound": [0.5, 0.6]}
    table = pd.DataFrame({"dataset": "d", "model": "m", **bounds})
    caption = entropies.caption(table.assign(n_questions=2, n_samples=10, search_alpha=0.01))
    assert caption.startswith("2 questions, in equal steps")
    assert "search with α = 0.01" in caption
    assert "over 10 samples" in caption
    assert finding(caption) == (
        "Over all n questions, the mean lower bound is 0.55 nats, which is 37 % of the estimated "
        "mean entropy: 50 % in the quarter of the questions with the smallest bounds, and 30 % in "
        "the quarter with the largest."
    )
