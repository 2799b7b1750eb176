"""Compare the weights of a checkpoint with those of the network that was loaded from it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Tensors that a network computes itself, so that their values in a checkpoint do not matter.
_BUFFERS = (
    "_extra_state", "causal_mask", "cos_cached", "embed_positions", "inv_freq", "masked_bias",
    "original_inv_freq", "position_ids", "sin_cached", "version",
)  # fmt: skip
# Scales of a quantized cache of keys and values; the cache is not quantized here.
_CACHE_SCALES = ("k_scale", "kv_scale", "v_scale")
# Modules that predict several tokens ahead, heads for other tasks, and towers for images and sound.
_MODULES = (
    r"mtp\w*", "nextn", "pooler", "seq_relationship", "v_head",
    r"(\w+_)?(audio|image|multi_modal|mm|speech|video|vision|visual)(_\w+)?",
)  # fmt: skip
_TENSOR_NAME = re.compile(rf"(^|\.)({'|'.join(_BUFFERS + _CACHE_SCALES)})$")
_MODULE_NAME = re.compile(rf"(^|\.)({'|'.join(_MODULES)})(\.|$)")
# Only a layer that predicts several tokens ahead has one of these (DeepSeek, GLM, Step, Ling).
_AHEAD = re.compile(r"(.+?\.\d+)\.(eh_proj|enorm|hnorm)\.")
_ATTENTION = re.compile(r"att(entio)?n$")
# Marks of what transformers logs about the weights of a checkpoint.
_REPORTS = ("LOAD REPORT", "tied weights mapping")
# A row of the report: a weight that could not be made of those of the checkpoint.
_CONVERSION = re.compile(r"^(\S+)\s*\|[^|]*\bCONVERSION\b", re.MULTILINE)


def unexpected_weights(network: PreTrainedModel, keys: Iterable[str]) -> list[str]:
    """Return which of a checkpoint's unused tensors should take part in the answers to a text.

    Args:
        network: the network that was loaded from the checkpoint.
        keys: the names that transformers reports as unexpected.
    """
    keys = sorted(keys)
    modules = dict(network.named_modules())
    buffers = {name for name, _ in network.named_buffers()}
    ahead = {match[1] for match in map(_AHEAD.match, keys) if match and match[1] not in modules}

    def matters(key: str) -> bool:
        parent, _, leaf = key.rpartition(".")
        module = modules.get(parent)
        # Old checkpoints store the causal mask as the "bias" of an attention module. Real biases
        # belong to its projections, which do not have modules of their own.
        is_mask = leaf == "bias" and module is not None and _is_attention(parent, module)
        is_computed = key in buffers or is_mask or _TENSOR_NAME.search(key)
        is_ahead = any(key.startswith(f"{layer}.") for layer in ahead)
        return not (is_computed or is_ahead or _MODULE_NAME.search(key))

    return [key for key in keys if matters(key)]


def _is_attention(name: str, module: nn.Module) -> bool:
    """Return whether a module is an attention module with projections in it."""
    return bool(_ATTENTION.search(name)) and next(module.children(), None) is not None


def zero_biases(folder: Path, keys: Iterable[str]) -> set[str]:
    """Return which of some tensors are biases that are 0 everywhere, as GPTQ checkpoints have them.

    Only safetensors files are read; a bias in another file is not found, and so is not returned.
    """
    biases = {key for key in keys if key.endswith(".bias")}
    zeros: set[str] = set()
    others: set[str] = set()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in biases & set(file.keys()):
                is_zero = not file.get_tensor(key).float().any()
                (zeros if is_zero else others).add(key)
    return zeros - others


def contradictions(network: PreTrainedModel, loading: Mapping, folder: Callable[[], Path]) -> str:
    """Say how the weights of a checkpoint differ from those that its configuration describes.

    Args:
        network: the network that was loaded from the checkpoint.
        loading: the loading info of transformers' `from_pretrained`.
        folder: finds the folder of the checkpoint; called only if its tensors must be read.

    Returns:
        The rest of a sentence whose subject is the model; an empty text if nothing differs.
    """
    mismatched = [key for key, *_ in loading["mismatched_keys"]]
    lacking = sorted([*loading["missing_keys"], *mismatched])
    if lacking:
        return (
            f"lacks {_count(lacking)}, or has them in other shapes: {', '.join(lacking[:3])}; "
            "use the config.json that belongs to its weights"
        )
    unexpected = unexpected_weights(network, loading["unexpected_keys"])
    if any(key.endswith(".bias") for key in unexpected):
        zeros = zero_biases(folder(), unexpected)
        unexpected = [key for key in unexpected if key not in zeros]
    if unexpected:
        return (
            f"has {_count(unexpected)} that its configuration does not describe: "
            f"{', '.join(unexpected[:3])}; its answers would be computed without them, so use the "
            "config.json that belongs to its weights"
        )
    untied = untied_weights(network)
    if untied:
        return (
            f"has {', '.join(untied[:3])} with values of its own, but its configuration ties it to "
            "the embeddings; pass tie_word_embeddings=False to use both, or correct config.json"
        )
    return ""


def _count(weights: Sequence[str]) -> str:
    """Return the number of weights in words, such as `1 weight`."""
    return f"{len(weights)} weight{'s' * (len(weights) != 1)}"


def untied_weights(network: PreTrainedModel) -> list[str]:
    """Return the weights that the configuration ties to others although the checkpoint's differ."""
    if not getattr(network.config.get_text_config(), "tie_word_embeddings", False):
        return []
    declared = network.get_expanded_tied_weights_keys(all_submodels=True)
    return sorted(set(declared) - set(network.all_tied_weights_keys))


@contextmanager
def without_reports() -> Iterator[None]:
    """Hold back what transformers logs about missing, unexpected and tied weights within.

    Raises `ValueError` if weights cannot be merged, for which transformers refers to its report.
    """
    logger = logging.getLogger("transformers.modeling_utils")
    reports: list[str] = []

    def is_other(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_report = any(mark in message for mark in _REPORTS)
        if is_report:
            reports.append(message)
        return not is_report

    logger.addFilter(is_other)
    try:
        yield
    except RuntimeError as error:
        names = _CONVERSION.findall("\n".join(reports))
        if not names:
            raise
        trouble = f"weights for {', '.join(names[:3])} are missing or have the wrong shape"
        raise ValueError(trouble) from error
    finally:
        logger.removeFilter(is_other)
