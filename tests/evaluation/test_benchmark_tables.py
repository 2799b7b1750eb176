"""The tables of the benchmark, on answers whose values are worked by hand or by scikit-learn."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from invented_settings import evaluation_of, some_questions, splits_of
from judged_questions import s_pro
from sklearn.metrics import roc_auc_score

from pro_lib import metrics, scoring
from pro_lib.evaluation import sweeps, tables
from pro_lib.evaluation.evaluation import Splits
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import Method
from pro_lib.evaluation.tables import SETTING_COLUMNS
from pro_lib.plots import alpha_sweep

INTERVAL = ["auroc", "auroc_low", "auroc_high"]


def evaluations():
    """Validation and reported questions with NLL, PE and a score that compares meanings."""
    parts = []
    for seed in (1, 2):
        log_probs, correct = some_questions(120, seed=seed)
        scores = {"NLL": scoring.nll(log_probs), "PE": scoring.predictive_entropy(log_probs)}
        scores["SE, lexical"] = np.random.default_rng(seed).normal(size=120)
        parts.append(evaluation_of(log_probs, correct, **scores))
    return parts


VALIDATION, REPORTED = evaluations()
SPLITS = Splits(VALIDATION, REPORTED, None)
TABLE = tables.benchmark([SPLITS])


def test_a_method_its_similarity_and_the_choice_of_alpha_are_columns():
    assert tuple(TABLE.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert TABLE["method"].tolist() == ["PRO", "PRO", "PRO", "NLL", "PE", "SE"]
    assert TABLE["similarity"].fillna("").tolist() == [""] * 5 + ["lexical"]
    choices = TABLE["alpha_choice"].fillna("").tolist()
    assert choices == ["validation", "default", "oracle", "", "", ""]


def test_alpha_is_chosen_on_validation_and_the_oracles_on_the_reported_questions():
    alphas = [sweeps.select_alpha(VALIDATION), 0.4, sweeps.select_alpha(REPORTED)]
    np.testing.assert_array_equal(TABLE["alpha"], [*alphas, np.nan, np.nan, np.nan])
    swept = alpha_sweep.rows_at(REPORTED, alphas=alphas)
    np.testing.assert_array_equal(TABLE.loc[:2, INTERVAL], swept[INTERVAL])


def test_the_difference_to_pro_is_paired():
    scores = REPORTED.with_pro({"PRO": TABLE["alpha"].iloc[0]})
    tests = metrics.delong(scores, REPORTED.correct)
    low, high = tests.interval()
    rows = TABLE.iloc[[0, 3, 4, 5]]
    np.testing.assert_allclose(rows["auroc_minus_pro"], tests.difference, atol=1e-12)
    np.testing.assert_allclose(rows["auroc_minus_pro_low"], low, atol=1e-12)
    np.testing.assert_allclose(rows["auroc_minus_pro_high"], high, atol=1e-12)
    np.testing.assert_allclose(rows["p_value"], tests.p_value, atol=1e-12)


def test_further_rows_of_pro_are_not_corrected_for():
    others = TABLE.iloc[3:]
    np.testing.assert_allclose(others["p_holm"], metrics.holm(others["p_value"]))
    assert TABLE["p_value"].isna().tolist() == [True] + [False] * 5
    assert TABLE["p_holm"].isna().tolist() == [True] * 3 + [False] * 3
    assert not TABLE["significant"][:3].any()


def test_rejection_and_calibration_are_those_of_the_metrics():
    row = TABLE[TABLE["method"] == "NLL"].iloc[0]
    nll = [part.baselines["NLL"] for part in (VALIDATION, REPORTED)]
    curve = metrics.accuracy_coverage(nll[1], REPORTED.correct)["accuracy"]
    assert row["auarc"] == pytest.approx(curve.mean())
    fit = metrics.calibration(nll[0], VALIDATION.correct, nll[1], REPORTED.correct)
    assert row[["ece", "brier"]].tolist() == [fit.ece, fit.brier]


def test_other_scores_that_need_an_alpha_have_their_own():
    (log_probs, correct), (others, right) = some_questions(120, seed=1), some_questions(120, seed=2)

    def part(answers, labels, meant):
        inputs = {"log_probs": answers, "search_alpha": 0.01}
        floor = Method("α-floor", scoring.alpha_floor, "")
        scores = {"S-PRO, alias": s_pro(meant), "α-floor": AlphaScore(floor, inputs)}
        judged = evaluation_of(answers, labels, search_alpha=0.01, NLL=scoring.nll(answers))
        return replace(judged, alpha_scores=scores)

    validation, reported = part(log_probs, correct, 4 * log_probs), part(others, right, 2 * others)
    table = tables.benchmark([Splits(validation, reported, 50)])
    assert table["method"].tolist() == ["PRO", "PRO", "PRO", "S-PRO", "α-floor", "NLL"]
    assert table["alpha_choice"].fillna("").tolist()[3:] == ["validation", "validation", ""]
    table = table.set_index("method")
    assert table.loc["S-PRO", "similarity"] == "alias"
    rows = validation.drawn(50).answers["question_id"].astype(int)
    grid = sorted(sweeps.alpha_grid(0.01), key=lambda alpha: (round(abs(alpha - 0.4), 12), alpha))
    of_pro, of_floor = (
        (scoring.pro, 4 * log_probs, 2 * others),
        (scoring.alpha_floor, log_probs, others),
    )
    for name, (score, chosen_on, given_) in {"S-PRO": of_pro, "α-floor": of_floor}.items():
        aurocs = [
            metrics.auroc(score(chosen_on[rows], alpha=alpha), correct[rows]) for alpha in grid
        ]
        assert table.loc[name, "alpha"] == grid[np.argmax(aurocs)]
        expected = roc_auc_score(~right, score(given_, alpha=table.loc[name, "alpha"]))
        assert table.loc[name, "auroc"] == pytest.approx(expected)
        assert not np.isnan(table.loc[name, "p_holm"])


def test_a_score_given_with_the_records_keeps_its_name():
    assert tables.method_columns(["NLL", "NLL, given", "SE, lexical"]) == {
        "method": ["NLL", "NLL, given", "SE"],
        "similarity": [None, None, "lexical"],
    }


def test_accuracy_by_coverage_has_wilsons_interval_and_an_oracle_without_one():
    correct = [True, False] * 10
    setting = evaluation_of(some_questions(20)[0], correct, NLL=np.arange(20.0))
    table = tables.accuracy_by_coverage([splits_of(setting)], n_points=20)
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert table["method"].unique().tolist() == ["NLL", "PRO", "oracle"]
    assert table["n_questions"].unique().tolist() == [20]
    nll = table[table["method"] == "NLL"].set_index("n_answered")
    assert nll.index.tolist() == list(range(1, 21))
    # NLL is sure of the correct answers 0, 2, … and the wrong ones 1, 3, … in turn.
    assert nll["accuracy"].tolist()[:4] == pytest.approx([1, 1 / 2, 2 / 3, 1 / 2])
    ends = metrics.wilson(nll["accuracy"], nll.index)
    np.testing.assert_array_equal(nll[["accuracy_low", "accuracy_high"]].T, ends)
    oracle = table[table["method"] == "oracle"].set_index("n_answered")
    assert oracle["accuracy"][[1, 10, 20]].tolist() == [1.0, 1.0, 0.5]
    assert oracle[["accuracy_low", "accuracy_high"]].isna().all(axis=None)


def test_accuracy_by_coverage_has_the_first_three_methods_that_compare_meanings():
    scores = ("NLL", "SE, a", "SD, a", "S-NLL, a", "Deg, a", "SE, b")
    log_probs, correct = some_questions(40)
    setting = evaluation_of(log_probs, correct, **dict.fromkeys(scores, np.arange(40.0)))
    table = tables.accuracy_by_coverage([splits_of(setting)], n_points=3)
    found = table.drop_duplicates(["method", "similarity"])[["method", "similarity"]]
    expected = [
        ("NLL", None),
        ("PRO", None),
        ("SE", "a"),
        ("SD", "a"),
        ("Deg", "a"),
        ("oracle", None),
    ]
    assert list(found.itertuples(index=False, name=None)) == expected
    is_pro = table["method"] == "PRO"
    assert set(table.loc[is_pro, "alpha_choice"]) == {"validation"}
    assert table.loc[~is_pro, ["alpha", "alpha_choice"]].isna().all(axis=None)


def test_reliability_has_the_bins_of_the_calibration():
    table = tables.reliability([SPLITS], methods=["PRO", "SE, lexical"])
    assert tuple(table.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert (table.groupby("method")["n_in_bin"].sum() == 120).all()
    rows = table[table["method"] == "SE"]
    assert set(rows["similarity"]) == {"lexical"}
    scores = [part.baselines["SE, lexical"] for part in (VALIDATION, REPORTED)]
    fit = metrics.calibration(scores[0], VALIDATION.correct, scores[1], REPORTED.correct)
    assert set(rows["ece"]) == {fit.ece}
    assert set(rows["brier"]) == {fit.brier}
    for column, original in {
        "n_in_bin": "n",
        "confidence_min": "low",
        "confidence_max": "high",
    }.items():
        assert rows[column].tolist() == fit.table[original].tolist()
    kept = ["confidence", "accuracy", "accuracy_low", "accuracy_high"]
    assert rows[kept].to_dict("list") == fit.table[kept].to_dict("list")


def test_printed_differences_are_to_the_papers_own_pro():
    printed = tables.printed_benchmark()
    assert (printed.loc[printed["method"] == "PRO", "auroc_minus_pro"] == 0).all()
    rows = printed[(printed["dataset"] == "TriviaQA") & (printed["model"] == "Gemma-2B")].set_index(
        "method"
    )
    assert rows.loc["SD", "auroc"] == 0.799
    assert rows.loc["SD", "auroc_minus_pro"] == pytest.approx(0.799 - 0.819)


def test_only_settings_of_the_paper_stand_beside_it():
    assert tables.beside_paper(TABLE).empty
    named = TABLE.assign(dataset="mandarjoshi/trivia_qa", model="google/gemma-2b")
    rows = tables.beside_paper(named)
    # PRO with α chosen on validation alone
    assert rows["method"].tolist() == [
        "PRO",
        "NLL",
        "PE",
        "SE",
    ]
    assert rows["similarity"].tolist()[-1] == "lexical"
    assert rows["auroc"].iloc[0] == TABLE["auroc"].iloc[0]
    assert rows["printed_auroc"].tolist()[0] == 0.819


def test_every_setting_has_its_rows():
    other = replace(REPORTED, model="other")
    table = tables.benchmark([SPLITS, Splits(VALIDATION, other, None)])
    assert table["model"].tolist() == ["m"] * 6 + ["other"] * 6
    assert table.index.equals(pd.RangeIndex(12))
