"""Checkpoints whose weights are not those that their configuration describes."""

import json
import logging
import shutil
from pathlib import Path

import families
import pytest
import torch
from safetensors.torch import load_file, save_file

from pro_lib.common.validation import SentenceError
from pro_lib.generation import models
from pro_lib.generation.models import UnsupportedModelError

TEXT = torch.tensor([[3, 70, 80, 90, 100]])
ONES = torch.ones(32)
MASK = torch.ones(1, 1, 8, 8, dtype=torch.bool).tril()
LLAMA = "model.layers.0"
GPT = "transformer.h.0.attn"
# Layer 3 is the last of a tiny model; a layer 4 of the checkpoint predicts several tokens ahead.
AHEAD = {"model.layers.4.eh_proj.weight": ONES, "model.layers.4.mlp.up_proj.weight": ONES}

HARMLESS = [
    ("llama", {f"{LLAMA}.self_attn.rotary_emb.inv_freq": ONES}),
    ("llama", {f"{LLAMA}.self_attn.bias": MASK, f"{LLAMA}.self_attn.masked_bias": ONES[0]}),
    ("llama", {f"{LLAMA}.self_attn.k_scale": ONES[0], f"{LLAMA}.self_attn.v_scale": ONES[0]}),
    ("llama", {f"{LLAMA}.mlp.up_proj.bias": torch.zeros(64, dtype=torch.float16)}),
    ("llama", {"v_head.summary.weight": ONES, "v_head.summary.bias": ONES[:1]}),
    ("llama", {"vision_tower.encoder.layers.0.weight": ONES}),
    ("llama", {"multi_modal_projector.linear.weight": ONES}),
    ("llama", {"mtp.layers.0.weight": ONES}),
    ("llama", {f"{LLAMA}.self_attn._extra_state": torch.zeros(1, dtype=torch.uint8)}),
    ("glm4_moe", AHEAD),
    ("gpt2", {f"{GPT}.bias": MASK, f"{GPT}.masked_bias": ONES[0]}),
    ("gptj", {f"{GPT}.bias": MASK, f"{GPT}.masked_bias": ONES[0]}),
    ("gpt_neo", {f"{GPT}.attention.bias": MASK, f"{GPT}.attention.masked_bias": ONES[0]}),
    ("codegen", {f"{GPT}.causal_mask": MASK}),
    ("gpt_neox", {"gpt_neox.layers.0.attention.rotary_emb.inv_freq": ONES}),
    ("falcon", {"transformer.h.0.self_attention.rotary_emb.inv_freq": ONES}),
    ("opt", {"model.decoder.version": ONES[:1]}),
    ("xglm", {"model.embed_positions.weights": ONES}),
]
HARMFUL = [
    ("llama", {f"{LLAMA}.mlp.up_proj.bias": torch.ones(64)}),
    ("llama", {f"{LLAMA}.mlp.up_proj.bias": torch.zeros(64), "lm_head.bias": torch.ones(384)}),
    ("llama", {f"{LLAMA}.self_attn.q_proj.weight_scale": ONES}),
    ("llama", {f"{LLAMA}.self_attn.q_norm.weight": ONES}),
    ("llama", {"score.weight": ONES}),
    ("gptj", {f"{GPT}.q_proj.bias": ONES}),
    ("gpt2", {"lm_head.bias": torch.ones(384)}),
]
# Layers that the configuration of a tiny model of four layers leaves out, with where they are.
LAYERS = [
    ("llama", "model.layers.3.", {}),
    ("gpt2", "transformer.h.3.", {}),
    ("gptj", "transformer.h.3.", {}),
    ("mixtral", "model.layers.3.", {}),
    ("glm4_moe", "model.layers.3.", AHEAD),
]
SHAPES = [
    ("llama", {"vocab_size": 100}),
    ("llama", {"hidden_size": 16}),
    ("llama", {"intermediate_size": 32}),
    ("llama", {"num_key_value_heads": 2}),
    ("llama", {"head_dim": 16}),
    ("llama", {"attention_bias": True}),
    ("llama", {"num_hidden_layers": 5}),
    ("mixtral", {"num_local_experts": 3}),
    ("gpt2", {"n_embd": 16}),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a function that makes a copy of the tiny model of a family, to be changed."""
    loaded_network = {}

    def copy(family):
        if family not in loaded_network:
            loaded_network[family] = tmp_path_factory.mktemp("made") / family
            families.make(family, loaded_network[family])
        return Path(
            shutil.copytree(loaded_network[family], tmp_path_factory.mktemp("changed") / family)
        )

    return copy


@pytest.fixture
def logged():
    """Collect what transformers logs while a model is loaded."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def add(folder, tensors):
    """Write more tensors into a checkpoint."""
    weights = load_file(folder / "model.safetensors") | tensors
    copies = {name: tensor.clone() for name, tensor in weights.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})


def configure(folder, **changes):
    """Change a configuration without its weights."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@torch.inference_mode()
def logits(folder):
    """Return the loaded model's logits for a text."""
    return models.load_model(folder, device="cpu").network(TEXT).logits


def refusal(folder):
    """Return the sentence that refuses a model."""
    with pytest.raises(UnsupportedModelError) as raised:
        models.load_model(folder, device="cpu")
    assert "\n" not in str(raised.value)
    assert str(folder) in str(raised.value)
    return str(raised.value)


@pytest.mark.filterwarnings("ignore:model .* it is asked on the plain tree")
@pytest.mark.parametrize(("family", "tensors"), HARMLESS)
def test_a_tensor_that_no_answer_depends_on_is_ignored(tiny, logged, family, tensors):
    folder = tiny(family)
    before = logits(folder)
    add(folder, tensors)
    assert torch.equal(logits(folder), before)
    assert not any("LOAD REPORT" in message for message in logged)


@pytest.mark.parametrize(("family", "tensors"), HARMFUL)
def test_a_weight_without_a_place_is_refused(tiny, logged, family, tensors):
    folder = tiny(family)
    add(folder, tensors)
    names = [name for name, tensor in tensors.items() if tensor.any()]
    message = refusal(folder)
    assert f"has 1 weight that its configuration does not describe: {names[0]};" in message
    assert logged == []


@pytest.mark.parametrize(("family", "layer", "tensors"), LAYERS)
def test_a_layer_too_many_is_refused(tiny, logged, family, layer, tensors):
    folder = tiny(family)
    add(folder, tensors)
    config = json.loads((folder / "config.json").read_text())
    name = "n_layer" if "n_layer" in config else "num_layers"
    name = name if name in config else "num_hidden_layers"
    configure(folder, **{name: config[name] - 1})
    message = refusal(folder)
    names = message.split(": ")[-1].partition(";")[0].split(", ")
    assert len(names) == 3
    assert all(name.startswith(layer) for name in names)
    assert logged == []


@pytest.mark.parametrize(("family", "changes"), SHAPES)
def test_a_configuration_of_other_shapes_is_refused(tiny, logged, family, changes):
    folder = tiny(family)
    configure(folder, **changes)
    assert "or has them in other shapes: " in refusal(folder)
    assert logged == []


def test_a_head_of_its_own_is_refused_where_the_configuration_ties_it_unless_told(tiny, logged):
    folder = tiny("llama")
    before = logits(folder)
    configure(folder, tie_word_embeddings=True)
    message = refusal(folder)
    assert "has lm_head.weight with values of its own" in message
    assert "pass tie_word_embeddings=False" in message
    assert logged == []
    network = models.load_model(folder, device="cpu", tie_word_embeddings=False).network
    with torch.inference_mode():
        assert torch.equal(network(TEXT).logits, before)


def test_a_tied_head_that_a_checkpoint_repeats_is_loaded(tiny, logged):
    folder = tiny("llama")
    weights = load_file(folder / "model.safetensors")
    add(folder, {"lm_head.weight": weights["model.embed_tokens.weight"]})
    untied = logits(folder)
    configure(folder, tie_word_embeddings=True)
    assert torch.equal(logits(folder), untied)
    assert logged == []


def test_experts_of_different_shapes_are_named_in_one_sentence(tiny, logged):
    folder = tiny("mixtral")
    name = f"{LLAMA}.block_sparse_moe.experts.1.w1.weight"
    weights = load_file(folder / "model.safetensors")
    add(folder, {name: weights[name][:-1]})
    with pytest.raises(FileNotFoundError) as raised:
        models.load_model(folder, device="cpu")
    assert "weights for model.layers.0.mlp.experts.gate_up_proj are" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert logged == []


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4096\n"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_pointer_of_git_lfs_is_named_with_what_fetches_the_file(tiny, name):
    folder = tiny("llama")
    (folder / name).write_text(POINTER)
    with pytest.raises(SentenceError) as raised:
        models.load_model(folder, device="cpu")
    assert f"{name} is a Git LFS pointer" in str(raised.value)
    assert f"run `git lfs pull` in {folder}" in str(raised.value)


def test_a_gguf_file_that_is_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "tiny.gguf").write_text(POINTER)
    with pytest.raises(SentenceError, match=r"tiny\.gguf is a Git LFS pointer"):
        models.load_model(tmp_path / "tiny.gguf", device="cpu")


def test_a_pointer_to_a_file_that_is_not_needed_does_not_matter(tiny):
    folder = tiny("llama")
    (folder / "pytorch_model.bin").write_text(POINTER)
    assert models.load_model(folder, device="cpu").name == "llama"


@pytest.mark.parametrize("kept", ["", "config.json"])
def test_an_adapter_is_named_with_what_makes_a_model_of_it(tiny, kept):
    folder = tiny("llama")
    if not kept:
        (folder / "config.json").unlink()
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(SentenceError, match=r"is a PEFT adapter .* merge it into its base model"):
        models.load_model(folder, device="cpu")


def test_the_configuration_of_an_adapter_that_was_merged_does_not_matter(tiny):
    folder = tiny("llama")
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert models.load_model(folder, device="cpu").name == "llama"
