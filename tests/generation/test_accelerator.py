"""Runs on a simulated accelerator (CUDA, two GPUs, MPS): the same answers, few waits."""

import copy
from unittest import mock

import numpy as np
import pytest
import torch
from pretended import Pretence, spread
from test_semantic import ANSWERS, LABEL_ORDERS, save_classifier
from transformers import AutoConfig, AutoModelForCausalLM

from pro_lib import generate, scoring
from pro_lib.app.experiment import Experiment
from pro_lib.app.single_question import ask
from pro_lib.generation import batching, models
from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, Prefix
from pro_lib.generation.decoding.strategies import Threshold, strategy
from pro_lib.questions.question_sets import as_set

QUESTIONS = as_set(
    ["Who wrote Emma?", "What is it?", "Where is Paris, France?", "What is the capital of France?"]
)
STRATEGIES = [
    ("greedy", {}),
    ("multinomial", {"n_answers": 4}),
    ("multinomial", {"n_answers": 4, "top_p": 0.9}),
    ("diverse_beam", {"n_answers": 4}),
    ("threshold", {"search_alpha": 0.02}),
    ("threshold", {"top_n": 3}),
]
PLACES = {"cuda": ["cuda:0"], "two": ["cuda:0", "cuda:1"], "mps": ["mps"]}
HOW = {"max_new_tokens": 6}
# Waits in addition to one a step: at the start and the end of a run, and for dropped slots.
ONCE = 8


def moved(model, devices):
    """Return the model on simulated devices, checked again like any loaded model."""
    network = copy.deepcopy(model.network)
    network = spread(network, devices) if len(devices) > 1 else network.to(devices[0])
    return models.wrap_network(network, model.tokenizer, name=model.name)


def counted(model, strategy, settings):
    """Return a run, how often its host waited and copied to the device, and its forward passes."""
    Pretence.waits.clear()
    Pretence.copies.clear()
    run = generate(model, QUESTIONS, strategy=strategy, **HOW, **settings)
    return run, Pretence.waits.total(), Pretence.copies.total(), run.info.cost.model_calls


def check_same(run, expected):
    assert run.answers["token_ids"].map(tuple).tolist() == expected["token_ids"].map(tuple).tolist()
    np.testing.assert_allclose(run.answers["log_prob"], expected["log_prob"], atol=1e-5)


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """Simulate torch.cuda; return the list of calls that reset the peak memory."""
    resets = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "pretended")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 10**6)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", resets.append)
    return resets


@pytest.mark.filterwarnings("ignore:.*it is asked on the plain tree:UserWarning")
@pytest.mark.parametrize(
    ("family", "place"),
    [
        ("llama", "two"),
        ("llama", "mps"),
        ("mistral-window", "two"),
        pytest.param("llama", "cuda", marks=pytest.mark.slow),
        pytest.param("mistral-window", "cuda", marks=pytest.mark.slow),
        pytest.param("mistral-window", "mps", marks=pytest.mark.slow),
    ],
)
def test_answers_are_those_of_the_processor_and_the_host_waits_once_a_step(
    tiny_model, place, family, cuda, size
):
    model = tiny_model(family)
    is_plain = family == "mistral-window"  # its texts are longer than its window
    is_short = is_plain and (size == "quick" or place != "two")
    strategies = STRATEGIES[::4] if is_short else STRATEGIES
    expected = [
        generate(model, QUESTIONS, strategy=name, **HOW, **settings).answers
        for name, settings in strategies
    ]
    with Pretence():
        there = moved(model, PLACES[place])
        kernels = set()
        assert there.fit.plain == model.fit.plain
        there.network.register_forward_hook(
            lambda *_: kernels.add(torch.backends.cuda.cudnn_sdp_enabled()) and None
        )
        for (name, settings), here in zip(strategies, expected, strict=True):
            run, waits, copies, calls = counted(there, name, settings)
            check_same(run, here)
            # With several GPUs `logits_to_keep` is on the host, and the cache of a window copies.
            least = 0 if is_plain else calls  # the plain tree may call the network often in a step
            assert least <= waits <= (1 + (place == "two" or is_plain)) * calls + ONCE, name
            # Two copies a step, and places in the cache: in the packed tree where slots are
            # dropped, in the plain tree always.
            assert least <= copies <= (4 if is_plain else 3) * calls + ONCE, name
    if place != "mps":
        assert kernels == {False}
        assert torch.backends.cuda.cudnn_sdp_enabled()
        assert len(cuda) == len(strategies)
        assert run.info.cost.peak_memory_bytes == 10**6


@pytest.mark.parametrize("strategy", [pytest.param("greedy", marks=pytest.mark.slow), "threshold"])
def test_memory_may_run_out_at_any_call(tiny_model, strategy, size):
    with Pretence():
        there = moved(tiny_model("llama"), ["cuda:0"])
        enough, *_, calls = counted(there, strategy, {})
        for call in (0, calls // 2, calls - 1) if size == "quick" else range(calls):
            numbers = iter(range(call + 1))

            def full(*_, numbers=numbers, call=call):
                if next(numbers, None) == call:
                    raise torch.OutOfMemoryError("CUDA out of memory")

            with (
                there.network.register_forward_pre_hook(full),
                pytest.warns(RuntimeWarning, match="of cuda:0; going"),
            ):
                run, *_ = counted(there, strategy, {})
            assert run.info.cost.halved_packs == 1
            check_same(run, enough.answers)


def test_a_question_is_asked_of_a_model_that_was_loaded_there():
    question = "What is the capital of France?"
    here = ask("facts-2m", question, n_shots=2)
    with Pretence(), mock.patch.object(models, "_LAST", {}):
        there = Experiment(device="cuda:0").loaded("facts-2m")
        assert there.device == torch.device("cuda:0")
        answer = ask(there, question, n_shots=2)
    assert [text for text, _ in answer.answers] == [text for text, _ in here.answers]
    np.testing.assert_allclose(
        [p for _, p in answer.answers], [p for _, p in here.answers], atol=1e-5
    )


def test_half_precision_is_measured_once_and_packs_are_larger_there(tiny_model):
    how = {**HOW, "strategy": "threshold", "search_alpha": 0.02, "max_new_tokens": 3}
    with Pretence():
        there = moved(tiny_model("llama"), ["cuda:0"])
        there.network.to(torch.bfloat16)
        first, *others = (
            generate(there, [question], **how) for question in QUESTIONS.table["question"][:2]
        )
        again = generate(there, [QUESTIONS.table["question"][0]], **how)
        assert batching.Job(there, QUESTIONS, Threshold()).batch_size == 128
    [epsilon] = {run.questions["epsilon"].item() for run in (first, again, *others)}
    assert epsilon > 0
    # 16 questions are measured together and alone.
    assert first.info.cost.model_calls > 17 * again.info.cost.model_calls / 2
    assert max(run.info.cost.model_calls for run in (again, *others)) <= 3
    assert batching.Job(tiny_model("llama"), QUESTIONS, Threshold()).batch_size == 32


@pytest.mark.parametrize("device", ["cuda", "mps"])
@pytest.mark.parametrize("family", ["deberta", "roberta"])
def test_nli_judges_there_as_here(tmp_path, device, family):
    folder = save_classifier(family, tmp_path, next(iter(LABEL_ORDERS.values())))
    here = scoring.Nli(folder, device="cpu")(ANSWERS)
    # A view of a pretended buffer cannot be made in inference mode.
    with Pretence(), mock.patch.object(torch, "inference_mode", torch.no_grad):
        np.testing.assert_allclose(scoring.Nli(folder, device=device)(ANSWERS), here, atol=1e-6)


# Bytes for each log-probability of a step that are allocated in addition to the logits
PEAK_BYTES = {"greedy": 4, "diverse_beam": 8, "threshold": 12, "multinomial": 20}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PEAK_BYTES)
def test_peak_memory_with_a_large_vocabulary_is_that_of_the_formula(name, dtype):
    """The network has almost nothing but a vocabulary, whose tokens are all equally probable."""
    n_questions = 8
    vocabulary = 2**18
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    config = AutoConfig.for_model("llama", vocab_size=vocabulary, **sizes)
    network = AutoModelForCausalLM.from_config(config).eval().to(dtype)
    network.lm_head.weight.data.zero_()
    stop = torch.arange(vocabulary) == 5
    settings = {"n_answers": 4} if name in ("diverse_beam", "multinomial") else {}
    rows = n_questions * settings.get("n_answers", 1)
    with Pretence():
        there = copy.deepcopy(network).to("cuda:0")
        endings = Endings(stop.to("cuda:0"), (stop & False).to("cuda:0"))
        packed = PackedTree(
            there, [[10, 11, 12 + n] for n in range(n_questions)], Prefix((), ()), ForwardCounts()
        )
        before = Pretence.peak = Pretence.allocated
        ids = [str(n) for n in range(n_questions)]
        strategy(name, max_new_tokens=4, **settings).decode(packed, endings, question_ids=ids)
    of_logits = 6 if dtype == torch.bfloat16 else 4
    expected = rows * vocabulary * max(PEAK_BYTES[name], of_logits)
    assert Pretence.peak - before == pytest.approx(expected, rel=0.02)
