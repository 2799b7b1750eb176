"""Scores of all methods, judged or not, and two runs compared question by question."""

from dataclasses import replace

import numpy as np
import pytest
from commands import answer, judged, record

from pro_lib import evaluation, importing, metrics, scoring
from pro_lib.app import scored_answers
from pro_lib.app.answer_comparison import compare_answers
from pro_lib.app.mistrust import find_mistrust
from pro_lib.app.scored_answers import score_answers
from pro_lib.common.files import RunError


def run_of(*questions, start=0):
    """A run of questions with (probability, right or None) of their only or first answer."""
    rows = [
        judged(n, probability, *others, correct=is_right)
        for n, (probability, is_right, *others) in enumerate(questions, start)
    ]
    return importing.import_answers(rows)


# The AUROC of NLL is 5/6: one of six pairs is in the wrong order.
JUDGED = run_of((0.9, True), (0.8, True), (0.5, False), (0.4, True), (0.3, False))


def test_every_method_has_a_score_of_questions_without_references_too():
    run = run_of((0.5, True, 0.1), (0.25, None, 0.2), (0.4, False, 0.3))
    scored = score_answers(run, alpha=0.15)
    assert list(scored.questions["correct"]) == [True, None, False]
    assert scored.questions.filter(list(scored.methods)).notna().all(axis=None)
    expected = evaluation.evaluate(run).baselines["PE"]
    np.testing.assert_allclose(scored.reported_scores["PE"], expected, rtol=1e-12)
    np.testing.assert_allclose(scored.scores_of("PE")[[0, 2]], expected, rtol=1e-12)
    # PRO_2 = -p log p - (1 - p) log q for the questions 1 and 2.
    pro = [-p * np.log(p) - (1 - p) * np.log(q) for p, q in ((0.25, 0.2), (0.4, 0.3))]
    np.testing.assert_allclose(scored.scores_of("PRO")[1:], pro, rtol=1e-12)


def test_one_answer_to_each_question_leaves_out_methods_that_need_several(monkeypatch):
    monkeypatch.setattr(scoring, "lexical", None)  # no texts are compared
    assert score_answers(JUDGED).methods == ("PRO", "NLL")
    assert "it has no effect" in score_answers(JUDGED).alpha.reason


def test_beams_are_not_samples():
    beams = run_of((0.5, True, 0.1), (0.25, False, 0.2))
    # Two samples are equal with p = 0.26 and 0.1025: a file without repeats is plausible.
    assert {"SC", "Deg"} <= set(score_answers(beams).methods)
    beams = replace(beams, info=replace(beams.info, strategy="diverse_beam"))
    assert not {"SC", "Deg"} & set(score_answers(beams).methods)


def test_many_different_answers_are_not_samples():
    # Of 12 questions, 12 * 0.26 = 3.12 would have two equal answers.
    assert "SC" not in score_answers(run_of(*[(0.5, True, 0.1)] * 12)).methods
    assert "SC" in score_answers(run_of(*[(0.5, True, 0.1)] * 11)).methods
    # A question with fewer answers than the others is not a repeat.
    assert "SC" not in score_answers(run_of(*[(0.5, True, 0.1)] * 12, (0.5, True))).methods


def test_named_methods_leave_out_those_of_texts_alone():
    run = run_of((0.5, True, 0.1), (0.4, False, 0.3), (0.3, False, 0.1))
    is_text = run.answers["question_id"] == "q2"
    run = replace(run, answers=run.answers.assign(log_prob=run.answers["log_prob"].mask(is_text)))
    assert "SE" in score_answers(run).questions
    named = score_answers(run, methods=["PRO", "PE"])
    assert named.texts is None
    assert list(named.questions.loc[:, "correct":]) == ["correct", "PRO", "PE", "n_kept", "mass"]


def test_the_most_certain_are_counted_and_have_wilsons_interval():
    table = score_answers(JUDGED).most_certain("NLL")
    accuracies = [1, 1, 3 / 4, 3 / 5]
    assert table["n_answered"].tolist() == [1, 2, 4, 5]
    assert table["accuracy"].tolist() == accuracies
    low, high = metrics.wilson(accuracies, [1, 2, 4, 5])
    ends = table[["accuracy_low", "accuracy_high"]]
    np.testing.assert_allclose(ends, np.column_stack([low, high]))


def separated(n=40, **row):
    """A run in which the answers with a probability above one half are right, but for two."""
    is_right = [number < n / 2 for number in range(n)]
    is_right[2] = False
    is_right[-2] = True
    return run_of(*((0.95 - 0.9 * number / n, is_right[number]) for number in range(n)), **row)


def test_a_quarter_is_mistrusted_if_the_score_separates():
    scored = score_answers(separated())
    mistrust = find_mistrust(scored, "NLL")
    assert np.flatnonzero(mistrust.is_mistrusted).tolist() == list(range(30, 40))
    assert mistrust.sentence.startswith("Mistrust the most uncertain quarter: NLL above")
    assert scored.separation_sentence("NLL").startswith(
        "NLL separates wrong from right answers on these"
    )


def test_of_a_highest_score_that_more_than_a_quarter_have_all_are_mistrusted():
    low = [(0.9 - number / 200, True) for number in range(24)]
    scored = score_answers(run_of(*low, *[(0.1, number < 2) for number in range(16)]))
    mistrust = find_mistrust(scored, "NLL")
    assert np.flatnonzero(mistrust.is_mistrusted).tolist() == list(range(24, 40))
    assert mistrust.sentence == (
        "Mistrust the answers with the highest NLL, 2.303: more than a quarter have it."
    )


def test_a_given_score_with_the_name_of_a_column_does_not_replace_it():
    scores = {"mass": 0.25, "text": 3.0}
    row = record(0, answer("a", 0.5), references=["a"], scores=scores)
    scored = score_answers(importing.import_answers([row]))
    assert scored.questions[["text", "mass"]].to_numpy().tolist() == [["a", pytest.approx(0.5)]]
    assert {"mass, given", "text, given"} <= set(scored.scores)


def test_nothing_is_marked_if_it_is_not_shown_that_the_score_separates():
    rng = np.random.default_rng(0)
    few = [(0.9 - number / 20, letter == "r") for number, letter in enumerate("rwrrwrwrwwrw")]
    scored = score_answers(run_of(*few))
    assert not find_mistrust(scored, "NLL").is_mistrusted.any()
    assert find_mistrust(scored, "NLL").sentence.startswith(
        "No answer is marked, because it is not"
    )
    assert scored.separation_sentence("NLL").startswith(
        "It cannot be told yet whether NLL separates"
    )
    many_by_chance = [(p, bool(rng.random() < 0.5)) for p in rng.uniform(0.1, 0.9, 2000)]
    scored = score_answers(run_of(*many_by_chance))
    assert scored.separation_sentence("NLL").startswith(
        "NLL does not separate wrong from right answers"
    )
    unjudged = score_answers(run_of(*((0.9 - n / 10, None) for n in range(8))))
    sentence = "No answer is marked, because AUROC of NLL is unknown."
    assert find_mistrust(unjudged, "NLL").sentence == sentence
    assert not find_mistrust(unjudged, "NLL").is_mistrusted.any()
    assert unjudged.separation_sentence("NLL") == ""


def test_a_question_without_an_answer_has_no_score_and_no_mark():
    run = separated()
    missing = run.answers[run.answers["question_id"] != "q39"].reset_index(drop=True)
    scored = score_answers(replace(run, answers=missing))
    for mistrust in (find_mistrust(scored, "NLL"), find_mistrust(scored, "NLL", target=0.5)):
        assert not mistrust.is_mistrusted[39]
    assert find_mistrust(scored, "NLL").sentence.endswith("1 questions have no score.")


def test_results_are_of_the_questions_on_which_alpha_was_not_chosen():
    scored = score_answers(run_of(*((0.99 - n / 200, n % 3 > 0, 0.005) for n in range(180))))
    reported = np.arange(180) % 2 == 1
    part = replace(scored, alpha=evaluation.AlphaChoice(0.001, "", reported))
    expected = metrics.compare_aurocs(
        scored.judged.scores({"PRO": 0.001})[["PRO", "NLL"]][reported],
        scored.judged.correct[reported],
        reference="NLL",
    )
    columns = ["method", "difference", "difference_low"]
    assert part.comparison[columns][:2].equals(expected[columns])
    assert part.most_certain("PRO")["n_answered"].tolist() == [22, 45, 68, 90]
    assert "90 judged questions do not show" in find_mistrust(part, "PRO", target=0.99).sentence
    assert compare_answers(part, scored).n_questions == 90
    assert len(part.splits().pool.answers) == 90


def test_without_clusters_the_questions_of_one_relation_are_in_both_halves():
    run = run_of(*((0.99 - n / 200, n % 3 > 0) for n in range(180)))
    run = replace(run, questions=run.questions.assign(relation="capital"))
    assert score_answers(run).splits() is None
    splits = score_answers(run, rules=metrics.AnswerRules(cluster=None)).splits()
    assert min(len(splits.pool.answers), len(splits.reported.answers)) > 60


def many(n_questions, seed, *, start=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.uniform(0.1, 0.9, n_questions)
    is_right = rng.random(n_questions) < probabilities
    return score_answers(run_of(*zip(probabilities, is_right.tolist(), strict=True), start=start))


def test_the_difference_of_aurocs_of_different_answers_has_the_influences_of_both():
    first, second = many(60, 1), many(60, 2)
    row = compare_answers(first, second).auroc.set_index("method").loc["NLL"]
    aurocs = []
    moves = []
    for scored in (first, second):
        correct = scored.judged.correct
        aurocs.append(metrics.auroc(scored.scores_of("NLL"), correct))
        shares = metrics.placements(scored.scores_of("NLL"), correct)
        moves.append(metrics.influence(shares, correct))
    assert row["difference"] == pytest.approx(aurocs[1] - aurocs[0])
    error = np.sqrt(((moves[1] - moves[0]) ** 2).sum())
    # Student's quantile is a little above 2.
    assert 1.96 * error < row["high"] - row["difference"] < 2.1 * error


def test_equal_answers_have_no_difference_and_others_may_not_be_compared():
    comparison = compare_answers(many(60, 1), many(60, 1))
    assert (comparison.p_value, comparison.accuracy_difference.value) == (1.0, 0.0)
    assert (comparison.auroc[["difference", "low", "high"]] == 0).all(axis=None)
    with pytest.raises(RunError, match="no answer that can be judged"):
        compare_answers(many(10, 1), score_answers(run_of((0.5, None))))


def test_questions_with_other_ids_are_matched_by_their_texts():
    first, second = many(60, 1), many(60, 2)
    answers = second.judged.answers
    answers = answers.assign(question_id="other" + answers["question_id"])
    renamed = replace(second, judged=replace(second.judged, answers=answers))
    expected = compare_answers(first, second)
    assert compare_answers(first, renamed).auroc.equals(expected.auroc)


def test_texts_are_compared_in_blocks(monkeypatch):
    texts = np.array([["Paris", "in Paris", None], ["", "Rome", "Rome"]] * 2, dtype=object)
    expected = scoring.lexical(texts)
    monkeypatch.setattr(scored_answers, "_BLOCK", 3)
    np.testing.assert_array_equal(scored_answers._lexical_in_blocks(texts), expected)
