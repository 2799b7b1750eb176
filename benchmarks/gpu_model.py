"""Estimate the cost of a decoding step on a GPU from bytes, operations and kernel launches.

    python benchmarks/gpu_model.py [--model smollm2-135m] [--questions 32 128]

The script counts the shapes of forward passes on the CPU, for the answers of `--model` in batches
of `--questions`; it does not need a GPU. `benchmarks/on_gpu.py` compares the estimates with
measurements on a GPU.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from measuring import parse_arguments, world_facts

from pro_lib.generation import models
from pro_lib.generation.decoding.packed_tree import (
    ForwardCounts,
    common_prefix_length,
    encode_prefix,
)


@dataclass(frozen=True)
class Card:
    """The data sheet of a GPU (dense bfloat16), and the time that its host needs per kernel."""

    name: str
    bytes_per_second: float
    flops_per_second: float
    seconds_per_kernel: float = 5e-6  # measured on a CPU for an empty kernel
    host_bytes_per_second: float = 25e9  # PCIe 4 with sixteen lanes, in practice

    def seconds(self, moved: float, flops: float) -> float:
        """Return the longer time of moving the bytes in memory and of the operations."""
        return max(moved / self.bytes_per_second, flops / self.flops_per_second)


@dataclass(frozen=True)
class Network:
    """The sizes of a model, with two bytes for each weight and each key."""

    name: str
    parameters: float
    layers: int
    width: int  # queries of one token in one layer, all heads
    key_width: int  # its keys, all heads
    vocabulary: int
    # Counted on the Llama of transformers, which joins keys and values by `torch.cat`
    kernels_per_layer: int = 36

    @property
    def slot_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return 2 * self.layers * self.key_width * 2

    def flops(self, tokens: float, slots: float) -> float:
        """Return the operations of a forward pass of tokens that attend to `slots` keys each."""
        return tokens * (2 * self.parameters + 4 * self.layers * self.width * slots)


@dataclass(frozen=True)
class Step:
    """The shape of a forward pass: its tokens, their keys, and rows of log-probabilities."""

    tokens: int
    slots: int
    rows: int


H200 = Card("H200", 4.8e12, 790e12)
H100 = Card("H100", 3.35e12, 790e12)
LLAMA_7B = Network("Llama-2-7B", 6.74e9, 32, 4096, 4096, 32_000)
STRATEGIES = {
    "greedy": ("greedy", {}),
    "ten beams": ("diverse_beam", {}),
    "ten samples": ("multinomial", {}),
}
STRATEGIES |= {
    f"search, α = {alpha:g}": ("threshold", {"search_alpha": alpha}) for alpha in (0.05, 0.01)
}
REPEATS = 3
# Bytes for each log-probability of a step: those allocated in addition to the logits, which
# tests/generation/test_accelerator.py compares with a count, and those read or written by the
# package and the softmax.
PEAK_BYTES = {"greedy": 4, "diverse_beam": 8, "threshold": 12, "multinomial": 20}
MOVED_BYTES = {"greedy": 26, "diverse_beam": 54, "threshold": 66, "multinomial": 120}


def peak_bytes(strategy: str, rows: int, vocabulary: int, *, half: bool) -> int:
    """Return the largest memory of a step's log-probabilities, without weights and keys."""
    return rows * vocabulary * max(PEAK_BYTES[strategy], 6 if half else 4)


def step_bytes(step: Step, network: Network, strategy: str) -> dict[str, float]:
    """Return the bytes that a step moves in the memory of the card, by their purpose."""
    return {
        "weights": network.parameters * 2,
        "keys read": step.slots * network.slot_bytes,
        "keys copied": 2 * step.slots * network.slot_bytes,
        "mask": step.tokens * step.slots * (1 + 2 + 2 * network.layers),
        "log_probs": step.rows * network.vocabulary * MOVED_BYTES[strategy],
    }


def milliseconds(
    steps: Sequence[Step], network: Network, card: Card, strategy: str
) -> pd.DataFrame:
    """Return the milliseconds of each step: on the device, and for launches in parallel."""

    def on_device(step: Step) -> float:
        sent = step.tokens * (step.slots + 16) / card.host_bytes_per_second
        moved = sum(step_bytes(step, network, strategy).values())
        return card.seconds(moved, network.flops(step.tokens, step.slots)) + sent

    launches = (network.layers * network.kernels_per_layer + 40) * card.seconds_per_kernel
    return 1000 * pd.DataFrame(
        {"device": [on_device(step) for step in steps], "launches": launches}
    )


@contextmanager
def watched(network: torch.nn.Module) -> Iterator[tuple[list[Step], list[float]]]:
    """Record the shape of every forward pass of a network, and its seconds on the CPU."""
    steps = list[Step]()
    seconds = list[float]()

    def before(_: object, args: object, inputs: dict) -> None:
        tokens = inputs["input_ids"].shape[1]
        mask = inputs.get("attention_mask")
        keep = inputs.get("logits_to_keep", 1)
        slots = tokens if mask is None else mask.shape[-1]
        steps.append(Step(tokens, slots, keep if isinstance(keep, int) else len(keep)))
        seconds.append(-time.perf_counter())

    def after(*_: object) -> None:
        seconds[-1] += time.perf_counter()

    with (
        network.register_forward_pre_hook(before, with_kwargs=True),
        network.register_forward_hook(after),
    ):
        yield steps, seconds


def network_of(network: torch.nn.Module, name: str) -> Network:
    """Return the sizes of a loaded Llama."""
    config = network.config
    parameters = sum(parameter.numel() for parameter in network.parameters())
    key_width = config.num_key_value_heads * config.head_dim
    return Network(
        name, parameters, config.num_hidden_layers, config.hidden_size, key_width, config.vocab_size
    )


def counted(
    model, strategy: str, settings: dict, *, n_questions: int, repeats: int = REPEATS
) -> tuple[list[Step], float, float]:
    """Count the steps of a batch of questions with ten shots.

    Args:
        model: a model with `network`, `encode`, `endings` and `fit`.
        strategy: the name of the decoding strategy.
        settings: the settings of the strategy.
        n_questions: the number of questions in the batch.
        repeats: how often the batch is decoded.

    Returns:
        The steps, the lowest mean milliseconds of a step, and those without the network's time on
        the host.
    """
    questions = world_facts(n_questions, 10)
    all_seconds = list[float]()
    host_seconds = list[float]()
    prompts = [model.encode(prompt) for prompt in questions.prompts()]
    prefix = encode_prefix(model.network, prompts[0][: common_prefix_length(prompts)])
    for _ in range(repeats):
        tree = model.fit.tree(model.network, prompts, prefix=prefix, counts=ForwardCounts())
        with watched(model.network) as (steps, seconds):
            started = time.perf_counter()
            decode = strategy(strategy, **settings).decode
            decode(tree, model.endings, question_ids=list(questions.table["question_id"]))
            all_seconds.append((time.perf_counter() - started) / len(steps))
            host_seconds.append(all_seconds[-1] - sum(seconds) / len(steps))
    return steps, 1000 * min(all_seconds), 1000 * min(host_seconds)


def table(model: models.Model, network: Network, card: Card, *, n_questions: int) -> pd.DataFrame:
    """Return a row for each strategy: counted shapes and estimated milliseconds.

    The milliseconds of the host are measured on facts-2m, whose vocabulary is so small that the
    kernels of the CPU take little time.
    """
    small = models.load_model("facts-2m", device="cpu")
    rows = []
    for name, (strategy, settings) in STRATEGIES.items():
        # The time is not used.
        steps, *_ = counted(model, strategy, settings, n_questions=n_questions, repeats=1)
        *_, host_ms = counted(small, strategy, settings, n_questions=n_questions)
        moved = pd.DataFrame([step_bytes(step, network, strategy) for step in steps]).sum()
        ms = milliseconds(steps, network, card, strategy)
        row = {
            "strategy": name,
            "steps": len(steps),
            "tokens": sum(step.tokens for step in steps[1:]),
        }
        row |= {"slots": max(step.slots for step in steps), "ms_device": ms["device"][1:].mean()}
        row |= {"ms_launches": ms["launches"].mean(), "ms_host": host_ms}
        row |= {
            "ms_pack": (ms.max(axis=1) + host_ms).sum(),
            "ms_pack_graphs": (ms["device"] + host_ms).sum(),
        }
        weights_ms = 1000 * network.parameters * 2 / card.bytes_per_second
        row |= {"bandwidth": weights_ms * len(steps) / ms.max(axis=1).sum()}
        row |= {
            "share_copied": moved["keys copied"] / moved.sum(),
            "share_mask": moved["mask"] / moved.sum(),
        }
        peak = peak_bytes(strategy, max(step.rows for step in steps), network.vocabulary, half=True)
        rows.append(
            row | {"peak_mb": peak / 1e6, "cache_mb": row["slots"] * network.slot_bytes / 1e6}
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Count the shapes of a batch by each strategy, and print the estimates."""
    arguments = parse_arguments(__doc__, {"--model": "smollm2-135m", "--questions": [32, 128]})
    torch.set_num_threads(1)
    model = models.load_model(arguments.model, device="cpu", dtype="float32")
    for n_questions in arguments.questions:
        rows = table(model, LLAMA_7B, H200, n_questions=n_questions)
        print(f"{LLAMA_7B.name} on {H200.name}, {n_questions} questions")
        print(f"{rows.round(3).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
