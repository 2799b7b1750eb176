"""Whether a network can run on the packed prefix tree, and if not, on the plain one: what its configuration says,
and steps of both trees beside plain forward passes.

It knows what configurations declare, masks and positions; it does not know files, tokenizers or texts.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING as SEEING
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel

from pro_lib.checks import one_line
from pro_lib.engine import half
from pro_lib.engine.plain import PlainPrefix, PlainTree
from pro_lib.engine.tree import Counts, PackedTree, encode_prefix

# A guess at what rounding may do; the test models stay far below it, and no large model has been tried.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# What is said aloud. One step of a logit between 16 and 32 is 0.125 nats in bfloat16, 0.016 in float16.
NOTABLE = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 0.03}
# Slots of other questions in the wide check: more than any known window, or what these bytes of keys and values hold.
_CROWD, _CROWD_BYTES = 8_704, 2**29
# Layers that keep nothing but keys and values, a pair for each token, or keep nothing.
_PACKABLE_LAYERS = {
    *("full_attention", "sliding_attention", "chunked_attention", "attention"),
    *("moe", "mlp", "sparse", "dense"),
}
# What bounds how far a model sees: its name in the configuration, the kind of layers that have it (all), and in words.
_POSITIONS, _LONGROPE = "number of positions", "length before longrope turns otherwise"
_LIMITS = (
    ("sliding_window", "sliding_attention", "sliding window"),
    ("attention_chunk_size", "chunked_attention", "attention chunk"),
    ("max_position_embeddings", "", _POSITIONS),
)
# The shortest texts that a plain tree is tried on, and what came of those tried since.
_SHORT = 16
_TRIED: "WeakKeyDictionary[PreTrainedModel, dict[tuple[int, bool], Fit]]" = WeakKeyDictionary()


class PackingError(ValueError):
    """Why a network cannot be asked, or not on the packed tree, as what is said of it: "uses …", "gives …"."""


@dataclass(frozen=True)
class Fit:
    """How a network is asked: on the packed tree, or on the plain one for the reason `plain`.

    `error` is how far steps of that tree were from plain forward passes, in nats. The library's cache is used if
    `cached`, and of what prompts share too if `shared`; without, each step of a plain tree runs whole texts again.
    """

    error: float
    plain: str = ""
    cached: bool = True
    shared: bool = True

    def said(self, name: str) -> str:
        """What is said of a model by name that is asked on the plain tree."""
        return one_line(f"model {name} {self.plain}; it is asked on the plain tree: the same answers, slower")


def auto_class(config: PreTrainedConfig) -> type:
    """What loads a model of this configuration; one that sees images too is loaded whole, so that no weight is lost."""
    return AutoModelForImageTextToText if type(config) in SEEING else AutoModelForCausalLM


def check_config(config: PreTrainedConfig) -> None:
    """Refuse with a `PackingError` what answers from more than the text before."""
    if getattr(config, "is_encoder_decoder", False):
        raise PackingError("is an encoder-decoder, whose answers follow from a text that its encoder reads")


def never_packed(config: PreTrainedConfig) -> str:
    """What a text configuration declares and the packed tree cannot have; empty if it declares nothing of the kind.

    Windows, chunks and other limits of length are no reason: texts within them are the same with and without.
    """
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    if odd := sorted(set(kinds) - _PACKABLE_LAYERS):
        return f"has layers ({', '.join(odd)}) that keep a state or an index beside keys and values"
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "uses ALiBi, whose distances follow the order of the cache"
    if config.model_type == "gpt_neo":
        return "masks attention by the slots of the cache (attention_types, window_size)"
    if getattr(config, "attn_temperature_tuning", False):
        return "scales attention by the slots of the cache (attn_temperature_tuning, floor_scale)"
    return ""


def length_limits(config: PreTrainedConfig) -> list[tuple[int, str]]:
    """The most tokens of a text that a model sees whole and alike, and what bounds them, for each bound there is."""
    kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
    found = [(getattr(config, name, None), words) for name, kind, words in _LIMITS if kind in ("", *kinds)]
    rope = getattr(config, "rope_parameters", None) or {}
    for each in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        # Beyond this length of any text in the pack, all turn otherwise; "dynamic" does so beyond its positions.
        if each.get("rope_type") == "longrope":
            found.append((each.get("original_max_position_embeddings"), _LONGROPE))
    return [(limit, words) for limit, words in found if limit]


def fitted(network: PreTrainedModel) -> Fit:
    """How short texts are asked: on the packed tree where it comes out right, else on the plain one if that does."""
    reason, networks = never_packed(network.config.get_text_config()), _tried(network)
    if getattr(network, "_is_stateful", False) and not reason:
        reason = "is recurrent: it keeps a state of one sequence beside keys and values"
    try:
        if not reason:
            return Fit([checked_error(each) for each in networks][-1])
    except PackingError as error:
        reason = str(error)
    return replace(_plain_fit(networks, _SHORT), plain=reason)


def fitted_to(network: PreTrainedModel, fit: Fit, n_tokens: int) -> Fit:
    """How texts of up to `n_tokens` are asked of a `fitted` network; on a plain tree, texts so long are tried."""
    limits = length_limits(network.config.get_text_config())
    positions = min((limit for limit, words in limits if words == _POSITIONS), default=2 * n_tokens)
    if n_tokens > positions:
        said = f"has a {_POSITIONS} of {positions}, the longest prompt and its answer take {n_tokens} tokens"
        raise PackingError(f"{said}; use fewer shots or a model that sees further")
    short = {words: f"has a {words} of {limit}, texts have {n_tokens}" for limit, words in limits if n_tokens > limit}
    if not (reason := fit.plain or next(iter(short.values()), "")):
        return fit
    size = min(positions, 1 << (n_tokens - 1).bit_length())
    # What is kept of a text from before longrope turned otherwise is of no use after.
    tried, cached = _TRIED.setdefault(network, {}), fit.cached and _LONGROPE not in short
    if (size, cached) not in tried:
        tried[size, cached] = _plain_fit(_tried(network), size, cached=cached)
    return replace(tried[size, cached], plain=reason)


def _plain_fit(networks: Sequence[PreTrainedModel], n_tokens: int, *, cached: bool = True) -> Fit:
    """How texts of `n_tokens` are asked on the plain tree: with the library's cache, as far as that comes out right."""
    network = networks[-1]
    # Some lose their state where several tokens follow it at once, as the rest of a prompt does.
    for kept, shared in ((True, True), (True, False), (False, True)) if cached else ((False, True),):
        try:
            errors = [largest_plain_error(each, n_tokens, cached=kept, shared=shared) for each in networks]
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as failure:  # whatever an architecture makes of what it does not expect
            reason = f"cannot go on from a text alone ({type(failure).__name__}: {failure})"
            continue
        if all(off <= TOLERANCE[each.dtype] for off, each in zip(errors, networks, strict=True)):
            return Fit(errors[-1], cached=kept, shared=shared)
        reason = f"is no causal model: what comes after a text changes what it gives by {max(errors):.3g} nats"
        if max(errors) == float("inf"):
            reason = f"gives log-probabilities that are no numbers: its weights are damaged, or beyond {network.dtype}"
    raise PackingError(reason)


def _tried(network: PreTrainedModel) -> list[PreTrainedModel]:
    """A network, after its copy in float32 if there is memory: what is wrong may be less than half precision rounds."""
    with suppress(RuntimeError, MemoryError, ValueError):
        return [half.float32_copy(network), network] if network.dtype.itemsize < 4 else [network]
    return [network]


def checked_error(network: PreTrainedModel) -> float:
    """How far packed steps are from plain forward passes, in nats. Raises `PackingError` if that is no rounding."""
    tolerance = TOLERANCE[network.dtype]
    try:
        error = largest_packing_error(network, crowd=crowd_size(network))
        narrow = error if error <= tolerance else largest_packing_error(network)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as failure:
        said = f"({type(failure).__name__}: {failure})"
        raise PackingError(f"cannot run a packed step, of keys and values, a mask and positions {said}") from failure
    if error > tolerance:
        reason = "it ignores the 4-D attention mask or the position ids"
        if narrow <= tolerance:
            reason = "its attention depends on how many slots the cache has"
        off = f"{error:.3g} nats off on a packed step (at most {tolerance:g} is rounding)"
        raise PackingError(f"gives log-probabilities {off}: {reason}")
    return error


def crowd_size(network: PreTrainedModel) -> int:
    """How many slots of other questions the wide check can afford."""
    return min(_CROWD, _CROWD_BYTES // max(1, encode_prefix(network, [0]).nbytes))


def largest_packing_error(network: PreTrainedModel, *, crowd: int = 0) -> float:
    """Largest difference in log-probability between packed steps and plain forward passes, in nats; inf for NaN.

    They are done beside another question's `crowd` of slots. A network that ignores the mask or the positions it is
    given, or counts slots, cannot come out near zero.
    """
    ids = _drawn(network, 11)
    prefix = encode_prefix(network, ids[:-5])
    return _error(network, *_steps(lambda prompts: PackedTree(network, prompts, prefix, Counts()), ids, crowd))


@torch.inference_mode()
def largest_plain_error(network: PreTrainedModel, n_tokens: int, *, cached: bool, shared: bool = True) -> float:
    """As `largest_packing_error`, of steps of a plain tree on texts of `n_tokens`, and of one text within another."""
    ids = _drawn(network, n_tokens)
    prefix = PlainPrefix(tuple(ids[:-5]) if shared else (), cached)
    found, paths = _steps(lambda prompts: PlainTree(network, prompts, prefix, Counts()), ids)
    whole = network(input_ids=torch.tensor([ids], device=network.device), use_cache=False).logits[:, len(ids) // 2 - 1]
    return _error(network, [*found, torch.log_softmax(whole.float(), dim=-1)], [*paths, ids[: len(ids) // 2]])


def _steps(tree_of: Callable, ids: Sequence[int], crowd: int = 0) -> tuple[list[Tensor], list[Sequence[int]]]:
    """What two prompts on a shared prefix give as they grow out of order, one of them twice, and the texts it is of."""
    prompts = one, other = [ids[:-3], [*ids[:-5], ids[-4], ids[-5]]]
    tree, keep, (a, b, c) = tree_of(prompts), torch.arange(1, 2 + bool(crowd)), ids[-3:]
    tree.plant()
    if crowd:
        tree.crowd(crowd)
    found = [tree.grow(torch.tensor([1, 0, 1]), torch.tensor([a, b, c]), keep=keep)]
    found.append(tree.grow(torch.tensor([0, len(keep) + 1]), torch.tensor([b, c])))
    return found, [[*other, a], [*one, b], [*other, c], [*other, b], [*one, b, c]]


def _drawn(network: PreTrainedModel, n_tokens: int) -> list[int]:
    """A text of random tokens, always the same; those for images and their like lie at the ends of vocabularies."""
    n, generator = network.config.get_text_config().vocab_size, torch.Generator().manual_seed(0)
    return torch.randint(n // 4, n - n // 4, (n_tokens,), generator=generator).tolist()


@torch.inference_mode()
def _error(network: PreTrainedModel, found: Sequence[Tensor], paths: Sequence[Sequence[int]]) -> float:
    """Largest difference of log-probabilities `(…, V)` from those that each path has alone; inf for NaN."""
    ids = (torch.tensor([path], device=network.device) for path in paths)
    alone = [network(input_ids=each, use_cache=False).logits[0, -1:] for each in ids]
    difference = torch.cat(list(found)) - torch.log_softmax(torch.cat(alone).float(), dim=-1)
    return float(difference.abs().nan_to_num(nan=float("inf")).max())
