"""Test the figure of the answers to six questions."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import grid, unreadable
from invented_settings import beams

from pro_lib import scoring
from pro_lib.app.explorer import appendix_run
from pro_lib.plots import examples


def test_answer_details_have_every_answer_with_what_pro_makes_of_it():
    table = examples.details(beams(), alpha=0.3)
    assert table[["question_id", "k", "text"]].to_numpy().tolist() == [
        ["a", 1, "yes"],
        ["a", 2, "no"],
        ["b", 1, "no"],
    ]
    assert table["probability"].tolist() == pytest.approx([0.6, 0.3, 0.2])
    assert table["is_kept"].tolist() == [True, True, True]
    assert table["is_correct"].tolist() == [False, True, True]
    # PRO_2 = -log 0.3 - 0.6 log(0.6 / 0.3); of a single answer PRO is -log p.
    pro_2 = -np.log(0.3) - 0.6 * np.log(2)
    assert table["pro_at_k"].tolist() == pytest.approx([-np.log(0.6), pro_2, -np.log(0.2)])
    assert table["pro"].tolist() == pytest.approx([pro_2, pro_2, -np.log(0.2)])
    assert table["reference"].tolist() == ["no", "no", "no"]
    assert examples.details(beams(), alpha=0.5)["is_kept"].tolist() == [True, False, True]


def test_examples_are_of_every_kind_of_question():
    # At α = 0.5 question a is wrong and b is right; at 0.3 a keeps two answers.
    # Right questions come before wrong ones, and questions with several kept answers come last.
    assert examples.table(beams(), alpha=0.3)["question_id"].tolist() == ["b", "a", "a"]
    assert examples.table(beams(), alpha=0.5)["question_id"].tolist() == ["b", "a", "a"]


def test_the_appendix_stands_beside_the_printed_numbers():
    run = appendix_run()
    with pytest.warns(scoring.PremiseWarning):
        answers = examples.appendix(run)
    assert len(answers) == 30
    printed = answers.dropna(subset="printed_pro")
    assert len(printed) == 9
    assert (printed["pro_at_k"] - printed["printed_pro"]).abs().max() < 0.01
    assert answers["pro"].iloc[0] == pytest.approx(0.404, abs=0.001)  # as printed
    once = examples.details(run, alpha=0.1)
    assert once["pro"].iloc[0] == pytest.approx(1.360, abs=0.001)


def test_bars_of_examples_are_filled_where_pro_keeps_the_answer():
    rows = {"question": "What?", "text": ["yes", ""], "probability": [0.6, 0.0001], "pro": 0.5}
    rows |= {"is_kept": [True, False], "is_correct": [True, False], "reference": None}
    table = pd.DataFrame(rows)
    [ax] = examples.draw(table, alpha=0.4).axes
    assert [bar.get_width() for bar in ax.patches] == [0.6, 0.0001]
    assert [bar.get_facecolor()[:3] == (1, 1, 1) for bar in ax.patches] == [False, True]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["✓ yes", "(empty)"]
    assert ax.get_title(loc="left") == "What?\nPRO = 0.50 nats, K = 1"
    assert [line.get_xdata()[0] for line in ax.lines] == [0.4]
    assert [text.get_text() for text in ax.texts] == ["0.600", "<0.001"]


def test_a_reference_and_an_answer_of_the_examples_end_after_a_whole_word():
    rows = {"question": "Who?", "text": ["Sir Nicholas Anthony Copernicus"], "probability": [0.6]}
    table = pd.DataFrame(rows | {"pro": 0.5, "is_kept": True, "is_correct": False})
    references = "Carl Anderson; Carl David Anderson; C. D. Anderson"
    [ax] = examples.draw(table.assign(reference=references), alpha=0.4).axes
    title = ax.get_title(loc="left").split("\n")
    assert title[1] == "reference: Carl Anderson; Carl …"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["Sir Nicholas Anthony …"]


@pytest.mark.parametrize("figure_columns", [1, 2])
def test_it_can_be_read_at_both_widths(figure_columns):
    answers = grid(
        dataset=["world-facts"],
        model=["facts-2m"],
        question=[f"{n}: what do you call a number of questions?" for n in range(6)],
        text=["a" * 40, ""],
    )
    answers = answers.assign(probability=0.3, is_kept=[True, False] * 6, is_correct=True, pro=12.34)
    answers["reference"] = "Sergei Rachmaninoff"
    figure = examples.draw(answers, alpha=0.3, figure_columns=figure_columns)
    assert len(figure.axes) == (3 if figure_columns == 1 else 6)
    assert figure.get_figheight() <= (4.5 if figure_columns == 1 else 6)
    assert unreadable(figure, 7) == []


def test_the_caption_counts_the_questions_with_several_answers():
    caption = examples.caption(examples.table(beams(), alpha=0.3), alpha=0.3)
    assert "The most probable answers found by diverse beams to 2 questions" in caption
    assert "one used and wrong, or several used." in caption
    assert "PRO is 0.79 to 1.61 nats, and uses several answers for 1 of 2 questions." in caption


def test_the_caption_names_the_kinds_that_are_drawn():
    caption = examples.caption(examples.table(beams(), alpha=0.5), alpha=0.5)
    assert "drawn by kind: one answer used and correct, or one used and wrong." in caption
