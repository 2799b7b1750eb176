"""Test the figure of the questions that each method may answer with a guaranteed accuracy."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, grid, legend
from invented_settings import evaluation_of, splits_of

from pro_lib import metrics
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.plots import guarantees


def step_splits():
    """Return splits in which NLL is 0 or 1.

    Validation is right at 0 only, and reported questions at 0 are right in 5 of 6.
    """
    nll = np.repeat([0.0, 1.0], [60, 40])
    pool = evaluation_of(-nll[:, None] - 0.1, nll == 0, NLL=nll, **{"SE, alias": nll + 1})
    few = np.repeat([0.0, 1.0], [6, 4])
    correct = np.arange(10) < 5
    reported = evaluation_of(-few[:, None] - 0.1, correct, NLL=few, **{"SE, alias": few + 1})
    return Splits(pool, reported, None)


def test_guarantees_answer_below_the_threshold_that_validation_shows():
    # At 0.9 the 60 questions below 1 pass, 0.9 ** 60 = 0.002, and all 100 with 60 right do not. At
    # 0.999 the 60 do not pass either, 0.999 ** 60 = 0.94.
    table = guarantees.table([step_splits()], targets=[0.9, 0.999], alpha=0.3)
    assert table["method"].tolist() == ["PRO", "PRO", "NLL", "NLL", "SE", "SE"]
    assert table["similarity"].fillna("").tolist() == ["", "", "", "", "alias", "alias"]
    assert table["alpha_choice"].fillna("").tolist() == ["default", "default", "", "", "", ""]
    assert table["alpha"].tolist()[:2] == [0.3, 0.3]
    nll = table[table["method"] == "NLL"]
    assert nll["threshold"].fillna(-1).tolist() == [1.0, -1.0]
    assert nll["coverage"].tolist() == [0.6, 0.0]
    assert nll["accuracy"].fillna(-1).tolist() == [pytest.approx(5 / 6), -1]
    low, high = metrics.wilson(5 / 6, 6)
    assert nll.iloc[0][["accuracy_low", "accuracy_high"]].tolist() == [low, high]
    assert nll["n_validation"].tolist() == [100, 100]
    assert table["n_questions"].unique().tolist() == [10]


@pytest.mark.parametrize(
    ("n_right", "targets"), [(60, [0.7, 0.8, 0.9]), (40, [0.7, 0.8, 0.9]), (39, [0.5, 0.6, 0.7])]
)
def test_targets_are_lower_if_few_validation_questions_are_answered_correctly(n_right, targets):
    correct = np.arange(100) < n_right
    evaluation = evaluation_of(np.full((100, 1), -0.1), correct, NLL=0.0)
    assert guarantees.default_targets([splits_of(evaluation)]) == targets


METHODS = ["PRO", "NLL", "ALL", "PE", "NE", "SE", "SD", "Deg"]


def invented(**others):
    table = grid(**others, method=METHODS, target=[0.7, 0.8])
    is_se = table["method"] == "SE"
    table["coverage"] = np.where(is_se, 0.0, 0.3)
    table["accuracy"] = np.where(is_se, np.nan, 0.8)
    ends = {"accuracy_low": table["accuracy"] - 0.15, "accuracy_high": 0.9}
    table = table.assign(similarity=None, alpha=0.4, n_correct=617)
    return table.assign(confidence=0.95, n_validation=300, **ends)


def test_it_can_be_read_at_both_widths():
    check_figure(guarantees.draw, invented(dataset=["world-facts"], model=["facts-2m"]), n_panels=2)
    both = invented(dataset=["d", "e"], model=["m"])
    assert [len(guarantees.draw(both, figure_columns=n).axes) for n in (1, 2)] == [4, 4]
    accuracies = guarantees.draw(both).axes[1].lines
    assert [line.get_xdata()[0] for line in accuracies if line.get_ls() == ":"] == [0.5]


def test_a_method_without_a_guarantee_says_so_and_a_target_without_any_is_not_drawn():
    rows = {"method": ["PRO", "SE"] * 2, "similarity": [None, "alias"] * 2}
    rows |= {"target": [0.7, 0.7, 0.9, 0.9], "coverage": [0.4, 0, 0, 0]}
    figure = guarantees.draw(pd.DataFrame(rows | {"accuracy": [0.8, *[np.nan] * 3]}))
    assert legend(figure) == ["guaranteed accuracy 0.7"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["PRO", "SE (alias)"]
    written = [
        [(text.get_text(), text.get_position()[1]) for text in ax.texts if text.get_text()]
        for ax in figure.axes
    ]
    assert written == [[(" not guaranteed", 1)], []]


def test_a_method_that_a_setting_does_not_have_is_marked():
    rows = {"method": ["PRO", "NLL", "PRO"], "model": ["a", "a", "b"], "target": 0.8}
    table = pd.DataFrame(rows | {"coverage": 0.5, "accuracy": 0.9})
    panels = guarantees.draw(table).axes
    assert [[text.get_text() for text in ax.texts if text.get_text()] for ax in panels] == [
        [],
        [],
        [" not guaranteed"],
        [],
    ]


def test_each_accuracy_has_the_same_place_in_every_row():
    rows = {"method": ["PRO", "PRO", "NLL", "NLL"], "target": [0.7, 0.8] * 2}
    rows |= {"coverage": [0.4, 0.2, 0, 0.3], "accuracy": [0.8, 0.9, np.nan, 0.9]}
    ax = guarantees.draw(pd.DataFrame(rows)).axes[0]
    lower, _, higher, _ = [line.get_ydata() for line in ax.lines]
    assert lower.tolist() == pytest.approx([-0.175, 0.825])
    assert higher.tolist() == pytest.approx([0.175, 1.175])
    assert ax.get_xlim()[0] == 0


def test_the_caption_counts_methods_and_says_whose_verdicts_labels_are_about():
    table = invented(dataset=["d"], model=["m"])
    caption = guarantees.caption(table)
    assert (
        "Of 8 methods, 7 can guarantee an accuracy of 0.7 (for 30.0 % of the questions) and 7"
        in caption
    )
    assert (
        "; guarantees from few questions are cautious: test answers have an accuracy of 0.800 "
        "(0.500 if all are answered), with an interval entirely below the guarantee in 0 of 14 "
        "cases." in caption
    )
    assert "ROUGE-L calls correct" not in caption
    low = guarantees.caption(table.assign(accuracy_high=0.75))
    assert "below the guarantee in 7 of 14 cases" in low
    other = table.assign(model="n", coverage=0.3 * (table["target"] == 0.8))
    both = guarantees.caption(pd.concat([table, other]))
    assert "Of 16 pairs of a method and a setting, 7 can guarantee an accuracy of 0.7" in both
    none = guarantees.caption(pd.concat([table, table.assign(model="n", coverage=0.0)]))
    assert "by itself; nothing is guaranteed for n on d (not drawn)." in none
    assert "Of 8 methods, 7 can guarantee an accuracy of 0.7" in none
    assert "ROUGE-L calls correct" in guarantees.caption(table.assign(judge="labels", n_labels=60))
