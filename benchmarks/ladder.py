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
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import ladder_release
import pandas as pd
import random_models
import torch
from ladder_release import MARK, Prompts, Settings
from measuring import ROOT, asked, decoded, world_facts

from pro_lib import models
from pro_lib.engine import encode_prefix, strategies

RELEASE_PYTHON = ROOT / "build" / "golden" / "bin" / "python"  # of `make golden`
RELEASE_ARMS = {"A": "release: beams one by one, rescored", "B": "A without rescoring", "C": "B in padded batches"}
OUR_ARMS = {
    "D": "ours: diverse beams",
    "E": "ours: greedy",
    "F 0.4": "ours: threshold, α = 0.4",
    "F 0.05": "ours: threshold, α = 0.05",
    "F 0.01": "ours: threshold, α = 0.01",
    "G": "library: greedy in padded batches",
    "H": "library: greedy, continuous batching",
    "I": "ours: samples",
    "J": "library: samples, continuous batching",
}
NAMES = RELEASE_ARMS | OUR_ARMS
ONE_BY_ONE = ("A", "B")
MEASURED_MEMORY = ("C", "D")
# Whose answers an arm should have given; the first of them that was run.
SAME_ANSWERS = {"B": ("A",), "C": ("A", "B"), "D": ("A", "B", "C"), "E": ("G",), "H": ("G", "E")}
CALIBRATION_QUESTIONS = 128
SETTINGS = {"n_answers": 10, "diversity_penalty": 1.0, "max_new_tokens": 32}  # N, λ and T of all arms
# Largest difference in log-probability between two transformers on the same weights that is rounding.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Goal:
    """A ratio of milliseconds per question (or of `peak_mib`) and what it should be; `batch` None: the largest."""

    over: str
    under: str
    least: float | None = None
    most: float | None = None
    batch: int | None = None
    column: str = "ms_min"


GOALS = (
    Goal("A", "B"),
    Goal("B", "C"),
    Goal("C", "D"),
    Goal("A", "D", least=6),
    Goal("A", "F 0.05", least=40),
    Goal("A", "F 0.05", least=20, batch=1),
    Goal("D", "F 0.05", least=4),
    Goal("F 0.05", "E", most=2.0),
    Goal("F 0.01", "E", most=5.0),
    Goal("F 0.05", "E", most=1.25, batch=1),
    Goal("E", "G", most=1.0),
    Goal("E", "G", most=1.0, batch=1),
    Goal("H", "E"),
    Goal("J", "I"),
    Goal("D", "C", most=0.5, column="peak_mib"),
)


def our_arm(given: dict, network, prompts: Prompts, settings: Settings, batch_size: int) -> list:
    """One of the project's strategies; the shared prefix is computed once, and within the time."""
    endings = random_models.endings(network, settings.stop)
    shared = {name: getattr(settings, name) for name in ("n_answers", "diversity_penalty", "max_new_tokens")}
    strategy = strategies.strategy(**given, **strategies.own_settings(given["name"], shared))
    prefix = encode_prefix(network, settings.prefix)
    found, _ = decoded(strategy, network, endings, prompts, prefix, batch_size)
    return [[list(answer.token_ids) for answer in answers] for answers, _ in found]


OUR_FUNCTIONS = {
    "D": partial(our_arm, {"name": "diverse_beam"}),
    "E": partial(our_arm, {"name": "greedy"}),
    **{f"F {alpha:g}": partial(our_arm, {"name": "threshold", "search_alpha": alpha}) for alpha in (0.4, 0.05, 0.01)},
    "I": partial(our_arm, {"name": "multinomial"}),
}


class Worker:
    """A process that holds one model in one environment and answers requests for arms."""

    def __init__(self, command: list[str], job: Path):
        self._process = subprocess.Popen([*command, str(job)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.greeting = self._read()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *exception) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def ask(self, mode: str, case: "Case") -> dict:
        """Have an arm run once; what it measured."""
        self._process.stdin.write(json.dumps({"mode": mode, **asdict(case)}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        for line in self._process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"the worker {' '.join(self._process.args)} ended with status {self._process.wait()}")


@dataclass(frozen=True)
class Case:
    """One arm at one batch size; `questions` of the prompts are asked."""

    arm: str
    batch_size: int
    questions: int


def cases(given: Namespace) -> list[Case]:
    """What is run in each round; one-by-one arms have no batch size, and C at batch 1 would be B."""
    found = []
    for arm in given.arms:
        questions = given.release_questions if arm in RELEASE_ARMS else given.questions
        sizes = {1} if arm in ONE_BY_ONE else {min(size, questions) for size in given.batch_sizes}
        found += [Case(arm, size, questions) for size in sorted(sizes - {1} if arm == "C" else sizes)]
    return found


def climb(job: Path, given: Namespace) -> tuple[pd.DataFrame, dict[str, str]]:
    """All arms on one model and prompt form: a row per case, and the versions of the libraries."""
    commands = {"ours": [sys.executable, __file__, "--serve"]}
    if set(given.arms) & set(RELEASE_ARMS):
        commands["release"] = [str(RELEASE_PYTHON), str(Path(ladder_release.__file__))]
    todo = cases(given)
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(command, job)) for name, command in commands.items()}
        versions = _checked_versions(workers)
        # Counting runs the arm once, and so warms it up.
        counted = [workers[_environment(case.arm)].ask("count", case) for case in todo]
        rounds = [[workers[_environment(case.arm)].ask("time", case) for case in todo] for _ in range(given.repeats)]
    rows = [_row(case, *replies) for case, *replies in zip(todo, counted, zip(*rounds, strict=True), strict=True)]
    _compare_answers(rows, counted)
    largest = min(max(given.batch_sizes), given.questions)
    for row, case in zip(rows, todo, strict=True):
        if not given.no_memory and case.arm in MEASURED_MEMORY and case.batch_size == largest:
            with Worker(commands[_environment(case.arm)], job) as worker:
                found = worker.ask("memory", case)
            row["peak_mib"] = (found["peak_bytes"] - found["idle_bytes"]) / 2**20
    return pd.DataFrame(rows), versions


def _environment(arm: str) -> str:
    return "release" if arm in RELEASE_ARMS else "ours"


def _checked_versions(workers: dict[str, Worker]) -> dict[str, str]:
    """Versions of the libraries, once both environments are seen to read the weights alike."""
    greetings = {name: worker.greeting for name, worker in workers.items()}
    for name, greeting in greetings.items():
        pairs = zip(greeting["log_probs"], greetings["ours"]["log_probs"], strict=True)
        if (worst := max(abs(one - other) for one, other in pairs)) > TOLERANCE:
            raise ValueError(f"the environments read the same weights differently: {name} is off by {worst:.3g} nats")
    return {f"{name}_{what}": v for name, greeting in greetings.items() for what, v in greeting["versions"].items()}


def _row(case: Case, counted: dict, timed: list[dict]) -> dict:
    """Counts and times, each per question."""
    n = case.questions
    milliseconds = [1000 * reply["seconds"] / n for reply in timed]
    return {
        **asdict(case),
        "what": NAMES[case.arm],
        **{name: counted[name] / n for name in ("token_forwards", "model_calls", "attended_positions")},
        "ms_min": min(milliseconds),
        "ms_median": statistics.median(milliseconds),
        "cpu_ms_min": min(1000 * reply["cpu_seconds"] / n for reply in timed),
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
    rows = []
    for (model, shots), part in table.groupby(["model", "shots"], sort=False):
        for goal in GOALS:
            batch = goal.batch or part["batch_size"].max()
            over, under = (_value(part, arm, batch, goal.column) for arm in (goal.over, goal.under))
            if over is None or under is None:
                continue
            wanted = f"≥ {goal.least:g}" if goal.least else f"≤ {goal.most:g}" if goal.most else ""
            ratio = over / under
            met = ratio >= goal.least if goal.least else ratio <= goal.most if goal.most else None
            what = "memory" if goal.column == "peak_mib" else "time"
            rows.append((model, shots, f"{goal.over} ÷ {goal.under}", what, batch, ratio, wanted, met))
    return pd.DataFrame(rows, columns=["model", "shots", "ratio", "of", "batch_size", "value", "goal", "met"])


def _value(part: pd.DataFrame, arm: str, batch_size: int, column: str) -> float | None:
    wanted = (part["arm"] == arm) & (part["batch_size"] == (1 if arm in ONE_BY_ONE else batch_size))
    values = part.loc[wanted, column].dropna() if column in part else []
    return float(values.iloc[0]) if len(values) else None


def write_job(name: str, shots: int, folder: Path, given: Namespace) -> Path:
    """Everything a worker has to know, as a file; a random model is made here, calibrated on these very prompts."""
    is_random = name in random_models.SHAPES
    reader = models.load("facts-2m" if is_random else name, device="cpu", dtype="float32")
    questions = world_facts(max(given.questions, CALIBRATION_QUESTIONS), shots)
    prompts = [reader.encode(prompt) for prompt in questions.prompts()]
    weights, stop = reader.source, reader.endings.stop.nonzero().squeeze(1).tolist()
    pad = reader.tokenizer.pad_token_id
    if is_random:
        weights, stop, pad = str(folder / f"{name}-{shots}"), [random_models.STOP], random_models.PAD
        constants, shape = random_models.build(name, weights, prompts, device=given.device, dtype=given.dtype)
        if given.device.startswith("cuda"):  # the workers need the room
            torch.cuda.empty_cache()
        print(f"{name}, {shots} shots: {random_models.describe(constants, shape)}", flush=True)
    prefix = reader.encode(questions.prefix()) if questions.prefix() else []
    settings = {"stop": stop, "pad": pad, "prefix": prefix}
    job = {"folder": str(weights), "prompts": prompts[: given.questions], "settings": settings | SETTINGS}
    job |= {"threads": given.threads, "dtype": given.dtype, "device": given.device}
    path = folder / f"{name}-{shots}.json"
    path.write_text(json.dumps(job))
    return path


def machine() -> dict[str, str]:
    """Processor, cores, Python and commit."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    commit = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
    changed = "+" if git(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.strip() else ""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    processor = named.group(1) if named else platform.processor() or platform.machine()
    place = f"{processor}, {os.cpu_count()} cores, {platform.system()}"
    return {"machine": place, "python": platform.python_version(), "commit": commit + changed}


def parse() -> Namespace:
    """The command line; refuses in one sentence what could not be measured."""
    options = {"--models": ["facts-2m"], "--shots": [0, 10], "--arms": list(NAMES), "--batch-sizes": [1, 32]}
    options |= {"--questions": 32, "--release-questions": int, "--repeats": 5, "--threads": os.cpu_count()}
    options |= {"--device": "cpu", "--dtype": "float32", "--no-memory": False, "--out": ROOT / "build" / "ladder.csv"}
    given = asked(__doc__, options)
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
        ladder_release.serve(ladder_release.ARMS | OUR_FUNCTIONS, sys.argv[2])
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
