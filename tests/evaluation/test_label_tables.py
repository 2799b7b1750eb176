"""Labels of a sample as the correctness of evaluations, and the tables of notebook 10."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_labels import evaluation, label_all, planned_answers

from pro_lib import metrics
from pro_lib.evaluation import Splits
from pro_lib.labels import LabelSample, append_label, plan_path
from pro_lib.labels.estimates import LabelledSplits
from pro_lib.plots import label_answers
from pro_lib.plots.settings import aurocs, overview


def sample_of(judged, truth, folder, *, n_labels, stop=None):
    """Label answers of an evaluation, store the labels and their plan, and read them."""
    path = folder / "labels.jsonl"
    plan, labels = label_all(planned_answers(judged, n_labels=n_labels), truth, stop=stop)
    plan.save(plan_path(path))
    for label in labels:
        append_label(path, label)
    return LabelSample.read(path)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """An evaluation of 120 answers, the true labels, and a sample of 60 labels."""
    judged, truth = evaluation(120)
    return judged, truth, sample_of(judged, truth, tmp_path_factory.mktemp("a"), n_labels=60)


def test_the_columns_of_figures_are_those_of_the_estimates(labelled):
    judged, _, sample = labelled
    expected = sample.estimate(judged).set_index("method").loc[["NLL", "SE", "ALL"]]
    estimated = sample.with_labels(judged)
    columns = aurocs(judged.baselines.to_numpy(), estimated)
    for name in ("auroc", "auroc_low", "auroc_high", "auroc_minus_nll"):
        np.testing.assert_allclose(columns[name], expected[name], atol=1e-12, err_msg=name)
    assert columns["interval"] == "from labels of a sample"
    [row] = overview([estimated]).to_dict("records")
    assert row["accuracy"] == pytest.approx(estimated.sampled_judgement.accuracy)
    assert row["n_correct"] == round(120 * row["accuracy"]) != judged.correct.sum()


def test_a_part_of_the_planned_answers_in_another_order_keeps_its_labels_and_weights(labelled):
    judged, _, sample = labelled
    every = sample.with_labels(judged).sampled_judgement.weighted
    part = sample.with_labels(judged.select(np.arange(30)[::-1])).sampled_judgement
    np.testing.assert_array_equal(part.weighted.weights, every.weights[:30][::-1])
    np.testing.assert_array_equal(part.weighted.labels, every.labels[:30][::-1])
    assert part.counts["n_labels"] == np.isfinite(every.labels[:30]).sum()


def test_answers_that_the_plan_could_not_choose_are_left_out_and_counted(labelled):
    judged, _, sample = labelled
    texts = judged.answers["text"].mask(judged.answers["question_id"] == "q7", "another answer")
    changed = replace(judged, answers=judged.answers.assign(text=texts))
    planned = sample.planned_answers(changed).answers.evaluation
    assert "q7" not in set(planned.answers["question_id"])
    assert len(planned.answers) == 119
    assert "1 of 120 answers" in planned.exclusions


def test_the_table_has_labels_and_the_judge_side_by_side(labelled):
    judged, _, sample = labelled
    table = label_answers.table([LabelledSplits(Splits(judged, judged), sample)])
    assert list(table["judge"].unique()) == ["labels", "rouge_l"]
    by_judge = table[(table["judge"] == "rouge_l") & (table["method"] == "NLL")].iloc[0]
    exact = metrics.auroc(judged.baselines["NLL"], judged.correct)
    assert by_judge["auroc"] == pytest.approx(exact)
    assert by_judge["n_correct"] == judged.correct.sum()
    assert set(table["n_labels"]) == {60}


def test_the_bins_of_rouge_count_answers_and_labels(labelled):
    judged, truth, sample = labelled
    splits = LabelledSplits(Splits(judged, judged), sample)
    table = label_answers.counts([splits])
    assert table["n_answers"].sum() == 120
    assert table.set_index("rouge_l_bin").loc["1", "n_answers"] == judged.correct.sum()
    assert (table["n_first"].sum(), table["n_second"].sum()) == (20, 40)
    chosen = sample.labels[~sample.labels["repetition"]]["question_id"]
    assert table["n_right"].sum() == chosen.map(truth).sum()


def test_labellers_have_a_row_for_their_repetitions_and_one_for_each_pair(labelled):
    judged, _, sample = labelled
    second = sample.labels[~sample.labels["repetition"]].head(10).assign(labeller="ben")
    both = replace(sample, labels=pd.concat([sample.labels, second]))
    table = label_answers.labellers([LabelledSplits(Splits(judged, judged), both)])
    assert table["labeller"].tolist() == ["ada", "ben", "ada"]
    assert table["n_both"].tolist() == [6, 0, 10]
