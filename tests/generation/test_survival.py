"""Runs that are killed while the bundled model answers go on to the tables of an unbroken run, bit for bit.

Run as a script with a number of kills, this file loads the model once and forks a process for every trial.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pandas.testing import assert_frame_equal

STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
OPTIONS = {"max_new_tokens": 8, "batch_size": 1, "progress": False}


def killed_at(moment, work):
    """Do the work in a forked process that is killed at a moment of its file operations; None: at none. Its status."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    moments = itertools.count(1)

    def around(call):
        def counted(*arguments):
            for when in (lambda: None, lambda: call(*arguments)):
                result = when()
                if next(moments) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    os.replace, os.fsync = around(os.replace), around(os.fsync)
    try:
        work()
    except BaseException as error:
        print(error, flush=True)
        os._exit(1)
    os._exit(0)


def main(n_kills):
    from importlib import import_module

    import torch

    from pro_lib.generation import models

    generate = import_module("pro_lib.generation.generate")
    from pro_lib.generation.decoding import strategies
    from pro_lib.questions import question_sets
    from pro_lib.runs import storage

    torch.set_num_threads(1)
    generate.QUESTIONS_PER_PART = 2
    model, asked = (
        models.load_model("facts-1m", device="cpu"),
        question_sets.load_questions("world-facts", limit=14),
    )

    def run(out, strategy):
        own = strategies.own_settings(strategy, {"n_answers": 3, "seed": 3})
        generate.generate(model, asked, strategy=strategy, out=out, **OPTIONS, **own)
        return next(Path(out).glob("*/*/*"))

    rng, killed = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        unbroken = {
            name: storage.read_folder(run(Path(folder) / name, name)) for name in STRATEGIES
        }
        for number in range(n_kills):
            out, strategy = Path(folder) / str(number), STRATEGIES[number % 4]
            for _ in range(1 + number % 3):  # some runs are killed again and again
                killed += (
                    killed_at(rng.randrange(1, 40), lambda o=out, s=strategy: run(o, s))
                    == signal.SIGKILL
                )
            answers, table, info = storage.read_folder(run(out, strategy))
            assert_frame_equal(answers, unbroken[strategy][0])
            assert_frame_equal(table, unbroken[strategy][1])
            assert info.cost.token_forwards == unbroken[strategy][2].cost.token_forwards
            assert not list(out.rglob(".part*"))
    assert killed >= n_kills / 2  # most of the moments were reached
    print(f"{n_kills} runs, {killed} kills, all as unbroken")


def test_killed_runs_go_on_to_the_tables_of_an_unbroken_one(size):
    n_runs = {"quick": "4", "all": "12", "trials": "100"}[size]
    done = subprocess.run(
        [sys.executable, __file__, n_runs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{n_runs} runs, ")


if __name__ == "__main__":
    main(int(sys.argv[1]))
