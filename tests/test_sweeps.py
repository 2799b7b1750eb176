import importlib.util
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from pro_lib import evaluation, metrics, scores, sweeps

ROOT = Path(__file__).resolve().parents[1]


def some_questions(n=80, n_answers=5, seed=0):
    """Distinct answers of mass below 1, some missing; surer questions are more often right."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_answers + 1, 0.4), size=n)[:, :n_answers] + 1e-9
    correct = rng.random(n) < probs.max(axis=1)
    probs[rng.random(probs.shape) < 0.3] = np.nan
    probs[np.isnan(probs).all(axis=1), 0] = 0.01
    return np.log(probs), correct


def naive_alpha_sweep(log_probs, correct, alphas):
    """One question at a time, the formula term by term, AUROC by scikit-learn."""
    rows = []
    for alpha in alphas:
        uncertainty, n_kept = [], []
        for row in log_probs:
            probs = sorted((np.exp(value) for value in row if not np.isnan(value)), reverse=True)
            kept = [p for p in probs if p >= alpha] or probs[:1]
            uncertainty.append(-np.log(kept[-1]) - sum(p * np.log(p / kept[-1]) for p in kept))
            n_kept.append(len(kept))
        rows.append((alpha, roc_auc_score(~correct, uncertainty), np.mean(n_kept)))
    return pd.DataFrame(rows, columns=["alpha", "auroc", "mean_kept"])


def test_the_grid_has_the_steps_of_the_paper_and_finer_ones_near_zero():
    grid = np.array(sweeps.ALPHA_GRID)
    assert (np.diff(grid) > 0).all()
    assert {round(0.05 * step, 2) for step in range(21)} <= set(sweeps.ALPHA_GRID)
    assert ((grid > 0) & (grid < 0.05)).sum() >= 8


def test_alpha_sweep_by_hand():
    # Right: p = 0.5, 0.3. Wrong: p = 0.45, 0.05.
    # α = 0.4 keeps one answer each: 0.693 (right) < 0.799 (wrong): AUROC 1, mean K 1.
    # α = 0.1 keeps two of the right one: -log 0.3 - 0.5 log(5/3) = 1.204 - 0.255 = 0.949 > 0.799: AUROC 0.
    log_probs = np.log([[0.5, 0.3], [0.45, 0.05]])
    table = sweeps.alpha_sweep(log_probs, np.array([True, False]), alphas=[0.4, 0.1])
    assert table.to_dict("list") == {"alpha": [0.4, 0.1], "auroc": [1.0, 0.0], "mean_kept": [1.0, 1.5]}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_alpha_sweep_agrees_with_a_loop_over_the_questions(seed, n_answers):
    log_probs, correct = some_questions(40, n_answers, seed)
    correct[:2] = True, False
    alphas = [0.0, 0.003, 0.1, 0.35, 0.8, 1.0]
    expected = naive_alpha_sweep(log_probs, correct, alphas)
    pd.testing.assert_frame_equal(sweeps.alpha_sweep(log_probs, correct, alphas=alphas), expected, atol=1e-12, rtol=0)


def test_alpha_one_is_exactly_nll():
    log_probs, correct = some_questions()
    table = sweeps.alpha_sweep(log_probs, correct)
    assert table["alpha"].tolist() == list(sweeps.ALPHA_GRID)
    assert table["auroc"].iloc[-1] == metrics.auroc(scores.nll(log_probs), correct)
    assert table["mean_kept"].iloc[-1] == 1
    assert (np.diff(table["mean_kept"]) <= 0).all()


def test_intervals_of_the_alpha_sweep_are_those_of_the_bootstrap():
    log_probs, correct = some_questions()
    table = sweeps.alpha_sweep(log_probs, correct, alphas=[0.1, 0.4], n_resamples=100, level=0.9, seed=5)
    frame = pd.DataFrame({"PRO": scores.pro(log_probs, alpha=0.4)})
    expected = metrics.bootstrap_auroc(frame, correct, n_resamples=100, level=0.9, seed=5)
    assert list(table.columns) == ["alpha", "auroc", "mean_kept", "low", "high"]
    assert table.loc[1, ["auroc", "low", "high"]].tolist() == expected.loc[0, ["auroc", "low", "high"]].tolist()


def test_select_alpha_takes_the_best():
    log_probs, correct = some_questions()
    table = sweeps.alpha_sweep(log_probs, correct)
    chosen = sweeps.select_alpha(log_probs, correct)
    assert table.set_index("alpha")["auroc"][chosen] == table["auroc"].max()


def test_select_alpha_breaks_ties_towards_the_recommended_alpha():
    log_probs, correct = np.log([[0.9], [0.2]]), np.array([True, False])  # one answer each: every α ties
    assert sweeps.select_alpha(log_probs, correct) == 0.4
    assert sweeps.select_alpha(log_probs, correct, alphas=[0.9, 0.35, 0.1, 0.45]) == 0.35
    assert sweeps.select_alpha(log_probs, correct, alphas=[0.9, 0.45, 0.1]) == 0.45


def test_redraws_choose_from_the_questions_drawn():
    log_probs, correct = some_questions()
    table = sweeps.redraw_alpha(log_probs, correct, n_questions=30, n_redraws=20, seed=2)
    assert list(table.columns) == ["redraw", "alpha", "auroc"]
    rng = np.random.default_rng(2)
    for alpha, auroc in zip(table["alpha"], table["auroc"], strict=True):
        drawn = rng.choice(len(correct), size=30, replace=False)
        assert alpha == sweeps.select_alpha(log_probs[drawn], correct[drawn])
        assert auroc == metrics.auroc(scores.pro(log_probs[drawn], alpha=alpha), correct[drawn])
    assert table["redraw"].tolist() == list(range(20))
    assert len(set(table["alpha"])) > 1


def test_redrawing_all_questions_always_chooses_the_same():
    log_probs, correct = some_questions()
    table = sweeps.redraw_alpha(log_probs, correct, n_questions=len(correct), n_redraws=5)
    assert table["alpha"].tolist() == [sweeps.select_alpha(log_probs, correct)] * 5


def test_one_class_draws_are_drawn_again():
    log_probs, correct = some_questions(20)
    correct[:] = True
    correct[3] = False  # most draws of two questions have no wrong answer
    table = sweeps.redraw_alpha(log_probs, correct, n_questions=2, n_redraws=10)
    assert len(table) == 10
    assert table["auroc"].notna().all()
    correct[3] = True
    with pytest.raises(metrics.OneClassError):
        sweeps.redraw_alpha(log_probs, correct, n_questions=2)


@pytest.mark.parametrize("n_questions", [1, 81])
def test_redraw_wants_as_many_questions_as_there_are(n_questions):
    log_probs, correct = some_questions(80)
    with pytest.raises(ValueError, match=rf"n_questions must lie in \[2, 80\].*not {n_questions}"):
        sweeps.redraw_alpha(log_probs, correct, n_questions=n_questions)


def test_fixed_k_sweep_is_pro_at_each_k():
    log_probs, correct = some_questions()
    table = sweeps.fixed_k_sweep(log_probs, correct)
    assert table["k"].tolist() == [1, 2, 3, 4, 5]
    expected = [roc_auc_score(~correct, scores.pro_at_k(log_probs, k)) for k in table["k"]]
    np.testing.assert_allclose(table["auroc"], expected, rtol=0, atol=1e-12)


def test_fixed_k_sweep_covers_the_ks_asked_for():
    log_probs, correct = some_questions()
    widened = np.column_stack([log_probs, np.full(len(log_probs), np.nan)])  # a column no question uses
    assert sweeps.fixed_k_sweep(widened, correct)["k"].tolist() == [1, 2, 3, 4, 5]
    table = sweeps.fixed_k_sweep(log_probs, correct, max_k=2, n_resamples=20)
    assert list(table.columns) == ["k", "auroc", "low", "high"]
    assert table["k"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="max_k must be at least 1, not 0"):
        sweeps.fixed_k_sweep(log_probs, correct, max_k=0)


def test_rouge_threshold_sweep_by_hand():
    # ROUGE-L 0.3 is not above 0.3. At 0.2 the wrong answer is c alone, at 0.3 it is b and c.
    uncertainties = pd.DataFrame({"PRO": [1.0, 2.0, 3.0], "NLL": [2.0, 1.0, 1.5]})
    table = sweeps.rouge_threshold_sweep(uncertainties, [1.0, 0.3, 0.0], thresholds=[0.2, 0.3])
    assert table.to_dict("list") == {
        "threshold": [0.2, 0.2, 0.3, 0.3],
        "method": ["PRO", "NLL", "PRO", "NLL"],
        "auroc": [1.0, 0.5, 1.0, 0.0],
        "accuracy": [2 / 3, 2 / 3, 1 / 3, 1 / 3],
    }


def judged(correct, **baselines):
    """Questions judged as told, PRO's answers drawn at random."""
    n = len(correct)
    answers = pd.DataFrame({"question_id": [str(i) for i in range(n)], "correct": correct})
    scored = pd.DataFrame(baselines)
    return evaluation.Evaluation(
        model="m",
        dataset="d",
        split="test",
        answers=answers,
        log_probs=some_questions(n)[0],
        baselines=scored,
        exclusions=metrics.usable(scored, correct),
        unavailable=(),
    )


def test_the_accuracy_of_the_questions_answered_has_wilsons_interval():
    # NLL answers right, wrong, right, …: of ten answered five are right, and Wilson's interval of 5 in 10 is
    # (0.5 + 0.19207 ± 1.95996 √(0.025 + 0.0096037)) / 1.38415 = 0.5 ± 0.26341. TIED knows nothing: 0.5 everywhere.
    setting = judged([True, False] * 10, NLL=np.arange(20.0), TIED=np.zeros(20))
    table = sweeps.accuracy_coverage(setting, setting, n_points=20)
    nll = table[table["method"] == "NLL"].set_index("n_answered")
    np.testing.assert_allclose(nll.loc[10, ["low", "high"]].astype(float), [0.23659, 0.76341], atol=1e-5)
    for k, row in nll.iterrows():
        expected = binomtest(round(row["accuracy"] * k), k).proportion_ci(method="wilson")
        np.testing.assert_allclose([row["low"], row["high"]], [expected.low, expected.high], atol=1e-12)
    tied = table[table["method"] == "TIED"]
    assert (tied["accuracy"] == 0.5).all()
    np.testing.assert_allclose(tied["low"] + tied["high"], 1)
    assert (np.diff(tied["high"] - tied["low"]) < 0).all()
    assert table.loc[table["method"] == "oracle", ["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize("thresholds", [(0.1, 0.5, 1.0), (1.0, 0.5), (1.0,)])
def test_a_one_class_threshold_is_nan_and_named(thresholds):
    uncertainties = pd.DataFrame({"PRO": [1.0, 2.0, 3.0]})
    with pytest.warns(sweeps.OneClassWarning, match="threshold 1.0 all 3 answers") as caught:
        table = sweeps.rouge_threshold_sweep(uncertainties, [1.0, 0.8, 0.0], thresholds=thresholds, n_resamples=10)
    assert len(caught) == 1
    assert table["accuracy"][table["threshold"] == 1.0].tolist() == [0.0]
    lost = table[["auroc", "low", "high"]].isna().all(axis=1)
    assert lost.tolist() == [threshold == 1.0 for threshold in thresholds]
    assert table["auroc"].notna().tolist() == (~lost).tolist()


def test_nan_is_never_dropped_silently():
    log_probs, correct = some_questions()
    log_probs[[4, 9]] = np.nan
    for sweep in (sweeps.alpha_sweep, sweeps.select_alpha, sweeps.redraw_alpha, sweeps.fixed_k_sweep):
        with pytest.raises(ValueError, match="2 of 80 rows without any answer, first in row 4"):
            sweep(log_probs, correct)
    with pytest.raises(ValueError, match="rouge_l is NaN in 1 rows, first in row 1"):
        sweeps.rouge_threshold_sweep(pd.DataFrame({"PRO": [1.0, 2.0]}), [0.5, np.nan])
    with pytest.raises(ValueError, match="uncertainty is NaN in 1 of 2 rows"):
        sweeps.rouge_threshold_sweep(pd.DataFrame({"PRO": [1.0, np.nan]}), [0.5, 0.0])


def test_a_sweep_without_alphas_is_an_error():
    log_probs, correct = some_questions()
    with pytest.raises(ValueError, match="alphas is empty"):
        sweeps.alpha_sweep(log_probs, correct, alphas=[])
    with pytest.raises(ValueError, match=r"alpha must lie in \[0, 1\]"):
        sweeps.alpha_sweep(log_probs, correct, alphas=[0.1, 1.2])


@pytest.mark.parametrize("sweep", [sweeps.alpha_sweep, sweeps.select_alpha, sweeps.redraw_alpha, sweeps.fixed_k_sweep])
def test_a_violated_premise_is_warned_about_once_a_sweep(sweep):
    log_probs, correct = np.tile(np.log([[0.9, 0.9], [0.2, 0.1]]), (60, 1)), np.tile([True, False], 60)
    with pytest.warns(scores.PremiseWarning, match="^60 of 120 questions") as caught:
        sweep(log_probs, correct)
    assert len(caught) == 1


@pytest.mark.slow
def test_the_sweep_is_300_times_faster_than_a_per_question_pandas_loop():
    spec = importlib.util.spec_from_file_location("benchmark", ROOT / "benchmarks" / "alpha_sweep.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    log_probs, correct = benchmark.synthetic_answers(10_000, 10, 0)
    alphas = np.linspace(0, 1, 101)
    start = time.perf_counter()
    swept = sweeps.alpha_sweep(log_probs, correct, alphas=alphas)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    looped = benchmark.pandas_loc_loop(log_probs, correct, alphas[[20]])
    theirs = (time.perf_counter() - start) * len(alphas)
    assert swept["auroc"][20] == pytest.approx(looped[0], abs=1e-9)
    assert theirs / ours > 300
