"""Whether a network fits the packed tree, and if not, the plain one: by what its configuration declares, and by steps
of the tree beside plain forward passes. It knows configurations, masks and positions, no file, tokenizer or text.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING as SEEING
from transformers import MODEL_FOR_MASKED_LM_MAPPING as MASKED
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel

from pro_lib.checks import one_line
from pro_lib.engine.plain import PlainTree
from pro_lib.engine.tree import Counts, PackedTree, Tree, encode_prefix

# A guess at what rounding may do; the test models stay far below it, and no large model has been tried.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# Worth a warning. One step of a logit between 16 and 32 is 0.125 nats in bfloat16, 0.016 in float16.
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
# Tokens of a short text of the checks, the last five of which grow step by step.
_SHORT = 16


class PackingError(ValueError):
    """Why a network is refused a tree, as what follows its name: "uses …", "gives …"."""


@dataclass(frozen=True)
class Fit:
    """How a network is asked: on the packed tree, or on the plain one for the reason `plain`.

    `error` is how far steps of that tree were from plain forward passes, in nats. A plain tree keeps a cache for each
    row if `cached`, else each of its steps runs whole texts again.
    """

    error: float
    plain: str = ""
    cached: bool = True

    def notice(self, name: str) -> str:
        """Say of a model by name that it is asked on the plain tree."""
        return one_line(f"model {name} {self.plain}; it is asked on the plain tree: the same answers, slower")


def auto_class(config: PreTrainedConfig) -> type:
    """Return what loads such a model; one that sees images too is loaded whole, so that no weight is lost."""
    return AutoModelForImageTextToText if type(config) in SEEING else AutoModelForCausalLM


def check_config(config: PreTrainedConfig) -> None:
    """Refuse with a `PackingError` what answers from more than the text before."""
    if getattr(config, "is_encoder_decoder", False):
        raise PackingError("is an encoder-decoder, whose answers follow from a text that its encoder reads")


def never_packed(config: PreTrainedConfig) -> str:
    """Return what a text configuration declares and the packed tree cannot have; empty if nothing of the kind.

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
    """Return the most tokens of a text that a model sees whole and alike, and what bounds them, for each bound."""
    kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
    limits = [(getattr(config, name, None), words) for name, kind, words in _LIMITS if kind in ("", *kinds)]
    rope = getattr(config, "rope_parameters", None) or {}
    for scaling in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        # Beyond this length of any text in the pack, all turn otherwise; "dynamic" does so beyond its positions.
        if scaling.get("rope_type") == "longrope":
            limits.append((scaling.get("original_max_position_embeddings"), _LONGROPE))
    return [(limit, words) for limit, words in limits if limit]


def fitted(network: PreTrainedModel) -> Fit:
    """Return how short texts are asked: on the packed tree if that is right, else on the plain one, or refuse."""
    check_causal(network)
    reason = never_packed(network.config.get_text_config())
    if getattr(network, "_is_stateful", False) and not reason:
        reason = "is recurrent: it keeps a state of one sequence beside keys and values"
    try:
        if not reason:
            return Fit(checked_error(network))
    except PackingError as error:
        reason = str(error)
    return _plain_fit(network, reason, _SHORT)


def fitted_to(network: PreTrainedModel, fit: Fit, n_tokens: int) -> Fit:
    """Return how texts of up to `n_tokens` are asked of a `fitted` network, or refuse what is beyond its positions."""
    limits = length_limits(network.config.get_text_config())
    positions = min((limit for limit, words in limits if words == _POSITIONS), default=2 * n_tokens)
    if n_tokens > positions:
        reason = f"has a {_POSITIONS} of {positions}, the longest prompt and its answer take {n_tokens} tokens"
        raise PackingError(f"{reason}; use fewer shots or a model that sees further")
    short = {words: f"has a {words} of {limit}, texts have {n_tokens}" for limit, words in limits if n_tokens > limit}
    reason = fit.plain or next(iter(short.values()), "")
    if not reason:
        return fit
    size = min(positions, 1 << (n_tokens - 1).bit_length())
    # What is kept of a text from before longrope turned otherwise is of no use after.
    return _plain_fit(network, reason, size, cached=fit.cached and _LONGROPE not in short)


def _plain_fit(network: PreTrainedModel, reason: str, n_tokens: int, *, cached: bool = True) -> Fit:
    """Return how texts of `n_tokens` are asked on the plain tree: with a cache for each row if that comes out right."""
    try:
        with _refusing("cannot go on from a text alone"):
            error = largest_plain_error(network, n_tokens, cached=cached)
        if error == float("inf"):
            trouble = "gives log-probabilities that are no numbers: its weights are damaged, or beyond"
            raise PackingError(f"{trouble} {network.dtype}")
        if error > TOLERANCE[network.dtype]:
            raise PackingError(f"gives what follows a text {error:.3g} nats off on a plain step")
    except PackingError:
        if not cached:
            raise
        return _plain_fit(network, reason, n_tokens, cached=False)
    return Fit(error, plain=reason, cached=cached)


@contextmanager
def _refusing(trouble: str) -> Iterator[None]:
    """Say of whatever an architecture makes of what it does not expect that it is refused, but for lack of memory."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as failure:
        raise PackingError(f"{trouble} ({type(failure).__name__}: {failure})") from failure


@torch.inference_mode()
def check_causal(network: PreTrainedModel) -> None:
    """Refuse with a `PackingError` a network that looks ahead, by its configuration or by what it gives.

    Two texts that differ in their last token have one shape, and so round alike: half precision hides little.
    """
    if type(network.config) in MASKED and not getattr(network.config, "is_decoder", False):
        raise PackingError("is no causal model: its configuration says that it is no decoder (is_decoder)")
    ids = _random_text(network, _SHORT)
    texts = (torch.tensor([[*ids[:-1], last]], device=network.device) for last in (ids[-1], ids[0]))
    with _refusing("cannot go on from a text alone"):
        rows = [network(input_ids=text, use_cache=False).logits[0, :-1].float().log_softmax(-1) for text in texts]
    error = float((rows[0] - rows[1]).abs().nan_to_num(nan=0.0).max())
    if error > TOLERANCE[network.dtype]:
        raise PackingError(f"is no causal model: what comes after a text changes what it gives by {error:.3g} nats")


def checked_error(network: PreTrainedModel) -> float:
    """Return how far packed steps are from plain passes, in nats, beside a crowd; refuse what is not rounding."""
    tolerance = TOLERANCE[network.dtype]
    with _refusing("cannot run a packed step, of keys and values, a mask and positions"):
        crowd = min(_CROWD, _CROWD_BYTES // max(1, encode_prefix(network, [0]).nbytes))
        error = largest_packing_error(network, crowd=crowd)
    if error > tolerance:
        trouble = f"gives log-probabilities {error:.3g} nats off on a packed step (at most {tolerance:g} is rounding)"
        raise PackingError(f"{trouble}: it ignores the 4-D mask or the positions, or counts the slots of the cache")
    return error


def largest_packing_error(network: PreTrainedModel, *, crowd: int = 0) -> float:
    """Return the largest difference in log-probability of packed steps from plain passes, in nats; inf for NaN.

    They are done beside another question's `crowd` of slots. No network comes out near zero that ignores the mask or
    the positions, or counts slots.
    """
    ids = _random_text(network, 11)  # within the window of any test model
    prefix = encode_prefix(network, ids[:-5])
    return _largest_error(network, lambda prompts: PackedTree(network, prompts, prefix, Counts()), ids, crowd)


def largest_plain_error(network: PreTrainedModel, n_tokens: int, *, cached: bool) -> float:
    """Return the same of steps of a plain tree on texts of `n_tokens`."""
    ids = _random_text(network, n_tokens)
    return _largest_error(network, lambda prompts: PlainTree(network, prompts, Counts(), cached=cached), ids)


@torch.inference_mode()
def _largest_error(
    network: PreTrainedModel, tree_of: Callable[[list], Tree], ids: Sequence[int], crowd: int = 0
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
    alone = torch.cat([network(input_ids=text, use_cache=False).logits[0, -1:] for text in texts])
    error = (torch.cat(steps) - torch.log_softmax(alone.float(), dim=-1)).abs()
    return float(error.nan_to_num(nan=float("inf")).max())


def _random_text(network: PreTrainedModel, n_tokens: int) -> list[int]:
    """Return a text of random tokens, always the same; those for images and their like lie at vocabularies' ends."""
    n, generator = network.config.get_text_config().vocab_size, torch.Generator().manual_seed(0)
    return torch.randint(n // 4, n - n // 4, (n_tokens,), generator=generator).tolist()
