"""Commands write whole files: a killed process leaves the old file or the new one."""

import os
import signal
import subprocess
import sys

import pytest

from pro_lib.common import files

KILLED = """
import os, signal
from pro_lib.common import files
os.{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.write_whole(b"new" * 1000, "file")
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_process_killed_while_it_writes_leaves_the_old_file_and_the_next_one_no_other(
    step, tmp_path
):
    path = tmp_path / "file"
    files.write_whole(b"old", path)
    command = [sys.executable, "-c", KILLED.format(step=step)]
    done = subprocess.run(command, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    files.write_whole(b"new", path)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]
