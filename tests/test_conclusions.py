"""Sentences about tables made by hand: each comes out every way that its numbers can point."""

import numpy as np
import pandas as pd
import pytest

from pro_lib.tables import conclusions


def compared(*intervals):
    """The differences of NLL to PRO (difference, low, high), a setting each."""
    rows = [("d", f"m{n}", "NLL", *interval) for n, interval in enumerate(intervals)]
    return pd.DataFrame(rows, columns=["dataset", "model", "method", "difference", "difference_low", "difference_high"])


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((-0.02, -0.03, -0.01), "PRO exceeds NLL in 1 of 1: d, m0 (+0.020 [+0.010, +0.030])."),
        ((0.02, 0.01, 0.03), "PRO falls below NLL in 1 of 1: d, m0 (-0.020 [-0.030, -0.010])."),
        ((0.01, -0.01, 0.03), "PRO cannot be told apart from NLL in 1 of 1: d, m0 (-0.010 [-0.030, +0.010])."),
        ((0.01, 0.0, 0.02), "PRO cannot be told apart from NLL in 1 of 1: d, m0 (-0.010 [-0.020, -0.000])."),
        ((0.01, np.nan, np.nan), "PRO cannot be told apart from NLL in 1 of 1: d, m0 (-0.010 [+nan, +nan])."),
    ],
)
def test_a_difference_points_up_or_down_or_nowhere(interval, said):
    assert conclusions.against(compared(interval), "NLL") == said


def test_settings_of_one_kind_stand_together_with_their_protocol():
    table = compared((-0.02, -0.03, -0.01), (0.02, 0.01, 0.03), (-0.04, -0.05, -0.03)).assign(protocol="paper")
    assert conclusions.against(table, "NLL", subject="PRO, exact") == (
        "PRO, exact exceeds NLL in 2 of 3: d, m0, paper (+0.020 [+0.010, +0.030]); d, m2, paper (+0.040 [+0.030, "
        "+0.050]). PRO, exact falls below NLL in 1 of 3: d, m1, paper (-0.020 [-0.030, -0.010])."
    )


@pytest.mark.parametrize(("pro", "said"), [(0.8, "PRO is best in 1 of 1. Best are PRO (0.800; d, m)."),
                                           (0.6, "PRO is best in 0 of 1. Best are NLL (0.700; d, m).")])  # fmt: skip
def test_the_best_method_is_named_and_the_oracle_is_none(pro, said):
    methods = {"method": ["PRO", "NLL", "PRO, oracle"], "auroc": [pro, 0.7, 0.9]}
    assert conclusions.best(pd.DataFrame(methods).assign(dataset="d", model="m")) == said


@pytest.mark.parametrize(
    ("at_last", "said"),
    [
        ([0.8, 0.7, 0.61], ("0.010 (NE; d, m)", "stays", "1.00")),
        ([0.6, 0.7, 0.85], ("0.250 (NE; d, m)", "changes", "-1.00")),
    ],
)  # fmt: skip
def test_the_order_of_methods_stays_or_changes_with_the_bar(at_last, said):
    wide = pd.DataFrame({0.1: [0.8, 0.7, 0.6], 0.3: [0.7] * 3, 0.5: at_last}, index=["PRO", "NLL", "NE"])
    sweep = wide.rename_axis("method").reset_index().melt("method", var_name="threshold", value_name="auroc")
    sweep.loc[sweep["threshold"] == 0.3, "auroc"] = sweep.loc[sweep["threshold"] == 0.1, "auroc"].to_numpy()
    sentences = conclusions.thresholds(sweep.assign(dataset="d", model="m"))
    assert sentences == (
        "From 0.1 to 0.5 no AUROC moves by more than {}. The order of the methods {}: Kendall's τ between these two "
        "bars is {}.".format(*said)
    )


@pytest.mark.parametrize(("floor", "n_held"), [(1.5, 2), (2.5, 1)])
def test_the_bounds_are_in_order_in_as_many_rows_as_they_are(floor, n_held):
    recall = pd.DataFrame({"alpha": [0.4, 0.01], "recall": [1.0, 0.5]})
    costs = pd.DataFrame({"alpha": [0.4, 0.01], "certified": [0.25, 0.9]})
    bounds = pd.DataFrame({"pro": [1.0, 1.0], "alpha_floor": [1.0, floor], "tree_bound": [2.0, 2.0], "entropy": 3.0})
    bounds = bounds.assign(alpha=[0.4, 0.01], width=[0.3, 0.25], anytime_width=[9.0, 4.125])
    table = compared((-0.02, -0.03, -0.01)).assign(method="PRO, beams")
    assert conclusions.searched(recall, costs, bounds, table) == (
        "Answers with p ≥ α that the beams found, and questions certified: 100.0% and 25.0% at α = 0.4, 50.0% and "
        f"90.0% at α = 0.01. PRO ≤ α-floor ≤ tree bound ≤ H in {n_held} of 2 rows. The limits of a certified "
        "question's H lie 0.25 and 4.12 nats apart, Student's and such as hold at any time. PRO, exact exceeds PRO, "
        "beams in 1 of 1: d, m0 (+0.020 [+0.010, +0.030])."
    )


def test_a_span_is_one_value_where_both_ends_read_the_same():
    assert conclusions.span(pd.Series([1.001, 1.004])) == "1.00"
    assert conclusions.span(pd.Series([0.2, 0.15]), "g") == "0.15 to 0.2"


def test_a_choice_of_alpha_is_held_against_nll_the_default_and_the_oracle():
    rows = [("m", "selected", 0.05, 0.80), ("m", "default", 0.4, 0.82), ("m", "oracle", 0.2, 0.83)]
    rows += [("n", "selected", 0.5, 0.70), ("n", "default", 0.4, 0.69), ("n", "oracle", 0.5, 0.70)]
    choices = pd.DataFrame(rows, columns=["model", "kind", "alpha", "auroc"]).assign(dataset="d")
    sweep = pd.DataFrame({"model": ["m", "n", "m"], "alpha": [1, 1, 0.5], "auroc": [0.81, 0.68, 0.99]}).assign(
        dataset="d"
    )
    assert conclusions.chosen(choices, sweep) == (
        "The α chosen is 0.05 to 0.5. AUROC minus NLL's is -0.010 to +0.020 with it and +0.010 with the default. "
        "Choosing on the reported questions themselves would have added +0.000 to +0.030."
    )


def test_what_alpha_keeps_is_said_of_each_protocol():
    sweep = pd.DataFrame({"alpha": [0, 0.4, 0, 0.4], "mean_kept": [10, 2.5, 7, 1.0]})
    both = sweep.assign(protocol=["paper", "paper", "workbench", "workbench"])
    assert conclusions.kept(both, 0.41) == (
        "Answers that a question keeps, the mean of each setting: 10.00 at α = 0 in protocol `paper`; 2.50 at α = 0.4 "
        "in protocol `paper`; 7.00 at α = 0 in protocol `workbench`; 1.00 at α = 0.4 in protocol `workbench`."
    )
    assert "10.00 to 7.00" not in conclusions.kept(sweep, 0.4)
    assert "7.00 to 10.00 at α = 0;" in conclusions.kept(sweep, 0.4)


@pytest.mark.parametrize(("adaptive", "said"), [(0.9, "+0.100"), (0.75, "-0.050")])
def test_fixed_k_has_a_best_and_a_worst_and_adaptive_k_is_above_or_below(adaptive, said):
    table = pd.DataFrame({"k": [1, 2, 3, "adaptive"], "auroc": [0.7, 0.8, 0.6, adaptive]}).assign(
        dataset="d", model="m"
    )
    assert conclusions.fixed(table) == (
        f"d, m: best at K = 2 (0.800), worst at K = 3 (0.600), adaptive {said} beside the best."
    )
