"""Exact search over llama.cpp's own server (`xllamacpp`), which has a bundled model as GGUF, beside the search in this
process.

    python benchmarks/llama_cpp.py --questions 200 --alphas 0.2 0.1 0.05

It needs `pip install xllamacpp gguf`. First the server's numbers are held against transformers': the tokens of prompts,
greedy tokens and the log-probabilities of the whole vocabulary. Then the same questions are searched over it and here.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from gguf import GGUFWriter, LlamaFileType, TokenType
from safetensors.torch import load_file

from pro_lib import endpoint, generate, models, questions
from pro_lib.base.bundled import bundled_models
from pro_lib.endpoint.asking import Asking
from pro_lib.endpoint.client import Client
from pro_lib.models import Model
from pro_lib.runs import Run

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


def agreement(url: str, model: Model, prompts: list[str]) -> dict[str, float]:
    """How far a server is from transformers: how many prompts have other tokens, or another greedy token after them.

    And the largest difference of a log-probability in nats, of all tokens and of those above 0.001.
    """
    others = {"tokens": 0, "greedy": 0, "largest": 0.0, "largest_likely": 0.0}
    size, all_ids = len(model.tokenizer), [model.encode(prompt) for prompt in prompts]

    async def asked() -> list[dict]:
        client = Client(Asking(f"{url}/v1", model.name, top=size, tokenizer=model.tokenizer, api_key_env=None))
        async with client.http as http:
            for prompt, ids in zip(prompts, all_ids, strict=True):
                read = await http.post(f"{url}/tokenize", json={"content": prompt, "add_special": True})
                others["tokens"] += read.json()["tokens"] != ids
            return [await client.complete(ids) for ids in all_ids]

    for ids, response in zip(all_ids, asyncio.run(asked()), strict=True):
        told = response["choices"][0]["logprobs"]["content"][0]
        theirs = np.full(size, np.nan)
        for entry in told["top_logprobs"]:
            theirs[entry["id"]] = entry["logprob"]
        with torch.inference_mode():
            ours = model.network(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1).numpy()
        others["greedy"] += int(told["id"] != ours.argmax())
        off = np.abs(theirs - ours)
        others["largest"] = max(others["largest"], float(off.max()))
        others["largest_likely"] = max(others["largest_likely"], float(off[ours > np.log(1e-3)].max()))
    return others


def found(run: Run, question_id: str, alpha: float) -> dict[tuple[int, ...], np.ndarray]:
    """The answers that a run says to have at least α: their tokens, and log-probabilities of these and of ending."""
    rows = run.answers[(run.answers["question_id"] == question_id) & run.answers["finished"]].fillna(
        {"end_log_prob": 0}
    )
    likely = rows[rows["log_prob"] + rows["end_log_prob"] >= np.log(alpha)]
    return {tuple(row.token_ids): np.append(row.token_log_probs, row.end_log_prob) for row in likely.itertuples()}


def compared(here: Run, there: Run, alpha: float) -> dict[str, float]:
    """How many are decided over the server, here, and otherwise than here.

    And the largest difference of a token of an answer, and of an answer, in nats.
    """
    decided = both = otherwise = 0
    of_token = of_answer = 0.0
    for (_, mine), (_, theirs) in zip(here.questions.iterrows(), there.questions.iterrows(), strict=True):
        both += mine["status"] != "undecided"
        if theirs["status"] == "undecided":
            continue
        decided += 1
        ours, others = (found(run, mine["question_id"], alpha) for run in (here, there))
        otherwise += mine["status"] != theirs["status"] or ours.keys() != others.keys()
        for ids in ours.keys() & others.keys():
            of_token = max([of_token, *np.abs(ours[ids] - others[ids])[:-1]])
            of_answer = max(of_answer, abs(ours[ids].sum() - others[ids].sum()))
    counted = {"decided": decided, "decided_here": both, "otherwise": otherwise}
    return counted | {"of_token": of_token, "of_answer": of_answer}


def searches(
    url: str, model: Model, asked: questions.QuestionSet, alpha: float, **options: object
) -> dict[str, object]:
    """The same questions here and over the server, and what came out."""
    here = generate.generate(model, asked, strategy="threshold", search_alpha=alpha, progress=False)
    options = {"tokenizer": model.tokenizer, "api_key_env": None, "progress": False} | options
    started = time.perf_counter()
    there = endpoint.from_endpoint(f"{url}/v1", asked, model=model.name, search_alpha=alpha, **options)
    seconds = time.perf_counter() - started
    cost = {
        "requests": there.info.cost.model_calls,
        "seconds": round(seconds, 1),
        "seconds_here": here.info.cost.seconds,
    }
    return (
        {"alpha": alpha} | compared(here, there, alpha) | cost | {"noise": there.info.provenance["noise"]["measured"]}
    )


def main() -> None:
    """Print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="facts-2m", choices=bundled_models())
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.2, 0.1, 0.05])
    parser.add_argument("--tops", type=int, nargs="+", default=[20])
    parser.add_argument("--epsilon", type=float, default=0.005)
    parser.add_argument("--exact", action="store_true", help="float32 caches and no fused attention in the server")
    given = parser.parse_args()
    model = models.load(given.model, device="cpu")
    asked = questions.load("world-facts", split="test", limit=given.questions, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(bundled_models()[given.model], Path(folder) / "model.gguf")
        with serving(path, exact=given.exact) as url:
            print(agreement(url, model, asked.prompts()[:20]), flush=True)
            for top in given.tops:
                rows = [searches(url, model, asked, alpha, top=top, epsilon=given.epsilon) for alpha in given.alphas]
                print(f"top={top}", pd.DataFrame(rows).to_string(index=False), sep="\n", flush=True)


if __name__ == "__main__":
    main()
