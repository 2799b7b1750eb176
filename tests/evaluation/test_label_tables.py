"""Labels of a sample as the correctness of evaluations, and the tables of notebook 10."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_labels import evaluation, label_all

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.evaluation import Splits
from pro_lib.labels import (
    LabelPlan,
    LabelSample,
    append_label,
    is_label_sample,
    plan_path,
)
from pro_lib.plots import label_answers
from pro_lib.plots.settings import aurocs


def sample_of(judged, truth, folder, *, n_labels, stop=None):
    """Label answers of an evaluation, store the labels and their plan, and read them."""
    path = folder / "labels.jsonl"
    plan, labels = label_all(LabelPlan.create(judged, n_labels=n_labels), truth, stop=stop)
    plan.save(plan_path(path))
    for label in labels:
        append_label(path, label)
    return LabelSample.read(path)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """An evaluation of 120 answers, the true labels, and a sample of 60 labels."""
    judged, truth = evaluation(120)
    return judged, truth, sample_of(judged, truth, tmp_path_factory.mktemp("a"), n_labels=60)


def test_labels_of_a_sample_give_the_auroc_of_the_estimator(labelled):
    judged, _, sample = labelled
    expected = sample.estimate(judged).set_index("method").loc["NLL"]
    columns = aurocs(judged.baselines[["NLL"]].to_numpy(), sample.with_labels(judged))
    for name in ("auroc", "auroc_low", "auroc_high"):
        assert columns[name] == pytest.approx([expected[name]])


def test_a_sample_estimates_a_part_of_its_answers_in_another_order(labelled):
    judged, _, sample = labelled
    backwards = judged.rows(np.arange(120)[::-1])
    [nll] = sample.estimate(backwards).query("method == 'NLL'")["n_labels"]
    assert nll == 60
    agreement = sample.judge_agreement(judged.rows(np.arange(60)))
    chosen = sample.labels[~sample.labels["repetition"]]["question_id"]
    expected = sum(int(question_id.removeprefix("q")) < 60 for question_id in chosen)
    assert set(agreement["n_labels"]) == {expected}


def test_a_part_of_the_planned_answers_keeps_the_weights_of_the_plan(labelled):
    judged, _, sample = labelled
    every = sample.with_labels(judged).labels.sample.weights
    part = sample.with_labels(judged.rows(np.arange(30))).labels.sample.weights
    np.testing.assert_allclose(part, every[:30])


def test_answers_that_the_plan_could_not_choose_are_left_out_and_counted(labelled):
    judged, _, sample = labelled
    texts = judged.answers["text"].mask(judged.answers["question_id"] == "q7", "another answer")
    changed = replace(judged, answers=judged.answers.assign(text=texts))
    planned = sample.planned_answers(changed).evaluation
    assert "q7" not in set(planned.answers["question_id"])
    assert len(planned.answers) == 119
    expected = "Left out: 1 of 120 answers are not among those of the label plan."
    assert planned.exclusions.endswith(expected)


def test_the_table_has_labels_and_the_judge_side_by_side(labelled):
    judged, _, sample = labelled
    table = label_answers.table([label_answers.LabelledSplits(Splits(judged, judged), sample)])
    assert list(table["judge"].unique()) == ["labels", "rouge_l"]
    by_judge = table[(table["judge"] == "rouge_l") & (table["method"] == "NLL")].iloc[0]
    exact = metrics.auroc(judged.baselines["NLL"], judged.correct)
    assert by_judge["auroc"] == pytest.approx(exact)
    assert by_judge["n_correct"] == judged.correct.sum()
    assert set(table["shown"]) == {"yes"}
    assert set(table["n_labels"]) == {60}


def test_the_bins_of_rouge_count_answers_and_labels(labelled):
    judged, truth, sample = labelled
    table = label_answers.counts(
        [label_answers.LabelledSplits(Splits(judged, judged), sample)]
    ).set_index("rouge_l_bin")
    assert table.loc["1", "n_answers"] == judged.correct.sum()
    assert table["n_answers"].sum() == 120
    assert (table["n_first"].sum(), table["n_second"].sum()) == (20, 40)
    chosen = sample.labels[~sample.labels["repetition"]]["question_id"]
    assert table["n_right"].sum() == sum(truth[question_id] for question_id in chosen)


def test_labellers_have_a_row_for_their_repetitions_and_one_for_each_pair(labelled):
    judged, _, sample = labelled
    second = sample.labels[~sample.labels["repetition"]].head(10).assign(labeller="ben")
    second["correct"] = [not second["correct"].iloc[0], *second["correct"].iloc[1:]]
    both = replace(sample, labels=pd.concat([sample.labels, second]))
    table = label_answers.labellers([label_answers.LabelledSplits(Splits(judged, judged), both)])
    assert table["labeller"].tolist() == ["ada", "ben", "ada"]
    assert table["other_labeller"].tolist() == [None, None, "ben"]
    assert table[["n_both", "n_same"]].to_numpy().tolist() == [[6, 6], [0, 0], [10, 9]]


def test_a_label_file_without_its_plan_is_an_error(labelled, tmp_path):
    judged, truth, _ = labelled
    sample_of(judged, truth, tmp_path, n_labels=20)
    plan_path(tmp_path / "labels.jsonl").unlink()
    with pytest.raises(RunError, match=r"labels.plan.json cannot be read.*; restore the plan"):
        LabelSample.read(tmp_path / "labels.jsonl")


def test_a_file_of_other_labels_is_not_a_sample(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("question_id,text,correct\nq1,Paris,true\n")
    assert not is_label_sample(path)
    path.write_text('{"question_id": "q1", "text": "Paris", "correct": true}\n')
    assert not is_label_sample(path)


def test_labels_of_two_plans_are_refused(labelled, tmp_path):
    judged, truth, _ = labelled
    sample_of(judged, truth, tmp_path, n_labels=20)
    labels = label_all(LabelPlan.create(evaluation(90)[0], n_labels=20), truth)[1]
    append_label(tmp_path / "labels.jsonl", labels[0])
    with pytest.raises(RunError, match="1 labels do not belong to this plan"):
        LabelSample.read(tmp_path / "labels.jsonl")
