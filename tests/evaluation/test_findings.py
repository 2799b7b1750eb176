"""The sentences under the figures, on made-up tables of which the right sentence is known."""

import pandas as pd

from pro_lib.evaluation import findings

NAN = float("nan")


def setting(difference, *, half_width=0.01, p_value=0.5, n_correct=500, **others):
    """A row of a setting with 1,000 questions, in which PRO has this difference to NLL."""
    row = {"dataset": "d", "model": "m", "protocol": "paper", "n_questions": 1000}
    row |= {"n_correct": n_correct, "p_value": p_value, "auroc_minus_nll": difference}
    row |= {"auroc_minus_nll_low": difference - half_width}
    row |= {"auroc_minus_nll_high": difference + half_width}
    return row | others


def compared(*rows):
    """Return the findings about PRO and NLL in these settings."""
    return findings.comparison(pd.DataFrame(list(rows)), "PRO", "NLL", "auroc_minus_nll")


# --- One comparison: up, down, not shown, undecided, too few questions ---


def test_an_effect_up_in_the_only_setting():
    assert compared(setting(0.05, p_value=0.001)) == (
        "PRO is significantly better than NLL in the only setting "
        "(difference +0.050, 95 % confidence interval +0.040 to +0.060)."
    )


def test_an_effect_down_in_all_settings():
    rows = [setting(-0.05, p_value=0.001), setting(-0.08, p_value=0.001)]
    assert compared(*rows) == (
        "PRO is significantly worse than NLL in all 2 settings "
        "(differences −0.080 to −0.050, 95 % confidence intervals within −0.090 to −0.040)."
    )


def test_an_effect_that_was_not_shown_and_would_have_been():
    rows = [setting(-0.001), setting(0.002)]
    assert compared(*rows) == (
        "PRO is not significantly different from NLL in any of the 2 settings "
        "(differences −0.001 to +0.002, 95 % confidence intervals within −0.011 to +0.012). "
        "An effect of 0.02 or more would have been detected in all of them."
    )


def test_an_effect_would_have_been_detected_in_some_of_the_settings():
    said = compared(setting(0.0), setting(0.0), setting(0.0, half_width=0.02))
    assert "An effect of 0.02 or more would have been detected in 2 of them." in said


def test_an_undecided_comparison_says_what_it_would_take():
    # The interval is ± 0.1, so the standard error is 0.051 and 2.8 of them are 0.143.
    assert compared(setting(0.03, half_width=0.1)) == (
        "PRO is not significantly different from NLL in the only setting "
        "(difference +0.030, 95 % confidence interval −0.070 to +0.130). There are too few "
        "questions to detect an effect of 0.02 or more, only effects of about 0.14."
    )


def test_effects_in_both_directions_and_none():
    rows = [setting(0.05, p_value=0.001), setting(-0.05, p_value=0.001), setting(0.0, p_value=1.0)]
    said = compared(*rows)
    assert said.startswith(
        "PRO is significantly better than NLL in 1 of 3 settings (difference +0.050"
    )
    assert ". It is significantly worse than NLL in 1 of 3 settings (difference −0.050" in said
    assert (
        ". It is not significantly different from NLL in 1 of 3 settings (difference +0.000" in said
    )


def test_significance_is_corrected_for_the_number_of_settings():
    # Alone p = 0.03 is significant; as the smallest of four p-values it is 0.12.
    assert "significantly better" in compared(setting(0.02, p_value=0.03))
    rows = [setting(0.02, p_value=0.03), *[setting(0.0, p_value=0.9)] * 3]
    assert "not significantly different from NLL in any of the 4 settings" in compared(*rows)


def test_a_setting_with_too_few_answers_is_left_out_and_named():
    rows = [setting(0.0), setting(0.4, p_value=0.001, n_correct=19, model="small")]
    said = compared(*rows)
    assert said.startswith("PRO is not significantly different from NLL in the only setting")
    assert said.endswith(
        "1 setting has fewer than 20 correct or 20 wrong answers, too few for a statement "
        "(small on d)."
    )
    few_wrong = setting(0.4, n_correct=981, p_value=0.001)
    assert compared(few_wrong, few_wrong).startswith(
        "2 settings have fewer than 20 correct or 20 wrong"
    )
    assert "significant" not in compared(few_wrong)


def test_twenty_of_each_are_enough():
    assert "significantly better" in compared(setting(0.05, p_value=0.001, n_correct=20))
    assert "significantly better" in compared(setting(0.05, p_value=0.001, n_correct=980))


NO_INTERVAL = {"p_value": NAN, "auroc_minus_nll_low": NAN, "auroc_minus_nll_high": NAN}


def test_a_comparison_without_an_interval_says_why():
    said = compared(setting(0.05, model="few", **NO_INTERVAL))
    assert said == (
        "The difference between PRO and NLL has no interval in 1 setting, because the questions "
        "are in too few clusters (few on d)."
    )


def test_a_comparison_without_an_interval_says_that_labels_are_too_few():
    said = compared(setting(0.05, model="few", judge="labels", **NO_INTERVAL))
    assert said.endswith(
        "no interval in 1 setting, because too few answers have labels (few on d)."
    )


def test_settings_without_an_interval_are_not_counted_with_the_others():
    rows = [setting(0.05, p_value=0.001), setting(0.3, model="few", **NO_INTERVAL)]
    said = compared(*rows)
    assert said.startswith(
        "PRO is significantly better than NLL in the only setting (difference +0.050"
    )
    assert said.endswith(
        "no interval in 1 setting, because the questions are in too few clusters (few on d)."
    )
    assert "nan" not in said


# --- Notebooks ---


def at_thresholds(*aurocs, **others):
    """The rows of one setting at thresholds 0.1 and 0.5, with PRO, SE and NLL at each."""
    rows = []
    for threshold, values in zip((0.1, 0.5), aurocs, strict=True):
        for method, auroc in zip(("PRO", "SE", "NLL"), values, strict=True):
            row = {"rouge_threshold": threshold, "method": method, "auroc": auroc}
            row["similarity"] = "alias" if method == "SE" else None
            rows.append(setting(auroc - values[2], **row | others))
    return pd.DataFrame(rows)
