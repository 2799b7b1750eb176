"""The ladder of speed: from what the release does to exact search, one step at a time, in one interleaved run.

Run from the repository root: `python benchmarks/ladder.py`; docs/speed.md explains the arms. Each environment has a
worker process with the same weights, prompts, stop tokens, dtype, attention kernel and threads; they are asked in turn,
round by round. Counts come first: they do not depend on the machine.
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
from pro_lib.generation.decoding import encode_prefix, strategies

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
MEASURED_MEMORY = ("C", "D")
# Whose answers an arm should have given; the first of them that was run.
SAME_ANSWERS = {"B": ("A",), "C": ("A", "B"), "D": ("A", "B", "C"), "E": ("G",), "H": ("G", "E")}
CALIBRATION_QUESTIONS = 128
# N, λ and T of all arms
SETTINGS = {
    "n_answers": 10,
    "diversity_penalty": 1.0,
    "max_new_tokens": 32,
}
# Largest difference in log-probability between two transformers on the same weights that is rounding.
TOLERANCE = 1e-3


# Ratios of milliseconds per question, what they should be, and at which batch size; 0 is the largest.
GOALS = (
    *(("A", "B", "", 0), ("B", "C", "", 0), ("C", "D", "", 0), ("A", "D", "≥ 6", 0)),
    *(("A", "F 0.05", "≥ 40", 0), ("A", "F 0.05", "≥ 20", 1), ("D", "F 0.05", "≥ 4", 0)),
    *(("F 0.05", "E", "≤ 2", 0), ("F 0.01", "E", "≤ 5", 0), ("F 0.05", "E", "≤ 1.25", 1)),
    *(("E", "G", "≤ 1", 0), ("E", "G", "≤ 1", 1), ("H", "E", "", 0), ("J", "I", "", 0)),
)
MEMORY_GOAL = ("D", "C", "≤ 0.5", 0)  # of `peak_mib`


def our_arm(given: dict, network, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """One of the project's strategies; the shared prefix is computed once, and within the time."""
    endings = random_models.endings(network, settings.stop)
    shared = {
        name: getattr(settings, name)
        for name in ("n_answers", "diversity_penalty", "max_new_tokens")
    }
    strategy = strategies.strategy(**given, **strategies.own_settings(given["name"], shared))
    prefix = encode_prefix(network, settings.prefix)
    found, _ = decode_batches(strategy, network, endings, prompts, prefix, batch_size)
    return [[list(answer.token_ids) for answer in answers] for answers, _ in found]


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
    """A process that holds one model in one environment: its greeting, and what has it run an arm once."""
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


def cases(given: Namespace) -> list[dict]:
    """What is run in each round: arm, batch size and how many of the prompts are asked.

    One-by-one arms have no batch size, and C at batch 1 would be B.
    """
    found = []
    for arm in given.arms:
        questions = given.release_questions if arm in RELEASE_ARMS else given.questions
        sizes = {1} if arm in ONE_BY_ONE else {min(size, questions) for size in given.batch_sizes}
        sizes = sorted(sizes - {1} if arm == "C" else sizes)
        found += [{"arm": arm, "batch_size": size, "questions": questions} for size in sizes]
    return found


def climb(job: Path, given: Namespace) -> tuple[pd.DataFrame, dict[str, str]]:
    """All arms on one model and prompt form: a row per case, and the versions of the libraries."""
    commands = {"ours": [sys.executable, __file__, "--serve"]}
    if set(given.arms) & set(RELEASE_ARMS):
        commands["release"] = [str(RELEASE_PYTHON), str(Path(ladder_release.__file__))]
    todo = cases(given)
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(command, job)) for name, command in commands.items()
        }
        versions = _checked_versions({name: greeting for name, (greeting, _) in workers.items()})
        asks = [workers[_environment(case)][1] for case in todo]
        # Counting runs the arm once, and so warms it up.
        counted, *rounds = (
            [ask(mode, case) for ask, case in zip(asks, todo, strict=True)]
            for mode in ("count", *["time"] * given.repeats)
        )
    rows = [
        _row(case, *replies)
        for case, *replies in zip(todo, counted, zip(*rounds, strict=True), strict=True)
    ]
    _compare_answers(rows, counted)
    largest = min(max(given.batch_sizes), given.questions)
    for row, case in zip(rows, todo, strict=True):
        if not given.no_memory and case["arm"] in MEASURED_MEMORY and case["batch_size"] == largest:
            with worker(commands[_environment(case)], job) as (_, ask):
                found = ask("memory", case)
            row["peak_mib"] = (found["peak_bytes"] - found["idle_bytes"]) / 2**20
    return pd.DataFrame(rows), versions


def _environment(case: dict) -> str:
    return "release" if case["arm"] in RELEASE_ARMS else "ours"


def _checked_versions(greetings: dict[str, dict]) -> dict[str, str]:
    """Versions of the libraries, once both environments are seen to read the weights alike."""
    for name, greeting in greetings.items():
        pairs = zip(greeting["log_probs"], greetings["ours"]["log_probs"], strict=True)
        if (worst := max(abs(one - other) for one, other in pairs)) > TOLERANCE:
            raise ValueError(
                f"the environments read the same weights differently: {name} is off by {worst:.3g} nats"
            )
    return {
        f"{name}_{what}": v
        for name, greeting in greetings.items()
        for what, v in greeting["versions"].items()
    }


def _row(case: dict, counted: dict, timed: Sequence[dict]) -> dict:
    """Counts and times, each per question."""
    n, times = case["questions"], pd.DataFrame(timed) * 1000 / case["questions"]
    counts = {
        name: counted[name] / n for name in ("token_forwards", "model_calls", "attended_positions")
    }
    wall = {"ms_min": times["seconds"].min(), "ms_median": times["seconds"].median()}
    return {
        **case,
        "what": NAMES[case["arm"]],
        **counts,
        **wall,
        "cpu_ms_min": times["cpu_seconds"].min(),
    }


def _compare_answers(rows: list[dict], counted: list[dict]) -> None:
    """Enter on how many questions an arm answers otherwise than it should; order within a question aside."""
    answers = {}
    for row, reply in zip(rows, counted, strict=True):
        answers.setdefault(row["arm"], reply["answers"])
    for row, reply in zip(rows, counted, strict=True):
        for arm in [arm for arm in SAME_ANSWERS.get(row["arm"], ()) if arm in answers][:1]:
            pairs = list(zip(reply["answers"], answers[arm], strict=False))
            row |= {"compared_with": arm, "compared": len(pairs)}
            row["differing"] = sum(sorted(one) != sorted(other) for one, other in pairs)


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """The goals' ratios, per model and number of shots, where both arms were run."""
    rows, goals = [], [(*goal, "ms_min") for goal in GOALS] + [(*MEMORY_GOAL, "peak_mib")]
    for ((model, shots), part), goal in itertools.product(
        table.groupby(["model", "shots"], sort=False), goals
    ):
        over, under, wanted, batch, column = goal
        batch = batch or part["batch_size"].max()
        values = [_value(part, arm, batch, column) for arm in (over, under)]
        if None not in values:
            ratio, (sign, limit) = values[0] / values[1], wanted.split() or (None, 0)
            met = {"≥": ratio >= float(limit), "≤": ratio <= float(limit)}.get(sign)
            what = "memory" if column == "peak_mib" else "time"
            rows.append((model, shots, f"{over} ÷ {under}", what, batch, ratio, wanted, met))
    return pd.DataFrame(
        rows, columns=["model", "shots", "ratio", "of", "batch_size", "value", "goal", "met"]
    )


def _value(part: pd.DataFrame, arm: str, batch_size: int, column: str) -> float | None:
    wanted = (part["arm"] == arm) & (part["batch_size"] == (1 if arm in ONE_BY_ONE else batch_size))
    values = part.loc[wanted, column].dropna() if column in part else []
    return float(values.iloc[0]) if len(values) else None


def write_job(name: str, shots: int, folder: Path, given: Namespace) -> Path:
    """Everything a worker has to know, as a file; a random model is made here, calibrated on these very prompts."""
    is_random = name in random_models.SHAPES
    reader = models.load_model("facts-2m" if is_random else name, device="cpu", dtype="float32")
    questions = world_facts(max(given.questions, CALIBRATION_QUESTIONS), shots)
    prompts = [reader.encode(prompt) for prompt in questions.prompts()]
    weights, stop = reader.source, reader.endings.stop.nonzero().squeeze(1).tolist()
    pad = reader.tokenizer.pad_token_id
    if is_random:
        weights, stop, pad = (
            str(folder / f"{name}-{shots}"),
            [random_models.STOP],
            random_models.PAD,
        )
        constants, shape = random_models.build(
            name, weights, prompts, device=given.device, dtype=given.dtype
        )
        if given.device.startswith("cuda"):  # the workers need the room
            torch.cuda.empty_cache()
        print(f"{name}, {shots} shots: {random_models.describe(constants, shape)}", flush=True)
    prefix = reader.encode(questions.prefix()) if questions.prefix() else []
    settings = {"stop": stop, "pad": pad, "prefix": prefix}
    job = {
        "folder": str(weights),
        "prompts": prompts[: given.questions],
        "settings": settings | SETTINGS,
    }
    job |= {"threads": given.threads, "dtype": given.dtype, "device": given.device}
    path = folder / f"{name}-{shots}.json"
    path.write_text(json.dumps(job))
    return path


def machine() -> dict[str, str]:
    """Processor, cores, Python and commit."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    commit = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
    changed = (
        "+" if git(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.strip() else ""
    )
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    processor = named.group(1) if named else platform.processor() or platform.machine()
    place = f"{processor}, {os.cpu_count()} cores, {platform.system()}"
    return {"machine": place, "python": platform.python_version(), "commit": commit + changed}


def parse() -> Namespace:
    """The command line; refuses in one sentence what could not be measured."""
    options = {
        "--models": ["facts-2m"],
        "--shots": [0, 10],
        "--arms": list(NAMES),
        "--batch-sizes": [1, 32],
    }
    options |= {
        "--questions": 32,
        "--release-questions": int,
        "--repeats": 5,
        "--threads": os.cpu_count(),
    }
    options |= {
        "--device": "cpu",
        "--dtype": "float32",
        "--no-memory": False,
        "--out": ROOT / "build" / "ladder.csv",
    }
    given = parse_arguments(__doc__, options)
    if others := sorted(set(given.arms) - set(NAMES)):
        sys.exit(f"arm {others[0]} is unknown; choose {', '.join(NAMES)}")
    if min(given.questions, given.repeats, given.threads, *given.batch_sizes) < 1:
        sys.exit("questions, batch sizes, repeats and threads must be positive")
    if set(given.arms) & set(RELEASE_ARMS) and not RELEASE_PYTHON.exists():
        sys.exit(f"arms A, B and C need transformers 4.56.2 in {RELEASE_PYTHON}: make golden")
    given.release_questions = min(given.release_questions or given.questions, given.questions)
    return given


def main() -> None:
    """Climb the ladder once per model and number of shots, print the tables and write them."""
    if sys.argv[1:2] == ["--serve"]:
        ours = {arm: partial(our_arm, settings) for arm, settings in OUR_SETTINGS.items()}
        ladder_release.serve(ladder_release.ARMS | ours, sys.argv[2])
        return
    given, parts = parse(), []
    same = {"threads": given.threads, "dtype": given.dtype, "device": given.device, **machine()}
    with tempfile.TemporaryDirectory() as folder:
        for name, shots in itertools.product(given.models, given.shots):
            part, versions = climb(write_job(name, shots, Path(folder), given), given)
            part.insert(0, "model", name)
            part.insert(1, "shots", shots)
            print(part.round(2).to_string(index=False), flush=True)
            parts.append(part.assign(**same, **versions, repeats=given.repeats))
    table = pd.concat(parts, ignore_index=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(given.out, index=False)
    found = ratios(table)
    found.to_csv(given.out.with_name(given.out.stem + "_ratios.csv"), index=False)
    print(found.round(2).to_string(index=False))


if __name__ == "__main__":
    main()
