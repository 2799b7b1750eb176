"""Python programs as processes of their own that find torch loaded: what has loaded it forks them.

A new process takes seconds to load torch, transformers and pandas, and a program of the docs a fraction of one. Nothing
of `pro_lib` is loaded beforehand: what a program needs of it, it imports itself.
"""

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = ("in", "out", "err")
LOADED = ["matplotlib.pyplot", "pandas", "pyarrow.parquet", "rouge_score.rouge_scorer", "scipy.stats"]
LOADED += ["sklearn.metrics", "transformers.models.llama.modeling_llama"]


class Forks:
    """This file as a process, and the programs that it forks."""

    def __init__(self):
        # What has threads could not be forked.
        environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__], env=os.environ | environment, **pipes)

    def run(self, words, *, cwd, env=os.environ, given=""):
        """What `python` with these words does in `cwd` from its start to its end, as `subprocess.run` says it."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in FILES]
            files[0].write_text(given)
            order = {"words": [*map(str, words)], "cwd": str(cwd), "env": dict(env), "files": [*map(str, files)]}
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            code = json.loads(self.process.stdout.readline())
            return subprocess.CompletedProcess(words, code, *(path.read_text() for path in files[1:]))

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def begin(words, cwd, env, files):
    """Become the program: its folder, its environment, its files, and what is left of its words."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, path in enumerate(files):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0)
    kind, *rest = words
    if kind == "-c":
        code, *sys.argv[1:] = rest
        sys.argv[0], sys.path[0] = kind, ""
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif kind == "-m":
        name, *sys.argv[1:] = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(kind).absolute().parent)
        runpy.run_path(kind, run_name="__main__")


def main():
    """Fork a program for each line, and say how it ended; in the program return, and end as it does."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()  # what all of them share is nothing to collect
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            return begin(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
