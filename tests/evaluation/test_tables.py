"""The tidy tables behind the figures, on answers whose values are worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import EVALUATION, SPLITS, evaluation_of, some_questions, splits_of

from pro_lib import metrics, scoring
from pro_lib.evaluation import tables
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.judgement import Verdicts
from pro_lib.evaluation.tables import SETTING_COLUMNS
from pro_lib.plots import alpha_sweep, redraws
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

NAMES = ("alpha_sweep", "alpha_choices", "redraws", "overview")


@pytest.fixture(scope="module")
def made():
    return {
        "alpha_sweep": alpha_sweep.table(SPLITS),
        "alpha_choices": alpha_sweep.choices(SPLITS),
        "redraws": redraws.table([splits_of(EVALUATION, 30)] * 2, quantity="alpha"),
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
    assert alpha_sweep.printed(nothing).empty
    named = settings.assign(dataset="mandarjoshi/trivia_qa")
    assert alpha_sweep.printed(named)["alpha"].tolist() == [0.4]


def step_splits():
    """Return splits in which NLL is 0 or 1.

    Validation is right at 0 only, and reported questions at 0 are right in 5 of 6.
    """
    nll = np.repeat([0.0, 1.0], [60, 40])
    pool = evaluation_of(-nll[:, None] - 0.1, nll == 0, NLL=nll, **{"SE, alias": nll + 1})
    few = np.repeat([0.0, 1.0], [6, 4])
    correct = np.arange(10) < 5
    reported = evaluation_of(-few[:, None] - 0.1, correct, NLL=few, **{"SE, alias": few + 1})
    return Splits(pool, reported, None)


def test_guarantees_answer_below_the_threshold_that_validation_shows():
    # At 0.9 the 60 questions below 1 pass, 0.9 ** 60 = 0.002, and all 100 with 60 right do not. At
    # 0.999 the 60 do not pass either, 0.999 ** 60 = 0.94.
    table = tables.guarantees([step_splits()], targets=[0.9, 0.999], alpha=0.3)
    assert table["method"].tolist() == ["PRO", "PRO", "NLL", "NLL", "SE", "SE"]
    assert table["similarity"].fillna("").tolist() == ["", "", "", "", "alias", "alias"]
    assert table["alpha_choice"].fillna("").tolist() == ["default", "default", "", "", "", ""]
    assert table["alpha"].tolist()[:2] == [0.3, 0.3]
    nll = table[table["method"] == "NLL"]
    assert nll["threshold"].fillna(-1).tolist() == [1.0, -1.0]
    assert nll["coverage"].tolist() == [0.6, 0.0]
    assert nll["accuracy"].fillna(-1).tolist() == [pytest.approx(5 / 6), -1]
    low, high = metrics.wilson(5 / 6, 6)
    assert nll.iloc[0][["accuracy_low", "accuracy_high"]].tolist() == [low, high]
    assert nll["n_validation"].tolist() == [100, 100]
    assert table["n_questions"].unique().tolist() == [10]


@pytest.mark.parametrize(
    ("n_right", "targets"), [(60, [0.7, 0.8, 0.9]), (40, [0.7, 0.8, 0.9]), (39, [0.5, 0.6, 0.7])]
)
def test_targets_are_lower_if_few_validation_questions_are_answered_correctly(n_right, targets):
    correct = np.arange(100) < n_right
    evaluation = evaluation_of(np.full((100, 1), -0.1), correct, NLL=0.0)
    assert tables.default_targets([splits_of(evaluation)]) == targets


def exact_search():
    """Return ten validation questions and two test questions with one answer each."""
    rows, questions = [], []
    for number in range(12):
        split = "validation" if number < 10 else "test"
        # Validation finds the right answer with p = 0.11, 0.12, … in nine questions, and none in
        # one.
        answers = {"right": 0.11 + 0.01 * number} if number < 9 else {"wrong": 0.3}
        if split == "test":
            answers = [{"right": 0.2, "wrong": 0.5}, {"right": 0.15}][number - 10]
        question = {"question_id": str(number), "question": f"{number}?", "references": ["right"]}
        question |= {"split": split, "status": "complete", "search_alpha": 0.1}
        questions.append(question | {"tree_bound": 0.5, "upper_bound": 2.0})
        for rank, (text, probability) in enumerate(
            sorted(answers.items(), key=lambda pair: -pair[1])
        ):
            answer = {"question_id": str(number), "rank": rank, "text": text, "token_ids": None}
            answer |= {"token_log_probs": [np.log(probability)], "log_prob": np.log(probability)}
            rows.append(answer | {"end_log_prob": np.nan, "finished": True})
    info = RunInfo("d", "m", "threshold", parameters={"search_alpha": 0.1})
    return Run(pd.DataFrame(rows), pd.DataFrame(questions), info)


def test_answer_sets_miss_where_no_correct_answer_reaches_alpha():
    table = tables.answer_sets([exact_search()])
    # With ten validation questions, δ = 0.3 takes the third smallest probability: 0, 0.11, 0.12.
    chosen = table[table["delta"] == 0.3].iloc[0]
    assert chosen["alpha"] == pytest.approx(0.12)
    assert chosen["missed"] == 0
    assert np.isnan(chosen["missed_limit"])
    at = table[table["delta"].isna()].set_index("alpha")
    assert at.index.tolist() == [0.1, 0.2, 0.4]
    # At 0.2 one test question has the set {wrong, right}, and the other an empty one.
    assert at.loc[0.2, ["missed", "set_size", "share_empty"]].tolist() == [0.5, 1.0, 0.5]
    assert at.loc[0.4, ["missed", "set_size", "share_empty"]].tolist() == [1.0, 0.5, 0.5]
    assert at.loc[0.4, "missed_limit"] == 1.0
    assert table["n_questions"].unique().tolist() == [2]


def test_an_undecided_question_counts_as_missed():
    run = exact_search()
    status = np.where(run.questions["question_id"] == "10", "undecided", "complete")
    table = tables.answer_sets([replace(run, questions=run.questions.assign(status=status))])
    assert table.loc[table["alpha"] == 0.1, "missed"].tolist() == [0.5]


def test_entropies_stand_beside_the_bounds_of_the_search():
    search = exact_search()
    samples = replace(
        search, answers=search.answers.assign(path_entropy=[1.0] * 10 + [1.0, 3.0, 2.0])
    )
    ends = search.answers.tail(1).assign(path_entropy=4.0)
    samples = replace(
        samples,
        answers=pd.concat([samples.answers, ends]),
        info=replace(search.info, strategy="multinomial"),
    )
    table = tables.entropies([search], [samples])
    assert table["question_id"].tolist() == ["10", "11"]
    assert table["entropy"].tolist() == [2.0, 3.0]
    assert table["tree_bound"].tolist() == [0.5, 0.5]
    assert table["strategy"].unique().tolist() == ["multinomial"]
    assert (table["entropy_low"] < table["entropy"]).all()


def test_scores_that_differ_by_rounding_are_not_counted_as_different():
    # The second answer is as probable as the first up to 1e-8, so PRO with K = 2 is NLL up to that.
    probabilities = np.linspace(0.1, 0.4, 20)
    log_probs = np.log(np.column_stack([probabilities, probabilities * (1 - 1e-8)]))
    table = tables.pro_minus_nll(log_probs, Verdicts(np.arange(20) % 2 == 0), alphas=[0.05])
    assert table["n_differ"].tolist() == [0, 0, 0, 0]
