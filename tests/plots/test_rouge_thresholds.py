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


def test_labels_are_a_group_of_their_own_and_the_axis_begins_at_an_arrow():
    table = invented(dataset=["d"], model=["a"])
    table = table[table["method"].isin(["PRO", "SE", "NLL"])].assign(auroc_minus_nll=0.01)
    by_labels = table[table["rouge_threshold"] == 0.5].assign(
        rouge_threshold=np.nan, auroc_minus_nll=-0.4
    )
    figure = rouge_thresholds.draw(pd.concat([table, by_labels]))
    groups = ["ROUGE-L > 0.1", "ROUGE-L > 0.3", "ROUGE-L > 0.5", "labels"]
    assert legend(figure) == [*groups, "value (at the right) or interval below −0.30"]
    [ax] = figure.axes
    assert sorted(label.get_text() for label in ax.get_yticklabels()) == ["PRO", "SE"]
    arrows = [line for line in ax.lines if list(line.get_xdata()) == [-0.3, -0.3]]
    assert len(arrows) == 1


def test_printed_values_stand_in_grey_where_the_paper_has_them():
    table = invented(dataset=["allenai/sciq"], model=["google/gemma-7b"])
    figure = rouge_thresholds.draw(table)
    grey = [line for line in figure.axes[0].lines if line.get_color() == PRINTED["color"]]
    assert len(grey[0].get_xdata()) == 35  # seven methods at five thresholds
    assert grey[0].get_marker() == "D"
    assert legend(figure)[-1] == "printed in the paper"


def test_the_caption_compares_pro_with_nll_and_says_how_far_aurocs_move():
    rows = []
    for threshold, others in ((0.1, (0.70, 0.75)), (0.5, (0.70, 0.60))):
        for method, auroc in zip(("PRO", "NLL", "SE"), (0.80, *others), strict=True):
            difference = auroc - others[0]
            row = setting_row(difference, p_value=0.001, method=method, similarity=None)
            rows.append(row | {"rouge_threshold": threshold, "correctness": "ROUGE-L"})
    caption = rouge_thresholds.caption(pd.DataFrame(rows))
    assert "; no difference changes by more than 0.150 between them." in caption
    assert finding(caption) == (
        "At a threshold of 0.1, PRO is significantly better than NLL (+0.100, 95 % interval "
        "+0.090 to +0.110). At a threshold of 0.5, PRO is significantly better than NLL (+0.100, "
        "95 % interval +0.090 to +0.110)."
    )


def test_the_caption_names_methods_that_are_worse_at_every_threshold():
    rows = [
        setting_row(difference, p_value=0.001, method=method, similarity=None, auroc=0.7)
        | {"rouge_threshold": threshold, "correctness": "ROUGE-L"}
        for threshold, of_se in ((0.1, 0.05), (0.5, -0.05))
        for method, difference in (("PRO", 0.05), ("NLL", 0.0), ("SE", of_se), ("PE", -0.3))
    ]
    expected = "Significantly worse than NLL at every threshold (with the number of settings): PE"
    assert finding(rouge_thresholds.caption(pd.DataFrame(rows))).endswith(f"{expected} (1).")


def test_the_caption_leaves_out_settings_with_few_correct_answers():
    rows = [
        setting_row(0.0, n_correct=2, method=method, similarity=None, auroc=0.7)
        | {"rouge_threshold": threshold, "correctness": "ROUGE-L"}
        for threshold in (0.1, 0.5)
        for method in ("PRO", "NLL")
    ]
    assert "changes by more than" not in rouge_thresholds.caption(pd.DataFrame(rows))
