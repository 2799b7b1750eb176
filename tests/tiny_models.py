"""Tiny real models of every architecture class, saved and loaded as a user's would be."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

CORPUS = ["Question: What is the capital of France?\nAnswer: Paris\n\n"]
CORPUS += ["Question: Who wrote Emma?\nAnswer: Jane Austen\n\n"]
FALCON = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SHAPE = FALCON | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 256}
FALCON |= {"alibi": False, "new_decoder_architecture": False}
NEW_FALCON = FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}
# The further settings of a family, apart from its shape. Each of the paper's five models has its
# own: Gemma-2B has one key-value head, Gemma-7B and Llama-2-13B one per head, and Falcon-11B a
# single layer norm before attention and feed-forward, which run in parallel.
CONFIGS = {
    "llama": SHAPE,
    "gemma": SHAPE | {"head_dim": 8},
    "gemma2": SHAPE | {"head_dim": 8, "sliding_window": 128},
    "mistral": SHAPE | {"sliding_window": None},
    "qwen2": SHAPE,
    "falcon-7b": FALCON | {"multi_query": True},
    "gemma-2b": SHAPE | {"num_key_value_heads": 1, "head_dim": 16},
    "gemma-7b": SHAPE | {"num_key_value_heads": 4, "head_dim": 16},
    "Llama-2-13b-chat-hf": SHAPE | {"num_key_value_heads": 4},
    "falcon-11B": NEW_FALCON | {"num_ln_in_parallel_attn": 1},
    "falcon-40b": NEW_FALCON,
    "falcon-alibi": FALCON | {"alibi": True},
    "mistral-window": SHAPE | {"sliding_window": 16},
}


def tiny_tokenizer(*, bos: bool, merges: int = 40) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that puts a beginning-of-text token first, or does not."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    how = {
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "special_tokens": special,
        "show_progress": False,
    }
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=256 + len(special) + merges, **how)
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    names = {"pad_token": "<pad>", "eos_token": "</s>"} | ({"bos_token": "<s>"} if bos else {})
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


FAMILIES = ("llama", "gemma", "gemma2", "mistral", "qwen2", "falcon-7b", "falcon-40b")
PAPER = ("gemma-2b", "gemma-7b", "Llama-2-13b-chat-hf", "falcon-11B", "falcon-40b")
WITHOUT_BOS = ("qwen2", "falcon-7b", "falcon-11B", "falcon-40b")


@torch.no_grad()
def widen(network):
    """Make a random network's answers differ and end."""
    for parameter in network.parameters():
        parameter.mul_(4 if parameter.dim() > 1 else 1)


def save_tiny(family: str, folder: Path) -> Path:
    """Write a tiny random model with large weights, so that its answers differ and end."""
    tokenizer = tiny_tokenizer(bos=family not in WITHOUT_BOS)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(family.split("-")[0].lower(), **CONFIGS[family], **ids)
    torch.manual_seed(sum(family.encode()))
    network = AutoModelForCausalLM.from_config(config)
    widen(network)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
