"""Run all measurements of the docs that need a GPU, in one command of ten minutes.

    python benchmarks/on_gpu.py [--device cpu --dtype float32 --models facts-2m] [--step roofline]

Each step is a process. The results are written to the folder build/on_gpu:

- `agreement.csv`: all strategies on the device, compared with float32 on the CPU.
- `path.csv`: milliseconds of a step, waits, memory, copies of the cache and attention of cuDNN,
  next to the estimates of gpu_model.py.
- `roofline.csv`: the time of a decoding step, next to the time of reading all weights once.
- `ladder_….csv`: the arms of the ladder and their memory, for each model.
- `steps.csv`: the seconds and the end of each step.
- The output of each step.

A step is stopped after its share of the minutes, and the next one starts. `--step` runs one of the
first three steps alone.
"""

import inspect
import subprocess
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest import mock

import gpu_model
import ladder
import numpy as np
import pandas as pd
import random_models
import torch
import transformers
from measuring import ROOT, parse_arguments, world_facts
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pro_lib.generation import models, tokens
from pro_lib.generation.decoding import packed_tree
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.decoding.packed_tree import ForwardCounts, PackedTree, Prefix, encode_prefix
from pro_lib.generation.decoding.strategies import STRATEGIES
from pro_lib.generation.run_generation import generate
from pro_lib.runs.storage import Cost

SHAPES = ["random-gemma-2b", "random-gemma-7b", "random-llama-2-7b"]
# The share of the copy bandwidth that a good kernel reaches
ATTAINABLE = 0.8
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
WARM_UP = 3
PROMPT_TOKENS = 20
WIDTHS = (1, 32, 128)  # prefixes in a step


def agreement(arguments: Namespace) -> pd.DataFrame:
    """Compare the answers of each strategy and dtype with those on the CPU, a row each."""
    facts = world_facts(arguments.questions, 10)
    rows = []

    def answered(model: models.Model, strategy: str) -> tuple[pd.Series, Cost]:
        run = generate(model, facts, strategy=strategy, progress=False)
        answers = run.answers.assign(tokens=run.answers["token_ids"].map(tuple))
        answers = answers.drop_duplicates(["question_id", "tokens"])
        return answers.set_index(["question_id", "tokens"])["log_prob"], run.info.cost

    here = models.load_model("facts-2m", device="cpu", dtype="float32")
    expected = {strategy: answered(here, strategy)[0] for strategy in STRATEGIES}
    for dtype in ("float32", "bfloat16"):
        there = models.load_model("facts-2m", device=arguments.device, dtype=dtype)
        for strategy in STRATEGIES:
            log_probs, cost = answered(there, strategy)
            both = expected[strategy].to_frame("here").join(log_probs.rename("there"), how="outer")
            other = both.isna().any(axis=1).groupby(level=0).any()
            row = {
                "strategy": strategy,
                "dtype": dtype,
                "device": arguments.device,
                "questions": len(facts),
            }
            row |= {"questions_differing": int(other.sum())}
            row |= {"log_prob_apart": np.nanmax(abs(both["here"] - both["there"]))}
            rows.append(row | {"seconds": cost.seconds, "peak_bytes": cost.peak_memory_bytes})
    return pd.DataFrame(rows)


def path(arguments: Namespace) -> pd.DataFrame:
    """Measure the first network and estimate it by gpu_model.py, a row for each quantity."""
    name = arguments.models[0]
    network = load(name, arguments)
    facts = models.load_model("facts-2m", device="cpu")
    endings = tokens.find_endings(facts.tokenizer, network)
    model = SimpleNamespace(network=network, encode=facts.encode, endings=endings, fit=Fit(0.0))
    numbers = gpu_model.network_of(network, name)
    on_cuda = arguments.device == "cuda"
    card = gpu_model.H200 if on_cuda and "H200" in torch.cuda.get_device_name() else gpu_model.H100
    rows = []
    for label, (strategy, settings) in gpu_model.STRATEGIES.items():
        for what, *values in strategy_rows(model, numbers, card, strategy, settings, arguments):
            rows.append((f"{label}: {what}", *values))
    estimate = 3e6 * numbers.slot_bytes / card.bytes_per_second
    rows.append(("copying 1,500 slots: ms", copy_ms(network, numbers), estimate))
    rows += attention_rows(network, on_cuda=on_cuda)
    return pd.DataFrame(
        [
            {"network": name, "what": what, "measured": measured, "model": estimate}
            for what, measured, estimate in rows
        ]
    )


# A quantity, its measured value, and its estimate by gpu_model.py
Measurement = tuple[str, float, float]


def strategy_rows(
    model: SimpleNamespace,
    numbers: gpu_model.Network,
    card: gpu_model.Card,
    strategy: str,
    settings: dict,
    arguments: Namespace,
) -> Iterator[Measurement]:
    """Yield the time of a step of a strategy and, on a GPU, its memory and its waits."""
    on_cuda = arguments.device == "cuda"
    before = torch.cuda.memory_allocated() if on_cuda else 0
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    shapes, step_ms, host_ms = gpu_model.counted(
        model, strategy, settings, n_questions=arguments.questions
    )
    estimates = gpu_model.milliseconds(shapes, numbers, card, strategy)
    yield "ms a step", step_ms, estimates.max(axis=1).mean() + host_ms
    if not on_cuda:
        return
    measured = torch.cuda.max_memory_allocated() - before
    n_rows = max(shape.rows for shape in shapes)
    slots = max(shape.slots for shape in shapes)
    is_half = arguments.dtype != "float32"
    peak = gpu_model.peak_bytes(strategy, n_rows, numbers.vocabulary, half=is_half)
    estimate = peak + slots * numbers.slot_bytes
    yield "MB beyond the weights", measured / 1e6, estimate / 1e6
    yield "waits a step", waits(model, strategy, settings, arguments.questions), 1.0


def copy_ms(network: torch.nn.Module, numbers: gpu_model.Network) -> float:
    """Return the milliseconds of copying a cache of 1,500 tokens, keys and values."""
    shape = (1, 1, 1500, numbers.key_width)
    cache = [
        torch.zeros(shape, dtype=network.dtype, device=network.device)
        for _ in range(numbers.layers)
    ]

    def copy() -> list[Tensor]:
        return [torch.cat([keys, keys[:, :, :32]], dim=2) for keys in cache]

    return 2000 * min(seconds(copy, network.device, repeats=10))


def attention_rows(network: torch.nn.Module, *, on_cuda: bool) -> Iterator[Measurement]:
    """Yield the median time of a step with other attention kernels, divided by the usual one."""
    usual, _ = step_seconds(network, 32, repeats=20)
    kernels = {"with cuDNN's attention too": nullcontext}
    if on_cuda:
        # The only kernel that takes a 4-D additive mask and does not write scores. If it cannot run
        # alone, it raises an error.
        kernels["memory-efficient alone"] = partial(sdpa_kernel, [SDPBackend.EFFICIENT_ATTENTION])
    for what, make_context in kernels.items():
        with mock.patch.object(
            packed_tree,
            "attention_kernels",
            side_effect=lambda _, make_context=make_context: make_context(),
        ):
            times, _ = step_seconds(network, 32, repeats=20)
        yield f"attention, {what} ÷ as it is, median step", np.median(times) / np.median(usual), 1.0


def waits(model: SimpleNamespace, strategy: str, settings: dict, questions: int) -> float:
    """Return how often the host waits for the device per forward pass, as torch counts."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shapes, *_ = gpu_model.counted(model, strategy, settings, n_questions=questions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    n_waits = sum("synchronizing" in str(warning.message) for warning in caught)
    return n_waits / gpu_model.REPEATS / len(shapes)


def roofline(arguments: Namespace) -> pd.DataFrame:
    """Measure steps of several widths, next to their limit by the bandwidth of the memory."""
    device = torch.device(arguments.device)
    rows = []
    source = torch.ones(COPIED_BYTES.get(device.type, 2**28) // 4, device=device)
    target = torch.empty_like(source)
    # All bytes are read and written.
    bandwidth = 2 * source.nbytes / min(seconds(lambda: target.copy_(source), device, repeats=20))
    print(
        f"copy bandwidth {bandwidth / 1e9:.1f} GB/s, used for the limits; "
        f"the last column uses {ATTAINABLE:.0%} of it"
    )
    for name in arguments.models:
        network = load(name, arguments)
        weights = weight_bytes(network)
        slot = slot_bytes(network)
        for width in WIDTHS:
            timed, slots = step_seconds(network, width, repeats=10)
            cache = slots * slot
            limit = (weights + cache) / bandwidth
            row = {
                "model": name,
                "prefixes": width,
                "weights_gb": weights / 1e9,
                "cache_gb": cache / 1e9,
            }
            row |= {"ms_min": 1000 * min(timed), "ms_median": 1000 * sorted(timed)[len(timed) // 2]}
            rows.append(
                row
                | {"ms_limit": 1000 * limit, "times_attainable": min(timed) / (limit / ATTAINABLE)}
            )
        del network
    return pd.DataFrame(rows)


def weight_bytes(network: torch.nn.Module) -> int:
    """Return the bytes of weights that a step reads: all without unused token embeddings."""
    embedding = network.get_input_embeddings().weight
    head = network.get_output_embeddings().weight
    everything = sum(parameter.nbytes for parameter in network.parameters())
    return everything - (embedding.nbytes if embedding is not head else 0)


def slot_bytes(network: torch.nn.Module) -> int:
    """Return the bytes of the keys and values of one token."""
    return sum(keys.nbytes + values.nbytes for keys, values in encode_prefix(network, [3]).layers)


def step_seconds(network: torch.nn.Module, width: int, *, repeats: int) -> tuple[list[float], int]:
    """Measure steps that extend `width` prefixes by a token.

    Returns:
        The seconds of each step, and the number of tokens in the cache.
    """
    vocabulary = network.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)

    def drawn(n: int) -> Tensor:
        return torch.randint(3, vocabulary, (n,), generator=generator)

    tree = PackedTree(
        network,
        [drawn(PROMPT_TOKENS).tolist() for _ in range(width)],
        Prefix((), ()),
        ForwardCounts(),
    )
    tree.plant()
    everyone = torch.arange(width)
    timed = seconds(lambda: tree.grow(everyone, drawn(width)), network.device, repeats=repeats)
    return timed, tree.slots


def seconds(function: Callable, device: torch.device, *, repeats: int) -> list[float]:
    """Return the seconds of each call after a warm-up, including the work of the GPU."""
    times = []
    for _ in range(WARM_UP + repeats):
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return times[WARM_UP:]


def load(name: str, arguments: Namespace) -> torch.nn.Module:
    """Load a model, or make a network of `random_models.SHAPES` without calibration."""
    if name not in random_models.SHAPES:
        return models.load_model(name, device=arguments.device, dtype=arguments.dtype).network
    shape = random_models.SHAPES[name]
    return random_models.random_network(shape, last_tokens={3}, device=arguments.device).to(
        getattr(torch, arguments.dtype)
    )


def steps(arguments: Namespace) -> Iterator[tuple[str, list[str], float]]:
    """Yield the name, the command and the share of the time of each step."""
    form = [
        "--device",
        arguments.device,
        "--dtype",
        arguments.dtype,
        "--questions",
        str(arguments.questions),
    ]
    for name, share in (("agreement", 0.1), ("path", 0.15), ("roofline", 0.15)):
        yield (
            name,
            [
                __file__,
                "--step",
                name,
                *form,
                "--models",
                *arguments.models,
                "--out",
                str(arguments.out),
            ],
            share,
        )
    arms = available_arms(with_release=arguments.release)
    for name in arguments.models:
        table = [
            "--models",
            name,
            "--shots",
            "10",
            "--repeats",
            "2",
            "--out",
            str(arguments.out / f"ladder_{name}.csv"),
        ]
        options = [*table, "--release-questions", "2", "--arms", *arms]
        yield f"ladder_{name}", [ladder.__file__, *form, *options], 0.45 / len(arguments.models)


def available_arms(*, with_release: bool) -> list[str]:
    """Return the arms of the ladder that this environment can run.

    Arms A, B and C need the environment of `make golden`; H and J need a transformers whose
    continuous batching takes a page size.
    """
    config = getattr(transformers, "ContinuousBatchingConfig", None)
    has_pages = config is not None and "page_size" in inspect.signature(config).parameters
    unavailable = set() if with_release else set(ladder.RELEASE_ARMS)
    if not has_pages:
        unavailable |= {"H", "J"}
    return [arm for arm in ladder.NAMES if arm not in unavailable]


def main() -> None:
    """Run the steps one after the other, and print and store their output."""
    options = {
        "--device": "cuda",
        "--dtype": "bfloat16",
        "--models": SHAPES,
        "--questions": 32,
        "--minutes": 9.5,
    }
    arguments = parse_arguments(
        __doc__, options | {"--release": False, "--out": ROOT / "build" / "on_gpu", "--step": str}
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.step:
        measure = {"agreement": agreement, "path": path, "roofline": roofline}[arguments.step]
        table = measure(arguments)
        table.to_csv(arguments.out / f"{arguments.step}.csv", index=False)
        print(table.to_string(index=False))
        return
    rows = []
    spare = 0.0
    for name, command, share in steps(arguments):
        limit = share * 60 * arguments.minutes + spare
        started = time.monotonic()
        with open(arguments.out / f"{name}.txt", "w") as log:
            try:
                status = subprocess.run(
                    [sys.executable, *command], stdout=log, stderr=log, timeout=limit
                ).returncode
                ended = "done" if status == 0 else f"failed with status {status}"
            except subprocess.TimeoutExpired:
                ended = f"stopped after {limit:.0f} s"
        duration = time.monotonic() - started
        spare = limit - duration  # for the next step
        rows.append({"step": name, "seconds": duration, "ended": ended})
        output = (arguments.out / f"{name}.txt").read_text()[-3000:]
        print(f"== {name}: {ended}, {duration:.0f} s\n{output}", flush=True)
        pd.DataFrame(rows).to_csv(arguments.out / "steps.csv", index=False)
    sys.exit(int(any(row["ended"] != "done" for row in rows)))


if __name__ == "__main__":
    main()
