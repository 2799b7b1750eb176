"""Test the sentences of captions on invented tables of which the right sentence is known."""

import pandas as pd
import pytest
from invented_settings import setting_row

from pro_lib.plots.captions import comparison, join_caption


def compared(*rows, **options):
    """Return the sentences about PRO and NLL in these settings."""
    return comparison(pd.DataFrame(list(rows)), "PRO", **options)


def test_an_effect_up_in_the_only_setting():
    assert compared(setting_row(0.05, p_value=0.001)) == (
        "PRO is significantly better than NLL (+0.050, 95 % interval +0.040 to +0.060)."
    )


def test_an_effect_down_in_all_settings():
    rows = [setting_row(-0.05, p_value=0.001), setting_row(-0.08, p_value=0.001)]
    expected = (
        "PRO is significantly worse than NLL in 2 of 2 settings (differences −0.080 to −0.050)."
    )
    assert compared(*rows) == expected


def test_an_effect_that_was_not_shown_says_what_would_have_been():
    # The standard error is 0.0051, and 3.08 of them are 0.016.
    assert compared(setting_row(-0.001), setting_row(0.002)) == (
        "PRO is not significantly different from NLL in 2 of 2 settings (differences −0.001 to "
        "+0.002). A difference of 0.02 would have been detected with a probability of 80 %, "
        "corrected for 2 tests."
    )
    assert "detected" not in compared(setting_row(-0.001), says_detectable=False)


def test_settings_are_corrected_for_each_other_and_for_a_family():
    # p = 0.03 is significant for one setting, and not for two.
    row = setting_row(0.05, p_value=0.03)
    assert "significantly better" in compared(row)
    assert "not significantly different" in compared(row, row)
    family = pd.DataFrame([row, setting_row(0.01, p_value=0.5)])
    assert "not significantly different" in compared(row, family=family)


@pytest.mark.parametrize("few", [{"n_correct": 19}, {"half_width": float("nan")}])
def test_a_setting_with_too_few_answers_is_named(few):
    said = compared(setting_row(0.05, p_value=0.001), setting_row(0.1, model="n", **few))
    assert said.endswith("There are too few answers for a statement about n on d.")
    assert "+0.100" not in said


def test_verdicts_after_the_first_do_not_repeat_the_reference():
    rows = [setting_row(0.05, p_value=0.001), setting_row(0.001), setting_row(0.002)]
    assert compared(*rows, says_detectable=False) == (
        "PRO is significantly better than NLL in 1 of 3 settings (+0.050, 95 % interval +0.040 to "
        "+0.060) and not significantly different in 2 (differences +0.001 to "
        "+0.002)."
    )


def test_a_caption_has_n_the_rule_and_how_repeats_count():
    table = pd.DataFrame({"n_questions": [10, 20], "model": ["a", "b"], "protocol": "workbench"})
    table = table.assign(correctness="exact match")
    assert join_caption("Shown.", table, "", "Found.") == (
        "Shown. n = 10 to 20 questions in each setting (a model and a dataset). An answer that "
        "is found twice counts once. The most probable answer counts as correct by this rule: "
        "exact match.\n\nFound."
    )
    by_labels = table.assign(judge="labels", n_labels=60)
    assert "Labels of 60 answers estimate which answers are correct" in join_caption("", by_labels)
