"""Test the figure of the benchmark: its values by hand or by scikit-learn, and its drawing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from alpha_scores import s_pro
from figure_checks import check_figure, finding, grid, legend, significance_marks
from invented_settings import evaluation_of, setting_row, some_questions

from pro_lib import metrics, scoring
from pro_lib.evaluation import alpha_choice
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.inputs import AlphaScore
from pro_lib.evaluation.methods import Method
from pro_lib.plots import benchmark
from pro_lib.plots.settings import SETTING_COLUMNS, aurocs
from pro_lib.plots.style import COLORS

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
TABLE = benchmark.table([SPLITS])


def test_a_method_its_similarity_and_the_choice_of_alpha_are_columns():
    assert tuple(TABLE.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert TABLE["method"].tolist() == ["PRO", "PRO", "PRO", "NLL", "PE", "SE"]
    assert TABLE["similarity"].fillna("").tolist() == [""] * 5 + ["lexical"]
    choices = TABLE["alpha_choice"].fillna("").tolist()
    assert choices == ["validation", "default", "oracle", "", "", ""]


def test_alpha_is_chosen_on_validation_and_the_oracles_on_the_reported_questions():
    alphas = [alpha_choice.select_alpha(VALIDATION), 0.4, alpha_choice.select_alpha(REPORTED)]
    np.testing.assert_array_equal(TABLE["alpha"], [*alphas, np.nan, np.nan, np.nan])
    swept = pd.DataFrame(aurocs(REPORTED.pro(alphas), REPORTED))
    np.testing.assert_array_equal(TABLE.loc[:2, INTERVAL], swept[INTERVAL])


def test_the_difference_to_pro_is_paired():
    scores = REPORTED.scores({"PRO": TABLE["alpha"].iloc[0]})
    tests = metrics.delong(scores, REPORTED.correct)
    low, high = tests.low, tests.high
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
    table = benchmark.table([Splits(validation, reported, 50)])
    assert table["method"].tolist() == ["PRO", "PRO", "PRO", "S-PRO", "α-floor", "NLL"]
    assert table["alpha_choice"].fillna("").tolist()[3:] == ["validation", "validation", ""]
    table = table.set_index("method")
    assert table.loc["S-PRO", "similarity"] == "alias"
    rows = validation.drawn(50).answers["question_id"].astype(int)
    grid = sorted(
        alpha_choice.alpha_grid(0.01), key=lambda alpha: (round(abs(alpha - 0.4), 12), alpha)
    )
    of_pro, of_floor = (
        (scoring.pro, 4 * log_probs, 2 * others),
        (scoring.alpha_floor, log_probs, others),
    )
    for name, (score, chosen_on, given_) in {"S-PRO": of_pro, "α-floor": of_floor}.items():
        aurocs = [
            metrics.auroc(score(chosen_on[rows], alpha=alpha), correct[rows]) for alpha in grid
        ]
        assert table.loc[name, "alpha"] == grid[np.argmax(aurocs)]
        expected = metrics.auroc(score(given_, alpha=table.loc[name, "alpha"]), right)
        assert table.loc[name, "auroc"] == pytest.approx(expected)
        assert not np.isnan(table.loc[name, "p_holm"])


def test_every_setting_has_its_rows():
    other = replace(REPORTED, model="other")
    table = benchmark.table([SPLITS, Splits(VALIDATION, other, None)])
    assert table["model"].tolist() == ["m"] * 6 + ["other"] * 6
    assert table.index.equals(pd.RangeIndex(12))


METHODS = ["PRO", "NLL", "ALL", "PE", "NE", "SE", "SD", "Deg"]


def test_it_can_be_read_at_both_widths():
    setting = {"dataset": ["world-facts", "mine"], "model": ["facts-2m", "facts-1m"]}
    check_figure(benchmark.draw, grid(**setting, method=METHODS), n_panels=4)


def test_long_titles_of_panels_are_not_shortened():
    names = ["a-model-with-a-long-name-" + ending for ending in ("7b-it", "13b-it")]
    datasets = ["a-data-set-with-a-long-name", "b", "c"]
    figure = benchmark.draw(grid(model=names, dataset=datasets, method=METHODS))
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes]
    assert titles[0].startswith(f"{datasets[0]}, {names[0]}, n")


def test_pro_is_coloured_and_other_choices_of_its_alpha_are_left_out():
    rows = [("PRO", "validation", 0.8), ("PRO", "default", 0.9), ("PRO", "oracle", 0.81)]
    rows += [("NLL", None, 0.78), ("PE-MC", None, 0.7)]
    [ax] = benchmark.draw(pd.DataFrame(rows, columns=["method", "alpha_choice", "auroc"])).axes
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["PRO", "NLL"]
    *_, pro, _chance = [line for line in ax.lines if len(line.get_ydata())]
    assert (pro.get_color(), pro.get_xydata().tolist()) == (COLORS[0], [[0.8, 0]])


def test_methods_far_below_the_best_stand_at_the_edge_and_differences_are_marked():
    rows = {
        "method": ["PRO", "SE", "NLL"],
        "auroc": [0.8, 0.3, 0.85],
        "p_value": [None, 0.01, 0.02],
    }
    table = pd.DataFrame(rows | {"auroc_minus_pro": [0.0, -0.5, 0.05], "dataset": "a"})
    figure = benchmark.draw(table)
    [panel] = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["PRO", "SE", "NLL"]
    assert [text.get_text().strip() for text in panel.texts] == ["0.850", "0.800", "0.300"]
    assert significance_marks(panel) == {1: "x", 2: "+"}
    assert [0.0, 1.0] in [  # at the left edge of the axes
        point
        for line in panel.lines
        if line.get_marker() == 4
        for point in line.get_xydata().tolist()
    ]
    assert legend(figure) == [
        "significantly better than PRO",
        "significantly worse than PRO",
        "off the axis: SE, 0.30",
        "chance (0.5)",
    ]


def test_a_method_without_an_auroc_has_a_row_without_a_value():
    table = pd.DataFrame({"method": ["PRO", "NLL"], "auroc": [np.nan, np.nan]})
    [ax] = benchmark.draw(table).axes
    assert {text.get_text().strip() for text in ax.texts} == {"n/a", ""}


def compared(method, difference, p_value=1e-9, **others):
    """Return the row of a method that differs from PRO."""
    others = {"auroc_high": 0.9 + difference} | others
    row = setting_row(0.0, p_value=p_value, method=method, alpha_choice=None, **others)
    columns = {"auroc_minus_pro": 0.0, "auroc_minus_pro_low": -0.01, "auroc_minus_pro_high": 0.01}
    return row | {name: value + difference for name, value in columns.items()}


def test_the_caption_compares_pro_with_nll_and_names_other_significant_methods():
    rows = [compared("PRO", 0.0, None) | {"alpha_choice": "validation"}]
    rows += [compared("NLL", -0.03), compared("SE", 0.05), compared("SD", 0.001, 0.4)]
    rows += [compared("PRO", 0.3) | {"alpha_choice": "oracle"}]
    caption = benchmark.caption(pd.DataFrame(rows))
    assert (
        "PRO is significantly better than NLL (+0.030, 95 % interval +0.020 to +0.040)." in caption
    )
    assert finding(caption).endswith(
        "Methods (with the number of settings) significantly better than PRO: SE (1); "
        "significantly worse: none; with the whole interval below 0.5 (chance): none."
    )
    two = pd.DataFrame([*rows, *[row | {"model": "n", "p_value": 0.5} for row in rows]])
    two = two.reset_index(drop=True)
    assert finding(caption).endswith(finding(benchmark.caption(two)).rpartition(". ")[2])
    worst = compared("PE", -0.5, auroc_high=0.45)
    of_chance = finding(benchmark.caption(pd.DataFrame([*rows, worst])))
    assert of_chance.endswith("worse: PE (1); with the whole interval below 0.5 (chance): PE (1).")


def test_the_caption_corrects_for_all_methods_and_says_nothing_of_too_few_answers():
    rows = [compared("NLL", -0.03, 0.04), compared("SE", 0.05, 0.04), compared("SD", 0.05, 0.04)]
    caption = benchmark.caption(pd.DataFrame(rows))
    assert "PRO is not significantly different from NLL" in caption
    assert "significantly better than PRO: none; significantly worse: none" in finding(caption)
    few = pd.DataFrame(rows).assign(n_correct=19)
    assert "too few answers for a statement about m on d" in benchmark.caption(few)
