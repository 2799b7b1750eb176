"""Everything that the docs leave open for want of a GPU, in one command of ten minutes; each step is a process.

Run from the repository root: `python benchmarks/on_gpu.py`. It leaves a folder, build/on_gpu: `agreement.csv` (all
strategies on the device against float32 on the processor), `path.csv` (milliseconds of a step, waits, memory, the
cache's copies and cuDNN's attention, each beside what gpu_model.py says), `roofline.csv` (how far a decode step is from
the memory's bandwidth, since the weights must be read once a step), a `ladder_….csv` a model (arms, memory),
`steps.csv` (seconds, how each step ended), and what the steps printed. A step is stopped when its share of the minutes
is over, and those after it run all the same. Without a GPU it is tried by `--device cpu --dtype float32 --models
facts-2m`, and one of the first three steps alone by `--step roofline`.
"""

import inspect
import subprocess
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
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

from pro_lib.generation import models
from pro_lib.generation.decoding import (
    STRATEGIES,
    ForwardCounts,
    PackedTree,
    Prefix,
    encode_prefix,
    packed_tree,
)
from pro_lib.generation.decoding.compatibility import Fit
from pro_lib.generation.generate import generate
from pro_lib.runs.storage import Cost

SHAPES = ["random-gemma-2b", "random-gemma-7b", "random-llama-2-7b"]
# The share of the copy bandwidth that a good kernel gets; steps are held against it.
ATTAINABLE = 0.8
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**31}
WARM_UP, PROMPT_TOKENS = 3, 20
WIDTHS = (1, 32, 128)  # prefixes in a step


def agreement(given: Namespace) -> pd.DataFrame:
    """A row per strategy and dtype: questions with other answers than on the processor, and how far log p moves."""
    facts, rows = world_facts(given.questions, 10), []

    def answered(model: models.Model, strategy: str) -> tuple[pd.Series, Cost]:
        run = generate(model, facts, strategy=strategy, progress=False)
        answers = run.answers.assign(tokens=run.answers["token_ids"].map(tuple))
        answers = answers.drop_duplicates(["question_id", "tokens"])
        return answers.set_index(["question_id", "tokens"])["log_prob"], run.info.cost

    here = models.load_model("facts-2m", device="cpu", dtype="float32")
    expected = {strategy: answered(here, strategy)[0] for strategy in STRATEGIES}
    for dtype in ("float32", "bfloat16"):
        there = models.load_model("facts-2m", device=given.device, dtype=dtype)
        for strategy in STRATEGIES:
            found, cost = answered(there, strategy)
            both = expected[strategy].to_frame("here").join(found.rename("there"), how="outer")
            other = both.isna().any(axis=1).groupby(level=0).any()
            row = {
                "strategy": strategy,
                "dtype": dtype,
                "device": given.device,
                "questions": len(facts),
            }
            row |= {"questions_differing": int(other.sum())}
            row |= {"log_prob_apart": np.nanmax(abs(both["here"] - both["there"]))}
            rows.append(row | {"seconds": cost.seconds, "peak_bytes": cost.peak_memory_bytes})
    return pd.DataFrame(rows)


def path(given: Namespace) -> pd.DataFrame:
    """What is measured of the first network beside what the model says of it, a row each."""
    name, questions = given.models[0], given.questions
    network, facts = load(name, given), models.load_model("facts-2m", device="cpu")
    endings = models.find_endings(facts.tokenizer, network)
    model = SimpleNamespace(network=network, encode=facts.encode, endings=endings, fit=Fit(0.0))
    numbers, on_cuda, rows = gpu_model.network_of(network, name), given.device == "cuda", []
    card = gpu_model.H200 if on_cuda and "H200" in torch.cuda.get_device_name() else gpu_model.H100

    def add(what: str, measured: float, by_model: float) -> None:
        rows.append({"network": name, "what": what, "measured": measured, "model": by_model})

    for label, (strategy, settings) in gpu_model.STRATEGIES.items():
        before = torch.cuda.memory_allocated() if on_cuda else 0
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        shapes, whole_ms, own_ms = gpu_model.counted(
            model, strategy, settings, n_questions=questions
        )
        ms = gpu_model.milliseconds(shapes, numbers, card, strategy)
        add(f"{label}: ms a step", whole_ms, ms.max(axis=1).mean() + own_ms)
        if on_cuda:
            most, slots = max(shape.rows for shape in shapes), max(shape.slots for shape in shapes)
            peak = gpu_model.peak_bytes(
                strategy, most, numbers.vocabulary, half=given.dtype != "float32"
            )
            measured = torch.cuda.max_memory_allocated() - before
            add(
                f"{label}: MB beyond the weights",
                measured / 1e6,
                (peak + slots * numbers.slot_bytes) / 1e6,
            )
            add(f"{label}: waits a step", waits(model, strategy, settings, questions), 1.0)
    shape = 1, 1, 1500, numbers.key_width
    cache = [
        torch.zeros(shape, dtype=network.dtype, device=network.device)
        for _ in range(numbers.layers)
    ]
    copied = seconds(
        lambda: [torch.cat([keys, keys[:, :, :32]], dim=2) for keys in cache],
        network.device,
        repeats=10,
    )
    add(
        "copying 1,500 slots: ms",
        2000 * min(copied),
        3e6 * numbers.slot_bytes / card.bytes_per_second,
    )
    plain, _ = step_seconds(network, 32, repeats=20)
    kernels = {"with cuDNN's attention too": nullcontext}
    if on_cuda:  # the one kernel that takes a 4-D additive mask and writes no scores; it raises where that does not
        kernels["memory-efficient alone"] = lambda: sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION])
    for what, allowed in kernels.items():
        with mock.patch.object(
            packed_tree, "attention_kernels", side_effect=lambda _, allowed=allowed: allowed()
        ):
            timed, _ = step_seconds(network, 32, repeats=20)
        add(f"attention, {what} ÷ as it is, median step", np.median(timed) / np.median(plain), 1.0)
    return pd.DataFrame(rows)


def waits(model: SimpleNamespace, strategy: str, settings: dict, questions: int) -> float:
    """How often the host waits for the device, by torch's own count, for each forward pass."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shapes, *_ = gpu_model.counted(model, strategy, settings, n_questions=questions)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    n_waits = sum("synchronizing" in str(warning.message) for warning in caught)
    return n_waits / gpu_model.REPEATS / len(shapes)


def roofline(given: Namespace) -> pd.DataFrame:
    """What a step of so many prefixes takes, and the least that it could by the memory's bandwidth, a row each."""
    device, rows = torch.device(given.device), []
    source = torch.ones(COPIED_BYTES.get(device.type, 2**28) // 4, device=device)
    target = torch.empty_like(source)
    # Read and written
    bandwidth = 2 * source.nbytes / min(seconds(lambda: target.copy_(source), device, repeats=20))
    print(
        f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; limits at all of it, the last column at {ATTAINABLE:.0%} of it"
    )
    for name in given.models:
        network = load(name, given)
        read, slot = weight_bytes(network), slot_bytes(network)
        for width in WIDTHS:
            timed, slots = step_seconds(network, width, repeats=10)
            cache = slots * slot
            limit = (read + cache) / bandwidth
            row = {
                "model": name,
                "prefixes": width,
                "weights_gb": read / 1e9,
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
    """Bytes of weights that a step reads: all but the embeddings of tokens that are not there."""
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    everything = sum(parameter.nbytes for parameter in network.parameters())
    return everything - (embedding.nbytes if embedding is not head else 0)


def slot_bytes(network: torch.nn.Module) -> int:
    """Bytes of the keys and values of one token."""
    return sum(keys.nbytes + values.nbytes for keys, values in encode_prefix(network, [3]).layers)


def step_seconds(network: torch.nn.Module, width: int, *, repeats: int) -> tuple[list[float], int]:
    """Seconds of steps that grow `width` prefixes by a token, and of how many tokens each reads keys and values."""
    vocabulary, generator = (
        network.config.get_text_config().vocab_size,
        torch.Generator().manual_seed(0),
    )

    def drawn(n: int) -> Tensor:
        return torch.randint(3, vocabulary, (n,), generator=generator)

    grown = PackedTree(
        network,
        [drawn(PROMPT_TOKENS).tolist() for _ in range(width)],
        Prefix((), ()),
        ForwardCounts(),
    )
    grown.plant()
    everyone = torch.arange(width)
    timed = seconds(lambda: grown.grow(everyone, drawn(width)), network.device, repeats=repeats)
    return timed, grown.slots


def seconds(function: Callable, device: torch.device, *, repeats: int) -> list[float]:
    """Return the time of each call, after a few that do not count, the work of a GPU included."""
    found = []
    for _ in range(WARM_UP + repeats):
        started = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - started)
    return found[WARM_UP:]


def load(name: str, given: Namespace) -> torch.nn.Module:
    """A random network of `random_models.SHAPES`, not calibrated, or a model as users load it."""
    if name not in random_models.SHAPES:
        return models.load_model(name, device=given.device, dtype=given.dtype).network
    shape = random_models.SHAPES[name]
    return random_models.random_network(shape, last_tokens={3}, device=given.device).to(
        getattr(torch, given.dtype)
    )


def steps(given: Namespace) -> Iterator[tuple[str, list[str], float]]:
    """Name, command and share of the time of each step; what matters most comes first."""
    form = ["--device", given.device, "--dtype", given.dtype, "--questions", str(given.questions)]
    for name, share in (("agreement", 0.1), ("path", 0.15), ("roofline", 0.15)):
        yield (
            name,
            [__file__, "--step", name, *form, "--models", *given.models, "--out", str(given.out)],
            share,
        )
    arms = available_arms(with_release=given.release)
    for name in given.models:
        table = [
            "--models",
            name,
            "--shots",
            "10",
            "--repeats",
            "2",
            "--out",
            str(given.out / f"ladder_{name}.csv"),
        ]
        options = [*table, "--release-questions", "2", "--arms", *arms]
        yield f"ladder_{name}", [ladder.__file__, *form, *options], 0.45 / len(given.models)


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
    """Run the steps one after the other, each within what is left; print and keep what they say."""
    options = {
        "--device": "cuda",
        "--dtype": "bfloat16",
        "--models": SHAPES,
        "--questions": 32,
        "--minutes": 9.5,
    }
    given = parse_arguments(
        __doc__, options | {"--release": False, "--out": ROOT / "build" / "on_gpu", "--step": str}
    )
    given.out.mkdir(parents=True, exist_ok=True)
    if given.step:
        table = {"agreement": agreement, "path": path, "roofline": roofline}[given.step](given)
        table.to_csv(given.out / f"{given.step}.csv", index=False)
        print(table.to_string(index=False))
        return
    rows, spare = [], 0.0
    for name, command, share in steps(given):
        limit, started = share * 60 * given.minutes + spare, time.monotonic()
        with open(given.out / f"{name}.txt", "w") as log:
            try:
                status = subprocess.run(
                    [sys.executable, *command], stdout=log, stderr=log, timeout=limit
                ).returncode
                ended = "done" if status == 0 else f"failed with status {status}"
            except subprocess.TimeoutExpired:
                ended = f"stopped after {limit:.0f} s"
        taken = time.monotonic() - started
        spare = limit - taken  # what a step leaves, the next one may use
        rows.append({"step": name, "seconds": taken, "ended": ended})
        print(
            f"== {name}: {ended}, {taken:.0f} s\n{(given.out / f'{name}.txt').read_text()[-3000:]}",
            flush=True,
        )
        pd.DataFrame(rows).to_csv(given.out / "steps.csv", index=False)
    sys.exit(int(any(row["ended"] != "done" for row in rows)))


if __name__ == "__main__":
    main()
