"""Probabilities of given continuations: against plain forward passes, batched or not."""

import numpy as np
import pytest
import torch

from pro_lib.common import catalog
from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.choices import choice_log_probs
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.metrics import yes_no
from pro_lib.questions import question_sets
from pro_lib.scoring.self_evaluation import p_true_prompt

PROMPTS = [
    "Question: Who wrote Emma?\nAnswer:",
    "Question: What is the capital of France?\nAnswer:",
    "Question: Who?\nAnswer:",
]
CHOICES = [" Jane Austen", " Jane", " Paris", " A"]


@torch.inference_mode()
def plain_log_prob(model, prompt, choice):
    """The log-probability of a choice by one forward pass of the whole text."""
    start = len(model.encode(prompt))
    ids = model.encode(prompt + choice)
    assert ids[:start] == model.encode(prompt)
    logits = model.network(torch.tensor([ids])).logits[0].double()
    log_probs = torch.log_softmax(logits, dim=-1)
    return sum(log_probs[place - 1, ids[place]].item() for place in range(start, len(ids)))


def plain_log_probs(model, prompts, choices):
    return np.array(
        [[plain_log_prob(model, prompt, choice) for choice in choices] for prompt in prompts]
    )


@pytest.mark.filterwarnings("ignore:.*plain tree")
@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon-alibi"])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_values_are_those_of_plain_forward_passes(tiny_model, family, batch_size):
    model = tiny_model(family)
    values = choice_log_probs(model, PROMPTS, CHOICES, batch_size=batch_size)
    np.testing.assert_allclose(values, plain_log_probs(model, PROMPTS, CHOICES), atol=1e-4)


def test_a_longer_choice_is_less_probable_than_its_beginning(tiny_model):
    austen, jane, *_ = choice_log_probs(tiny_model("llama"), PROMPTS[:1], CHOICES)[0]
    assert austen < jane


def test_the_text_that_all_prompts_share_runs_once(tiny_model):
    model = tiny_model("llama")
    shots = "Question: Who wrote Emma?\nAnswer: Jane Austen\n\n" * 5
    counts = ForwardCounts()
    choice_log_probs(model, [shots + prompt for prompt in PROMPTS], [" A"], counts=counts)
    tokens = sum(len(model.encode(shots + prompt)) for prompt in PROMPTS)
    shared = len(model.encode(shots)) - 1
    assert counts.prompt_tokens <= tokens - 2 * shared


def test_one_pass_is_enough_for_choices_of_one_token(tiny_model):
    counts = ForwardCounts()
    choice_log_probs(tiny_model("llama"), PROMPTS, ["A", "B"], counts=counts)
    assert (counts.model_calls, counts.token_forwards) == (2, 0)


def test_a_choice_that_the_tokenizer_joins_with_the_prompt_is_scored_from_where_it_differs(
    tiny_model,
):
    model = tiny_model("llama")
    prompt, choice = "Question: What is the capi", "tal of France?"
    ids = model.encode(prompt + choice)
    prompt_ids = model.encode(prompt)
    pairs = zip(ids, prompt_ids, strict=False)
    start = [first == second for first, second in pairs].index(False)
    with torch.inference_mode():
        log_probs = torch.log_softmax(model.network(torch.tensor([ids])).logits[0].double(), dim=-1)
    expected = sum(log_probs[place - 1, ids[place]].item() for place in range(start, len(ids)))
    [[value]] = choice_log_probs(model, [prompt], [choice])
    assert value == pytest.approx(expected, abs=1e-4)


def test_no_prompts_give_no_rows(tiny_model):
    assert choice_log_probs(tiny_model("llama"), [], ["A", "B"]).shape == (0, 2)


@pytest.mark.parametrize(("choices", "words"), [([], "at least one"), ([""], "adds no token")])
def test_choices_must_add_text(tiny_model, choices, words):
    with pytest.raises(SentenceError, match=words):
        choice_log_probs(tiny_model("llama"), PROMPTS, choices)


@pytest.mark.slow
@pytest.mark.skipif(
    "smollm2-135m" not in catalog.bundled_models(), reason="pro download smollm2-135m was not run"
)
def test_smollm2_gives_the_values_of_plain_forward_passes(size):
    model = models.load_model("smollm2-135m", device="cpu")
    limit = {"quick": 2, "all": 4}.get(size, 50)
    questions = question_sets.load_questions("world-facts", split="validation", limit=limit).table
    prompts = [
        p_true_prompt(question, references[0])
        for question, references in zip(questions["question"], questions["references"], strict=True)
    ]
    expected = plain_log_probs(model, prompts, yes_no.CHOICES)
    for batch_size in (1, 32):
        values = choice_log_probs(model, prompts, yes_no.CHOICES, batch_size=batch_size)
        np.testing.assert_allclose(values, expected, atol=1e-4)


def test_a_prompt_that_cannot_be_encoded_has_no_values(tiny_model, monkeypatch):
    model = tiny_model("llama")
    encode = type(model).encode

    def refusing(self, text):
        if "<control>" in text:
            raise SentenceError("the prompt contains a control token")
        return encode(self, text)

    monkeypatch.setattr(type(model), "encode", refusing)
    values = choice_log_probs(model, [PROMPTS[0], "<control>", PROMPTS[1]], CHOICES)
    assert np.isnan(values[1]).all()
    np.testing.assert_allclose(values[[0, 2]], choice_log_probs(model, PROMPTS[:2], CHOICES))
