"""Checkpoints whose weights are not those that their configuration describes."""

import json
import logging
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import families
import pytest
import torch
from safetensors.torch import load_file, save_file

from pro_lib import load_model
from pro_lib.common.validation import SentenceError
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
    ("gpt_neo", {f"{GPT}.attention.bias": MASK, f"{GPT}.attention.masked_bias": ONES[0]}),
    ("codegen", {f"{GPT}.causal_mask": MASK}),
    ("opt", {"model.decoder.version": ONES[:1]}),
    ("xglm", {"model.embed_positions.weights": ONES}),
]
LACKS = "or has them in other shapes: "
# A family, tensors that are added, changes of the configuration, and what the error says.
REFUSED = [
    ("llama", {f"{LLAMA}.mlp.up_proj.bias": torch.ones(64)}, {}, f"{LLAMA}.mlp.up_proj.bias;"),
    (
        "llama",
        {f"{LLAMA}.mlp.up_proj.bias": torch.zeros(64), "lm_head.bias": torch.ones(384)},
        {},
        "has 1 weight that its configuration does not describe: lm_head.bias;",
    ),
    ("llama", {f"{LLAMA}.self_attn.q_proj.weight_scale": ONES}, {}, "q_proj.weight_scale;"),
    ("llama", {f"{LLAMA}.self_attn.q_norm.weight": ONES}, {}, "self_attn.q_norm.weight;"),
    ("llama", {"score.weight": ONES}, {}, "score.weight;"),
    ("gptj", {f"{GPT}.q_proj.bias": ONES}, {}, "q_proj.bias;"),
    ("gpt2", {"lm_head.bias": torch.ones(384)}, {}, "lm_head.bias;"),
    # A layer too many, of four.
    ("llama", {}, {"num_hidden_layers": 3}, "not describe: model.layers.3."),
    ("gpt2", {}, {"n_layer": 3}, "not describe: transformer.h.3."),
    ("mixtral", {}, {"num_hidden_layers": 3}, "not describe: model.layers.3."),
    ("glm4_moe", AHEAD, {"num_hidden_layers": 3}, "not describe: model.layers.3."),
    ("llama", {}, {"num_hidden_layers": 5}, LACKS),
    ("llama", {}, {"vocab_size": 100}, LACKS),
    ("llama", {}, {"num_key_value_heads": 2}, LACKS),
    ("llama", {}, {"attention_bias": True}, LACKS),
    ("mixtral", {}, {"num_local_experts": 3}, LACKS),
    ("llama", {}, {"tie_word_embeddings": True}, "has lm_head.weight with values of its own"),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return a function that makes a copy of the tiny model of a family, to be changed."""
    made = {}

    def copy(family):
        if family not in made:
            made[family] = tmp_path_factory.mktemp("made") / family
            families.make(family, made[family])
        return Path(shutil.copytree(made[family], tmp_path_factory.mktemp("changed") / family))

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
def logits(folder, **options):
    """Return the loaded model's logits for a text."""
    return load_model(folder, device="cpu", **options).network(TEXT).logits


@pytest.mark.filterwarnings("ignore:model .* it is asked on the plain tree")
@pytest.mark.parametrize(("family", "tensors"), HARMLESS)
def test_a_tensor_that_no_answer_depends_on_is_ignored(tiny, logged, family, tensors):
    folder = tiny(family)
    before = logits(folder)
    add(folder, tensors)
    assert torch.equal(logits(folder), before)
    assert not any("LOAD REPORT" in message for message in logged)


@pytest.mark.parametrize(("family", "tensors", "changes", "words"), REFUSED)
def test_weights_that_the_configuration_does_not_describe_are_refused(
    tiny, logged, family, tensors, changes, words
):
    folder = tiny(family)
    add(folder, tensors)
    configure(folder, **changes)
    with pytest.raises(UnsupportedModelError, match=re.escape(words)) as raised:
        load_model(folder, device="cpu")
    assert "\n" not in str(raised.value)
    assert str(folder) in str(raised.value)
    assert logged == []


def test_a_head_of_its_own_is_used_beside_tied_embeddings_if_told(tiny):
    folder = tiny("llama")
    before = logits(folder)
    configure(folder, tie_word_embeddings=True)
    assert torch.equal(logits(folder, tie_word_embeddings=False), before)


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
        load_model(folder, device="cpu")
    assert "weights for model.layers.0.mlp.experts.gate_up_proj are" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert logged == []


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 4096\n"


def test_a_gguf_file_that_is_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "tiny.gguf").write_text(POINTER)
    with pytest.raises(SentenceError, match=r"tiny\.gguf is a Git LFS pointer"):
        load_model(tmp_path / "tiny.gguf", device="cpu")


ADAPTER = {"adapter_config.json": '{"peft_type": "LORA"}'}
ADAPTER_ALONE = ADAPTER | {"adapter_model.safetensors": "", "model.safetensors": None}
# Files that replace those of a folder (None removes one), and why it is refused then, if it is.
FILES = [
    *(
        ({name: POINTER}, f"{name} is a Git LFS pointer, .*run `git lfs pull` in ")
        for name in ("model.safetensors", "tokenizer.json", "config.json")
    ),
    ({"pytorch_model.bin": POINTER}, ""),
    (ADAPTER, ""),
    (ADAPTER_ALONE, "is a PEFT adapter .* merge it into its base model"),
    (ADAPTER | {"config.json": None, "model.safetensors": None}, "is a PEFT adapter"),
]


@pytest.mark.parametrize(("files", "words"), FILES)
def test_pointers_and_adapters_are_named_if_they_are_needed(tiny, files, words):
    folder = tiny("llama")
    for name, content in files.items():
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_text(content)
    with pytest.raises(SentenceError, match=words) if words else nullcontext():
        assert load_model(folder, device="cpu").name == "llama"
