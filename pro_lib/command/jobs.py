"""Jobs in processes of their own, some at a time, told on a line while they last; knows of notebooks how to run one.

A job leaves how far it is, and in the end why it failed, in the file that the environment names as PRO_PROGRESS.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm.std import tqdm

from pro_lib.checks import SentenceError, extra, one_line

# Seconds from a line to the next.
TERMINAL, PIPE = 1.0, 60.0
_clock = tqdm.format_interval


@dataclass(eq=False)
class Job:
    """Work to do after other jobs; `seconds` is what it took where it was measured."""

    name: str
    work: Callable[[], None]
    seconds: float = 45.0
    after: Sequence["Job"] = ()
    started: float | None = None
    took: float | None = None
    process: multiprocessing.Process | None = None
    said: str = "starting"

    def running(self) -> bool:
        """Whether it was begun and is not known to have ended."""
        return self.process is not None and self.took is None


def notebook(path: Path, output: Path, parameters: Mapping[str, object]) -> None:
    """Execute a notebook; the copy is whole or absent. ValueError with the sentence that it ended in."""
    with extra("notebooks", "running a notebook"):
        import papermill

    output.parent.mkdir(parents=True, exist_ok=True)
    temporary, begun = output.with_name(f".{os.getpid()}.{output.name}"), time.monotonic()
    n = len(papermill.iorw.load_notebook_node(str(path)).cells) + bool(parameters)

    def tell(cell: Mapping, cell_index: int) -> None:
        left = _clock((time.monotonic() - begun) / max(cell_index, 1) * (n - cell_index))
        Path(os.environ["PRO_PROGRESS"]).write_text(f"cell {cell_index + 1} of {n}, {left} left by cells")

    try:
        papermill.execute_notebook(path, temporary, parameters, progress_bar=False, on_cell_execute=tell)
        os.replace(temporary, output)
    except papermill.PapermillExecutionError as error:
        os.replace(temporary, output)
        said = f"{error.ename}: " * (len(error.traceback) > 1)  # `base.notebook` leaves of ours the sentence alone
        raise ValueError(f"{said}{error.evalue} ({output})") from None
    finally:
        temporary.unlink(missing_ok=True)


def run(jobs: Sequence[Job], *, at_once: int = 1) -> None:
    """Do all jobs, each as early in their order as it can be, and print the seconds of each.

    Raises:
        SentenceError: one of them failed; those beside it were done, no other was begun.
        KeyboardInterrupt: all was ended; SIGTERM and SIGHUP do it too.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _work_off(jobs, at_once, Path(folder))
        finally:  # whatever happened: Ctrl-C, or that nobody reads what is printed
            for how in (signal.SIGINT, signal.SIGKILL):
                for job in jobs:
                    if job.process and job.process.is_alive():
                        os.kill(job.process.pid, how)
                        job.process.join(10)


def _work_off(jobs: Sequence[Job], at_once: int, folder: Path) -> None:
    fork = multiprocessing.get_context("fork")  # what was imported once, papermill above all, is there
    every, begin, end = (TERMINAL, "\r\x1b[K", "") if sys.stderr.isatty() else (PIPE, "", "\n")
    start, failed = time.monotonic(), None
    shown = start if end else 0.0
    while any(map(Job.running, jobs)) or not (failed or all(job.took is not None for job in jobs)):
        for job in filter(Job.running, jobs):
            alive, file = job.process.is_alive(), folder / job.name
            job.said = file.read_text() if file.exists() and file.stat().st_size else job.said
            if not alive:
                job.took = time.monotonic() - job.started
                failed = failed or (job if job.process.exitcode else None)
                print(f"{begin}{job.name}, {job.took:.0f} s", flush=True)
        ready = [job for job in jobs if not job.process and all(other.took is not None for other in job.after)]
        for job in ready[: 0 if failed else at_once - sum(map(Job.running, jobs))]:
            job.process, job.started = fork.Process(target=_do, args=(job, folder / job.name)), time.monotonic()
            job.process.start()
        if time.monotonic() - shown >= every and any(map(Job.running, jobs)):
            shown, width = time.monotonic(), None if end else shutil.get_terminal_size().columns - 1
            print(f"{begin}{_line(jobs, shown - start, at_once)[:width]}", end=end, file=sys.stderr, flush=True)
        time.sleep(0.1)
    if failed:
        signalled = -failed.process.exitcode
        raise SentenceError(f"{failed.name}: {f'ended by signal {signalled}, ' * (signalled > 0)}{failed.said}")


def _do(job: Job, file: Path) -> None:
    """In the process of a job."""
    os.setpgrp()  # Ctrl-C reaches `run` alone, which passes it on
    os.environ["PRO_PROGRESS"] = str(file)
    for stream in (1, 2):  # what is printed is in the notebook, and an error in the file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        job.work()
    except Exception as error:
        ours = isinstance(error, (ValueError, ImportError))
        file.write_text(one_line(error if ours else f"{type(error).__name__}: {error}"))
        sys.exit(1)


def _line(jobs: Sequence[Job], passed: float, at_once: int) -> str:
    """How it goes: of one job what it says, of several also how many there are and how long they go on."""
    running = (f"{job.name}: {job.said}" for job in jobs if job.running())
    left = _clock(seconds_left(jobs) / min(at_once, os.cpu_count() or 1))
    several = f", {sum(job.took is not None for job in jobs)} of {len(jobs)} done, {left} left" * (len(jobs) > 1)
    return f"{_clock(passed)}{several} {' | '.join(running)}"


def seconds_left(jobs: Sequence[Job]) -> float:
    """Seconds of work left, as measured elsewhere; of jobs that wait for others, at the pace of those that are done."""
    done = [job for job in jobs if job.after and job.took is not None]
    pace, now = sum(job.took for job in done) / sum(job.seconds for job in done) if done else 1.0, time.monotonic()
    rest = ((job.seconds * (pace if job.after else 1.0), job.started or now) for job in jobs if job.took is None)
    return sum(max(seconds - (now - started), 1.0) for seconds, started in rest)
