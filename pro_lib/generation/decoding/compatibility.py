"""Which tree is right for a network, by its configuration and by comparison with plain passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)

from pro_lib.common.validation import one_line, refusing
from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    PackedTree,
    Prefix,
    Tree,
    attention_kernels,
    common_prefix_length,
    encode_prefix,
    keep_logits,
)
from pro_lib.generation.decoding.plain_tree import PlainTree

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Nats that rounding may cause; an estimate. One step of a logit between 16 and 32 is 0.125 nats in
# bfloat16 and 0.016 nats in float16.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# Slots of other questions in the check of the packed tree: more than any known attention window,
# or as many as these bytes of keys and values hold.
_CROWD = 8_704
_CROWD_BYTES = 2**29
# Layers that keep a key and a value for each token, or keep nothing.
_PACKABLE_LAYERS = {
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "attention",
    "moe",
    "mlp",
    "sparse",
    "dense",
}
# Setting of a configuration that limits how far layers of a type attend.
_WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
# Tokens of a text in the checks. The check of the packed tree stays within small windows.
_SHORT = 16
_SHORTER = 11


class PackingError(ValueError):
    """A network cannot be used with a tree.

    The message is the reason without a subject, such as "uses ALiBi"; callers add the model's name.
    """


@dataclass(frozen=True)
class Fit:
    """The tree that is right for a network.

    Attributes:
        error: largest difference between steps of the tree and plain forward passes, in nats.
        plain: the reason why the plain tree is used; empty for the packed tree.
        cached: whether the plain tree keeps keys and values.
    """

    error: float
    plain: str = ""
    cached: bool = True

    def prefix(
        self,
        network: PreTrainedModel,
        sequences: Sequence[Sequence[int]],
        counts: ForwardCounts | None = None,
    ) -> Prefix:
        """Run the tokens with which all sequences begin; a plain tree does not use them."""
        length = 0 if self.plain else common_prefix_length(sequences)
        return encode_prefix(network, sequences[0][:length], counts=counts)

    def tree(
        self, network: PreTrainedModel, prompts: Sequence, *, prefix: Prefix, counts: ForwardCounts
    ) -> Tree:
        """Return the tree of some prompts.

        Args:
            network: the network.
            prompts: token ids of the prompts.
            prefix: the encoded beginning of the prompts; a plain tree does not use it.
            counts: counts of tokens and forward passes, which the tree increases.
        """
        if self.plain:
            return PlainTree(network, prompts, counts, cached=self.cached)
        return PackedTree(network, prompts, prefix, counts)

    def notice(self, name: str) -> str:
        """Return the warning that the model of this name uses the plain tree."""
        return one_line(
            f"model {name} {self.plain}; it is asked on the plain tree: the same answers, slower"
        )


def auto_class(config: PreTrainedConfig) -> Any:
    """Return the class that loads a model.

    A model that also takes images is loaded as a whole, because otherwise weights would be missing.
    """
    if type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def unpackable_feature(network: PreTrainedModel) -> str:
    """Return the feature of a network that no packed tree supports, or an empty text.

    Only the configuration is read. Attention windows are not among these features, because a text
    that is shorter than the window is not affected by it.
    """
    config = network.config.get_text_config()
    layers = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    unpackable = sorted(set(layers or ()) - _PACKABLE_LAYERS)
    if unpackable:
        names = ", ".join(unpackable)
        return f"has layers ({names}) that keep a state or an index beside keys and values"
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
    """Return the number of tokens up to which a text is processed like a short one.

    It is the number of positions. With LongRoPE it is the original number of positions: a longer
    text changes the rotation of all its tokens.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    # The parameters of one rotation, or of several by the type of the layer.
    rotations = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    limits = [
        rotation.get("original_max_position_embeddings")
        for rotation in rotations
        if rotation.get("rope_type") == "longrope"
    ]
    limits.append(getattr(config, "max_position_embeddings", None))
    return min((limit for limit in limits if limit), default=sys.maxsize)


def best_fit(network: PreTrainedModel) -> Fit:
    """Return the tree for short texts: the packed one if it is right, else the plain one.

    Raises:
        PackingError: the network is not causal, or no tree is right.
    """
    check_causal(network)
    reason = unpackable_feature(network)
    if not reason:
        try:
            return Fit(checked_error(network))
        except PackingError as error:
            reason = str(error)
    return _plain_fit(network, reason, _SHORT)


# The fits that `fit_for_length` has checked, by the length of the text and by `Fit.cached`. The
# check takes five passes over a long text, and every run needs it.
_CHECKED_FITS: WeakKeyDictionary[PreTrainedModel, dict[tuple[int, bool], Fit]] = WeakKeyDictionary()


def fit_for_length(network: PreTrainedModel, fit: Fit, n_tokens: int) -> Fit:
    """Return the tree for texts of a length.

    Args:
        network: the network.
        fit: the tree for short texts.
        n_tokens: number of tokens of the longest prompt and its answer.

    Raises:
        PackingError: the texts are longer than the network's positions, or no tree is right.
    """
    config = network.config.get_text_config()
    longest = positions(config)
    if n_tokens > longest:
        raise PackingError(
            f"has {longest} positions, but the longest prompt and its answer take {n_tokens} "
            "tokens; use fewer shots or a model with more positions"
        )
    window = _exceeded_window(config, n_tokens)
    if not fit.plain and not window:
        return fit
    reason = fit.plain or f"has a {window}, texts have {n_tokens}"
    # A power of two, so that texts of similar lengths are checked in the same way.
    n_checked = min(longest, 1 << (n_tokens - 1).bit_length())
    checked_fits = _CHECKED_FITS.setdefault(network, {})
    key = (n_checked, fit.cached)
    if key not in checked_fits:
        checked_fits[key] = _plain_fit(network, reason, n_checked, cached=fit.cached)
    return replace(checked_fits[key], plain=reason)


def _exceeded_window(config: PreTrainedConfig, n_tokens: int) -> str:
    """Return the first attention window that is shorter than a text, in words, or ""."""
    layers = getattr(config, "layer_types", None) or ("sliding_attention",)
    for kind, name in _WINDOWS.items():
        size = getattr(config, name, None)
        if kind in layers and size and n_tokens > size:
            return f"{name.replace('_', ' ')} of {size}"
    return ""


def _plain_fit(network: PreTrainedModel, reason: str, n_tokens: int, *, cached: bool = True) -> Fit:
    """Return the plain tree, with a cache if that is right for texts of `n_tokens`."""

    def make_tree(prompts: list[list[int]]) -> PlainTree:
        return PlainTree(network, prompts, ForwardCounts(), cached=cached)

    ids = _random_text(network, n_tokens)
    try:
        with refusing(PackingError, "cannot go on from a text alone"):
            error = _largest_error(network, make_tree, ids)
        _check_rounding(network, error, "a plain step")
    except PackingError:
        if not cached:
            raise
        return _plain_fit(network, reason, n_tokens, cached=False)
    return Fit(error, plain=reason, cached=cached)


def _check_rounding(network: PreTrainedModel, error: float, step: str) -> None:
    """Raise `PackingError` if an error in nats is larger than rounding explains."""
    if error <= TOLERANCE[network.dtype]:
        return
    trouble = "are not numbers"
    if error != float("inf"):
        trouble = f"differ from those of a plain forward pass by {error:.3g} nats"
    raise PackingError(f"has log-probabilities that {trouble} in {network.dtype} on {step}")


@torch.inference_mode()
def check_causal(network: PreTrainedModel) -> None:
    """Check that later tokens, or the length of a text, do not change what comes before.

    Raises:
        PackingError: they do, or the configuration says that the network is not a decoder.
    """
    config = network.config
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise PackingError(
            "is not a causal model, which a language model must be: its configuration does not "
            "have is_decoder=True"
        )
    ids = _random_text(network, _SHORT)
    other_end = [*ids[:-1], ids[0]]
    without_end = ids[:-1]
    with refusing(PackingError, "cannot go on from a text alone"):
        logits_by_text = list(_plain_logits(network, [ids, other_end, without_end]))
    whole, other, shorter = (
        logits[: _SHORT - 1].float().log_softmax(-1).nan_to_num(nan=0.0)
        for logits in logits_by_text
    )
    # Texts of the same length are rounded alike, so half precision hides little in the first
    # difference. The second one shows networks that use the length of the text, like ProphetNet.
    end_difference = float((whole - other).abs().max())
    length_difference = float((whole - shorter)[-1].abs().max())
    error = max(end_difference, length_difference)
    if error > TOLERANCE[network.dtype]:
        raise PackingError(
            f"is not a causal model: later tokens change earlier log-probabilities by {error:.3g} "
            "nats"
        )


def checked_error(network: PreTrainedModel) -> float:
    """Compare steps of the packed tree, with slots of other questions, with plain passes.

    Returns:
        The largest difference of log-probabilities in nats.

    Raises:
        PackingError: the network cannot run such a step, or the difference is not rounding.
    """
    ids = _random_text(network, _SHORTER)
    needs = "of keys and values, a mask and positions"
    with refusing(PackingError, f"cannot run a packed step, {needs}"):
        prefix = encode_prefix(network, ids[:-5])

        def make_tree(prompts: list[list[int]]) -> PackedTree:
            return PackedTree(network, prompts, prefix, ForwardCounts())

        n_bytes = sum(keys.nbytes + values.nbytes for keys, values in prefix.layers)
        n_affordable = len(prefix.token_ids) * _CROWD_BYTES // max(1, n_bytes)
        error = _largest_error(network, make_tree, ids, min(_CROWD, n_affordable))
    trouble = "it ignores the 4-D mask or the positions, or counts the slots of the cache"
    _check_rounding(network, error, f"a packed step: {trouble}")
    return error


@torch.inference_mode()
def _largest_error(
    network: PreTrainedModel,
    make_tree: Callable[[list[list[int]]], Any],
    ids: Sequence[int],
    n_unrelated_slots: int = 0,
) -> float:
    """Compare a small tree with each of its texts alone."""
    # Two prompts grow two steps. Children are not in the order of their parents, one parent has two
    # children, and one row waits while the others grow.
    first = list(ids[:-3])
    second = [*ids[:-5], ids[-4], ids[-5]]  # with its last two tokens exchanged
    a, b, c = ids[-3:]
    tree = make_tree([first, second])
    tree.plant()
    kept_rows = [1]  # that of the second prompt
    if n_unrelated_slots:
        tree.add_unrelated_slots(n_unrelated_slots)
        kept_rows.append(2)
    children = tree.grow(
        torch.tensor([1, 0, 1]), torch.tensor([a, b, c]), keep=torch.tensor(kept_rows)
    )
    first_b_row = len(kept_rows) + 1
    grandchildren = tree.grow(torch.tensor([0, first_b_row]), torch.tensor([b, c]))
    texts = [[*second, a], [*first, b], [*second, c], [*second, b], [*first, b, c]]

    log_probs = torch.cat([children, grandchildren])
    # Clones, because views would keep the logits after all tokens of long texts in memory.
    alone = torch.stack(
        [logits[-1].clone() for logits in _plain_logits(network, texts, last_only=True)]
    )
    expected = torch.log_softmax(alone.float(), dim=-1).to(log_probs.device)
    error = (log_probs - expected).abs()
    return float(error.nan_to_num(nan=float("inf")).max())


def _plain_logits(
    network: PreTrainedModel, texts: Iterable[Sequence[int]], *, last_only: bool = False
) -> Iterator[Tensor]:
    """Yield the logits after each token of each text, `(tokens, V)`, by plain forward passes."""
    # With `last_only`, networks that can compute the logits after the last token alone do so, which
    # saves memory where texts are long and vocabularies are large.
    selection = keep_logits(network, 1) if last_only else {}
    for text in texts:
        ids = torch.tensor([text], device=network.device)
        with attention_kernels(network.device):
            logits = network(input_ids=ids, use_cache=False, **selection).logits
        yield logits[0]


def _random_text(network: PreTrainedModel, n_tokens: int) -> list[int]:
    """Return a text of random tokens, always the same."""
    # The tokens are from the middle of the vocabulary, because special tokens, such as those for
    # images, are at its ends.
    config = network.config.get_text_config()
    size = config.vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(size // 4, size - size // 4, (n_tokens,), generator=generator).tolist()
    # A search may meet the padding token, and networks like RoBERTa do not count its position. As
    # the last but one token it is in some of the compared texts and not in others.
    padding = getattr(config, "pad_token_id", None)
    if padding in range(size):
        ids[-2] = padding
    return ids
