"""Test the figure of the gain of PRO over NLL without each suspected cause."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from alpha_scores import s_pro
from figure_checks import check_figure, finding, legend
from invented_settings import evaluation_of, setting_row

from pro_lib import scoring
from pro_lib.common.validation import SentenceError
from pro_lib.plots import causes
from pro_lib.plots.settings import SETTING_COLUMNS
from pro_lib.runs.run import Run
from pro_lib.runs.storage import RunInfo

PROBABILITIES = [
    [0.6, 0.3, 0.3, 0.005],
    [0.5, 0.2, 0.1, 0.1],
    [0.4, 0.4, 0.05, 0.001],
    [0.3, 0.2, 0.2, 0.2],
] * 3


def setting(**columns):
    """Return an evaluation and the run of twelve questions.

    The second and the third answer may be the same.
    """
    answers = []
    for number, row in enumerate(PROBABILITIES):
        for rank, probability in enumerate(row):
            text = "x" if rank == 2 and probability == row[1] else str(rank)
            answer = {
                "question_id": str(number),
                "rank": rank,
                "text": text,
                "token_ids": (ord(text),),
            }
            answer |= {
                "token_log_probs": (np.log(probability),),
                "log_prob": np.log(probability) + 0.1,
            }
            answers.append(answer | {"end_log_prob": -0.1, "finished": True})
    ids = [str(number) for number in range(12)]
    questions = pd.DataFrame({"question_id": ids, "question": ids, "references": [("0",)] * 12})
    info = RunInfo("d", "m", "diverse_beam", {}, {}, 12)
    run = Run(pd.DataFrame(answers).assign(**columns), questions, info)
    correct = np.arange(12) % 2 == 0
    log_probs = run.log_probs()
    evaluation = evaluation_of(log_probs, correct, NLL=scoring.nll(log_probs))
    return evaluation, run


def test_each_cause_is_removed_from_the_answers():
    evaluation, run = setting()
    removed = causes._without_causes(evaluation, run)
    assert removed["spellings merged"] is None
    np.testing.assert_array_equal(removed["nothing changed"], evaluation.log_probs)
    mass = np.nansum(np.exp(removed["probabilities made to sum to 1"]), axis=1)
    np.testing.assert_allclose(mass, 1)
    kept = removed["answers below 0.01 left out"]
    assert np.nanmin(kept) >= np.log(0.01)
    assert np.isnan(kept).sum() > np.isnan(evaluation.log_probs).sum()
    top = np.nanmax(removed["endings left out"], axis=1)
    np.testing.assert_allclose(top, np.nanmax(evaluation.log_probs, axis=1) + 0.1)


def test_an_answer_below_001_stays_if_it_is_the_most_probable_one():
    evaluation, run = setting()
    rare = replace(evaluation, log_probs=np.log([[0.004, 0.002]] * 12))
    kept = causes._without_causes(rare, run)["answers below 0.01 left out"]
    np.testing.assert_array_equal(np.isnan(kept), [[False, True]] * 12)


def test_the_table_of_causes_has_four_rows_for_each_cause_that_can_be_removed():
    evaluation, run = setting()
    merged = replace(evaluation, alpha_scores={"S-PRO, alias": s_pro(evaluation.log_probs)})
    every = causes.table(merged, run, alpha=0.3)
    assert every["cause"].value_counts().to_dict() == dict.fromkeys(
        [
            "nothing changed",
            "answers below 0.01 left out",
            "probabilities made to sum to 1",
            "spellings merged",
            "endings left out",
            "repeats kept",
        ],
        4,
    )
    assert set(every["alpha"].dropna()) == {0.3}
    assert tuple(every.columns[: len(SETTING_COLUMNS)]) == SETTING_COLUMNS
    assert "spellings merged" not in set(causes.table(evaluation, run)["cause"])
    closed = causes.table(*setting(closed=False, end_log_prob=np.nan))
    assert "endings left out" not in set(closed["cause"])


def test_two_or_more_answers_are_counted_at_each_alpha():
    log_probs = np.log([[0.6, 0.3], [0.5, 0.2], [0.9, 0.05]])
    evaluation = evaluation_of(log_probs, [True, False, True], NLL=scoring.nll(log_probs))
    table = causes.two_or_more([evaluation], alphas=[0.01, 0.25, 0.5])
    assert table["n_two_or_more"].tolist() == [3, 1, 0]
    np.testing.assert_allclose(table["share_two_or_more"], [1, 1 / 3, 0])


def changed(cause, *differences, p_value=1e-9, **others):
    """Return the rows of a cause: PRO at some K, and at α = 0.4 without a difference."""
    row = {"cause": cause, "nll_auroc": 0.8, "alpha": 0.4, **others}
    rows = [setting_row(0.0, k_choice="adaptive", k=None, p_value=1.0, **row)]
    for k, difference in zip((2, 5, 10), differences, strict=False):
        rows.append(setting_row(difference, k_choice="fixed", k=k, p_value=p_value, **row))
    return rows


def invented():
    rows = changed("nothing changed", -0.1, -0.2, -0.3) + changed("repeats kept", 0.1, 0.2, 0.3)
    rows += changed("spellings merged", 0.01, 0.02, 0.03, p_value=0.5)
    return pd.DataFrame(rows).astype({"k": "Int64"})


def test_it_can_be_read_at_both_widths():
    check_figure(causes.draw, invented(), n_panels=1)


def test_rows_are_the_changes_and_the_auroc_of_nll_is_beside_them():
    figure = causes.draw(invented())
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["nothing changed", "repeated answers counted"]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text.strip() for text in texts] == ["AUROC\nof NLL", "0.800", "0.800", "0.800"]
    scores = ["α = 0.4", "K = 2", "K = 5", "K = 10"]
    marks = ["significantly better than NLL", "significantly worse than NLL"]
    assert legend(figure) == [*scores, *marks]
    assert legend(causes.draw(invented().drop(columns="p_value"))) == scores
    drawn = {line.get_label(): list(line.get_xdata()) for line in figure.axes[0].lines}
    assert drawn["K = 2"] == [-0.1, 0.1, 0.01]
    with pytest.raises(SentenceError, match=r"^The table has no column 'cause'; plots.causes need"):
        causes.draw(invented().drop(columns="cause"))


def test_the_caption_says_after_which_changes_pro_differs_from_nll():
    assert finding(causes.caption(invented())) == (
        "PRO is significantly better than NLL with at least one of K = 2, K = 5 and K = 10 in 1 of "
        "3 rows (significant differences: +0.100 to +0.300). PRO is significantly worse than NLL "
        "with at least one of K = 2, K = 5 and K = 10 in 1 of 3 rows (significant differences: "
        "−0.300 to −0.100). No α or K makes a significant difference with “answers of one meaning "
        "merged”."
    )


def test_the_caption_says_nothing_of_too_few_answers():
    caption = causes.caption(invented().assign(n_correct=19))
    assert "There are too few answers for a statement about m on d." in caption
    assert "significantly" not in caption
