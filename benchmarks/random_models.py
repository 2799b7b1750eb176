"""Random Llama models whose answers are as long and as peaked as a real model's; for speed only, never for quality.

Flat random weights would make pruning look useless, and peaked ones would make it look free. So three constants are
found by calibration on given prompts, such that

- greedy answers take six tokens on average, the ending included;
- 37.5 % of them have p >= 0.4, and 75 % have p >= 0.05.

The targets are about the middles of what an instruction-tuned 9B model showed on three question sets (30 to 45 %, and
68 to 83 %), in answers *sampled* at temperature 1: its greedy answers, which were not published, are likelier on
average, so these models are, if anything, less peaked than it. The layers are random throughout; a few coordinates of
the residual stream are set aside, which no layer writes to: a *clock*, by which each token says how far the answer
has got, so that lengths vary around their mean instead of geometrically, and one that a single neuron of the last
layer writes and the output head does not read: the final norm divides by it, and so it is a temperature that varies
from prefix to prefix.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from measuring import decode_batches
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pro_lib.generation.decoding import Endings, ForwardCounts, Greedy, PackedTree, encode_prefix


def _shape(
    vocabulary: int, hidden: int, intermediate: int, layers: int, heads: int, **options
) -> dict[str, object]:
    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": intermediate}
    return {**sizes, "num_hidden_layers": layers, "num_attention_heads": heads, **options}


# The last three have the matrices of the models they are named for, in the Llama architecture, and are for a GPU.
SHAPES = {
    "random-35m": _shape(16_000, 512, 1376, 6, 8),
    "random-200m": _shape(16_000, 1024, 2816, 13, 16),
    "random-gemma-2b": _shape(256_000, 2048, 16_384, 18, 8, num_key_value_heads=1, head_dim=256),
    "random-gemma-7b": _shape(256_000, 3072, 24_576, 28, 16, head_dim=256),
    "random-llama-2-7b": _shape(32_000, 4096, 11_008, 32, 32),
}
POSITIONS = 1024
STOP, PAD = 0, 1
MEAN_LENGTH = 6.0
SHARE_LIKELY, LIKELY = 0.375, 0.4
SHARE_POSSIBLE, POSSIBLE = 0.75, 0.05
ACCEPTED = {"mean_length": (5.5, 6.5), "share_likely": (0.3, 0.45), "share_possible": (0.7, 0.8)}

# Coordinate 0 is the temperature, the next ones are the clock's; the clock stands still at its last.
_CLOCK = slice(1, 13)
_HOURS = _CLOCK.stop - _CLOCK.start
# How large a clock coordinate is beside the others of a token, and by about how many standard deviations of a logit
# the clock prefers tokens of the next hour, and the ending hour by hour.
_TICK, _NEXT_HOUR, _STOP_PER_HOUR = 12.0, 3.0, 0.5
# Size of what all layers together add to a token's own coordinates, which are about 1: the context counts for more.
_CONTEXT = 3.0
# Bias of queries and keys; under rotary positions it leans attention to what is near, the question before the shots.
_NEARNESS = 1.8
# How sharply the temperature's neuron sets in, and above how many standard deviations of what it reads.
_LOUDNESS, _THRESHOLD = 4.0, 1.0
_STEPS = 16


class Peakedness(NamedTuple):
    """The calibrated constants: scale of the logits, spread of the temperature, and the hour at which answers end."""

    scale: float
    spread: float
    hour: float


class Shape(NamedTuple):
    """What greedy answers look like: mean and deviation of the length (tokens, ending included), shares by p."""

    mean_length: float
    sd_length: float
    share_likely: float
    share_possible: float


def build(
    name: str, folder: str, prompts: Sequence[list[int]], *, device: str, dtype: str
) -> tuple[Peakedness, Shape]:
    """Make a model of `SHAPES`, calibrate it on the prompts and save it; its constants and what it then answers.

    It is calibrated in float32 and measured and saved in `dtype`. Another device makes another model.

    Raises:
        ValueError: a prompt with a token the model does not have, or answers outside `ACCEPTED`.
    """
    if (largest := max(max(prompt) for prompt in prompts)) >= (size := SHAPES[name]["vocab_size"]):
        raise ValueError(f"a prompt has token {largest}, and {name} has only {size}")
    network = random_network(
        SHAPES[name], last_tokens={prompt[-1] for prompt in prompts}, device=device
    )
    constants = calibrate(network, prompts)
    set_peakedness(network, constants)
    network.to(getattr(torch, dtype))
    shape = measure(network, prompts)
    for field, (least, most) in ACCEPTED.items():
        if not least <= (value := getattr(shape, field)) <= most:
            raise ValueError(
                f"{name} cannot be calibrated on these prompts: {field} came out as {value:.3g}"
            )
    network.save_pretrained(folder)
    return constants, shape


def random_network(
    shape: dict[str, object], *, last_tokens: set[int], device: str = "cpu"
) -> LlamaForCausalLM:
    """A random Llama in float32, its answers not yet calibrated; `last_tokens` start the clock."""
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
    """Attention peaked enough to tell contexts apart; `share` is the layer's part in what all layers add."""
    attention, mlp = layer.self_attn, layer.mlp
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
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    embedding.normal_(generator=generator)
    embedding[:, : _CLOCK.stop] = 0
    vocabulary, device = len(embedding), embedding.device
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
    """Write the constants into the weights: the final norm, the last layer's neuron 0, the row of the stop token."""
    with torch.no_grad():
        network.model.norm.weight[1:] = constants.scale
        network.model.layers[-1].mlp.down_proj.weight[0, 0] = constants.spread
        head = network.get_output_embeddings().weight
        late = torch.arange(_HOURS, device=head.device) - constants.hour
        head[STOP, _CLOCK] = late * _STOP_PER_HOUR * _CONTEXT / _TICK


def calibrate(network: LlamaForCausalLM, prompts: Sequence[list[int]]) -> Peakedness:
    """Find the constants from one greedy walk.

    Scale and temperature do not move the greedy path, and neither does the stop token until it comes. So the hidden
    states of a walk that never stops say how any constants would do.
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
    """Where a rising function meets the target."""
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < target else (low, middle)
    return (low + high) / 2


@torch.inference_mode()
def _walk(network: LlamaForCausalLM, prompts: Sequence[list[int]]) -> Tensor:
    """Hidden states `(questions, steps, hidden)` before the final norm along greedy paths that do not stop."""
    prefix = encode_prefix(network, prompts[0]).shared_with(prompts)
    tree, seen = PackedTree(network, prompts, prefix, ForwardCounts()), []
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
    """What the greedy answers look like, by the project's own decoding."""
    found, _ = decode_batches(
        Greedy(),
        network,
        endings(network),
        prompts,
        encode_prefix(network, prompts[0]),
        len(prompts),
    )
    answers = [answer for [answer], _ in found]
    lengths = torch.tensor(
        [len(answer.token_ids) + answer.finished for answer in answers], dtype=torch.float64
    )
    p = torch.tensor(
        [sum(answer.token_log_probs) + (answer.end_log_prob or 0.0) for answer in answers]
    ).exp()
    shares = (float((p >= limit).double().mean()) for limit in (LIKELY, POSSIBLE))
    return Shape(float(lengths.mean()), float(lengths.std()), *shares)


def endings(network: LlamaForCausalLM, stop: Sequence[int] = (STOP,)) -> Endings:
    """The tokens that end an answer, that of a random model unless others are named; none closes one."""
    stops = torch.zeros(
        len(network.get_output_embeddings().weight), dtype=torch.bool, device=network.device
    )
    stops[list(stop)] = True
    return Endings(stops, torch.zeros_like(stops))


def describe(constants: Peakedness, shape: Shape) -> str:
    """One line on a model."""
    return ", ".join(
        f"{name} {value:.3g}" for name, value in {**constants._asdict(), **shape._asdict()}.items()
    )
