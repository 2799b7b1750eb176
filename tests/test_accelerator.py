"""Runs on a pretended accelerator give the processor's answers: one CUDA device, two, and MPS without float64."""

import copy

import numpy as np
import pytest
import torch
from pretended import Pretence, spread

from pro_lib import models
from pro_lib.generate import generate
from pro_lib.questions import asked

QUESTIONS = asked(["Who wrote Emma?", "What is it?", "Where is Paris, France?", "What is the capital of France?"])
STRATEGIES = [
    ("greedy", {}),
    ("multinomial", {"n_answers": 4}),
    ("multinomial", {"n_answers": 4, "top_p": 0.9}),
    ("diverse_beam", {"n_answers": 4}),
    ("threshold", {"search_alpha": 0.02}),
    ("threshold", {"top_n": 3}),
]
PLACES = {"cuda": ["cuda:0"], "two": ["cuda:0", "cuda:1"], "mps": ["mps"]}


def moved(model, devices):
    """The model on pretended devices, measured anew as any that is loaded."""
    network = copy.deepcopy(model.network)
    network = spread(network, devices) if len(devices) > 1 else network.to(devices[0])
    return models.of(network, model.tokenizer, name=model.name)


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """What torch.cuda says of a device that is not there; the runs whose peak memory was counted anew."""
    resets = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "pretended")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 10**6)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", resets.append)
    return resets


@pytest.mark.filterwarnings("ignore:.*it is asked on the plain tree:UserWarning")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", ["llama", "mistral-window"])
def test_answers_are_those_of_the_processor_and_the_host_seldom_waits(tiny_model, place, family, cuda):
    model, how = tiny_model(family), {"max_new_tokens": 6, "progress": False}
    expected = [generate(model, QUESTIONS, strategy=name, **how, **settings).answers for name, settings in STRATEGIES]
    with Pretence():
        there, kernels = moved(model, PLACES[place]), set()
        assert there.fit.plain == model.fit.plain
        there.network.register_forward_hook(lambda *_: kernels.add(torch.backends.cuda.cudnn_sdp_enabled()) and None)
        for (name, settings), here in zip(STRATEGIES, expected, strict=True):
            Pretence.waits.clear()
            run = generate(there, QUESTIONS, strategy=name, **how, **settings)
            answers, waits = run.answers, sum(Pretence.waits.values())
            if (place, family) == ("cuda", "llama"):  # a search waits for what is at or above its floor, too
                assert waits <= run.info.cost.model_calls * (2 if name == "threshold" else 1) + 5, (name, settings)
            assert answers["token_ids"].map(tuple).tolist() == here["token_ids"].map(tuple).tolist(), (name, settings)
            np.testing.assert_allclose(answers["log_prob"], here["log_prob"], atol=1e-5)
    if place != "mps":
        assert kernels == {False}
        assert torch.backends.cuda.cudnn_sdp_enabled()
        assert len(cuda) == len(STRATEGIES)
        assert run.info.cost.peak_memory_bytes == 10**6
