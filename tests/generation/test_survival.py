"""Runs that are killed continue to the tables of an unbroken run, bit for bit.

As a script with a number of runs, this file loads the model once and forks a process for every
trial.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from pandas.testing import assert_frame_equal

STRATEGIES = ("greedy", "multinomial", "diverse_beam", "threshold")
OPTIONS = {"max_new_tokens": 4, "batch_size": 1}


def killed_at(moment, work):
    """Do the work in a forked process that is killed at a file operation; return its status."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return status
    moments = itertools.count(1)

    def around(call):
        def counted(*arguments):
            for when in (lambda: None, lambda: call(*arguments)):
                result = when()
                if next(moments) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    os.replace = around(os.replace)
    os.fsync = around(os.fsync)
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

    generate = import_module("pro_lib.generation.run_generation")
    from pro_lib.generation.decoding import strategies
    from pro_lib.questions import question_sets
    from pro_lib.runs import storage

    torch.set_num_threads(1)
    generate.QUESTIONS_PER_PART = 2
    model = models.load_model("facts-1m", device="cpu")
    questions = question_sets.load_questions("world-facts", limit=6, n_shots=0)

    def run(out, strategy):
        settings = strategies.own_settings(strategy, {"n_answers": 3, "seed": 3})
        generate.generate(model, questions, strategy=strategy, out=out, **OPTIONS, **settings)
        return next(Path(out).glob("*/*/*"))

    rng = random.Random(0)
    n_killed = 0
    with tempfile.TemporaryDirectory() as folder:
        unbroken = {
            name: storage.read_folder(run(Path(folder) / name, name))
            for name in STRATEGIES[:n_kills]
        }
        for number in range(n_kills):
            out = Path(folder) / str(number)
            strategy = STRATEGIES[number % 4]
            for _ in range(1 + number % 3):  # some runs are killed again and again
                status = killed_at(rng.randrange(1, 20), partial(run, out, strategy))
                n_killed += status == signal.SIGKILL
            answers, table, info = storage.read_folder(run(out, strategy))
            assert_frame_equal(answers, unbroken[strategy][0])
            assert_frame_equal(table, unbroken[strategy][1])
            assert info.cost.token_forwards == unbroken[strategy][2].cost.token_forwards
            assert not list(out.rglob(".part*"))
    assert n_killed >= n_kills / 2  # most of the moments were reached
    print(f"{n_kills} runs, {n_killed} kills, all as unbroken")


def test_killed_runs_go_on_to_the_tables_of_an_unbroken_one(size):
    n_runs = {"quick": "2", "all": "12", "trials": "100"}[size]
    done = subprocess.run(
        [sys.executable, __file__, n_runs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{n_runs} runs, ")


if __name__ == "__main__":
    main(int(sys.argv[1]))
