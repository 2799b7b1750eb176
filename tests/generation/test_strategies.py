import copy
import math
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_threshold import TableTree, World, ends_in_closing, entropy, worlds
from tiny_models import FAMILIES

from pro_lib import generate
from pro_lib.generation.decoding import next_tokens
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts, Prefix
from pro_lib.generation.decoding.sampling import multinomial, nucleus, uniforms
from pro_lib.generation.decoding.strategies import (
    DiverseBeam,
    Greedy,
    Multinomial,
    Threshold,
    strategy,
)
from pro_lib.questions import question_sets

WORDS = ("Emma", "Paris", "the capital", "France", "Jane", "wrote", "is", "Question")


def asked(n=8):
    questions = question_sets.as_set([f"Who wrote {word}?" for word in WORDS[:n]])
    return replace(questions, shots=(("Who wrote Emma?", "Jane Austen"),))


@cache
@torch.inference_mode()
def plain_log_probs(model, prompt_ids, token_ids):
    """Log-probabilities of the tokens, and of ending after them, from one plain forward pass.

    The ids are tuples, so that results can be kept.
    """
    logits = model.network(input_ids=torch.tensor([[*prompt_ids, *token_ids]])).logits[0]
    log_probs = torch.log_softmax(logits.double(), dim=-1)[len(prompt_ids) - 1 :]
    tokens = [float(log_probs[i, token]) for i, token in enumerate(token_ids)]
    return tokens, float(torch.logsumexp(log_probs[len(token_ids), model.endings.stop], dim=-1))


def check_plain_passes(model, questions, answers, *, atol=1e-5):
    """Log-probabilities of the answers are those of plain forward passes."""
    prompts = dict(zip(questions.table["question_id"], questions.prompts(), strict=True))
    for answer in answers.itertuples():
        prompt_ids = tuple(model.encode(prompts[answer.question_id]))
        tokens, ending = plain_log_probs(model, prompt_ids, tuple(answer.token_ids))
        np.testing.assert_allclose(answer.token_log_probs, tokens, atol=atol)
        if answer.finished and not pd.isna(answer.end_log_prob):
            assert answer.end_log_prob == pytest.approx(ending, abs=atol)


def check_greedy(model, questions, *, max_new_tokens):
    """Greedy answers are what the library generates; the answers."""
    run = generate(model, questions, strategy="greedy", max_new_tokens=max_new_tokens)
    stop = model.endings.stop.nonzero().squeeze(1).tolist()
    for prompt, answer in zip(questions.prompts(), run.answers.itertuples(), strict=True):
        ids = torch.tensor([model.encode(prompt)])
        how = {
            "max_new_tokens": max_new_tokens,
            "eos_token_id": stop,
            "pad_token_id": model.tokenizer.pad_token_id,
        }
        generated = model.network.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, **how
        )
        generated = generated[0, ids.shape[1] :].tolist()
        finished = generated[-1] in stop
        assert list(answer.token_ids) == (generated[:-1] if finished else generated)
        assert answer.finished == finished
    return run.answers


WINDOWED = "mistral-window"  # texts are longer than its window
OF_WINDOW = pytest.mark.filterwarnings(
    "ignore:.*has a sliding window of 16.*asked on the plain tree:UserWarning"
)


@OF_WINDOW
@pytest.mark.parametrize("family", [*FAMILIES, WINDOWED])
def test_greedy_is_what_the_library_generates(ending_model, family):
    model = ending_model(family)
    questions = asked()
    answers = check_greedy(model, questions, max_new_tokens=12)
    check_plain_passes(model, questions, answers)


@OF_WINDOW
@pytest.mark.parametrize("family", [*FAMILIES, WINDOWED])
@pytest.mark.parametrize("strategy", ["multinomial", "diverse_beam"])
def test_every_log_probability_is_that_of_a_plain_forward_pass(ending_model, family, strategy):
    model = ending_model(family, closing=True)
    questions = asked()
    how = {"n_answers": 5, "max_new_tokens": 8}
    run = generate(model, questions, strategy=strategy, **how)
    check_plain_passes(model, questions, run.answers)
    kinds = set()
    for answer in run.answers.itertuples():
        assert answer.log_prob == pytest.approx(sum(answer.token_log_probs), abs=1e-5)
        is_closed = ends_in_closing(model, answer.token_ids)
        assert pd.isna(answer.end_log_prob) == is_closed
        assert answer.finished == (len(answer.token_ids) < 8 or is_closed)
        assert answer.finished or answer.end_log_prob == 0.0
        kinds.add((answer.finished, is_closed))
    assert strategy != "multinomial" or len(kinds) > 1


def naive_diverse_beam(model, prompt_ids, n_answers, penalty, max_new_tokens):
    """Diverse beams of one question by the algorithm itself, one forward pass per beam and step."""
    paths = [[] for _ in range(n_answers)]
    ended = [False] * n_answers
    stop = set(model.endings.stop.nonzero().squeeze(1).tolist())
    for _ in range(max_new_tokens):
        used = {}
        for group in range(n_answers):
            if ended[group]:
                continue
            with torch.no_grad():
                ids = torch.tensor([[*prompt_ids, *paths[group]]])
                logits = model.network(input_ids=ids, use_cache=False).logits[0, -1]
            scores = torch.log_softmax(logits.float(), dim=-1).tolist()
            for token, count in used.items():
                scores[token] -= penalty * count
            ranked = sorted(range(len(scores)), key=lambda token: -scores[token])
            ended[group] = ranked[0] in stop
            continuation = next(token for token in ranked if token not in stop)
            used[continuation] = used.get(continuation, 0) + 1
            if not ended[group]:
                paths[group].append(continuation)
    return paths, ended


@pytest.mark.parametrize(
    ("family", "n_answers", "penalty"),
    [("llama", 1, 1.0), ("gemma", 4, 1.0), ("falcon-7b", 6, 0.3), ("llama", 6, 0.3)],
)
def test_diverse_beams_are_those_of_the_algorithm_spelled_out(
    ending_model, family, n_answers, penalty
):
    model = ending_model(family)
    questions = asked(5)
    settings = {"n_answers": n_answers, "diversity_penalty": penalty, "max_new_tokens": 7}
    run = generate(model, questions, **settings)
    grown = set()
    question_ids = questions.table["question_id"]
    for question_id, prompt in zip(question_ids, questions.prompts(), strict=True):
        paths, ended = naive_diverse_beam(model, model.encode(prompt), n_answers, penalty, 7)
        rows = run.answers[run.answers["question_id"] == question_id]
        answers = zip(rows["token_ids"].map(list), rows["finished"], strict=True)
        assert sorted(answers) == sorted(zip(paths, ended, strict=True))
        grown |= {
            (question_id, *path[:length])
            for path in paths
            for length in range(1, min(len(path), 6) + 1)
        }
    assert run.info.cost.token_forwards == len(grown)  # each distinct prefix once


def test_the_nucleus_is_the_smallest_set_that_reaches_its_mass():
    probabilities = torch.tensor([[0.1, 0.5, 0.15, 0.25]], dtype=torch.float64)
    assert nucleus(probabilities, 0.75).tolist() == [[0, 0.5, 0, 0.25]]
    assert nucleus(probabilities, 0.8).tolist() == [[0, 0.5, 0.15, 0.25]]
    assert nucleus(probabilities, 1.0).tolist() == probabilities.tolist()


def walked(world, question, draws, *, temperature=1.0, top_p=1.0):
    """Draw an answer by uniform numbers, token by token from the cumulative probabilities."""
    path = []
    finished = False
    for draw in draws:
        probabilities = (world.log_probs(question, path).double() / temperature).softmax(0)
        ranked = probabilities.argsort(descending=True, stable=True)
        before = probabilities[ranked].cumsum(0) - probabilities[ranked]
        probabilities[ranked[before >= top_p]] = 0
        sums = probabilities.cumsum(0)
        token = int((sums <= draw * sums[-1]).sum())
        finished = bool(world.endings.stop[token] or world.endings.closing[token])
        path += [token] * (not world.endings.stop[token])
        if finished:
            break
    return path, finished


def path_entropy(world, prefixes, token_ids, finished):
    """Add up the entropies after every prefix from which an event was drawn."""
    n = len(token_ids) + (finished and not ends_in_closing(world, token_ids))
    return sum(prefixes[token_ids[:length]][1] for length in range(n))


SHAPES = st.sampled_from(
    [{}, {"temperature": 0.6}, {"top_p": 0.73}, {"temperature": 2.0, "top_p": 0.9}]
)


@given(worlds(), st.integers(0, 999), SHAPES)
def test_samples_are_those_that_their_uniform_numbers_draw_with_the_entropy_of_their_paths(
    world, seed, shape
):
    draws = uniforms(seed, [f"q{n}" for n in range(world.n_questions)], 6, world.length)
    with mock.patch.object(next_tokens, "_PIECE", 1):
        samples = multinomial(TableTree(world), world.endings, uniforms=draws, **shape)
    for question, answers in enumerate(samples):
        expected = [walked(world, question, line, **shape) for line in draws[question].tolist()]
        assert [(list(answer.token_ids), answer.finished) for answer in answers] == expected
        outcomes, prefixes = world.outcomes(question)
        for answer in answers:  # whatever shapes the draw, probabilities are the model's own
            ids = answer.token_ids
            finished = answer.finished
            assert answer.complete_log_prob == pytest.approx(outcomes[ids, finished], abs=1e-5)
            if shape:
                assert answer.path_entropy is None
            else:
                expected_entropy = path_entropy(world, prefixes, ids, finished)
                assert answer.path_entropy == pytest.approx(expected_entropy, abs=1e-5)
        # By the chain rule, the mean over all outcomes is the entropy H(Y).
        mean = sum(
            math.exp(value) * path_entropy(world, prefixes, *key) for key, value in outcomes.items()
        )
        assert mean == pytest.approx(entropy(outcomes), abs=1e-5)


def test_a_sample_stream_depends_on_seed_question_and_sample_only():
    one = uniforms(0, ["a", "b"], 3, 5).numpy()
    assert one.shape == (2, 3, 5)
    assert len(np.unique(one)) == one.size
    np.testing.assert_array_equal(uniforms(0, ["b"], 2, 4).numpy(), one[1:, :2, :4])
    many = uniforms(0, [*map(str, range(99))], 3, 5).numpy().ravel()
    assert stats.kstest(many, "uniform").pvalue > 0.01
    assert (uniforms(1, ["a"], 1, 5).numpy() != one[0, :1]).all()
    # Stored runs can be continued, so these numbers must not change.
    np.testing.assert_array_equal(one[0, 0, :2], [0.9765597955816017, 0.7735506072849163])


def test_a_draw_at_the_very_end_stays_inside_the_vocabulary():
    world = World(
        seed=1, n_questions=1, vocabulary=4, n_stops=2, n_closing=0, length=1, peakedness=0.0
    )
    ones = torch.ones((1, 1, 1), dtype=torch.float64)
    [[answer]] = multinomial(TableTree(world), world.endings, uniforms=ones)
    assert answer.token_ids == (3,)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "beam"}, "is unknown; choose greedy, multinomial, diverse_beam, threshold"),
        ({"name": "greedy", "n": 3}, "'greedy' does not have the setting 'n'; choose max_new_tok"),
        ({"name": "greedy", "stop": "."}, r"stop='\.' "),
        ({"name": "multinomial", "temperature": 0}, "temperature=0 "),
        ({"name": "threshold", "search_alpha": 0.0}, "search_alpha=0.0 "),
        ({"name": "threshold", "budget": -1}, "budget=-1 "),
        ({"name": "threshold", "search_alpha": 0.1, "top_n": 3}, "are two ways to end a search"),
    ],
)
def test_invalid_settings_are_an_error(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        strategy(**settings)


@pytest.mark.parametrize(
    "strategy", [Greedy(), Multinomial(), DiverseBeam(n_answers=3), Threshold(top_n=2)], ids=str
)
@pytest.mark.parametrize(
    ("dtype", "plain"),
    [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False), (torch.float16, True)],
)
def test_nan_log_probabilities_are_an_error_at_any_step(tiny_model, dtype, strategy, plain):
    """The embeddings of all tokens but those of the prompt are NaN, so the first step is right."""
    network = copy.deepcopy(tiny_model("llama").network).to(dtype)
    prompt = [5, 6, 7]
    damaged = torch.ones(network.config.vocab_size, dtype=torch.bool).index_fill_(
        0, torch.tensor(prompt), False
    )
    network.get_input_embeddings().weight.data[damaged] = torch.nan
    stop = torch.arange(len(damaged)) == 2
    tree = Fit(0.0, plain="is asked so" * plain).tree(
        network, [prompt], prefix=Prefix((), ()), counts=ForwardCounts()
    )
    with pytest.raises(ValueError, match="not numbers"):
        strategy.decode(tree, Endings(stop, stop & False), question_ids=["q"])
