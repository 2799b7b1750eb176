"""The tidy tables behind the figures, on answers whose values are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_sweeps import EVALUATION, evaluation_of, some_questions, splits_of

from pro_lib import metrics, scoring
from pro_lib.evaluation import tables
from pro_lib.evaluation.evaluate import Splits
from pro_lib.evaluation.sweeps import select_alpha
from pro_lib.evaluation.tables import SETTING_COLUMNS


def two_settings():
    """The splits of two settings, with NLL, whose validation and reported questions differ."""
    made = []
    for seeds in ((1, 2), (3, 4)):
        pools = [some_questions(120, seed=seed) for seed in seeds]
        parts = [evaluation_of(*pool, NLL=scoring.nll(pool[0])) for pool in pools]
        made.append(Splits(*(replace(part, strategy="diverse_beam") for part in parts), None))
    return made


SPLITS = two_settings()


NAMES = ("alpha_sweep", "alpha_choices", "fixed_k", "k_vs_alpha", "redraws", "overview")


@pytest.fixture(scope="module")
def made():
    return {
        "alpha_sweep": tables.alpha_sweep(SPLITS),
        "alpha_choices": tables.alpha_choices(SPLITS),
        "fixed_k": tables.fixed_k(SPLITS, max_k=5),
        "k_vs_alpha": tables.k_vs_alpha([each.reported for each in SPLITS]),
        "redraws": tables.redraws([splits_of(EVALUATION, 30)] * 2, "alpha"),
        "overview": tables.overview([each.reported for each in SPLITS]),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_table_begins_with_its_setting(name, made):
    table = made[name]
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    expected = EVALUATION if name == "redraws" else SPLITS[0].reported
    labels = {"dataset": "d", "model": "m", "strategy": expected.strategy, "split": "test"}
    labels |= {"n_questions": len(expected.correct), "n_correct": expected.correct.sum()}
    first = table.iloc[1] if name == "alpha_sweep" else table.iloc[0]
    if name == "alpha_sweep":  # it begins with the validation questions
        labels["n_correct"] = SPLITS[0].validation.correct.sum()
    assert first[list(labels)].to_dict() == labels
    assert table.index.equals(pd.RangeIndex(len(table)))


def test_the_difference_to_nll_is_paired_and_by_hand():
    # Wrong: scores 3 and 1; right: 2 and 0. NLL orders three of four pairs, the score 0 all four:
    # with scores 3, 2 for the wrong ones and 1, 0 for the right ones AUROC is 1, and minus 0.75.
    correct = [False, False, True, True]
    evaluation = evaluation_of(np.log([[0.5]] * 4), correct, NLL=[3.0, 1.0, 2.0, 0.0])
    score = np.array([[3.0, 2.0, 1.0, 0.0]]).T
    columns = tables.nll_comparison_columns(score, evaluation)
    assert columns["n_differ"].tolist() == [2]
    assert columns["auroc_minus_nll"].tolist() == [0.25]
    assert np.isnan(columns["p_value"]).all()  # fewer than five correct answers
    correct = np.repeat(correct, 3)
    evaluation = evaluation_of(np.log([[0.5]] * 12), correct, NLL=np.repeat([3.0, 1.0, 2.0, 0.0], 3))
    score = np.repeat(score, 3, axis=0)
    columns = tables.nll_comparison_columns(score, evaluation)
    tests = metrics.delong(np.column_stack([evaluation.baselines["NLL"], score]), correct)
    assert columns["p_value"].tolist() == [tests.p_value[1]]
    low, high = tests.interval()
    assert columns["auroc_minus_nll_low"].tolist() == [low[1]]
    assert columns["auroc_minus_nll_high"].tolist() == [high[1]]


def test_clusters_change_the_interval_of_the_difference_to_nll():
    log_probs, correct = some_questions(120, seed=5)
    evaluation = evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))
    pairs = evaluation.answers.assign(cluster=np.arange(120) // 40)
    scores = scoring.pro(log_probs, alpha=[0.0])
    single, clustered = (
        tables.nll_comparison_columns(scores, each) for each in (evaluation, replace(evaluation, answers=pairs))
    )
    widths = [each["auroc_minus_nll_high"] - each["auroc_minus_nll_low"] for each in (single, clustered)]
    assert widths[0] != widths[1]


def test_alpha_choices_are_of_validation_default_and_oracle():
    table = tables.alpha_choices(SPLITS[:1], default=0.3)
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
    table = tables.alpha_sweep([Splits(validation, reported, None)])
    assert list(dict.fromkeys(table["split"])) == ["validation", "test"]
    last = table.iloc[-1]
    assert (last["alpha"], last["mean_k"], last["n_differ"]) == (1.0, 1.0, 0)
    assert (last["auroc_minus_nll"], last["p_value"]) == (0.0, 1.0)


def test_fixed_k_has_a_row_for_each_k_and_one_for_adaptive_k():
    table = tables.fixed_k(SPLITS[:1], max_k=3)
    assert table["k_choice"].tolist() == ["fixed"] * 3 + ["adaptive"]
    assert table["k"].tolist()[:3] == [1, 2, 3]
    assert table["k"].isna().tolist() == [False] * 3 + [True]
    assert table["alpha_choice"].fillna("").tolist() == [""] * 3 + ["validation"]
    reported = SPLITS[0].reported
    expected = [metrics.auroc(reported.pro(k=k), reported.correct) for k in (1, 2, 3)]
    assert table["auroc"].tolist()[:3] == expected
    assert table["auroc_minus_nll"].iloc[0] == 0


def test_redraws_name_the_quantity_and_the_share():
    splits = splits_of(EVALUATION, 30)
    alphas, aurocs = (tables.redraws([splits], name).iloc[0] for name in ("alpha", "auroc"))
    assert alphas["alpha_min"] <= alphas["alpha_median"] <= alphas["alpha_max"]
    assert aurocs["auroc_min"] <= aurocs["auroc_q25"] <= aurocs["auroc_q75"]
    assert alphas["share_better_than_nll"] == aurocs["share_better_than_nll"]
    with pytest.warns(UserWarning, match="cannot be redrawn"):
        nothing = tables.redraws([splits_of(EVALUATION)], "alpha")
    assert nothing.iloc[0][["alpha_min", "share_better_than_nll"]].isna().all()


def test_one_class_has_no_auroc_and_a_warning():
    wrong = evaluation_of(np.log([[0.5], [0.4], [0.3]]), [False] * 3, NLL=[1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="all 3 judged answers are wrong, so that AUROC is NaN"):
        columns = tables.auroc_columns(np.zeros((3, 2)), wrong)
    assert columns.pop("interval") == "by question"
    assert np.isnan(np.array(list(columns.values()))).all()


def test_overview_counts_correct_answers_and_says_what_is_left_out():
    reported = replace(SPLITS[0].reported, unavailable=("SE, alias",), note="Published answers.")
    row = tables.overview([reported]).iloc[0]
    assert row["accuracy"] == reported.correct.mean()
    assert row["note"] == f"{reported.exclusions} Not available: SE, alias. Published answers."
    repeated = replace(reported, log_probs=np.log(np.full((120, 2), 0.6)))
    assert tables.overview([repeated]).iloc[0]["n_above_one"] == 120


def test_printed_values_are_those_of_the_settings_of_a_table():
    settings = pd.DataFrame({"dataset": ["trivia_qa"], "model": ["google/gemma-2b"]})
    nothing = pd.DataFrame({"dataset": ["world-facts"], "model": ["facts-2m"]})
    assert tables.printed_alphas(nothing).empty
    assert tables.printed_fixed_k(nothing).empty
    named = settings.assign(dataset="mandarjoshi/trivia_qa")
    assert tables.printed_alphas(named)["alpha"].tolist() == [0.4]
    fixed = tables.printed_fixed_k(named)
    assert fixed.loc[fixed["k"] == 1, "auroc"].tolist() == [0.806]
    assert fixed["k_choice"].tolist() == ["fixed"] * 10 + ["adaptive"]


# --- ROUGE-L thresholds ---


def test_rouge_thresholds_by_hand():
    # One answer each, so that PRO is NLL. ROUGE-L 0.3 is not above 0.3. At 0.2 the wrong answer is c
    # alone, at 0.3 it is b and c; at 1 all are wrong.
    methods = {"NLL": [1.0, 2.0, 3.0], "SE, lexical": [2.0, 1.0, 1.5]}
    rouge_l = [1.0, 0.3, 0.0]
    evaluation = evaluation_of([[-1.0], [-2.0], [-3.0]], [True] * 3, rouge_l=rouge_l, **methods)
    splits = Splits(EVALUATION, evaluation, None)
    with pytest.warns(UserWarning, match="all 3 judged answers are wrong, so that AUROC is NaN"):
        table = tables.rouge_thresholds([splits], thresholds=[0.2, 1.0, 0.3])
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
    table = tables.rouge_thresholds([splits_of(evaluation)], thresholds=[0.5])
    row = table.set_index("method").loc["SE"]
    low, high = metrics.delong(np.column_stack([*methods.values()]), evaluation.correct).interval()
    ends = [row["auroc_minus_nll_low"], row["auroc_minus_nll_high"]]
    np.testing.assert_allclose(np.array(ends, dtype=float), [low[1], high[1]], atol=1e-12)
