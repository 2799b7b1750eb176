"""The tables of notebooks 05 to 09 with labels of a sample as the correctness."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_exact_search_figure import judged_runs
from test_label_tables import sample_of
from test_labels import evaluation

from pro_lib import importing, metrics
from pro_lib.evaluation import Splits
from pro_lib.plots import (
    answered,
    benchmark,
    causes,
    exact_search_auroc,
    gains,
    guarantees,
    reliability,
    rouge_thresholds,
)
from pro_lib.plots.settings import overview

VALIDATION, _ = evaluation(100, seed=1)


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Splits with labels of all 100 answers, and the same with these labels as correctness."""
    judged, truth = evaluation(100)
    sample = sample_of(judged, truth, tmp_path_factory.mktemp("complete"), n_labels=100)
    correct = np.array(list(truth.values()))
    exact = replace(judged, answers=judged.answers.assign(correct=correct))
    return Splits(VALIDATION, sample.with_labels(judged), None), Splits(VALIDATION, exact, None)


@pytest.fixture(scope="module")
def partial_labels(tmp_path_factory):
    """Splits with labels of 60 of 200 answers."""
    judged, truth = evaluation(200)
    sample = sample_of(judged, truth, tmp_path_factory.mktemp("partial"), n_labels=60)
    return Splits(VALIDATION, sample.with_labels(judged), None)


def test_with_all_labels_the_benchmark_has_the_true_values(complete):
    estimated, exact = (benchmark.table([splits]) for splits in complete)
    columns = ["auroc", "auroc_minus_pro", "prr", "auarc", "brier", "n_differ", "n_correct"]
    pd.testing.assert_frame_equal(estimated[columns], exact[columns])
    assert set(estimated["judge"]) == {"labels"}
    assert "judge" not in exact
    assert estimated["ece"].isna().all()
    by_labels, by_truth = (overview([splits.reported]).iloc[0] for splits in complete)
    assert by_labels["n_correct"] == by_truth["n_correct"]
    assert by_labels["accuracy"] == pytest.approx(by_truth["accuracy"])


def test_with_all_labels_accuracy_by_coverage_is_the_true_one(complete):
    estimated, exact = (answered.table([splits]) for splits in complete)
    enough = estimated["accuracy"].notna()
    assert (enough == (estimated["n_answered"] >= 20) | (estimated["method"] == "oracle")).all()
    np.testing.assert_allclose(estimated["accuracy"][enough], exact["accuracy"][enough])
    is_oracle = estimated["method"] == "oracle"
    assert estimated["threshold"][is_oracle].isna().all()
    assert estimated["accuracy_low"][is_oracle].isna().all()
    kept = ~is_oracle & enough & (estimated["accuracy"] < 1)
    assert (estimated["accuracy_low"] <= estimated["accuracy"])[kept].all()


def test_with_all_labels_the_bins_of_reliability_have_the_true_accuracy(complete):
    estimated, exact = complete
    table = reliability.table([estimated], methods=["NLL"])
    assert table["n_in_bin"].sum() == 100
    assert len(table) <= 3  # a bin for every 30 labels
    validation = VALIDATION.baselines["NLL"], VALIDATION.correct
    correct = exact.reported.correct
    fitted = metrics.calibration(*validation, exact.reported.baselines["NLL"], correct)
    for row in table.itertuples():
        members = (fitted.probability >= row.confidence_min).astype(bool)
        members &= fitted.probability <= row.confidence_max
        assert row.accuracy == pytest.approx(correct[members].mean())
    assert table["brier"].iloc[0] == pytest.approx(fitted.brier)
    assert table["ece"].isna().all()


def test_with_all_labels_guarantees_have_the_true_accuracy(complete):
    estimated, exact = (guarantees.table([splits], targets=[0.2]) for splits in complete)
    assert (exact["coverage"] > 0).any()
    np.testing.assert_array_equal(estimated["coverage"], exact["coverage"])
    shown = exact["coverage"] >= 0.2
    np.testing.assert_allclose(estimated["accuracy"][shown], exact["accuracy"][shown])
    assert estimated["accuracy"][~shown].isna().all()


def test_thresholds_of_rouge_are_followed_by_rows_from_the_labels(complete):
    estimated, exact = (splits.reported for splits in complete)
    table = rouge_thresholds.table([complete[0]], thresholds=[0.3])
    assert table["rouge_threshold"].isna().tolist() == [False] * 4 + [True] * 4
    by_rouge = table[:4]
    by_labels = table[4:]
    assert by_rouge["judge"].isna().all()
    assert set(by_labels["judge"]) == {"labels"}
    [nll] = by_labels.loc[by_labels["method"] == "NLL", "auroc"]
    assert nll == pytest.approx(metrics.auroc(exact.baselines["NLL"], exact.correct))
    np.testing.assert_allclose(by_labels["accuracy"], exact.correct.mean())
    np.testing.assert_allclose(by_rouge["accuracy"], (estimated.answers["rouge_l"] > 0.3).mean())


def test_causes_are_estimated_from_the_labels(complete):
    estimated, exact = (splits.reported for splits in complete)
    by_truth = gains.pro_minus_nll(exact.log_probs, exact.judgement, alphas=[0.4])
    records = []
    for question_id, row in zip(exact.answers["question_id"], exact.log_probs, strict=True):
        answers = [{"text": str(place), "log_prob": value} for place, value in enumerate(row)]
        records.append({"question_id": question_id, "answers": answers})
    table = causes.table(estimated, importing.import_answers(records))
    assert set(table["judge"]) == {"labels"}
    unchanged = table[table["cause"] == "nothing changed"]
    np.testing.assert_allclose(unchanged["auroc_minus_nll"], by_truth["auroc_minus_nll"])


def test_the_search_is_compared_by_labels(tmp_path):
    asked_splits = []

    def with_labels(reported):
        truth = dict(zip(reported.answers["question_id"], reported.correct.tolist(), strict=True))
        asked_splits.append(reported.split)
        return sample_of(reported, truth, tmp_path, n_labels=len(truth)).with_labels(reported)

    runs = judged_runs(48)
    sample = SimpleNamespace(with_labels=with_labels)
    estimated = exact_search_auroc.table([runs], n_validation=None, label_sample=sample)
    exact = exact_search_auroc.table([runs], n_validation=None)
    assert asked_splits == ["test"]
    assert set(estimated["judge"]) == {"labels"}
    assert set(estimated["interval"]) == {"from labels of a sample"}
    columns = ["method", "alpha", "n_differ", "auroc_minus_pro"]
    pd.testing.assert_frame_equal(estimated[columns], exact[columns])


def test_a_group_with_fewer_than_20_labels_has_no_accuracy(partial_labels):
    labels = partial_labels.reported.sampled_judgement
    has_label = ~np.isnan(labels.weighted.labels[labels.units])
    counts = np.cumsum(has_label)
    weights = np.stack([counts <= 19, counts <= 20]).astype(float)
    accuracy = labels.accuracies(weights).value
    assert np.isnan(accuracy).tolist() == [True, False]


def test_an_estimated_oracle_answers_the_right_answers_first(partial_labels):
    labels = partial_labels.reported.sampled_judgement
    _, curve = labels.oracle()
    assert curve[0] == 1
    assert curve[149] == pytest.approx(200 * labels.accuracy / 150)
    assert curve[-1] == pytest.approx(labels.accuracy)
    every = labels.accuracy_at(np.zeros(200), np.array([200]))
    assert every.value[0] == pytest.approx(labels.accuracy)
