"""Test the sentences of captions on invented tables of which the right sentence is known."""

import re
from pathlib import Path

import pandas as pd
import pytest
from invented_settings import setting_row

from pro_lib.plots import read_caption
from pro_lib.plots.captions import ABBREVIATIONS, comparison, join_caption, with_signs

FIGURES = Path(__file__).parents[2] / "figures"


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


def test_an_effect_that_was_not_shown_is_not_called_equal():
    assert compared(setting_row(-0.001), setting_row(0.002)) == (
        "PRO is not significantly different from NLL in 2 of 2 settings (differences −0.001 to "
        "+0.002)."
    )
    alike = setting_row(0.0, half_width=0.0)
    assert compared(alike) == "PRO is not significantly different from NLL (0.000)."


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
    assert compared(*rows) == (
        "PRO is significantly better than NLL in 1 of 3 settings (m on d: +0.050, 95 % interval "
        "+0.040 to +0.060) and not significantly different in 2 (differences +0.001 to +0.002)."
    )


def test_a_caption_has_n_the_rule_the_findings_and_the_terms_that_are_drawn():
    table = pd.DataFrame({"n_questions": [10, 20], "model": ["facts-1m", "b"], "method": "SE"})
    table = table.assign(correctness="exact match", protocol="workbench", similarity="alias")
    assert join_caption("Shown.", table, "", "PRO is high.").split("\n\n") == [
        "Shown. n = 10 to 20 questions in each setting; an answer counts as correct by exact "
        "match.",
        "PRO is high.",
        "Abbreviations: PRO, lower bound of the entropy if each answer counts once, −log p_K − "
        "Σ p log(p / p_K) over the K answers with p ≥ α, or NLL if there are none; NLL, negative "
        "log-likelihood, −log p of the most probable answer; SE, semantic entropy, the entropy "
        "over meanings; alias, meanings are compared by a table of names; K, number of answers "
        "that PRO uses; α, threshold of p; p, probability of an answer; setting, a model and a "
        "dataset; each answer once, an answer that is found twice counts once, so that numbers can "
        "differ from figures in which repeats count; "
        "facts-1m, small model made for these questions, with 1.0 million "
        "parameters.",
    ]
    partly = table.assign(n_unlabelled=[450, 0])
    assert "; 450 further questions have no label;" in join_caption("", partly)
    by_labels = table.assign(judge="labels", n_labels=60)
    assert "labels of 60 answers estimate which answers are correct" in join_caption("", by_labels)


def test_the_alpha_of_pro_and_missing_intervals_are_explained():
    rows = {"method": "PRO", "alpha": [0.05, 0.4], "alpha_choice": "validation", "n_questions": 9}
    caption = join_caption("PRO.", pd.DataFrame(rows))
    assert "there are none (α = 0.05 to 0.4, chosen on validation questions);" in caption
    alike = pd.DataFrame({"n_questions": 9, "auroc_minus_nll": [0.0, 0.1], "n_differ": [0, 5]})
    hidden = " An interval narrower than its mark is hidden"
    none = f"{hidden}; none is drawn where both scores order all questions alike."
    assert join_caption("PRO minus NLL, with its interval.", alike).endswith(none)
    differing = alike.assign(n_differ=5)
    assert join_caption("PRO minus NLL, with its interval.", differing).endswith(f"{hidden}.")
    assert "hidden" not in join_caption("PRO minus NLL.", alike)


def test_tests_are_corrected_within_families_and_a_setting_with_few_answers_has_no_sign():
    family = [setting_row(0.1, p_value=0.03, by="a"), setting_row(-0.1, p_value=0.03, by="b")]
    table = pd.DataFrame([*family, setting_row(0.1, p_value=0.001, by="a", n_correct=1)])
    assert with_signs(table, "by", "absent")["sign"].tolist() == [1, -1, 0]
    assert with_signs(table)["sign"].tolist() == [0, 0, 0]
    assert with_signs(table.drop(columns="p_value"), "by")["sign"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("path", sorted(FIGURES.glob("**/*.md")), ids=lambda path: path.stem)
def test_a_stored_caption_has_two_to_five_sentences_and_a_short_finding(path):
    shown, found, terms = read_caption(path).split("\n\n")
    sentences = re.findall(r"[.!?](?= |$)", f"{shown} {found}")
    assert 2 <= len(sentences) <= 5
    assert len(found.split()) <= 80
    assert terms.startswith(ABBREVIATIONS)
