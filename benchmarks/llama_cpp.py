"""Exact search over llama.cpp's own server (`xllamacpp`), which has a bundled model as GGUF, beside the search in this
process.

    python benchmarks/llama_cpp.py --questions 200 --alphas 0.2 0.1 0.05

It needs `pip install xllamacpp gguf`. First the server's numbers are held against transformers': the tokens of prompts,
greedy tokens and the log-probabilities of the whole vocabulary. Then the same questions are searched over it and here.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import served
from gguf import GGUFWriter, LlamaFileType, TokenType
from safetensors.torch import load_file

from pro_lib.base.bundled import bundled_models

# Where a tensor goes: outside the layers, and in one. The embedding is the output as well.
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
INSIDE = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
INSIDE |= {f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"}
INSIDE |= {f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")}


def write_gguf(folder: Path, path: Path) -> Path:
    """A bundled model as GGUF, its weights in float32."""
    config, words = (json.loads((folder / name).read_text()) for name in ("config.json", "tokenizer.json"))
    out = GGUFWriter(path, "llama")
    out.add_file_type(LlamaFileType.ALL_F32)
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    _add_words(out, config, words)
    for name, weight in load_file(folder / "model.safetensors").items():
        out.add_tensor(*_placed(name, weight.float().numpy(), config))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def _add_words(out: GGUFWriter, config: dict, words: dict) -> None:
    """Byte-level BPE, as of GPT-2. Ours parts newlines from all else first: the same where no merge has one."""
    merges = words["model"]["merges"]
    assert not any("Ċ" in part for merge in merges for part in merge)
    special = {token["id"] for token in words["added_tokens"]}
    texts = sorted(words["model"]["vocab"], key=words["model"]["vocab"].get)
    out.add_vocab_size(len(texts))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(texts)
    out.add_token_types([TokenType.CONTROL if n in special else TokenType.NORMAL for n in range(len(texts))])
    out.add_token_merges([" ".join(merge) for merge in merges])
    out.add_bos_token_id(config["bos_token_id"])
    out.add_eos_token_id(config["eos_token_id"])
    out.add_pad_token_id(config["pad_token_id"])
    out.add_add_bos_token(True)


def _placed(name: str, weight: np.ndarray, config: dict) -> tuple[str, np.ndarray]:
    """A tensor under its name in GGUF.

    Rotary positions turn dimension i of a head with i + half in transformers, 2i with 2i + 1 in llama.cpp.
    """
    name = name.removesuffix(".weight")
    if name.endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if name.endswith("q_proj") else "num_key_value_heads"]
        weight = weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
    if name in OUTSIDE:
        return f"{OUTSIDE[name]}.weight", weight
    _, _, layer, inside = name.split(".", 3)
    return f"blk.{layer}.{INSIDE[inside]}.weight", np.ascontiguousarray(weight)


@contextmanager
def serving(path: Path, *, slots: int = 8, length: int = 768, exact: bool = False) -> Iterator[str]:
    """The address of llama.cpp's server with this model; `exact`: caches in float32, no fused attention."""
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path, asked.hostnames, asked.port, asked.verbosity = str(path), ["127.0.0.1"], 0, -1
    asked.n_parallel, asked.n_ctx, asked.n_gpu_layers, asked.warmup = slots, slots * length, 0, False
    asked.kv_unified, asked.cpuparams.n_threads, asked.cpuparams_batch.n_threads = False, 1, 1
    if exact:
        asked.cache_type_k = asked.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        asked.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(asked)
    try:
        yield server.listening_address
    finally:
        del server


def main() -> None:
    """Print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    served.add_arguments(parser)
    parser.add_argument("--exact", action="store_true", help="float32 caches and no fused attention in the server")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(bundled_models()[given.model], Path(folder) / "model.gguf")
        with serving(path, exact=given.exact) as url:
            served.report(url, given)


if __name__ == "__main__":
    main()
