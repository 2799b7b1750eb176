"""Test the figure of AUROC against α, the chosen α, and its redraws."""

from dataclasses import replace

import pandas as pd
import pytest
from figure_checks import check_figure, finding, grid, legend
from invented_settings import EVALUATION, SPLITS, setting_row, splits_of

from pro_lib import metrics
from pro_lib.common.validation import SentenceError
from pro_lib.evaluation.alpha_choice import Splits, select_alpha
from pro_lib.plots import alpha_sweep, redraws
from pro_lib.plots.style import PRINTED


def test_alpha_choices_are_of_validation_default_and_oracle():
    table = alpha_sweep.choices(SPLITS[:1], default=0.3)
    assert table["alpha_choice"].tolist() == ["validation", "default", "oracle"]
    chosen, best = select_alpha(SPLITS[0].validation), select_alpha(SPLITS[0].reported)
    assert table["alpha"].tolist() == [chosen, 0.3, best]
    assert table["auroc"].max() == table["auroc"].iloc[2]
    reported = SPLITS[0].reported
    expected = metrics.auroc(reported.pro(0.3), reported.correct)
    assert table["auroc"].iloc[1] == expected


def test_the_sweep_has_both_splits_and_ends_at_nll():
    reported = replace(SPLITS[0].reported, split="test")
    validation = replace(SPLITS[0].pool, split="validation")
    table = alpha_sweep.table([Splits(validation, reported, None)])
    assert list(dict.fromkeys(table["split"])) == ["validation", "test"]
    last = table.iloc[-1]
    assert (last["alpha"], last["mean_k"], last["n_differ"]) == (1.0, 1.0, 0)
    assert (last["auroc_minus_nll"], last["p_value"]) == (0.0, 1.0)


def test_redraws_name_the_quantity_and_the_share():
    splits = splits_of(EVALUATION, 30)
    alphas, aurocs = (redraws.table([splits], quantity=name).iloc[0] for name in ("alpha", "auroc"))
    assert alphas["alpha_min"] <= alphas["alpha_median"] <= alphas["alpha_max"]
    assert aurocs["auroc_min"] <= aurocs["auroc_q25"] <= aurocs["auroc_q75"]
    assert alphas["share_better_than_nll"] == aurocs["share_better_than_nll"]
    with pytest.warns(UserWarning, match="cannot be redrawn"):
        nothing = redraws.table([splits_of(EVALUATION)], quantity="alpha")
    assert nothing.iloc[0][["alpha_min", "share_better_than_nll"]].isna().all()


def invented(**columns):
    """Return a sweep of two datasets and two models, and the points of chosen α."""
    setting = {"dataset": ["d", "e"], "model": ["a", "b"]} | columns
    table = grid(**setting, alpha=[0, 0.001, 0.05, 0.4, 1])
    marked = []
    for choice, alpha in (("validation", 0.05), ("default", 0.4), ("oracle", 0.05)):
        marked.append(table[table["alpha"] == alpha].assign(alpha_choice=choice))
    return table, pd.concat(marked, ignore_index=True)


def test_it_can_be_read_at_both_widths():
    table, choices = invented()
    check_figure(
        lambda table, **options: alpha_sweep.draw(table, choices, **options), table, n_panels=2
    )


def test_lines_go_through_the_numbers_and_the_chosen_alpha_lies_on_them():
    table, choices = invented()
    figure = alpha_sweep.draw(table, choices[choices["alpha_choice"] == "validation"])
    rows = table[table["dataset"] == "d"]
    lines = figure.axes[0].lines
    for index, model in enumerate(("a", "b")):
        line = rows[rows["model"] == model]
        assert lines[index].get_xydata().tolist() == line[["alpha", "auroc"]].to_numpy().tolist()
        chosen = lines[index + 2].get_xydata().tolist()
        assert chosen == [[0.05, line.set_index("alpha")["auroc"][0.05]]]
    assert legend(figure) == ["a", "b", "α chosen on validation questions"]


def test_the_interval_of_the_difference_to_nll_is_drawn_around_pro():
    table, choices = invented(dataset=["d"], model=["a"])
    table = table.assign(auroc=0.7, auroc_minus_nll=-0.1, auroc_minus_nll_low=-0.15)
    [ax] = alpha_sweep.draw(table.assign(auroc_minus_nll_high=-0.05), choices).axes
    assert ax.lines[0].get_ydata() == pytest.approx([0.8, 0.8])  # NLL
    box = ax.collections[0].get_datalim(ax.transData)
    assert (box.y0, box.y1) == pytest.approx((0.65, 0.75))


def test_the_points_of_the_paper_lie_on_the_axis_of_the_paper():
    both = invented(dataset=["trivia_qa"], model=["google/gemma-2b"])
    ax = alpha_sweep.draw(*both, alpha_scale="linear").axes[0]
    assert ax.get_xscale() == "linear"
    [grey] = [line for line in ax.lines if line.get_color() == PRINTED["color"]]
    assert grey.get_xydata().tolist() == [[0.4, 0.819]]


def test_two_splits_are_not_joined_into_one_line():
    table, choices = invented(split=["validation", "test"])
    with pytest.raises(SentenceError, match="rows of the splits validation and test; draw one"):
        alpha_sweep.draw(table, choices)


def choices_of(difference, p_value, protocol="paper", **others):
    """Return the rows of one setting in the table of chosen αs; the default is NLL."""
    rows = []
    for choice, alpha, value in (
        ("validation", 0.2, difference),
        ("default", 0.4, 0.0),
        ("oracle", 0.1, difference + 0.01),
    ):
        chosen = {"alpha_choice": choice, "alpha": alpha, "auroc": 0.8 + value}
        chosen |= {"protocol": protocol, "p_value": p_value if choice == "validation" else 1.0}
        rows.append(setting_row(value, **chosen | others))
    return pd.DataFrame(rows)


def test_the_caption_says_which_alpha_was_chosen_and_what_it_is_worth():
    table = choices_of(0.05, 0.001)
    caption = alpha_sweep.caption(table, table)
    assert finding(caption) == (
        "PRO with the α chosen on validation questions, 0.2, is significantly better than NLL "
        "(+0.050, 95 % interval +0.040 to +0.060). At α = 0.1, PRO minus NLL is +0.060."
    )


def test_protocols_are_not_counted_as_settings():
    # p = 0.03 is significant for one setting, and would not be for two.
    both = pd.concat([choices_of(0.05, 0.03), choices_of(0.05, 0.03, protocol="workbench")])
    caption = alpha_sweep.caption(both, both)
    assert caption.count("significantly better than NLL (") == 2
    assert "With each answer once: PRO with the α chosen" in caption


def test_the_caption_says_nothing_of_too_few_answers():
    table = choices_of(0.05, 0.001, n_correct=5)
    caption = alpha_sweep.caption(table, table)
    assert "There are too few answers for a statement about m on d." in caption
    assert "significant" not in caption
    assert "The best α" not in caption
