"""The tidy tables behind the figures, on answers whose values are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import EVALUATION, SPLITS, evaluation_of, some_questions, splits_of

from pro_lib import metrics, scoring
from pro_lib.app.explorer import appendix_run
from pro_lib.evaluation import tables
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.evaluation.sweeps import select_alpha
from pro_lib.evaluation.tables import SETTING_COLUMNS
from pro_lib.plots import gains
from pro_lib.runs.run import Run
from pro_lib.runs.storage import Cost, RunInfo

NAMES = ("alpha_sweep", "alpha_choices", "redraws", "overview")


@pytest.fixture(scope="module")
def made():
    return {
        "alpha_sweep": tables.alpha_sweep(SPLITS),
        "alpha_choices": tables.alpha_choices(SPLITS),
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
    evaluation = evaluation_of(
        np.log([[0.5]] * 12), correct, NLL=np.repeat([3.0, 1.0, 2.0, 0.0], 3)
    )
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
        tables.nll_comparison_columns(scores, each)
        for each in (evaluation, replace(evaluation, answers=pairs))
    )
    widths = [
        each["auroc_minus_nll_high"] - each["auroc_minus_nll_low"] for each in (single, clustered)
    ]
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
    named = settings.assign(dataset="mandarjoshi/trivia_qa")
    assert tables.printed_alphas(named)["alpha"].tolist() == [0.4]


# --- ROUGE-L thresholds ---


def test_rouge_thresholds_by_hand():
    # One answer each, so that PRO is NLL. ROUGE-L 0.3 is not above 0.3. At 0.2 the wrong answer is
    # c alone, at 0.3 it is b and c; at 1 all are wrong.
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


def beams():
    """Two questions: one with a repeated and a cut answer, and one with one answer."""
    rows = []
    for question, text, probability, finished in (
        ("a", "yes", 0.6, True),
        ("a", "yes", 0.6, True),
        ("a", "no", 0.3, True),
        ("a", "well", 0.05, False),
        ("b", "no", 0.2, True),
    ):
        answer = {"question_id": question, "rank": len(rows), "text": text, "token_ids": None}
        answer |= {"token_log_probs": [np.log(probability)], "log_prob": np.log(probability)}
        rows.append(answer | {"end_log_prob": np.nan, "finished": finished})
    questions = [
        {"question_id": name, "question": f"{name}?", "references": ["no"], "split": "test"}
        for name in "ab"
    ]
    cost = Cost(
        prompt_tokens=30, token_forwards=10, model_calls=5, seconds=2.0, peak_memory_bytes=2**21
    )
    return Run(
        pd.DataFrame(rows), pd.DataFrame(questions), RunInfo("d", "m", "diverse_beam", cost=cost)
    )


def test_generated_answers_are_counted_with_and_without_repeats():
    table = tables.generated_answers([beams()], alpha=0.3)
    assert table["n_answers"].tolist() == [3, 1]
    assert table["n_distinct"].tolist() == [2, 1]
    assert table["mass"].tolist() == pytest.approx([0.9, 0.2])
    assert table["mass_with_repeats"].tolist() == pytest.approx([1.5, 0.2])
    assert table["k"].tolist() == [2, 1]
    assert table["n_cut"].tolist() == [1, 0]
    assert table["n_questions"].tolist() == [2, 2]


def test_costs_are_of_the_run():
    row = tables.costs([beams()]).iloc[0]
    assert row[["prompt_tokens", "token_forwards", "model_calls"]].tolist() == [30, 10, 5]
    assert row[["seconds", "tokens_per_second", "peak_memory_mib"]].tolist() == [2.0, 20, 2]


def test_answer_details_have_every_answer_with_what_pro_makes_of_it():
    table = tables.answer_details(beams(), alpha=0.3)
    assert table[["question_id", "k", "text"]].to_numpy().tolist() == [
        ["a", 1, "yes"],
        ["a", 2, "no"],
        ["b", 1, "no"],
    ]
    assert table["probability"].tolist() == pytest.approx([0.6, 0.3, 0.2])
    assert table["is_kept"].tolist() == [True, True, True]
    assert table["is_correct"].tolist() == [False, True, True]
    # PRO_2 = -log 0.3 - 0.6 log(0.6 / 0.3); of a single answer PRO is -log p.
    pro_2 = -np.log(0.3) - 0.6 * np.log(2)
    assert table["pro_at_k"].tolist() == pytest.approx([-np.log(0.6), pro_2, -np.log(0.2)])
    assert table["pro"].tolist() == pytest.approx([pro_2, pro_2, -np.log(0.2)])
    assert table["reference"].tolist() == ["no", "no", "no"]
    assert tables.answer_details(beams(), alpha=0.5)["is_kept"].tolist() == [True, False, True]


def test_examples_are_of_every_kind_of_question():
    # At α = 0.5 question a is wrong and b is right; at 0.3 a keeps two answers.
    # Right questions come before wrong ones, and questions with several kept answers come last.
    assert tables.examples(beams(), alpha=0.3)["question_id"].tolist() == ["b", "a", "a"]
    assert tables.examples(beams(), alpha=0.5)["question_id"].tolist() == ["b", "a", "a"]


def test_repeats_raise_the_mass_above_one():
    table = tables.repeats(beams(), alpha=0.5)
    assert table["repeats"].tolist() == ["counted", "left out"]
    assert table["mean_answers"].tolist() == [2.0, 1.5]
    assert table["largest_mass"].tolist() == pytest.approx([1.5, 0.9])
    assert table["n_above_one"].tolist() == [1, 0]
    assert table["share_several"].tolist() == [0.5, 0.0]  # the repeated answer is kept twice


def test_exposure_groups_questions_by_what_the_model_was_told():
    run = beams()
    assert tables.exposure(run).empty
    told = replace(run, questions=run.questions.assign(exposure=[0, 8], conflict=[0.0, 0.5]))
    assert tables.exposure(told).empty  # another model was told other things
    table = tables.exposure(replace(told, info=replace(run.info, model="facts-1m")), alpha=0.5)
    means = table.set_index(["measure", "exposure"])["mean"]
    assert means["accuracy"].to_dict() == {0: 0.0, 8: 1.0}
    assert means["NLL"].to_dict() == pytest.approx({0: -np.log(0.6), 8: -np.log(0.2)})
    assert table["n_in_group"].tolist() == [1] * 6
    low, high = metrics.wilson(1.0, 1)
    last = table[(table["measure"] == "accuracy") & (table["exposure"] == 8)].iloc[0]
    assert last[["mean_low", "mean_high"]].tolist() == [low, high]


def test_the_appendix_stands_beside_the_printed_numbers():
    run = appendix_run()
    with pytest.warns(scoring.PremiseWarning):
        answers = tables.appendix_answers(run)
    assert len(answers) == 30
    printed = answers.dropna(subset="printed_pro")
    assert len(printed) == 9
    assert (printed["pro_at_k"] - printed["printed_pro"]).abs().max() < 0.01
    with pytest.warns(scoring.PremiseWarning):
        pro = tables.appendix_pro(run)
    assert pro["printed_pro"].iloc[0] == 0.404
    assert pro["pro_with_repeats"].iloc[0] == pytest.approx(0.404, abs=0.001)
    assert pro["pro"].iloc[0] == pytest.approx(1.360, abs=0.001)


def test_scores_that_differ_by_rounding_are_not_counted_as_different():
    # The second answer is as probable as the first up to 1e-8, so PRO with K = 2 is NLL up to that.
    probabilities = np.linspace(0.1, 0.4, 20)
    log_probs = np.log(np.column_stack([probabilities, probabilities * (1 - 1e-8)]))
    table = gains.pro_minus_nll(log_probs, Verdicts(np.arange(20) % 2 == 0), alphas=[0.05])
    assert table["n_differ"].tolist() == [0, 0, 0, 0]
