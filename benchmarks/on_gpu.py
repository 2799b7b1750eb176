"""Everything that the docs leave open for want of a GPU, in one command of ten minutes; each step is a process.

Run from the repository root: `python benchmarks/on_gpu.py`. It leaves a folder, build/on_gpu: `agreement.csv` (all
strategies on the device against float32 on the processor), `roofline.txt`, a `ladder_….csv`
a model (arms, memory), `steps.csv` (seconds, how each step ended), and what the steps printed. A step is stopped when
its share of the minutes is over, and those after it run all the same. Without a GPU it is tried by `--device cpu
--dtype float32 --models facts-2m`.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from pro_lib import models
from pro_lib import questions as question_sets
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


def steps(asked: argparse.Namespace) -> Iterator[tuple[str, list[str], float]]:
    """Name, command and share of the time of each step; what matters most comes first."""
    form = ["--device", asked.device, "--dtype", asked.dtype]
    count = ["--questions", str(asked.questions)]
    yield "agreement", [__file__, "--agreement", *form, *count, "--out", str(asked.out)], 0.1
    yield "roofline", [str(HERE / "roofline.py"), *form, "--models", *asked.models], 0.15
    arms = (RELEASE_ARMS if asked.release else ()) + ARMS
    for name in asked.models:
        table = ["--models", name, "--shots", "10", "--repeats", "2", "--out", str(asked.out / f"ladder_{name}.csv")]
        options = [*table, *count, "--release-questions", "2", "--arms", *arms]
        yield f"ladder_{name}", [str(HERE / "ladder.py"), *form, *options], 0.6 / len(asked.models)


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
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.agreement:
        table = agreement(asked.device, asked.questions)
        table.to_csv(asked.out / "agreement.csv", index=False)
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
