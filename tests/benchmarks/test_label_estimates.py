"""The simulation of labels by hand: its questions are as its cells say, and it resumes."""

import label_estimates as simulation
import label_summary as summary
import numpy as np
import pandas as pd
import pytest

from pro_lib import metrics

CELL = {
    "kind": "grid",
    "share_right": 0.2,
    "agreement": 0.85,
    "auroc": 0.75,
    "n_questions": 300,
    "n_labels": 60,
}


@pytest.mark.parametrize("agreement", [0.75, 0.95])
def test_questions_have_the_share_and_the_auroc_and_the_agreement_of_their_cell(agreement):
    drawn = simulation.made_up(CELL | {"agreement": agreement}, 100_000, np.random.default_rng(3))
    correct = drawn.correct == 1
    assert correct.mean() == pytest.approx(0.2, abs=0.005)
    assert metrics.auroc(drawn.scores[:, 0], correct) == pytest.approx(0.75, abs=0.007)
    assert ((drawn.rouge > 0.3) == correct).mean() == pytest.approx(agreement, abs=0.01)
    # The judge's errors depend on the score: wrong answers that it accepts have lower ones.
    wrong = drawn.scores[~correct, 0]
    is_accepted = drawn.rouge[~correct] > 0.3
    assert wrong[is_accepted].mean() < wrong[~is_accepted].mean() - 0.3


def cells(**columns):
    """Return two cells of the simulation in which nothing is wrong, with changes by column."""
    table = {"kind": "grid", "n_questions": 300, "n_labels": [100, 200], "cell": ["a", "b"]}
    table |= {"n_drawn": 1000, "enough": 1.0, "auroc_shown_of_allowed": 1.0}
    for name in summary.QUANTITIES:
        table |= {f"{name}_n_shown": 1000, f"{name}_bias": 0.001, f"{name}_bias_se": 0.001}
        table |= {f"{name}_ratio": 0.7, f"{name}_population_width": 0.1}
        table |= {f"{name}_{scope}_covered": 0.95 for scope in summary.SCOPES}
    return pd.DataFrame(table | columns)


# 0.925 of 1,000 draws is within chance of 0.93 (p = 0.29); 0.88 is not.
@pytest.mark.parametrize(
    ("coverages", "counts"), [([0.95, 0.95], []), ([0.95, 0.925], [1, 0]), ([0.88, 0.95], [1, 1])]
)
def test_a_low_coverage_counts_but_is_significant_only_if_chance_does_not_explain_it(
    coverages, counts
):
    table = summary.criteria(cells(auroc_questions_covered=coverages))
    beyond = table[table["n_beyond"] > 0]
    assert beyond["criterion"].str.startswith("coverage of auroc (questions)").all()
    assert beyond[["n_beyond", "n_significant"]].to_numpy().ravel().tolist() == counts
