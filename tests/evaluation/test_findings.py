"""The sentences under the figures, on made-up tables of which the right sentence is known."""

import pandas as pd
import pytest

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


def benchmark_rows(nll, others=(), **setting_values):
    """PRO with three choices of α, NLL with this difference to PRO, and other methods."""
    methods = [("PRO", None, choice, 0.0, None) for choice in ("validation", "default", "oracle")]
    methods += [("NLL", None, None, *nll), *others]
    rows = []
    for method, similarity, alpha_choice, difference, p_value in methods:
        row = {"method": method, "similarity": similarity, "alpha_choice": alpha_choice}
        row |= {"auroc_minus_pro": difference, "auroc_minus_pro_low": difference - 0.01}
        row |= {"auroc_minus_pro_high": difference + 0.02, "n_differ": 40, "auroc_high": 0.9}
        rows.append(setting(0.0, p_value=p_value) | row | setting_values)
    return pd.DataFrame(rows)


def auroc_redraws(shares=(0.25, 0.75), **others):
    """A row for each setting: the share of redraws in which PRO is above NLL."""
    return pd.DataFrame([setting(0.0, share_better_than_nll=share, **others) for share in shares])


def test_06_reverses_the_difference_of_nll_with_its_ends():
    said = findings.benchmark(benchmark_rows((-0.05, 0.001)), auroc_redraws())
    assert said == (
        "If repeats are counted (protocol `paper`): PRO with α chosen on validation questions is "
        "significantly better than NLL in the only setting (difference +0.050, 95 % confidence "
        "interval +0.030 to +0.060). The two scores differ on 40 questions of a setting. If α "
        "is chosen "
        "on other validation questions, the AUROC of PRO on the same reported questions is "
        "above that "
        "of NLL in 25 to 75 % of the redraws, by however little."
    )
    said = findings.benchmark(benchmark_rows((0.05, 0.001)), auroc_redraws())
    assert "PRO with α chosen on validation questions is significantly worse than NLL" in said


def test_06_corrects_for_all_methods_and_settings():
    # Alone p = 0.03 is significant; beside another method it is 0.06.
    alone = findings.benchmark(benchmark_rows((-0.05, 0.03)), auroc_redraws())
    assert "significantly better than NLL" in alone
    others = [("ALL", None, None, 0.01, 0.9)]
    beside = findings.benchmark(benchmark_rows((-0.05, 0.03), others), auroc_redraws())
    assert "not significantly different from NLL" in beside
    # Two tests need a smaller standard error: 0.0077 times (2.24 + 0.84) is 0.024.
    assert "only effects of about 0.02." in beside


def test_06_lists_better_and_worse_methods_and_those_that_were_not_shown_to_differ():
    others = [("SE", "lexical", None, 0.05, 0.001), ("SE", "alias", None, -0.05, 0.001)]
    others.append(("Deg", "alias", None, 0.01, 0.9))
    rows = [benchmark_rows((0.0, 1.0), others, model=model) for model in ("m", "n")]
    rows[1].loc[rows[1]["similarity"] == "alias", "p_value"] = 0.9
    said = findings.benchmark(pd.concat(rows, ignore_index=True), auroc_redraws())
    assert (
        "\n\nSignificantly better than PRO:\n\n- SE (lexical) in all 2 settings (differences "
        "+0.050, 95 % "
        "confidence intervals within +0.040 to +0.070)\n\nSignificantly worse than PRO:\n\n- "
        "SE (alias) in 1 of 2 "
        "settings (difference −0.050, 95 % confidence interval −0.060 to −0.030)\n\nNo "
        "significant difference "
        "to PRO was shown in any setting for Deg (alias) (differences +0.010, 95 % confidence "
        "intervals "
        "within +0.000 to +0.030)."
    ) in said


def test_06_does_not_count_protocols_as_settings():
    both = [benchmark_rows((-0.05, 0.03)), benchmark_rows((-0.05, 0.03), protocol="workbench")]
    redraws = pd.concat([auroc_redraws(), auroc_redraws([0.5], protocol="workbench")])
    paper, workbench = findings.benchmark(pd.concat(both, ignore_index=True), redraws).split("\n\n")
    for text, share in ((paper, "25 to 75 %"), (workbench, "50 %")):
        assert "significantly better than NLL in the only setting" in text
        assert f"above that of NLL in {share} of the redraws" in text


def test_06_says_where_scores_are_the_same_and_what_cannot_be_redrawn():
    rows = [benchmark_rows((0.0, 1.0), model=model) for model in ("m", "n")]
    rows[0]["n_differ"] = 0
    said = findings.benchmark(pd.concat(rows, ignore_index=True), auroc_redraws([None, None]))
    assert (
        "differ on 0 to 40 questions of a setting; in 1 of 2 settings they are the same on "
        "every question." in said
    )
    assert "The validation questions cannot be redrawn, so it is not known" in said
    assert "nan" not in said
    half = findings.benchmark(pd.concat(rows, ignore_index=True), auroc_redraws([0.5, None]))
    assert "in 50 % of the redraws" in half


def test_06_names_what_is_worse_than_chance():
    others = [("PE", None, None, -0.4, 0.001)]
    table = benchmark_rows((0.0, 1.0), others)
    assert "Worse than chance" not in findings.benchmark(table, auroc_redraws())
    table.loc[table["method"] == "PE", "auroc_high"] = 0.49
    assert findings.benchmark(table, auroc_redraws()).endswith(
        "Worse than chance, with a 95 % interval of AUROC that is entirely below 0.5: PE in "
        "the only setting "
        "(each interval by itself)."
    )


def test_06_says_nothing_of_too_few_answers():
    few = {"n_correct": 19}
    said = findings.benchmark(benchmark_rows((-0.05, 0.001), **few), auroc_redraws(**few))
    assert said == (
        "If repeats are counted (protocol `paper`): 1 setting has fewer than 20 correct or 20 "
        "wrong answers, "
        "too few for a statement (m on d)."
    )
    without_nll = benchmark_rows((0.0, 1.0), **few).query("method != 'NLL'")
    assert findings.benchmark(without_nll, auroc_redraws(**few)) == said


def test_06_without_nll_compares_the_other_methods():
    others = [("SE", "lexical", None, 0.05, 0.001)]
    table = benchmark_rows((0.0, 1.0), others).query("method != 'NLL'")
    said = findings.benchmark(table, auroc_redraws())
    assert "NLL is" not in said
    assert "- SE (lexical) in the only setting" in said


def searched(**others):
    """The tables of exact search at two αs, in one setting."""
    row = {"dataset": "d", "model": "m", "strategy": "threshold"}
    found = {"alpha": [0.4, 0.1], "recall": [1.0, 0.5], "share_certified": [0.25, 0.75]}
    bounds = {"alpha": [0.4, 0.1], "n_certified": [250, 750], "n_ordered": [250, 750]}
    bounds |= {"entropy_minus_tree_bound": [0.5, 0.7], "entropy_interval_width": [1.0, 2.0]}
    bounds |= {"entropy_minus_tree_bound_low": [0.4, 0.6]}
    bounds |= {"entropy_minus_tree_bound_high": [0.6, 0.8]}
    return pd.DataFrame(row | found), pd.DataFrame(row | bounds | others)


def search_scores(beams, **others):
    """PRO of beams with this difference to PRO of the exact search, and NLL with none."""
    rows = []
    for method, strategy, alpha_choice, difference, p_value in (
        ("PRO", "threshold", "validation", 0.0, None),
        ("PRO", "diverse_beam", "validation", beams, 0.001),
        ("NLL", "threshold", None, 0.0, 1.0),
        ("PRO", "diverse_beam", "exact search", 0.001, 0.5),
    ):
        row = {"method": method, "strategy": strategy, "alpha_choice": alpha_choice}
        row |= {"auroc_minus_pro": difference, "auroc_minus_pro_low": difference - 0.01}
        row |= {"auroc_minus_pro_high": difference + 0.01}
        rows.append(setting(0.0, p_value=p_value) | row | others)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("difference", "verb"), [(-0.05, "worse"), (0.05, "better")])
def test_07_compares_beams_with_the_search_by_the_paired_difference(difference, verb):
    found, bounds, own, same, nll = findings.exact_search(
        *searched(), search_scores(difference)
    ).split("\n\n")
    assert found == (
        "At α = 0.4, beams find 100.0 % of the answers with p ≥ α, and 25.0 % of the questions are "
        "certified. At α = 0.1, beams find 50.0 % of the answers with p ≥ α, and 75.0 % of the "
        "questions are certified."
    )
    assert bounds == (
        "PRO ≤ α-floor ≤ tree bound holds for every certified question at every α. The mean "
        "entropy, "
        "estimated by samples, minus the mean tree bound is +0.500 to +0.700 nats (95 % confidence "
        "intervals within +0.400 to +0.800). The entropy of a single question is known less "
        "well: at "
        "α = 0.1 its 95 % interval is 2.00 nats wide on average."
    )
    assert own.startswith(
        f"PRO of beams, with its own α chosen on validation questions, is significantly {verb} "
        f"than "
        "PRO of the exact search in the only setting"
    )
    assert same.startswith(
        "PRO of beams at the α of the search is not significantly different from"
    )
    assert nll.startswith("NLL is not significantly different from PRO of the exact search")


def test_07_counts_a_violated_bound():
    said = findings.exact_search(*searched(n_ordered=[250, 747]), search_scores(0.0))
    assert "is violated in 3 of 1,000 cases" in said
    assert "holds for every" not in said


def test_07_says_what_is_not_known():
    found, bounds = searched(n_certified=[0, 0])
    said = findings.exact_search(
        found.assign(recall=None), bounds, search_scores(0.0, n_correct=19)
    )
    assert "At α = 0.4, no answer has p ≥ α, and" in said
    assert "No question is certified at any α" in said
    assert said.endswith("too few for a statement (m on d).")
    assert "significant" not in said
    assert "nan" not in said
    unknown = findings.exact_search(
        *searched(entropy_minus_tree_bound_low=None), search_scores(0.0)
    )
    assert "The interval of the entropy is unknown." in unknown


def guaranteed(target, threshold, coverage=0.3, accuracy=0.8, half_width=0.05, **others):
    """A row of the table of guarantees."""
    row = {
        "dataset": "d",
        "model": "m",
        "target": target,
        "threshold": threshold,
        "confidence": 0.95,
    }
    row |= {"coverage": coverage, "accuracy": accuracy}
    return (
        row
        | {"accuracy_low": accuracy - half_width, "accuracy_high": accuracy + half_width}
        | others
    )


def test_09_says_what_is_guaranteed_and_what_is_not():
    nothing = {"threshold": NAN, "coverage": 0.0, "accuracy": NAN}
    rows = [guaranteed(0.7, 1.5), guaranteed(0.7, 2.5, coverage=0.2, accuracy=0.6)]
    rows += [guaranteed(0.7, **nothing), guaranteed(0.8, **nothing), guaranteed(0.8, **nothing)]
    assert findings.guarantees(pd.DataFrame(rows)) == (
        "An accuracy of at least 70 % is guaranteed for 2 of 3 methods (95 % confidence, each by "
        "itself). They answer 20.0 to 30.0 % of the questions, and 60.0 to 80.0 % of these "
        "answers are "
        "correct. The 95 % interval of this accuracy is entirely below the target for 1 of "
        "these 2.\n\n"
        "An accuracy of at least 80 % is guaranteed for none of the 2 methods: the validation "
        "questions do not show it."
    )


def test_09_says_for_how_many_methods_labels_show_the_accuracy():
    unknown = {"accuracy": NAN, "half_width": NAN}
    rows = [guaranteed(0.7, 1.5), guaranteed(0.7, 2.5, **unknown)]
    assert findings.guarantees(pd.DataFrame(rows)).endswith(
        "80.0 % of these answers are correct. The 95 % interval of this accuracy is entirely below "
        "the target for 0 of the 1 for which the labels suffice."
    )
    assert findings.guarantees(pd.DataFrame(rows[1:])).endswith(
        "They answer 30.0 % of the questions. The labels do not suffice to estimate how many of "
        "these answers are correct."
    )


def test_09_says_nothing_about_the_accuracy_of_no_answers():
    nothing = guaranteed(0.7, 1.5, coverage=0.0, accuracy=NAN, half_width=NAN)
    said = findings.guarantees(pd.DataFrame([nothing]))
    assert said.endswith("They answer 0.0 % of the questions.")


def test_09_counts_methods_in_several_settings():
    rows = [guaranteed(0.7, 1.5), guaranteed(0.7, 1.5, model="other")]
    assert "for 2 of 2 pairs of a method and a setting" in findings.guarantees(pd.DataFrame(rows))


def test_09_says_which_sets_can_be_issued_and_what_they_miss():
    issued = {
        "delta": 0.5,
        "alpha": 0.02,
        "missed": 0.45,
        "missed_low": 0.4,
        "missed_high": 0.5,
        "set_size": 3.04,
    }
    fixed = {**issued, "delta": NAN, "alpha": 0.4}
    table = pd.DataFrame([{"delta": 0.3, "alpha": NAN, "missed": 0.0}, issued, fixed])
    assert findings.answer_sets(table) == (
        "Sets that may miss every correct answer for at most 30 % of the questions cannot be "
        "issued: "
        "the search finds a correct answer for too few validation questions.\n\n"
        "Sets that may miss every correct answer for at most 50 % of the questions consist of the "
        "answers with p ≥ 0.020. They miss 45.0 % (95 % confidence interval 40.0 to 50.0 %), "
        "and have 3.0 "
        "answers on average."
    )
    two = findings.answer_sets(pd.DataFrame([issued, issued | {"alpha": NAN}]))
    assert "answers with p ≥ 0.020 in 1 of 2 settings. They miss 45.0 %" in two


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.0, 3.0, "The 95 % limits of a single question are 2.0 nats apart on average."),
        (NAN, NAN, "One sample does not give an interval."),
    ],
)
def test_09_says_the_mean_entropy_and_how_wide_its_limits_are(low, high, said):
    row = {"dataset": "d", "model": "m", "entropy": 2.0, "tree_bound": 1.5}
    table = pd.DataFrame([row | {"entropy_low": low, "entropy_high": high}])
    assert findings.entropies(table) == (
        f"The entropy is 2.00 nats on average over questions; the tree bound of the search is "
        f"1.50 nats. {said}"
    )


def test_09_says_nothing_about_searches_of_records():
    nothing = pd.DataFrame()
    assert findings.answer_sets(nothing) == findings.entropies(nothing) == ""


def at_thresholds(*aurocs, **others):
    """The rows of one setting at thresholds 0.1 and 0.5, with PRO, SE and NLL at each."""
    rows = []
    for threshold, values in zip((0.1, 0.5), aurocs, strict=True):
        for method, auroc in zip(("PRO", "SE", "NLL"), values, strict=True):
            row = {"rouge_threshold": threshold, "method": method, "auroc": auroc}
            row["similarity"] = "alias" if method == "SE" else None
            rows.append(setting(auroc - values[2], **row | others))
    return pd.DataFrame(rows)


def world(
    number, *differences, p_value=1e-9, varied="spellings of each meaning", level="5", **others
):
    """Return the rows of a simulated world.

    PRO with K = 2 and at α = 0.4 has these differences to NLL.
    """
    rows = []
    for index, difference in enumerate(differences):
        is_fixed = index == 0
        row = {
            "world": number,
            "varied": varied,
            "level": level,
            "calibration": 1.0,
            "n_spellings": 5,
        }
        row |= {"k_choice": "fixed" if is_fixed else "adaptive", "k": 2 if is_fixed else None}
        row |= {
            "alpha": None if is_fixed else 0.4,
            "p_value": p_value,
            "auroc_minus_nll": difference,
        }
        row |= {
            "auroc_minus_nll_low": difference - 0.001,
            "auroc_minus_nll_high": difference + 0.001,
        }
        rows.append(row | others)
    return pd.DataFrame(rows).astype({"k": "Int64", "alpha": float})


BASE = world(0, -0.01, 0.0, varied="sharpness of probabilities", level="4", n_spellings=1)


def several_worlds(*tables):
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(
    ("difference", "p_value", "better", "worse"),
    [(0.02, 1e-9, 1, 1), (-0.02, 1e-9, 0, 2), (0.02, 0.03, 0, 1)],
    ids=["up", "down", "not after Holm's correction"],
)
def test_08_counts_the_base_world_once_and_corrects_for_all_comparisons(
    difference, p_value, better, worse
):
    base_again = BASE.assign(varied="answers found per question", level="10")
    table = several_worlds(BASE, world(1, difference, difference, p_value=p_value), base_again)
    assert findings.worlds_note(table, table) == (
        "Significant after Holm's correction for all worlds, α and K: in "
        f"{better} of 2 worlds PRO is better than NLL with at least one of these α and K, and in "
        f"{worse} it is worse with at least one. A world can count for both."
    )
    said = findings.worlds_sentences(table)
    assert said.startswith(
        f"PRO with at least one of the choices K = 2 and α = 0.4 is significantly better than "
        f"NLL in "
        f"{better} of 2 simulated worlds. It is significantly worse with at least one of them "
        f"in {worse}."
    )


def test_08_corrects_the_worlds_of_one_figure_for_those_of_all():
    # p = 0.02 is significant among two comparisons, and would be 0.08 among four.
    shown = world(1, 0.02, 0.0).assign(p_value=[0.02, 0.9])
    others = world(2, 0.0, 0.0, p_value=0.9)
    assert "in 1 of" in findings.worlds_note(shown, shown)
    assert "in 0 of" in findings.worlds_note(shown, several_worlds(shown, others))


def test_08_does_not_correct_for_the_repeated_rows_of_the_base_world():
    # The smallest of four p-values is 0.048 after Holm's correction; as one of six it would be
    # 0.072.
    base = BASE.assign(p_value=0.9)
    again = base.assign(varied="answers found per question", level="10")
    table = several_worlds(base, world(1, 0.02, 0.0).assign(p_value=[0.012, 0.9]), again)
    assert "in 1 of" in findings.worlds_note(table, table)


def test_08_names_the_largest_gain_and_the_worlds_without_a_cause():
    both = world(1, 0.031, 0.0, varied="spellings and calibration", calibration=0.5)
    said = findings.worlds_sentences(several_worlds(BASE, both))
    assert (
        "The largest gain is +0.031 (95 % confidence interval +0.030 to +0.032), with K = 2 in "
        "the world "
        "with calibration 0.5 and 5 spellings of each meaning. It is the largest of 4 values, "
        "so part of "
        "it is chance."
    ) in said
    assert said.endswith(
        "In the 1 worlds of a calibrated model with one spelling of each meaning, PRO is "
        "significantly "
        "better in 0 and significantly worse in 1 (differences −0.010 to +0.000)."
    )
    alone = findings.worlds_sentences(world(1, 0.031, 0.0))
    assert "in the world with spellings of each meaning 5." in alone
    assert "calibrated model" not in alone


def changed(cause, *differences, p_value=1e-9, **others):
    """The rows of one cause: the differences to NLL with K = 2 and at α = 0.4."""
    rows = world(0, *differences, p_value=p_value).drop(
        columns=["world", "varied", "level", "calibration"]
    )
    labels = {"dataset": "d", "model": "m", "n_questions": 1000, "n_correct": 500}
    return rows.assign(cause=cause, **labels | others)


def test_08_says_for_each_cause_which_scores_differ_from_nll():
    causes = several_worlds(
        changed("nothing changed", -0.05, -0.03),
        changed("spellings merged", 0.02, 0.0, p_value=1.0),
        changed("repeats kept", 0.02, -0.02),
    )
    assert findings.causes_sentences(causes) == (
        "m on d, 1,000 questions:\n\n"
        "- Nothing changed: PRO is significantly worse than NLL with K = 2 and α = 0.4 "
        "(differences "
        "−0.050 to −0.030, 95 % confidence intervals within −0.051 to −0.029).\n"
        "- Spellings merged: PRO is not significantly different from NLL with K = 2 and α = 0.4 "
        "(differences +0.000 to +0.020, 95 % confidence intervals within −0.001 to +0.021).\n"
        "- Repeats kept: PRO is significantly better than NLL with K = 2 (difference +0.020, 95 % "
        "confidence interval +0.019 to +0.021); it is significantly worse than NLL with α = 0.4 "
        "(difference −0.020, 95 % confidence interval −0.021 to −0.019)."
    )


def test_08_corrects_for_all_causes_and_says_nothing_of_too_few_answers():
    alone = changed("nothing changed", 0.02, 0.02, p_value=0.02)
    more = changed("spellings merged", 0.0, 0.0, p_value=0.9)
    assert "significantly better" in findings.causes_sentences(alone)
    assert "significantly better" not in findings.causes_sentences(several_worlds(alone, more))
    few = findings.causes_sentences(changed("nothing changed", 0.02, 0.02, n_correct=19))
    assert few.startswith("1 setting has fewer than 20 correct or 20 wrong answers")


def test_08_says_both():
    table = several_worlds(BASE, world(1, 0.02, 0.0))
    causes = changed("nothing changed", 0.0, 0.0, p_value=1.0)
    worlds, *lines = findings.when_does_pro_help(table, causes).split("\n\n")
    assert worlds.startswith("PRO with at least one of the choices")
    assert lines[-1].startswith("- Nothing changed: PRO is not significantly different")
