"""Runs that are killed while the bundled model answers, and runs that two processes want at once.

Run as a script, this file is the process that forks the trials: it has loaded the model, so that a trial costs what its
answers cost. It reads a line of JSON for each thing to do, and answers with one.
"""

import fcntl
import gc
import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

from pro_lib.bundled import ROOT
from pro_lib.engine import STRATEGIES
from pro_lib.store import read

N_QUESTIONS, PER_PACK, PER_PART = 14, 1, 2
OPTIONS = {"n_answers": 3, "max_new_tokens": 8, "batch_size": PER_PACK, "seed": 3, "progress": False}
REFUSED = 3
PATIENCE = 300.0  # seconds, after which a process counts as hung


class Moments:
    """Numbers the moments of a process's file operations, and sends the process a signal at one of them.

    A moment lies before and after each system call that writing rests on, and in the middle of every file.
    """

    def __init__(self, at, number):
        self.passed, self.at, self.number = 0, at, number

    def moment(self):
        self.passed += 1
        if self.passed == self.at:
            os.kill(os.getpid(), self.number)

    def around(self, call):
        def wrapped(*args):
            self.moment()
            result = call(*args)
            self.moment()
            return result

        return wrapped

    def watch(self, files):
        for module, name in [(os, "replace"), (os, "fsync"), (fcntl, "flock")]:
            setattr(module, name, self.around(getattr(module, name)))
        moment = self.moment

        class Halved(io.FileIO):
            def write(self, data):
                moment()
                written = super().write(data[: len(data) // 2])
                moment()
                return written + super().write(data[len(data) // 2 :])

        # What is written as text, the name of who holds the lock, is a courtesy.
        files.open = lambda path, mode, **options: (Halved if "b" in mode else open)(path, mode, **options)


def with_model():
    """The ids of some questions, and what generates the answers of the bundled model to them."""
    import torch
    from tqdm.std import tqdm

    # Trials share what was made before the fork: a killed one must not leave a lock of tqdm's locked for the others.
    tqdm.set_lock(threading.RLock())
    tqdm.monitor_interval = 0
    torch.set_num_threads(1)
    from pro_lib import generate, models
    from pro_lib import questions as question_sets

    generate.QUESTIONS_PER_PART = PER_PART
    model, questions = models.load("facts-1m", device="cpu"), question_sets.load("world-facts", limit=N_QUESTIONS)
    return questions.table["question_id"].tolist(), lambda out, strategy: generate.generate(
        model, questions, strategy=strategy, out=out, **OPTIONS
    )


def without_model():
    """The ids of five questions, and what writes a run of them in which nothing is computed."""
    from test_storage import go_on

    with tempfile.TemporaryDirectory() as folder:  # what is imported and looked up once is so before the fork
        go_on(Path(folder) / "run")
    return list("abcde"), lambda out, _: go_on(Path(out))


def trial(work, *, out, strategy, said, at=None, number=0):
    """Do the work in this process and end it; `said` becomes the number of moments passed, or the refusal."""
    from pro_lib.store import files

    moments, code = Moments(at, number), 0
    moments.watch(files)
    try:
        work(out, strategy)
        text = str(moments.passed)
    except files.RunError as error:
        text, code = str(error), REFUSED
    Path(said).write_text(text)
    os._exit(code)


def serve(asked, work):
    """Fork a process for each trial asked for, and say how it ended."""
    assert threading.active_count() == 1
    gc.freeze()
    print(json.dumps(asked), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "pid" in order:
            print(json.dumps(waited(order["pid"])), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                trial(work, **order)
            finally:  # only where something unforeseen was raised
                traceback.print_exc()
                os._exit(1)
        print(json.dumps(pid), flush=True)


def waited(pid):
    """How a process ended or that it stands still: `[what, number]`; one that hangs is killed and told as such."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if done and os.WIFSTOPPED(status):
            return ["stopped", os.WSTOPSIG(status)]
        if done:
            return ["killed", os.WTERMSIG(status)] if os.WIFSIGNALED(status) else ["exit", os.WEXITSTATUS(status)]
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return ["hung", 0]


KILLED, STOPPED, DONE = ["killed", signal.SIGKILL], ["stopped", signal.SIGSTOP], ["exit", 0]


class Server:
    """This file as a process, and the trials that it forks."""

    def __init__(self, folder, work):
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment |= {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, work.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.folder, self.numbers, self.asked = folder, count(), json.loads(self.process.stdout.readline())

    def _answer(self, **asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, out, strategy, **options):
        """Start a trial; its process id, and the file in which it leaves what it has to say."""
        said = self.folder / f"said-{next(self.numbers)}"
        return self._answer(out=str(out), strategy=strategy, said=str(said), **options), said

    def wait(self, pid):
        return self._answer(pid=pid)

    def run(self, out, strategy, *, after=None, **options):
        """Run a trial to its end, which a kill may bring about `after` so many seconds; how it ended."""
        pid, _ = self.start(out, strategy, **options)
        if after is not None:
            time.sleep(after)
            os.kill(pid, signal.SIGKILL)  # the server has not reaped it, so the number is still its own
        return self.wait(pid)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(PATIENCE) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("said"), with_model)
    yield server
    server.close()


class Unbroken:
    """A run that nothing came in the way of, how many moments it has and how long it took."""

    def __init__(self, server, out, strategy):
        started = time.perf_counter()
        pid, said = server.start(out, strategy)
        assert server.wait(pid) == DONE
        self.seconds = time.perf_counter() - started
        self.asked, self.strategy, self.moments = server.asked, strategy, int(said.read_text())
        self.path = self.folder_in(out)
        self.files = contents(self.path)

    def folder_in(self, out):
        if self.strategy is None:
            return out
        runs = out / "world-facts" / "facts-1m"  # the folder's name says what is not by default
        return next(runs.glob(f"{self.strategy}*"), runs / self.strategy)

    def agrees_with(self, out):
        """Assert that the run in `out` is this one: every question once and in order, every number the same."""
        path = self.folder_in(out)
        answers, questions, info = read(path)
        assert questions["question_id"].tolist() == self.asked
        assert answers["question_id"].drop_duplicates().tolist() == self.asked
        own_answers, own_questions, own_info = read(self.path)
        assert_frame_equal(answers, own_answers, check_exact=True)
        assert_frame_equal(questions, own_questions, check_exact=True)
        assert (info.parameters, info.plans) == (own_info.parameters, own_info.plans)
        found = contents(path)
        assert found.keys() == self.files.keys()
        assert tables_of(found) == tables_of(self.files)

    def keeps(self, out, before):
        """Assert that all parts there are good, and that those of `before` are as they were; what is there now."""
        now = contents(self.folder_in(out)) if self.folder_in(out).exists() else {}
        parts = {name: data for name, data in now.items() if name.startswith("part-")}
        assert {name: parts.get(name) for name in before} == before
        assert tables_of(parts).items() <= tables_of(self.files).items()
        if parts:
            assert read(self.folder_in(out))[1]["question_id"].tolist() == self.asked[: PER_PART * len(parts)]
        return parts


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name not in (".lock", ".holder")}


def tables_of(files):
    """What the Parquet files hold, exactly, but for the time and the memory that they took."""
    return {name: table_of(data) for name, data in files.items() if name.endswith(".parquet")}


def table_of(data):
    file = pq.ParquetFile(io.BytesIO(data))
    footer = file.metadata.metadata
    return footer.get(b"identity"), file.schema_arrow.to_string(show_schema_metadata=False), file.read().to_pylist()


@pytest.fixture(scope="module")
def unbroken(server, tmp_path_factory):
    """The unbroken run of a strategy, made on first use."""
    made = {}

    def run(strategy):
        if strategy not in made:
            made[strategy] = Unbroken(server, tmp_path_factory.mktemp("unbroken"), strategy)
        return made[strategy]

    return run


SOME = ("multinomial", "threshold")


@pytest.mark.parametrize(
    "strategy",
    [pytest.param(each, marks=getattr(pytest.mark, "slow" if each in SOME else "trial")) for each in STRATEGIES],
)
def test_kills_at_random_moments_lose_and_repeat_no_question_and_change_no_number(
    server, unbroken, tmp_path, strategy, size
):
    whole, rng = unbroken(strategy), random.Random(strategy)
    by_clock = by_moment = 0
    for trial_number in count():
        out, kept = tmp_path / str(trial_number), {}
        for _ in range(6):
            if by_clock <= by_moment:
                ended = server.run(out, strategy, after=rng.uniform(0, whole.seconds))
                by_clock += ended == KILLED
            else:
                ended = server.run(out, strategy, at=rng.randint(1, whole.moments // 2), number=signal.SIGKILL)
                by_moment += ended == KILLED
            kept = whole.keeps(out, kept)
            if ended == DONE:
                break
            assert ended == KILLED
        assert server.run(out, strategy) == DONE
        whole.agrees_with(out)
        if min(by_clock, by_moment) >= (30 if size == "trials" else 3):
            break


def test_a_kill_at_any_moment_of_any_file_operation_is_survived(tmp_path, size):
    server = Server(tmp_path, without_model)
    whole = Unbroken(server, tmp_path / "unbroken", None)
    # The lock; in run.json, the plan, run.json, three parts and run.json two in the middle of a file, and two for each
    # of sync, rename and sync of the folder; the lock let go.
    assert whole.moments == 2 + 7 * 8 + 2
    for at in range(1, whole.moments + 1, 7 if size == "quick" else 1):
        out = tmp_path / str(at)
        assert server.run(out, None, at=at, number=signal.SIGKILL) == KILLED, at
        kept = whole.keeps(out, {})
        assert server.run(out, None) == DONE, at
        whole.keeps(out, kept)
        whole.agrees_with(out)
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
def test_of_two_processes_on_one_folder_the_second_is_told_who_writes(server, unbroken, tmp_path, then):
    whole = unbroken("multinomial")
    first, _ = server.start(tmp_path, "multinomial", at=whole.moments // 2, number=signal.SIGSTOP)
    assert server.wait(first) == STOPPED
    kept = whole.keeps(tmp_path, {})
    assert 0 < len(kept) < N_QUESTIONS // PER_PART
    second, said = server.start(tmp_path, "multinomial")
    assert server.wait(second) == ["exit", REFUSED]
    assert said.read_text() == (
        f"run folder {whole.folder_in(tmp_path)} is being written by process {first} on {socket.gethostname()}; "
        "wait until that has ended, or choose another folder (out=, in notebooks generations_dir)"
    )
    assert whole.keeps(tmp_path, kept) == kept
    os.kill(first, then)
    assert server.wait(first) == (DONE if then == signal.SIGCONT else KILLED)
    assert server.run(tmp_path, "multinomial") == DONE
    whole.agrees_with(tmp_path)


@pytest.mark.slow
def test_of_many_processes_that_start_at_once_one_writes(server, unbroken, tmp_path):
    whole = unbroken("greedy")
    for number in range(4):
        out = tmp_path / str(number)
        started = [server.start(out, "greedy") for _ in range(4)]
        ended = [(server.wait(pid), said) for pid, said in started]
        assert DONE in [end for end, _ in ended]
        for end, said in ended:
            # Between taking the lock and writing its name into `.holder` the one that writes has no name yet.
            refused = r"is being written by (process \d+ on|another process;)"
            assert end == DONE or (end == ["exit", REFUSED] and re.search(refused, said.read_text()))
        whole.agrees_with(out)


if __name__ == "__main__":
    serve(*{"with_model": with_model, "without_model": without_model}[sys.argv[1]]())
