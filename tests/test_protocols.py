"""Both protocols against counting by hand, answer by answer, with repeats and without."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebook_cells import of_notebook
from sklearn.metrics import roc_auc_score

from pro_lib import scores, similarities, sweeps
from pro_lib.evaluation import Choices, Splits, evaluate, evaluations
from pro_lib.runs import Run
from pro_lib.settings import Settings
from pro_lib.store import RunInfo

TEXTS = ["Rome", "rome", "Oslo", "a b", "b c"]


def run_of(lists, strategy="diverse_beam"):
    """A run from a list per question of (number of the answer, log p of its token, log p of its ending)."""
    rows = [
        (f"q{question}", rank, TEXTS[number], [number], [token], token, ending, True)
        for question, answers in enumerate(lists)
        for rank, (number, token, ending) in enumerate(answers)
    ]
    names = ["question_id", "rank", "text", "token_ids", "token_log_probs", "log_prob", "end_log_prob", "finished"]
    questions = pd.DataFrame({"question_id": [f"q{n}" for n in range(len(lists))], "question": "?", "split": "test"})
    questions["references"] = [["Rome"]] * len(lists)
    return Run(pd.DataFrame(rows, columns=names), questions, RunInfo("toy", "none", strategy))


def drawn_run(seed, n=40, strategy="diverse_beam"):
    """Repeated answers, ties, and masses above 1 with repeats."""
    rng, lists = np.random.default_rng(seed), []
    for _ in range(n):
        tokens = np.log(rng.dirichlet(np.full(len(TEXTS) + 1, 0.5)).round(2)[: len(TEXTS)] + 0.01)
        numbers = rng.integers(len(TEXTS), size=6)
        lists.append([(number, tokens[number], np.log(0.9)) for number in numbers])
    return run_of(lists, strategy), lists


def counted(lists, distinct):
    """Of each question the log-probabilities that count, downwards, and those per token (token and ending: two)."""
    for answers in lists:
        once = list(dict.fromkeys(answers)) if distinct else answers
        yield sorted((token + ending for _, token, ending in once), reverse=True)


def naive(lists, sample_lists, protocol, k):
    """AUROC needs these: PRO_K, PE by Eq. 2 and NE of every question, with no array."""
    ours = protocol == "workbench"
    of_ne = counted(sample_lists if ours else lists, False)
    for answers, samples in zip(counted(lists, ours), of_ne, strict=True):
        first = answers[: min(k, len(answers))]
        pro = -first[-1] - sum(np.exp(value) * (value - first[-1]) for value in first)
        yield pro, -sum(np.exp(value) * value for value in answers), -sum(value / 2 for value in samples) / len(samples)


@pytest.mark.filterwarnings("ignore::pro_lib.scores.PremiseWarning")
@given(st.integers(0, 10_000), st.sampled_from(["paper", "workbench"]))
def test_pro_pe_and_ne_are_those_of_a_loop_over_the_answers(seed, protocol):
    (beams, lists), (samples, sample_lists) = drawn_run(seed), drawn_run(seed + 1, strategy="multinomial")
    judged = evaluate(beams, samples=samples, protocol=protocol)
    for k in (1, 2, 5, 6):
        pro, pe, ne = (np.array(values) for values in zip(*naive(lists, sample_lists, protocol, k), strict=True))
        np.testing.assert_allclose(scores.pro_at_k(judged.log_probs, k), pro, atol=1e-12)
        np.testing.assert_allclose(judged.baselines["PE"], pe, atol=1e-12)
        np.testing.assert_allclose(judged.baselines["NE"], ne, atol=1e-12)
    assert judged.protocol == protocol


def test_fixed_k_and_mean_k_of_both_protocols_are_those_of_the_loop():
    beams, lists = drawn_run(3, n=200)
    both = evaluations(beams)
    fixed_k_sweep = of_notebook("04", "fixed_k_sweep", settings=Settings(n_answers=6))
    table = pd.concat([fixed_k_sweep(Splits(judged, judged, None)) for judged in both]).set_index(["protocol", "k"])
    mean_k = pd.concat(map(of_notebook("03", "k_sweep"), both)).set_index(["protocol", "alpha"])["mean_kept"]
    for judged in both:
        for k in range(1, 7):
            expected = roc_auc_score(~judged.correct, [pro for pro, *_ in naive(lists, lists, judged.protocol, k)])
            assert table.loc[(judged.protocol, k), "auroc"] == pytest.approx(expected, abs=1e-12)
        answers = list(counted(lists, judged.protocol == "workbench"))
        for alpha in (0.1, 0.4):
            counts = [max(1, sum(value >= np.log(alpha) for value in values)) for values in answers]
            assert mean_k[judged.protocol, alpha] == pytest.approx(np.mean(counts))
    assert (mean_k["paper"][[0.1, 0.4]] > mean_k["workbench"][[0.1, 0.4]]).all()
    assert (table.loc["paper", "auroc"] != table.loc["workbench", "auroc"]).any()


def test_each_protocol_reads_its_answers_by_hand():
    # Beams: Rome 0.5 twice, Oslo 0.25. Samples: Oslo alone. No ending of its own, so that a token is all there is.
    beams = run_of([[(0, np.log(0.5), np.nan)] * 2 + [(2, np.log(0.25), np.nan)]])
    samples = run_of([[(2, np.log(0.25), np.nan)]], "multinomial")
    paper, ours = evaluations(beams, samples=samples, similarities={"lexical": similarities.Lexical()})
    np.testing.assert_allclose(paper.log_probs, np.log([[0.5, 0.5, 0.25]]))
    np.testing.assert_allclose(ours.log_probs, np.log([[0.5, 0.25]]))
    paper, ours = (judged.baselines.iloc[0] for judged in (paper, ours))
    # SE: meanings of 1 and 0.25, or of 0.5 and 0.25. SD: Rome weighs twice, or once, beside Oslo.
    assert paper["SE, lexical"] == pytest.approx(0.8 * np.log(5 / 4) + 0.2 * np.log(5))
    assert ours["SE, lexical"] == pytest.approx(2 / 3 * np.log(1.5) + np.log(3) / 3)
    assert paper["SD, lexical"] == pytest.approx(0.25 / 1.25)
    assert ours["SD, lexical"] == pytest.approx(0.25 / 0.75)
    assert paper["Deg, lexical"] == ours["Deg, lexical"] == 0
    assert set(ours.index) - set(paper.index) == {"S-NLL, lexical", "SC, lexical"}


def test_whether_answers_count_once_can_be_mixed_and_is_said_and_so_is_a_mass_above_one():
    beams, _ = drawn_run(0)
    mixed = evaluate(beams, protocol="workbench", choices=Choices(distinct=False))
    paper, ours = evaluations(beams, choices=Choices(distinct=True))
    assert (mixed.protocol, paper.protocol, ours.protocol) == ("workbench, repeats", "paper, distinct", "workbench")
    np.testing.assert_array_equal(mixed.log_probs, evaluate(beams, protocol="paper").log_probs)
    np.testing.assert_array_equal(paper.log_probs, ours.log_probs)
    with pytest.raises(ValueError, match="protocol='papers' is unknown; choose paper or workbench"):
        evaluate(beams, protocol="papers")
    paper, ours = evaluations(beams)
    assert (above := int(scores.above_one(paper.log_probs).sum())) > 0
    assert f" For {above} questions the answers' probabilities sum to more than 1" in paper.sentence()
    assert "sum to more" not in ours.sentence()
    sweeps.alpha_sweep(paper)  # a warning would be an error
    sweeps.benchmark(Splits(paper, paper, None))
