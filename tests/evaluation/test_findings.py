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


def choices(difference, p_value, protocol="paper", **others):
    """The rows of one setting in the table of chosen αs; the default is NLL."""
    rows = []
    for choice, alpha, value in (
        ("validation", 0.2, difference),
        ("default", 0.4, 0.0),
        ("oracle", 0.1, difference + 0.01),
    ):
        chosen = {"alpha_choice": choice, "alpha": alpha, "auroc": 0.8 + value}
        chosen |= {"protocol": protocol, "p_value": p_value if choice == "validation" else 1.0}
        rows.append(setting(value, **chosen | others))
    return pd.DataFrame(rows)


def test_02_says_which_alpha_was_chosen_and_what_it_is_worth():
    said = findings.alpha_sweep(choices(0.05, 0.001))
    assert said.startswith(
        "If repeats are counted (protocol `paper`), the α chosen on validation questions is "
        "0.2. PRO "
        "with α chosen on validation questions is significantly better than NLL in the only setting"
    )
    assert "PRO with the default α = 0.4 is not significantly different from NLL" in said
    assert "has an AUROC that is +0.010 higher than the α chosen on validation questions" in said


def test_02_does_not_count_protocols_as_settings():
    # p = 0.03 is significant for one setting, and would not be for two.
    both = pd.concat([choices(0.05, 0.03), choices(0.05, 0.03, protocol="workbench")])
    paper, workbench = findings.alpha_sweep(both).split("\n\n")
    assert "significantly better than NLL in the only setting" in paper
    assert workbench.startswith("If each answer counts once (protocol `workbench`)")
    assert "significantly better than NLL in the only setting" in workbench


def test_02_says_nothing_of_too_few_answers():
    said = findings.alpha_sweep(choices(0.05, 0.001, n_correct=5))
    assert said.endswith("too few for a statement (m on d).")
    assert "significant" not in said
    assert "oracle" not in said


def repeats_table():
    """Beams of 200 questions, with repeats counted and left out."""
    rows = {"repeats": ["counted", "left out"], "n_questions": 200, "largest_mass": [3.14159, 0.9]}
    return pd.DataFrame(rows | {"n_above_one": [50, 0], "share_several": [0.5, 0.0125]})


def test_00_says_how_often_pro_differs_from_nll_and_when_the_premise_fails():
    assert findings.examples(repeats_table(), pd.DataFrame(), 0.4) == (
        "At α = 0.4, PRO keeps more than one distinct answer for 1.25 % of the questions; for the "
        "others, PRO equals NLL. If repeats are counted, the probabilities of the answers sum "
        "to more "
        "than 1 for 25.0 % of the questions, and to 3.14 at most; without repeats, for 0.0 %."
    )


def test_00_says_what_no_and_many_documents_do():
    rows = {
        "measure": ["PRO", "accuracy"] * 3,
        "exposure": [32, 32, 0, 0, 32, 32],
        "conflict": [0, 0, 0, 0, 0.5, 0.5],
    }
    ends = {"mean_low": [0.1, 0.8, 1.9, 0.0, 0.5, 0.3], "mean_high": [0.3, 1.0, 2.1, 0.1, 0.7, 0.5]}
    table = pd.DataFrame(rows | {"mean": [0.2, 0.9, 2.0, 0.05, 0.6, 0.4]} | ends)
    assert findings.examples(repeats_table(), table, 0.4).endswith(
        "\n\nFor facts with 0 training documents, 5.0 % of the answers are correct (95 % "
        "confidence "
        "interval 0.0 to 10.0 %) and the mean of PRO is 2.00 nats. With 32 training documents, "
        "90.0 % "
        "of the answers are correct (95 % confidence interval 80.0 to 100.0 %) and the mean of "
        "PRO is "
        "0.20 nats."
    )


def test_01_says_ranges_of_means():
    rows = {"dataset": ["d", "e"], "model": "m", "n_answers": [10.0, 8.0], "n_distinct": [5.0, 4.0]}
    table = pd.DataFrame(rows | {"mass": [0.5, 0.9], "mass_with_repeats": [0.5, 2.0], "k": [1, 2]})
    assert findings.generated_answers(table, 0.4) == (
        "A question has 8.0 to 10.0 answers on average in the 2 settings, of which 4.0 to 5.0 are "
        "distinct. The probabilities of the distinct answers sum to 0.50 to 0.90 on average. "
        "If repeats "
        "are counted, the sum is above 1 for 0.0 to 100.0 % of the questions. At α = 0.4, PRO "
        "keeps more "
        "than one answer for 0.0 to 100.0 % of the questions; for the others, PRO equals NLL."
    )


def at_thresholds(*aurocs, **others):
    """The rows of one setting at thresholds 0.1 and 0.5, with PRO, SE and NLL at each."""
    rows = []
    for threshold, values in zip((0.1, 0.5), aurocs, strict=True):
        for method, auroc in zip(("PRO", "SE", "NLL"), values, strict=True):
            row = {"rouge_threshold": threshold, "method": method, "auroc": auroc}
            row["similarity"] = "alias" if method == "SE" else None
            rows.append(setting(auroc - values[2], **row | others))
    return pd.DataFrame(rows)


def test_05_compares_pro_with_nll_at_the_ends_and_says_how_much_moves():
    said = findings.rouge_thresholds(
        at_thresholds((0.8, 0.7, 0.75), (0.82, 0.71, 0.79), p_value=0.001)
    )
    assert said.startswith(
        "If repeats are counted (protocol `paper`): At ROUGE-L > 0.1, PRO with α chosen on "
        "validation "
        "questions is significantly better than NLL in the only setting (difference +0.050"
    )
    assert (
        "At ROUGE-L > 0.5, PRO with α chosen on validation questions is significantly better"
        in said
    )
    assert "The threshold changes no AUROC by more than 0.040 (NLL, m on d)." in said
    assert "at 0.1 and that at 0.5 is 1.00 (1 is the same order)" in said


def test_05_says_that_the_order_changes_and_names_the_similarity():
    # One of three pairs changes its order: τ is (2 − 1) / 3.
    said = findings.rouge_thresholds(at_thresholds((0.8, 0.7, 0.75), (0.8, 0.77, 0.75)))
    assert "at 0.1 and that at 0.5 is 0.33" in said
    assert "by more than 0.070 (SE (alias), m on d)" in said


def test_05_says_nothing_of_an_order_of_methods_that_tie():
    said = findings.rouge_thresholds(at_thresholds((0.8, 0.8, 0.8), (0.8, 0.7, 0.75)))
    assert "The order of the methods cannot be compared, because they tie." in said
    assert "nan" not in said.lower()


def test_05_says_nothing_of_too_few_answers():
    said = findings.rouge_thresholds(at_thresholds((0.8, 0.7, 0.75), (0.9, 0.7, 0.75), n_correct=5))
    assert "too few for a statement (m on d)" in said
    assert "threshold changes" not in said
