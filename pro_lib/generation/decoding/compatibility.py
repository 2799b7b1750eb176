"""Which tree fits a network, by its configuration and by steps beside plain forward passes; knows no file or text."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING as SEEING
from transformers import MODEL_FOR_MASKED_LM_MAPPING as MASKED
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from pro_lib.common.validation import one_line, refusing
from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    PackedTree,
    Prefix,
    Tree,
    attention_kernels,
    encode_prefix,
)
from pro_lib.generation.decoding.plain_tree import PlainTree

# A guess at what rounding may do: a step of a logit between 16 and 32 is 0.125 nats in bfloat16, 0.016 in float16.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# Slots of other questions in the wide check: more than any known window, or what these bytes of keys and values hold.
_CROWD, _CROWD_BYTES = 8_704, 2**29
# Layers that keep nothing but keys and values, a pair for each token, or keep nothing.
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
_PACKABLE_LAYERS = _ATTENTION | {"moe", "mlp", "sparse", "dense"}
# How far layers of a kind see: the name in the configuration.
_WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
_SHORT = 16  # tokens of a text of the checks


class PackingError(ValueError):
    """Why a network is refused a tree, as what follows its name: "uses …", "gives …"."""


@dataclass(frozen=True)
class Fit:
    """How a network is asked: on the packed tree, or for a reason on the `plain` one, whose rows may be `cached`.

    `error` is how far steps of that tree were from plain forward passes, in nats.
    """

    error: float
    plain: str = ""
    cached: bool = True

    def tree(
        self, network: PreTrainedModel, prompts: Sequence, *, prefix: Prefix, counts: ForwardCounts
    ) -> Tree:
        """Return the tree of some prompts; a plain one does without the prefix."""
        if self.plain:
            return PlainTree(network, prompts, counts, cached=self.cached)
        return PackedTree(network, prompts, prefix, counts)

    def notice(self, name: str) -> str:
        """Say of a model by name that it is asked on the plain tree."""
        return one_line(
            f"model {name} {self.plain}; it is asked on the plain tree: the same answers, slower"
        )


def auto_class(config: PreTrainedConfig) -> Any:
    """Return what loads such a model; one that sees images too is loaded whole, so that no weight is lost."""
    return AutoModelForImageTextToText if type(config) in SEEING else AutoModelForCausalLM


def never_packed(network: PreTrainedModel) -> str:
    """Return what a network declares that no packed tree can have, or nothing: within a window a text is as without."""
    config = network.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    if odd := sorted(set(kinds) - _PACKABLE_LAYERS):
        return f"has layers ({', '.join(odd)}) that keep a state or an index beside keys and values"
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "uses ALiBi, whose distances follow the order of the cache"
    if config.model_type == "gpt_neo":
        return "masks attention by the slots of the cache (attention_types, window_size)"
    if getattr(config, "attn_temperature_tuning", False):
        return "scales attention by the slots of the cache (attn_temperature_tuning, floor_scale)"
    if getattr(network, "_is_stateful", False):
        return "is recurrent: it keeps a state of one sequence beside keys and values"
    return ""


def positions(config: PreTrainedConfig) -> int:
    """Return the most tokens of a text that are read as those of a short one; beyond, RoPE scaling turns all others."""
    rope = getattr(config, "rope_parameters", None) or {}
    scalings = (rope, *(value for value in rope.values() if isinstance(value, dict)))
    longrope = (scaling for scaling in scalings if scaling.get("rope_type") == "longrope")
    limits = (scaling.get("original_max_position_embeddings") for scaling in longrope)
    return min(
        filter(None, (getattr(config, "max_position_embeddings", None), *limits)),
        default=sys.maxsize,
    )


def best_fit(network: PreTrainedModel) -> Fit:
    """Return how short texts are asked: on the packed tree if that is right, else on the plain one, or refuse."""
    check_causal(network)
    reason = never_packed(network)
    try:
        if not reason:
            return Fit(checked_error(network))
    except PackingError as error:
        reason = str(error)
    return _plain_fit(network, reason, _SHORT)


def fit_for_length(network: PreTrainedModel, fit: Fit, n_tokens: int) -> Fit:
    """Return how texts of up to `n_tokens` are asked of a network, or refuse what is beyond its positions."""
    config = network.config.get_text_config()
    longest, kinds = (
        positions(config),
        getattr(config, "layer_types", None) or ("sliding_attention",),
    )
    if n_tokens > longest:
        reason = f"has a number of positions of {longest}, the longest prompt and its answer take {n_tokens} tokens"
        raise PackingError(f"{reason}; use fewer shots or a model that sees further")
    windows = {
        name: getattr(config, name, None) or n_tokens
        for kind, name in _WINDOWS.items()
        if kind in kinds
    }
    short = (
        f"{name.replace('_', ' ')} of {size}" for name, size in windows.items() if n_tokens > size
    )
    window = next(short, None)
    if not fit.plain and not window:
        return fit
    reason = fit.plain or f"has a {window}, texts have {n_tokens}"
    return _plain_fit(
        network, reason, min(longest, 1 << (n_tokens - 1).bit_length()), cached=fit.cached
    )


def _plain_fit(network: PreTrainedModel, reason: str, n_tokens: int, *, cached: bool = True) -> Fit:
    """Return how texts of `n_tokens` are asked on the plain tree: with a cache for each row if that comes out right."""
    ids = _random_text(network, n_tokens)
    try:
        with refusing(PackingError, "cannot go on from a text alone"):
            error = _largest_error(
                network,
                lambda prompts: PlainTree(network, prompts, ForwardCounts(), cached=cached),
                ids,
            )
        _check_rounding(network, error, "a plain step")
    except PackingError:
        if not cached:
            raise
        return _plain_fit(network, reason, n_tokens, cached=False)
    return Fit(error, plain=reason, cached=cached)


def _check_rounding(network: PreTrainedModel, error: float, step: str) -> None:
    """Refuse with a `PackingError` an error in nats that is not rounding."""
    if error > TOLERANCE[network.dtype]:
        trouble = "that are no numbers" if error == float("inf") else f"{error:.3g} nats off"
        raise PackingError(f"gives log-probabilities {trouble} in {network.dtype} on {step}")


@torch.inference_mode()
def check_causal(network: PreTrainedModel) -> None:
    """Refuse with a `PackingError` a network that looks ahead, by its configuration or by what it gives."""
    if type(network.config) in MASKED and not getattr(network.config, "is_decoder", False):
        raise PackingError(
            "is no causal model: its configuration says that it is no decoder (is_decoder)"
        )
    ids = _random_text(network, _SHORT)
    texts = (
        torch.tensor([text], device=network.device) for text in (ids, [*ids[:-1], ids[0]], ids[:-1])
    )
    with (
        refusing(PackingError, "cannot go on from a text alone"),
        attention_kernels(network.device),
    ):
        logits = [
            network(input_ids=text, use_cache=False).logits[0, : _SHORT - 1] for text in texts
        ]
    whole, other, shorter = (rows.float().log_softmax(-1).nan_to_num(nan=0.0) for rows in logits)
    # Texts of one shape round alike, so that half precision hides little; ProphetNet's kind sees how long a text is.
    error = max(float((whole - other).abs().max()), float((whole - shorter)[-1].abs().max()))
    if error > TOLERANCE[network.dtype]:
        raise PackingError(
            f"is no causal model: what comes after a text changes what it gives by {error:.3g} nats"
        )


def checked_error(network: PreTrainedModel) -> float:
    """Return how far packed steps, beside a crowd of slots, are from plain passes, in nats; refuse beyond rounding."""
    ids = _random_text(network, 11)  # within the window of any test model
    with refusing(
        PackingError, "cannot run a packed step, of keys and values, a mask and positions"
    ):
        prefix = encode_prefix(network, ids[:-5])
        size = sum(keys.nbytes + values.nbytes for keys, values in prefix.layers)
        crowd = min(_CROWD, len(prefix.token_ids) * _CROWD_BYTES // max(1, size))
        error = _largest_error(
            network,
            lambda prompts: PackedTree(network, prompts, prefix, ForwardCounts()),
            ids,
            crowd,
        )
    trouble = "it ignores the 4-D mask or the positions, or counts the slots of the cache"
    _check_rounding(network, error, f"a packed step: {trouble}")
    return error


@torch.inference_mode()
def _largest_error(
    network: PreTrainedModel, tree_of: Callable[[list], Any], ids: Sequence[int], crowd: int = 0
) -> float:
    """Compare two prompts that grow out of order, one of them twice, with each text alone."""
    one, other, (a, b, c) = ids[:-3], [*ids[:-5], ids[-4], ids[-5]], ids[-3:]
    tree, keep = tree_of([one, other]), torch.arange(1, 2 + bool(crowd))
    tree.plant()
    if crowd:
        tree.crowd(crowd)
    steps = [tree.grow(torch.tensor([1, 0, 1]), torch.tensor([a, b, c]), keep=keep)]
    steps.append(tree.grow(torch.tensor([0, len(keep) + 1]), torch.tensor([b, c])))
    paths = [[*other, a], [*one, b], [*other, c], [*other, b], [*one, b, c]]
    texts = (torch.tensor([path], device=network.device) for path in paths)
    with attention_kernels(network.device):
        alone = torch.cat(
            [network(input_ids=text, use_cache=False).logits[0, -1:] for text in texts]
        )
    error = (torch.cat(steps) - torch.log_softmax(alone.float(), dim=-1).to(steps[0].device)).abs()
    return float(error.nan_to_num(nan=float("inf")).max())


def _random_text(network: PreTrainedModel, n_tokens: int) -> list[int]:
    """Return a text of random tokens, always the same; those for images and their like lie at vocabularies' ends."""
    config, generator = network.config.get_text_config(), torch.Generator().manual_seed(0)
    n, padding = config.vocab_size, getattr(config, "pad_token_id", None)
    ids = torch.randint(n // 4, n - n // 4, (n_tokens,), generator=generator).tolist()
    if padding in range(n):  # a search may meet it, and RoBERTa's kind counts positions without it
        ids[-2] = padding  # so that paths with and without it are compared
    return ids
