"""Probabilities of given continuations: against plain forward passes, batched or not."""

import numpy as np
import pytest
from test_strategies import plain_log_probs

from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.decoding.packed_tree import ForwardCounts
from pro_lib.generation.models import UnsupportedModelError

PROMPTS = [
    "Question: Who wrote Emma?\nAnswer:",
    "Question: What is the capital of France?\nAnswer:",
    "Question: Who?\nAnswer:",
    "Question: What is the capi",  # of which a tokenizer may join the end with a choice
]
CHOICES = [" Jane Austen", " Jane", " Paris", "tal of France?"]


def plain_totals(model, prompt):
    """The log-probabilities of the choices by plain passes, from the first different token."""
    prompt_ids, *texts = (model.encode(prompt + choice) for choice in ("", *CHOICES))
    is_equal = [len(set(ids)) == 1 for ids in zip(prompt_ids, *texts, strict=False)]
    start = [*is_equal, False].index(False)
    pairs = [(tuple(ids[:start]), tuple(ids[start:])) for ids in texts]
    return [sum(plain_log_probs(model, *pair)[0]) for pair in pairs]


@pytest.mark.filterwarnings("ignore:.*plain tree")
@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon-alibi"])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_values_are_those_of_plain_forward_passes(tiny_model, monkeypatch, family, batch_size):
    monkeypatch.setattr(models, "_BATCH_SIZE", batch_size)
    model = tiny_model(family)
    values = model.choice_log_probs(PROMPTS, CHOICES)
    expected = [plain_totals(model, prompt) for prompt in PROMPTS]
    np.testing.assert_allclose(values, expected, atol=1e-4)


def test_the_text_that_all_prompts_share_runs_once(tiny_model):
    model = tiny_model("llama")
    shots = "Question: Who wrote Emma?\nAnswer: Jane Austen\n\n" * 5
    counts = ForwardCounts()
    model.choice_log_probs([shots + prompt for prompt in PROMPTS], [" A"], counts=counts)
    tokens = sum(len(model.encode(shots + prompt)) for prompt in PROMPTS)
    shared = len(model.encode(shots)) - 1
    assert counts.prompt_tokens <= tokens - 2 * shared


def test_one_pass_is_enough_for_choices_of_one_token(tiny_model):
    counts = ForwardCounts()
    tiny_model("llama").choice_log_probs(PROMPTS, ["A", "B"], counts=counts)
    assert (counts.model_calls, counts.token_forwards) == (2, 0)


def test_no_prompts_give_no_rows(tiny_model):
    assert tiny_model("llama").choice_log_probs([], ["A", "B"]).shape == (0, 2)


@pytest.mark.parametrize(("choices", "words"), [([], "at least one"), ([""], "adds no token")])
def test_choices_must_add_text(tiny_model, choices, words):
    with pytest.raises(SentenceError, match=words):
        tiny_model("llama").choice_log_probs(PROMPTS, choices)


def test_a_prompt_that_cannot_be_encoded_has_no_values(tiny_model, monkeypatch):
    model = tiny_model("llama")
    encode = type(model).encode

    def refusing(self, text):
        if "<control>" in text:
            raise UnsupportedModelError("the prompt contains a control token")
        return encode(self, text)

    monkeypatch.setattr(type(model), "encode", refusing)
    values = model.choice_log_probs([PROMPTS[0], "<control>", PROMPTS[1]], CHOICES)
    assert np.isnan(values[1]).all()
    np.testing.assert_allclose(values[[0, 2]], model.choice_log_probs(PROMPTS[:2], CHOICES))
