"""Test each model family of the installed transformers with a tiny random model.

    python benchmarks/families.py [FAMILY …]

A model is made from the configuration class of its family, saved, and loaded as by a user. Its
answers to short prompts and to prompts beyond its windows are compared with plain forward passes
and with `generate`. The script prints a row for each family. If no families are named, it writes
docs/results/data/families.csv.
"""

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pandas as pd
import torch
import transformers
from measuring import ROOT, parse_arguments, world_facts
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from pro_lib.generation import models
from pro_lib.generation.decoding.compatibility import auto_class
from pro_lib.generation.models import Model
from pro_lib.generation.run_generation import generate
from pro_lib.questions.question_sets import QuestionSet

# The twenty families that people probably use most: `make test-all` tests them, `make trials` all.
NAMES = """
llama qwen2 qwen3 qwen3_moe qwen3_5 qwen3_next mistral mistral3 mixtral gemma2 gemma3 gemma4 phi3
gpt_oss deepseek_v3 glm4_moe granitemoehybrid nemotron_h lfm2 llama4
"""
MOST_USED = NAMES.split()
WINDOW = 64
TOKENS = 5
# Number of shots: prompts within the window, and beyond it
SHOTS = {"short": 0, "long": 4}
N_QUESTIONS = 4
N_SAMPLES = 2
N_GENERATED = 2
# A tiny configuration: values, and the entries that get them at any depth
SIZES = """
32 hidden_size d_model n_embd embedding_size embed_dim out_hidden_size projection_dim
32 text_hidden_size output_dim
32 projector_hidden_size base_channels adapter_in_dim adapter_out_dim adapter_input_size
4 num_hidden_layers n_layer n_layers num_layers num_attention_heads n_head n_heads num_heads
4 encoder_attention_heads
4 attention_heads decoder_attention_heads num_key_value_heads linear_num_heads
4 swa_num_attention_heads
4 swa_num_key_value_heads linear_num_value_heads num_experts num_local_experts n_routed_experts
4 moe_num_experts
4 mamba_dt_rank time_step_rank
2 depth encoder_layers decoder_layers num_encoder_layers num_decoder_layers num_experts_per_tok
2 moe_k
2 num_experts_per_token moe_top_k top_k_experts index_n_heads linear_num_key_heads
8 head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim rotary_dim hidden_size_per_layer_input
8 swa_head_dim
8 linear_head_dim linear_key_head_dim linear_value_head_dim mamba_d_state mamba_n_heads
8 mamba_num_heads mamba_head_dim
8 ssm_state_size state_size
16 qk_head_dim q_lora_rank kv_lora_rank o_lora_rank index_head_dim moe_intermediate_size
16 shared_expert_intermediate_size
16 moe_shared_expert_intermediate_size router_hidden_size mamba_chunk_size chunk_size
64 intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner mlp_dim
64 intermediate_size_mlp ffn_hidden_size
64 dense_intermediate_size shared_intermediate_size
4096 max_position_embeddings n_positions max_source_positions max_target_positions
1 n_group topk_group num_shared_experts n_shared_experts first_k_dense_replace
1 moe_num_shared_experts n_groups
0 num_nextn_predict_layers num_mtp_layers
28 image_size
14 patch_size
"""
TINY = {
    name: int(value)
    for value, *names in map(str.split, SIZES.strip().splitlines())
    for name in names
}
WINDOWS = {"attention_chunk_size", "attention_window_size", "window_size", "local_attention"}
WINDOWS |= {"sliding_window", "sliding_window_size"}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MIXED = {"layer_types": ["linear_attention", "full_attention"] * 2}
CONV = {"layer_types": ["conv", "full_attention"] * 2}
SPARSE = {"mlp_layer_types": ["dense", "sparse"] * 2}
HYBRID = {
    "layers_block_type": ["mamba", "hybrid"] * 2,
    "attention_hidden_size": 64,
    "attention_head_dim": 16,
}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
MROPE = {"rope_parameters": ROPE | {"mrope_section": [2, 1, 1]}}
MROPE_TEXT = {"text_config": MROPE}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"] * 2}
SLIDING_ROPE = SLIDING | {"rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE}}
GEMMA_3N = {
    "intermediate_size": 64,
    "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0],
    "num_kv_shared_layers": 2,
}
GEMMA_3N |= SLIDING | {"laurel_rank": 8}
INDEXER = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16}
QWEN_4 = {
    "layer_types": ["linear_attention", "indexed_attention"] * 2,
    "indexer_compress_ratio": 2,
} | INDEXER
QWEN_4 |= {
    "hc_lowrank": 8,
    "ple_embed_dim": 16,
    "ngram_vocab_size_base": 64,
    "split_ngram_parts": 2,
}
STEP = {"sliding_window": WINDOW, "share_expert_dim": 16}
DOTS = {"per_layer_config": {}, "head_dim": 16}
BLT = {"hidden_size_global": 32}
DBRX = {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}}
ERNIE = {"rope_parameters": ROPE | {"mrope_section": [1, 1, 2]}}
GRANITE = {"deepstack_layer_map": [[1, 0]], "downsample_rate": "1/2", "spatial_target_layers": [1]}
MIXED_TEXT = {"text_config": MIXED}
VISION = {"vision_config": {"architecture": "test_vit", "model_args": None}}
# Other entries that a family needs to be consistent, or to have layers of both kinds
OWN = {
    **dict.fromkeys(
        ("cosmos3_edge", "glm4v", "glm46v", "glm_ocr", "glmga", "hunyuan_vl", "paddleocr_vl"),
        MROPE_TEXT,
    ),
    **dict.fromkeys(("qwen2_5_omni_thinker", "qwen2_5_vl", "qwen2_vl"), MROPE_TEXT),
    **dict.fromkeys(("kimi_linear", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"), MIXED),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), MIXED_TEXT),
    **dict.fromkeys(("lfm2", "lfm2_moe"), CONV),
    "bailing_hybrid": MIXED | SPARSE | {"num_expert_group": 1},
    "bamba": {"attn_layer_indices": [1, 3]},
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_config": BLT, "decoder_config": BLT},
    "chameleon": {"vocabulary_map": {"<image>": 380}},
    "cohere_compass": {"text_config": SLIDING_ROPE},
    "cohere_compass_text": SLIDING_ROPE,
    "dbrx": DBRX,
    "deepseek_ocr2": {"text_config": SPARSE},
    "dots3_note": {"text_config": DOTS, "vision_config": {"per_layer_config": {}}},
    "dots3_note_text": DOTS,
    "emu3": {"vocabulary_map": {"<image>": 380, "<|extra_200|>": 381}},
    "ernie4_5_vl_moe": {"text_config": ERNIE | {"moe_intermediate_size": [16, 16]}},
    "exaone4_5": {"text_config": {"model_type": "exaone4"}},
    "falcon_h1": {"mamba_d_ssm": 64},
    "fast_vlm": VISION,
    "gemma3n": {"text_config": GEMMA_3N, "vision_config": {"architecture": "test_efficientnet"}},
    "gemma3n_text": GEMMA_3N,
    "glm4v_moe": {"text_config": MROPE | {"partial_rotary_factor": 1.0}},
    "glm5_next": {"text_config": {"qk_rope_head_dim": 0}},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granite4_vision": GRANITE | {"vision_config": {"hidden_size": 64}},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_vl": {"text_config": CONV},
    "longcat_flash": {"expert_ffn_hidden_size": 16, "zero_expert_num": 2, "moe_topk": 2},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "mimo_v2_flash": {"num_attention_heads": 8},
    "mistral4": {
        "rope_parameters": ROPE
        | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 8192}
    },
    "molmo2": {"adapter_config": {"vision_feature_layer": [-1, -2]}},
    "muse_spark": {"audio_config": {"hidden_sizes": [16, 16, 32, 32]}},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "moe", "attention"]},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "perception_lm": {"vision_config": VISION["vision_config"] | {"model_args": {"embed_dim": 64}}},
    "prophetnet": {"max_position_embeddings": 512},
    "qwen4_exp": {"text_config": QWEN_4},
    "qwen4_exp_text": QWEN_4,
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [64, 64]},
    "step3p7": {"text_config": SLIDING_ROPE | SPARSE | STEP},
    "xlm": {"emb_dim": 32},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "xmod": {"default_language": "en_XX"},
    "zamba": HYBRID | {"n_mamba_heads": 2},
    "zamba2": HYBRID,
    "zaya": {"num_experts_per_tok": 1},
}


def families() -> list[str]:
    """Return the model types of causal models and of models of images and text."""
    return sorted(
        {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    )


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with a few merges, without a beginning-of-text token."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": special, "initial_alphabet": alphabet, "show_progress": False}
    bpe.train_from_iterator(
        world_facts(N_QUESTIONS, 3).prompts(), trainers.BpeTrainer(vocab_size=384, **options)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def tiny(declared: Mapping, vocabulary: int) -> dict[str, object]:
    """Return the entries that make a configuration tiny."""
    entries: dict[str, object] = {}
    for name, value in declared.items():
        if isinstance(value, Mapping) and name.endswith("_config") and name != "per_layer_config":
            nested = tiny(value, vocabulary)
            if nested:
                entries[name] = nested
        elif name in ("vocab_size", "vocab_size_per_layer_input"):
            entries[name] = vocabulary
        elif name in WINDOWS and isinstance(value, int) and not isinstance(value, bool):
            entries[name] = WINDOW
        elif name in TINY | IDS and not isinstance(value, str | list | bool):
            entries[name] = (TINY | IDS)[name]
    return entries


def merged(one: Mapping, other: Mapping) -> dict[str, object]:
    """Merge two nested dictionaries; the second has precedence."""
    both = {
        name: merged(one[name], other[name])
        for name in one.keys() & other.keys()
        if isinstance(one[name], Mapping)
    }
    return {**one, **other, **both}


def configured(family: str, vocabulary: int, **changes: object) -> PreTrainedConfig:
    """Return the tiny configuration of a family, with other entries from `changes`."""
    base = AutoConfig.for_model(family).to_dict()
    entries = merged(OWN.get(family, {}), changes)
    return AutoConfig.for_model(family, **merged(tiny(base, vocabulary), entries))


def make(
    family: str, folder: Path, words: PreTrainedTokenizerFast | None = None, **changes: object
) -> None:
    """Save a tiny random model of a family, with large weights so that its answers differ."""
    words = words or tokenizer()
    config = configured(family, len(words), **changes)
    words.save_pretrained(folder)
    load = auto_class(config)
    # The package refuses such a model before it reads the weights.
    if config.is_encoder_decoder and load is not AutoModelForCausalLM:
        config.save_pretrained(folder)
        return
    with torch.device("meta"):
        size = load.from_config(config).num_parameters()
    if size > 2e7:
        raise ValueError(f"{family} has {size / 1e6:.0f} million weights; expected at most 20")
    torch.manual_seed(0)
    network = load.from_config(config)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            # `A_log` is a logarithm; four times its value would be an extreme decay of states.
            if parameter.dim() > 1 and parameter.is_floating_point() and not name.endswith("A_log"):
                parameter.mul_(4)
    network.save_pretrained(folder)


def tried(folder: Path) -> dict[str, object]:
    """Return the row of a model in a folder: its tree, the error of its answers, a message."""
    row: dict[str, object] = {"family": folder.name, "tree": "refused", "said": ""}
    try:
        model = models.load_model(folder, device="cpu", dtype="float32")
        row |= {"class": type(model.network).__name__, "error": 0.0, "greedy": True}
        for length, n_shots in SHOTS.items():
            row |= _answered(model, world_facts(N_QUESTIONS, n_shots), row, length)
    except (models.UnsupportedModelError, FileNotFoundError) as refused:
        row |= {
            "tree": "refused",
            "said": str(refused).replace(f"{folder.parent}/", ""),
            "error": None,
            "greedy": None,
        }
    return row


def _answered(model: Model, questions: QuestionSet, row: Mapping, length: str) -> dict[str, object]:
    """Return the entries of a row from the answers to some questions.

    Greedy answers are compared with `generate`, and all answers with plain forward passes.
    """
    prompts = [model.encode(prompt) for prompt in questions.prompts()]
    fit = model.fit_for(max(map(len, prompts)) + TOKENS)
    options = {"max_new_tokens": TOKENS, "progress": False}
    greedy = generate(model, questions, strategy="greedy", **options).answers
    samples = generate(
        model, questions, strategy="multinomial", n_answers=N_SAMPLES, seed=1, **options
    ).answers
    errors = [row["error"]]
    for answers in (greedy, samples):
        groups = answers.groupby("question_id", sort=False)
        for prompt, (_, answers_of_question) in zip(prompts, groups, strict=True):
            for answer in answers_of_question.itertuples():
                errors.append(_off(model.network, prompt, answer))
    is_greedy = row["greedy"]
    for prompt, token_ids in zip(prompts[:N_GENERATED], greedy["token_ids"], strict=False):
        is_greedy = is_greedy and _is_greedy(model.network, prompt, token_ids)
    tree = "plain" if fit.plain else "packed"
    if length == "long" and tree != row["tree"]:
        tree = "packed, plain beyond its window"
    entries = {"tree": tree, "error": max(errors), "greedy": is_greedy}
    entries["said"] = fit.plain or row["said"]
    if fit.plain:
        entries["cache"] = "kept" if fit.cached else "none"
    return entries


@torch.inference_mode()
def _off(network: torch.nn.Module, prompt: list[int], answer: object) -> float:
    """Return the largest error of an answer's log-probabilities, by one plain forward pass."""
    ids = list(answer.token_ids)
    if not ids:
        return 0.0
    logits = network(input_ids=torch.tensor([prompt + ids]), use_cache=False).logits[
        0, -len(ids) - 1 : -1
    ]
    plain = torch.log_softmax(logits.float(), dim=-1)[range(len(ids)), ids].double()
    return float((torch.tensor(list(answer.token_log_probs)) - plain).abs().max())


def _is_greedy(network: torch.nn.Module, prompt: list[int], answer: list[int]) -> bool:
    """Return whether the output of `generate` begins with these tokens."""
    ids = torch.tensor([prompt])
    # Longer than the answer, since some configurations force the last token to be an end.
    options = {
        "do_sample": False,
        "max_new_tokens": TOKENS + 2,
        "attention_mask": torch.ones_like(ids),
    }
    try:
        generated = network.generate(ids, **options)[0, len(prompt) :].tolist()
    except AttributeError:  # from a library that expects images with the text
        return False
    return generated[: len(answer)] == list(answer)


def table(names: list[str]) -> Iterator[dict[str, object]]:
    """Yield a row for each family."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                make(name, Path(folder) / name)
            except (Exception, SystemExit) as failure:  # transformers has no common class of errors
                message = str(failure).strip().replace("\n", " ")
                row = {
                    "family": name,
                    "tree": "not made",
                    "said": f"{type(failure).__name__}: {message[:120]}",
                }
            else:
                row = tried(Path(folder) / name)
        yield row


COLUMNS = ("family", "class", "tree", "cache", "error", "greedy", "said")


def main() -> None:
    """Test the named families, or all, and write their rows."""
    arguments = parse_arguments(__doc__, {"families": []})
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    rows = []
    for row in table(arguments.families or families()):
        rows.append(row)
        print(*(f"{name}={row[name]}" for name in COLUMNS if row.get(name) is not None), flush=True)
    if not arguments.families:
        path = ROOT / "docs" / "results" / "data" / "families.csv"
        written = pd.DataFrame(rows).reindex(columns=COLUMNS)
        written["error"] = written["error"].map("{:.1e}".format, na_action="ignore")
        written.to_csv(path, index=False)


if __name__ == "__main__":
    main()
