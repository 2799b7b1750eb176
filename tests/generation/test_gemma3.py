"""Gemma 3 at tiny size: its GGUF file, and the memory of a wide vocabulary."""

import json

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pro_lib import load_model
from pro_lib.common import catalog, downloads
from pro_lib.generation.decoding.compatibility import Fit, fit_for_length

WINDOW = 16
LAYERS = 6  # of which every sixth has full attention
SHAPE = {"hidden_size": 16, "intermediate_size": 32, "head_dim": 8, "num_hidden_layers": LAYERS}
SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": WINDOW}
SHAPE |= {"max_position_embeddings": 512, "tie_word_embeddings": True}
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
PIECES = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz"]


def tiny_network(vocab_size):
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    config = AutoConfig.for_model("gemma3_text", vocab_size=vocab_size, **SHAPE, **ids)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).float().eval()


@pytest.fixture(scope="module")
def wide():
    """A network with the vocabulary of Gemma 3."""
    return tiny_network(262_144)


@pytest.fixture
def passes(wide, monkeypatch):
    """The number of logits of each forward pass of the wide network."""
    seen = []
    forward = type(wide).forward

    def recorded(network, *arguments, **options):
        output = forward(network, *arguments, **options)
        seen.append(output.logits.shape[1])
        return output

    # The signature says that the network can keep the last logits alone.
    recorded.__wrapped__ = forward
    monkeypatch.setattr(type(wide), "forward", recorded)
    return seen


def test_the_check_of_a_long_text_keeps_the_last_logits_alone(wide, passes):
    fit_for_length(wide, Fit(0.0), 100)
    assert len(passes) >= 5
    assert max(passes) < WINDOW  # all logits of such a text take 128 MB each time


def test_a_length_is_checked_once_for_a_model(wide, passes):
    first = fit_for_length(wide, Fit(0.0), 200)
    passes.clear()
    second = fit_for_length(wide, Fit(0.0), 250)
    assert passes == []
    assert (first.error, first.cached) == (second.error, second.cached)
    assert second.plain == f"has a sliding window of {WINDOW}, texts have 250"


GGUF_VALUES = {
    "context_length": SHAPE["max_position_embeddings"],
    "embedding_length": SHAPE["hidden_size"],
    "block_count": LAYERS,
    "feed_forward_length": SHAPE["intermediate_size"],
    "head_count": SHAPE["num_attention_heads"],
    "head_count_kv": SHAPE["num_key_value_heads"],
    "layer_norm_rms_eps": 1e-6,
    "key_length": SHAPE["head_dim"],
    "value_length": SHAPE["head_dim"],
    "sliding_window": WINDOW,
    "rope_freq_base": 1e6,
    "vocab_size": len(PIECES),
    "tokenizer_model": "llama",
    "token_list": PIECES,
    "token_scores": [-float(rank) for rank in range(len(PIECES))],
    "token_types": [3, 3, 3, 2] + [6] * 256 + [1] * (len(PIECES) - 260),
    "bos_token_id": 2,
    "eos_token_id": 1,
    "unk_token_id": 3,
    "pad_token_id": 0,
}


@pytest.fixture
def gguf_file(tmp_path):
    """A GGUF file of a tiny network, and the network."""
    network = tiny_network(len(PIECES))
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    for name, value in GGUF_VALUES.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, LAYERS)
    for name, tensor in network.state_dict().items():
        if name.startswith("lm_head"):
            continue  # it is the embedding
        values = tensor.numpy().astype(np.float32)
        if name.endswith("norm.weight"):
            values = values + 1  # GGUF files store 1 + weight
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, network


def test_a_gguf_file_has_the_weights_and_log_probabilities_of_its_network(gguf_file):
    path, network = gguf_file
    loaded = load_model(path, device="cpu").network
    weights = loaded.state_dict()
    for name, tensor in network.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    ids = torch.randint(4, len(PIECES), (1, 3 * WINDOW))
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, network(ids).logits)


def test_a_large_gguf_file_is_converted_once(gguf_file, tmp_path, monkeypatch, capsys):
    path, network = gguf_file
    monkeypatch.setattr(catalog, "CACHE", tmp_path / "cache" / "models")
    monkeypatch.setattr(downloads, "_SMALL", 0)
    first = load_model(path, device="cpu")
    assert "tiny.gguf is stored in" in capsys.readouterr().err
    monkeypatch.setattr(downloads, "_convert", None)  # it is not called again
    second = load_model(path, device="cpu")
    assert (first.name, first.fingerprint) == (second.name, second.fingerprint)
    ids = torch.randint(4, len(PIECES), (1, 20))
    with torch.no_grad():
        torch.testing.assert_close(second.network(ids).logits, network(ids).logits)


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_converted_model_does_not_depend_on_the_network(
    gguf_file, tmp_path, monkeypatch, is_offline
):
    path, _ = gguf_file
    monkeypatch.setattr("transformers.tokenization_utils_base.is_offline_mode", lambda: is_offline)
    downloads._convert(path, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert config["local_files_only"] is False
