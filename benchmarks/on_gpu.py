"""Everything that the docs leave open for want of a GPU, in one command of ten minutes; each step is a process.

Run from the repository root: `python benchmarks/on_gpu.py`. It leaves a folder, build/on_gpu: `agreement.csv` (all
strategies on the device against float32 on the processor), `path.csv` (milliseconds of a step, waits, memory, the
cache's copies and cuDNN's attention, each beside what gpu_model.py says), `roofline.txt`, a `ladder_….csv` a model
(arms, memory), `steps.csv` (seconds, how each step ended), and what the steps printed. A step is stopped when its share
of the minutes is over, and those after it run all the same. Without a GPU it is tried by `--device cpu --dtype float32
--models facts-2m`.
"""

import subprocess
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import gpu_model
import numpy as np
import pandas as pd
import roofline
import torch
from measuring import ROOT, asked, seconds, world_facts
from torch.nn.attention import SDPBackend, sdpa_kernel

from pro_lib import models
from pro_lib.engine import tree
from pro_lib.engine.fit import Fit
from pro_lib.generate import generate
from pro_lib.store import Cost

HERE = Path(__file__).parent
STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
SHAPES = ("random-gemma-2b", "random-gemma-7b", "random-llama-2-7b")
# What the library offers beside; A, B and C want the environment of `make golden` and are asked for by --release.
ARMS = ("D", "E", "F 0.4", "F 0.05", "F 0.01", "G", "H", "I", "J")
RELEASE_ARMS = ("A", "B", "C")


def agreement(device: str, questions: int) -> pd.DataFrame:
    """A row per strategy and dtype: questions with other answers than on the processor, and how far log p moves."""
    facts, rows = world_facts(questions, 10), []

    def answered(model: models.Model, strategy: str) -> tuple[pd.Series, Cost]:
        run = generate(model, facts, strategy=strategy, progress=False)
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
            row = {"strategy": strategy, "dtype": dtype, "device": device, "questions": len(facts)}
            row |= {"questions_differing": int(other.sum())}
            row |= {"log_prob_apart": np.nanmax(abs(both["here"] - both["there"]))}
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
            measured = torch.cuda.max_memory_allocated() - before
            add(f"{label}: MB beyond the weights", measured / 1e6, (peak + slots * numbers.slot_bytes) / 1e6)
            add(f"{label}: waits a step", waits(model, strategy, settings, questions), 1.0)
    shape = 1, 1, 1500, numbers.key_width
    cache = [torch.zeros(shape, dtype=network.dtype, device=device) for _ in range(numbers.layers)]
    how = {"repeats": 10, "warm_up": roofline.WARM_UP, "device": network.device}
    copied = seconds(lambda: [torch.cat([keys, keys[:, :, :32]], dim=2) for keys in cache], **how)
    add("copying 1,500 slots: ms", 2000 * min(copied), 3e6 * numbers.slot_bytes / card.bytes_per_second)
    plain, _ = roofline.steps(network, 32, repeats=20)
    kernels = {"with cuDNN's attention too": nullcontext}
    if on_cuda:  # the one kernel that takes a 4-D additive mask and writes no scores; it raises where that does not
        kernels["memory-efficient alone"] = lambda: sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION])
    for what, allowed in kernels.items():
        with mock.patch.object(tree, "attention_kernels", side_effect=lambda _, allowed=allowed: allowed()):
            timed, _ = roofline.steps(network, 32, repeats=20)
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


def steps(given: Namespace) -> Iterator[tuple[str, list[str], float]]:
    """Name, command and share of the time of each step; what matters most comes first."""
    form, count = ["--device", given.device, "--dtype", given.dtype], ["--questions", str(given.questions)]
    ours = [*form, *count, "--models", given.models[0], "--out", str(given.out)]
    yield "agreement", [__file__, "--agreement", *ours], 0.1
    yield "path", [__file__, "--path", *ours], 0.15
    yield "roofline", [str(HERE / "roofline.py"), *form, "--models", *given.models], 0.15
    arms = (RELEASE_ARMS if given.release else ()) + ARMS
    for name in given.models:
        table = ["--models", name, "--shots", "10", "--repeats", "2", "--out", str(given.out / f"ladder_{name}.csv")]
        options = [*table, *count, "--release-questions", "2", "--arms", *arms]
        yield f"ladder_{name}", [str(HERE / "ladder.py"), *form, *options], 0.45 / len(given.models)


def main() -> None:
    """Run the steps one after the other, each within what is left; print and keep what they say."""
    options = {"--device": "cuda", "--dtype": "bfloat16", "--models": list(SHAPES), "--questions": 32, "--minutes": 9.5}
    own_steps = {"--agreement": False, "--path": False}
    given = asked(__doc__, options | {"--release": False, "--out": ROOT / "build" / "on_gpu"} | own_steps)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.agreement or given.path:
        name = "agreement" if given.agreement else "path"
        measured = (given.models[0], given.device, given.dtype, given.questions)
        table = agreement(given.device, given.questions) if given.agreement else path(*measured)
        table.to_csv(given.out / f"{name}.csv", index=False)
        print(table.to_string(index=False))
        return
    rows, spare = [], 0.0
    for name, command, share in steps(given):
        limit, started = share * 60 * given.minutes + spare, time.monotonic()
        with open(given.out / f"{name}.txt", "w") as log:
            try:
                status = subprocess.run([sys.executable, *command], stdout=log, stderr=log, timeout=limit).returncode
                ended = "done" if status == 0 else f"failed with status {status}"
            except subprocess.TimeoutExpired:
                ended = f"stopped after {limit:.0f} s"
        taken = time.monotonic() - started
        spare = limit - taken  # what a step leaves, the next one may use
        rows.append({"step": name, "seconds": taken, "ended": ended})
        print(f"== {name}: {ended}, {taken:.0f} s\n{(given.out / f'{name}.txt').read_text()[-3000:]}", flush=True)
        pd.DataFrame(rows).to_csv(given.out / "steps.csv", index=False)
    sys.exit(int(any(row["ended"] != "done" for row in rows)))


if __name__ == "__main__":
    main()
