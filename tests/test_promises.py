"""Tables of promises: coverage at equal promise, sets from searches; by hand and against counting."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pro_lib import intervals, metrics, promises, scores, tables
from pro_lib.evaluation import Choices, Evaluation, Splits
from pro_lib.files import RunError
from pro_lib.parts import RunInfo
from pro_lib.runs import Run


def evaluation(n, split, seed):
    """Answers right as often as they are probable, beside a method that knows nothing."""
    rng = np.random.default_rng(seed)
    first = rng.random((n, 1))
    correct, baselines = rng.random(n) < first[:, 0], {"NLL": -np.log(first[:, 0]), "coin": rng.random(n)}
    answers = pd.DataFrame({"question_id": [f"{split}{row}" for row in range(n)], "correct": correct})
    found = np.log(np.column_stack([first, (1 - first) / 2]))
    nothing = metrics.Exclusions(np.full(n, True), pd.Series(dtype=int), pd.Index([]))
    return Evaluation("toy", "drawn", split, answers, found, pd.DataFrame(baselines), nothing, ())


@pytest.fixture(scope="module")
def splits():
    return Splits(evaluation(300, "validation", 0), evaluation(500, "test", 1))


def test_each_row_is_the_promise_of_all_validation_questions_tried_on_the_others(splits):
    table = tables.promises_table([splits], targets=(0.7, 0.9), confidence=0.9, alphas={"PRO, 0.2": 0.2})
    assert list(table["method"]) == ["PRO, 0.2", "PRO, 0.2", "NLL", "NLL", "coin", "coin"]
    assert set(table["n_questions"]) == {500}
    pools, asked = (each.with_pro({"PRO, 0.2": 0.2}) for each in (splits.pool, splits.reported))
    for row in table.itertuples():
        options = {"target": row.target, "confidence": 0.9, "unlabelled": asked[row.method]}
        t = promises.promise(pools[row.method], splits.pool.correct, **options).threshold
        answered = asked[row.method] < (t if t is not None else -np.inf)
        assert row.coverage == answered.mean()
        if t is None:
            assert np.isnan([row.threshold, row.accuracy, row.low, row.high]).all()
        else:
            right = splits.reported.correct[answered].mean()
            assert (row.threshold, row.accuracy) == (t, right)
            assert (row.low, row.high) == intervals.wilson(right, answered.sum())
    coverage = table.set_index(["method", "target"])["coverage"]
    assert coverage["NLL", 0.7] > 0.3
    assert coverage["coin", 0.9] == 0
    assert "PRO" in set(tables.promises_table([splits], targets=[0.5])["method"])


PROBABILITIES = {  # question -> its answers, the right one named so
    "a": [("right", 0.6), ("other", 0.3)],
    "b": [("other", 0.5), ("right", 0.3), ("right", 0.1)],
    "c": [("other", 0.5), ("else", 0.2)],
    "d": [("right", 0.04)],  # a fallback: the greedy answer, below the search's α
    "e": [("right", 0.7)],  # left undecided
}


def search(split="test", **columns):
    rows = [
        (name, rank, text, [rank, ord(name)], np.log(p), 0.0, True)
        for name, found in PROBABILITIES.items()
        for rank, (text, p) in enumerate(found)
    ]
    names = "question_id rank text token_ids log_prob end_log_prob finished"
    answers = pd.DataFrame(rows, columns=names.split()).assign(token_log_probs=[[-1.0]] * len(rows))
    questions = pd.DataFrame({"question_id": list(PROBABILITIES), "question": "?", "references": [["right"]] * 5})
    status = ["certified"] * 3 + ["fallback", "undecided"]
    masses = {"found_mass": 0.7, "length_cut_mass": [0, 0, 0, 0, 0.1], "budget_cut_mass": 0.0}
    questions = questions.assign(split=split, search_alpha=0.05, status=status, **masses).assign(**columns)
    return Run(answers, questions, RunInfo("toy", "none", "threshold", parameters={"search_alpha": 0.05}))


def both(test_split="test"):
    """The five questions as validation, and again as those reported."""
    parts = search("validation"), search(test_split)
    answers, questions = (
        pd.concat([part.assign(question_id=side + part["question_id"]) for side, part in zip("vt", of, strict=True)])
        for of in ([run.answers for run in parts], [run.questions for run in parts])
    )
    return Run(answers.reset_index(drop=True), questions.reset_index(drop=True), parts[0].info)


def test_the_most_probable_right_answer_counts_and_none_where_the_search_was_undecided():
    np.testing.assert_allclose(tables.right_probabilities(search()), [0.6, 0.3, 0, 0.04, 0], rtol=1e-12)
    upper = tables.right_probabilities(search(references=[["other"]] * 5), choices=Choices(correctness="exact_match"))
    np.testing.assert_allclose(upper, [0.3, 0.5, 0.5, 0, 0], rtol=1e-12)


def test_sets_need_a_search_whose_answers_are_all_judged():
    for run in (search(references=None), replace(search(), info=RunInfo("toy", "none", "diverse_beam"))):
        with pytest.raises(RunError, match="sets need all answers with p >= search_alpha, each of them judged"):
            tables.right_probabilities(run)


def test_sets_by_hand():
    # Validation: 0.6, 0.3 and three censored, so 6 δ: the fourth is 0.3, the fifth 0.6, the third censored.
    table = tables.sets_table([both()], deltas=(0.5, 0.7, 0.9), alphas=(0.05, 0.2))
    assert table[["dataset", "model"]].drop_duplicates().to_numpy().tolist() == [["toy", "none"]]
    assert table["delta"].fillna(0).tolist() == [0.5, 0.7, 0.9, 0, 0]
    np.testing.assert_allclose(table["alpha"], [np.nan, 0.3, 0.6, 0.05, 0.2])
    # Missed: none where no set is issued; c, d and e at 0.3, and b too at 0.6.
    assert table["missed"].tolist() == [0, 0.6, 0.8, 0.6, 0.6]
    np.testing.assert_allclose(table[["low", "high"]].to_numpy().T, intervals.wilson(table["missed"], np.full(5, 5)))
    # In {p >= 0.3}: 2 of a, 2 of b, 1 of c, none of d, 1 of e; in {p >= 0.05} one more of b and of c.
    np.testing.assert_allclose(table["size"], [np.nan, 6 / 5, 2 / 5, 8 / 5, 7 / 5])
    np.testing.assert_allclose(table["empty"], [np.nan, 0.2, 0.6, 0.2, 0.2])
    _, limit = promises.miss_rate([0.6, 0.3, 0, 0, 0], alpha=0.2, search_alpha=0.05)
    assert table["limit"].isna().tolist() == [True] * 3 + [False] * 2
    assert table["limit"].iloc[-1] == limit
    log_probs, top_is_right = both().select(split="test").log_probs(), np.array([True, False, False, True, True])
    expected = metrics.auroc(scores.pro(log_probs, alpha=0.2, search_alpha=0.05), top_is_right)
    assert table["auroc"].iloc[-1] == expected
    assert np.isnan(table["auroc"].iloc[0])
