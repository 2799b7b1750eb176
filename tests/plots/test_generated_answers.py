"""Test the figure of the generated answers, and the table of their cost."""

import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid
from invented_settings import beams

from pro_lib.plots import generated_answers


def test_generated_answers_are_counted_with_and_without_repeats():
    table = generated_answers.table([beams()], alpha=0.3)
    assert table["n_answers"].tolist() == [3, 1]
    assert table["n_distinct"].tolist() == [2, 1]
    assert table["mass"].tolist() == pytest.approx([0.9, 0.2])
    assert table["mass_with_repeats"].tolist() == pytest.approx([1.5, 0.2])
    assert table["k"].tolist() == [2, 1]
    assert table["n_cut"].tolist() == [1, 0]
    assert table["n_questions"].tolist() == [2, 2]


def test_costs_are_of_the_run():
    row = generated_answers.costs([beams()]).iloc[0]
    assert row[["prompt_tokens", "token_forwards", "model_calls"]].tolist() == [30, 10, 5]
    assert row[["seconds", "tokens_per_second", "peak_memory_mib"]].tolist() == [2.0, 20, 2]


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["a", "b"]}
    table = grid(**setting, question_id=range(60))
    table = table.assign(n_distinct=table["question_id"] % 11, mass=table["auroc"])
    check_figure(generated_answers.draw, table, n_panels=4)
    figure = generated_answers.draw(table[["n_distinct", "mass"]])
    assert len(figure.axes) == 2


def test_the_caption_says_ranges_of_means():
    rows = {"dataset": ["d", "e"], "model": "m", "n_answers": [10.0, 8.0], "n_distinct": [5.0, 4.0]}
    table = pd.DataFrame(rows | {"mass": [0.5, 0.9], "n_questions": [30, 40]})
    assert finding(generated_answers.caption(table)) == (
        "On average, 4.0 to 5.0 of 8 to 10 answers are distinct, and their probabilities sum to "
        "0.50 to 0.90."
    )


def test_the_share_of_questions_rises_at_each_number_of_distinct_answers():
    table = pd.DataFrame({"n_distinct": [1, 3, 3, 7], "mass": 0.5})
    ax = generated_answers.draw(table).axes[0]
    assert ax.lines[0].get_drawstyle() == "steps-post"
    assert ax.lines[0].get_xdata().tolist() == list(range(8))
    assert ax.lines[0].get_ydata().tolist() == [0, 0.25, 0.25, 0.75, 0.75, 0.75, 0.75, 1]
