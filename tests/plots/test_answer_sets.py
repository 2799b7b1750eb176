"""Test the figure of answer sets without a correct answer."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid, legend

from pro_lib.plots import answer_sets
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo


def exact_search():
    """Return ten validation questions and two test questions with one answer each."""
    rows, questions = [], []
    for number in range(12):
        split = "validation" if number < 10 else "test"
        # Validation finds the right answer with p = 0.11, 0.12, … in nine questions, and none in
        # one.
        answers = {"right": 0.11 + 0.01 * number} if number < 9 else {"wrong": 0.3}
        if split == "test":
            answers = [{"right": 0.2, "wrong": 0.5}, {"right": 0.15}][number - 10]
        question = {"question_id": str(number), "question": f"{number}?", "references": ["right"]}
        question |= {"split": split, "status": "complete", "search_alpha": 0.1}
        questions.append(question | {"tree_bound": 0.5, "upper_bound": 2.0})
        for rank, (text, probability) in enumerate(
            sorted(answers.items(), key=lambda pair: -pair[1])
        ):
            answer = {"question_id": str(number), "rank": rank, "text": text, "token_ids": None}
            answer |= {"token_log_probs": [np.log(probability)], "log_prob": np.log(probability)}
            rows.append(answer | {"end_log_prob": np.nan, "finished": True})
    info = RunInfo("d", "m", "threshold", parameters={"search_alpha": 0.1})
    return Run(pd.DataFrame(rows), pd.DataFrame(questions), info)


def test_answer_sets_miss_where_no_correct_answer_reaches_alpha():
    table = answer_sets.table([exact_search()])
    # With ten validation questions, δ = 0.3 takes the third smallest probability: 0, 0.11, 0.12.
    chosen = table[table["delta"] == 0.3].iloc[0]
    assert chosen["alpha"] == pytest.approx(0.12)
    assert chosen["missed"] == 0
    assert np.isnan(chosen["missed_limit"])
    at = table[table["delta"].isna()].set_index("alpha")
    assert at.index.tolist() == [0.1, 0.2, 0.4]
    # At 0.2 one test question has the set {wrong, right}, and the other an empty one.
    assert at.loc[0.2, ["missed", "set_size", "share_empty"]].tolist() == [0.5, 1.0, 0.5]
    assert at.loc[0.4, ["missed", "set_size", "share_empty"]].tolist() == [1.0, 0.5, 0.5]
    assert at.loc[0.4, "missed_limit"] == 1.0
    assert table["n_questions"].unique().tolist() == [2]


def test_an_undecided_question_counts_as_missed():
    run = exact_search()
    status = np.where(run.questions["question_id"] == "10", "undecided", "complete")
    table = answer_sets.table([replace(run, questions=run.questions.assign(status=status))])
    assert table.loc[table["alpha"] == 0.1, "missed"].tolist() == [0.5]


def invented(**others):
    table = grid(**others, alpha=[0.005, 0.05, 0.1, 0.4])
    table["delta"] = np.where(table["alpha"] == 0.1, 0.5, np.nan)
    table = table.assign(missed_limit=0.6, missed=0.5, share_empty=0.2, set_size=123.4)
    return table.assign(missed_low=0.4, missed_high=0.6)


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["facts-2m", "facts-1m"]}
    check_figure(answer_sets.draw, invented(**setting), n_panels=4)


def test_each_panel_has_its_own_numbers_below_alpha():
    table = invented(dataset=["d", "e"], model=["m"])
    table.loc[table["dataset"] == "e", "set_size"] = 5
    noted = [
        [label.get_text() for label in ax.get_xticklabels()] for ax in answer_sets.draw(table).axes
    ]
    alphas = ("0.005", "0.05", "0.4")
    assert noted == [[f"{alpha}\n({size})" for alpha in alphas] for size in ("123.4", "5.0")]


def test_lines_have_the_alphas_that_are_fixed_beforehand():
    figure = answer_sets.draw(invented(dataset=["d"], model=["m"]))
    assert legend(figure) == [
        "sets without a correct answer",
        "upper limit from validation questions",
    ]
    for line in figure.axes[0].lines:
        assert line.get_xdata().tolist() == [0.005, 0.05, 0.4]


def test_the_caption_has_the_shares_at_both_ends_of_alpha():
    assert finding(answer_sets.caption(invented(dataset=["d"], model=["m"]))) == (
        "The share is at most its upper limit in 3 of 3 cases. At α = 0.005, a set has 123.4 "
        "answers on average, and 50.0 % of the sets have no correct one; at α = 0.4, 20.0 % of the "
        "sets are empty."
    )
