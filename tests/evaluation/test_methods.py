"""Both protocols against counting by hand, answer by answer, with repeats and without."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_questions import evaluate, evaluations
from sklearn.metrics import roc_auc_score
from test_evaluate import toy_run
from test_likelihood import naive_pro

from pro_lib import scoring
from pro_lib.evaluation.evaluation import Splits
from pro_lib.metrics.correctness import Choices
from pro_lib.plots import alpha_sweep, benchmark, fixed_k

TEXTS = ["Rome", "rome", "Oslo", "a b", "b c"]


def drawn_run(seed, n=40, strategy="diverse_beam"):
    """Return a run with repeats, ties and masses above 1, and its (text, p, p of the ending)."""
    rng, found = np.random.default_rng(seed), {}
    for question in range(n):
        shares = rng.dirichlet(np.full(len(TEXTS) + 1, 0.5)).round(2) + 0.01
        probs = dict(zip(TEXTS, shares, strict=False))
        texts = rng.choice(TEXTS, size=6).tolist()
        found[f"q{question}"] = [(text, probs[text], 0.9) for text in texts]
    run = toy_run(found, strategy=strategy, references={name: ["Rome"] for name in found})
    return run, list(found.values())


def counted(lists, distinct):
    """Yield the probabilities that count for each question, in descending order."""
    for answers in lists:
        once = list(dict.fromkeys(answers)) if distinct else answers
        yield sorted((p * ending for _, p, ending in once), reverse=True)


@pytest.mark.filterwarnings("ignore::pro_lib.scoring.PremiseWarning")
@given(st.integers(0, 10_000), st.sampled_from(["paper", "workbench"]))
def test_pro_pe_and_ne_are_those_of_a_loop_over_the_answers(seed, protocol):
    beams, lists = drawn_run(seed)
    samples, sample_lists = drawn_run(seed + 1, strategy="multinomial")
    judged, ours = evaluate(beams, samples=samples, protocol=protocol), protocol == "workbench"
    found, averaged = list(counted(lists, ours)), counted(sample_lists if ours else lists, False)
    for k in (1, 2, 5, 6):
        pro = [naive_pro(probs, k) for probs in found]
        np.testing.assert_allclose(scoring.pro_at_k(judged.log_probs, k), pro, atol=1e-12)
    pe = [-sum(p * np.log(p) for p in probs) for probs in found]
    np.testing.assert_allclose(judged.baselines["PE"], pe, atol=1e-12)
    # Token and ending: two
    ne = [-sum(np.log(p) / 2 for p in probs) / len(probs) for probs in averaged]
    np.testing.assert_allclose(judged.baselines["NE"], ne, atol=1e-12)
    assert judged.protocol == protocol


def test_fixed_k_and_alphas_of_both_protocols_are_those_of_the_loop():
    beams, lists = drawn_run(3, n=200)
    kept = []
    alphas = [0.0, 0.1, 0.4, 1.0]
    for judged in evaluations(beams):
        found = list(counted(lists, judged.protocol == "workbench"))
        counts = [[k] * len(found) for k in range(1, 7)]
        counts += [[max(1, sum(p >= alpha for p in probs)) for probs in found] for alpha in alphas]
        pro = [[naive_pro(probs, k) for probs, k in zip(found, ks, strict=True)] for ks in counts]
        aurocs = [roc_auc_score(~judged.correct, values) for values in pro[:6]]
        table = fixed_k.table([Splits(judged, judged, None)], max_k=6)
        assert table["k"].tolist()[:6] == [1, 2, 3, 4, 5, 6]
        assert table["auroc"][:6].tolist() == pytest.approx(aurocs, abs=1e-12)
        np.testing.assert_allclose(judged.pro(alphas).T, pro[6:], rtol=0, atol=1e-12)
        kept.append(alpha_sweep.rows_at(judged, alphas=alphas)["mean_k"])
        assert kept[-1].tolist() == pytest.approx(np.mean(counts[6:], axis=1))
    assert (kept[0][:3] > kept[1][:3]).all()  # the paper's protocol keeps repeats


def test_each_protocol_reads_its_answers_by_hand():
    beams = toy_run({"a": [("yes", 0.5), ("yes", 0.5), ("Yes!", 0.2), ("no", 0.1)]})
    samples = toy_run({"a": [("yes", 0.5), ("no", 0.1)]}, strategy="multinomial")
    table = pd.DataFrame({"question_id": ["a"], "references": [["yes"]]})
    judged = evaluations(beams, samples=samples, similarities={"alias": scoring.Alias(table)})
    np.testing.assert_allclose(judged[0].log_probs, np.log([[0.5, 0.5, 0.2, 0.1]]))
    np.testing.assert_allclose(judged[1].log_probs, np.log([[0.5, 0.2, 0.1]]))
    paper, ours = (of.baselines.iloc[0].filter(like="alias") for of in judged)
    # Two meanings of 1.2 and 0.1, or of 0.7 and 0.1: with Q = 7/8 and 1/8 the entropy is 3 log 2 -
    # 7/8 log 7. One of two samples says yes. PRO reads one meaning at α = 0.4, whose is NLL.
    expected = {
        "SE": 3 * np.log(2) - 7 / 8 * np.log(7),
        "SD": 0.1 / 0.8,
        "Deg": 0.5,
        "S-NLL": -np.log(0.7),
        "SC": 0.5,
    }
    assert ours.to_dict() == pytest.approx(
        {f"{name}, alias": value for name, value in expected.items()}
    )
    assert paper.tolist() == pytest.approx([np.log(13) - 12 / 13 * np.log(12), 0.1 / 1.3, 0.5])
    assert paper.index.tolist() == ["SE, alias", "SD, alias", "Deg, alias"]
    pro = [
        judged[1].with_pro({"S-PRO, alias": alpha})["S-PRO, alias"].item() for alpha in (0.05, 0.4)
    ]
    assert pro == pytest.approx([-np.log(0.1) - 0.7 * np.log(7), -np.log(0.7)])


def test_what_counts_once_and_as_an_ending_can_be_chosen_and_is_said_and_so_is_a_mass_above_one():
    beams, _ = drawn_run(0)
    mixed = evaluate(beams, protocol="workbench", choices=Choices(distinct=False))
    paper, ours = evaluations(beams, choices=Choices(distinct=True))
    assert (mixed.protocol, paper.protocol, ours.protocol) == (
        "workbench, repeats",
        "paper, distinct",
        "workbench",
    )
    np.testing.assert_array_equal(mixed.log_probs, evaluate(beams, protocol="paper").log_probs)
    np.testing.assert_array_equal(paper.log_probs, ours.log_probs)
    without_ending = evaluate(beams, choices=Choices(convention="answer_tokens")).log_probs
    np.testing.assert_allclose(without_ending, ours.log_probs - np.log(0.9))
    with pytest.raises(ValueError, match="protocol='papers' is unknown; choose paper or workbench"):
        evaluate(beams, protocol="papers")
    paper, ours = evaluations(beams)
    assert (above := int(scoring.above_one(paper.log_probs).sum())) > 0
    assert (
        f" For {above} questions the answers' probabilities sum to more than 1" in paper.sentence()
    )
    assert "sum to more" not in ours.sentence()
    alpha_sweep.rows_at(paper)  # a warning would be an error
    benchmark.table([Splits(paper, paper, None)])
