"""Test the table of summed probabilities with and without repeats."""

import pandas as pd
import pytest
from invented_settings import beams

from pro_lib.plots import repeats


def test_repeats_raise_the_mass_above_one():
    table = repeats.table(beams(), alpha=0.5)
    assert table["repeats"].tolist() == ["counted", "left out"]
    assert table["mean_answers"].tolist() == [2.0, 1.5]
    assert table["largest_mass"].tolist() == pytest.approx([1.5, 0.9])
    assert table["n_above_one"].tolist() == [1, 0]
    assert table["share_several"].tolist() == [0.5, 0.0]  # the repeated answer is kept twice


def test_the_caption_says_how_often_pro_differs_from_nll_and_when_the_premise_fails():
    rows = {"repeats": ["counted", "left out"], "n_questions": 200, "largest_mass": [3.14159, 0.9]}
    table = pd.DataFrame(rows | {"n_above_one": [50, 0], "share_several": [0.5, 0.0125]})
    assert repeats.caption(table, alpha=0.4) == (
        "At α = 0.4, PRO keeps more than one distinct answer for 1.25 % of the questions; for the "
        "others, PRO equals NLL. If repeats are counted, the probabilities of the answers sum to "
        "more than 1 for 25.0 % of the questions, and to 3.14 at most; without repeats, for 0.0 %."
    )
