"""The ladder of speed: from what the release does to exact search, one step at a time, in one interleaved run.

Run from the repository root: `python benchmarks/ladder.py`; docs/speed.md explains the arms. Each environment has a
worker process with the same weights, prompts, stop tokens, dtype, attention kernel and threads; they are asked in turn,
round by round. Counts come first: they do not depend on the machine.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pandas as pd
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent))

import ladder_release
import random_models
from ladder_release import MARK, Prompts, Settings

from pro_lib import models
from pro_lib import questions as question_sets
from pro_lib.checks import DTYPES
from pro_lib.engine import Counts, Endings, PackedTree, encode_prefix, strategies

ROOT = Path(__file__).resolve().parents[1]
RELEASE_ARMS = {
    "A": "release: beams one by one, rescored",
    "B": "A without rescoring",
    "C": "B in padded batches",
}
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
    stop = torch.zeros(network.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    stop[list(settings.stop)] = True
    endings = Endings(stop.to(network.device), torch.zeros_like(stop).to(network.device))
    shared = {name: getattr(settings, name) for name in ("n_answers", "diversity_penalty", "max_new_tokens")}
    strategy, counts, found = (
        strategies.strategy(**given, **strategies.own_settings(given["name"], shared)),
        Counts(),
        [],
    )
    prefix = encode_prefix(network, settings.prefix, counts=counts)
    for start in range(0, len(prompts), batch_size):
        pack = prompts[start : start + batch_size]
        tree = PackedTree(network, pack, prefix.shared_with(pack), counts)
        found += strategy.decode(tree, endings, question_ids=[str(place) for place in range(len(pack))])
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

    def ask(self, mode: str, arm: str, questions: int, batch_size: int) -> dict:
        """Have an arm run once; what it measured."""
        request = {"mode": mode, "arm": arm, "questions": questions, "batch_size": batch_size}
        self._process.stdin.write(json.dumps(request) + "\n")
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


def cases(arms: Sequence[str], batch_sizes: Sequence[int], questions: int, release_questions: int) -> list[Case]:
    """What is run in each round; one-by-one arms have no batch size, and C at batch 1 would be B."""
    found = []
    for arm in arms:
        asked = release_questions if arm in RELEASE_ARMS else questions
        sizes = (
            {1} if arm in ONE_BY_ONE else {min(size, asked) for size in batch_sizes} - ({1} if arm == "C" else set())
        )
        found += [Case(arm, size, asked) for size in sorted(sizes)]
    return found


def climb(job: Path, arguments: argparse.Namespace) -> tuple[pd.DataFrame, dict[str, str]]:
    """All arms on one model and prompt form: a row per case, and the versions of the libraries."""
    commands = {"ours": [sys.executable, __file__, "--serve"]}
    if set(arguments.arms) & set(RELEASE_ARMS):
        commands["release"] = [str(arguments.release_python), str(Path(ladder_release.__file__))]
    todo = cases(arguments.arms, arguments.batch_sizes, arguments.questions, arguments.release_questions)
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(command, job)) for name, command in commands.items()}
        versions = _checked_versions(workers)

        def ask(mode: str, case: Case) -> dict:
            worker = workers[_environment(case.arm)]
            return worker.ask(mode, case.arm, case.questions, case.batch_size)

        # Counting runs the arm once, and so warms it up.
        counted = [ask("count", case) for case in todo]
        rounds = [[ask("time", case) for case in todo] for _ in range(arguments.repeats)]
    rows = [
        _row(case, count, [line[i] for line in rounds])
        for i, (case, count) in enumerate(zip(todo, counted, strict=True))
    ]
    _compare_answers(rows, todo, counted)
    if arguments.memory:
        for row, case in zip(rows, todo, strict=True):
            if case.arm in MEASURED_MEMORY and case.batch_size == min(max(arguments.batch_sizes), arguments.questions):
                with Worker(commands[_environment(case.arm)], job) as worker:
                    found = worker.ask("memory", case.arm, case.questions, case.batch_size)
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


def _compare_answers(rows: list[dict], todo: list[Case], counted: list[dict]) -> None:
    """Enter on how many questions an arm answers otherwise than it should; order within a question aside."""
    answers = {}
    for case, reply in zip(todo, counted, strict=True):
        answers.setdefault(case.arm, reply["answers"])
    for row, reply in zip(rows, counted, strict=True):
        for arm in SAME_ANSWERS.get(row["arm"], ()):
            if arm in answers:
                pairs = list(zip(reply["answers"], answers[arm], strict=False))
                row |= {"compared_with": arm, "compared": len(pairs)}
                row["differing"] = sum(sorted(one) != sorted(other) for one, other in pairs)
                break


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


def write_job(name: str, shots: int, folder: Path, arguments: argparse.Namespace) -> Path:
    """Everything a worker has to know, as a file; a random model is made here, calibrated on these very prompts."""
    reader = models.load("facts-2m" if name in random_models.SHAPES else name, device="cpu", dtype="float32")
    count = max(arguments.questions, CALIBRATION_QUESTIONS)
    questions = question_sets.load("world-facts", split="test", limit=count, n_shots=shots)
    prompts = [reader.encode(prompt) for prompt in questions.prompts()]
    weights, stop, pad = (
        Path(reader.source),
        reader.endings.stop.nonzero().squeeze(1).tolist(),
        reader.tokenizer.pad_token_id,
    )
    if name in random_models.SHAPES:
        weights, stop, pad = folder / f"{name}-{shots}", [random_models.STOP], random_models.PAD
        form = {"device": arguments.device, "dtype": arguments.dtype}
        constants, shape = random_models.build(name, weights, prompts, seed=arguments.seed, **form)
        if arguments.device.startswith("cuda"):  # the workers need the room
            torch.cuda.empty_cache()
        print(f"{name}, {shots} shots: {random_models.describe(constants, shape)}", flush=True)
    settings = {
        "stop": stop,
        "pad": pad,
        "prefix": reader.encode(questions.prefix()) if questions.prefix() else [],
        "n_answers": arguments.n_answers,
        "diversity_penalty": 1.0,
        "max_new_tokens": arguments.max_new_tokens,
    }
    job = {"folder": str(weights), "prompts": prompts[: arguments.questions], "settings": settings}
    job |= {"threads": arguments.threads, "dtype": arguments.dtype, "device": arguments.device}
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
    return {
        "machine": f"{processor}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "commit": commit + changed,
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; refuses what could not be measured in one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", default=["facts-2m"], help=f"bundled, or {', '.join(random_models.SHAPES)}"
    )
    parser.add_argument("--shots", nargs="+", type=int, default=[0, 10])
    parser.add_argument("--arms", nargs="+", default=list(NAMES), choices=list(NAMES), metavar="ARM")
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--release-questions", type=int, help="questions for arms A, B and C; all by default")
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--n-answers", type=int, default=10)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--seed", type=int, default=0, help="of the random models")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="leave peak memory out")
    parser.add_argument("--release-python", type=Path, default=ROOT / "build" / "golden" / "bin" / "python")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "ladder.csv")
    found = parser.parse_args(arguments)
    numbers = [found.questions, found.repeats, found.threads, found.n_answers, found.max_new_tokens, *found.batch_sizes]
    if min(numbers) < 1:
        parser.error("questions, batch sizes, repeats, threads, answers and tokens must be positive")
    if set(found.arms) & set(RELEASE_ARMS) and not found.release_python.exists():
        parser.error(
            f"arms A, B and C need transformers 4.56.2 in {found.release_python}: make golden, or --release-python"
        )
    found.release_questions = min(found.release_questions or found.questions, found.questions)
    return found


def main() -> None:
    """Climb the ladder once per model and number of shots, print the tables and write them."""
    if sys.argv[1:2] == ["--serve"]:
        transformers.logging.set_verbosity_error()
        ladder_release.serve(ladder_release.ARMS | OUR_FUNCTIONS, sys.argv[2])
        return
    arguments = parse()
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            for shots in arguments.shots:
                part, versions = climb(write_job(name, shots, Path(folder), arguments), arguments)
                here = {"threads": arguments.threads, "dtype": arguments.dtype, "device": arguments.device}
                parts.append(part.assign(**here, **machine(), **versions, repeats=arguments.repeats))
                parts[-1].insert(0, "model", name)
                parts[-1].insert(1, "shots", shots)
                print(
                    parts[-1].drop(columns=[*here, *machine(), *versions, "repeats"]).round(2).to_string(index=False),
                    flush=True,
                )
    table = pd.concat(parts, ignore_index=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out, index=False)
    found = ratios(table)
    found.to_csv(arguments.out.with_name(arguments.out.stem + "_ratios.csv"), index=False)
    print(found.round(2).to_string(index=False))


if __name__ == "__main__":
    main()
