"""Whether a network can run on the packed prefix tree: what its configuration says, and packed steps beside plain ones.

It knows what configurations declare, masks and positions; it does not know files, tokenizers or texts.
"""

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from pro_lib.decoding.tree import Counts, PackedTree, encode_prefix

# A guess at what rounding may do; the test models stay far below it, and no large model has been tried.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
# What is said aloud. One step of a logit between 16 and 32 is 0.125 nats in bfloat16, 0.016 in float16.
NOTABLE = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 0.03}
# Slots of other questions in the wide check: more than any known window, or what these bytes of keys and values hold.
_CROWD, _CROWD_BYTES = 8_704, 2**29
# Layers that keep nothing but keys and values, a pair for each token, or keep nothing.
_PLAIN_LAYERS = {
    *("full_attention", "sliding_attention", "chunked_attention", "attention"),
    *("moe", "mlp", "sparse", "dense"),
}
# What bounds how far a model sees: its name in the configuration, the kind of layers that have it (all), and in words.
_LIMITS = (
    ("sliding_window", "sliding_attention", "sliding window"),
    ("attention_chunk_size", "chunked_attention", "attention chunk"),
    ("max_position_embeddings", "", "number of positions"),
)


class PackingError(ValueError):
    """Why a network cannot run on the packed tree, as what is said of it: "uses …", "gives …"."""


def check_config(config: PreTrainedConfig) -> None:
    """Refuse with a `PackingError` what a text configuration declares and the packed tree cannot have.

    Windows, chunks and other limits of length are no reason: texts within them are the same with and without.
    """
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    if odd := sorted(set(kinds) - _PLAIN_LAYERS):
        raise PackingError(f"has layers ({', '.join(odd)}) that keep a state or an index beside keys and values")
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        raise PackingError("uses ALiBi, whose distances follow the order of the cache")
    if config.model_type == "gpt_neo":
        raise PackingError("masks attention by the slots of the cache (attention_types, window_size)")
    if getattr(config, "attn_temperature_tuning", False):
        raise PackingError("scales attention by the slots of the cache (attn_temperature_tuning, floor_scale)")


def length_limits(config: PreTrainedConfig) -> list[tuple[int, str]]:
    """The most tokens of a text that a model sees whole and alike, and what bounds them, for each bound there is."""
    kinds = getattr(config, "layer_types", None) or ("sliding_attention",)
    found = [(getattr(config, name, None), words) for name, kind, words in _LIMITS if kind in ("", *kinds)]
    rope = getattr(config, "rope_parameters", None) or {}
    for each in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        # Beyond this length of any text in the pack, all turn otherwise; "dynamic" does so beyond its positions.
        if each.get("rope_type") == "longrope":
            found.append((each.get("original_max_position_embeddings"), "length before longrope turns otherwise"))
    return [(limit, words) for limit, words in found if limit]


def checked_error(network: PreTrainedModel) -> float:
    """How far packed steps are from plain forward passes, in nats.

    Raises:
        PackingError: the network keeps the state of one sequence, cannot run the steps, or comes out different.
    """
    if getattr(network, "_is_stateful", False):
        raise PackingError("is recurrent: it keeps a state of one sequence beside keys and values")
    tolerance = TOLERANCE[network.dtype]
    try:
        error = largest_packing_error(network, crowd=crowd_size(network))
        narrow = error if error <= tolerance else largest_packing_error(network)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as failure:  # whatever an architecture makes of what it does not expect
        said = f"({type(failure).__name__}: {failure})"
        raise PackingError(f"cannot run a packed step, of keys and values, a mask and positions {said}") from failure
    if error > tolerance:
        reason = "it ignores the 4-D attention mask or the position ids"
        if narrow <= tolerance:
            reason = "its attention depends on how many slots the cache has"
        elif narrow == float("inf"):
            reason = "they are no numbers, its weights are damaged"
        off = f"{error:.3g} nats off on a packed step (at most {tolerance:g} is rounding)"
        raise PackingError(f"gives log-probabilities {off}: {reason}")
    return error


def crowd_size(network: PreTrainedModel) -> int:
    """How many slots of other questions the wide check can afford."""
    return min(_CROWD, _CROWD_BYTES // max(1, encode_prefix(network, [0]).nbytes))


@torch.inference_mode()
def largest_packing_error(network: PreTrainedModel, *, crowd: int = 0) -> float:
    """Largest difference in log-probability between one packed step and plain forward passes, in nats; inf for NaN.

    Two short prompts on a shared prefix grow two children each, beside another question's `crowd` of slots; each path
    is then run alone. A network that ignores the mask or the positions it is given, or counts slots, cannot come out
    near zero.
    """
    vocabulary = network.config.get_text_config().vocab_size
    ids = torch.randint(0, vocabulary, (11,), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [ids[:6], ids[:3] + ids[6:7]]
    tree = PackedTree(network, prompts, encode_prefix(network, ids[:3]), Counts())
    tree.plant()
    tree.crowd(crowd)
    parents, children = [0, 0, 1, 1], ids[7:]
    packed = tree.grow(torch.tensor(parents), torch.tensor(children), keep=torch.tensor([len(prompts)]))
    paths = [[*prompts[parent], child] for parent, child in zip(parents, children, strict=True)]
    alone = [network(input_ids=torch.tensor([path], device=network.device)).logits[0, -1:] for path in paths]
    difference = packed - torch.log_softmax(torch.cat(alone).float(), dim=-1)
    return float(difference.abs().nan_to_num(nan=float("inf")).max())
