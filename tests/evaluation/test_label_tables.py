"""Labels of a sample as the correctness of evaluations, and the tables of notebook 10."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_labels import evaluation, label_all

from pro_lib import metrics
from pro_lib.common.files import RunError
from pro_lib.evaluation import Splits, findings, tables
from pro_lib.labels import (
    LabelPlan,
    LabelSample,
    append_label,
    is_label_sample,
    plan_path,
)


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


def test_with_all_labels_tables_have_the_true_auroc_accuracy_and_difference(tmp_path):
    judged, truth = evaluation(80)
    estimated = sample_of(judged, truth, tmp_path, n_labels=80).with_labels(judged)
    correct = np.array(list(truth.values()))
    scores = judged.baselines.to_numpy()
    columns = tables.auroc_columns(scores, estimated)
    exact = [metrics.auroc(column, correct) for column in scores.T]
    np.testing.assert_allclose(columns["auroc"], exact)
    assert columns["interval"] == "from labels of a sample"
    differences = tables.nll_comparison_columns(scores, estimated)
    np.testing.assert_allclose(differences["auroc_minus_nll"], np.array(exact) - exact[0])
    [row] = tables.overview([estimated]).to_dict("records")
    assert row["n_correct"] == correct.sum() != judged.correct.sum()
    assert row["accuracy"] == pytest.approx(correct.mean())


def test_labels_of_a_sample_give_the_auroc_of_the_estimator(labelled):
    judged, _, sample = labelled
    expected = sample.estimate(judged).set_index("method").loc["NLL"]
    columns = tables.auroc_columns(judged.baselines[["NLL"]].to_numpy(), sample.with_labels(judged))
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


def test_labels_of_other_answers_are_refused(labelled):
    _, _, sample = labelled
    other, _ = evaluation(120, prefix="other")
    with pytest.raises(RunError, match="120 of 120 answers are not among those of the label plan"):
        sample.planned_answers(other)


def test_too_few_labels_give_no_auroc_and_the_table_says_why(tmp_path):
    judged, truth = evaluation(200)
    sample = sample_of(judged, truth, tmp_path, n_labels=60, stop=14)
    columns = tables.auroc_columns(judged.baselines.to_numpy(), sample.with_labels(judged))
    assert np.isnan(columns["auroc"]).all()
    [note] = tables.overview([sample.with_labels(judged)])["note"]
    assert "No AUROC is shown: only 4 labels of right answers" in note


def test_the_table_has_labels_and_the_judge_side_by_side(labelled):
    judged, _, sample = labelled
    table = tables.label_estimates([tables.LabelledSplits(Splits(judged, judged), sample)])
    assert list(table["judge"].unique()) == ["labels", "rouge_l"]
    by_judge = table[(table["judge"] == "rouge_l") & (table["method"] == "NLL")].iloc[0]
    exact = metrics.auroc(judged.baselines["NLL"], judged.correct)
    assert by_judge["auroc"] == pytest.approx(exact)
    assert by_judge["n_correct"] == judged.correct.sum()
    assert set(table["shown"]) == {"yes"}
    assert set(table["n_labels"]) == {60}


def test_the_bins_of_rouge_count_answers_and_labels(labelled):
    judged, truth, sample = labelled
    table = tables.label_counts([tables.LabelledSplits(Splits(judged, judged), sample)]).set_index(
        "rouge_l_bin"
    )
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
    table = tables.labellers([tables.LabelledSplits(Splits(judged, judged), both)])
    assert table["labeller"].tolist() == ["ada", "ben", "ada"]
    assert table["other_labeller"].tolist() == [None, None, "ben"]
    assert table[["n_both", "n_same"]].to_numpy().tolist() == [[6, 6], [0, 0], [10, 9]]


def test_a_label_file_without_its_plan_is_an_error(labelled, tmp_path):
    judged, truth, _ = labelled
    sample_of(judged, truth, tmp_path, n_labels=20)
    plan_path(tmp_path / "labels.jsonl").unlink()
    with pytest.raises(RunError, match=r"their plan .*labels.plan.json is missing"):
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


# Findings


def found(**changes):
    """Return the tables of notebook 10 for two methods, in which PRO is better than NLL."""
    rows = []
    for judge, auroc in (("labels", 0.8), ("rouge_l", 0.78)):
        for method, difference, p_value in (("NLL", 0.0, np.nan), ("PRO", 0.05, 0.001)):
            row = {"dataset": "toy", "model": "m", "protocol": "workbench", "judge": judge}
            row |= {"method": method, "similarity": None, "n_questions": 500, "n_correct": 200}
            row |= {"auroc": auroc, "auroc_low": auroc - 0.05, "auroc_high": auroc + 0.05}
            row |= {"auroc_minus_nll": difference, "p_value": p_value}
            row |= {"auroc_minus_nll_low": difference - 0.02}
            row |= {"auroc_minus_nll_high": difference + 0.02}
            row |= {"n_labels": 90, "n_right": 40, "n_wrong": 50, "n_effective": 70.4}
            rows.append(row | {"shown": "yes"})
    agreement = {"dataset": "toy", "model": "m", "judge": "rouge_l", "accuracy_by_judge": 0.5}
    for name, value in (("accuracy", 0.4), ("agreement", 0.9)):
        agreement |= {name: value, f"{name}_low": value - 0.1, f"{name}_high": value + 0.05}
    people = {"labeller": "ada", "other_labeller": None, "n_both": 9, "n_same": 8, "kappa": np.nan}
    pair = {"labeller": "ada", "other_labeller": "ben", "n_both": 50, "n_same": 45, "kappa": 0.79}
    estimates = pd.DataFrame(rows).assign(**changes)
    return estimates, pd.DataFrame([agreement]), pd.DataFrame([people, pair])


def test_findings_say_which_differences_the_labels_show():
    first, second, third = findings.label_answers(*found()).split("\n\n")
    assert first == (
        "If each answer counts once (protocol `workbench`), m on toy: by the labels, significantly "
        "better than NLL: PRO (difference +0.050, 95 % confidence interval +0.030 to +0.070)."
    )
    assert second == (
        "m on toy: 90 labels (40 right, 50 wrong). By the labels, the accuracy is 0.400 (95 % "
        "confidence interval 0.300 to 0.450); by ROUGE-L, it is 0.500. ROUGE-L agrees with the "
        "labels on 0.900 (95 % confidence interval 0.800 to 0.950). AUROC of NLL is 0.800 (95 % "
        "confidence interval 0.750 to 0.850) by the labels and 0.780 by ROUGE-L, so the labels do "
        "not show that ROUGE-L shifts it."
    )
    assert third == (
        "Labeller `ada` gave the same label to 8 of 9 answers shown twice. Labellers `ada` and "
        "`ben` agree on 45 of 50 answers (Cohen's κ 0.79)."
    )


def test_findings_do_not_call_methods_equal():
    text = findings.label_answers(*found(p_value=0.4))
    assert "the labels show no difference to NLL: PRO" in text
    assert "equal to" not in text


def test_findings_without_labels_say_what_is_missing():
    reason = "only 0 labels of right answers; 10 are needed"
    estimates, agreement, labellers = found(p_value=np.nan, auroc=np.nan, n_labels=0, shown=reason)
    text = findings.label_answers(estimates, agreement.assign(accuracy=np.nan), labellers.head(0))
    assert f"no difference to NLL is estimated ({reason})" in text
    assert "m on toy: no answer has a label." in text


def test_without_enough_labels_even_the_reference_has_no_interval(tmp_path):
    judged, truth = evaluation(200)
    sample = sample_of(judged, truth, tmp_path, n_labels=60, stop=14)
    nll = judged.baselines["NLL"].to_numpy()
    labels = sample.with_labels(judged).labels
    estimate = labels.differences(nll[:, None], nll, is_reference=[True]).estimate
    ends = [estimate.low, estimate.high]
    assert np.isnan(ends).all()
