"""Random Llama models with answers of realistic length and peakedness, for speed only.

Pruning would look useless with flat random weights, and free with peaked ones. Therefore three
constants are calibrated on given prompts. The targets are:

- Greedy answers have six tokens on average, including the ending.
- 37.5 % of them have p >= 0.4, and 75 % have p >= 0.05.

The two shares are the middles of those of an instruction-tuned 9B model on three question sets (30
to 45 %, and 68 to 83 %). Those are shares of answers *sampled* at temperature 1. The greedy answers
were not published; they are more probable on average, so that these models are rather less peaked
than that model.

All layers are random. They do not write to a few coordinates of the residual stream. One of these
is a *clock*, by which each token states the progress of the answer, so that lengths vary around
their mean instead of geometrically. Another one is for the temperature. A single neuron of the last
layer writes it, and the output head does not read it. The final norm divides by it, so that it is a
temperature that varies between prefixes.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from measuring import decode_batches
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pro_lib.generation.decoding.next_tokens import Endings
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, encode_prefix
from pro_lib.generation.decoding.strategies import Greedy


def _shape(
    vocabulary: int, hidden: int, intermediate: int, layers: int, heads: int, **options
) -> dict[str, object]:
    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": intermediate}
    return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads, **options}


# The last two have the matrix sizes of the named models in the Llama architecture, for a GPU.
SHAPES = {
    "random-35m": _shape(16_000, 512, 1376, 6, 8),
    "random-200m": _shape(16_000, 1024, 2816, 13, 16),
    "random-gemma-2b": _shape(256_000, 2048, 16_384, 18, 8, num_key_value_heads=1, head_dim=256),
    "random-llama-2-7b": _shape(32_000, 4096, 11_008, 32, 32),
}
POSITIONS = 1024
STOP = 0
PAD = 1
MEAN_LENGTH = 6.0
SHARE_LIKELY = 0.375
LIKELY = 0.4
SHARE_POSSIBLE = 0.75
POSSIBLE = 0.05
ACCEPTED = {"mean_length": (5.5, 6.5), "share_likely": (0.3, 0.45), "share_possible": (0.7, 0.8)}

# Coordinate 0 is the temperature, and the next ones are the clock, which stops at its last one.
_CLOCK = slice(1, 13)
_HOURS = _CLOCK.stop - _CLOCK.start
# The size of a clock coordinate, where other coordinates of a token are about 1. The clock prefers
# tokens of the next hour, and the ending hour by hour, by these numbers of standard deviations of a
# logit.
_TICK = 12.0
_NEXT_HOUR = 3.0
_STOP_PER_HOUR = 0.5
# The size of the sum that all layers add to the coordinates of a token: the context dominates.
_CONTEXT = 3.0
# The bias of queries and keys. With rotary positions it directs attention to near tokens: to the
# question rather than to the shots.
_NEARNESS = 1.8
# The slope of the neuron of the temperature, and its threshold in standard deviations of its input
_LOUDNESS = 4.0
_THRESHOLD = 1.0
_STEPS = 16


class Peakedness(NamedTuple):
    """The calibrated constants.

    Attributes:
        scale: the scale of the logits.
        spread: the spread of the temperature.
        hour: the hour at which answers end.
    """

    scale: float
    spread: float
    hour: float


class Shape(NamedTuple):
    """Properties of greedy answers.

    Attributes:
        mean_length: the mean number of tokens, including the ending.
        share_likely: the share of answers with p >= `LIKELY`.
        share_possible: the share of answers with p >= `POSSIBLE`.
    """

    mean_length: float
    share_likely: float
    share_possible: float


def build(
    name: str, folder: str, prompts: Sequence[list[int]], *, device: str, dtype: str
) -> tuple[Peakedness, Shape]:
    """Make a model of `SHAPES`, calibrate it on the prompts and save it.

    It is calibrated in float32, and measured and saved in `dtype`. Its weights differ by device.

    Returns:
        The constants, and the properties of the greedy answers.

    Raises:
        ValueError: if the vocabulary lacks a token of a prompt, or if a property of the answers is
            outside `ACCEPTED`.
    """
    largest = max(max(prompt) for prompt in prompts)
    size = SHAPES[name]["vocab_size"]
    if largest >= size:
        raise ValueError(f"a prompt has token {largest}, but {name} has only {size} tokens")
    network = random_network(
        SHAPES[name], last_tokens={prompt[-1] for prompt in prompts}, device=device
    )
    constants = calibrate(network, prompts)
    set_peakedness(network, constants)
    network.to(getattr(torch, dtype))
    shape = measure(network, prompts)
    for field, (least, most) in ACCEPTED.items():
        value = getattr(shape, field)
        if not least <= value <= most:
            raise ValueError(
                f"{name} cannot be calibrated on these prompts: {field} is {value:.3g}; expected "
                f"{least:g} to {most:g}"
            )
    network.save_pretrained(folder)
    return constants, shape


def random_network(
    shape: dict[str, object], *, last_tokens: set[int], device: str = "cpu"
) -> LlamaForCausalLM:
    """Make a random Llama in float32 without calibration; `last_tokens` start the clock."""
    ids = {
        "eos_token_id": STOP,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "tie_word_embeddings": False,
    }
    form = {"max_position_embeddings": POSITIONS, "attention_bias": True, "dtype": "float32"}
    config = LlamaConfig(**shape, **ids, **form, attn_implementation="sdpa")
    with torch.device(device):
        network = LlamaForCausalLM(config).eval()
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for layer in network.model.layers:
            _fill_layer(layer, _CONTEXT / (2 * network.config.num_hidden_layers) ** 0.5, generator)
        _fill_vocabulary(network, last_tokens, generator)
        # The neuron that writes the temperature: silent after most prefixes, loud after some.
        gate = network.model.layers[-1].mlp.gate_proj.weight[0]
        gate *= _LOUDNESS
        gate[_CLOCK] = -_THRESHOLD * _LOUDNESS * _CONTEXT / _TICK
        network.model.norm.weight[0] = 0
    return network


def _fill_layer(layer, share: float, generator: torch.Generator) -> None:
    """Fill a layer, with attention that distinguishes contexts; `share` scales its output."""
    attention = layer.self_attn
    mlp = layer.mlp
    gains = {
        attention.q_proj: 1.5,
        attention.k_proj: 1.5,
        attention.v_proj: 1.0,
        attention.o_proj: share,
    }
    gains |= {mlp.gate_proj: 1.5, mlp.up_proj: 1.5, mlp.down_proj: share}
    for linear in (attention.q_proj, attention.k_proj):
        linear.bias.fill_(_NEARNESS)
    for linear, gain in gains.items():
        linear.weight.normal_(0, gain / linear.in_features**0.5, generator=generator)
    for linear in (attention.o_proj, mlp.down_proj):
        linear.weight[: _CLOCK.stop] = 0


def _fill_vocabulary(
    network: LlamaForCausalLM, last_tokens: set[int], generator: torch.Generator
) -> None:
    embedding = network.get_input_embeddings().weight
    head = network.get_output_embeddings().weight
    embedding.normal_(generator=generator)
    embedding[:, : _CLOCK.stop] = 0
    vocabulary = len(embedding)
    device = embedding.device
    hours = torch.randint(1, _HOURS, (vocabulary,), generator=generator, device=device)
    hours[list(last_tokens)] = 0
    ids = torch.arange(vocabulary, device=device)
    embedding[ids, _CLOCK.start + hours] = _TICK
    head.normal_(0, head.shape[1] ** -0.5, generator=generator)
    head[:, : _CLOCK.stop] = 0
    head[ids, _CLOCK.start + (hours - 1).clamp_min(0)] = _NEXT_HOUR * _CONTEXT / _TICK
    latest = hours == _HOURS - 1
    head[ids[latest], _CLOCK.stop - 1] = _NEXT_HOUR * _CONTEXT / _TICK
    head[PAD] = 0


def set_peakedness(network: LlamaForCausalLM, constants: Peakedness) -> None:
    """Write the constants into the final norm, neuron 0 of the last layer and the stop row."""
    with torch.no_grad():
        network.model.norm.weight[1:] = constants.scale
        network.model.layers[-1].mlp.down_proj.weight[0, 0] = constants.spread
        head = network.get_output_embeddings().weight
        late = torch.arange(_HOURS, device=head.device) - constants.hour
        head[STOP, _CLOCK] = late * _STOP_PER_HOUR * _CONTEXT / _TICK


def calibrate(network: LlamaForCausalLM, prompts: Sequence[list[int]]) -> Peakedness:
    """Find the constants from one greedy decoding.

    Scale and temperature do not change the greedy tokens, and the stop token does not before it is
    chosen. Therefore the hidden states of a decoding that never stops suffice for all constants.
    """
    set_peakedness(network, Peakedness(1.0, 1.0, 1e6))
    hidden = _walk(network, prompts)
    others = hidden[..., 1:].square().sum(-1)
    ratio = hidden[..., 0].square() / others
    normed = hidden / (others[..., None] / hidden.shape[-1]).sqrt()
    normed[..., 0] = 0
    with torch.no_grad():
        head = network.get_output_embeddings().weight.clone()
        head[STOP, _CLOCK] = 0
        stop_row = normed @ head[STOP]
        head[STOP] = 0
        best = torch.stack([(question @ head.T).amax(-1) for question in normed])
        hours = normed[..., _CLOCK] * (_STOP_PER_HOUR * _CONTEXT / _TICK)
        hands = torch.arange(_HOURS, device=head.device)
        clock = torch.stack([(hours * (hands - hour)).sum(-1) for hour in (0.0, 1.0)])

        def lengths(hour: float) -> Tensor:
            stops = stop_row + clock[0] + hour * (clock[1] - clock[0]) >= best
            stops[:, -1] = True
            return stops.int().argmax(-1) + 1

        hour = _bisect(
            lambda hour: float(lengths(hour).double().mean()),
            MEAN_LENGTH,
            -float(_HOURS),
            float(_HOURS),
        )
        set_peakedness(network, Peakedness(1.0, 0.0, hour))
        alive = torch.arange(normed.shape[1], device=head.device) < lengths(hour)[:, None]
        logits = normed[alive] @ network.get_output_embeddings().weight.T

    def share(scale: float, spread: float, p: float) -> float:
        sharpness = scale / (1 + spread**2 * ratio[alive]).sqrt()
        steps = torch.log_softmax(logits * sharpness[:, None], dim=-1).amax(-1).double()
        owner = alive.nonzero()[:, 0]
        log_prob = steps.new_zeros(len(normed)).index_add_(0, owner, steps)
        return float((log_prob.exp() >= p).double().mean())

    def scale_for(spread: float) -> float:
        return math.exp(
            _bisect(lambda log: share(math.exp(log), spread, POSSIBLE), SHARE_POSSIBLE, -1.0, 12.0)
        )

    def share_likely(log: float) -> float:
        return share(scale_for(math.exp(log)), math.exp(log), LIKELY)

    spread = math.exp(_bisect(share_likely, SHARE_LIKELY, -2.0, 8.0))
    return Peakedness(scale_for(spread), spread, hour)


def _bisect(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return where an increasing function reaches the target."""
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return (low + high) / 2


@torch.inference_mode()
def _walk(network: LlamaForCausalLM, prompts: Sequence[list[int]]) -> Tensor:
    """Return hidden states (questions, steps, hidden) before the final norm, without a stop."""
    prefix = encode_prefix(network, prompts[0]).shared_with(prompts)
    tree = PackedTree(network, prompts, prefix, ForwardCounts())
    seen = []
    handle = network.model.norm.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0][0])
    )
    log_probs = tree.plant()
    last = torch.tensor([len(prompt) - len(prefix.token_ids) for prompt in prompts]).cumsum(0) - 1
    states = [torch.cat(seen)[last]]
    seen.clear()
    for _ in range(_STEPS - 1):
        log_probs = tree.grow(torch.arange(len(prompts)), log_probs.argmax(-1).cpu())
        states.append(seen.pop())
    handle.remove()
    return torch.stack(states, dim=1).clone()


def measure(network: LlamaForCausalLM, prompts: Sequence[list[int]]) -> Shape:
    """Measure the greedy answers by the decoding of this project."""
    decoded, _ = decode_batches(
        Greedy(),
        network,
        endings(network),
        prompts,
        encode_prefix(network, prompts[0]),
        len(prompts),
    )
    answers = [answer for [answer], _ in decoded]
    lengths = torch.tensor(
        [len(answer.token_ids) + answer.finished for answer in answers], dtype=torch.float64
    )
    p = torch.tensor(
        [sum(answer.token_log_probs) + (answer.end_log_prob or 0.0) for answer in answers]
    ).exp()
    shares = (float((p >= limit).double().mean()) for limit in (LIKELY, POSSIBLE))
    return Shape(float(lengths.mean()), *shares)


def endings(network: LlamaForCausalLM, stop: Sequence[int] = (STOP,)) -> Endings:
    """Return the tokens that end an answer, by default the one of a random model."""
    stops = torch.zeros(
        len(network.get_output_embeddings().weight), dtype=torch.bool, device=network.device
    )
    stops[list(stop)] = True
    return Endings(stops, torch.zeros_like(stops))
