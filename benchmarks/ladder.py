"""Compare the speed of decoding in steps from the paper's release to exact search.

    python benchmarks/ladder.py [--models facts-2m] [--shots 0 10] [--arms A B …]

docs/results/speed.md explains the arms. Each environment has a worker process with the same
weights, prompts, stop tokens, dtype, attention kernel and threads. The script first counts the
tokens of each arm, which do not depend on the machine, and then times the arms in turn, in rounds.
"""

import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import ladder_release
import pandas as pd
import random_models
import torch
from ladder_release import MARK, Prompts, Settings
from measuring import ROOT, decode_batches, parse_arguments, world_facts

from pro_lib.generation import models
from pro_lib.generation.decoding import strategies
from pro_lib.generation.decoding.packed_tree import encode_prefix

RELEASE_PYTHON = ROOT / "build" / "golden" / "bin" / "python"  # of `make golden`
RELEASE_ARMS = {
    "A": "release: beams one by one, rescored",
    "B": "A without rescoring",
    "C": "B in padded batches",
}
NAMES = RELEASE_ARMS | {
    "D": "ours: diverse beams",
    "E": "ours: greedy",
    **{f"F {alpha:g}": f"ours: threshold, α = {alpha:g}" for alpha in (0.4, 0.05, 0.01)},
    "G": "library: greedy in padded batches",
    "H": "library: greedy, continuous batching",
    "I": "ours: samples",
    "J": "library: samples, continuous batching",
}
ONE_BY_ONE = ("A", "B")
# Arms with the same answers; an arm is compared with the first of them that was run.
SAME_ANSWERS = {"B": ("A",), "C": ("A", "B"), "D": ("A", "B", "C"), "E": ("G",), "H": ("G", "E")}
CALIBRATION_QUESTIONS = 128
# N, λ and T of all arms
SETTINGS = {
    "n_answers": 10,
    "diversity_penalty": 1.0,
    "max_new_tokens": 32,
}
# The largest difference in log-probability between two environments that counts as rounding
TOLERANCE = 1e-3


def our_arm(options: dict, network, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """Decode by one of the project's strategies; the time of the shared prefix is included."""
    endings = random_models.endings(network, settings.stop)
    shared = {
        name: getattr(settings, name)
        for name in ("n_answers", "diversity_penalty", "max_new_tokens")
    }
    strategy = strategies.strategy(**options, **strategies.own_settings(options["name"], shared))
    prefix = encode_prefix(network, settings.prefix)
    results, _ = decode_batches(strategy, network, endings, prompts, prefix, batch_size)
    return [[list(answer.token_ids) for answer in answers] for answers, _ in results]


OUR_SETTINGS = {
    "D": {"name": "diverse_beam"},
    "E": {"name": "greedy"},
    "I": {"name": "multinomial"},
}
OUR_SETTINGS |= {
    f"F {alpha:g}": {"name": "threshold", "search_alpha": alpha} for alpha in (0.4, 0.05, 0.01)
}


@contextmanager
def worker(command: list[str], job: Path) -> Iterator[tuple[dict, Callable[[str, dict], dict]]]:
    """Start a process with a model in one environment.

    Yields its first reply, and a function that makes it run an arm once.
    """
    process = subprocess.Popen(
        [*command, str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def read() -> dict:
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(
            f"the worker {' '.join(process.args)} ended with status {process.wait()}"
        )

    def ask(mode: str, case: dict) -> dict:
        process.stdin.write(json.dumps({"mode": mode, **case}) + "\n")
        process.stdin.flush()
        return read()

    with process:
        yield read(), ask


def cases(arguments: Namespace) -> list[dict]:
    """Return the cases of each round: arm, batch size and number of questions.

    One-by-one arms have no batch size, and C at batch 1 would be B.
    """
    all_cases = []
    for arm in arguments.arms:
        questions = arguments.release_questions if arm in RELEASE_ARMS else arguments.questions
        sizes = (
            {1} if arm in ONE_BY_ONE else {min(size, questions) for size in arguments.batch_sizes}
        )
        sizes = sorted(sizes - {1} if arm == "C" else sizes)
        all_cases += [{"arm": arm, "batch_size": size, "questions": questions} for size in sizes]
    return all_cases


def climb(job: Path, arguments: Namespace) -> tuple[pd.DataFrame, dict[str, str]]:
    """Run all arms on one model; return a row for each case, and the versions of libraries."""
    commands = {"ours": [sys.executable, __file__, "--serve"]}
    if set(arguments.arms) & set(RELEASE_ARMS):
        commands["release"] = [str(RELEASE_PYTHON), str(Path(ladder_release.__file__))]
    all_cases = cases(arguments)
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(command, job)) for name, command in commands.items()
        }
        versions = _checked_versions({name: greeting for name, (greeting, _) in workers.items()})
        asks = [workers[_environment(case)][1] for case in all_cases]
        # Counting runs each arm once, which also warms it up.
        counted, *rounds = (
            [ask(mode, case) for ask, case in zip(asks, all_cases, strict=True)]
            for mode in ("count", *["time"] * arguments.repeats)
        )
    rows = [
        _row(case, *replies)
        for case, *replies in zip(all_cases, counted, zip(*rounds, strict=True), strict=True)
    ]
    _compare_answers(rows, counted)
    return pd.DataFrame(rows), versions


def _environment(case: dict) -> str:
    return "release" if case["arm"] in RELEASE_ARMS else "ours"


def _checked_versions(greetings: dict[str, dict]) -> dict[str, str]:
    """Return the versions of libraries, if both environments give equal log-probabilities."""
    for name, greeting in greetings.items():
        pairs = zip(greeting["log_probs"], greetings["ours"]["log_probs"], strict=True)
        largest = max(abs(one - other) for one, other in pairs)
        if largest > TOLERANCE:
            raise ValueError(
                f"The environment {name} gives log-probabilities that differ by {largest:.3g} nats "
                f"from those of this one; expected at most {TOLERANCE:g} with the same weights."
            )
    return {
        f"{name}_{what}": v
        for name, greeting in greetings.items()
        for what, v in greeting["versions"].items()
    }


def _row(case: dict, counted: dict, timed: Sequence[dict]) -> dict:
    """Return the counts and times of a case per question."""
    n = case["questions"]
    times = pd.DataFrame(timed) * 1000 / n
    return {
        **case,
        "what": NAMES[case["arm"]],
        "token_forwards": counted["token_forwards"] / n,
        "model_calls": counted["model_calls"] / n,
        "ms_min": times["seconds"].min(),
        "ms_median": times["seconds"].median(),
        "cpu_ms_min": times["cpu_seconds"].min(),
    }


def _compare_answers(rows: list[dict], counted: list[dict]) -> None:
    """Add to each row on how many questions its answers differ, without their order."""
    answers = {}
    for row, reply in zip(rows, counted, strict=True):
        answers.setdefault(row["arm"], reply["answers"])
    for row, reply in zip(rows, counted, strict=True):
        for arm in [arm for arm in SAME_ANSWERS.get(row["arm"], ()) if arm in answers][:1]:
            pairs = list(zip(reply["answers"], answers[arm], strict=False))
            row |= {"compared_with": arm, "compared": len(pairs)}
            row["differing"] = sum(sorted(one) != sorted(other) for one, other in pairs)


def write_job(name: str, shots: int, folder: Path, arguments: Namespace) -> Path:
    """Write the file that a worker reads; make and calibrate a random model if it is one."""
    is_random = name in random_models.SHAPES
    reader = models.load_model("facts-2m" if is_random else name, device="cpu", dtype="float32")
    questions = world_facts(max(arguments.questions, CALIBRATION_QUESTIONS), shots)
    prompts = [reader.encode(prompt) for prompt in questions.prompts()]
    weights = reader.source
    stop = reader.endings.stop.nonzero().squeeze(1).tolist()
    pad = reader.tokenizer.pad_token_id
    if is_random:
        weights = str(folder / f"{name}-{shots}")
        stop = [random_models.STOP]
        pad = random_models.PAD
        constants, shape = random_models.build(
            name, weights, prompts, device=arguments.device, dtype=arguments.dtype
        )
        if arguments.device.startswith("cuda"):  # the workers need the memory
            torch.cuda.empty_cache()
        print(f"{name}, {shots} shots: {constants}, {shape}", flush=True)
    prefix = reader.encode(questions.prefix()) if questions.prefix() else []
    job = {
        "folder": str(weights),
        "prompts": prompts[: arguments.questions],
        "settings": {"stop": stop, "pad": pad, "prefix": prefix, **SETTINGS},
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "device": arguments.device,
    }
    path = folder / f"{name}-{shots}.json"
    path.write_text(json.dumps(job))
    return path


def machine() -> dict[str, str]:
    """Return the CPU, the number of cores, the versions of Python and of the code."""
    command = ["git", "describe", "--always", "--dirty=+"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    processor = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())[1]
    machine = f"{processor}, {os.cpu_count()} cores, {platform.system()}"
    return {"machine": machine, "python": platform.python_version(), "commit": commit}


def parse() -> Namespace:
    """Parse the command line, and exit with a sentence if a value cannot be used."""
    options = {
        "--models": ["facts-2m"],
        "--shots": [0, 10],
        "--arms": list(NAMES),
        "--batch-sizes": [1, 32],
        "--questions": 32,
        "--release-questions": int,
        "--repeats": 5,
        "--threads": os.cpu_count(),
        "--device": "cpu",
        "--dtype": "float32",
        "--out": ROOT / "build" / "ladder.csv",
    }
    arguments = parse_arguments(__doc__, options)
    if set(arguments.arms) & set(RELEASE_ARMS) and not RELEASE_PYTHON.exists():
        sys.exit(f"arms A, B and C need transformers 4.56.2 in {RELEASE_PYTHON}: make golden")
    arguments.release_questions = min(
        arguments.release_questions or arguments.questions, arguments.questions
    )
    return arguments


def main() -> None:
    """Run the arms for each model and number of shots, and print and write the tables."""
    if sys.argv[1:2] == ["--serve"]:
        ours = {arm: partial(our_arm, settings) for arm, settings in OUR_SETTINGS.items()}
        ladder_release.serve(ladder_release.ARMS | ours, sys.argv[2])
        return
    arguments = parse()
    parts = []
    same = {
        "threads": arguments.threads,
        "dtype": arguments.dtype,
        "device": arguments.device,
        **machine(),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, shots in itertools.product(arguments.models, arguments.shots):
            part, versions = climb(write_job(name, shots, Path(folder), arguments), arguments)
            part.insert(0, "model", name)
            part.insert(1, "shots", shots)
            print(part.round(2).to_string(index=False), flush=True)
            parts.append(part.assign(**same, **versions, repeats=arguments.repeats))
    table = pd.concat(parts, ignore_index=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
