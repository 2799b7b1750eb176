"""Counts of settings: how often a difference is significant, and what counts as a setting."""

import numpy as np
import pandas as pd

from pro_lib.evaluation.findings.settings import (
    SettingCounts,
    beyond_chance,
    count_beyond_chance,
    count_settings,
)


def rows(*p_values, protocol="paper", differences=None):
    """A row per setting, model m on datasets d0, d1, …"""
    table = pd.DataFrame(
        {"dataset": [f"d{n}" for n in range(len(p_values))], "model": "m", "p_value": p_values}
    )
    return table.assign(protocol=protocol, difference=differences or [0.1] * len(p_values))


def test_of_four_settings_one_is_beyond_chance_by_holm_and_three_are_uncorrected():
    # 0.01 · 4 = 0.04 is at most 0.05; 0.02 · 3 = 0.06 is not, and ends it.
    assert beyond_chance([0.03, 0.01, 0.02, 0.6]).tolist() == [False, True, False, False]
    assert count_beyond_chance(rows(0.03, 0.01, 0.02, 0.6)) == SettingCounts(4, 1, 0)


def test_the_sign_of_the_difference_decides_between_higher_and_lower():
    table = rows(0.001, 0.001, 0.001, differences=[0.1, -0.1, -0.2])
    assert count_beyond_chance(table) == SettingCounts(3, 1, 2)


def test_two_protocols_are_two_tests_of_one_setting():
    both = pd.concat([rows(0.001, 0.03), rows(0.002, 0.5, protocol="workbench")])
    assert count_beyond_chance(both) == SettingCounts(2, 1, 0)
    assert (
        count_settings(both, both["p_value"] < 0.1)
        == "2 of 2 settings (paper) and 1 of 2 (workbench)"
    )
    assert count_settings(rows(0.001, 0.03), [True, False]) == "1 of 2 settings"


def test_a_statement_about_one_method_is_corrected_for_all_that_were_tested():
    family = pd.concat(
        [rows(0.02, 0.6).assign(method="NLL"), rows(0.3, 0.4).assign(method="PE")],
        ignore_index=True,
    )
    nll = family[family["method"] == "NLL"]
    assert count_beyond_chance(nll) == SettingCounts(2, 1, 0)  # 0.02 · 2 = 0.04
    assert count_beyond_chance(nll, family=family) == SettingCounts(2, 0, 0)  # 0.02 · 4 = 0.08


def test_nothing_is_counted_of_no_rows_and_of_differences_without_a_test():
    assert count_beyond_chance(rows()) == SettingCounts(0, 0, 0)
    assert count_beyond_chance(rows(np.nan, np.nan)) == SettingCounts(2, 0, 0)


def test_any_of_fifteen_equal_settings_is_significant_in_at_most_one_run_of_twenty():
    rng, n_runs = np.random.default_rng(11), 1000
    corrected = uncorrected = 0
    for _ in range(n_runs):
        p_values = rng.random(15)  # of true hypotheses
        corrected += beyond_chance(p_values).any()
        uncorrected += min(p_values) <= 0.05
    assert corrected / n_runs <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / n_runs)
    assert uncorrected / n_runs > 0.5  # 1 - 0.95 ** 15 = 0.54
