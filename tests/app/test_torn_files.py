"""Commands that are killed while they write leave the old file or the new one, both whole.

As a script with a number of kills, this file imports the package once and forks for every trial.
`JOBS` has what is written: a command that writes something new becomes another entry.
"""

import builtins
import importlib
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

VALUES = (0.2, 0.3)  # what a job is given: its outputs differ
BIG = 2**25  # bytes of the file that is killed at random times


class DyingFile:
    """A file of which one write, counted over all files, is cut short by SIGKILL."""

    def __init__(self, file, is_fatal, share):
        self.file, self.is_fatal, self.share = file, is_fatal, share

    def write(self, data):
        if self.is_fatal():
            self.file.write(data[: int(self.share * len(data))])
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def patch_open(folder, moment, share):
    """Cut the write number `moment` into files of a folder short, in this process."""
    numbers, usual = itertools.count(1), io.open

    def opened(file, mode="r", *rest, **options):
        stream = usual(file, mode, *rest, **options)
        is_inside = isinstance(file, str | Path) and Path(folder) in Path(file).absolute().parents
        if not is_inside or not set(mode) & set("wax+"):
            return stream
        return DyingFile(stream, lambda: next(numbers) == moment, share)

    builtins.open = io.open = opened


def forked(work):
    """Do the work in a process of its own; return the number of that process."""
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)


def ended(child):
    """Whether a process was killed; an error ends this one."""
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == signal.SIGKILL


def write_inputs(folder):
    """Records of two questions, and a notebook."""
    import nbformat

    rows = []
    for n in range(2):
        answers = [
            {"text": f"{text}{n}", "log_prob": -p} for text, p in {"a": 0.9, "b": 1.4}.items()
        ]
        rows.append(
            {"question_id": str(n), "question": f"{n}?", "references": ["a0"], "answers": answers}
        )
    (folder / "records.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first = nbformat.v4.new_code_cell("x: float = 1")
    first.metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "language": "python", "display_name": "python3"}
    book = nbformat.v4.new_notebook(cells=[first], metadata={"kernelspec": kernel})
    nbformat.write(book, folder / "mine.ipynb")


def pro(*words):
    """Run a command without a word."""
    from pro_lib.app.cli import pro

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    pro(list(map(str, words)), standalone_mode=False)


def score(inputs, out, x):
    """Write a table."""
    pro("score", inputs / "records.jsonl", "--alpha", x, "--output", out / "scores.csv")


def explore(inputs, out, x):
    """Write a page."""
    pro("explore", inputs / "records.jsonl", "--alpha", x, "--html", out / "page.html")


class Judge:
    """A judge that needs no model and calls every answer wrong."""

    name, fingerprint = "judge", "1"

    def choice_log_probs(self, prompts, choices):
        return [[-2.0, -0.2]] * len(prompts)


def judge(inputs, out, _):
    """Write verdicts; the replies are in their file after the first time."""
    module = importlib.import_module("pro_lib.app.cli.judge")
    module._judge_model = lambda *_: Judge()
    output = out / "verdicts.csv"
    pro(
        "judge",
        inputs / "records.jsonl",
        "--model",
        "judge",
        "--server",
        "none",
        "--yes",
        "--output",
        output,
    )


def label(inputs, out, x):
    """Withdraw the labels of the last time, and label both answers."""
    from pro_lib import importing
    from pro_lib.labels.session import LabelSession

    run = importing.import_answers(inputs / "records.jsonl")
    session = LabelSession.open(run, out / "labels.jsonl")
    state = session.reply("open")
    while state["n_given"]:
        state = session.reply("undo", state["n_given"])
    while state["answer"]:
        state = session.reply("give", state["n_given"], x == VALUES[0])


def report(inputs, out, x):
    """Write a report."""
    pro("report", inputs / "records.jsonl", "--alpha", x, "--output", out / "report.html")


def run(inputs, out, x):
    """Write the executed copy of a notebook."""
    pro("run", inputs / "mine.ipynb", "-p", "x", x, "--executed", out)


def draw(_, out, x):
    """Write a figure and its numbers."""
    import pandas as pd

    from pro_lib import plots
    from pro_lib.plots.figure import labelled_figure

    table = pd.DataFrame({"x": [x, 1.0], "y": [1.0, x]})
    with labelled_figure(table, title="A line") as (figure, [(ax, rows)]):
        ax.plot(rows["x"], rows["y"])
    plots.save_figure(figure, table, "figure", caption=f"x is {x}.", figures_dir=out)


def big(_, out, x):
    """Write a large file."""
    from pro_lib.common import files

    files.write_whole(str(x).encode() * (BIG // len(str(x))), out / "big")


def same_notebook(one, other):
    """Return whether two executed notebooks are whole and have the same parameter."""
    books = [json.loads(data) for data in (one, other)]
    return (
        books[0]["metadata"]["papermill"]["parameters"]
        == books[1]["metadata"]["papermill"]["parameters"]
    )


def given_labels(data):
    """Return the answers and labels of a label file that were not withdrawn, or the whole plan."""
    if data.startswith(b'{"version"'):
        return [json.loads(data)]
    labels = []
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        values = json.loads(line)
        if "undo" in values:
            labels.pop()
        else:
            labels.append((values["question_id"], values["correct"]))
    return labels


def same_labels(one, other):
    """Return whether the labels of a file are the first of another file."""
    labels = given_labels(one)
    return labels == given_labels(other)[: len(labels)]


# By job: the writes of which one is killed (None: a random time), how often of 100 tries, and how
# results are compared.
JOBS = {
    score: (1, 25, bytes.__eq__),
    explore: (1, 25, bytes.__eq__),
    report: (1, 10, bytes.__eq__),
    judge: (1, 20, bytes.__eq__),
    label: (4, 20, same_labels),
    draw: (3, 20, bytes.__eq__),
    run: (9, 10, same_notebook),
    big: (None, 20, bytes.__eq__),
}


def contents(folder):
    """The files of a folder by name, those whose name begins with a dot too."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def kill_one(job, inputs, out, x, rng, *, n_writes, seconds):
    """Do a job in a process that is killed at a write or a random time; return whether it was."""

    def work():
        patch_open(out, moment, share)
        job(inputs, out, x)

    moment, share = rng.randrange(1, n_writes + 1) if n_writes else 0, rng.random()
    child = forked(work)
    if not n_writes:
        time.sleep(rng.uniform(0, 1.2 * seconds))
        os.kill(child, signal.SIGKILL)
    return ended(child)


def try_job(job, place, n_tries, rng):
    """Kill a job again and again; return the number of kills."""
    n_writes, _, is_same = JOBS[job]
    inputs, out = place / "inputs", place / "out"
    inputs.mkdir()
    out.mkdir()
    write_inputs(inputs)
    whole = {}
    for x in VALUES:
        started = time.monotonic()
        assert not ended(forked(partial(job, inputs, out, x)))
        seconds = time.monotonic() - started
        whole[x] = contents(out)
    n_killed = 0
    for n in range(n_tries):
        x = VALUES[n % 2]
        n_killed += kill_one(job, inputs, out, x, rng, n_writes=n_writes, seconds=seconds)
        found = contents(out)
        for name in whole[x]:
            assert any(is_same(found[name], whole[other][name]) for other in VALUES), (
                f"{name} is torn"
            )
        assert not ended(forked(partial(job, inputs, out, x)))
        found = contents(out)
        assert set(found) == set(whole[x]), f"{sorted(set(found) - set(whole[x]))} are left"
        assert all(is_same(found[name], whole[x][name]) for name in found)
    return n_killed


def main(n_tries):
    import matplotlib as mpl
    import papermill  # noqa: F401

    from pro_lib import evaluation, importing, plots, runs  # noqa: F401
    from pro_lib.app import (
        cli,  # noqa: F401
        experiment,  # noqa: F401
    )
    from pro_lib.app.explorer.page import to_html  # noqa: F401

    mpl.use("agg")
    rng, n_killed, n_done = random.Random(0), 0, 0
    for job, (_, n_of_100, _) in JOBS.items():
        n_own = max(1, n_tries * n_of_100 // 100)
        with tempfile.TemporaryDirectory() as place:
            n_killed += try_job(job, Path(place), n_own, rng)
        n_done += n_own
    print(f"{n_done} tries, {n_killed} kills, no torn file")
    assert n_killed >= n_done / 2


def test_commands_killed_while_they_write_leave_no_torn_file(size):
    n_tries = {"quick": "8", "all": "16", "trials": "100"}[size]
    done = subprocess.run(
        [sys.executable, __file__, n_tries], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_that_writes_to_a_path_is_killed():
    import click

    from pro_lib.app.cli import pro

    writes = {
        name
        for name, one in pro.commands.items()
        for parameter in one.params
        if isinstance(parameter.type, click.Path) and not parameter.type.exists
    }
    assert writes <= {job.__name__ for job in JOBS}


if __name__ == "__main__":
    main(int(sys.argv[1]))
