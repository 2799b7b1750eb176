"""Tables that notebooks show: what the model was told, what a learned score reaches."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from pro_lib import figures, metrics, tables
from pro_lib.evaluation import Evaluation, Splits
from pro_lib.parts import Cost, RunInfo
from pro_lib.runs import Run

# ---- Exposure and conflict.

FACTS = [  # exposure, conflict, text, probability of the first answer, of the second
    (0, 0.0, "wrong", 0.2, 0.1),
    (8, 0.0, "right", 0.8, 0.1),
    (8, 0.0, "right", 0.5, 0.45),
    (8, 0.0, "wrong", 0.4, 0.1),
    (8, 0.5, "right", 0.5, 0.4),
]


def run_of(facts, **columns):
    """A run of two answers to each question, told as often as `facts` says."""
    ids = [f"q{number}" for number in range(len(facts))]
    rows = []
    for name, (_, _, text, *probabilities) in zip(ids, facts, strict=True):
        for rank, (said, p) in enumerate(zip((text, "other"), probabilities, strict=True)):
            rows.append((name, rank, said, [len(rows)], [math.log(p)], math.log(p), 0.0, True))
    names = "question_id rank text token_ids token_log_probs log_prob end_log_prob finished"
    questions = pd.DataFrame(
        {"question_id": ids, "question": ids, "references": [["right"]] * len(ids), "split": "test"}
    )
    info = RunInfo("toy", "none", "diverse_beam", cost=Cost(1, 1, 1, 1.0, 1))
    return Run(pd.DataFrame(rows, columns=names.split()), questions.assign(**columns), info)


def told():
    exposure, conflict, *_ = zip(*FACTS, strict=True)
    return run_of(FACTS, exposure=exposure, conflict=conflict)


def test_accuracy_nll_and_pro_by_exposure_and_conflict_by_hand():
    table = tables.exposure_table(told(), alpha=0.4)
    assert list(table["measure"].unique()) == ["accuracy", "NLL", "PRO"]
    cells = table.set_index(["measure", "exposure", "conflict"]).sort_index()
    assert list(cells.loc["accuracy"].index) == [(0, 0.0), (8, 0.0), (8, 0.5)]
    assert list(cells.loc["accuracy", "n"]) == [1, 3, 1]
    known = cells.xs((8, 0.0), level=["exposure", "conflict"])
    assert known.loc["accuracy", "mean"] == pytest.approx(2 / 3)
    surprises = -np.log([0.8, 0.5, 0.4])
    assert known.loc["NLL", "mean"] == pytest.approx(surprises.mean())
    # The second has two answers of at least 0.4, so its PRO is -log 0.45 - 0.5 log(0.5 / 0.45).
    pro = [surprises[0], -math.log(0.45) - 0.5 * math.log(0.5 / 0.45), surprises[2]]
    half = 1.96 * np.std(pro, ddof=1) / math.sqrt(3)
    assert list(known.loc["PRO", ["mean", "low", "high"]]) == pytest.approx(
        [np.mean(pro), np.mean(pro) - half, np.mean(pro) + half]
    )


def test_the_interval_of_an_accuracy_is_wilsons():
    cells = tables.exposure_table(told(), alpha=0.4).set_index(["measure", "exposure", "conflict"]).sort_index()
    p, n, z = 2 / 3, 3, 1.959964
    middle, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [(middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)]
    assert list(cells.loc[("accuracy", 8, 0.0), ["low", "high"]]) == pytest.approx(expected, abs=1e-6)


def test_without_exposures_or_anything_judged_there_are_no_rows():
    assert tables.exposure_table(run_of(FACTS), alpha=0.4).empty
    nobody_knows = told()
    nobody_knows = Run(nobody_knows.answers, nobody_knows.questions.assign(references=None), nobody_knows.info)
    assert tables.exposure_table(nobody_knows, alpha=0.4).empty


def test_the_figure_has_a_panel_a_measure_and_counts_what_a_point_stands_for():
    figure = figures.by_exposure(tables.exposure_table(told(), alpha=0.4))
    accuracy, nll, pro = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["accuracy", "NLL, nats", "PRO, nats"]
    assert nll.get_ylim() == pro.get_ylim() != accuracy.get_ylim()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["0% of them false, n = 1–3", "50% of them false, n = 1"]
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [0, 2 / 3])


# ---- The ceiling.


def answers_of(n, seed=0):
    """Three answers a question, one of which may be missing; the second says more than the first."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([2, 1, 1, 1], size=n)[:, :3]
    probs[rng.random(n) < 0.3, 2] = np.nan
    return np.log(probs), rng


def splits_of(log_probs, correct):
    answers = pd.DataFrame({"question_id": np.arange(len(correct)).astype(str), "correct": correct})
    exclusions = metrics.usable(pd.DataFrame(index=answers.index), correct)
    evaluation = Evaluation("m", "d", "test", answers, log_probs, pd.DataFrame(index=answers.index), exclusions, ())
    return Splits(evaluation, evaluation, None)


def test_a_learned_score_sees_no_question_it_is_asked_about():
    """Fold by fold; every prediction is of a model that was fitted without it."""
    log_probs, rng = answers_of(300)
    correct = rng.random(300) < np.exp(np.nanmax(log_probs, axis=1))
    expected = np.full(300, np.nan)
    read = []
    for row in log_probs:
        there = sorted((value for value in row if not math.isnan(value)), reverse=True)
        read.append([*there, *[math.nan] * (3 - len(there)), math.fsum(math.exp(value) for value in there), len(there)])
    read = np.array(read)
    for fit, ask in StratifiedKFold(5, shuffle=True, random_state=7).split(read, ~correct):
        model = HistGradientBoostingClassifier(
            learning_rate=0.05, max_iter=60, max_leaf_nodes=8, min_samples_leaf=40, random_state=7
        ).fit(read[fit], ~correct[fit])
        expected[ask] = model.predict_proba(read[ask])[:, 1]
    np.testing.assert_allclose(tables.learned(log_probs, correct, seed=7), expected)


def test_of_labels_that_nothing_tells_a_learned_score_tells_nothing():
    log_probs, rng = answers_of(1000)
    correct = rng.random(1000) < 0.5
    assert 0.44 < roc_auc_score(~correct, tables.learned(log_probs, correct)) < 0.56


def test_the_ceiling_lies_above_nll_where_the_second_answer_tells_more():
    log_probs, rng = answers_of(1000)
    second = np.exp(-np.sort(-log_probs, axis=1)[:, 1])
    correct = rng.random(1000) < np.where(second > 0.25, 0.1, 0.9)
    table = tables.ceiling_table([splits_of(log_probs, correct)])
    assert list(table.columns[:2]) == ["dataset", "model"]
    nll, ceiling = table.set_index("method").loc[["NLL", "ceiling"]].to_dict("records")
    assert nll["auroc"] == pytest.approx(roc_auc_score(~correct, -np.nanmax(log_probs, axis=1)))
    assert ceiling["auroc"] > 0.85
    assert ceiling["difference_low"] > 0.05


def test_too_few_answers_of_one_kind_have_no_ceiling():
    log_probs, _ = answers_of(250)
    for correct in (np.arange(250) >= 99, np.arange(250) < 99, np.ones(250, bool)):
        table = tables.ceiling_table([splits_of(log_probs, correct)])
        assert table["auroc"].isna().all()
        assert list(table["method"]) == ["NLL", "ceiling"]
