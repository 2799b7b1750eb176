from dataclasses import replace

import numpy as np
import pytest
from invented_settings import (
    CORRECT,
    EVALUATION,
    LOG_PROBS,
    evaluation_of,
    some_questions,
    splits_of,
)
from scipy.stats import norm

from pro_lib import metrics, scoring
from pro_lib.evaluation import alpha_choice
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.evaluation import ALPHA_GRID, DRAWN_ALPHAS
from pro_lib.plots import (
    alpha_sweep,
    benchmark,
    fixed_k,
    k_vs_alpha,
    reliability,
    rouge_thresholds,
)
from pro_lib.plots.redraws import redraw


def test_a_finer_alpha_is_chosen_only_where_it_is_asked_for():
    # Wrong: 0.5 and 0.04; right: 0.45 and 0.001. Where α keeps 0.04 and not 0.001, PRO is 3.219 -
    # 0.5 log 12.5 = 1.956 of the wrong one and 0.799 of the right one: AUROC 1. From 0.05 on it is
    # 0.693 and 0.799, at 0 1.956 and 4.159.
    evaluation = evaluation_of(np.log([[0.5, 0.04], [0.45, 0.001]]), [False, True], NLL=0.0)
    aurocs = alpha_sweep.rows_at(evaluation).set_index("alpha")["auroc"]
    assert aurocs[[0.0, 0.02, 0.05]].tolist() == [0.0, 1.0, 0.0]
    for alphas, chosen in ((None, 0.4), (DRAWN_ALPHAS, 0.04)):
        splits = splits_of(evaluation, alphas=alphas)
        assert alpha_choice.select_alpha(evaluation, alphas=alphas) == chosen
        assert splits.alpha() == chosen
        for table in (fixed_k.table, benchmark.table):
            assert chosen in set(table([splits])["alpha"])


def test_sweeps_over_alpha_have_the_values_and_intervals_of_scores_and_metrics():
    table = alpha_sweep.rows_at(EVALUATION)
    assert set(ALPHA_GRID) < set(table["alpha"]) == set(DRAWN_ALPHAS)
    intervals = metrics.auroc_intervals(scoring.pro(LOG_PROBS, alpha=DRAWN_ALPHAS), CORRECT)
    np.testing.assert_array_equal(table[["auroc", "auroc_low", "auroc_high"]].T, intervals)
    counts = scoring.adaptive_k(LOG_PROBS, DRAWN_ALPHAS)
    mean = counts.mean(axis=0)
    half = norm.ppf(0.975) * counts.std(axis=0, ddof=1) / np.sqrt(80)
    np.testing.assert_array_equal(table["mean_k"], mean)
    by_k = k_vs_alpha.table([EVALUATION])[["mean_k", "mean_k_low", "mean_k_high"]]
    np.testing.assert_allclose(by_k.T, [mean, mean - half, mean + half], rtol=1e-12)


def test_intervals_are_by_cluster_where_questions_have_one():
    clusters = np.arange(len(CORRECT)) % 8
    clustered = replace(EVALUATION, answers=EVALUATION.answers.assign(cluster=clusters))
    table = alpha_sweep.rows_at(clustered, alphas=[0.1, 0.4])
    scores = scoring.pro(LOG_PROBS, alpha=np.array([0.1, 0.4]))
    expected = metrics.auroc_intervals(scores, CORRECT, clusters=clusters)
    np.testing.assert_array_equal(table[["auroc", "auroc_low", "auroc_high"]].T, expected)
    assert set(table["interval"]) == {"by cluster"}


def test_an_exact_search_is_swept_down_to_its_alpha():
    nll = scoring.nll(LOG_PROBS)
    evaluation = evaluation_of(LOG_PROBS, CORRECT, search_alpha=0.012, NLL=nll)
    for table in (alpha_sweep.rows_at(evaluation), k_vs_alpha.table([evaluation])):
        assert table["alpha"].iloc[:2].tolist() == [0.012, 0.015]
    with pytest.raises(ValueError, match=r"alpha=0\.01 is below search_alpha=0\.012"):
        alpha_sweep.rows_at(evaluation, alphas=[0.01])
    assert alpha_choice.select_alpha(evaluation) >= 0.012


def test_of_alphas_that_tie_the_nearest_to_the_recommended_is_selected():
    # One answer each: every α ties
    evaluation = evaluation_of(np.log([[0.9], [0.2]]), [True, False])
    for alphas, nearest in ((None, 0.4), ([0.9, 0.35, 0.1, 0.45], 0.35), ([0.9, 0.45, 0.1], 0.45)):
        assert alpha_choice.select_alpha(evaluation, alphas=alphas) == nearest


def test_redraws_choose_from_the_questions_drawn_and_report_on_all():
    table = redraw(splits_of(EVALUATION, 30), n_redraws=20, seed=2)
    rng = np.random.default_rng(2)
    nll = metrics.auroc(scoring.nll(LOG_PROBS), CORRECT)
    for row in table.itertuples():
        sample = rng.choice(len(CORRECT), size=30, replace=False)
        drawn = evaluation_of(LOG_PROBS[sample], CORRECT[sample])
        assert row.alpha == alpha_choice.select_alpha(drawn)
        assert row.auroc == metrics.auroc(scoring.pro(LOG_PROBS, alpha=row.alpha), CORRECT)
        assert row.better_than_nll == (row.auroc > nll)
    assert table["redraw"].tolist() == list(range(20))
    assert table["alpha"].nunique() > 1


def test_draws_without_right_answers_are_drawn_again():
    # One right answer among 20 is in few draws of two.
    rare = evaluation_of(LOG_PROBS[:20], np.arange(20) == 3, NLL=0.0)
    assert redraw(splits_of(rare, 2), n_redraws=10)["auroc"].notna().sum() == 10


@pytest.mark.parametrize(("n", "why"), [(80, "80 of 80"), (None, "80 of 80"), (1, "1 of 80")])
def test_a_pool_without_others_cannot_be_redrawn_and_does_not_look_stable(n, why):
    with pytest.warns(UserWarning, match=f"cannot be redrawn .α is chosen on {why}"):
        table = redraw(splits_of(EVALUATION, n))
    assert table[["alpha", "auroc", "better_than_nll"]].isna().all(axis=None)


WRONG = evaluation_of(LOG_PROBS, CORRECT & False, NLL=0.0)


def test_where_validation_has_one_class_the_default_is_taken_and_said():
    splits = Splits(WRONG, EVALUATION)
    words = "d, m, test: all 80 judged answers are wrong"
    with pytest.warns(UserWarning, match=f"{words}, so alpha cannot"):
        table = benchmark.table([splits])
    assert table["alpha"].iloc[0] == 0.4
    assert table["ece"].isna().all()
    with pytest.warns(UserWarning, match=f"cannot be redrawn .{words}."):
        nothing = redraw(Splits(WRONG, EVALUATION, 30))
    assert nothing["alpha"].isna().tolist() == [True]
    with pytest.warns(UserWarning, match="alpha cannot"):
        assert reliability.table([splits], methods=["PRO"]).empty


def test_what_a_sweep_lacks_is_said_and_nan_is_never_dropped_silently():
    log_probs, correct = some_questions(120)
    with pytest.raises(ValueError, match="ROUGE-L is not known for 120 of 120 answers"):
        rouge_thresholds.table([splits_of(evaluation_of(log_probs, correct, rouge_l=np.nan))])
    log_probs[[4, 9]] = np.nan
    empty = evaluation_of(log_probs, correct)
    for sweep in (alpha_sweep.rows_at, alpha_choice.select_alpha):
        with pytest.raises(ValueError, match="uncertainty is NaN"):
            sweep(empty)
