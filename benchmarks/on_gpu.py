"""Everything that the docs leave open for want of a GPU, in one command of ten minutes; each step is a process.

Run from the repository root: `python benchmarks/on_gpu.py`. It leaves a folder, build/on_gpu: `agreement.csv` (all
strategies on the device against float32 on the processor), `path.csv` (milliseconds of a step, waits, memory, the
cache's copies and cuDNN's attention, each beside what gpu_model.py says), `roofline.txt`, a `ladder_….csv` a model
(arms, memory), `steps.csv` (seconds, how each step ended), and what the steps printed. A step is stopped when its share
of the minutes is over, and those after it run all the same. Without a GPU it is tried by `--device cpu --dtype float32
--models facts-2m`.
"""

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import gpu_model
import numpy as np
import pandas as pd
import roofline
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.engine import tree
from pro_lib.engine.fit import Fit
from pro_lib.generate import generate
from pro_lib.store import Cost

HERE = Path(__file__).parent
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
SHAPES = ("random-gemma-2b", "random-gemma-7b", "random-llama-2-7b")
# What the library offers beside; A, B and C want the environment of `make golden` and are asked for by --release, K
# and L one with vLLM.
ARMS = ("D", "E", "F 0.4", "F 0.05", "F 0.01", "G", "H", "I", "J")
RELEASE_ARMS = ("A", "B", "C")


def agreement(device: str, questions: int) -> pd.DataFrame:
    """A row per strategy and dtype: questions with other answers than on the processor, and how far log p moves."""
    asked, rows = question_sets.load("world-facts", split="test", limit=questions, n_shots=10), []

    def answered(model: models.Model, strategy: str) -> tuple[pd.Series, Cost]:
        run = generate(model, asked, strategy=strategy, progress=False)
        answers = run.answers.assign(tokens=run.answers["token_ids"].map(tuple))
        answers = answers.drop_duplicates(["question_id", "tokens"])
        return answers.set_index(["question_id", "tokens"])["log_prob"], run.info.cost

    here = models.load("facts-2m", device="cpu", dtype="float32")
    expected = {strategy: answered(here, strategy)[0] for strategy in STRATEGIES}
    for dtype in ("float32", "bfloat16"):
        there = models.load("facts-2m", device=device, dtype=dtype)
        for strategy in STRATEGIES:
            found, cost = answered(there, strategy)
            both = expected[strategy].to_frame("here").join(found.rename("there"), how="outer")
            other = both.isna().any(axis=1).groupby(level=0).any()
            row = {"strategy": strategy, "dtype": dtype, "device": device, "questions": len(asked)}
            row |= {
                "questions_differing": int(other.sum()),
                "log_prob_apart": np.nanmax(abs(both["here"] - both["there"])),
            }
            rows.append(row | {"seconds": cost.seconds, "peak_bytes": cost.peak_memory_bytes})
    return pd.DataFrame(rows)


def path(name: str, device: str, dtype: str, questions: int) -> pd.DataFrame:
    """What is measured of a network of random weights beside what the model says of it, a row each."""
    network, facts = roofline.load(name, torch.device(device), dtype), models.load("facts-2m", device="cpu")
    endings = models.find_endings(facts.tokenizer, network)
    model = SimpleNamespace(network=network, encode=facts.encode, endings=endings, fit=Fit(0.0))
    card = gpu_model.H200 if device == "cuda" and "H200" in torch.cuda.get_device_name() else gpu_model.H100
    numbers, on_cuda, rows = gpu_model.network_of(network, name), device == "cuda", []

    def add(what: str, measured: float, by_model: float) -> None:
        rows.append({"network": name, "what": what, "measured": measured, "model": by_model})

    for label, (strategy, settings) in gpu_model.STRATEGIES.items():
        before = torch.cuda.memory_allocated() if on_cuda else 0
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        shapes, whole_ms, own_ms = gpu_model.counted(model, strategy, settings, n_questions=questions)
        ms = gpu_model.milliseconds(shapes, numbers, card, strategy)
        add(f"{label}: ms a step", whole_ms, ms.max(axis=1).mean() + own_ms)
        if on_cuda:
            most, slots = max(shape.rows for shape in shapes), max(shape.slots for shape in shapes)
            peak = gpu_model.peak_bytes(strategy, most, numbers.vocabulary, half=dtype != "float32")
            cache = slots * numbers.slot_bytes
            add(
                f"{label}: MB beyond the weights",
                (torch.cuda.max_memory_allocated() - before) / 1e6,
                (peak + cache) / 1e6,
            )
            add(f"{label}: waits a step", waits(model, strategy, settings, questions), 1.0)
    cache = [
        torch.zeros(1, 1, 1500, numbers.key_width, dtype=network.dtype, device=device) for _ in range(numbers.layers)
    ]
    copied = roofline.seconds(
        lambda: [torch.cat([keys, keys[:, :, :32]], dim=2) for keys in cache], network.device, repeats=10
    )
    add("copying 1,500 slots: ms", 2000 * min(copied), 3e6 * numbers.slot_bytes / card.bytes_per_second)
    plain, _ = roofline.steps(network, 32, prompt_tokens=20, repeats=20)
    others = {"with cuDNN's attention too": nullcontext} | (
        {"memory-efficient alone": efficient_alone} if on_cuda else {}
    )
    for what, kernels in others.items():
        with mock.patch.object(tree, "attention_kernels", side_effect=lambda _, kernels=kernels: kernels()):
            timed, _ = roofline.steps(network, 32, prompt_tokens=20, repeats=20)
        add(f"attention, {what} ÷ as it is, median step", np.median(timed) / np.median(plain), 1.0)
    return pd.DataFrame(rows)


def efficient_alone() -> AbstractContextManager[None]:
    """Allow the one kernel that takes a 4-D additive mask and writes no scores; it raises where that does not."""
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION])


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


def steps(asked: argparse.Namespace) -> Iterator[tuple[str, list[str], float]]:
    """Name, command and share of the time of each step; what matters most comes first."""
    form = ["--device", asked.device, "--dtype", asked.dtype]
    count = ["--questions", str(asked.questions)]
    yield "agreement", [__file__, "--agreement", *form, *count, "--out", str(asked.out)], 0.1
    yield "path", [__file__, "--path", *form, *count, "--models", asked.models[0], "--out", str(asked.out)], 0.15
    yield "roofline", [str(HERE / "roofline.py"), *form, "--models", *asked.models], 0.15
    arms = (RELEASE_ARMS if asked.release else ()) + ARMS
    for name in asked.models:
        table = ["--models", name, "--shots", "10", "--repeats", "2", "--out", str(asked.out / f"ladder_{name}.csv")]
        options = [*table, *count, "--release-questions", "2", "--arms", *arms]
        yield f"ladder_{name}", [str(HERE / "ladder.py"), *form, *options], 0.45 / len(asked.models)


def main() -> None:
    """Run the steps one after the other, each within what is left; print and keep what they say."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--models", nargs="+", default=list(SHAPES))
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--minutes", type=float, default=9.5)
    parser.add_argument("--release", action="store_true", help="the release's arms A, B and C too")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "on_gpu")
    parser.add_argument("--agreement", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--path", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.agreement or asked.path:
        name = "agreement" if asked.agreement else "path"
        measured = (asked.models[0], asked.device, asked.dtype, asked.questions)
        table = agreement(asked.device, asked.questions) if asked.agreement else path(*measured)
        table.to_csv(asked.out / f"{name}.csv", index=False)
        print(table.to_string(index=False))
        return
    rows, spare = [], 0.0
    for name, command, share in steps(asked):
        limit, started = share * 60 * asked.minutes + spare, time.monotonic()
        with open(asked.out / f"{name}.txt", "w") as log:
            try:
                status = subprocess.run([sys.executable, *command], stdout=log, stderr=log, timeout=limit).returncode
                ended = "done" if status == 0 else f"failed with status {status}"
            except subprocess.TimeoutExpired:
                ended = f"stopped after {limit:.0f} s"
        seconds = time.monotonic() - started
        spare = limit - seconds  # what a step leaves, the next one may use
        rows.append({"step": name, "seconds": seconds, "ended": ended})
        print(f"== {name}: {ended}, {seconds:.0f} s\n{(asked.out / f'{name}.txt').read_text()[-3000:]}", flush=True)
        pd.DataFrame(rows).to_csv(asked.out / "steps.csv", index=False)
    sys.exit(int(any(row["ended"] != "done" for row in rows)))


if __name__ == "__main__":
    main()
