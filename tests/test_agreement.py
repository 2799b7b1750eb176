"""How often fresh samples agree, held against whole outcome spaces: tables of tiny vocabularies and a tiny network."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_threshold import probability, searched, worlds
from transformers import LlamaConfig, LlamaForCausalLM

from pro_lib import semantic, tables
from pro_lib.decoding import Endings, Threshold
from pro_lib.decoding.tree import Counts, PackedTree, encode_prefix
from pro_lib.runs import Run
from pro_lib.storage import Cost, Plan, RunInfo

NAN = np.nan


def similarity_of(outcomes, seed, kind):
    """What a similarity says of all pairs of outcomes, those cut by length included: no rule, 1 of equals."""
    rng, n = np.random.default_rng(seed), len(outcomes)
    said = rng.random((n, n)) if kind == "graded" else rng.integers(2, size=(n, n)).astype(float)
    said = np.maximum(said, said.T) if kind == "symmetric" else said
    np.fill_diagonal(said, 1.0)
    return said


def check_inside(outcomes, found, said):
    """The truth of the whole outcome space lies within what the found answers say; `outcomes`: log p by path."""
    index = {path: place for place, path in enumerate(outcomes)}
    p = np.exp(list(outcomes.values()))
    places = [index[path] for path in found]
    log_probs, compared = np.log([p[places]]), said[np.ix_(places, places)][None]
    same, judged = (said >= 0.5) & (said.T >= 0.5), np.arange(len(p))[: 50 + len(places)]  # found or not
    low, high = semantic.agreement(np.repeat(log_probs, len(judged), axis=0), same[np.ix_(judged, places)])
    truth = same[judged] @ p
    assert (low - 1e-9 <= truth).all()
    assert (truth <= high + 1e-9).all()
    assert (high - low <= 1 - p[places].sum() + 1e-9).all()
    np.testing.assert_array_equal(semantic.matches(compared)[0], same[np.ix_(places, places)])
    low, high = semantic.agreement_of_two(log_probs, compared)
    assert low[0] - 1e-9 <= p @ said @ p <= high[0] + 1e-9
    assert high[0] - low[0] <= 1 - p[places].sum() ** 2 + 1e-9


@given(worlds(), st.sampled_from([0.7, 0.4, 0.1, 0.02, 1e-3]), st.sampled_from(["graded", "symmetric", "one-way"]))
def test_the_truth_of_the_whole_outcome_space_is_inside(world, alpha, kind):
    for question, (answers, _) in enumerate(searched(world, search_alpha=alpha)):
        outcomes, _ = world.outcomes(question)
        total = np.logaddexp.reduce(list(outcomes.values()))  # float32 tables sum to 1 but for rounding
        outcomes = {path: value - total for path, value in outcomes.items()}
        found = [(a.token_ids, True) for a in answers if a.finished and probability(a) > 0]
        said = similarity_of(outcomes, world.seed, kind)
        check_inside(outcomes, found, said)
        # And of any other distinct complete answers, such as beams.
        complete = [path for path in outcomes if path[1]]
        check_inside(outcomes, complete[world.seed % 3 :: 2], said)


def everything(network, prompt, length):
    """Every outcome of a network whose token 0 ends an answer, by plain forward passes: log p by path."""
    outcomes = {}

    def visit(path, log_prob):
        logits = network(torch.tensor([[*prompt, *path]])).logits[0, -1]
        for token, value in enumerate(torch.log_softmax(logits.double(), dim=-1).tolist()):
            if token == 0:
                outcomes[path, True] = log_prob + value
            elif len(path) + 1 == length:
                outcomes[(*path, token), False] = log_prob + value
            else:
                visit((*path, token), log_prob + value)

    visit((), 0.0)
    return outcomes


@pytest.mark.parametrize("seed", range(3))
def test_a_search_of_a_tiny_network_holds_the_truth_of_all_its_outcomes(seed):
    torch.manual_seed(seed)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = LlamaForCausalLM(LlamaConfig(vocab_size=5, initializer_range=1.0, **shape)).eval()
    endings = Endings(stop=torch.arange(5) == 0, closing=torch.zeros(5, dtype=torch.bool))
    tree = PackedTree(network, [[3, 1]], encode_prefix(network, []), Counts())
    with torch.inference_mode():
        outcomes = everything(network, [3, 1], 4)
        [(answers, _)] = Threshold(max_new_tokens=4, search_alpha=0.01).decode(tree, endings, question_ids=[])
    assert math.fsum(map(math.exp, outcomes.values())) == pytest.approx(1)
    assert any(not finished for _, finished in outcomes)
    found = [(a.token_ids, True) for a in answers if a.finished]
    assert {a.token_ids: probability(a) for a in answers if a.finished} == pytest.approx(
        {path[0]: math.exp(outcomes[path]) for path in found}, abs=1e-6
    )
    for kind in ("graded", "symmetric", "one-way"):
        check_inside(outcomes, found, similarity_of(outcomes, seed, kind))


def test_agreement_by_hand():
    # 0.5 and 0.25 mean the same as the answer, 0.125 does not; 0.125 were not found.
    log_probs = np.log([[0.5, 0.25, 0.125], [0.5, 0.5, NAN], [NAN, NAN, NAN], [0.75, 0.75, NAN]])
    same = np.array([[True, True, False], [True, False, False], [False] * 3, [True, True, False]])
    low, high = semantic.agreement(log_probs, same)
    np.testing.assert_allclose(low, [0.75, 0.5, 0, 1], atol=1e-15)
    np.testing.assert_allclose(high, [0.875, 0.5, 1, NAN], atol=1e-15)  # a mass of 1.5 is none of distinct answers


def test_agreement_of_two_by_hand():
    # Pairs with themselves 0.25 + 0.0625, the others 0.125 each way, one of them counting 0.5.
    log_probs, compared = np.log([[0.5, 0.25]]), np.array([[[1.0, 0.5], [0.0, 1.0]]])
    low, high = semantic.agreement_of_two(log_probs, compared)
    np.testing.assert_allclose([low, high], [[0.375], [0.375 + 1 - 0.75**2]], rtol=1e-15)
    entailment = np.stack([compared, 1 - compared, 0 * compared], axis=-1)
    np.testing.assert_array_equal(semantic.agreement_of_two(log_probs, entailment)[0], low)


def test_what_is_bounded_is_what_self_consistency_and_deg_estimate():
    """Of a space of three answers found whole the ends meet; shares of many samples come to lie there."""
    rng, p = np.random.default_rng(0), np.array([0.6, 0.3, 0.1])
    said = np.array([[1, 0.7, 0.2], [0.6, 1, 0], [0.9, 0.1, 1]])
    drawn = rng.choice(3, size=(400, 40), p=p)
    compared = said[drawn[:, :, None], drawn[:, None, :]]
    [of_answer], _ = semantic.agreement(np.log([p]), semantic.matches(said[None])[:, 0])
    shares = semantic.matches(said[None])[0, 0][drawn].mean(axis=1)
    assert of_answer == pytest.approx(0.9)
    assert shares.mean() == pytest.approx(of_answer, abs=0.01)
    # Deg counts each sample with itself, once in 40: a share of agreement that is no agreement of two samples.
    [of_two], _ = semantic.agreement_of_two(np.log([p]), said[None])
    assert (1 - semantic.degree(compared)).mean() == pytest.approx(1 / 40 + 39 / 40 * of_two, abs=0.01)


def test_matches_are_mutual_and_those_that_clusters_join():
    compared = np.array([[[1, 0.9, NAN], [0.4, 1, NAN], [NAN] * 3], [[1, 0.5, 0.5], [0.5, 1, 0], [0.5, 0, 1]]])
    same = semantic.matches(compared)
    assert same[0].tolist() == np.diag([True, True, False]).tolist()
    assert same[1, 0].tolist() == [True] * 3
    assert not same[1, 1, 2]  # alike to one, and not to each other
    assert semantic.clusters(compared).tolist() == [[0, 1, -1], [0, 0, 0]]


def run_of(rows, strategy, **told):
    """A run of one question from (text, probability, finished), and what a search tells of it."""
    answers = pd.DataFrame(rows, columns=["text", "p", "finished"]).assign(question_id="q", end_log_prob=0.0)
    answers = answers.assign(rank=range(len(rows)), log_prob=np.log(answers.pop("p")))
    answers["token_ids"] = answers["token_log_probs"] = [[n] for n in range(len(rows))]
    question = {"question_id": ["q"], "question": ["?"], "references": [["yes"]], "split": ["test"]}
    info = RunInfo("toy", "none", strategy, parameters=told, cost=Cost(token_forwards=8), plans=(Plan(2, 1, 1),))
    told = told and {"search_alpha": [0.05], "token_forwards": [3]}
    return Run(answers, pd.DataFrame(question | told), info)


def test_the_table_of_agreement_by_hand():
    search = run_of([("yes", 0.5, True), ("Yes!", 0.25, True), ("no", 0.125, True)], "threshold", search_alpha=0.05)
    drawn = run_of([("yes", 0.5, True)] * 2 + [("no", 0.1, True)] + [("yes and", 0.1, False)], "multinomial")
    table = tables.agreement_table([search], [drawn], [{"lexical": semantic.Lexical(), "alias": None}])
    answer, two = table.set_index("of").loc[["answer", "two"]].to_dict("records")
    assert (answer["low"], answer["high"]) == pytest.approx((0.75, 0.875))
    assert answer["estimate"] == pytest.approx(2 / 4)  # one of the four draws was cut
    assert (answer["outside"], answer["distance"]) == pytest.approx((1, 0.25))
    assert (two["low"], two["high"]) == pytest.approx((0.75**2 + 0.125**2, 0.75**2 + 0.125**2 + 1 - 0.875**2))
    assert two["estimate"] == pytest.approx(2 / 12)  # of twelve ordered pairs of different draws
    assert two["distance"] == pytest.approx(0.75**2 + 0.125**2 - 2 / 12)
    assert (answer["search_forwards"], answer["sample_forwards"], answer["alpha"]) == (3, 4, 0.05)


@pytest.mark.parametrize(
    ("log_probs", "message"),
    [([[-1.0]], r"log_probs has the shape \(1, 1\)"), ([[-1.0, 0.5]], r"log_probs\[0, 1\] is 0.5")],
)
def test_log_probs_that_do_not_fit_are_refused(log_probs, message):
    for call in (semantic.agreement, semantic.agreement_of_two):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(log_probs, np.ones((1, 2, 2))[..., 0] if call is semantic.agreement else np.ones((1, 2, 2)))
