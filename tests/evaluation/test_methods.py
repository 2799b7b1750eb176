"""Both protocols against counting by hand, answer by answer, with repeats and without."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_evaluate import toy_run
from test_likelihood import naive_pro

from pro_lib import scoring
from pro_lib.evaluation.alpha_choice import Splits
from pro_lib.evaluation.inputs import AnswerMatrices
from pro_lib.evaluation.run_evaluation import evaluate, evaluations
from pro_lib.metrics.correctness import AnswerRules
from pro_lib.plots import alpha_sweep, benchmark

TEXTS = ["Rome", "rome", "Oslo", "a b", "b c"]


def drawn_run(seed, n=40):
    """Return a run with repeats, ties and masses above 1, and its (text, p, p of the ending)."""
    rng = np.random.default_rng(seed)
    found = {}
    for question in range(n):
        shares = rng.dirichlet(np.full(len(TEXTS) + 1, 0.5)).round(2) + 0.01
        probs = dict(zip(TEXTS, shares, strict=False))
        texts = rng.choice(TEXTS, size=6).tolist()
        found[f"q{question}"] = [(text, probs[text], 0.9) for text in texts]
    return toy_run(found, references={name: ["Rome"] for name in found}), list(found.values())


def counted(lists, distinct):
    """Yield the probabilities that count for each question, in descending order."""
    for answers in lists:
        once = list(dict.fromkeys(answers)) if distinct else answers
        yield sorted((p * ending for _, p, ending in once), reverse=True)


@pytest.mark.filterwarnings("ignore::pro_lib.scoring.PremiseWarning")
@pytest.mark.parametrize("protocol", ["paper", "workbench"])
def test_pro_pe_and_ne_are_those_of_a_loop_over_the_answers(protocol):
    beams, lists = drawn_run(0, n=200)
    samples, sample_lists = drawn_run(1, n=200)
    judged = evaluate(beams, samples=samples, protocol=protocol)
    found = list(counted(lists, distinct=protocol == "workbench"))
    averaged = counted(lists if protocol == "paper" else sample_lists, distinct=False)
    for k in (1, 2, 5, 6):
        pro = [naive_pro(probs, k) for probs in found]
        np.testing.assert_allclose(scoring.pro_at_k(judged.log_probs, k), pro, atol=1e-12)
    pe = [-sum(p * np.log(p) for p in probs) for probs in found]
    np.testing.assert_allclose(judged.baselines["PE"], pe, atol=1e-12)
    # Token and ending: two
    ne = [-sum(np.log(p) / 2 for p in probs) / len(probs) for probs in averaged]
    np.testing.assert_allclose(judged.baselines["NE"], ne, atol=1e-12)


def test_each_protocol_reads_its_answers_by_hand():
    beams = toy_run({"a": [("yes", 0.5), ("yes", 0.5), ("Yes!", 0.2), ("no", 0.1)]})
    samples = toy_run({"a": [("yes", 0.5), ("no", 0.1)]})
    table = pd.DataFrame({"question_id": ["a"], "references": [["yes"]]})
    judged = evaluations(beams, samples=samples, similarities={"alias": scoring.Alias(table)})
    np.testing.assert_allclose(judged[0].log_probs, np.log([[0.5, 0.5, 0.2, 0.1]]))
    np.testing.assert_allclose(judged[1].log_probs, np.log([[0.5, 0.2, 0.1]]))
    paper, ours = (each.baselines.iloc[0].filter(like="alias") for each in judged)
    # Two meanings of 1.2 and 0.1, or of 0.7 and 0.1: with Q = 7/8 and 1/8 the entropy is 3 log 2 -
    # 7/8 log 7. One of two samples says yes.
    expected = {
        "SE, alias": 3 * np.log(2) - 7 / 8 * np.log(7),
        "SD, alias": 0.1 / 0.8,
        "Deg, alias": 0.5,
        "S-NLL, alias": -np.log(0.7),
        "SC, alias": 0.5,
    }
    assert ours.to_dict() == pytest.approx(expected)
    expected = {"SE, alias": np.log(13) - 12 / 13 * np.log(12), "SD, alias": 0.1 / 1.3}
    assert paper.to_dict() == pytest.approx(expected | {"Deg, alias": 0.5})
    # PRO reads one meaning at α = 0.4, whose NLL it is.
    for alpha, score in ((0.05, -np.log(0.1) - 0.7 * np.log(7)), (0.4, -np.log(0.7))):
        assert judged[1].pro(alpha, name="S-PRO, alias") == pytest.approx(score)


def test_what_counts_once_and_as_an_ending_can_be_chosen():
    beams, _ = drawn_run(0)
    paper, ours = evaluations(beams)
    mixed = evaluate(beams, rules=AnswerRules(distinct=False))
    distinct = evaluate(beams, protocol="paper", rules=AnswerRules(distinct=True))
    assert mixed.protocol == "workbench, repeats"
    assert distinct.protocol == "paper, distinct"
    np.testing.assert_array_equal(mixed.log_probs, paper.log_probs)
    np.testing.assert_array_equal(distinct.log_probs, ours.log_probs)
    without_ending = evaluate(beams, rules=AnswerRules(convention="answer_tokens")).log_probs
    np.testing.assert_allclose(without_ending, ours.log_probs - np.log(0.9))


def test_a_mass_above_one_is_said_in_a_sentence_and_not_in_a_warning():
    paper, ours = evaluations(drawn_run(0)[0])
    n_above = int(scoring.above_one(paper.log_probs).sum())
    assert n_above > 0
    assert f" For {n_above} questions" in paper.sentence()
    assert "sum to more" not in ours.sentence()
    alpha_sweep.rows_at(paper)  # a warning would be an error
    benchmark.table([Splits(paper, paper, None)])


def test_meanings_need_the_texts_of_all_answers_to_a_question():
    two = [("a", 0.5), ("b", 0.3)]
    run = toy_run({"all": two, "some": two, "none": two})
    has_no_text = [False, False, False, True, True, True]
    texts = run.answers["text"].mask(has_no_text, None)
    matrices = AnswerMatrices.of(replace(run, answers=run.answers.assign(text=texts)))
    assert matrices.texts_known.tolist() == [True, False, False]
