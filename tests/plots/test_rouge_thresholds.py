"""Test the figure of AUROC against the ROUGE-L threshold of a correct answer."""

import numpy as np
import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid, legend
from invented_settings import EVALUATION, evaluation_of, setting_row, splits_of

from pro_lib import metrics
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.plots import rouge_thresholds
from pro_lib.plots.style import PRINTED

METHODS = ("PRO", "SD", "SE", "Deg", "NE", "PE", "ALL", "NLL")


def test_rouge_thresholds_by_hand():
    # One answer each, so that PRO is NLL. ROUGE-L 0.3 is not above 0.3. At 0.2 the wrong answer is
    # c alone, at 0.3 it is b and c; at 1 all are wrong.
    methods = {"NLL": [1.0, 2.0, 3.0], "SE, lexical": [2.0, 1.0, 1.5]}
    rouge_l = [1.0, 0.3, 0.0]
    evaluation = evaluation_of([[-1.0], [-2.0], [-3.0]], [True] * 3, rouge_l=rouge_l, **methods)
    splits = Splits(EVALUATION, evaluation, None)
    with pytest.warns(UserWarning, match="all 3 judged answers are wrong, so that AUROC is NaN"):
        table = rouge_thresholds.table([splits], thresholds=[0.2, 1.0, 0.3])
    assert table["rouge_threshold"].tolist() == [0.2] * 3 + [1.0] * 3 + [0.3] * 3
    assert table["method"].tolist() == ["PRO", "NLL", "SE"] * 3
    assert table["similarity"].fillna("").tolist() == ["", "", "lexical"] * 3
    assert table["alpha_choice"].fillna("").tolist() == ["validation", "", ""] * 3
    assert table["n_correct"].tolist() == [2] * 3 + [0] * 3 + [1] * 3
    np.testing.assert_array_equal(table["auroc"], [1.0, 1.0, 0.5, *[np.nan] * 3, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(table["auroc_minus_nll"], [0, 0, -0.5, *[np.nan] * 3, 0, 0, -1])
    np.testing.assert_allclose(table["accuracy"], [2 / 3] * 3 + [0] * 3 + [1 / 3] * 3)
    nll = table[table["method"] == "NLL"]
    assert (nll[["auroc_minus_nll_low", "auroc_minus_nll_high"]] == 0).all(axis=None)
    others = table[table["method"] != "NLL"]
    assert others["auroc_minus_nll_low"].isna().all()  # five correct and five wrong are needed


def test_at_every_threshold_the_difference_to_nll_is_paired():
    generator = np.random.default_rng(0)
    methods = {name: generator.normal(size=80) for name in ("NLL", "SE")}
    evaluation = evaluation_of(EVALUATION.log_probs, EVALUATION.correct, **methods)
    table = rouge_thresholds.table([splits_of(evaluation)], thresholds=[0.5])
    row = table.set_index("method").loc["SE"]
    tests = metrics.delong(np.column_stack([*methods.values()]), evaluation.correct)
    low, high = tests.low, tests.high
    ends = [row["auroc_minus_nll_low"], row["auroc_minus_nll_high"]]
    np.testing.assert_allclose(np.array(ends, dtype=float), [low[1], high[1]], atol=1e-12)


def invented(**columns):
    """Return a table of two datasets and two models."""
    setting = {"dataset": ["d", "e"], "model": ["a", "b"]} | columns
    table = grid(**setting, rouge_threshold=[0.1, 0.3, 0.5], method=METHODS)
    limits = {"auroc_minus_nll_low": table["auroc_minus_nll"] - 0.05}
    return table.assign(**limits, auroc_minus_nll_high=table["auroc_minus_nll"] + 0.05)


def test_it_can_be_read_at_both_widths():
    check_figure(rouge_thresholds.draw, invented(), n_panels=4)


def test_labels_are_a_group_of_their_own_and_significant_values_are_marked():
    table = invented(dataset=["d"], model=["a"])
    table = table[table["method"].isin(["PRO", "SE", "NLL"])].assign(auroc_minus_nll=0.01)
    by_labels = table[table["rouge_threshold"] == 0.5].assign(
        rouge_threshold=np.nan, auroc_minus_nll=-0.4
    )
    figure = rouge_thresholds.draw(pd.concat([table, by_labels]))
    groups = ["ROUGE-L > 0.1", "ROUGE-L > 0.3", "ROUGE-L > 0.5", "labels"]
    below = "off the axis: PRO, −0.40; SE, −0.40"
    assert legend(figure) == [*groups, below]
    [ax] = figure.axes
    assert sorted(label.get_text() for label in ax.get_yticklabels()) == ["PRO", "SE"]
    by_labels = by_labels.assign(p_value=0.001)
    figure = rouge_thresholds.draw(pd.concat([table.assign(p_value=0.9), by_labels]))
    assert legend(figure) == [*groups, "significantly worse than NLL", below]
    marks = [line.get_ydata() for line in figure.axes[0].lines if line.get_marker() == "x"]
    arrows = [line.get_ydata() for line in figure.axes[0].lines if line.get_marker() == 4]
    # In the rows of the labels, whose values are off the axis
    np.testing.assert_array_equal(marks[0], arrows[-2])


def test_printed_values_stand_in_grey_where_the_paper_has_them():
    table = invented(dataset=["allenai/sciq"], model=["google/gemma-7b"])
    figure = rouge_thresholds.draw(table)
    grey = [line for line in figure.axes[0].lines if line.get_color() == PRINTED["color"]]
    assert len(grey[0].get_xdata()) == 35  # seven methods at five thresholds
    assert grey[0].get_marker() == "D"
    assert legend(figure)[-1] == "printed in the paper"


def changing(of_se, **others):
    """Return the rows of four methods at two thresholds, at which SE has these differences."""
    rows = []
    for threshold, difference in zip((0.1, 0.5), of_se, strict=True):
        for method, value in (("PRO", 0.0), ("NLL", 0.0), ("SE", difference), ("PE", -0.3)):
            p_value = 0.001 if value else 1.0
            row = setting_row(value, p_value=p_value, method=method, similarity=None, **others)
            rows.append(row | {"rouge_threshold": threshold, "correctness": "ROUGE-L"})
    return pd.DataFrame(rows)


def test_the_caption_names_the_methods_that_differ_from_nll_and_how_the_threshold_matters():
    assert finding(rouge_thresholds.caption(changing((0.05, -0.1)))) == (
        "PRO is not significantly different from NLL at any threshold in 1 of 1 settings; methods "
        "(with the number of settings) significantly worse at every threshold: PE (1); worse at "
        "some: SE (1); better at some: SE (1). From 0.1 to 0.5, 1 of 2 differences of methods "
        "other than PRO fall."
    )
    better = finding(rouge_thresholds.caption(changing((0.05, 0.1))))
    assert "worse at every threshold: PE (1); better at every threshold: SE (1)." in better


def test_the_caption_leaves_out_settings_with_few_correct_answers():
    caption = rouge_thresholds.caption(changing((0.05, -0.1), n_correct=2))
    assert finding(caption) == "There are too few answers for a statement about m on d."
